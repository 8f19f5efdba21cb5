"""The report of a ledger, and its elements: tables, charts, a matrix, and message journeys.

An element is a pure function from plain data to HTML or SVG. All text of a ledger is untrusted and escaped. A page
loads nothing from elsewhere.
"""
