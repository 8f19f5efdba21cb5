"""Scenarios: what a network consists of, what traffic it gets, and what goes wrong."""
