"""Passes over ledger buckets, and the merge of their results."""
