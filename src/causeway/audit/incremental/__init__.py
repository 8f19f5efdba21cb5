"""The audit of a growing ledger: only changed buckets are audited again."""
