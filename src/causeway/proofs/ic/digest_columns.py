"""The node hashes of hash trees over whole columns: many leaves, many labels, many forks at once (IC reference 2.9)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.order import U64, Groups
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, digest_values
from causeway.proofs.ic.digests import EMPTY_DIGEST, FORK_DOMAIN, LABELED_DOMAIN, LEAF_DOMAIN
from causeway.proofs.merkle import level_up

INDEX_BYTES = 8

PIECE = 1 << 13
"""Labels that are put before subtrees at a time: they stay in the cache until they are hashed."""

_EMPTY_ROW = np.frombuffer(EMPTY_DIGEST, dtype=np.uint8)


def leaf_digests(values: pa.BinaryArray) -> Digests:
    """Return the digest of a leaf of each value, shape (n, 32)."""
    return digest_values(HashFunction.SHA256, values, prefix=LEAF_DOMAIN)


def indexed_digests(indexes: U64, subtrees: Digests) -> Digests:
    """Return the digest of each subtree under its index as a label of 8 bytes, big-endian, shape (n, 32)."""
    digests = np.empty((len(indexes), DIGEST_BYTES), dtype=np.uint8)
    for start in range(0, len(indexes), PIECE):
        labels = indexes[start : start + PIECE].astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES)
        rows = np.concatenate([labels, subtrees[start : start + PIECE]], axis=1)
        digest_rows(HashFunction.SHA256, rows, prefix=LABELED_DOMAIN, out=digests[start : start + PIECE])
    return digests


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
