"""Stores of deployed chains with their ICS-23 proofs, and batches of proofs: what verifiers are tested with."""
