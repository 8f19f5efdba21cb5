"""The explorer: a lake or a ledger in a browser, live and read-only, on this machine only."""
