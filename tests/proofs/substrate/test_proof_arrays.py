"""Columns for bulk proofs: unsuitable and out-of-bounds ones are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.arrays import byte_column, integer_array, part_ends
from causeway_proofs.errors import InvalidInput
from causeway_proofs.mmr import verify_leaf_proofs
from causeway_proofs.substrate import (
    StorageProofs,
    Trie,
    Tries,
    limbs_column,
    numbers_column,
    prove,
    prove_storage,
    read_storage_proofs,
    to_limbs,
    verify_storage_proofs,
)
from causeway_proofs.xdm import MESSAGES

from tests.oracles.mmr import MountainRange, prove_each_leaf

KEYS = [b"a", b"bc"]
TRIE = Trie.build(KEYS, [b"1", b"2"])
PROOFS = StorageProofs.of([TRIE.root] * 2, [prove(TRIE, [key]) for key in KEYS])
RANGE = MountainRange()
for _ in range(3):
    RANGE.append(bytes(32))
LEAF_PROOFS = prove_each_leaf(RANGE, np.arange(3))
LEAVES = np.zeros((3, 32), dtype=np.uint8)


def unchecked_column(*offsets: int) -> pa.LargeBinaryArray:
    """Return a column with unchecked inner offsets, as from a file or the wire."""
    ends, data = pa.py_buffer(np.array(offsets)), pa.py_buffer(b"abc")
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, [None, ends, data])


LISTS = pa.Array.from_buffers(
    pa.large_list(pa.large_binary()),
    2,
    [None, pa.py_buffer(np.array([0, 10**9, 2]))],
    children=[pa.array(KEYS, pa.large_binary())],
)


@pytest.mark.parametrize("offsets", [(0, 10**12, 3), (0, 3, 1), (3, -(10**12), 3)])
def test_columns_with_offsets_out_of_bounds_are_refused(offsets: tuple[int, ...]) -> None:
    column = unchecked_column(*offsets)
    for use in (
        lambda: MESSAGES.decode(column),
        lambda: MESSAGES.encode({"response": column}),
        lambda: read_storage_proofs(PROOFS, column),
        lambda: StorageProofs.of([TRIE.root] * 2, pa.LargeListArray.from_arrays([0, 1, 2], column)),
        lambda: StorageProofs.of([TRIE.root] * 2, LISTS),
        lambda: verify_storage_proofs(PROOFS, KEYS, pa.chunked_array([column])),
        lambda: TRIE.tries.get(TRIE.number, column),
    ):
        with pytest.raises(InvalidInput, match=r"is damaged|is no large_binary"):
            use()


def of_storage(**columns: Any) -> Callable[[], object]:
    return lambda: replace(PROOFS, **columns)


def of_leaves(**columns: Any) -> Callable[[], object]:
    return lambda: replace(LEAF_PROOFS, **columns)


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (of_storage(members=PROOFS.members + 9), "members must be from 0"),
        (of_storage(offsets=PROOFS.offsets - 1), "offsets must be from 0"),
        (of_storage(offsets=np.array([0, 2, 1])), "offsets must ascend"),
        (of_storage(versions=np.full(2, 7)), "versions must be from -1 to 1"),
        (of_storage(versions=np.zeros((2, 1), np.int8)), "versions must be integers"),
        (of_storage(roots=PROOFS.roots[:1]), "1 roots"),
        (lambda: StorageProofs.of([TRIE.root] * 2, [None, None]), "a list of byte strings each"),
        (lambda: StorageProofs.of([TRIE.root] * 2, [[], []], 300), "versions must be from"),  # type: ignore[arg-type]
        (lambda: read_storage_proofs(PROOFS, KEYS, np.array([0.5, 1])), "numbers of keys' proofs must be integers"),
        (lambda: read_storage_proofs(PROOFS, KEYS, np.array([0, 2])), "numbers of keys' proofs must be from 0 to 1"),
        (lambda: verify_storage_proofs(PROOFS, KEYS, pa.array([1, 2])), "something else than byte strings"),
        (of_leaves(leaf_indices=np.array([-1, 0, 0])), "leaf indices must be from 0"),
        (of_leaves(leaf_counts=np.array([3.0] * 3)), "leaf counts must be integers"),
        (of_leaves(offsets=np.array([0, 2**63 - 1, -5, 3])), "offsets must be from 0"),
        (of_leaves(offsets=LEAF_PROOFS.offsets[:-1]), "3 leaf indices"),
        (lambda: verify_leaf_proofs(LEAF_PROOFS, LEAVES, RANGE.root(), 2**70), "leaf counts must be"),
        (lambda: verify_leaf_proofs(LEAF_PROOFS, LEAVES, RANGE.root(), -1), "leaf counts must be from 0"),
        (lambda: verify_leaf_proofs(LEAF_PROOFS, LEAVES.astype(int), RANGE.root()), "leaves are int64"),
        (lambda: verify_leaf_proofs(LEAF_PROOFS, LEAVES, RANGE.root(), np.array([3, 3])), "2 leaf counts"),
        (lambda: prove_each_leaf(RANGE, np.array([1.5])), "leaf indices must be integers"),
        (lambda: to_limbs(pa.array([b"abc"], pa.binary(3))), r"fixed_size_binary\[3\]"),
        (lambda: limbs_column(np.zeros((1, 2), np.int64)), "limbs are int64"),
        (lambda: numbers_column(np.array([-1]), 16), "numbers must be from 0"),
        (lambda: numbers_column(np.arange(2, dtype=np.uint64), 16, np.ones(1, np.bool_)), "flags in the shape"),
        (lambda: MESSAGES.encode({"nonce": ["a"]}), "the column nonce is no"),
    ],
)
def test_columns_unsuitable_for_a_loop_are_refused(use: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        use()


TRIES = Tries()
TRIES.update(TRIES.open(2), KEYS, KEYS)


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda: TRIES.open(-1), "-1 tries of layout"),
        (lambda: TRIES.open(1, 7), "layout 7"),  # type: ignore[arg-type]
        (lambda: TRIES.count(2), "numbers of tries must be from 0 to 1"),
        (lambda: TRIES.items(-1), "numbers of tries must be from 0 to 1"),
        (lambda: TRIES.roots(np.array([0.5])), "numbers of tries must be integers"),
        (lambda: TRIES.copy(np.zeros((1, 1), np.int64)), "numbers of tries must be integers"),
        (lambda: TRIES.close(np.array([2])), "numbers of tries must be from 0 to 1"),
        (lambda: TRIES.update(np.array([np.nan, 0]), KEYS, KEYS), "numbers of tries must be integers"),
        (lambda: TRIES.get(np.array([0]), KEYS), "1 tries are given with 2 keys"),
        (lambda: TRIES.visit(0.0, KEYS), "numbers of tries must be integers"),  # type: ignore[arg-type]
        (lambda: TRIES.encodings(np.array([10**6])), "numbers of nodes must be from 0"),
        (lambda: TRIES.values(np.array([-2])), "numbers of entries must be from -1"),
        (lambda: prove_storage(TRIES, np.array([2]), KEYS[:1]), "numbers of tries must be from 0 to 1"),
        (lambda: prove_storage(TRIES, np.array([0]), KEYS), "1 numbers of proofs"),
        (lambda: prove_storage(TRIES, np.array([0]), KEYS, np.array([0, 1])), "keys' proofs must be from 0 to 0"),
    ],
)
def test_tries_accept_trie_numbers_only(use: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        use()


def test_nodes_visited_before_a_change_are_not_read_after_it() -> None:
    tries = Tries()
    (number,) = tries.open(1)
    tries.update(int(number), KEYS, [b"1" * 40, b"2" * 40])
    visited = tries.visit(int(number), KEYS)
    tries.update(int(number), KEYS, [None, None])
    with pytest.raises(InvalidInput, match="such nodes any more"):
        tries.encodings(visited.nodes)
    with pytest.raises(InvalidInput, match="such entries any more"):
        tries.values(visited.entries)


def test_integers_of_any_layout_are_accepted() -> None:
    for given in ([1, 2], np.array([1, 9, 2], np.uint8)[::2], np.array([2, 1], np.int32)[::-1], pa.array([1, 2])):
        taken = integer_array(given, "numbers", np.int64)
        assert (taken.tolist(), str(taken.dtype), taken.flags.c_contiguous) == ([1, 2], "int64", True)
    assert integer_array([], "numbers", np.uint64).dtype == np.uint64
    with pytest.raises(InvalidInput, match="ascend"):
        part_ends([], "ends", 3)


def test_nulls_are_refused_if_not_requested() -> None:
    assert byte_column([b"a", None], nulls=True).null_count == 1
    with pytest.raises(InvalidInput, match="null"):
        byte_column(pa.nulls(2))
