"""Represent a mountain range by its peaks, to append and to prove later leaves.

``RangeState`` is small enough for a table row. ``RangeWindow`` proves the leaves appended to a state; of the earlier
leaves it needs only the peaks.

Reference:
    XDM reference 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from causeway_proofs.arrays import require_digests
from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, keccak256
from causeway_proofs.mmr.errors import InvalidSize, LeafNotFound
from causeway_proofs.mmr.mountain_range import MAX_LEAVES, bag_peaks, leaf_count_to_size
from causeway_proofs.mmr.proof import LeafProof, encode_u64

_COUNT_BYTES = 8


@dataclass(frozen=True, slots=True)
class RangeState:
    """The state needed to append to a range; ``RangeWindow`` adds proofs.

    Attributes:
        leaf_count: number of leaves.
        peaks: roots of the mountains, left to right, 32 bytes each: one for each bit set in ``leaf_count``.

    Raises:
        InvalidSize: no range has that many leaves.
        InvalidInput: the number of peaks, or the length of one, is wrong.
    """

    leaf_count: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.leaf_count <= MAX_LEAVES:
            raise InvalidSize(f"leaf count {self.leaf_count}: a range has 0 to 2^63 leaves")
        if len(self.peaks) != self.leaf_count.bit_count() or any(len(peak) != DIGEST_BYTES for peak in self.peaks):
            raise InvalidInput(
                f"a range of {self.leaf_count} leaves has {self.leaf_count.bit_count()} peaks of {DIGEST_BYTES} bytes, "
                f"not {[len(peak) for peak in self.peaks]}"
            )

    @property
    def size(self) -> int:
        """Return the number of nodes of the range."""
        return leaf_count_to_size(self.leaf_count)

    @property
    def root(self) -> bytes:
        """Return the root.

        Raises:
            GetRootOnEmpty: the range has no leaves.
        """
        return bag_peaks(self.peaks)

    def append(self, leaf: bytes) -> RangeState:
        """Return the state with one more leaf.

        Args:
            leaf: hash of the leaf, 32 bytes.

        Returns:
            The new state.

        Raises:
            InvalidInput: ``leaf`` has another length.
            InvalidSize: the range is full.
        """
        if len(leaf) != DIGEST_BYTES:
            raise InvalidInput(f"a leaf's hash has {len(leaf)} bytes, {DIGEST_BYTES} are wanted")
        peaks: Sequence[bytes] = (*self.peaks, leaf)
        # Each trailing one bit of the count is a mountain that the leaf completes.
        for _ in range(((self.leaf_count + 1) & -(self.leaf_count + 1)).bit_length() - 1):
            peaks = (*peaks[:-2], keccak256(peaks[-2] + peaks[-1]))
        return RangeState(self.leaf_count + 1, tuple(peaks))

    def extend(self, leaves: Digests) -> RangeState:
        """Return the state with many more leaves, hashing each level at once.

        Args:
            leaves: hashes of the leaves, uint8, shape (n, 32).

        Returns:
            The new state.

        Raises:
            InvalidInput: shape or dtype differs.
            InvalidSize: the range would have too many leaves.
        """
        require_digests(leaves, "the leaves")
        before, after = self.leaf_count, self.leaf_count + len(leaves)
        peaks, completed, level, height = [*self.peaks], list[bytes](), leaves, 0
        # Level by level: prepend a peak of this height; a node without a partner becomes a peak.
        while len(level):
            if before >> height & 1:
                level = np.concatenate([np.frombuffer(peaks.pop(), dtype=np.uint8)[None], level])
            if len(level) & 1:
                completed.append(level[-1].tobytes())
            level = digest_rows(HashFunction.KECCAK_256, level[: len(level) & ~1].reshape(-1, 2 * DIGEST_BYTES))
            height += 1
        return RangeState(after, (*peaks, *reversed(completed)))

    def encode(self) -> bytes:
        """Return the encoding: the leaf count in 8 little-endian bytes, then the peaks."""
        return encode_u64(self.leaf_count) + b"".join(self.peaks)

    @classmethod
    def decode(cls, data: bytes) -> RangeState:
        """Parse the encoding of a state, to the last byte.

        Args:
            data: the encoding.

        Returns:
            The state.

        Raises:
            MalformedProof: ``data`` is truncated, extended, or of more leaves than any range has.
        """
        leaf_count = int.from_bytes(data[:_COUNT_BYTES], "little")
        expected_size = _COUNT_BYTES + DIGEST_BYTES * leaf_count.bit_count()
        if len(data) != expected_size:
            raise MalformedProof(
                f"the state of a range has {len(data)} bytes, {expected_size} are wanted for {leaf_count} leaves"
            )
        return cls(
            leaf_count, tuple(data[at : at + DIGEST_BYTES] for at in range(_COUNT_BYTES, len(data), DIGEST_BYTES))
        )


class RangeWindow:
    """The leaves appended to ``state``, shape (n, 32), with proofs of them.

    A subtree beside one with a window leaf is complete. Either it has window leaves itself or it is a mountain of
    ``state``: a larger mountain there would contain the leaf.
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
        """Return the peaks, left to right, at ``leaf_count`` leaves (default: all).

        Args:
            leaf_count: number of leaves, at least those of ``state``.

        Returns:
            The peaks, 32 bytes each.

        Raises:
            LeafNotFound: the window lacks that number of leaves.
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
        """Return the root at ``leaf_count`` leaves (default: all).

        Args:
            leaf_count: number of leaves, at least those of ``state``.

        Returns:
            The root, 32 bytes.

        Raises:
            LeafNotFound: the window lacks that number of leaves.
        """
        return bag_peaks(self.peaks(leaf_count))

    def state(self, leaf_count: int) -> RangeState:
        """Return the state at ``leaf_count`` leaves.

        Args:
            leaf_count: number of leaves, at least those of ``state``.

        Returns:
            The state.

        Raises:
            LeafNotFound: the window lacks that number of leaves.
        """
        return RangeState(leaf_count, tuple(self.peaks(leaf_count)))

    def prove(self, leaf_index: int, leaf_count: int | None = None) -> LeafProof:
        """Build the proof of one leaf under the root at ``leaf_count`` leaves (default: all).

        Args:
            leaf_index: index of the leaf in the range.
            leaf_count: number of leaves of the range.

        Returns:
            The proof.

        Raises:
            LeafNotFound: the leaf is outside of the window.
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
