"""Core data structures: columns, queues, joins, messages, the ledger's vocabulary."""
