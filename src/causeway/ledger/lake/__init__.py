"""Derivation of the ledger from a lake."""
