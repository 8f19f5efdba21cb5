"""The audit of a ledger of 1e7 and 1e8 rows, beside other tools with the same checks; recorded traffic, copied."""
