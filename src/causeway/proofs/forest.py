"""Proofs of runs of neighbouring leaves of many RFC 6962 trees at once: which digests, and what they amount to.

A tree of n leaves is built from below: neighbours pair up, an odd last node moves up unchanged. So node i of level k
stands over the leaves from i * 2**k on, and the siblings that a run of leaves needs, its *sides*, follow from the run's
position and the tree's size alone: a proof is nothing but their digests, in the order of ``side_positions``.

What such a proof shows: the leaves of the run are in the tree, and are neighbours there. Position and size say how
leaves and sides are hashed together; the root is that of the real tree only if it was made by the same hashing, or
else there is a collision of SHA-256. A digest of an inner node cannot stand for a leaf's: their preimages begin with
different bytes. Position and size themselves are not proved: trees of several sizes hash a run in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.model.order import Groups, Rows, stable_order
from causeway.proofs.errors import MalformedProof
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs
from causeway.proofs.merkle import INNER_PREFIX, level_beside, level_up

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


def sides_of_each(
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


__all__ = ["LevelSides", "SidePositions", "leaf_roots", "roots_at", "run_roots", "side_positions", "sides_of_each"]
