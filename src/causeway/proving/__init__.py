"""Proofs from a lake: a chain's committed state, for verifiers that trust its header."""
