"""The same round by other means: plain Python, DuckDB, Polars. They know the workload, none knows the kernel."""
