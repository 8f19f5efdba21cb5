"""Proofs of the last leaves of a mountain range of whose earlier leaves only peaks are known (XDM reference 2.4)."""

from __future__ import annotations

import numpy as np

from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows
from causeway.proofs.mmr.errors import LeafNotFound
from causeway.proofs.mmr.mountain_range import bag_peaks
from causeway.proofs.mmr.proof import LeafProof
from causeway.proofs.mmr.range_state import RangeState


class RangeWindow:
    """The leaves behind ``state``, shape (n, 32): what they need of the earlier ones are peaks of those.

    A subtree beside one that has a leaf of the window is complete, and either has such leaves itself or is a mountain
    of ``state``: were it part of a larger one there, that one would have the leaf.
    """

    def __init__(self, state: RangeState, leaves: Digests) -> None:
        self._state, self.leaf_count = state, state.leaf_count + len(leaves)
        self._levels: list[Digests] = []
        self._starts: list[int] = []
        peaks, level, start, height = [*state.peaks], leaves, state.leaf_count, 0
        while True:
            if start & 1 and peaks and state.leaf_count >> height & 1:
                level = np.concatenate([np.frombuffer(peaks.pop(), dtype=np.uint8)[None], level])
                start -= 1
            self._levels.append(level)
            self._starts.append(start)
            if len(level) < 2 and not peaks:
                break
            pairs = level[: len(level) & ~1].reshape(-1, 2 * DIGEST_BYTES)
            level, start, height = digest_rows(HashFunction.KECCAK_256, pairs), start >> 1, height + 1

    def _node(self, height: int, index: int) -> bytes:
        node: bytes = self._levels[height][index - self._starts[height]].tobytes()
        return node

    def peaks(self, leaf_count: int | None = None) -> list[bytes]:
        """Return the peaks of the range as it was with ``leaf_count`` leaves (default: all), left to right.

        Raises ``LeafNotFound`` for a number of leaves that the window does not have.
        """
        count = self.leaf_count if leaf_count is None else leaf_count
        if not self._state.leaf_count <= count <= self.leaf_count:
            raise LeafNotFound(f"{count} leaves: the window has {self._state.leaf_count} to {self.leaf_count}")
        found = []
        for height in reversed(range(count.bit_length())):
            if count >> height & 1:
                found.append(self._node(height, (count >> height) - 1))
        return found

    def root(self, leaf_count: int | None = None) -> bytes:
        """Return the root of the range as it was with ``leaf_count`` leaves. Raises as ``peaks``."""
        return bag_peaks(self.peaks(leaf_count))

    def state(self, leaf_count: int) -> RangeState:
        """Return the range as it was with ``leaf_count`` leaves. Raises as ``peaks``."""
        return RangeState(leaf_count, tuple(self.peaks(leaf_count)))

    def prove(self, leaf_index: int, leaf_count: int | None = None) -> LeafProof:
        """Return the proof of one leaf under the root of the range as it was with ``leaf_count`` leaves.

        Raises ``LeafNotFound`` for a leaf outside of the window.
        """
        count = self.leaf_count if leaf_count is None else leaf_count
        peaks = self.peaks(count)
        if not self._state.leaf_count <= leaf_index < count:
            raise LeafNotFound(f"leaf {leaf_index}: the window has {self._state.leaf_count} to {count - 1}")
        items, position, first = [], 0, 0
        for height in reversed(range(count.bit_length())):
            if not count >> height & 1:
                continue
            if leaf_index < first + (1 << height):
                break
            first += 1 << height
            position += 1
        items += peaks[:position]
        items += [self._node(level, (leaf_index >> level) ^ 1) for level in range(height)]
        if position + 1 < len(peaks):
            items.append(bag_peaks(peaks[position + 1 :]))
        return LeafProof((leaf_index,), count, tuple(items))
