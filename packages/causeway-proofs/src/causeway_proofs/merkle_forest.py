"""Maintain many RFC 6962 trees and prove runs of adjacent leaves in them, in columns.

**Proofs.** A tree of n leaves is built bottom-up: neighbors pair up, an odd last node moves up unchanged. Node i of
level k covers the leaves from i * 2**k on. The siblings of a run of leaves, its *sides*, therefore follow from the
run's position and the tree's size: a proof is their digests, in the order of ``side_positions``.

A proof shows that the leaves of the run are in the tree, and adjacent there. Position and size determine the hashing;
another tree with the same root would give a SHA-256 collision. An inner node cannot pass for a leaf, since their
preimages have different prefixes. Position and size themselves are not proved: trees of several sizes hash a run in the
same way.

**Forests.** A change rehashes the nodes above the changed leaves only. The trees have the shape of RFC 6962, and its
prefix of inner nodes by default. All trees share one array a level, each with a region and room to grow. A region of
level 0 begins at a multiple of a power of two that is at least its size. So node i of a level has the children 2i and
2i + 1 of the shared level below, and one call hashes the nodes of all trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway_proofs.errors import MalformedProof
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs
from causeway_proofs.merkle import EMPTY_ROOT, INNER_PREFIX, hash_pairs, level_beside, level_up
from causeway_proofs.order import Groups, Rows, stable_order

__all__ = [
    "LevelSides",
    "MerkleForest",
    "SidePositions",
    "leaf_roots",
    "leaf_sides",
    "roots_at",
    "run_roots",
    "side_positions",
]

Mask = npt.NDArray[np.bool_]

PIECE = 1 << 13
"""Pairs copied side by side at a time; they stay in the cache until hashed."""


@dataclass(frozen=True)
class SidePositions:
    """Positions of the sides of runs, ordered by run, level, then left before right.

    Attributes:
        run: index of the run.
        level: level of the node, 0 for leaves.
        node: index of the node in its level.
        right: True if the side is on the right.
    """

    run: Rows
    level: Rows
    node: Rows
    right: Mask

    def counts(self, runs: int) -> Rows:
        """Return the number of sides of each of ``runs`` runs."""
        return np.bincount(self.run, minlength=runs)


def side_positions(first: Rows, count: Rows, size: Rows) -> SidePositions:
    """Return the positions of the sides of runs.

    Args:
        first: position of each run's first leaf.
        count: leaves of each run, at least 1.
        size: leaves of each run's tree.

    Returns:
        The positions.
    """
    low, high, nodes = first.copy(), first + count - 1, size.copy()
    parts: list[tuple[Rows, int, Rows, bool]] = []
    level = 0
    while bool((nodes > 1).any()):
        left = np.flatnonzero((nodes > 1) & (low % 2 == 1))
        right = np.flatnonzero((nodes > 1) & (high % 2 == 0) & (high + 1 < nodes))
        parts += [(left, level, low[left] - 1, False), (right, level, high[right] + 1, True)]
        low, high, nodes = low // 2, high // 2, (nodes + 1) // 2
        level += 1
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return SidePositions(none, none, none, np.empty(0, dtype=bool))
    run = np.concatenate([rows for rows, *_ in parts])
    order = stable_order(run.astype(np.uint64))
    return SidePositions(
        run[order],
        np.concatenate([np.full(len(rows), level) for rows, level, *_ in parts])[order],
        np.concatenate([nodes for _, _, nodes, _ in parts])[order],
        np.concatenate([np.full(len(rows), right) for rows, *_, right in parts])[order],
    )


def run_roots(
    leaves: Digests,
    groups: Groups,
    first: Rows,
    size: Rows,
    sides: Digests,
    side_counts: Rows,
    prefix: bytes = INNER_PREFIX,
) -> Digests:
    """Return the root computed from each run of leaves and its sides.

    Args:
        leaves: leaf digests of all runs, shape (n, 32).
        groups: the runs in ``leaves``, none empty.
        first: claimed position of each run's first leaf.
        size: claimed size of each run's tree.
        sides: concatenated side digests, shape (m, 32).
        side_counts: sides of each run.
        prefix: prefix of inner nodes.

    Returns:
        Roots, shape (runs, 32).

    Raises:
        MalformedProof: a run does not fit its tree, or its number of sides does not match its position.
    """
    positions = _fitting_positions(groups, first, size, side_counts)
    return roots_at(positions, leaves, groups.counts, sides, prefix)


def roots_at(
    positions: SidePositions, leaves: Digests, counts: Rows, sides: Digests, prefix: bytes = INNER_PREFIX
) -> Digests:
    """Return the roots of runs with sides at ``positions``, without validation.

    Args:
        positions: the sides of each run, from ``side_positions``.
        leaves: leaf digests of all runs, shape (n, 32).
        counts: leaves of each run, int64.
        sides: side digests in the order of ``positions``, shape (m, 32).
        prefix: prefix of inner nodes.

    Returns:
        Roots, shape (runs, 32), uint8.
    """
    nodes = np.ascontiguousarray(leaves)
    for level in range(int(positions.level.max()) + 1 if len(positions.level) else 0):
        rows = np.flatnonzero(positions.level == level)
        on_right = positions.right[rows]
        left, right = rows[~on_right], rows[on_right]
        runs = positions.run[left], positions.run[right]
        nodes, counts = level_beside(nodes, counts, runs, (sides[left], sides[right]), prefix)
    while len(counts) and int(counts.max()) > 1:
        nodes, counts = level_up(nodes, counts, prefix)
    return nodes


def _fitting_positions(groups: Groups, first: Rows, size: Rows, side_counts: Rows) -> SidePositions:
    """Return the positions of sides. Raises ``MalformedProof`` as ``run_roots``."""
    first, size = first.astype(np.int64), size.astype(np.int64)
    outside = np.flatnonzero((first < 0) | (first + groups.counts > size))
    if len(outside):
        run = int(outside[0])
        raise MalformedProof(
            f"{groups.counts[run]} leaves from position {first[run]} on do not fit a tree of {size[run]}"
        )
    positions = side_positions(first, groups.counts, size)
    needed = positions.counts(len(first))
    wrong = np.flatnonzero(needed != side_counts)
    if len(wrong):
        run = int(wrong[0])
        raise MalformedProof(f"a run has {side_counts[run]} digests beside it, its position needs {needed[run]}")
    return positions


LevelSides = Iterator[tuple[Rows, Digests]]
"""Proofs of single leaves, bottom-up: rows with a side on each level, and its digest."""


def leaf_sides(
    leaves: Digests, groups: Groups, first: Rows, size: Rows, sides: Digests, side_counts: Rows
) -> tuple[Rows, LevelSides]:
    """Derive proofs of single leaves from runs and their sides.

    The digests of a level are computed on demand, so that only one level is in memory.

    Args:
        leaves: leaf digests of all runs, shape (n, 32).
        groups: the runs in ``leaves``, none empty.
        first: claimed position of each run's first leaf.
        size: claimed size of each run's tree.
        sides: concatenated side digests.
        side_counts: sides of each run.

    Returns:
        Each leaf's position in its tree, and the sides of the leaves by level.

    Raises:
        MalformedProof: as ``run_roots``.
    """
    positions = _fitting_positions(groups, first, size, side_counts)
    position: Rows = groups.spread(first.astype(np.int64)) + groups.ranks()
    return position, _levels_of_each(leaves, groups, first.astype(np.int64), size, sides, positions)


def _levels_of_each(
    leaves: Digests, groups: Groups, first: Rows, size: Rows, sides: Digests, positions: SidePositions
) -> LevelSides:
    run_of_leaf = groups.spread(np.arange(len(groups)))
    rank, last = groups.ranks(), groups.spread(size.astype(np.int64)) - 1
    position = groups.spread(first) + rank
    nodes, counts, low, level = leaves, groups.counts, first, 0
    while bool((last > 0).any()):
        rows = np.flatnonzero(positions.level == level)
        left = positions.run[rows[~positions.right[rows]]]
        nodes, counts = _with_sides(nodes, counts, positions.run[rows], positions.right[rows], sides[rows])
        low = low.copy()
        low[left] -= 1
        beside, present = _beside(position, last)
        # Offset of a run's tree among all nodes of the level.
        shift = (_starts(counts) - low)[run_of_leaf]
        yield present, nodes.take(beside + shift if len(present) == len(beside) else (beside + shift)[present], axis=0)
        nodes, counts = level_up(nodes, counts)
        low, position, last, level = low // 2, position >> 1, last >> 1, level + 1


def _beside(position: Rows, last: Rows) -> tuple[Rows, Rows]:
    """Return each node's sibling position and a mask of those up to ``last``."""
    beside = position ^ 1
    return beside, np.flatnonzero(beside <= last)


def leaf_roots(leaves: Digests, position: Rows, size: Rows, sides: LevelSides) -> Digests:
    """Return the root computed from each leaf and its own proof.

    Args:
        leaves: leaf digests, shape (n, 32).
        position: claimed position of each leaf.
        size: claimed size of each leaf's tree.
        sides: the proofs, by level.

    Returns:
        Roots, shape (n, 32).

    Raises:
        MalformedProof: a leaf is outside of its tree, or its number of sides does not match its position.
    """
    position, last = position.astype(np.int64), size.astype(np.int64) - 1
    outside = np.flatnonzero((position < 0) | (position > last))
    if len(outside):
        leaf = int(outside[0])
        raise MalformedProof(f"a leaf at position {position[leaf]} does not fit a tree of {last[leaf] + 1}")
    nodes = leaves
    for given, digests in sides:
        expected = _beside(position, last)[1]
        if not np.array_equal(given, expected):
            raise MalformedProof(f"{len(given)} leaves have a digest beside them, their positions need {len(expected)}")
        nodes = _joined(nodes, expected, digests, position % 2 == 1)
        position, last = position >> 1, last >> 1
    if bool((last > 0).any()):
        raise MalformedProof("a leaf has fewer digests beside it than its position needs")
    return nodes


def _joined(nodes: Digests, rows: Rows, beside: Digests, right: Mask) -> Digests:
    """Return ``nodes`` with ``rows`` hashed with the digests on their ``right`` or left."""
    everyone = len(rows) == len(nodes)
    own = nodes if everyone else nodes[rows]
    second = right if everyone else right[rows]
    hashed = np.empty((len(rows), DIGEST_BYTES), dtype=np.uint8)
    for start in range(0, len(rows), PIECE):
        piece = slice(start, start + PIECE)
        swapped = second[piece, None]
        one, other = (np.ascontiguousarray(part[piece]).view(np.uint64) for part in (own, beside))
        pairs = np.where(swapped, other, one).view(np.uint8), np.where(swapped, one, other).view(np.uint8)
        digest_pairs(HashFunction.SHA256, INNER_PREFIX, *pairs, out=hashed[piece])
    if everyone:
        return hashed
    joined = nodes.copy()
    joined[rows] = hashed
    return joined


def _with_sides(nodes: Digests, counts: Rows, run: Rows, right: Mask, sides: Digests) -> tuple[Digests, Rows]:
    """Insert the sides of one level before and after the nodes of each run."""
    if len(run) == 0:
        return nodes, counts
    before, after = np.zeros(len(counts), dtype=np.int64), np.zeros(len(counts), dtype=np.int64)
    before[run[~right]] = 1
    after[run[right]] = 1
    joined_counts = counts + before + after
    starts = _starts(joined_counts)
    joined = np.empty((int(joined_counts.sum()), DIGEST_BYTES), dtype=np.uint8)
    rank = np.arange(len(nodes)) - np.repeat(_starts(counts), counts)
    joined[np.repeat(starts + before, counts) + rank] = nodes
    joined[starts[run[~right]]] = sides[~right]
    joined[(starts + joined_counts - 1)[run[right]]] = sides[right]
    return joined, joined_counts


def _starts(counts: Rows) -> Rows:
    return np.cumsum(counts) - counts


ROOM = 64
"""Minimum spare leaves of a tree's region."""

LONG_RUN = 32
"""Rows from which a separate copy of a run beats one indexed copy of many runs."""


class MerkleForest:
    """Mutable trees of ``sizes`` leaves each; a tree without leaves has the root ``empty_root``.

    Write leaves to ``leaves`` from ``offsets`` of each tree on, then call ``rehash`` or ``rehash_ends`` with their
    positions. ``version`` counts the changes: the holder of an earlier version must neither read nor change the nodes.
    """

    def __init__(self, sizes: Rows, prefix: bytes = INNER_PREFIX, empty_root: bytes = EMPTY_ROOT) -> None:
        self.version = 0
        self._prefix, self._empty_root = prefix, np.frombuffer(empty_root, dtype=np.uint8)
        self.sizes: Rows = np.asarray(sizes, dtype=np.int64).copy()
        self.offsets: Rows = np.zeros(len(sizes), dtype=np.int64)
        self._rooms: Rows = np.zeros(len(sizes), dtype=np.int64)
        self._lay_out()

    @property
    def leaves(self) -> Digests:
        """Return the leaves of all trees, shape (n, 32)."""
        return self._levels[0]

    def rearrange(self, origin: Rows) -> None:
        """Begin a change: new tree i was tree ``origin[i]`` before, -1 for a new one.

        New trees have no leaves; trees absent from ``origin`` are removed.
        """
        self.version += 1
        retained = origin >= 0
        before = self.sizes, self.offsets, self._rooms
        self.sizes, self.offsets, self._rooms = np.zeros((3, len(origin)), dtype=np.int64)
        for old, now in zip(before, (self.sizes, self.offsets, self._rooms), strict=True):
            now[retained] = old[origin[retained]]

    def resize(self, sizes: Rows, trimmed: Rows | None = None) -> None:
        """Begin a change: set the number of leaves of each tree. ``offsets`` may change.

        ``trimmed``: number of first leaves to drop from each tree, default none. The remaining leaves stay, with the
        unchanged nodes above them, as far as the new size has them; ``rehash_ends`` hashes the others.
        """
        self.version += 1
        sizes = np.asarray(sizes, dtype=np.int64)
        dropped = np.zeros(len(sizes), dtype=np.int64) if trimmed is None else trimmed
        retained = np.minimum(self.sizes - dropped, sizes)
        offsets, levels = self.offsets.copy(), self._levels
        self.sizes = sizes.copy()
        grown = np.flatnonzero(sizes > self._rooms)
        moved = np.flatnonzero(dropped > 0)
        if len(grown):
            rooms, all_rooms = _room(sizes[grown]), int(_room(sizes).sum())
            # Most trees move anyway, or most of the arrays is unused.
            if 2 * int(rooms.sum()) > all_rooms or self._used + int((2 * rooms).sum()) > 4 * all_rooms:
                self._lay_out()
                moved = np.arange(len(sizes), dtype=np.int64)
            else:
                self._append(grown, rooms)
                moved = np.union1d(moved, grown)
        moved = moved[retained[moved] > 0]
        first, left, dropped = (offsets + dropped)[moved], retained[moved], dropped[moved]
        target = self.offsets[moved]
        for level, nodes in enumerate(levels):
            if len(left) == 0:
                return
            _copy_runs(nodes, first >> level, self._levels[level], target >> level, left)
            # A node stays valid if its leaf count divides the trimmed count.
            stay = (left > 1) & (dropped & ((2 << level) - 1) == 0)
            first, left, dropped, target = first[stay], (left[stay] + 1) >> 1, dropped[stay], target[stay]

    def rehash(self, tree: Rows, position: Rows) -> None:
        """Hash the nodes above written leaves: distinct ascending ``position`` in ``tree``.

        The positions must include the last leaf of every resized tree.
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
                upper[parents] = hash_pairs(_pairs(nodes), self._prefix, parents)
            else:
                both = parents[paired]
                upper[both] = hash_pairs(_pairs(nodes), self._prefix, both)
                alone = parents[~paired]
                upper[alone] = nodes[2 * alone]
            rows, counts = parents, (counts + 1) >> 1
            level += 1

    def rehash_ends(self, tree: Rows, first: Rows, trimmed: Rows) -> None:
        """Hash the nodes above leaves written from ``first`` on, and above trimmed ones.

        ``trimmed`` repeats the argument of ``resize`` for these trees, which have lost no leaves at their ends. Empty
        trees are allowed.
        """
        offsets, counts = self.offsets[tree], self.sizes[tree]
        added = first < counts
        level = 0
        while True:
            above = counts > 1
            if not above.all():
                offsets, counts, added = offsets[above], counts[above], added[above]
                first, trimmed = first[above], trimmed[above]
            if len(counts) == 0:
                return
            nodes, upper = self._levels[level], self._levels[level + 1]
            pairs, parents = counts >> 1, (counts + 1) >> 1
            # Number of next-level nodes with unchanged children.
            same = np.where(added, first >> (level + 1), parents)
            same[trimmed & ((2 << level) - 1) != 0] = 0
            target = offsets >> (level + 1)
            odd = np.flatnonzero((parents > pairs) & (same < parents))
            upper[(target + pairs)[odd]] = nodes[((offsets >> level) + counts - 1)[odd]]
            fresh = np.maximum(pairs - same, 0)
            starts = np.cumsum(fresh) - fresh
            rows = np.repeat(target + same - starts, fresh) + np.arange(int(fresh.sum()))
            _copy_runs(hash_pairs(_pairs(nodes), self._prefix, rows), starts, upper, target + same, fresh)
            counts = parents
            level += 1

    def write_ends(self, tree: Rows, first: Rows, digests: Digests) -> None:
        """Write the leaves of each ``tree`` from ``first`` on; ``digests`` concatenates them."""
        counts = self.sizes[tree] - first
        _copy_runs(digests, np.cumsum(counts) - counts, self.leaves, self.offsets[tree] + first, counts)

    def roots(self, tree: Rows | None = None) -> Digests:
        """Return the root of each tree, or of the given ones, shape (trees, 32)."""
        sizes, offsets = (self.sizes, self.offsets) if tree is None else (self.sizes[tree], self.offsets[tree])
        found = np.empty((len(sizes), DIGEST_BYTES), dtype=np.uint8)
        depths = np.where(sizes > 0, _bits(sizes - 1), -1)
        for depth in np.unique(depths).tolist():
            rows = np.flatnonzero(depths == depth)
            found[rows] = self._empty_root if depth < 0 else self._levels[depth][offsets[rows] >> depth]
        return found

    def nodes_of(self, tree: int) -> list[Digests]:
        """Return a copy of one tree's levels, leaves first, root last."""
        offset, count, found = int(self.offsets[tree]), int(self.sizes[tree]), []
        for level, nodes in enumerate(self._levels):
            found.append(nodes[offset >> level : (offset >> level) + count].copy())
            if count <= 1:
                break
            count = (count + 1) // 2
        return found

    def sides(self, tree: Rows, first: Rows, count: Rows) -> tuple[Digests, Rows]:
        """Return the concatenated side digests of runs, and each run's number of sides.

        ``tree``, ``first``, ``count``: each run's tree, the position of its first leaf, and its length, at least 1.
        """
        positions = side_positions(first, count, self.sizes[tree])
        digests = np.empty((len(positions.run), DIGEST_BYTES), dtype=np.uint8)
        offsets = self.offsets[tree[positions.run]]
        for level in range(int(positions.level.max()) + 1 if len(positions.level) else 0):
            rows = np.flatnonzero(positions.level == level)
            digests[rows] = self._levels[level][(offsets[rows] >> level) + positions.node[rows]]
        return digests, positions.counts(len(tree))

    def _lay_out(self) -> None:
        """Assign every tree a region in new arrays, largest first."""
        self.offsets = np.zeros(len(self.sizes), dtype=np.int64)
        self._rooms = np.zeros(len(self.sizes), dtype=np.int64)
        self._used, self._levels = 0, [np.empty((0, DIGEST_BYTES), dtype=np.uint8)]
        rooms = _room(self.sizes)
        order = np.argsort(-rooms, kind="stable")
        self._append(order, rooms[order])

    def _append(self, trees: Rows, rooms: Rows) -> None:
        """Assign trees new regions behind all others."""
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
    """Return the children of each node of the next level, side by side."""
    return nodes[: len(nodes) & ~1].reshape(-1, 2 * DIGEST_BYTES)


def _copy_runs(source: Digests, starts: Rows, target: Digests, at: Rows, counts: Rows) -> None:
    """Copy runs of ``counts`` rows, from ``starts`` in ``source`` to ``at`` in ``target``.

    Both may be the same array: a run may overlap its own target, but not another run's source.
    """
    total = int(counts.sum())
    if total >= LONG_RUN * len(counts):
        for start, to, count in zip(starts.tolist(), at.tolist(), counts.tolist(), strict=True):
            target[to : to + count] = source[start : start + count]
        return
    shift = np.cumsum(counts) - counts
    ranks = np.arange(total)
    rows, place = (np.repeat(first - shift, counts) + ranks for first in (starts, at))
    # Copying one value a row is twice as fast.
    _values(target)[place] = _values(source)[rows]


def _values(digests: Digests) -> npt.NDArray[np.void]:
    return np.ascontiguousarray(digests).view(f"V{DIGEST_BYTES}").reshape(-1)


def _room(sizes: Rows) -> Rows:
    return sizes + (sizes >> 2) + ROOM


def _bits(values: Rows) -> Rows:
    """Return the bit width of each value."""
    found: Rows = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    return found
