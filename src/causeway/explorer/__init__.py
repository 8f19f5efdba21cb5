"""A lake or a ledger in a browser, as it grows: pages over the data of the report, read-only, on this machine only."""
