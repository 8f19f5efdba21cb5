"""Relayers of domains."""
