"""Merkle roots of many runs of leaves at once.

The tree is the one of RFC 6962: leaf = SHA-256(00 || data), inner = SHA-256(01 || left || right), the left part of n leaves
holds the largest power of two below n. Built from below, that is: pair neighbours, an odd last node moves up unchanged.
"""

from __future__ import annotations

import numpy as np

from causeway.commitments.hashing import DIGEST_BYTES, Digests, sha256_rows
from causeway.model.order import Groups, Rows

LEAF_PREFIX = b"\x00"
INNER_PREFIX = 1


def merkle_roots(leaves: Digests, groups: Groups) -> Digests:
    """Return the root of each group of ``leaves`` (neighbouring rows), shape (len(groups), 32); no group is empty."""
    counts = groups.counts.copy()
    nodes = leaves
    while len(counts) and int(counts.max()) > 1:
        nodes, counts = _level_up(nodes, counts)
    return nodes


def _level_up(nodes: Digests, counts: Rows) -> tuple[Digests, Rows]:
    starts = np.cumsum(counts) - counts
    pairs = counts // 2
    parents = (counts + 1) // 2
    pair_ranks = np.arange(int(pairs.sum())) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    left = np.repeat(starts, pairs) + 2 * pair_ranks
    preimages = np.empty((len(left), 1 + 2 * DIGEST_BYTES), dtype=np.uint8)
    preimages[:, 0] = INNER_PREFIX
    preimages[:, 1 : 1 + DIGEST_BYTES] = nodes[left]
    preimages[:, 1 + DIGEST_BYTES :] = nodes[left + 1]
    parent_starts = np.cumsum(parents) - parents
    above = np.empty((int(parents.sum()), DIGEST_BYTES), dtype=np.uint8)
    above[np.repeat(parent_starts, pairs) + pair_ranks] = sha256_rows(preimages)
    odd = counts % 2 == 1
    above[(parent_starts + parents - 1)[odd]] = nodes[(starts + counts - 1)[odd]]
    return above, parents
