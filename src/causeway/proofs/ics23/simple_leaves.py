"""Leaves of ICS-23's TendermintSpec, hashed by columns (IBC reference 2.6)."""

from __future__ import annotations

import pyarrow as pa

from causeway.proofs.hashing import (
    DIGEST_BYTES,
    Digests,
    HashFunction,
    binary_rows,
    digest_in_pieces,
    digest_values,
)
from causeway.proofs.ics23.columns import delimited, joined
from causeway.proofs.ics23.entries import Entries
from causeway.proofs.merkle import LEAF_PREFIX


def leaf_digests(entries: Entries) -> Digests:
    """Return SHA-256(00 || uvarint(len key) || key || uvarint(32) || SHA-256(value)) of each entry, shape (n, 32)."""

    def preimages(start: int, stop: int) -> pa.BinaryArray:
        piece = entries.slice(start, stop)
        hashed = binary_rows(digest_values(HashFunction.SHA256, piece.values))
        return joined(LEAF_PREFIX, *delimited(piece.keys), bytes([DIGEST_BYTES]), hashed)

    return digest_in_pieces(HashFunction.SHA256, len(entries), preimages)
