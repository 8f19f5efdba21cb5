"""Storage proofs in columns against single proofs, and column-specific cases."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.proof_columns import (
    StorageProofs,
    StorageVerdict,
    read_storage_proofs,
    read_values,
    verify_storage_proofs,
)
from causeway_proofs.substrate.trie import Trie, prove
from hypothesis import given, settings

from tests.support.properties.storage_both_ways import Case, damaged, edges, require_same
from tests.tiers import sized

FEW = settings(max_examples=sized(27, 300), deadline=None, derandomize=True)
KEYS = st.binary(max_size=3).map(lambda key: bytes(byte & 0x11 for byte in key)) | st.binary(max_size=40)
VALUES = st.binary(max_size=4) | st.sampled_from([b"v" * length for length in (20, 31, 32, 33, 64, 16_384)])


@pytest.mark.parametrize("seed", range(4))
def test_corrupted_proofs_have_the_verdicts_of_single_ones(seed: int) -> None:
    require_same(damaged(Random(seed), 400))


def test_every_bound_of_an_encoding_equals_that_of_single_proofs() -> None:
    require_same(edges())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized(2, 20)))
def test_many_corrupted_proofs_have_the_verdicts_of_single_ones(seed: int) -> None:
    require_same(damaged(Random(1000 + seed), 2_000))


@FEW
@given(
    st.dictionaries(KEYS, VALUES, max_size=20), st.lists(KEYS, min_size=1, max_size=5), st.sampled_from(StateVersion)
)
def test_generated_proofs_verify(state: dict[bytes, bytes], others: list[bytes], version: StateVersion) -> None:
    trie = Trie.build(state.keys(), state.values(), version)
    keys = list(dict.fromkeys([*state, *others]))
    nodes = [prove(trie, [key]) for key in keys]
    nodes.append(prove(trie, keys))
    proofs = StorageProofs.of([trie.root] * len(nodes), nodes, version)
    numbers = np.array([*range(len(keys)), *[len(keys)] * len(keys)])
    values = [state.get(key) for key in keys] * 2
    held = verify_storage_proofs(proofs, keys * 2, values, numbers)
    assert not held.codes.any()
    assert held.reads.values().to_pylist() == values
    cases = [Case(trie.root, tuple(nodes[-1]), tuple((key, state.get(key)) for key in keys), version)]
    require_same(cases)


def small_trie() -> tuple[Trie, list[bytes], list[bytes]]:
    keys = [bytes([number]) * 4 for number in range(40)]
    values = [bytes([number]) * 50 for number in range(40)]
    return Trie.build(keys, values), keys, values


def test_dictionary_nodes_are_shared_and_each_list_is_judged_alone() -> None:
    trie, keys, _ = small_trie()
    nodes = prove(trie, keys)
    lists = [prove(trie, [key]) for key in keys]
    lists[3] = [*lists[3], lists[4][0] if lists[4][0] not in lists[3] else lists[4][-1]]
    lists[5] = lists[5][:-1]
    lists[7] = [*lists[7], lists[7][0]]
    indices = pa.array([nodes.index(node) for given in lists for node in given], pa.int32())
    offsets = pa.array(np.cumsum([0, *map(len, lists)]), pa.int32())
    column = pa.ListArray.from_arrays(offsets, pa.DictionaryArray.from_arrays(indices, pa.array(nodes, pa.binary())))
    plain = read_values(StorageProofs.of([trie.root] * len(keys), lists), keys, strict=True)
    for cut in (0, 2):
        roots = np.frombuffer(trie.root * (len(keys) - cut), dtype=np.uint8).reshape(-1, 32)
        found = read_values(StorageProofs.of(roots, column[cut:]), keys[cut:], strict=True)
        assert found.codes.tolist() == plain.codes.tolist()[cut:]
        assert [str(found.error(proof)) for proof in found.refused] == [str(plain.error(row)) for row in plain.refused]
        assert len(found.reads.proofs.nodes) == len(nodes)
    assert plain.refused.tolist() == [3, 5, 7]
    assert [StorageVerdict(code).name for code in plain.codes[[3, 5, 7]]] == [
        "UNUSED_NODES",
        "INVALID_PROOF",
        "UNUSED_NODES",
    ]
    lenient = read_values(StorageProofs.of([trie.root] * len(keys), lists), keys)
    assert lenient.refused.tolist() == [3, 5]
    assert np.flatnonzero(lenient.reads.repeated).tolist() == [7]


def test_roots_may_come_from_other_proofs() -> None:
    trie, keys, values = small_trie()
    outer = Trie.build([b"root"], [trie.root])
    first = read_values(StorageProofs.of([outer.root], [prove(outer, [b"root"])]), [b"root"])
    second = read_values(StorageProofs.of(first.reads.values(), [prove(trie, [keys[9]])]), [keys[9]])
    assert (first.codes.tolist(), second.codes.tolist()) == ([0], [0])
    assert second.reads.values().to_pylist() == [values[9]]


def test_proof_over_the_limits_is_refused_and_the_others_are_read() -> None:
    trie, keys, _ = small_trie()
    good = prove(trie, keys[:1])
    many = [number.to_bytes(3, "little") for number in range((1 << 17) + 1)]
    long = [*good, bytes(8 << 20)]
    roots = [trie.root, trie.root, trie.root, trie.root[1:], trie.root]
    found = read_values(StorageProofs.of(roots, [good, many, long, many, good]), keys[:1] * 5)
    names = ["HOLDS", "OVER_LIMIT", "OVER_LIMIT", "MALFORMED_PROOF", "HOLDS"]
    assert [StorageVerdict(code).name for code in found.codes] == names
    errors = [found.error(proof) for proof in range(5)]
    assert [None if error is None else type(error) for error in errors] == [
        StorageVerdict(code).error for code in found.codes
    ]
    assert "131073 nodes" in str(errors[1])
    assert found.reads.status.tolist() == [0, 5, 5, 5, 0]


def test_empty_input_yields_no_values() -> None:
    empty = StorageProofs.of([], [])
    assert len(read_storage_proofs(empty, []).values()) == 0
    assert verify_storage_proofs(empty, [], []).codes.tolist() == []
    no_keys = StorageProofs.of([bytes(32)] * 2, [[], [b"node"]])
    assert verify_storage_proofs(no_keys, [], [], np.empty(0, dtype=np.int64)).codes.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: StorageProofs.of([bytes(32)], []), "1 roots and 1 versions are given for 0 lists"),
        (lambda: StorageProofs.of([bytes(32)], [["text"]]), "holds text"),
        (lambda: StorageProofs.of([bytes(32)], pa.array([None], pa.list_(pa.binary()))), "holds a null"),
        (lambda: StorageProofs.of([bytes(32)], pa.array([b""])), "lists of byte strings are wanted"),
        (lambda: StorageProofs.of(np.zeros((1, 31), np.uint8), [[]]), "shape"),
        (lambda: StorageProofs.of([bytes(32)], [[]], np.zeros(2, np.int8)), "2 versions"),
        (lambda: read_storage_proofs(StorageProofs.of([bytes(32)], [[]]), []), "0 keys are given for 1 proofs"),
        (lambda: read_storage_proofs(StorageProofs.of([bytes(32)], [[]]), [b""], np.array([1])), "1 to 1"),
        (lambda: read_storage_proofs(StorageProofs.of([bytes(32)], [[]]), [b""], np.array([0, 0])), "2 numbers"),
        (lambda: verify_storage_proofs(StorageProofs.of([bytes(32)], [[]]), [b""], []), "0 values"),
    ],
)
def test_mismatched_columns_are_named(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidInput, match=text):
        make()
