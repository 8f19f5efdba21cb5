"""The audit of a ledger: does sent = delivered + pending + refunded hold on every lane?

``engine`` runs passes over sorted buckets, ``checks`` has one module a check, ``passes`` merges results, and
``incremental`` audits a growing ledger. Nothing here depends on Spark, except ``stored`` at run time.
"""
