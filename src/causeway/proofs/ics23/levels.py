"""The levels of one tree of RFC 6962, kept: proofs need no rebuilding.

Level 0 holds the leaves' digests; node i of a level has the children 2i and 2i + 1 of the level below, and an odd last
node moves up unchanged. That is the tree whose left part holds the largest power of two below n leaves (IBC reference
2.6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.proofs.hashing import Digests
from causeway.proofs.merkle import EMPTY_ROOT, level_above

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
