"""The root of a few leaves, one by one; ``proofs/merkle.py`` is the same tree (RFC 6962) for columns."""

from __future__ import annotations

from collections.abc import Sequence

from causeway.proofs.hashing import sha256
from causeway.proofs.merkle import EMPTY_ROOT, INNER_PREFIX, LEAF_PREFIX


def simple_root(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle root over ``leaves`` (IBC reference 2.6, ``simple``); ``EMPTY_ROOT`` over none."""
    if not leaves:
        return EMPTY_ROOT
    nodes = [sha256(LEAF_PREFIX + leaf) for leaf in leaves]
    while len(nodes) > 1:
        paired = len(nodes) & ~1
        above = [sha256(INNER_PREFIX + nodes[i] + nodes[i + 1]) for i in range(0, paired, 2)]
        # An odd last node moves up unchanged.
        nodes = above + nodes[paired:]
    return nodes[0]
