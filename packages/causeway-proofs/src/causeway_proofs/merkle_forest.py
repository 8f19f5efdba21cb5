"""Proofs of runs of neighbouring leaves of many RFC 6962 trees at once: which digests, and what they amount to.

A tree of n leaves is built from below: neighbours pair up, an odd last node moves up unchanged. So node i of level k
stands over the leaves from i * 2**k on, and the siblings that a run of leaves needs, its *sides*, follow from the run's
position and the tree's size alone: a proof is nothing but their digests, in the order of ``side_positions``.

What such a proof shows: the leaves of the run are in the tree, and are neighbours there. Position and size say how
leaves and sides are hashed together; the root is that of the real tree only if it was made by the same hashing, or
else there is a collision of SHA-256. A digest of an inner node cannot stand for a leaf's: their preimages begin with
different bytes. Position and size themselves are not proved: trees of several sizes hash a run in the same way.

Many Merkle trees that are kept and changed: a change hashes the nodes above what it changes, and no others.

They have the shape of RFC 6962, and its prefix of inner nodes unless another one is given.

All trees share one array a level. A tree has a region of each, with room to grow; the region of level 0 begins at a
multiple of a power of two that is no smaller than the region, so that node i of a level has the children 2i and 2i + 1
of the level below in the shared arrays, too, and the nodes of all trees are hashed in one go.
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
"""Pairs that are put side by side at a time: they stay in the cache until they are hashed."""


@dataclass(frozen=True)
class SidePositions:
    """Which sides the runs have: one row a side, by run, then from the leaves up, the left one before the right one.

    ``run``: which run it is of; ``level``: 0 = leaves; ``node``: which node of that level; ``right``: on which side.
    """

    run: Rows
    level: Rows
    node: Rows
    right: Mask

    def counts(self, runs: int) -> Rows:
        """Return how many sides each of ``runs`` runs has."""
        return np.bincount(self.run, minlength=runs)


def side_positions(first: Rows, count: Rows, size: Rows) -> SidePositions:
    """Return the sides of runs of ``count`` leaves (at least 1) from ``first`` on in trees of ``size`` leaves."""
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
    """Return the root to which each run of leaves and its sides amount, shape (runs, 32).

    ``groups``: the runs among ``leaves``, none empty; ``first``, ``size``: the claimed position of a run's first leaf
    and the size of its tree; ``sides``: the digests of all runs joined, ``side_counts`` of each; ``prefix``: that of
    inner nodes.

    Raises:
        MalformedProof: a run does not fit its tree, or has more or fewer sides than its position calls for.
    """
    positions = _fitting_positions(groups, first, size, side_counts)
    return roots_at(positions, leaves, groups.counts, sides, prefix)


def roots_at(
    positions: SidePositions, leaves: Digests, counts: Rows, sides: Digests, prefix: bytes = INNER_PREFIX
) -> Digests:
    """Return the roots of runs whose sides stand at ``positions``, as they do: nothing is validated."""
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
    """Return the sides of runs; raises ``MalformedProof`` as ``run_roots`` does."""
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
"""Proofs of many single leaves, level by level from the leaves up: which of the leaves have a digest beside them there,
ascending, and those digests."""


def leaf_sides(
    leaves: Digests, groups: Groups, first: Rows, size: Rows, sides: Digests, side_counts: Rows
) -> tuple[Rows, LevelSides]:
    """Return proofs of the single leaves of runs, made from the runs and their sides (as ``run_roots`` takes them).

    Returns each leaf's position in its tree, and the digests beside the leaves; they are made as they are asked for, so
    that those of one level are in memory and not those of all. Raises as ``run_roots`` does.
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
        beside, asked = _beside(position, last)
        # Where a node of a run's tree lies among all nodes of the level.
        shift = (_starts(counts) - low)[run_of_leaf]
        yield asked, nodes.take(beside + shift if len(asked) == len(beside) else (beside + shift)[asked], axis=0)
        nodes, counts = level_up(nodes, counts)
        low, position, last, level = low // 2, position >> 1, last >> 1, level + 1


def _beside(position: Rows, last: Rows) -> tuple[Rows, Rows]:
    """Return the node beside each one of a level, and which of them there are: ``last`` is the level's last."""
    beside = position ^ 1
    return beside, np.flatnonzero(beside <= last)


def leaf_roots(leaves: Digests, position: Rows, size: Rows, sides: LevelSides) -> Digests:
    """Return the root to which each leaf and its own proof amount, shape (leaves, 32).

    ``position``, ``size``: the claimed position of each leaf and the size of its tree; ``sides``: the proofs.

    Raises:
        MalformedProof: a leaf is outside of its tree, or has more or fewer sides than its position calls for.
    """
    position, last = position.astype(np.int64), size.astype(np.int64) - 1
    outside = np.flatnonzero((position < 0) | (position > last))
    if len(outside):
        leaf = int(outside[0])
        raise MalformedProof(f"a leaf at position {position[leaf]} does not fit a tree of {last[leaf] + 1}")
    nodes = leaves
    for given, digests in sides:
        asked = _beside(position, last)[1]
        if not np.array_equal(given, asked):
            raise MalformedProof(f"{len(given)} leaves have a digest beside them, their positions need {len(asked)}")
        nodes = _joined(nodes, asked, digests, position % 2 == 1)
        position, last = position >> 1, last >> 1
    if bool((last > 0).any()):
        raise MalformedProof("a leaf has fewer digests beside it than its position needs")
    return nodes


def _joined(nodes: Digests, rows: Rows, beside: Digests, right: Mask) -> Digests:
    """Return ``nodes`` with those of ``rows`` hashed with the digests beside them, which come first where ``right``."""
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
    """Return the nodes of each run with the sides of one level put before and after them."""
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
"""Leaves that a tree can have more, at least, before it has to be moved."""

LONG_RUN = 32
"""Rows from which on to copy a run by itself is faster than all rows of many runs by their numbers."""


class MerkleForest:
    """Trees of ``sizes`` leaves each; one without leaves has the root ``empty_root``.

    The leaves are written to ``leaves`` from ``offsets`` of each tree on; ``rehash`` or ``rehash_ends`` then says which
    were. ``version`` counts the changes: whoever has seen an earlier one must not read the nodes any more, nor change
    them.
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
        """Begin a change: let there be other trees, of which each was the tree ``origin`` before; -1 is a new one.

        New ones have no leaves; those that are in ``origin`` no more are gone.
        """
        self.version += 1
        kept = origin >= 0
        before = self.sizes, self.offsets, self._rooms
        self.sizes, self.offsets, self._rooms = np.zeros((3, len(origin)), dtype=np.int64)
        for old, now in zip(before, (self.sizes, self.offsets, self._rooms), strict=True):
            now[kept] = old[origin[kept]]

    def resize(self, sizes: Rows, trimmed: Rows | None = None) -> None:
        """Begin a change: give the trees other numbers of leaves. ``offsets`` may change.

        ``trimmed``: how many of the first leaves of each tree go, none if it is not given. Those behind them stay, with
        the nodes above them that are the same then, as far as the new size has them. ``rehash_ends`` hashes the others.
        """
        self.version += 1
        sizes = np.asarray(sizes, dtype=np.int64)
        gone = np.zeros(len(sizes), dtype=np.int64) if trimmed is None else trimmed
        kept = np.minimum(self.sizes - gone, sizes)
        offsets, levels = self.offsets.copy(), self._levels
        self.sizes = sizes.copy()
        grown = np.flatnonzero(sizes > self._rooms)
        moved = np.flatnonzero(gone > 0)
        if len(grown):
            rooms, all_rooms = _room(sizes[grown]), int(_room(sizes).sum())
            # Most trees move anyhow, or most of the arrays is what others have left.
            if 2 * int(rooms.sum()) > all_rooms or self._used + int((2 * rooms).sum()) > 4 * all_rooms:
                self._lay_out()
                moved = np.arange(len(sizes), dtype=np.int64)
            else:
                self._append(grown, rooms)
                moved = np.union1d(moved, grown)
        moved = moved[kept[moved] > 0]
        first, left, gone = (offsets + gone)[moved], kept[moved], gone[moved]
        target = self.offsets[moved]
        for level, nodes in enumerate(levels):
            if len(left) == 0:
                return
            _copy_runs(nodes, first >> level, self._levels[level], target >> level, left)
            # Nodes over as many leaves as divide what was trimmed have the same below them, the others have not.
            stay = (left > 1) & (gone & ((2 << level) - 1) == 0)
            first, left, gone, target = first[stay], (left[stay] + 1) >> 1, gone[stay], target[stay]

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
                upper[parents] = hash_pairs(_pairs(nodes), self._prefix, parents)
            else:
                both = parents[paired]
                upper[both] = hash_pairs(_pairs(nodes), self._prefix, both)
                alone = parents[~paired]
                upper[alone] = nodes[2 * alone]
            rows, counts = parents, (counts + 1) >> 1
            level += 1

    def rehash_ends(self, tree: Rows, first: Rows, trimmed: Rows) -> None:
        """Hash what is above leaves that were written, in each ``tree`` those from ``first`` on, and what was trimmed.

        ``trimmed`` is what ``resize`` was given for these trees, which lost no leaves at their ends. A tree that has no
        leaves may be among them.
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
            # How many nodes of the level above have the same below them as before.
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
        """Write the leaves of each ``tree`` from ``first`` on; ``digests`` are those of all of them, joined."""
        counts = self.sizes[tree] - first
        _copy_runs(digests, np.cumsum(counts) - counts, self.leaves, self.offsets[tree] + first, counts)

    def roots(self, tree: Rows | None = None) -> Digests:
        """Return the root of each tree, or of those given, shape (trees, 32)."""
        sizes, offsets = (self.sizes, self.offsets) if tree is None else (self.sizes[tree], self.offsets[tree])
        found = np.empty((len(sizes), DIGEST_BYTES), dtype=np.uint8)
        depths = np.where(sizes > 0, _bits(sizes - 1), -1)
        for depth in np.unique(depths).tolist():
            rows = np.flatnonzero(depths == depth)
            found[rows] = self._empty_root if depth < 0 else self._levels[depth][offsets[rows] >> depth]
        return found

    def nodes_of(self, tree: int) -> list[Digests]:
        """Return a copy of the levels of one tree, the leaves first, its root last."""
        offset, count, found = int(self.offsets[tree]), int(self.sizes[tree]), []
        for level, nodes in enumerate(self._levels):
            found.append(nodes[offset >> level : (offset >> level) + count].copy())
            if count <= 1:
                break
            count = (count + 1) // 2
        return found

    def sides(self, tree: Rows, first: Rows, count: Rows) -> tuple[Digests, Rows]:
        """Return the sides' digests of runs, joined, and how many each run has.

        ``tree``, ``first``, ``count``: of each run its tree, the position of its first leaf there, and its length,
        at least 1.
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
        self.offsets = np.zeros(len(self.sizes), dtype=np.int64)
        self._rooms = np.zeros(len(self.sizes), dtype=np.int64)
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


def _copy_runs(source: Digests, starts: Rows, target: Digests, at: Rows, counts: Rows) -> None:
    """Copy runs of ``counts`` rows, from ``starts`` in ``source`` to ``at`` in ``target``.

    Both may be the same array: a run may go to where it overlaps itself, not to where another one comes from.
    """
    total = int(counts.sum())
    if total >= LONG_RUN * len(counts):
        for start, to, count in zip(starts.tolist(), at.tolist(), counts.tolist(), strict=True):
            target[to : to + count] = source[start : start + count]
        return
    shift = np.cumsum(counts) - counts
    ranks = np.arange(total)
    rows, place = (np.repeat(first - shift, counts) + ranks for first in (starts, at))
    # As one value a row, they are copied twice as fast.
    _values(target)[place] = _values(source)[rows]


def _values(digests: Digests) -> npt.NDArray[np.void]:
    return np.ascontiguousarray(digests).view(f"V{DIGEST_BYTES}").reshape(-1)


def _room(sizes: Rows) -> Rows:
    return sizes + (sizes >> 2) + ROOM


def _bits(values: Rows) -> Rows:
    """Return how many bits each value takes."""
    found: Rows = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    return found
