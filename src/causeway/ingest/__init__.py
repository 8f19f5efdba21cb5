"""From recorded traffic of any kind to rows of the ledger: mappings, readers, and the quarantine for broken rows.

Nothing here knows Spark.
"""
