"""The node hashes of hash trees over whole columns: many leaves, many labels, many forks at once (IC reference 2.9)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.order import U64, Groups
from causeway.proofs.hashing import DIGEST_BYTES, Digests, binary_rows, sha256_in_pieces
from causeway.proofs.ic.digests import EMPTY_DIGEST, FORK_DOMAIN, LABELED_DOMAIN, LEAF_DOMAIN
from causeway.proofs.merkle import level_up

INDEX_BYTES = 8

_NO_SEPARATOR = pa.scalar(b"", pa.binary())
_LEAF_PREFIX = pa.scalar(LEAF_DOMAIN, pa.binary())
_LABELED_ROW = np.frombuffer(LABELED_DOMAIN, dtype=np.uint8)
_EMPTY_ROW = np.frombuffer(EMPTY_DIGEST, dtype=np.uint8)


def leaf_digests(values: pa.BinaryArray) -> Digests:
    """Return the digest of a leaf of each value, shape (n, 32)."""
    return sha256_in_pieces(
        len(values),
        lambda start, stop: pc.binary_join_element_wise(_LEAF_PREFIX, values[start:stop], _NO_SEPARATOR),
    )


def indexed_digests(indexes: U64, subtrees: Digests) -> Digests:
    """Return the digest of each subtree under its index as a label of 8 bytes, big-endian, shape (n, 32)."""
    label_at = len(LABELED_DOMAIN)
    subtree_at = label_at + INDEX_BYTES

    def preimages(start: int, stop: int) -> pa.BinaryArray:
        rows = np.empty((stop - start, subtree_at + DIGEST_BYTES), dtype=np.uint8)
        rows[:, :label_at] = _LABELED_ROW
        rows[:, label_at:subtree_at] = indexes[start:stop].astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES)
        rows[:, subtree_at:] = subtrees[start:stop]
        return binary_rows(rows)

    return sha256_in_pieces(len(indexes), preimages)


def fork_roots(nodes: Digests, groups: Groups) -> Digests:
    """Return the root of each group of ``nodes`` (neighbouring rows), shape (len(groups), 32).

    The shape is that of one map: the largest power of two on the left. A group without nodes has the root of an empty
    map.
    """
    counts = groups.counts.copy()
    filled = counts > 0
    roots = np.empty((len(counts), DIGEST_BYTES), dtype=np.uint8)
    roots[~filled] = _EMPTY_ROW
    counts = counts[filled]
    while len(counts) and int(counts.max()) > 1:
        nodes, counts = level_up(np.ascontiguousarray(nodes), counts, FORK_DOMAIN)
    roots[filled] = nodes
    return roots
