"""A mountain range with all its nodes, and proofs of leaves and of earlier ranges out of it (XDM reference 2.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from causeway_proofs.arrays import integer_array
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, keccak256
from causeway_proofs.mmr.columns import LeafProofs
from causeway_proofs.mmr.errors import InvalidSize, LeafNotFound
from causeway_proofs.mmr.mountain_range import (
    MAX_LEAVES,
    MmrNode,
    bag_peaks,
    leaf_count_to_size,
    leaf_index_to_position,
    node_to_position,
    peak_nodes,
)
from causeway_proofs.mmr.peaks import RangeState
from causeway_proofs.mmr.proof import AncestryProof, LeafProof, _by_mountain, _plan
from causeway_proofs.order import Rows


class MountainRange:
    """Leaves in order of arrival, and all nodes above them.

    Appending costs one hash a leaf on average. Roots, peaks and proofs are there for every leaf count the range has
    been through, since no node ever changes.
    """

    def __init__(self) -> None:
        self._leaf_count = 0
        # Level h has room for more than the leaf_count >> h nodes that are in use.
        self._levels: list[Digests] = []

    def __len__(self) -> int:
        return self._leaf_count

    @property
    def leaf_count(self) -> int:
        """Return the number of leaves."""
        return self._leaf_count

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return leaf_count_to_size(self._leaf_count)

    def append(self, leaf: bytes) -> int:
        """Append one leaf's hash (32 bytes) and return its position.

        Raises:
            InvalidInput: it has another length.
        """
        if len(leaf) != DIGEST_BYTES:
            raise InvalidInput(f"a leaf's hash has {len(leaf)} bytes, {DIGEST_BYTES} are wanted")
        index = self._leaf_count
        height, node = 0, leaf
        while True:
            place = index >> height
            self._room(height, place + 1)[place] = np.frombuffer(node, dtype=np.uint8)
            if not place & 1:
                break
            node = keccak256(self._levels[height][place - 1].tobytes() + node)
            height += 1
        self._leaf_count += 1
        return leaf_index_to_position(index)

    def extend(self, leaves: Digests) -> None:
        """Append the hashes of many leaves, shape (n, 32); each level's new nodes are hashed at once.

        Raises:
            InvalidInput: the array has another shape or type.
        """
        if leaves.ndim != 2 or leaves.shape[1] != DIGEST_BYTES or leaves.dtype != np.uint8:
            raise InvalidInput(
                f"the leaves are {leaves.dtype} in the shape {leaves.shape}, uint8 in (n, {DIGEST_BYTES}) is wanted"
            )
        before, after = self._leaf_count, self._leaf_count + len(leaves)
        new: npt.NDArray[np.uint8] = leaves
        height = 0
        while (first := before >> height) < (last := after >> height):
            level = self._room(height, last)
            level[first:last] = new
            # Pairs with a new right node, adjacent in memory.
            pairs = level[first & ~1 : last & ~1].reshape(-1, 2 * DIGEST_BYTES)
            new = digest_rows(HashFunction.KECCAK_256, pairs)
            height += 1
        self._leaf_count = after

    def truncate(self, leaf_count: int) -> None:
        """Forget all leaves from index ``leaf_count`` on, as when blocks are retracted.

        Raises:
            LeafNotFound: the range does not have that many.
        """
        self._require(leaf_count)
        self._leaf_count = leaf_count
        del self._levels[leaf_count.bit_length() :]

    def node(self, node: MmrNode, leaf_count: int | None = None) -> bytes:
        """Return the hash of a node, of the range as it was with ``leaf_count`` leaves (default: all).

        Raises:
            LeafNotFound: the range has, or had, no such node.
        """
        count = self._require(leaf_count)
        if node.height < 0 or not 0 <= node.index < count >> node.height:
            raise LeafNotFound(f"node {node.index} of height {node.height}: not in a range of {count} leaves")
        digest: bytes = self._levels[node.height][node.index].tobytes()
        return digest

    def nodes(self, height: int, indices: Rows) -> Digests:
        """Return the hashes of nodes of one height, shape (n, 32).

        Raises:
            LeafNotFound: the range has no such node.
        """
        if len(indices) and not 0 <= indices.min() <= indices.max() < self._leaf_count >> height:
            raise LeafNotFound(
                f"nodes {indices.min()} to {indices.max()} of height {height}: not all in a range of "
                f"{self._leaf_count} leaves"
            )
        return self._levels[height][indices] if len(indices) else np.empty((0, DIGEST_BYTES), dtype=np.uint8)

    def node_at(self, position: int) -> bytes:
        """Return the hash of the node at a position.

        Raises:
            LeafNotFound: the range has no such node.
            InvalidSize: no range has.
        """
        return self.node(position_to_node(position))

    def peaks(self, leaf_count: int | None = None) -> list[bytes]:
        """Return the peaks, left to right, of the range as it was with ``leaf_count`` leaves (default: all).

        Raises:
            LeafNotFound: the range does not have that many leaves.
        """
        count = self._require(leaf_count)
        return [self.node(peak) for peak in peak_nodes(count)]

    def root(self, leaf_count: int | None = None) -> bytes:
        """Return the root of the range as it was with ``leaf_count`` leaves (default: all).

        Raises:
            LeafNotFound: the range does not have that many leaves.
            GetRootOnEmpty: there are no leaves.
        """
        return bag_peaks(self.peaks(leaf_count))

    def _require(self, leaf_count: int | None) -> int:
        if leaf_count is None:
            return self._leaf_count
        if not 0 <= leaf_count <= self._leaf_count:
            raise LeafNotFound(f"leaf count {leaf_count}: the range has {self._leaf_count} leaves")
        return leaf_count

    def _room(self, height: int, length: int) -> Digests:
        """Return the level at ``height`` with room for ``length`` nodes: doubled when full, so growth is linear."""
        if height == len(self._levels):
            self._levels.append(np.empty((max(length, 4), DIGEST_BYTES), dtype=np.uint8))
        level = self._levels[height]
        if length > len(level):
            grown = np.empty((max(length, 2 * len(level)), DIGEST_BYTES), dtype=np.uint8)
            grown[: len(level)] = level
            self._levels[height] = level = grown
        return level


def prove_leaves(mountains: MountainRange, leaf_indices: Sequence[int], leaf_count: int | None = None) -> LeafProof:
    """Return the proof for some leaves under the root that the range had with ``leaf_count`` leaves (default: all).

    Args:
        mountains: the range.
        leaf_indices: the leaves to prove, in any order; one named twice is proven once.
        leaf_count: how many leaves the range had then.

    Raises:
        LeafNotFound: there are no indices, or the range had no such leaf.
    """
    count = mountains.leaf_count if leaf_count is None else leaf_count
    indices = tuple(sorted(set(leaf_indices)))
    if not indices:
        raise LeafNotFound("no leaf index is given, a proof is of one leaf at least")
    if not 0 <= count <= mountains.leaf_count:
        raise LeafNotFound(f"leaf count {count}: the range has {mountains.leaf_count} leaves")
    if indices[0] < 0 or indices[-1] >= count:
        raise LeafNotFound(f"leaf indices {indices[0]} to {indices[-1]}: not all in a range of {count} leaves")
    items: list[bytes] = []
    mountains_left = peak_nodes(count)
    for part in _by_mountain(indices, count):
        peak = mountains_left.pop(0)
        if not part:
            items.append(mountains.node(peak))
        level = part
        for height in range(peak.height if part else 0):
            parents: list[int] = []
            for index in level:
                if parents and parents[-1] == index >> 1:
                    # Its left sibling is known: the presumed one was this node.
                    items.pop()
                    continue
                parents.append(index >> 1)
                items.append(mountains.node(MmrNode(height, index ^ 1)))
            level = parents
    if mountains_left:
        items.append(bag_peaks([mountains.node(peak) for peak in mountains_left]))
    return LeafProof(indices, count, tuple(items))


def prove_each_leaf(
    mountains: MountainRange, leaf_indices: npt.NDArray[np.integer], leaf_count: int | None = None
) -> LeafProofs:
    """Return a proof of its own for each leaf, under the root that the range had with ``leaf_count`` leaves.

    Args:
        mountains: the range.
        leaf_indices: the leaves, in any order.
        leaf_count: how many leaves the range had then; default: all.

    Raises:
        LeafNotFound: the range had no such leaf.
    """
    from causeway_proofs.mmr.column_loops import plan_proofs

    leaf_indices = integer_array(leaf_indices, "leaf indices", np.int64)
    peaks = mountains.peaks(leaf_count)
    count = mountains.leaf_count if leaf_count is None else leaf_count
    if len(leaf_indices) and not 0 <= leaf_indices.min() <= leaf_indices.max() < count:
        raise LeafNotFound(
            f"leaf indices {leaf_indices.min()} to {leaf_indices.max()}: not all in a range of {count} leaves"
        )
    indices = leaf_indices.astype(np.uint64)
    counts = np.full(len(indices), count, dtype=np.uint64)
    heights, lefts, rights = (np.empty(len(indices), dtype=np.int64) for _ in range(3))
    plan_proofs(indices, counts, heights, lefts, rights)
    offsets = np.concatenate([[0], np.cumsum(lefts + heights + rights)])
    items = np.empty((offsets[-1], DIGEST_BYTES), dtype=np.uint8)
    for height in range(int(heights.max(initial=0))):
        rows = np.flatnonzero(heights > height)
        siblings = (indices[rows].astype(np.int64) >> height) ^ 1
        items[offsets[rows] + lefts[rows] + height] = mountains.nodes(height, siblings)
    for position, peak in enumerate(peaks):
        rows = np.flatnonzero(lefts > position)
        items[offsets[rows] + position] = np.frombuffer(peak, dtype=np.uint8)
        rows = np.flatnonzero((lefts == position - 1) & (rights == 1))
        if len(rows):
            items[offsets[rows + 1] - 1] = np.frombuffer(bag_peaks(peaks[position:]), dtype=np.uint8)
    return LeafProofs(indices, counts, items, offsets)


def prove_ancestry(mountains: MountainRange, prev_leaf_count: int, leaf_count: int | None = None) -> AncestryProof:
    """Return the proof that the range of ``prev_leaf_count`` leaves is the beginning of the one of ``leaf_count``.

    Args:
        mountains: the range.
        prev_leaf_count: the number of leaves of the earlier range, at least one.
        leaf_count: the number of leaves of the later range; default: all.

    Raises:
        LeafNotFound: the counts are not 1 <= prev_leaf_count <= leaf_count <= the range's.
    """
    count = mountains.leaf_count if leaf_count is None else leaf_count
    if not 1 <= prev_leaf_count <= count <= mountains.leaf_count:
        raise LeafNotFound(
            f"leaf counts {prev_leaf_count} and {count}: wanted are 1 <= earlier <= later <= {mountains.leaf_count}"
        )
    _, siblings, beyond = _plan(prev_leaf_count, count)
    items = [(node_to_position(sibling), mountains.node(sibling)) for sibling in siblings]
    if beyond:
        items.append((node_to_position(beyond[0]), bag_peaks([mountains.node(peak) for peak in beyond])))
    return AncestryProof(tuple(mountains.peaks(prev_leaf_count)), prev_leaf_count, count, tuple(items))


def size_to_leaf_count(size: int) -> int:
    """Return how many leaves a range of ``size`` nodes has.

    Raises:
        InvalidSize: no range has that many nodes (2, 5, 6, 9, ...).
    """
    if not 0 <= size <= leaf_count_to_size(MAX_LEAVES):
        raise InvalidSize(f"size {size}: a range has 0 to 2^64 - 1 nodes")
    leaf_count, rest = 0, size
    for height in range(size.bit_length() - 1, -1, -1):
        mountain = (2 << height) - 1
        if rest >= mountain:
            rest -= mountain
            leaf_count += 1 << height
    if rest:
        raise InvalidSize(f"size {size}: no range has that many nodes, the one before has {size - rest}")
    return leaf_count


def position_to_node(position: int) -> MmrNode:
    """Return the node at a position.

    Raises:
        InvalidSize: the position is negative or not below 2^64 - 1.
    """
    if not 0 <= position < leaf_count_to_size(MAX_LEAVES):
        raise InvalidSize(f"position {position}: a node has a position from 0 to 2^64 - 2")
    first_leaf, rest = 0, position
    height = (position + 1).bit_length() - 1
    while True:
        nodes = (2 << height) - 1
        if rest >= nodes:
            rest -= nodes
            first_leaf += 1 << height
        if rest == nodes - 1:
            return MmrNode(height, first_leaf >> height)
        height -= 1


def range_state(mountains: MountainRange, leaf_count: int | None = None) -> RangeState:
    """Return the peaks of a range as it was with ``leaf_count`` leaves (default: all)."""
    count = mountains.leaf_count if leaf_count is None else leaf_count
    return RangeState(count, tuple(mountains.peaks(leaf_count)))
