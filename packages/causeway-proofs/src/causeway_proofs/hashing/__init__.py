"""Hash many values at once with SHA-256, BLAKE2b-256 or Keccak-256."""

from __future__ import annotations

from causeway_proofs.hashing.columns import digest_chunks, digest_pairs, digest_rows, digest_slices, digest_values
from causeway_proofs.hashing.functions import (
    DIGEST_BYTES,
    Digests,
    HashFunction,
    binary_rows,
    blake2_256,
    count_hashes,
    keccak256,
    sha256,
)

__all__ = [
    "DIGEST_BYTES", "Digests", "HashFunction", "binary_rows", "blake2_256", "count_hashes", "digest_chunks",
    "digest_pairs", "digest_rows", "digest_slices", "digest_values", "keccak256", "sha256",
]  # fmt: skip
