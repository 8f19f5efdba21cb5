"""Merkle mountain ranges with Keccak-256: append-only lists whose every leaf and every earlier root can be proved."""
