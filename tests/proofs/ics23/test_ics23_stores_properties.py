"""Stores against the slow form: roots of any update history, proofs of presence and absence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ics23.batch import batch_verify_membership, batch_verify_non_membership, find_remarks
from causeway_proofs.ics23.entries import (
    Entries,
    KnownKey,
    NothingToProve,
    StoreError,
    UnknownKey,
    ranks,
    sorted_entries,
)
from causeway_proofs.ics23.proof_specs import IAVL_SPEC, SMT_SPEC, TENDERMINT_SPEC
from causeway_proofs.ics23.simple_store import SimpleStore, verify_range_proof
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.ics23.verify import (
    verify_chained_membership,
    verify_chained_non_membership,
    verify_membership,
    verify_non_membership,
)
from causeway_proofs.wire.ics23_pb2 import ProofSpec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.ics23.batches import batch_proof, compress
from tests.oracles.ics23.iavl_store import IavlStore
from tests.oracles.ics23.multi_store import MultiStore
from tests.oracles.ics23.smt import SmtStore
from tests.support.properties.ics23_reference import Node, iavl_commit, smt_root
from tests.tiers import sized

# Few letters, including the lowest byte: keys that extend one another and share suffixes.
KEYS = st.lists(st.sampled_from([0, 1, 0x7F, 0xFF]), min_size=1, max_size=5).map(bytes)
NUMBERED = st.integers(0, 300).map(lambda number: b"ibc:B:send" + number.to_bytes(8, "big"))
VALUES = st.binary(min_size=1, max_size=6) | st.binary(min_size=130, max_size=140)
STORES = st.dictionaries(KEYS | NUMBERED, VALUES, min_size=1, max_size=40)
HISTORIES = st.lists(
    st.tuples(st.dictionaries(KEYS | NUMBERED, VALUES, max_size=25), st.sets(st.integers(0, 60), max_size=12)),
    min_size=1,
    max_size=6,
)
SPECS = {"simple": TENDERMINT_SPEC, "iavl": IAVL_SPEC, "smt": SMT_SPEC}


def column(values: object) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def entries(store: dict[bytes, bytes]) -> Entries:
    return sorted_entries(column(list(store)), column(list(store.values())))


def built(kind: str, store: dict[bytes, bytes]) -> ProvableStore:
    if kind == "simple":
        return SimpleStore.over(entries(store))
    if kind == "iavl":
        return IavlStore().commit(entries(store), column([]))
    return SmtStore(column(list(store)), column(list(store.values())))


def updates(history: list[tuple[dict[bytes, bytes], set[int]]]):
    """Yield (upserts, deletions, store afterwards): numbers select deletions among the stored keys."""
    store: dict[bytes, bytes] = {}
    for upserts, picks in history:
        there = sorted(store.keys() - upserts.keys())
        deletions = {there[pick] for pick in picks if pick < len(there)}
        store = {key: value for key, value in {**store, **upserts}.items() if key not in deletions}
        yield upserts, deletions, store


@settings(deadline=None, max_examples=sized(54, 600))
@given(HISTORIES, st.booleans())
def test_iavl_store_has_the_roots_of_changes_made_one_by_one(history, forgets) -> None:
    kept, reference = IavlStore(), None
    versions = []
    for version, (upserts, deletions, store) in enumerate(updates(history), 1):
        committed = kept.commit(entries(upserts), column(sorted(deletions)))
        reference, root = iavl_commit(reference, upserts, deletions, version)
        assert (committed.root, committed.version, len(committed)) == (root, version, len(store))
        versions.append((version, root, store))
        if forgets and version % 2 == 0:
            kept.forget_before(version)
            versions = versions[-1:]
    # Later commits have not changed it.
    for version, root, store in versions:
        assert kept.at(version).root == root
        assert_proves_all(kept.at(version), IAVL_SPEC, store)


@settings(deadline=None, max_examples=sized(18, 200))
@given(st.integers(1, 400), st.integers(1, 9))
def test_ascending_tree_built_at_once_equals_insertions(count, run) -> None:
    store = entries({b"k" + number.to_bytes(3, "big"): b"v" for number in range(count)})
    at_once = IavlStore().commit(store, column([]))
    # The bulk builder replaces the editor; an initial entry to delete prevents the bulk builder.
    reference: Node | None = None
    reference, root = iavl_commit(
        None, dict(zip(store.keys.to_pylist(), store.values.to_pylist(), strict=True)), set(), 1
    )
    assert at_once.root == root
    in_runs, reference = IavlStore(), None
    for version, start in enumerate(range(0, min(count, 60), run), 1):
        piece = store.slice(start, min(start + run, count))
        reference, root = iavl_commit(
            reference, dict(zip(piece.keys.to_pylist(), piece.values.to_pylist(), strict=True)), set(), version
        )
        assert in_runs.commit(piece, column([])).root == root


@settings(deadline=None, max_examples=sized(27, 300))
@given(STORES)
def test_sparse_store_has_the_root_of_its_definition(store) -> None:
    assert built("smt", store).root == smt_root(store)


def content_of(entries: Entries) -> list[tuple[bytes, bytes]]:
    return list(zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True))


def assert_proves_all(store: ProvableStore, spec: ProofSpec, content: dict[bytes, bytes]) -> None:
    found = store.entries_at(np.arange(len(store)))
    assert dict(content_of(found)) == content
    if content:
        proofs = store.existence_proofs(np.arange(len(store)))
        for (key, value), proof in zip(content_of(found), proofs.to_pylist(), strict=True):
            verify_membership(spec, store.root, proof, key, value)


@pytest.mark.parametrize("kind", SPECS)
@settings(deadline=None, max_examples=sized(18, 200))
@given(STORES, st.lists(KEYS | NUMBERED, max_size=10))
def test_every_present_key_and_every_absent_key_is_proved(kind, content, others) -> None:
    store, spec = built(kind, content), SPECS[kind]
    assert_proves_all(store, spec, content)
    absent = [key for key in others if key not in content]
    for key, proof in zip(absent, store.absence_proofs(column(absent)).to_pylist(), strict=True):
        verify_non_membership(spec, store.root, proof, key)
        assert store.prove(key) == proof
        with pytest.raises(ProofError):
            verify_membership(spec, store.root, proof, key, b"v")
    for key in list(content)[:3]:
        verify_membership(spec, store.root, store.prove(key), key, content[key])
        with pytest.raises(KnownKey):
            store.absence_proofs(column([key]))
    wanted = list(content)[::2] + absent
    plain = batch_proof(store, wanted)
    for batch in (plain, compress(plain)):
        batch_verify_membership(spec, store.root, batch, {key: content[key] for key in wanted if key in content})
        batch_verify_non_membership(spec, store.root, batch, absent)


@pytest.mark.parametrize("kind", SPECS)
def test_large_stores_prove_all_their_entries(kind: str) -> None:
    content = {b"q" + number.to_bytes(8, "big"): number.to_bytes(2, "big") * 70 for number in range(700)}
    store = built(kind, content)
    if kind == "iavl":
        # Heights, sizes and versions of one byte and of two.
        versions = IavlStore()
        for start in range(0, 700, 7):
            some = list(content)[start : start + 7]
            store = versions.commit(entries({key: content[key] for key in some}), column([]))
    assert_proves_all(store, SPECS[kind], content)
    absent = [b"a", b"q" + bytes(7) + b"\x01\x00", b"q" + (350).to_bytes(8, "big") + b"x", b"z"]
    for key, proof in zip(absent, store.absence_proofs(column(absent)).to_pylist(), strict=True):
        verify_non_membership(SPECS[kind], store.root, proof, key)
        assert store.prove(key) == proof
    for position in (-1, len(store)):
        with pytest.raises(StoreError, match="positions from"):
            store.existence_proofs(np.array([position]))


@pytest.mark.parametrize("kind", SPECS)
def test_one_proof_of_an_empty_store(kind) -> None:
    empty = {
        "simple": SimpleStore.empty(), "iavl": IavlStore().at(0), "smt": SmtStore(column([]), column([]))
    }[kind]  # fmt: skip
    for prove in (
        empty.prove,
        lambda key: empty.absence_proofs(column([key])),
    ):
        with pytest.raises(NothingToProve):
            prove(b"key")
    with pytest.raises(UnknownKey):
        empty.prove_existence(b"key")
    with pytest.raises(StoreError):
        empty.existence_proofs(np.array([0]))
    assert len(empty.existence_proofs(np.array([], dtype=np.int64))) == 0
    with pytest.raises(InvalidInput):
        built(kind, {b"key": b"value"}).absence_proofs(pa.array([b"a", None], pa.binary()))


def verify_either(spec: ProofSpec, root: bytes, proof: bytes, key: bytes, value: bytes | None) -> None:
    if value is None:
        verify_non_membership(spec, root, proof, key)
    else:
        verify_membership(spec, root, proof, key, value)


@pytest.mark.parametrize("kind", SPECS)
@settings(deadline=None, max_examples=sized(11, 125), derandomize=True)
@given(STORES, KEYS, st.data())
def test_every_changed_bit_of_a_proof_is_refused_or_remarked_on(kind, content, key, data) -> None:
    store, spec = built(kind, content), SPECS[kind]
    proof = store.prove(key)
    bit = data.draw(st.integers(0, 8 * len(proof) - 1))
    tampered = bytearray(proof)
    tampered[bit // 8] ^= 1 << bit % 8
    for bad in (bytes(tampered), proof[:-1], proof + b"\x00"):
        try:
            verify_either(spec, store.root, bad, key, content.get(key))
        except ProofError:
            continue
        assert find_remarks(spec, store.root, bad, {key: content.get(key)})


@settings(deadline=None, max_examples=sized(18, 200))
@given(STORES, st.dictionaries(KEYS, VALUES, min_size=1, max_size=9), KEYS)
def test_multi_store_proves_in_two_steps(first, second, key) -> None:
    deployed = MultiStore({"ibc": built("iavl", first), "bank": built("iavl", second)})
    simple = MultiStore({"ibc": built("simple", first), "acc": built("simple", second), "zeta": built("smt", second)})
    for store, specs in ((deployed, [IAVL_SPEC, TENDERMINT_SPEC]), (simple, [TENDERMINT_SPEC, TENDERMINT_SPEC])):
        proof = store.prove("ibc", key)
        if key in first:
            verify_chained_membership(specs, store.root, proof, [b"ibc", key], first[key])
        else:
            verify_chained_non_membership(specs, store.root, proof, [b"ibc", key])
            assert store.absence_proofs("ibc", column([key])).to_pylist() == [proof]
        proofs = store.existence_proofs("ibc", np.arange(len(first)))
        for (name, value), each in zip(sorted(first.items()), proofs.to_pylist(), strict=True):
            verify_chained_membership(specs, store.root, each, [b"ibc", name], value)


@settings(deadline=None, max_examples=sized(68, 750))
@given(st.integers(1, 70), st.data())
def test_any_range_is_proved_with_its_siblings(count, data) -> None:
    content = {b"q" + number.to_bytes(8, "big"): bytes([number, 1]) for number in range(count)}
    store = SimpleStore.over(entries(content))
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first, count - 1))
    proof = store.range_proof(first, last)
    run = verify_range_proof(store.root, proof)
    assert run.entries.keys.to_pylist() == sorted(content)[first : last + 1]
    assert run.entries.values.to_pylist() == [content[key] for key in sorted(content)[first : last + 1]]
    assert (run.begins_store, run.ends_store) == (first == 0, last == count - 1)
    assert run.steps[-1].result == store.root


@settings(deadline=None, max_examples=sized(9, 100), derandomize=True)
@given(st.integers(1, 14), st.data())
def test_every_changed_bit_of_a_range_proof_is_refused(count, data) -> None:
    content = {b"q" + bytes([number]): bytes([number + 1]) for number in range(count)}
    store = SimpleStore.over(entries(content))
    first = data.draw(st.integers(0, count - 1))
    proof = store.range_proof(first, data.draw(st.integers(first, count - 1)))
    for bit in range(8 * len(proof)):
        tampered = bytearray(proof)
        tampered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProofError):
            verify_range_proof(store.root, bytes(tampered))
    for bad in (b"", proof[:-1], proof + b"\x00"):
        with pytest.raises(ProofError):
            verify_range_proof(store.root, bad)


@settings(deadline=None, max_examples=sized(27, 300))
@given(st.sets(KEYS, max_size=60), st.lists(KEYS | st.just(b""), max_size=40))
def test_column_search_equals_single_searches(keys, wanted) -> None:
    places, there = ranks(column(sorted(keys)), column(wanted))
    assert places.tolist() == [sum(key < other for key in keys) for other in wanted]
    assert there.tolist() == [other in keys for other in wanted]
