"""The levels of one tree of RFC 6962, kept: proofs need no rebuilding, and a change hashes only what it changes.

Level 0 holds the leaves' digests; node i of a level has the children 2i and 2i + 1 of the level below, and an odd last
node moves up unchanged. That is the tree whose left part holds the largest power of two below n leaves (specs/ibc.md
2.6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.merkle import EMPTY_ROOT, hash_pairs, level_above

Positions = npt.NDArray[np.int64]


class Levels:
    """An immutable tree: ``levels[0]`` the leaves, the last level the root alone; no level at all without leaves."""

    __slots__ = ("levels",)

    def __init__(self, levels: list[Digests]) -> None:
        self.levels = levels

    @classmethod
    def of(cls, leaves: Digests) -> Levels:
        """Build the tree over leaf digests, shape (n, 32)."""
        levels = [leaves] if len(leaves) else []
        while levels and len(levels[-1]) > 1:
            levels.append(level_above(levels[-1]))
        return cls(levels)

    def __len__(self) -> int:
        return len(self.levels[0]) if self.levels else 0

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes."""
        return self.levels[-1][0].tobytes() if self.levels else EMPTY_ROOT

    def with_suffix(self, first: int, suffix: Digests) -> Levels:
        """Return the tree whose leaves are the first ``first`` of this one and then ``suffix``.

        A node all of whose leaves lie before ``first`` is taken over; work and new hashes are linear in the suffix.
        """
        count = first + len(suffix)
        if count == 0:
            return Levels([])
        levels = [np.concatenate([self.levels[0][:first], suffix])] if first else [suffix]
        while len(levels[-1]) > 1:
            first //= 2
            above = level_above(levels[-1][2 * first :])
            levels.append(np.concatenate([self.levels[len(levels)][:first], above]) if first else above)
        return Levels(levels)

    def with_replaced(self, positions: Positions, digests: Digests) -> Levels:
        """Return the tree with other leaves at ``positions`` (ascending, unique): only their ancestors are hashed."""
        levels = []
        for level in self.levels:
            level = level.copy()
            level[positions] = digests
            levels.append(level)
            if len(level) == 1:
                break
            positions = np.unique(positions // 2)
            left = 2 * positions
            paired = left + 1 < len(level)
            digests = np.empty((len(positions), DIGEST_BYTES), dtype=np.uint8)
            pairs = level[: len(level) // 2 * 2].reshape(-1, 2 * DIGEST_BYTES)
            digests[paired] = hash_pairs(pairs, rows=positions[paired])
            digests[~paired] = level[left[~paired]]
        return Levels(levels)

    def siblings(self, positions: Positions) -> list[tuple[Positions, Digests]]:
        """Return the steps from leaves to the root: one pair a level of (side, digests) for all ``positions``.

        Side is 0 where the sibling stands left, 1 where it stands right, 2 where there is none because the node moves
        up unchanged; the digests are those of the rows with a sibling, in order.
        """
        steps = []
        for level in self.levels[:-1]:
            sibling = positions ^ 1
            side = np.where(sibling < len(level), 1 - (positions & 1), 2)
            steps.append((side, level.take(sibling[side < 2], axis=0)))
            positions = positions >> 1
        return steps
