"""Digests of many values at once: SHA-256, BLAKE2b-256 and Keccak-256."""

from __future__ import annotations

from causeway.proofs.hashing.columns import digest_in_pieces, digest_pairs, digest_rows, digest_slices, digest_values
from causeway.proofs.hashing.functions import DIGEST_BYTES, Digests, HashFunction, binary_rows
from causeway.proofs.hashing.sha256_columns import VECTOR_THRESHOLD, sha256_each, sha256_in_pieces, sha256_rows

__all__ = [
    "DIGEST_BYTES", "VECTOR_THRESHOLD", "Digests", "HashFunction", "binary_rows", "digest_in_pieces", "digest_pairs",
    "digest_rows", "digest_slices", "digest_values", "sha256_each", "sha256_in_pieces", "sha256_rows",
]  # fmt: skip
