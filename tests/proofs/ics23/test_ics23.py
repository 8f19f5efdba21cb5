"""ICS-23 rules one by one with the texts of the reference; hazard 33 of IBC; hostile batches."""

from __future__ import annotations

from hashlib import sha256

import pytest
from causeway_proofs.errors import MalformedProof, NotProven, OverLimit, RootMismatch
from causeway_proofs.ics23.batch import batch_verify_membership, batch_verify_non_membership, find_remarks
from causeway_proofs.ics23.errors import (
    EmptyOperand,
    KeyMismatch,
    KeyOutOfRange,
    NoProofForKey,
    NotNeighbors,
    SpecMismatch,
    UnsupportedOperation,
    ValueMismatch,
)
from causeway_proofs.ics23.existence import (
    Absence,
    calculate_existence,
    get_padding,
    is_left_neighbor,
    is_left_step,
    left_branches_are_empty,
    order_from_padding,
    read_existence,
    right_branches_are_empty,
    verify_existence,
    verify_non_existence,
)
from causeway_proofs.ics23.proof_specs import (
    IAVL_SPEC,
    SMT_SPEC,
    TENDERMINT_SPEC,
    apply_leaf,
    check_inner_against_spec,
    do_hash,
    do_length,
    spec_rules,
    validate_iavl_ops,
    validate_tendermint_ops,
)
from causeway_proofs.ics23.verify import (
    find_chain_remarks,
    verify_chained_non_membership,
    verify_membership,
    verify_non_membership,
)
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway_proofs.wire.ics23_pb2 import (
    BatchEntry,
    BatchProof,
    CommitmentProof,
    ExistenceProof,
    HashOp,
    InnerOp,
    InnerSpec,
    LeafOp,
    LengthOp,
    NonExistenceProof,
    ProofSpec,
)

from tests.oracles.ics23.batches import combine_proofs, compress, decompress
from tests.support.properties.ics23_trees import build_simple

IAVL, TENDERMINT, SMT = spec_rules(IAVL_SPEC), spec_rules(TENDERMINT_SPEC), spec_rules(SMT_SPEC)
HASH = sha256(b"").digest()
QUEUE = b"ibc:B:send"


def packet(data: int) -> bytes:
    return b"\x01" + (4).to_bytes(4, "big") + b"coin" + (1).to_bytes(4, "big") + bytes([data])


QUEUE_STORE = {
    QUEUE + b"\x00": bytes(8),
    QUEUE + b"\x7f": (3).to_bytes(8, "big"),
    **{QUEUE + index.to_bytes(8, "big"): packet(index) for index in range(3)},
}
"""The worked example of the IBC reference, section 2.6."""

QUEUE_ROOT = bytes.fromhex("99f08368f142b03bae4c939900a7a46807bc51bfeef50c811cc3ca1747e96c5f")


def test_worked_example_of_the_reference() -> None:
    tree = build_simple(QUEUE_STORE)
    assert tree.root == QUEUE_ROOT
    for key, value in QUEUE_STORE.items():
        verify_membership(TENDERMINT_SPEC, QUEUE_ROOT, tree.existence(key).SerializeToString(), key, value)
    fourth = QUEUE + (3).to_bytes(8, "big")
    verify_non_membership(TENDERMINT_SPEC, QUEUE_ROOT, tree.non_existence(fourth).SerializeToString(), fourth)


def test_hashes_outside_of_the_tables() -> None:
    assert do_hash(HashOp.KECCAK256, b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    for unknown in (HashOp.NO_HASH, 9, 1000, -1):
        with pytest.raises(UnsupportedOperation, match=f"^unsupported hashop: {unknown}$"):
            do_hash(unknown, b"")  # type: ignore[arg-type]


def test_lengths() -> None:
    data = bytes(300)
    assert do_length(LengthOp.NO_PREFIX, data) == data
    assert do_length(LengthOp.VAR_PROTO, data) == b"\xac\x02" + data
    assert do_length(LengthOp.FIXED32_BIG, data) == b"\x00\x00\x01\x2c" + data
    assert do_length(LengthOp.FIXED32_LITTLE, data) == b"\x2c\x01\x00\x00" + data
    assert do_length(LengthOp.FIXED64_BIG, data) == b"\x00\x00\x00\x00\x00\x00\x01\x2c" + data
    assert do_length(LengthOp.FIXED64_LITTLE, data) == b"\x2c\x01\x00\x00\x00\x00\x00\x00" + data
    assert do_length(LengthOp.REQUIRE_32_BYTES, data[:32]) == data[:32]
    assert do_length(LengthOp.REQUIRE_64_BYTES, data[:64]) == data[:64]
    for required, length_op in ((32, LengthOp.REQUIRE_32_BYTES), (64, LengthOp.REQUIRE_64_BYTES)):
        with pytest.raises(SpecMismatch, match=f"^data was 300 bytes, not {required}$"):
            do_length(length_op, data)
    for unknown in (LengthOp.VAR_RLP, 9):
        with pytest.raises(UnsupportedOperation, match=f"^unsupported lengthop: {unknown}$"):
            do_length(unknown, data)  # type: ignore[arg-type]


def test_leaf_error_names_key_or_value() -> None:
    leaf = LeafOp(hash=HashOp.SHA256, length=LengthOp.REQUIRE_32_BYTES)
    with pytest.raises(SpecMismatch, match=r"^prehash key, data was 3 bytes, not 32$"):
        apply_leaf(leaf, b"key", bytes(32))
    with pytest.raises(SpecMismatch, match=r"^prehash value, data was 5 bytes, not 32$"):
        apply_leaf(leaf, bytes(32), b"value")


@pytest.mark.parametrize(
    ("prefix", "layer", "text"),
    [
        (b"", 1, "failed to read IAVL height varint: EOF"),
        (b"\x80", 1, "failed to read IAVL height varint: unexpected EOF"),
        (b"\xff" * 9 + b"\x02", 1, "failed to read IAVL height varint: binary: varint overflows a 64-bit integer"),
        (b"\xff" * 11, 1, "failed to read IAVL height varint: binary: varint overflows a 64-bit integer"),
        (b"\x01", 1, "IAVL height (-1) must be non-negative and greater than or equal to the layer number (1)"),
        (b"\x04", 3, "IAVL height (2) must be non-negative and greater than or equal to the layer number (3)"),
        (b"\x0a", 1, "failed to read IAVL size varint: EOF"),
        (b"\x0a\x01", 1, "IAVL size must be non-negative"),
        (b"\x0a\x14", 1, "failed to read IAVL version varint: EOF"),
        (b"\x0a\x14\x01", 1, "IAVL version must be non-negative"),
        (b"\x0a\x14\x28\x20", 0, "expected remaining prefix length to be 0, got: 1"),
        (b"\x0a\x14\x28", 1, "remainder of prefix must be of length 1 or 34, got: 0"),
        (b"\x0a\x14\x28\x20\x01", 1, "remainder of prefix must be of length 1 or 34, got: 2"),
        (b"\x02\x02\x28", 0, "expected leaf node height to be 0, got: 1"),
        (b"\x00\x04\x28", 0, "expected leaf node size to be 1, got: 2"),
    ],
)
def test_iavl_prefixes(prefix: bytes, layer: int, text: str) -> None:
    with pytest.raises(SpecMismatch) as refused:
        validate_iavl_ops(HashOp.SHA256, prefix, layer)
    assert str(refused.value) == text


def test_iavl_inner_nodes_are_hashed_with_sha256() -> None:
    validate_iavl_ops(HashOp.SHA256, b"\x0a\x14\x28\x20", 1)
    validate_iavl_ops(HashOp.SHA256, b"\x00\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0)
    with pytest.raises(SpecMismatch, match=r"^IAVL hash op must be SHA256$"):
        validate_iavl_ops(HashOp.NO_HASH, b"\x0a\x14\x28\x20", 1)


def test_tendermint_prefixes() -> None:
    validate_tendermint_ops(b"\x01", HASH)
    validate_tendermint_ops(b"\x01\x02", b"")
    for prefix, suffix, text in (
        (b"", b"", "inner op prefix must not be empty"),
        (b"\x00", HASH, "expected inner op prefix: [1], got: [0]"),
        (b"\x01\x02", HASH, "expected inner op prefix: [1], got: [1 2]"),
        (b"\x02\x01", b"", "expected inner op prefix to begin with: [1], got: [2]"),
    ):
        with pytest.raises(SpecMismatch) as refused:
            validate_tendermint_ops(prefix, suffix)
        assert str(refused.value) == text


def change_spec(spec: ProofSpec, **inner: int) -> ProofSpec:
    """Return an IAVL-like spec that is not IAVL's, so that only the general rules apply."""
    copy = ProofSpec.FromString(spec.SerializeToString())
    copy.leaf_spec.prehash_key = HashOp.BITCOIN
    for field, value in inner.items():
        setattr(copy.inner_spec, field, value)
    return copy


@pytest.mark.parametrize(
    ("step", "spec", "text"),
    [
        (InnerOp(hash=HashOp.BITCOIN), change_spec(IAVL_SPEC), "unexpected HashOp: 5"),
        (
            InnerOp(hash=HashOp.SHA256, prefix=b"\x00\x0a\x14\x28"),
            change_spec(IAVL_SPEC),
            "inner Prefix starts with 00",
        ),
        (InnerOp(hash=HashOp.SHA256, prefix=b"\x01"), change_spec(IAVL_SPEC), "innerOp prefix too short (1)"),
        (InnerOp(hash=HashOp.SHA256, prefix=b"\x01" * 46), change_spec(IAVL_SPEC), "innerOp prefix too long (46)"),
        (
            InnerOp(hash=HashOp.SHA256, prefix=b"\x01" * 4),
            change_spec(IAVL_SPEC, child_size=0),
            "spec.InnerSpec.ChildSize must be >= 1",
        ),
        (
            InnerOp(hash=HashOp.SHA256, prefix=b"\x01" * 4),
            change_spec(IAVL_SPEC, max_prefix_length=37),
            "spec.InnerSpec.MaxPrefixLength must be < spec.InnerSpec.MinPrefixLength + spec.InnerSpec.ChildSize",
        ),
        (
            InnerOp(hash=HashOp.SHA256, prefix=b"\x01" * 4, suffix=b"\x01"),
            change_spec(IAVL_SPEC),
            "InnerOp suffix malformed",
        ),
        (InnerOp(), ProofSpec(leaf_spec=IAVL_SPEC.leaf_spec), "spec.InnerSpec must be non-nil"),
        (InnerOp(), ProofSpec(inner_spec=IAVL_SPEC.inner_spec), "spec.LeafSpec must be non-nil"),
    ],
)
def test_inner_steps_against_specs(step: InnerOp, spec: ProofSpec, text: str) -> None:
    with pytest.raises(SpecMismatch) as refused:
        check_inner_against_spec(step, spec_rules(spec), 1)
    assert str(refused.value) == text


def test_existence_proof_names_the_mismatch() -> None:
    tree = build_simple(QUEUE_STORE)
    key = QUEUE + b"\x7f"
    proof, value = read_existence(tree.existence(key).exist), QUEUE_STORE[key]
    verify_existence(proof, TENDERMINT, QUEUE_ROOT, key, value)
    with pytest.raises(KeyMismatch, match=r"^provided key doesn't match proof$"):
        verify_existence(proof, TENDERMINT, QUEUE_ROOT, b"another", value)
    with pytest.raises(ValueMismatch, match=r"^provided value doesn't match proof$"):
        verify_existence(proof, TENDERMINT, QUEUE_ROOT, key, b"another")
    with pytest.raises(RootMismatch, match=r"^calculated root doesn't match provided root$"):
        verify_existence(proof, TENDERMINT, bytes(32), key, value)
    empty = proof._replace(value=b"")
    with pytest.raises(EmptyOperand, match=r"^error calculating root, leaf, leaf op needs value$"):
        verify_existence(empty, TENDERMINT, QUEUE_ROOT, key, b"")
    with pytest.raises(EmptyOperand, match=r"^error calculating root, leaf, leaf op needs key$"):
        verify_existence(proof._replace(key=b""), TENDERMINT, QUEUE_ROOT, b"", value)


def test_result_longer_than_a_child_is_refused() -> None:
    spec = ProofSpec.FromString(TENDERMINT_SPEC.SerializeToString())
    spec.inner_spec.hash = HashOp.SHA512
    step = InnerOp(hash=HashOp.SHA512, prefix=b"\x01", suffix=HASH)
    proof = read_existence(ExistenceProof(key=b"k", value=b"v", leaf=spec.leaf_spec, path=[step]))
    assert len(calculate_existence(proof)) == 64
    with pytest.raises(SpecMismatch, match=r"^error calculating root, inner, a hash of 64 bytes is no child"):
        verify_existence(proof, spec_rules(spec), bytes(64), b"k", b"v")


def test_absence_proof_names_the_failed_condition() -> None:
    tree = build_simple({bytes([key]): b"value" for key in b"bdfhj"})
    first, second, third, *_, last = (read_existence(proof) for proof in tree.proofs)
    for absence, key, error, text in (
        (Absence(b"c", None, None), b"c", SpecMismatch, "both left and right proofs missing"),
        (Absence(b"e", first, second), b"e", KeyOutOfRange, "key is not left of right proof"),
        (Absence(b"d", first, second), b"d", KeyOutOfRange, "key is not left of right proof"),
        (Absence(b"a", first, second), b"a", KeyOutOfRange, "key is not right of left proof"),
        (Absence(b"b", first, second), b"b", KeyOutOfRange, "key is not right of left proof"),
        (Absence(b"c", None, second), b"c", NotNeighbors, "left proof missing, right proof must be left-most"),
        (Absence(b"c", first, None), b"c", NotNeighbors, "right proof missing, left proof must be right-most"),
        (Absence(b"c", first, third), b"c", NotNeighbors, "right proof missing, left proof must be right-most"),
        (
            Absence(b"k", last._replace(value=b"."), None),
            b"k",
            RootMismatch,
            "left proof, calculated root doesn't match provided root",
        ),
        (
            Absence(b"a", None, first._replace(leaf=None)),
            b"a",
            SpecMismatch,
            "right proof, existence Proof needs defined LeafOp",
        ),
    ):
        with pytest.raises(error) as refused:
            verify_non_existence(absence, TENDERMINT, tree.root, key)
        assert str(refused.value) == text
    verify_non_existence(Absence(b"c", first, second), TENDERMINT, tree.root, b"c")
    verify_non_existence(Absence(b"", None, first), TENDERMINT, tree.root, b"a")


def test_wrong_key_in_a_proof_of_absence_is_only_remarked_on() -> None:
    tree = build_simple({b"b": b"value", b"f": b"value"})
    for proof in (tree.non_existence(b"c"), tree.non_existence(b"d")):
        verify_non_membership(TENDERMINT_SPEC, tree.root, proof, b"c")
    assert find_remarks(TENDERMINT_SPEC, tree.root, tree.non_existence(b"c"), {b"c": None}) == []
    other = ["the absence of key 63 names key 64"]
    assert find_remarks(TENDERMINT_SPEC, tree.root, tree.non_existence(b"d"), {b"c": None}) == other
    assert find_chain_remarks([TENDERMINT_SPEC], [tree.non_existence(b"d").SerializeToString()], [b"c"]) == other


def test_neighbors_without_a_path_or_with_equal_paths_are_refused() -> None:
    alone = build_simple({b"b": b"value"})
    only = read_existence(alone.proofs[0])
    assert not is_left_neighbor(TENDERMINT, only.path, only.path)
    with pytest.raises(NotProven):
        verify_non_existence(Absence(b"c", only, only), TENDERMINT, alone.root, b"c")
    verify_non_existence(Absence(b"c", only, None), TENDERMINT, alone.root, b"c")
    pair = read_existence(build_simple({b"b": b"value", b"d": b"value"}).proofs[0])
    assert not is_left_neighbor(TENDERMINT, pair.path, pair.path)
    assert not is_left_neighbor(TENDERMINT, pair.path, [*pair.path, *pair.path])


def test_branches_of_nodes_with_three_children() -> None:
    inner = InnerSpec(
        child_order=[0, 2, 1],
        child_size=20,
        min_prefix_length=1,
        max_prefix_length=4,
        hash=HashOp.SHA256,
        empty_child=bytes(20),
    )
    rules = spec_rules(ProofSpec(leaf_spec=TENDERMINT_SPEC.leaf_spec, inner_spec=inner))
    assert [tuple(get_padding(rules, branch)) for branch in range(3)] == [(1, 4, 40), (41, 44, 0), (21, 24, 20)]
    steps = [
        InnerOp(hash=HashOp.SHA256, prefix=bytes(padding.min_prefix), suffix=bytes(padding.suffix))
        for padding in (get_padding(rules, branch) for branch in range(3))
    ]
    assert [order_from_padding(rules, step) for step in steps] == [0, 1, 2]
    assert is_left_step(rules, steps[0], steps[1]) and not is_left_step(rules, steps[0], steps[2])
    assert order_from_padding(rules, InnerOp(prefix=bytes(20), suffix=bytes(20))) is None
    assert not left_branches_are_empty(rules, steps[0]) and not right_branches_are_empty(rules, steps[2])
    with pytest.raises(SpecMismatch, match=r"^invalid branch: 3$"):
        get_padding(rules, 3)
    inner.child_order[2] = 3
    with pytest.raises(SpecMismatch, match=r"^branch 1 not found in order \[0 2 3\]$"):
        get_padding(spec_rules(ProofSpec(inner_spec=inner)), 1)


def test_empty_branch_needs_an_empty_child_in_the_spec() -> None:
    step = InnerOp(hash=HashOp.SHA256, prefix=b"\x01", suffix=bytes(32))
    assert right_branches_are_empty(SMT, step) and not right_branches_are_empty(TENDERMINT, step)
    step = InnerOp(hash=HashOp.SHA256, prefix=b"\x01" + bytes(32))
    assert left_branches_are_empty(SMT, step) and not left_branches_are_empty(TENDERMINT, step)


def test_sibling_past_the_end_is_no_empty_branch() -> None:
    inner = InnerSpec(child_order=[2, 1, 0], child_size=20, min_prefix_length=1, max_prefix_length=4)
    rules = spec_rules(ProofSpec(leaf_spec=TENDERMINT_SPEC.leaf_spec, inner_spec=inner))
    step = InnerOp(prefix=bytes(21), suffix=bytes(20))
    assert order_from_padding(rules, step) == 1 and not right_branches_are_empty(rules, step)


def batch_of_two() -> tuple[bytes, CommitmentProof, dict[bytes, bytes]]:
    stored = {bytes([key]): b"value" for key in b"bdfhj"}
    tree = build_simple(stored)
    return tree.root, combine_proofs([tree.existence(b"b"), tree.existence(b"d")]), {b"b": b"value", b"d": b"value"}


def test_duplicate_and_unused_shared_steps_are_remarked_on() -> None:
    root, batch, items = batch_of_two()
    batch_verify_membership(TENDERMINT_SPEC, root, batch, items)
    unused = CommitmentProof.FromString(batch.SerializeToString())
    unused.compressed.lookup_inners.add(hash=HashOp.SHA256, prefix=b"\x01", suffix=HASH)
    batch_verify_membership(TENDERMINT_SPEC, root, unused, items)
    assert find_remarks(TENDERMINT_SPEC, root, batch, items) == []
    assert find_remarks(TENDERMINT_SPEC, root, unused, items) == ["steps of lookup_inners that no path uses: 1"]
    twice = CommitmentProof.FromString(batch.SerializeToString())
    twice.compressed.lookup_inners.append(twice.compressed.lookup_inners[0])
    twice.compressed.entries[0].exist.path[0] = len(twice.compressed.lookup_inners) - 1
    batch_verify_membership(TENDERMINT_SPEC, root, twice, items)
    assert find_remarks(TENDERMINT_SPEC, root, twice, items)[0] == "steps of lookup_inners that stand there twice: 1"
    for index in (-1, len(batch.compressed.lookup_inners), 2**31 - 1):
        outside = CommitmentProof.FromString(batch.SerializeToString())
        outside.compressed.entries[0].exist.path[0] = index
        with pytest.raises(MalformedProof, match=r"^path has an index outside"):
            batch_verify_membership(TENDERMINT_SPEC, root, outside, items)


def test_first_entry_of_a_key_counts_and_others_are_remarked_on() -> None:
    root, batch, items = batch_of_two()
    plain, asked = decompress(batch), {b"b": items[b"b"]}
    plain.batch.entries[1].exist.value += b"."
    verify_membership(TENDERMINT_SPEC, root, plain, b"b", items[b"b"])
    fault = "RootMismatch: calculated root doesn't match provided root"
    text = f"entries that nobody asks about and that do not hold: 1, the first number 1: {fault}"
    assert find_remarks(TENDERMINT_SPEC, root, plain, asked) == [text]
    plain.batch.entries[1].exist.key = b"b"
    verify_membership(TENDERMINT_SPEC, root, plain, b"b", items[b"b"])
    assert find_remarks(TENDERMINT_SPEC, root, plain, asked)[0] == "entries for a key that an earlier one is for: 1"
    first, second = plain.batch.entries
    turned = CommitmentProof(batch=BatchProof(entries=[second, first]))
    with pytest.raises(ValueMismatch):
        verify_membership(TENDERMINT_SPEC, root, turned, b"b", items[b"b"])


def test_absence_uses_the_first_entry_with_enclosing_neighbors() -> None:
    tree = build_simple({bytes([key]): b"value" for key in b"bdfhj"})
    wide = NonExistenceProof(left=tree.proofs[0], right=tree.proofs[4])  # of b and j, which are not neighbours
    gaps = [tree.non_existence(key).nonexist for key in (b"c", b"a", b"z", b"i")]
    for entries, error in (([*gaps, wide], None), ([wide, *gaps], NotNeighbors), ([*gaps[:3], wide], NotNeighbors)):
        batch = CommitmentProof(batch=BatchProof(entries=[BatchEntry(nonexist=entry) for entry in entries]))
        batch_verify_non_membership(TENDERMINT_SPEC, tree.root, batch, [b"a", b"", b"z", b"zz"])
        if error is None:
            batch_verify_non_membership(TENDERMINT_SPEC, tree.root, batch, [b"c", b"cc", b"i", b"c"])
        else:
            with pytest.raises(error):
                batch_verify_non_membership(TENDERMINT_SPEC, tree.root, batch, [b"c", b"i"])
        with pytest.raises(NoProofForKey, match=r"^the proof has no non-existence of key 62$"):
            batch_verify_non_membership(TENDERMINT_SPEC, tree.root, batch, [b"b"])


def test_hashing_per_message_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    root, batch, items = batch_of_two()
    monkeypatch.setattr("causeway_proofs.ics23.batch.MAX_HASHED_BYTES", 200)
    verify_membership(TENDERMINT_SPEC, root, batch, b"b", items[b"b"])
    with pytest.raises(OverLimit, match=r"^the steps that are verified have more than 200 bytes$"):
        batch_verify_membership(TENDERMINT_SPEC, root, batch, items)
    (line,) = find_remarks(TENDERMINT_SPEC, root, batch, {b"b": items[b"b"]})
    assert line.endswith("entries that nobody asks about are not verified from number 1 on")


def test_entry_without_a_proof_proves_nothing() -> None:
    root, batch, items = batch_of_two()
    plain = decompress(batch)
    plain.batch.entries[1].Clear()
    verify_membership(TENDERMINT_SPEC, root, plain, b"b", items[b"b"])
    assert find_remarks(TENDERMINT_SPEC, root, plain, {b"b": items[b"b"]}) == ["empty entries: 1"]
    with pytest.raises(MalformedProof, match=r"^batch proof has empty entry$"):
        compress(plain)


def test_absence_in_a_batch_is_between_neighbors() -> None:
    tree = build_simple({bytes([key]): b"value" for key in b"bdfhj"})
    for named in (b"c", b""):
        gap = NonExistenceProof(key=named, left=tree.proofs[0], right=tree.proofs[2])
        batch = CommitmentProof(batch=BatchProof(entries=[BatchEntry(nonexist=gap)]))
        with pytest.raises(NotNeighbors):
            batch_verify_non_membership(TENDERMINT_SPEC, tree.root, batch, [b"c"])


def test_absence_in_a_chain_of_one_store_is_under_the_root() -> None:
    tree = build_simple({b"b": b"value", b"f": b"value"})
    proof = MerkleProof(proofs=[tree.non_existence(b"c")])
    verify_chained_non_membership([TENDERMINT_SPEC], tree.root, proof, [b"c"])
    with pytest.raises(RootMismatch):
        verify_chained_non_membership([TENDERMINT_SPEC], HASH, proof, [b"c"])


def test_decompression_bomb_is_not_decompressed() -> None:
    bomb = CommitmentProof()
    bomb.compressed.lookup_inners.add(prefix=bytes(1 << 16))
    for _ in range(4):
        bomb.compressed.entries.add().exist.path.extend([0] * 64)
    with pytest.raises(OverLimit, match=r"^the steps of the batch have"):
        decompress(bomb)
    with pytest.raises(NoProofForKey):
        verify_membership(TENDERMINT_SPEC, HASH, bomb, b"key", b"value")


def test_messages_stay_short_for_any_proof() -> None:
    tree = build_simple({b"b": b"value", b"f": b"value"})
    strange = tree.non_existence(b"c")
    strange.nonexist.key = bytes(1 << 20)
    (line,) = find_remarks(TENDERMINT_SPEC, tree.root, strange, {b"c": None})
    assert line == f"the absence of key 63 names key {'00' * 64}... (1048576 bytes)"
    with pytest.raises(SpecMismatch, match=r"^expected inner op prefix: \[1\], got: \[(0 ){64}\.\.\. 1048576 bytes\]$"):
        validate_tendermint_ops(bytes(1 << 20), HASH)


def test_zero_depth_means_the_default_and_a_negative_one_refuses_all() -> None:
    spec = ProofSpec.FromString(TENDERMINT_SPEC.SerializeToString())
    spec.max_depth = 0
    assert spec_rules(spec).max_depth == 128 and spec_rules(spec).is_tendermint
    tree = build_simple({b"b": b"value"})
    proof = tree.existence(b"b").SerializeToString()
    verify_membership(spec, tree.root, proof, b"b", b"value")
    spec.max_depth = -5
    with pytest.raises(SpecMismatch, match=r"^innerOps depth too long: 0$"):
        verify_membership(spec, tree.root, proof, b"b", b"value")
