"""Forests against a recursively hashed tree as in RFC 6962."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from causeway_proofs.errors import MalformedProof
from causeway_proofs.merkle_forest import leaf_roots, leaf_sides, run_roots
from causeway_proofs.order import group_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties.trees import built
from tests.tiers import sized


def root_of(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + root_of(leaves[:split]) + root_of(leaves[split:])).digest()


def leaf(tree: int, place: int) -> bytes:
    return hashlib.sha256(bytes([tree, place])).digest()


@st.composite
def forests_and_runs(draw):
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    runs = []
    for _ in range(draw(st.integers(1, 6))):
        tree = draw(st.integers(0, len(sizes) - 1))
        first = draw(st.integers(0, sizes[tree] - 1))
        runs.append((tree, first, draw(st.integers(1, sizes[tree] - first))))
    return sizes, runs


def digests(values: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, 32)


@given(forests_and_runs())
@settings(max_examples=sized(90, 1000), deadline=None)
def test_every_range_with_its_siblings_yields_the_root_of_its_tree(case):
    sizes, runs = case
    leaves = [[leaf(tree, place) for place in range(size)] for tree, size in enumerate(sizes)]
    forest = built(digests([value for tree in leaves for value in tree]), np.array(sizes))
    assert [root.tobytes() for root in forest.roots()] == [root_of(tree) for tree in leaves]

    tree, first, count = (np.array(column) for column in zip(*runs, strict=True))
    sides, counts = forest.sides(tree, first, count)
    shown = digests([value for t, f, c in runs for value in leaves[t][f : f + c]])
    groups = group_rows(np.repeat(np.arange(len(runs), dtype=np.uint64), count))
    found = run_roots(shown, groups, first, forest.sizes[tree], sides, counts)
    assert np.array_equal(found, forest.roots()[tree])

    place, beside = leaf_sides(shown, groups, first, forest.sizes[tree], sides, counts)
    levels, size = list(beside), groups.spread(forest.sizes[tree])
    each = leaf_roots(shown, place, size, iter(levels))
    assert np.array_equal(each, forest.roots()[groups.spread(tree)])
    # A leaf's proof is the siblings of a run of one.
    ones = group_rows(np.arange(len(shown), dtype=np.uint64))
    alone, numbers = forest.sides(groups.spread(tree), place, np.ones(len(place), dtype=np.int64))
    assert np.array_equal(run_roots(shown, ones, place, size, alone, numbers), each)
    by_leaf = [(leaf, level) for level, (rows, _) in enumerate(levels) for leaf in rows.tolist()]
    joined = np.concatenate([np.empty((0, 32), dtype=np.uint8), *(found for _, found in levels)])
    order = sorted(range(len(by_leaf)), key=lambda number: by_leaf[number])
    assert np.array_equal(joined[np.array(order, dtype=np.int64)], alone)
    for number, (rows, found) in enumerate(levels):
        if len(rows) == 0:
            continue
        wrong = found.copy()
        wrong[0, 0] ^= 1
        altered_levels = [*levels[:number], (rows, wrong), *levels[number + 1 :]]
        differs = (leaf_roots(shown, place, size, iter(altered_levels)) != each).any(axis=1)
        assert np.flatnonzero(differs).tolist() == [rows[0]]
        with pytest.raises(MalformedProof, match="their positions need"):
            leaf_roots(shown, place, size, iter([*levels[:number], (rows[1:], found[1:]), *levels[number + 1 :]]))
    if levels:
        with pytest.raises(MalformedProof, match="fewer digests"):
            leaf_roots(shown, place, size, iter(levels[:-1]))
    with pytest.raises(MalformedProof, match="does not fit"):
        leaf_roots(shown, size, size, iter(levels))

    altered = shown.copy()
    altered[-1, 0] ^= 1
    assert not np.array_equal(run_roots(altered, groups, first, forest.sizes[tree], sides, counts), found)
    if len(sides):
        wrong = sides.copy()
        wrong[-1, 31] ^= 128
        assert not np.array_equal(run_roots(shown, groups, first, forest.sizes[tree], wrong, counts), found)
        with pytest.raises(MalformedProof, match="its position needs"):
            run_roots(shown, groups, first, forest.sizes[tree], sides, counts + 1)


def test_range_that_does_not_fit_its_tree_is_refused():
    leaves = digests([leaf(0, 0), leaf(0, 1)])
    groups = group_rows(np.zeros(2, dtype=np.uint64))
    none, zero = np.empty((0, 32), dtype=np.uint8), np.zeros(1, dtype=np.int64)
    with pytest.raises(MalformedProof, match="2 leaves from position 1 on do not fit a tree of 2"):
        run_roots(leaves, groups, np.array([1]), np.array([2]), none, zero)
