"""Networks on lakes: deployment, runs, replay, re-execution and read-only access."""
