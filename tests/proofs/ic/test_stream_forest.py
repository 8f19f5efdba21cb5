"""Cached stream trees equal rebuilt ones, and a change hashes only the required nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from causeway_proofs import merkle_forest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.digest_columns import indexed_digests, labeled_digests, leaf_digests
from causeway_proofs.ic.hash_tree import FORK_DOMAIN
from causeway_proofs.ic.stream_tree import Keys, MessagesTree, StreamForest
from causeway_proofs.merkle import hash_pairs
from causeway_proofs.merkle_forest import run_roots
from causeway_proofs.order import U64, Groups, Rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import sized

appended = st.integers(0, 20) | st.sampled_from([63, 64, 65, 128, 300])
trims = st.sampled_from([0, 0, 1, 2, 3, 4, 8, 16, 64, 128, 10_000])
steps = st.lists(st.dictionaries(st.integers(0, 5), st.tuples(appended, trims), max_size=6), min_size=1, max_size=8)
FIRST = (1 << 64) - 5000


def _numbers(values: list[int]) -> U64:
    return np.array(values, dtype=np.uint64)


def _keys_of(keys: list[int]) -> Keys:
    """Keys as byte strings: of one length, and some of them end in zeros."""
    return np.array([(key << 64).to_bytes(16, "big") for key in keys], dtype="S16")


class Streams:
    """Streams held as a forest and, one by one, as trees."""

    def __init__(self, keys: Callable[[list[int]], Keys] = _numbers) -> None:
        self.forest, self.keys = StreamForest(), keys
        self.trees: dict[int, MessagesTree] = {}

    def step(self, changes: dict[int, tuple[int, int]]) -> None:
        """Let the streams be those of ``changes``, with so many messages appended and at most so many trimmed."""
        for key in set(self.trees) - set(changes):
            del self.trees[key]
        digests = []
        for key, (added, trimmed) in sorted(changes.items()):
            tree = self.trees.setdefault(key, MessagesTree(FIRST + key))
            begin = min(tree.begin + trimmed, tree.end)
            indexes = np.arange(added, dtype=np.uint64) + np.uint64(tree.end)
            messages = [f"{key} {index}".encode() for index in indexes]
            digests.append(indexed_digests(indexes, leaf_digests(_column(messages))))
            tree.append(messages)
            tree.trim(begin)
        keys = sorted(changes)
        self.forest.update(
            self.keys(keys),
            _numbers([self.trees[key].begin for key in keys]),
            _numbers([self.trees[key].end for key in keys]),
            np.concatenate([np.empty((0, 32), dtype=np.uint8), *digests]),
        )


def _column(messages: list[bytes]) -> object:
    import pyarrow as pa

    return pa.array(messages, pa.binary())


@settings(deadline=None, max_examples=sized(36, 400))
@given(
    made=steps,
    shares=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=6, max_size=6),
    named=st.sampled_from([_numbers, _keys_of]),
)
def test_any_changes_yield_the_trees_of_the_streams(
    made: list[dict[int, tuple[int, int]]],
    shares: list[tuple[float, float]],
    named: Callable[[list[int]], Keys],
) -> None:
    streams = Streams(named)
    for changes in made:
        streams.step(changes)
        forest, trees = streams.forest, [tree for _, tree in sorted(streams.trees.items())]
        keys = forest.keys
        assert forest.roots(keys[::-1]).tobytes() == b"".join(tree.root for tree in reversed(trees))
        assert forest.counts(keys).tolist() == [tree.end - tree.begin for tree in trees]
        runs = []
        for tree, (one, other) in zip(trees, shares, strict=False):
            ends = sorted(round(share * (tree.end - tree.begin)) for share in (one, other))
            runs.append((tree.begin + ends[0], tree.begin + ends[1]))
        first, stop = (_numbers(list(column)) for column in zip(*runs, strict=True)) if runs else (_numbers([]),) * 2
        _compare(forest, first, stop, *forest.sides(keys, first, stop))
        _compare(forest, first, forest.ends, *forest.left_siblings(keys, first))


def _compare(forest: StreamForest, first: U64, stop: U64, sides: Digests, counts: Rows) -> None:
    """Check that ranges and their siblings give the roots of the streams."""
    roots = forest.roots(forest.keys)
    ends = np.cumsum(counts)
    for row in range(len(forest.keys)):
        begin, size = int(forest.begins[row]), int(forest.ends[row] - forest.begins[row])
        own = sides[ends[row] - counts[row] : ends[row]]
        offset = int(forest._forest.offsets[row])
        run = forest._forest.leaves[offset : offset + size][int(first[row]) - begin : int(stop[row]) - begin]
        if len(run) == 0:
            assert own.tobytes() == (labeled_digests(b"messages", roots[row : row + 1]).tobytes() if size else b"")
            continue
        at = np.array([int(first[row]) - begin])
        groups = Groups(np.array([0]), np.array([len(run)]), len(run))
        assert np.array_equal(
            run_roots(run, groups, at, np.array([size]), own, np.array([len(own)]), FORK_DOMAIN), roots[row : row + 1]
        )


def _forks(begin: int, end: int) -> set[tuple[int, int]]:
    """Return the messages under each fork of a tree over [begin, end)."""
    found = set()
    level = [(index, index + 1) for index in range(begin, end)]
    while len(level) > 1:
        paired = [(left[0], right[1]) for left, right in zip(level[::2], level[1::2], strict=False)]
        found |= set(paired)
        level = paired + level[2 * len(paired) :]
    return found


@settings(deadline=None, max_examples=sized(18, 200))
@given(made=st.lists(st.tuples(appended, trims, st.integers(0, 3)), min_size=2, max_size=6))
def test_change_hashes_only_the_new_forks(made: list[tuple[int, int, int]]) -> None:
    hashed: list[int] = []

    def counted(pairs: Digests, prefix: bytes, rows: Rows) -> Digests:
        hashed.append(len(rows))
        return hash_pairs(pairs, prefix, rows)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merkle_forest, "hash_pairs", counted)
        streams = Streams()
        everyone = dict.fromkeys(range(4), (100, 0))
        streams.step(everyone)
        for added, trimmed, key in made:
            before = _forks(streams.trees[key].begin, streams.trees[key].end)
            hashed.clear()
            streams.step({other: (added, trimmed) if other == key else (0, 0) for other in everyone})
            assert sum(hashed) == len(_forks(streams.trees[key].begin, streams.trees[key].end) - before)


def test_refused_change_leaves_the_trees_unchanged_and_a_change_counts() -> None:
    streams = Streams()
    streams.step({1: (5, 0), 3: (7, 0)})
    forest, keys = streams.forest, _numbers([1, 3])
    root, version, digest = forest.roots(keys).tobytes(), forest.version, np.zeros((1, 32), dtype=np.uint8)
    begins, ends = forest.begins, forest.ends
    one = _numbers([0, 1])
    for wrong, text in (
        ((keys[::-1], begins, ends, digest[:0]), "do not ascend"),
        ((keys, begins, ends, digest), "1 digests are given for 0 messages"),
        ((keys, begins - one, ends, digest[:0]), "stream 3 goes from"),
        ((keys, begins, ends - one, digest[:0]), "stream 3 goes from"),
        ((keys, begins + 9 * one, ends + 9 * one, digest[:0]), "stream 3 goes from"),
    ):
        with pytest.raises(InvalidInput, match=text):
            forest.update(*wrong)
    for asked, text in (((keys + one, begins), "no stream 4"), ((keys, begins - one), "no run")):
        with pytest.raises(InvalidInput, match=text):
            forest.left_siblings(*asked)
    forest.update(keys, begins, ends, digest[:0])
    assert (forest.roots(keys).tobytes(), forest.version) == (root, version)
    forest.update(keys, begins, ends + one, digest)
    assert forest.version > version
