"""Pages about a ledger that a person looks at: pieces (tables, charts, a matrix, journeys of messages), and the report.

A piece is a pure function from plain data to HTML or SVG. Whatever comes from a ledger is text from strangers and is
escaped; nothing in a page is asked of another place.
"""
