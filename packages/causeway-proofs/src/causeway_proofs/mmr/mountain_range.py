"""The hashes of a Merkle mountain range (XDM reference 2.4): of a leaf, and of the root over the peaks.

What is refused about Merkle mountain ranges (names as in the deployed library and pallet, where they name it).

Where the nodes of a Merkle mountain range are.

Nodes are numbered in order of insertion: a leaf, then each parent that it completes. A node is also named by its height
and its index among the nodes of that height: node (h, k) stands over the leaves k * 2^h to (k + 1) * 2^h - 1. With n
leaves there are n >> h nodes of height h, whatever n is, so the levels of a range only ever grow (XDM reference 2.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput, MalformedProof, NotProven
from causeway_proofs.hashing import keccak256


class LeafNotFound(InvalidInput):
    """A proof, peak or root is asked for that the range, at the leaf count asked about, does not have."""


class GetRootOnEmpty(InvalidInput):
    """A range without leaves has no root."""


class InvalidSize(MalformedProof):
    """No range has that number of nodes, leaves or that position."""


class CorruptedProof(MalformedProof):
    """The proof does not have the parts that its leaf count and indices call for: too few, too many, out of order."""


class RootMismatch(NotProven):
    """The proof leads to another root than the one that is trusted, or speaks of another number of leaves."""


MAX_LEAVES = 1 << 63
"""Most leaves of a range: with more, positions do not fit in 64 bits."""


@dataclass(frozen=True, slots=True)
class MmrNode:
    """A node by its height (leaves: 0) and its index among the nodes of that height, from the left."""

    height: int
    index: int


def require_leaf_count(leaf_count: int) -> None:
    """Refuse a number of leaves outside 0..2^63.

    Raises:
        InvalidSize: it is outside.
    """
    if not 0 <= leaf_count <= MAX_LEAVES:
        raise InvalidSize(f"leaf count {leaf_count}: a range has 0 to 2^63 leaves")


def leaf_count_to_size(leaf_count: int) -> int:
    """Return how many nodes a range of ``leaf_count`` leaves has: 2n - popcount(n).

    Raises:
        InvalidSize: the count is negative or above 2^63.
    """
    require_leaf_count(leaf_count)
    return 2 * leaf_count - leaf_count.bit_count()


def leaf_index_to_position(leaf_index: int) -> int:
    """Return the position of a leaf: 2i - popcount(i).

    Raises:
        InvalidSize: the index is negative or not below 2^63.
    """
    if not 0 <= leaf_index < MAX_LEAVES:
        raise InvalidSize(f"leaf index {leaf_index}: a leaf has an index from 0 to 2^63 - 1")
    return 2 * leaf_index - leaf_index.bit_count()


def node_to_position(node: MmrNode) -> int:
    """Return the position of a node: it comes right after the last leaf below it and the parents that one completes."""
    last_leaf = ((node.index + 1) << node.height) - 1
    return leaf_index_to_position(last_leaf) + node.height


def peak_nodes(leaf_count: int) -> list[MmrNode]:
    """Return the peaks of a range of ``leaf_count`` leaves, left to right: one for each bit set.

    Raises:
        InvalidSize: the count is negative or above 2^63.
    """
    require_leaf_count(leaf_count)
    heights = range(leaf_count.bit_length() - 1, -1, -1)
    return [MmrNode(height, (leaf_count >> height) - 1) for height in heights if leaf_count >> height & 1]


def leaf_hash(encoded_leaf: bytes) -> bytes:
    """Return the node of a data leaf: Keccak-256 of its SCALE encoding (XDM reference 2.4)."""
    return keccak256(encoded_leaf)


def bag_peaks(peaks: Sequence[bytes]) -> bytes:
    """Return the root over peaks given left to right: from the right, the right one first (XDM reference 2.4).

    Raises:
        GetRootOnEmpty: there are none.
    """
    if not peaks:
        raise GetRootOnEmpty("a range without leaves has no root")
    bagged = peaks[-1]
    for peak in reversed(peaks[:-1]):
        bagged = keccak256(bagged + peak)
    return bagged
