"""Ticks of a network: buckets, rounds, exchange, executors."""
