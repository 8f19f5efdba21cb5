"""Proofs out of a lake: what a chain has committed to, proved to whoever trusts its header."""
