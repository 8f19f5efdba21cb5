"""Spark: session, workers and tasks."""
