"""Compute levels and roots of RFC 6962 Merkle trees, of one tree or of many.

leaf = SHA-256(00 || data), inner = SHA-256(01 || left || right); the left part of n leaves holds the largest power of
two below n. Bottom-up: pair neighbors, an odd last node moves up unchanged. Trees of this shape with another prefix for
inner nodes pass their own.

``Levels`` stores all levels of one tree, so that proofs need no rebuilding: node i of a level has the children 2i and
2i + 1 of the level below.

Reference:
    RFC 6962; IBC reference 2.6.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, digest_slices, sha256
from causeway_proofs.order import Groups, Rows

LEAF_PREFIX = b"\x00"
INNER_PREFIX = b"\x01"

FEW = 1024
"""Leaves up to which a loop beats the fixed cost of a level in columns."""

EMPTY_ROOT = hashlib.sha256(b"").digest()
"""Root over no leaves."""


def merkle_roots(leaves: Digests, groups: Groups, prefix: bytes = INNER_PREFIX) -> Digests:
    """Return the root of each group of ``leaves``.

    Args:
        leaves: leaf digests, shape (n, 32).
        groups: adjacent rows of each tree, none empty.
        prefix: prefix of inner nodes.

    Returns:
        Roots, shape (len(groups), 32).
    """
    if len(leaves) <= FEW:
        runs = zip(groups.starts.tolist(), groups.counts.tolist(), strict=True)
        digests = [leaf.tobytes() for leaf in leaves]
        roots = b"".join([_root(digests[start : start + count], prefix) for start, count in runs])
        return np.frombuffer(roots, dtype=np.uint8).reshape(len(groups), DIGEST_BYTES)
    counts = groups.counts.copy()
    nodes = np.ascontiguousarray(leaves)
    while len(counts) and int(counts.max()) > 1:
        nodes, counts = level_up(nodes, counts, prefix)
    return nodes


def _root(nodes: list[bytes], prefix: bytes) -> bytes:
    """Return the root of one small tree."""
    while len(nodes) > 1:
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        above = [sha256(prefix + left + right) for left, right in pairs]
        nodes = [*above, nodes[-1]] if len(nodes) % 2 else above
    return nodes[0]


def hash_pairs(pairs: Digests, prefix: bytes = INNER_PREFIX, rows: Rows | None = None) -> Digests:
    """Return SHA-256(prefix || left || right) of each row left || right.

    Args:
        pairs: shape (n, 64).
        prefix: prefix of inner nodes.
        rows: rows of ``pairs`` to hash, in this order; all by default.

    Returns:
        Digests, shape (n, 32).
    """
    if rows is None:
        return digest_rows(HashFunction.SHA256, pairs, prefix=prefix)
    return _hash_at(pairs.reshape(-1), 2 * DIGEST_BYTES * rows, prefix)


def _hash_at(data: Digests, starts: Rows, prefix: bytes) -> Digests:
    """Return SHA-256(prefix || 64 bytes) at each of ``starts``."""
    return digest_slices(HashFunction.SHA256, data, starts, starts + 2 * DIGEST_BYTES, prefix=prefix)


def level_above(nodes: Digests, prefix: bytes = INNER_PREFIX) -> Digests:
    """Return the next level of one tree, shape (n, 32) -> ((n + 1) // 2, 32)."""
    half = len(nodes) // 2
    hashed = hash_pairs(nodes[: 2 * half].reshape(half, 2 * DIGEST_BYTES), prefix)
    return np.concatenate([hashed, nodes[2 * half :]]) if len(nodes) % 2 else hashed


def level_up(nodes: Digests, counts: Rows, prefix: bytes = INNER_PREFIX) -> tuple[Digests, Rows]:
    """Return the next level of many trees and its node counts.

    Args:
        nodes: the concatenated levels, contiguous, shape (sum of counts, 32).
        counts: nodes of each tree, 0 allowed.
        prefix: prefix of inner nodes.

    Returns:
        The concatenated next levels, and their counts.
    """
    none = np.empty(0, dtype=np.int64)
    return level_beside(nodes, counts, (none, none), (nodes[:0], nodes[:0]), prefix)


def level_beside(
    nodes: Digests, counts: Rows, runs: tuple[Rows, Rows], sides: tuple[Digests, Digests], prefix: bytes
) -> tuple[Digests, Rows]:
    """Return the next level of runs of nodes, some with a digest on their left or right side.

    Pairs are hashed in place; only nodes at the ends of runs are copied.

    Args:
        nodes: the concatenated runs, none empty.
        counts: nodes of each run.
        runs: ascending indices of the runs with a left digest, and with a right one.
        sides: those digests.
        prefix: prefix of inner nodes.

    Returns:
        The concatenated next levels, and their counts.
    """
    (left, right), (before, after) = runs, sides
    on_left = np.zeros(len(counts), dtype=np.int64)
    on_left[left] = 1
    total = counts + on_left
    total[right] += 1
    parents = (total + 1) >> 1
    at, starts = np.cumsum(parents) - parents, np.cumsum(counts) - counts
    alone = total & 1 > 0
    odd, tops = np.flatnonzero(alone), (at + parents - 1)
    position = np.repeat(starts - on_left - 2 * at, parents)
    position += 2 * np.arange(len(position))
    # Pairs with a side, and the odd last node, are stored elsewhere: hash arbitrary bytes here.
    for rows in (at[left], tops[right], tops[odd]):
        position[rows] = 0
    if len(nodes) == 1:
        nodes = np.concatenate([nodes, nodes])
    above = _hash_at(nodes.reshape(-1), DIGEST_BYTES * position, prefix)
    last = starts + counts - 1
    above[at[left]] = hash_pairs(np.concatenate([before, nodes[starts[left]]], axis=1), prefix)
    above[tops[right]] = hash_pairs(np.concatenate([nodes[last[right]], after], axis=1), prefix)
    above[tops[odd]] = nodes[last[odd]]
    return above, parents


Positions = npt.NDArray[np.int64]


class Levels:
    """An immutable tree: ``levels[0]`` the leaves, the last level the root; empty if no leaves."""

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
        """Return the steps from leaves to root: one (side, digests) a level.

        Side is 0 for a left sibling, 1 for a right one, 2 if the node moves up unchanged. The digests belong to the
        rows with a sibling, in order.
        """
        steps = []
        for level in self.levels[:-1]:
            sibling = positions ^ 1
            side = np.where(sibling < len(level), 1 - (positions & 1), 2)
            steps.append((side, level.take(sibling[side < 2], axis=0)))
            positions = positions >> 1
        return steps
