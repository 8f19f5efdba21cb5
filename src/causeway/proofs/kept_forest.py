"""Many RFC 6962 trees that are kept and changed: a change hashes the nodes above what it changes, and no others.

All trees share one array a level. A tree has a region of each, with room to grow; the region of level 0 begins at a
multiple of a power of two that is no smaller than the region, so that node i of a level has the children 2i and 2i + 1
of the level below in the shared arrays, too, and the nodes of all trees are hashed in one go.
"""

from __future__ import annotations

import numpy as np

from causeway.model.order import Rows
from causeway.proofs.forest import side_positions
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.merkle import hash_pairs

ROOM = 64
"""Leaves that a tree can have more, at least, before it has to be moved."""


class KeptForest:
    """Trees of ``sizes`` leaves each, of which none may become empty.

    The leaves are written to ``leaves`` from ``offsets`` of each tree on; ``rehash`` then says which were. ``version``
    counts the changes: whoever has seen an earlier one must not read the nodes any more, nor change them.
    """

    def __init__(self, sizes: Rows) -> None:
        self.version = 0
        self.sizes: Rows = np.asarray(sizes, dtype=np.int64).copy()
        self._lay_out()

    @property
    def leaves(self) -> Digests:
        """Return the leaves of all trees, shape (n, 32)."""
        return self._levels[0]

    @property
    def depths(self) -> Rows:
        """Return the level of each tree's root."""
        return _bits(self.sizes - 1)

    def resize(self, sizes: Rows) -> None:
        """Begin a change: give the trees other numbers of leaves; those that both have stay. ``offsets`` may change."""
        self.version += 1
        sizes = np.asarray(sizes, dtype=np.int64)
        moved = np.flatnonzero(sizes > self._rooms)
        if len(moved) == 0:
            self.sizes = sizes.copy()
            return
        before, offsets, levels = self.sizes, self.offsets.copy(), self._levels
        self.sizes = sizes.copy()
        rooms = _room(sizes[moved])
        if self._used + int((2 * rooms).sum()) > 4 * int(_room(sizes).sum()):
            self._lay_out()
            moved = np.arange(len(sizes), dtype=np.int64)
        else:
            self._append(moved, rooms)
        for tree in moved.tolist():
            old, new, count = int(offsets[tree]), int(self.offsets[tree]), int(min(before[tree], sizes[tree]))
            for level, nodes in enumerate(levels):
                first = new >> level
                self._levels[level][first : first + count] = nodes[old >> level : (old >> level) + count]
                if count == 1:
                    break
                count = (count + 1) // 2

    def rehash(self, tree: Rows, position: Rows) -> None:
        """Hash what is above leaves that were written: ``position`` in ``tree``, by tree, ascending, each once.

        Of a tree whose size has changed the last leaf must be among them.
        """
        counts = self.sizes[tree]
        rows = self.offsets[tree] + position
        level = 0
        while True:
            above = counts > 1
            if not above.all():
                tree, rows, counts = tree[above], rows[above], counts[above]
            if len(rows) == 0:
                return
            parents = rows >> 1
            first = np.append(True, parents[1:] != parents[:-1])
            if not first.all():
                tree, parents, counts = tree[first], parents[first], counts[first]
            nodes, upper = self._levels[level], self._levels[level + 1]
            last = (self.offsets[tree] >> level) + counts - 1
            paired = 2 * parents < last
            if paired.all():
                upper[parents] = hash_pairs(_pairs(nodes), rows=parents)
            else:
                both = parents[paired]
                upper[both] = hash_pairs(_pairs(nodes), rows=both)
                alone = parents[~paired]
                upper[alone] = nodes[2 * alone]
            rows, counts = parents, (counts + 1) >> 1
            level += 1

    def roots(self) -> Digests:
        """Return the root of each tree, shape (trees, 32)."""
        found = np.empty((len(self.sizes), DIGEST_BYTES), dtype=np.uint8)
        depths = self.depths
        for depth in np.unique(depths).tolist():
            trees = np.flatnonzero(depths == depth)
            found[trees] = self._levels[depth][self.offsets[trees] >> depth]
        return found

    def nodes_of(self, tree: int) -> list[Digests]:
        """Return a copy of the levels of one tree, the leaves first, its root last."""
        offset, count, found = int(self.offsets[tree]), int(self.sizes[tree]), []
        for level, nodes in enumerate(self._levels):
            found.append(nodes[offset >> level : (offset >> level) + count].copy())
            if count == 1:
                break
            count = (count + 1) // 2
        return found

    def sides(self, tree: Rows, first: Rows, count: Rows) -> tuple[Digests, Rows]:
        """Return the sides' digests of runs, joined, and how many each run has.

        ``tree``, ``first``, ``count``: of each run its tree, the position of its first leaf there, and its length.
        """
        positions = side_positions(first, count, self.sizes[tree])
        digests = np.empty((len(positions.run), DIGEST_BYTES), dtype=np.uint8)
        offsets = self.offsets[tree[positions.run]]
        for level in range(int(positions.level.max()) + 1 if len(positions.level) else 0):
            rows = np.flatnonzero(positions.level == level)
            digests[rows] = self._levels[level][(offsets[rows] >> level) + positions.node[rows]]
        return digests, positions.counts(len(tree))

    def _lay_out(self) -> None:
        """Give every tree a region in new arrays, the largest first."""
        self.offsets: Rows = np.zeros(len(self.sizes), dtype=np.int64)
        self._rooms: Rows = np.zeros(len(self.sizes), dtype=np.int64)
        self._used, self._levels = 0, [np.empty((0, DIGEST_BYTES), dtype=np.uint8)]
        rooms = _room(self.sizes)
        order = np.argsort(-rooms, kind="stable")
        self._append(order, rooms[order])

    def _append(self, trees: Rows, rooms: Rows) -> None:
        """Give trees new regions behind all others."""
        for tree, room in zip(trees.tolist(), rooms.tolist(), strict=True):
            step = 1 << (room - 1).bit_length()
            self.offsets[tree] = -(-self._used // step) * step
            self._rooms[tree] = room
            self._used = int(self.offsets[tree]) + room
        needed = int(self._rooms.max(initial=1) - 1).bit_length()
        total = len(self.leaves)
        if self._used > total or needed >= len(self._levels):
            total = max(self._used, total * 3 // 2 if self._used > total else total)
            total = -(-total // (1 << needed)) << needed
            levels, self._levels = self._levels, []
            for level in range(max(needed + 1, len(levels))):
                grown = np.empty((total >> level, DIGEST_BYTES), dtype=np.uint8)
                if level < len(levels):
                    grown[: len(levels[level])] = levels[level]
                self._levels.append(grown)


def _pairs(nodes: Digests) -> Digests:
    """Return the children of each node of the level above, side by side."""
    return nodes[: len(nodes) & ~1].reshape(-1, 2 * DIGEST_BYTES)


def _room(sizes: Rows) -> Rows:
    return sizes + (sizes >> 2) + ROOM


def _bits(values: Rows) -> Rows:
    """Return how many bits each value takes."""
    found: Rows = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    return found


__all__ = ["KeptForest"]
