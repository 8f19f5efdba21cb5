"""Node positions and hashes of a Merkle mountain range.

Nodes are numbered in order of insertion: a leaf, then each parent that it completes. A node is also named by its height
and its index in that height: node (h, k) covers the leaves k * 2^h to (k + 1) * 2^h - 1. With n leaves there are n >> h
nodes of height h, so the levels of a range only ever grow.

Reference:
    XDM reference 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from causeway_proofs.hashing import keccak256 as keccak256
from causeway_proofs.mmr.errors import GetRootOnEmpty, InvalidSize

MAX_LEAVES = 1 << 63
"""Most leaves of a range; positions of more do not fit in 64 bits."""


@dataclass(frozen=True, slots=True)
class MmrNode:
    """A node by height (leaves: 0) and index from the left among the nodes of that height."""

    height: int
    index: int


def require_leaf_count(leaf_count: int) -> None:
    """Reject a number of leaves outside of 0..2^63.

    Raises:
        InvalidSize: ``leaf_count`` is out of range.
    """
    if not 0 <= leaf_count <= MAX_LEAVES:
        raise InvalidSize(f"leaf count {leaf_count}: a range has 0 to 2^63 leaves")


def leaf_count_to_size(leaf_count: int) -> int:
    """Return the number of nodes of a range: 2n - popcount(n).

    Args:
        leaf_count: number of leaves, n.

    Returns:
        The number of nodes.

    Raises:
        InvalidSize: the count is negative or above 2^63.
    """
    require_leaf_count(leaf_count)
    return 2 * leaf_count - leaf_count.bit_count()


def leaf_index_to_position(leaf_index: int) -> int:
    """Return the position of a leaf: 2i - popcount(i).

    Args:
        leaf_index: index of the leaf from 0, i.

    Returns:
        The position.

    Raises:
        InvalidSize: the index is negative or not below 2^63.
    """
    if not 0 <= leaf_index < MAX_LEAVES:
        raise InvalidSize(f"leaf index {leaf_index}: a leaf has an index from 0 to 2^63 - 1")
    return 2 * leaf_index - leaf_index.bit_count()


def node_to_position(node: MmrNode) -> int:
    """Return the position of a node, after its last leaf and that leaf's completed parents."""
    last_leaf = ((node.index + 1) << node.height) - 1
    return leaf_index_to_position(last_leaf) + node.height


def peak_nodes(leaf_count: int) -> list[MmrNode]:
    """Return the peaks of a range, left to right: one for each bit set in ``leaf_count``.

    Raises:
        InvalidSize: the count is negative or above 2^63.
    """
    require_leaf_count(leaf_count)
    heights = range(leaf_count.bit_length() - 1, -1, -1)
    return [MmrNode(height, (leaf_count >> height) - 1) for height in heights if leaf_count >> height & 1]


def leaf_hash(encoded_leaf: bytes) -> bytes:
    """Return the node of a data leaf: Keccak-256 of its SCALE encoding (XDM reference 2.4).

    Args:
        encoded_leaf: the SCALE encoding.

    Returns:
        32 bytes.
    """
    return keccak256(encoded_leaf)


def bag_peaks(peaks: Sequence[bytes]) -> bytes:
    """Return the root over peaks, folded from the right (XDM reference 2.4).

    The right operand is hashed first.

    Args:
        peaks: peaks, left to right, 32 bytes each.

    Returns:
        The root, 32 bytes.

    Raises:
        GetRootOnEmpty: ``peaks`` is empty.
    """
    if not peaks:
        raise GetRootOnEmpty("a range without leaves has no root")
    bagged = peaks[-1]
    for peak in reversed(peaks[:-1]):
        bagged = keccak256(bagged + peak)
    return bagged
