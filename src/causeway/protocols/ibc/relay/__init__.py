"""Relayers of zones."""
