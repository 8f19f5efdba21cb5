"""Merkle roots of many runs of leaves at once.

The tree is the one of RFC 6962: leaf = SHA-256(00 || data), inner = SHA-256(01 || left || right), the left part of n
leaves holds the largest power of two below n. Built from below, that is: pair neighbours, an odd last node moves up
unchanged.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.commitments.hashing import DIGEST_BYTES, Digests, binary_rows, sha256_in_pieces
from causeway.model.order import Groups, Rows

LEAF_PREFIX = b"\x00"
INNER_PREFIX = 1


def merkle_roots(leaves: Digests, groups: Groups) -> Digests:
    """Return the root of each group of ``leaves`` (neighbouring rows), shape (len(groups), 32); no group is empty."""
    counts = groups.counts.copy()
    nodes = leaves
    while len(counts) and int(counts.max()) > 1:
        nodes, counts = level_up(nodes, counts)
    return nodes


def level_up(nodes: Digests, counts: Rows) -> tuple[Digests, Rows]:
    """Return the next level of trees: ``nodes`` of all trees joined, ``counts`` of each (0 is allowed)."""
    pairs, odd = counts // 2, counts % 2
    leftovers = int(odd.sum())
    # Where groups before have a node left over, pairs and their parents lie that much further on.
    shift = np.repeat(np.cumsum(odd) - odd, pairs) if leftovers else 0
    place = np.arange(int(pairs.sum()))
    left = 2 * place + shift

    def inner_nodes(start: int, stop: int) -> pa.BinaryArray:
        preimages = np.empty((stop - start, 1 + 2 * DIGEST_BYTES), dtype=np.uint8)
        preimages[:, 0] = INNER_PREFIX
        preimages[:, 1:] = neighbours[left[start:stop]]
        return binary_rows(preimages)

    neighbours = np.lib.stride_tricks.as_strided(
        nodes, (max(len(nodes) - 1, 0), 2 * DIGEST_BYTES), nodes.strides, writeable=False
    )
    hashed = sha256_in_pieces(len(left), inner_nodes)
    if not leftovers:
        return hashed, pairs
    above = np.empty((len(left) + leftovers, DIGEST_BYTES), dtype=np.uint8)
    above[place + shift] = hashed
    parents = pairs + odd
    last = odd > 0
    above[(np.cumsum(parents) - 1)[last]] = nodes[(np.cumsum(counts) - 1)[last]]
    return above, parents
