"""One verdict on ICS-23 proofs: ours, Go's and Rust's, for re-encoded and changed proofs."""

from __future__ import annotations

import re
from random import Random
from typing import Any, NamedTuple

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.batch import BatchClaims, decode_proof
from causeway_proofs.ics23.entries import sorted_entries
from causeway_proofs.ics23.proof_specs import PROOF_SPECS, spec_rules
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership
from causeway_proofs.wire.ics23_pb2 import BatchEntry, BatchProof, CommitmentProof

from benchmarks.proofs.native import Native, verdicts
from tests.oracles.ics23.batches import batch_proof, compress
from tests.oracles.ics23.iavl_store import IavlStore
from tests.oracles.ics23.smt import SmtStore
from tests.support.properties.ics23_trees import BUILDERS, SPEC_NAMES, Tree
from tests.tiers import sized
from tests.verifiers.conftest import Node
from tests.verifiers.reencoding import corrupt_bytes, reencoded
from tests.verifiers.test_ics23_stores import column

CLAIMS = sized(6_000, 100_000)
STORED = {b"%d" % (number * number): b"value %d" % number for number in range(1, 42)}


class Claim(NamedTuple):
    """A claim; an empty ``value`` claims absence of the key."""

    spec: str
    root: bytes
    key: bytes
    value: bytes
    proof: bytes


def own_verdict(claim: Claim) -> bool:
    spec = PROOF_SPECS[claim.spec]
    try:
        if claim.value:
            verify_membership(spec, claim.root, claim.proof, claim.key, claim.value)
        else:
            verify_non_membership(spec, claim.root, claim.proof, claim.key)
    except ProofError:
        return False
    return True


def valid_claim(trees: dict[str, Tree], random: Random) -> tuple[str, bytes, bytes, CommitmentProof]:
    """Return a spec, a key, its value or absence, and a proof of that: alone, or in a batch with others."""
    spec = random.choice(sorted(trees))
    tree, keys = trees[spec], sorted(STORED)
    claims = [random.choice(keys) if random.random() < 0.6 else b"%d!" % random.randint(0, 1700) for _ in range(4)]
    proofs = [tree.existence(key) if key in STORED else tree.non_existence(key) for key in claims]
    key, proof = claims[0], proofs[0]
    if random.random() < 0.5:
        # The first of two entries for one key counts, and unrequested ones do not.
        entries = [_entry(each) for each in proofs]
        if random.random() < 0.3:
            entries.append(_spoilt(entries[0], random))
        if random.random() < 0.2:
            entries.append(_spoilt(entries[-1], random))
        proof = CommitmentProof(batch=BatchProof(entries=entries))
        if random.random() < 0.6:
            proof = compress(proof)
            steps = proof.compressed.lookup_inners
            if steps and random.random() < 0.3:
                steps.append(random.choice(steps))
        elif random.random() < 0.2:
            proof.batch.entries.add()
    return spec, key, STORED.get(key, b""), proof


def _entry(proof: CommitmentProof) -> BatchEntry:
    return BatchEntry(exist=proof.exist) if proof.HasField("exist") else BatchEntry(nonexist=proof.nonexist)


def _spoilt(entry: BatchEntry, random: Random) -> BatchEntry:
    other = BatchEntry()
    other.CopyFrom(entry)
    shown: Any = other.exist if other.HasField("exist") else other.nonexist
    if other.HasField("nonexist"):
        shown.key = random.randbytes(3)
    else:
        shown.value += b"."
    return other


@pytest.fixture(scope="module")
def trees() -> dict[str, Tree]:
    return {SPEC_NAMES[kind]: build(STORED) for kind, build in BUILDERS.items()}


@pytest.mark.parametrize("seed", range(2))
def test_every_encoding_of_a_valid_proof_holds_for_all(native: list[Native], trees: dict[str, Tree], seed: int) -> None:
    random = Random(seed)
    claims = []
    for _ in range(CLAIMS // 4):
        spec, key, value, proof = valid_claim(trees, random)
        claims.append(Claim(spec, trees[spec].root, key, value, reencoded(proof, random)))
    for others in (verdicts(each, claims) for each in native):
        assert others == ["true"] * len(claims)
    assert [claim for claim in claims if not own_verdict(claim)] == []


@pytest.mark.parametrize("seed", range(2))
def test_one_verdict_on_changed_proofs_and_claims(native: list[Native], trees: dict[str, Tree], seed: int) -> None:
    """If the two others contradict each other, or one stops, ours never accepts the claim."""
    random = Random(seed)
    claims = []
    for _ in range(CLAIMS // 4):
        spec, key, value, proof = valid_claim(trees, random)
        claim = Claim(spec, trees[spec].root, key, value, proof.SerializeToString())
        if random.random() < 0.3:
            claim = claim._replace(proof=reencoded(proof, random))
        way = random.randrange(8)
        if way == 0:
            claim = claim._replace(key=random.choice((key + b".", b"", *STORED)))
        elif way == 1:
            claim = claim._replace(value=random.choice((b"", value + b".", b"value")))
        elif way == 2:
            claim = claim._replace(spec=random.choice(sorted(PROOF_SPECS)))
        else:
            claim = claim._replace(proof=corrupt_bytes(claim.proof, random))
        claims.append(claim)
    others = [verdicts(each, claims) for each in native]
    odd = []
    for claim, *said in zip(claims, *others, strict=True):
        own = own_verdict(claim)
        agreed = set(said) == {"true"}
        if own != agreed:
            odd.append((claim, said, own))
    assert odd == []
    assert 0 < sum(set(said) == {"true"} for said in zip(*others, strict=True)) < len(claims)


def test_every_key_proved_by_our_stores_is_proved_for_all(native: list[Native]) -> None:
    content = sorted_entries(column(list(STORED)), column(list(STORED.values())))
    keys = [b"", b"\x00", *STORED, *(key + b"." for key in STORED), b"\xff" * 40]
    claims = []
    for spec, store in (
        ("tendermint", SimpleStore.over(content)),
        ("iavl", IavlStore().commit(content, column([]))),
        ("smt", SmtStore(content.keys, content.values)),
    ):
        claims += [Claim(spec, store.root, key, STORED.get(key, b""), store.prove(key)) for key in keys]
        plain = batch_proof(store, keys)
        batches = (plain.SerializeToString(), compress(plain).SerializeToString())
        claims += [Claim(spec, store.root, key, STORED.get(key, b""), batch) for batch in batches for key in keys]
    assert [claim for claim in claims if not own_verdict(claim)] == []
    for others in (verdicts(each, claims) for each in native):
        assert others == ["true"] * len(claims)


def test_batch_compressed_by_the_javascript_library(native: list[Native], node: Node, trees: dict[str, Tree]) -> None:
    """It repeats a step for every path that contains it."""
    claims = []
    for spec in ("iavl", "tendermint"):
        tree, keys = trees[spec], [b"1", b"4", b"9", b"10"]
        proofs = [tree.existence(key) if key in STORED else tree.non_existence(key) for key in keys]
        (compressed,) = node("ics23_compress.mjs", [[proof.SerializeToString().hex() for proof in proofs]])
        claims += [Claim(spec, tree.root, key, STORED.get(key, b""), bytes.fromhex(compressed)) for key in keys]
        batch = BatchClaims(spec_rules(PROOF_SPECS[spec]), tree.root, decode_proof(bytes.fromhex(compressed)))
        (line,) = batch.remarks({key: STORED.get(key) for key in keys})
        assert re.fullmatch(r"steps of lookup_inners that stand there twice: \d+", line)
    assert [own_verdict(claim) for claim in claims] == [True] * len(claims)
    for others in (verdicts(each, claims) for each in native):
        assert others == ["true"] * len(claims)
