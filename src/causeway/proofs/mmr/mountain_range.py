"""A Merkle mountain range that grows: its nodes level by level, each hashed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, keccak256
from causeway.proofs.mmr.errors import GetRootOnEmpty, LeafNotFound
from causeway.proofs.mmr.positions import (
    Node,
    leaf_count_to_size,
    leaf_index_to_position,
    peaks_of,
    position_to_node,
)


def leaf_hash(encoded_leaf: bytes) -> bytes:
    """Return the node of a data leaf: Keccak-256 of its SCALE encoding (xdm.md 2.4)."""
    return keccak256(encoded_leaf)


def bag_peaks(peaks: Sequence[bytes]) -> bytes:
    """Return the root over peaks given left to right: from the right, the right one first (xdm.md 2.4).

    Raises:
        GetRootOnEmpty: there are none.
    """
    if not peaks:
        raise GetRootOnEmpty("a range without leaves has no root")
    bagged = peaks[-1]
    for peak in reversed(peaks[:-1]):
        bagged = keccak256(bagged + peak)
    return bagged


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
            # Pairs whose right node is new, side by side in memory as they are.
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

    def node(self, node: Node, leaf_count: int | None = None) -> bytes:
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
        return [self.node(peak) for peak in peaks_of(count)]

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
