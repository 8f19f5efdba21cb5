"""Stores: known roots, refusals, and the hazards of the reference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof, NotProven, OverLimit
from causeway_proofs.ics23.entries import (
    EmptyKey,
    EmptyValue,
    Entries,
    KnownKey,
    NothingToProve,
    StoreError,
    UnknownKey,
    UnsortedKeys,
    concat_columns,
    sorted_entries,
    uvarints,
)
from causeway_proofs.ics23.proof_specs import IAVL_SPEC, TENDERMINT_SPEC
from causeway_proofs.ics23.simple_store import SimpleStore, verify_range_proof
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership
from causeway_proofs.merkle import EMPTY_ROOT
from causeway_proofs.varints import uvarint
from causeway_proofs.wire.range_proof_pb2 import RangeProof

from tests.oracles.ics23.iavl_bulk import left_height
from tests.oracles.ics23.iavl_store import ConflictingChange, IavlStore, varints
from tests.oracles.ics23.multi_store import MultiStore
from tests.oracles.ics23.smt import SmtStore

NAME = b"ibc:B:send"
HEAD, TAIL = NAME + b"\x00", NAME + b"\x7f"
NOTHING = pa.array([], pa.binary())


def column(*values: bytes) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def entries(content: dict[bytes, bytes]) -> Entries:
    return sorted_entries(column(*content), column(*content.values()))


def index_key(index: int) -> bytes:
    return NAME + index.to_bytes(8, "big")


def queue(head: int, tail: int) -> dict[bytes, bytes]:
    """Return the entries of a send queue of type ``coin``, data the low byte of the index."""
    packets = {
        index_key(index): b"\x01\x00\x00\x00\x04coin\x00\x00\x00\x01" + bytes([index % 256])
        for index in range(head, tail)
    }
    return {HEAD: head.to_bytes(8, "big"), TAIL: tail.to_bytes(8, "big"), **packets}


def test_worked_example_has_its_root() -> None:
    store = SimpleStore.over(entries(queue(0, 3)))
    assert store.root.hex() == "99f08368f142b03bae4c939900a7a46807bc51bfeef50c811cc3ca1747e96c5f"
    assert store.entries.keys.to_pylist() == [HEAD, index_key(0), index_key(1), index_key(2), TAIL]


def test_iavl_roots_match_the_deployed_tree() -> None:
    # Facts from the tests of other implementations, computed there with cosmos/iavl.
    store = IavlStore()
    again = {f"aello{number:02}".encode(): b"world1" for number in range(21)}
    versions = [
        ({b"hello": b"world"}, (), "6032661ab0d201132db7a8fa1da6a0afe427e6278bd122c301197680ab79ca02"),
        (
            {b"hello": b"world1", b"hello1": b"world1"},
            (),
            "457d81f933f53e5cfb90d813b84981aa2604d69939e10c94304d18287ded31f7",
        ),
        (
            {b"hello2": b"world1", b"hello3": b"world1"},
            (),
            "c7ab142752add0374992261536e502851ce555d243270d3c3c6b77cf31b7945d",
        ),
        ({b"hello00": b"world1"}, (), "e54da9407cbca3570d04ad5c3296056a0726467cb06272ffd8ef1b4ae87fb99d"),
        ({}, (b"hello",), "8b04490800d6b54fa569715a754b5fafe24fd720f677cab819394cf7ccf8cdec"),
        (again, (), "38abd5268374923e6727b14ac5a9bb6611e591d7e316d0a612904062f244e72f"),
        ({}, (*again, b"hello00"), "d91cf6388eeff3204474bb07b853ab0d7d39163912ac1e610e92f9b178c76922"),
    ]
    for upserts, deletions, root in versions:
        assert store.commit(entries(upserts), column(*deletions)).root.hex() == root
    assert [store.at(version).root.hex() for version in range(1, 8)] == [root for _, _, root in versions]
    other = IavlStore()
    first = other.commit(entries({b"alice": b"abc", b"bob": b"123", b"c": b"1", b"q": b"1"}), NOTHING)
    assert first.root.hex() == "ca349f0ad2a648cff8be3c72ac93541b78cabd7fe66c3a7ffb95092157f99e8a"
    assert other.commit(Entries.none(), NOTHING).root == first.root
    other.commit(entries({b"qwerty": b"312", b"-32": b"gamma"}), NOTHING)
    last = other.commit(entries({b"alice": b"123"}), NOTHING)
    assert last.root.hex() == "259be9e5f3ad1df1ebea550a2481354f4d0b1d76c9e9853c4ebb25512a606996"


def test_empty_stores_have_the_empty_root_and_prove_no_entry() -> None:
    assert SimpleStore.empty().root == IavlStore().at(0).root == EMPTY_ROOT
    assert SmtStore(NOTHING, NOTHING).root == bytes(32)
    for store in (SimpleStore.empty(), IavlStore().at(0), SmtStore(NOTHING, NOTHING)):
        with pytest.raises(NothingToProve):
            store.prove(b"key")
        assert len(store.existence_proofs(np.array([], dtype=np.int64))) == 0
    emptied = IavlStore()
    emptied.commit(entries({b"a": b"1", b"b": b"2"}), NOTHING)
    assert emptied.commit(Entries.none(), column(b"a", b"b")).root == EMPTY_ROOT


@pytest.mark.parametrize(
    ("keys", "values", "error"),
    [
        ([b"", b"a"], [b"1", b"2"], EmptyKey),
        ([b"a", b"b"], [b"1", b""], EmptyValue),
        ([b"a", None], [b"1", b"2"], EmptyKey),
        ([b"a", b"b"], [b"1", None], EmptyValue),
        ([b"b", b"a"], [b"1", b"2"], UnsortedKeys),
        ([b"a", b"a"], [b"1", b"2"], UnsortedKeys),
        ([b"a"], [b"1", b"2"], StoreError),
    ],
)
def test_unprovable_entries_are_refused(keys, values, error) -> None:
    with pytest.raises(error):
        Entries.of(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def test_columns_of_another_type_or_too_long_are_refused() -> None:
    for wrong in (pa.array([b"a"], pa.large_binary()), pa.array(["a"]), pa.array([None], pa.binary())):
        with pytest.raises((InvalidInput, EmptyKey)):
            Entries.of(wrong, column(b"1"))
    with pytest.raises(InvalidInput, match="take fewer rows at once"):
        concat_columns(column(*[b"row"] * 1000), bytes(3_000_000))


def test_contradictory_changes_are_refused_without_effect() -> None:
    content = entries({b"a": b"1", b"b": b"2", b"c": b"3"})
    iavl = IavlStore()
    root = iavl.commit(content, NOTHING).root
    for upserts, deletions, error in (
        ({}, [b"x"], UnknownKey),
        ({b"x": b"1"}, [b"x"], (ConflictingChange, UnknownKey)),
        ({b"b": b"1"}, [b"b"], ConflictingChange),
        ({}, [b"b", b"a"], UnsortedKeys),
    ):
        with pytest.raises(error):
            iavl.commit(entries(upserts), column(*deletions))
    assert (iavl.version, iavl.at(1).root) == (1, root)
    with pytest.raises(UnknownKey):
        IavlStore().commit(entries({b"b": b"1"}), column(b"a"))
    with pytest.raises(StoreError, match="occurs twice"):
        SmtStore(column(b"k", b"k"), column(b"1", b"2"))


def test_pruned_version_is_unavailable() -> None:
    store = IavlStore()
    kept = store.commit(entries({b"a": b"1", b"b": b"2"}), NOTHING)
    store.commit(entries({b"c": b"3"}), NOTHING)
    store.forget_before(2)
    with pytest.raises(StoreError, match="version 1 is not kept"):
        store.at(1)
    with pytest.raises(StoreError, match="version 3 is not kept"):
        store.forget_before(3)
    verify_membership(IAVL_SPEC, kept.root, kept.prove(b"a"), b"a", b"1")
    assert store.at(2).height == 2


def test_requested_proof_must_match_presence_or_absence() -> None:
    store = SimpleStore.over(entries(queue(0, 3)))
    with pytest.raises(UnknownKey):
        store.prove_existence(index_key(3))
    with pytest.raises(KnownKey):
        store.absence_proofs(column(HEAD))
    with pytest.raises(UnknownKey, match="there is no store 'bank': there are ibc"):
        MultiStore({"ibc": store}).prove("bank", HEAD)


def test_head_and_tail_of_zero_and_an_empty_success_are_provable() -> None:
    # Hazard 14: their values are never empty bytes.
    store = SimpleStore.over(entries({**queue(0, 0), b"ibc:B:receipt" + bytes(8): b"\x01" + bytes(8)}))
    for key, value in ((HEAD, bytes(8)), (TAIL, bytes(8)), (b"ibc:B:receipt" + bytes(8), b"\x01" + bytes(8))):
        verify_membership(TENDERMINT_SPEC, store.root, store.prove(key), key, value)


def test_keys_order_like_their_indices() -> None:
    # Hazard 15.
    numbers = [255, 256, 2**32, 2**53 + 1, 2**53 + 2, 2**63 - 1]
    store = SimpleStore.over(entries({HEAD: b"h", TAIL: b"t", **{index_key(number): b"v" for number in numbers}}))
    # From 127 * 2**56 on, indices sort after the tail: a scan of indices must skip it.
    assert store.entries.keys.to_pylist() == [HEAD, *map(index_key, numbers[:-1]), TAIL, index_key(numbers[-1])]
    verify_non_membership(TENDERMINT_SPEC, store.root, store.prove(index_key(2**53)), index_key(2**53))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 11])
def test_pushing_and_popping_in_place_equals_rebuilding(size) -> None:
    iavl = IavlStore()
    iavl.commit(entries(queue(0, size)), NOTHING)
    popped = size - 1
    change = {index_key(size): queue(0, size + 1)[index_key(size)], HEAD: popped.to_bytes(8, "big")}
    change[TAIL] = (size + 1).to_bytes(8, "big")
    deletions = column(*map(index_key, range(popped)))
    expected = SimpleStore.over(entries(queue(popped, size + 1)))
    assert iavl.commit(entries(change), deletions).entries_at(np.arange(len(expected))) == expected.entries


def test_incomplete_range_cannot_be_proved() -> None:
    store = SimpleStore.over(entries(queue(0, 12)))
    message = RangeProof.FromString(store.range_proof(2, 6))
    without = Entries.of(*(c.filter(pa.array([True, True, False, True, True])) for c in _columns(store, 2, 7)))
    message.key_lengths[:] = [len(key) for key in without.keys.to_pylist()]
    message.keys = b"".join(without.keys.to_pylist())
    message.value_lengths[:] = [len(value) for value in without.values.to_pylist()]
    message.values = b"".join(without.values.to_pylist())
    with pytest.raises((NotProven, MalformedProof)):
        verify_range_proof(store.root, message.SerializeToString(deterministic=True))


def _columns(store: SimpleStore, start: int, stop: int) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    run = store.entries.slice(start, stop)
    return run.keys, run.values


def test_range_proof_errors_name_the_problem() -> None:
    store = SimpleStore.over(entries(queue(0, 12)))
    good = RangeProof.FromString(store.range_proof(2, 6))

    def altered(**fields: object) -> bytes:
        message = RangeProof()
        message.CopyFrom(good)
        for name, value in fields.items():
            setattr(message, name, value)
        return message.SerializeToString(deterministic=True)

    for proof, text in (
        (altered(steps=good.steps + b"\x00"), "joins nothing"),
        (altered(steps=good.steps[:-1]), "end with|no step uses"),
        (altered(steps=b"\x04" + good.steps[1:]), "allowed are 0 to 3"),
        (altered(left=good.left + bytes(32)), "no step uses"),
        (altered(right=good.right[:-32]), "missing"),
        (altered(right=good.right[:-1]), "no digests of 32"),
        (altered(keys=good.keys[:-1]), "their lengths add up"),
        (altered(keys=good.keys[:18] * 5), "not greater than the key before"),
        (b"", "no entry"),
        (altered(left=bytes(len(good.left))), "leads to root"),
    ):
        with pytest.raises((MalformedProof, NotProven), match=text):
            verify_range_proof(store.root, proof)
    with pytest.raises(OverLimit):
        verify_range_proof(store.root, altered(steps=bytes(129)))
    with pytest.raises(OverLimit):
        verify_range_proof(store.root, altered(), limit=100)
    for first, last in ((-1, 0), (3, 2), (0, 14)):
        with pytest.raises(StoreError):
            store.range_proof(first, last)


@pytest.mark.parametrize(("last", "steps"), [(1, b"\x02"), (4, b"\x00\x02\x00"), (4, b"\x00\x00\x02")])
def test_range_at_the_right_edge_has_no_right_sibling(last, steps) -> None:
    # A pair is complete without a digest, and a node that has moved up was the last of its level.
    store = SimpleStore.over(entries(queue(0, 12)))
    message = RangeProof.FromString(store.range_proof(0, last))
    message.steps, message.right = steps, bytes(32)
    with pytest.raises(MalformedProof, match="where the tree has none"):
        verify_range_proof(store.root, message.SerializeToString(deterministic=True))


def test_last_of_three_and_last_of_two_have_proofs_of_equal_shape() -> None:
    # The reason that range proofs have no positions.
    three = SimpleStore.over(entries({b"a": b"1", b"b": b"2", b"c": b"3"}))
    two = SimpleStore.over(entries({b"a": b"1", b"c": b"3"}))
    of_three, of_two = (
        RangeProof.FromString(store.range_proof(len(store) - 1, len(store) - 1)) for store in (three, two)
    )
    assert of_three.steps == of_two.steps == b"\x01"
    assert len(of_three.left) == len(of_two.left) == 32


def test_varints_are_those_of_protobuf() -> None:
    numbers = [0, 1, 63, 64, 127, 128, 16383, 16384, 2**32, 2**62]
    expected = [uvarint(number) for number in numbers]
    assert expected[4:6] == [b"\x7f", b"\x80\x01"]
    assert uvarints(np.array(numbers)).to_pylist() == expected
    assert varints(np.array(numbers)).to_pylist() == [uvarint(2 * number) for number in numbers]
    assert concat_columns(b"<", column(b"a", b""), b">").to_pylist() == [b"<a>", b"<>"]


def test_ascending_tree_leans_by_its_rule() -> None:
    assert [1 << left_height(leaves) for leaves in range(2, 14)] == [1, 1, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8]
