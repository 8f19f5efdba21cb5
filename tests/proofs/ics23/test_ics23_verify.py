"""ICS-23 verification over random trees: true claims are accepted, all others refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from causeway_proofs.errors import NotProven, ProofError
from causeway_proofs.ics23.batch import batch_verify_membership, batch_verify_non_membership, decode_proof, find_remarks
from causeway_proofs.ics23.proof_specs import IAVL_SPEC, PROOF_SPECS, TENDERMINT_SPEC
from causeway_proofs.ics23.verify import (
    explain,
    find_chain_remarks,
    verify_chained_membership,
    verify_chained_non_membership,
    verify_membership,
    verify_non_membership,
)
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway_proofs.wire.ics23_pb2 import CommitmentProof, ProofSpec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.ics23.batches import combine_proofs, compress, decompress
from tests.support.properties.ics23_trees import BUILDERS, SPEC_NAMES, Tree, build_iavl, build_simple
from tests.tiers import sized

KEYS = st.binary(min_size=1, max_size=6)
STORES = st.dictionaries(KEYS, st.binary(min_size=1, max_size=50), min_size=1, max_size=14)
KINDS = sorted(BUILDERS)
CHEAP = settings(max_examples=sized(27, 300), deadline=None, derandomize=True)

kinds = pytest.mark.parametrize("kind", KINDS)


def grown(kind: str, stored: dict[bytes, bytes]) -> tuple[ProofSpec, Tree]:
    return PROOF_SPECS[SPEC_NAMES[kind]], BUILDERS[kind](stored)


@kinds
@CHEAP
@given(stored=STORES, absent=st.lists(KEYS, max_size=4))
def test_all_entries_and_all_absences_are_proved(kind: str, stored: dict[bytes, bytes], absent: list[bytes]) -> None:
    spec, tree = grown(kind, stored)
    for key, value in stored.items():
        proof = tree.existence(key).SerializeToString()
        verify_membership(spec, tree.root, proof, key, value)
        assert explain(spec, tree.root, proof, key, value)[-1].result == tree.root
        with pytest.raises(NotProven):
            verify_non_membership(spec, tree.root, proof, key)
        # The neighbours of a stored key enclose it only if they differ from it.
        with pytest.raises(NotProven):
            verify_non_membership(spec, tree.root, tree.non_existence(key), key)
    for key in absent:
        if key not in stored:
            proof = tree.non_existence(key).SerializeToString()
            verify_non_membership(spec, tree.root, proof, key)
            assert explain(spec, tree.root, proof, key, None)[-1].result == tree.root


@kinds
@CHEAP
@given(stored=STORES, data=st.data())
def test_absence_between_non_neighbors_is_refused(kind: str, stored: dict[bytes, bytes], data: st.DataObject) -> None:
    spec, tree = grown(kind, stored)
    key = data.draw(KEYS)
    sides: list[Any] = [None, *range(len(tree.proofs))]
    left, right = data.draw(st.sampled_from(sides)), data.draw(st.sampled_from(sides))
    proof = tree.non_existence(key)
    honest = proof.SerializeToString() if key not in stored else None
    for side, place in (("left", left), ("right", right)):
        proof.nonexist.ClearField(side)
        if place is not None:
            getattr(proof.nonexist, side).CopyFrom(tree.proofs[place])
    if proof.SerializeToString() == honest:
        verify_non_membership(spec, tree.root, proof, key)
    else:
        with pytest.raises(NotProven):
            verify_non_membership(spec, tree.root, proof, key)


@kinds
@CHEAP
@given(stored=STORES, data=st.data())
def test_altered_proof_is_refused_or_remarked_on(kind: str, stored: dict[bytes, bytes], data: st.DataObject) -> None:
    spec, tree = grown(kind, stored)
    key = data.draw(KEYS)
    message = tree.existence(key) if key in stored else tree.non_existence(key)
    proof = message.SerializeToString()

    def claim(proof: bytes) -> None:
        if key in stored:
            verify_membership(spec, tree.root, proof, key, stored[key])
        else:
            verify_non_membership(spec, tree.root, proof, key)

    claim(proof)
    for changed in (*flips(proof, data), proof[: data.draw(st.integers(0, len(proof) - 1))], proof + b"\x00"):
        try:
            claim(changed)
        except ProofError:
            continue
        assert find_remarks(spec, tree.root, changed, {key: stored.get(key)})
    neighbor = message.nonexist.left if message.nonexist.HasField("left") else message.nonexist.right
    path = message.exist.path if key in stored else neighbor.path
    if len(path) > 1 and path[0] != path[1]:
        path[0].CopyFrom(path[1])
        with pytest.raises(ProofError):
            claim(message.SerializeToString())


def flips(proof: bytes, data: st.DataObject) -> list[bytes]:
    """Return ``proof`` with one bit flipped, at a few positions."""
    flipped = []
    for bit in data.draw(st.lists(st.integers(0, 8 * len(proof) - 1), min_size=4, max_size=4)):
        changed = bytearray(proof)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(changed))
    return flipped


@kinds
@CHEAP
@given(stored=STORES, absent=st.sets(KEYS, max_size=4), data=st.data())
def test_batches_prove_the_claims_of_their_entries(
    kind: str, stored: dict[bytes, bytes], absent: set[bytes], data: st.DataObject
) -> None:
    spec, tree = grown(kind, stored)
    missing = sorted(absent - stored.keys())
    singles = [tree.existence(key) for key in stored] + [tree.non_existence(key) for key in missing]
    combined = combine_proofs(singles)
    plain = decompress(combined)
    assert compress(plain) == combined and combine_proofs([combined]) == combined
    for form in (combined, plain):
        batch_verify_membership(spec, tree.root, form.SerializeToString(), stored)
        batch_verify_non_membership(spec, tree.root, form.SerializeToString(), missing)
        # A batch whose non-existence proofs name no key proves every key between the neighbours they show.
        unnamed = decode_proof(form.SerializeToString())
        for entry in (unnamed.compressed if form is combined else unnamed.batch).entries:
            if entry.HasField("nonexist"):
                entry.nonexist.ClearField("key")
        batch_verify_non_membership(spec, tree.root, unnamed, missing)
        for key in stored:
            with pytest.raises(NotProven):
                batch_verify_non_membership(spec, tree.root, unnamed, [key])
    for changed in flips(combined.SerializeToString(), data):
        claims = {**stored, **dict.fromkeys(missing)}
        assert batch_error(spec, tree.root, changed, stored, missing) or find_remarks(spec, tree.root, changed, claims)


def batch_error(
    spec: ProofSpec, root: bytes, proof: bytes, stored: dict[bytes, bytes], missing: list[bytes]
) -> ProofError | None:
    try:
        batch_verify_membership(spec, root, proof, stored)
        batch_verify_non_membership(spec, root, proof, missing)
    except ProofError as error:
        return error
    return None


@kinds
@CHEAP
@given(stored=STORES, others=STORES, data=st.data())
def test_encodings_have_the_verdicts_of_their_messages(
    kind: str, stored: dict[bytes, bytes], others: dict[bytes, bytes], data: st.DataObject
) -> None:
    spec, tree = grown(kind, stored)
    if data.draw(st.booleans()):
        spec = ProofSpec.FromString(spec.SerializeToString())
        spec.min_depth, spec.max_depth = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 4))
    _, other = grown(data.draw(st.sampled_from(KINDS)), others)
    rows = [(key, value, tree.existence(key).SerializeToString()) for key, value in stored.items()]
    rows += [(key, value, other.existence(key).SerializeToString()) for key, value in others.items()]
    rows += [(key, value, changed) for key, value, proof in rows for changed in flips(proof, data)]
    rows += [(key + b".", value, proof) for key, value, proof in rows[:3]]
    rows += [(key, value + b".", proof) for key, value, proof in rows[:3]]
    rows += [(key, value, proof[:-7]) for key, value, proof in rows[:3]]
    rows += [(key, value, b"") for key, value, _ in rows[:2]]
    for key, value, proof in rows:
        alone: ProofError | None = None
        try:
            # A message is verified step by step.
            verify_membership(spec, tree.root, decode_proof(proof), key, value)
        except ProofError as error:
            alone = error
        if alone is None:
            verify_membership(spec, tree.root, proof, key, value)
        else:
            with pytest.raises(type(alone), match=f"^{re.escape(str(alone))}$"):
                verify_membership(spec, tree.root, proof, key, value)


@CHEAP
@given(stored=STORES, stores=STORES, data=st.data())
def test_chains_of_stores(stored: dict[bytes, bytes], stores: dict[bytes, bytes], data: st.DataObject) -> None:
    inner = build_iavl(stored)
    outer = build_simple({**stores, b"ibc": inner.root})
    specs = [IAVL_SPEC, TENDERMINT_SPEC]
    key = data.draw(st.sampled_from(sorted(stored)) | KEYS)
    innermost = inner.existence(key) if key in stored else inner.non_existence(key)
    proof = MerkleProof(proofs=[innermost, outer.existence(b"ibc")]).SerializeToString()

    def claim(proof: bytes, root: bytes = outer.root, store: bytes = b"ibc") -> None:
        if key in stored:
            verify_chained_membership(specs, root, proof, [store, key], stored[key])
        else:
            verify_chained_non_membership(specs, root, proof, [store, key])

    claim(proof)
    for changed in flips(proof, data):
        try:
            claim(changed)
        except ProofError:
            continue
        assert find_chain_remarks(specs, changed, [b"ibc", key])
    with pytest.raises(ProofError):
        claim(proof, root=inner.root)
    with pytest.raises(ProofError):
        claim(proof, store=b"ibd")


def test_empty_batch_proves_and_refuses_no_claim() -> None:
    empty = combine_proofs([])
    batch_verify_membership(IAVL_SPEC, bytes(32), empty, {})
    with pytest.raises(NotProven):
        verify_membership(IAVL_SPEC, bytes(32), empty, b"key", b"value")
    with pytest.raises(ProofError):
        verify_membership(IAVL_SPEC, bytes(32), CommitmentProof(), b"key", b"value")
