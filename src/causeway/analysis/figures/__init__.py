"""Figures of a ledger without Spark: outcomes, delays, backlog over time, lanes and fees."""
