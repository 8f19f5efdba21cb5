"""ICS-23 proofs in columns: the same verdicts as one by one, where a right root alone would not tell."""

from __future__ import annotations

import random
from hashlib import sha256

import pyarrow as pa
import pytest

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.ics23 import many
from causeway.proofs.ics23.batch import message_of
from causeway.proofs.ics23.encoded import encoded_root
from causeway.proofs.ics23.errors import SpecMismatch
from causeway.proofs.ics23.existence import calculate, existence_of
from causeway.proofs.ics23.many import FEW, hold_in_columns, verify_many
from causeway.proofs.ics23.proof_specs import IAVL_SPEC, PROOF_SPECS, SMT_SPEC, TENDERMINT_SPEC, rules_of
from causeway.proofs.ics23.verify import verify_membership
from causeway.proofs.wire.ics23_pb2 import (
    CommitmentProof,
    ExistenceProof,
    HashOp,
    InnerOp,
    LeafOp,
    LengthOp,
    ProofSpec,
)
from tests.property.ics23_trees import BUILDERS, SPEC_NAMES

HASH = sha256(b"").digest()
NUMBERS = b"\x04\x06\x28"
LEFT_IAVL, RIGHT_IAVL = (b"\x20", b"\x20" + HASH), (b"\x20" + HASH + b"\x20", b"")


def held(spec: ProofSpec, root: bytes, proofs: list[bytes]) -> list[bool]:
    """Return which proofs of b"v" under b"k" hold in columns."""
    columns = ([b"k"] * len(proofs), [b"v"] * len(proofs), proofs)
    flags: list[bool] = hold_in_columns(
        rules_of(spec), root, *(pa.array(each, pa.large_binary()) for each in columns)
    ).tolist()
    return flags


@pytest.mark.parametrize(
    ("spec", "leaf_prefix", "steps", "holds"),
    [
        (IAVL_SPEC, b"\x00\x02\x28", [(NUMBERS + RIGHT_IAVL[0], RIGHT_IAVL[1])], True),
        (IAVL_SPEC, b"\x00\x02\xa8\x80\x01", [(NUMBERS + LEFT_IAVL[0], LEFT_IAVL[1])] * 2, True),
        (IAVL_SPEC, b"\x00\x02\x28", [(b"\x80\x02" + NUMBERS[1:] + LEFT_IAVL[0], LEFT_IAVL[1])], True),
        (IAVL_SPEC, b"\x00\x02\x28", [(NUMBERS + LEFT_IAVL[0], LEFT_IAVL[1])] * 3, False),
        (IAVL_SPEC, b"\x00\x02\x29", [], False),
        (IAVL_SPEC, b"\x00\x02\x28\x02", [], False),
        (IAVL_SPEC, b"\x00\x04\x28", [], False),
        (IAVL_SPEC, b"\x02\x02\x28", [], False),
        (IAVL_SPEC, b"\x00\x02\x80", [], False),
        (IAVL_SPEC, b"\x00\x02", [], False),
        (IAVL_SPEC, b"\x00\x02\x28", [(b"\x04\x07\x28" + RIGHT_IAVL[0], RIGHT_IAVL[1])], False),
        (IAVL_SPEC, b"\x00\x02\x28", [(b"\x04\x06\x29" + LEFT_IAVL[0], LEFT_IAVL[1])], False),
        (IAVL_SPEC, b"\x00\x02\x28", [(NUMBERS + b"\x02" + LEFT_IAVL[0], LEFT_IAVL[1])], False),
        (IAVL_SPEC, b"\x00\x02\x28", [(NUMBERS + b"\x02" + RIGHT_IAVL[0], RIGHT_IAVL[1])], False),
        (IAVL_SPEC, b"\x00\x02\x28", [(b"\x04\x06\xa8" + LEFT_IAVL[0], LEFT_IAVL[1])], False),
        (IAVL_SPEC, b"\x00\x02\x28", [(b"\x04\x86\x28" + RIGHT_IAVL[0], RIGHT_IAVL[1])], False),
        (TENDERMINT_SPEC, b"\x00", [(b"\x01", HASH), (b"\x01" + HASH, b"")], True),
        (TENDERMINT_SPEC, b"\x00\x07", [(b"\x01", HASH + HASH), (b"\x01\x02", b"")], True),
        (TENDERMINT_SPEC, b"\x01", [], False),
        (TENDERMINT_SPEC, b"\x00", [(b"\x02", HASH)], False),
        (TENDERMINT_SPEC, b"\x00", [(b"\x01" + HASH, HASH)], False),
        (TENDERMINT_SPEC, b"\x00", [(b"\x01", HASH + b"\x01")], False),
    ],
)
def test_columns_and_single_proofs_agree_where_the_root_alone_would_not_tell(
    spec: ProofSpec, leaf_prefix: bytes, steps: list[tuple[bytes, bytes]], holds: bool
) -> None:
    leaf = LeafOp(hash=HashOp.SHA256, prehash_value=HashOp.SHA256, length=LengthOp.VAR_PROTO, prefix=leaf_prefix)
    path = [InnerOp(hash=HashOp.SHA256, prefix=prefix, suffix=suffix) for prefix, suffix in steps]
    proof = CommitmentProof(exist=ExistenceProof(key=b"k", value=b"v", leaf=leaf, path=path))
    root, encoded = calculate(existence_of(proof.exist)), proof.SerializeToString()
    alone = None
    try:
        verify_membership(spec, root, message_of(encoded), b"k", b"v")
    except SpecMismatch as error:
        alone = str(error)
    assert (alone is None) == holds
    assert held(spec, root, [encoded] * 2) == [holds] * 2
    assert holds or encoded_root(rules_of(spec), encoded, b"k", b"v") is None
    refused = verify_many(spec, root, [b"k"] * 2, [b"v"] * 2, [encoded] * 2)
    assert [str(refused[row]) for row in sorted(refused)] == ([] if alone is None else [alone] * 2)


@pytest.mark.parametrize("kind", sorted(BUILDERS))
@pytest.mark.parametrize("length", [1, 31, 32, 127, 128, 16_300, 16_384])
def test_proofs_of_the_stores_are_verified_off_their_encoding(kind: str, length: int) -> None:
    stored = {b"%03d" % number * length: b"%03d" % number * length for number in range(5)}
    tree, rules = BUILDERS[kind](stored), rules_of(PROOF_SPECS[SPEC_NAMES[kind]])
    for key, value in stored.items():
        assert encoded_root(rules, tree.existence(key).SerializeToString(), key, value) == tree.root


def test_a_length_with_padding_is_read_in_columns_too() -> None:
    proof = CommitmentProof(exist=ExistenceProof(key=b"k", value=b"v", leaf=TENDERMINT_SPEC.leaf_spec))
    root, inner = calculate(existence_of(proof.exist)), proof.exist.SerializeToString()
    padded = inner.replace(b"\x0a\x01k", b"\x0a\x81\x00k")
    encoded = b"\x0a" + bytes([len(padded)]) + padded
    assert CommitmentProof.FromString(encoded) == proof
    assert verify_many(TENDERMINT_SPEC, root, [b"k"], [b"v"], [encoded]) == {}
    assert held(TENDERMINT_SPEC, root, [proof.SerializeToString(), encoded]) == [True, False]


def test_paths_are_no_longer_than_the_spec_allows() -> None:
    step = InnerOp(hash=HashOp.SHA256, prefix=b"\x01", suffix=HASH)
    for spec, longest in ((TENDERMINT_SPEC, 128), (SMT_SPEC, 256)):
        for depth in (longest, longest + 1):
            proof = CommitmentProof(
                exist=ExistenceProof(key=b"k", value=b"v", leaf=spec.leaf_spec, path=[step] * depth)
            )
            root = calculate(existence_of(proof.exist))
            encoded = proof.SerializeToString()
            if depth == longest:
                verify_membership(spec, root, encoded, b"k", b"v")
                assert verify_many(spec, root, [b"k"], [b"v"], [encoded]) == {}
                assert held(spec, root, [encoded]) == [True]
            else:
                assert held(spec, root, [encoded]) == [False]
                with pytest.raises(SpecMismatch, match=f"^innerOps depth too long: {depth}$"):
                    verify_membership(spec, root, encoded, b"k", b"v")
                assert list(verify_many(spec, root, [b"k"], [b"v"], [encoded])) == [0]


def test_a_spec_that_allows_no_path_at_all_refuses_the_empty_one_too() -> None:
    spec = ProofSpec.FromString(TENDERMINT_SPEC.SerializeToString())
    spec.max_depth = -1
    proof = CommitmentProof(exist=ExistenceProof(key=b"k", value=b"v", leaf=spec.leaf_spec))
    root, encoded = calculate(existence_of(proof.exist)), proof.SerializeToString()
    assert held(TENDERMINT_SPEC, root, [encoded]) == [True] and held(spec, root, [encoded]) == [False]
    with pytest.raises(SpecMismatch, match=r"^innerOps depth too long: 0$"):
        verify_membership(spec, root, encoded, b"k", b"v")


@pytest.mark.parametrize("kind", sorted(BUILDERS))
def test_many_rows_get_the_errors_of_each_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.proofs.ics23.many._worth_columns", lambda count: count > FEW)
    draw = random.Random(kind)
    stored = {b"key %d" % number: draw.randbytes(draw.choice([1, 40, 200])) for number in range(60)}
    tree, spec = BUILDERS[kind](stored), PROOF_SPECS[SPEC_NAMES[kind]]
    rows = [(key, value, tree.existence(key)) for key, value in stored.items()]
    claims = [(key, value, message.SerializeToString()) for key, value, message in rows]
    for key, value, message in rows:
        path = message.exist.path
        chosen, other = draw.randrange(len(path)), draw.choice(draw.choice(rows)[2].exist.path)
        # Another step, one more, one less, and all that follow taken from another proof.
        for changed in (
            [*path[:chosen], other, *path[chosen + 1 :]],
            [*path[:chosen], other, *path[chosen:]],
            [*path[:chosen], *path[chosen + 1 :]],
            [*path[:chosen], *draw.choice(rows)[2].exist.path[chosen:]],
        ):
            proof = ExistenceProof(key=key, value=value, leaf=message.exist.leaf, path=changed)
            claims.append((key, value, CommitmentProof(exist=proof).SerializeToString()))
    keys, values, proofs = (list(column) for column in zip(*claims, strict=True))
    assert len(claims) > FEW
    refused = verify_many(spec, tree.root, keys, values, proofs)
    columns = (pa.array(each, pa.large_binary()) for each in (keys, values, proofs))
    holding = hold_in_columns(rules_of(spec), tree.root, *columns).tolist()
    assert holding == [row not in refused for row in range(len(claims))]
    for row, (key, value, encoded) in enumerate(claims):
        alone: ProofError | None = None
        try:
            verify_membership(spec, tree.root, message_of(encoded), key, value)
        except ProofError as error:
            alone = error
        assert (type(refused.get(row)), str(refused.get(row))) == (type(alone), str(alone))


@pytest.mark.parametrize("compiled", [True, False])
def test_loops_are_loaded_when_they_are_worth_it(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    for name, value in (
        ("is_prepared", lambda: compiled),
        ("ENOUGH" if compiled else "ENOUGH_TO_COMPILE", 200),
        ("ENOUGH_TO_COMPILE" if compiled else "ENOUGH", -1),
        ("_spent", 0),
        ("_LOOPS", "not.loaded"),
        ("prepare", lambda: loaded.append(1)),
    ):
        monkeypatch.setattr(many, name, value)
    claims = ([b"k"] * 120, [b"v"] * 120, [b""] * 120)
    for rows, so_far in ((FEW, 0), (120, 0), (FEW, 0), (120, 1)):
        assert len(verify_many(TENDERMINT_SPEC, HASH, *(column[:rows] for column in claims))) == rows
        assert len(loaded) == so_far


def test_columns_of_different_length_are_the_callers_mistake() -> None:
    with pytest.raises(InvalidInput, match="equally many"):
        verify_many(TENDERMINT_SPEC, HASH, [b"k"], [b"v"], [])
