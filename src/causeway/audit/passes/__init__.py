"""Passes over ledger buckets, and the join of their results."""
