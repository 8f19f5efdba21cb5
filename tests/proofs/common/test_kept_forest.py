"""Trees changed in place equal rebuilt trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from causeway_proofs import merkle_forest
from causeway_proofs.hashing import Digests
from causeway_proofs.merkle import hash_pairs, merkle_roots
from causeway_proofs.merkle_forest import MerkleForest
from causeway_proofs.order import Groups
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties.trees import built
from tests.tiers import sized

sizes = st.integers(1, 40) | st.sampled_from([63, 64, 65, 127, 128, 300, 900])
changes = st.lists(
    st.tuples(st.integers(0, 3), sizes, st.floats(0, 1), st.lists(st.floats(0, 0.999), max_size=4)), max_size=8
)


def _leaves(draw: np.random.Generator, count: int) -> Digests:
    return draw.integers(0, 256, (count, 32), dtype=np.uint8)


@settings(deadline=None, max_examples=sized(27, 300))
@given(first=st.lists(sizes, min_size=4, max_size=4), made=changes, seed=st.integers(0, 2**32))
def test_any_changes_yield_the_trees_of_the_leaves(
    first: list[int], made: list[tuple[int, int, float, list[float]]], seed: int
) -> None:
    draw = np.random.default_rng(seed)
    forest, trees = MerkleForest(np.array(first)), [_leaves(draw, count) for count in first]
    rows = [(tree, place) for tree, count in enumerate(first) for place in range(count)]
    _write(forest, trees, rows)
    _compare(forest, trees, draw)
    for tree, size, kept, single in made:
        # After some leaf all differ now, and their number changed; before it some differ.
        held = min(int(kept * len(trees[tree])), size - 1)
        trees[tree] = np.concatenate([trees[tree][:held], _leaves(draw, size - held)])
        changed = {(tree, place) for place in range(held, size)}
        for share in single:
            other = int(share * 4)
            place = int(share * len(trees[other]))
            trees[other][place] ^= 1
            changed.add((other, place))
        forest.resize(np.array([len(leaves) for leaves in trees]))
        _write(forest, trees, sorted(changed))
        _compare(forest, trees, draw)


def _write(forest: MerkleForest, trees: list[Digests], rows: list[tuple[int, int]]) -> None:
    tree, place = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    forest.leaves[forest.offsets[tree] + place] = [trees[one][at] for one, at in rows]
    forest.rehash(tree, place)


def _compare(forest: MerkleForest, trees: list[Digests], draw: np.random.Generator) -> None:
    whole = built(np.concatenate(trees), np.array([len(leaves) for leaves in trees]))
    sizes = np.array([len(leaves) for leaves in trees])
    groups = Groups(np.cumsum(sizes) - sizes, sizes, int(sizes.sum()))
    assert np.array_equal(forest.roots(), merkle_roots(np.concatenate(trees), groups))
    asked = draw.integers(0, len(trees), 5)
    begin = np.array([draw.integers(0, len(trees[tree])) for tree in asked])
    count = np.array([draw.integers(1, len(trees[tree]) - first + 1) for tree, first in zip(asked, begin, strict=True)])
    (digests, counts), expected = forest.sides(asked, begin, count), whole.sides(asked, begin, count)
    assert np.array_equal(digests, expected[0]) and np.array_equal(counts, expected[1])
    for tree in range(len(trees)):
        assert [nodes.tolist() for nodes in forest.nodes_of(tree)] == [nodes.tolist() for nodes in whole.nodes_of(tree)]


def test_change_hashes_only_ancestors_and_a_growing_tree_moves_with_its_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[int] = []

    def counted(pairs: Digests, prefix: bytes, rows: Any) -> Digests:
        hashed.append(len(rows))
        return hash_pairs(pairs, prefix, rows)

    monkeypatch.setattr(merkle_forest, "hash_pairs", counted)
    draw = np.random.default_rng(1)
    leaves = _leaves(draw, 1000)
    forest = MerkleForest(np.array([1, 1000]))
    forest.leaves[forest.offsets[0]] = 7
    forest.leaves[forest.offsets[1] + np.arange(1000)] = leaves
    forest.rehash(np.repeat([0, 1], [1, 1000]), np.append(0, np.arange(1000)))
    assert sum(hashed) == 999
    for size in (1001, 1500, 4000):
        hashed.clear()
        before = len(leaves)
        leaves = np.concatenate([leaves, _leaves(draw, size - before)])
        forest.resize(np.array([1, size]))
        added = np.arange(before, size)
        forest.leaves[forest.offsets[1] + added] = leaves[added]
        forest.rehash(np.ones_like(added), added)
        assert sum(hashed) <= size - before + 12
        assert forest.roots()[1].tobytes() == built(leaves, np.array([size])).roots()[0].tobytes()
    assert forest.roots()[0].tobytes() == bytes([7]) * 32
