"""Figures of a ledger: what became of each message, delays, backlog over time, lanes, fees; knows no Spark."""
