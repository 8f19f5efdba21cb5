"""The audit of a ledger: does sent = delivered + pending + refunded hold on every lane, and what does the input show?

Passes over sorted rows, the findings, and what the input covers. Nothing here knows Spark.
"""
