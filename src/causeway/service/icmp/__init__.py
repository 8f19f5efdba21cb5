"""Parachain part of a served lake: addresses, answers, metrics, and summaries of a run."""
