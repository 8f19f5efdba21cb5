"""Proofs of IAVL and Tendermint stores for the verifier of @confio/ics23 (no sparse trees)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.proof_specs import PROOF_SPECS
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership

from tests.support.properties.ics23_trees import build_iavl, build_simple
from tests.vectors import decode_all, load_vectors
from tests.verifiers.conftest import Node

SPECS = ("iavl", "tendermint")


class Claim(NamedTuple):
    """A claim to be verified; ``value`` None claims absence of the key."""

    spec: str
    root: bytes
    key: bytes
    value: bytes | None
    proof: bytes


def verdicts(node: Node, claims: Iterable[Claim]) -> list[bool]:
    """Return whether @confio/ics23 accepts each claim; it knows the specs "iavl" and "tendermint"."""
    rows = [
        {
            "spec": claim.spec,
            "root": claim.root.hex(),
            "key": claim.key.hex(),
            "value": None if claim.value is None else claim.value.hex(),
            "proof": claim.proof.hex(),
        }
        for claim in claims
    ]
    accepted: list[bool] = node("ics23.mjs", rows)
    return accepted


def own_verdict(claim: Claim) -> bool:
    """Return whether Causeway accepts a claim."""
    spec = PROOF_SPECS[claim.spec]
    try:
        if claim.value is None:
            verify_non_membership(spec, claim.root, claim.proof, claim.key)
        else:
            verify_membership(spec, claim.root, claim.proof, claim.key, claim.value)
    except ProofError:
        return False
    return True


def altered_claims(claim: Claim) -> list[Claim]:
    """Return claims that both verifiers must refuse.

    Left out: the other store's spec, which the older rules of @confio/ics23 do not always tell apart, and another
    absent key between the same neighbours, since it does not read the key that a proof of absence names.
    """
    wrong = [claim._replace(root=bytes(32))]
    if claim.value is None:
        return [*wrong, claim._replace(value=b"a value")]
    return [
        *wrong,
        claim._replace(key=claim.key + b"."),
        claim._replace(value=claim.value + b"."),
        claim._replace(value=None),
    ]


def test_both_verifiers_agree_on_the_published_proofs(node: Node) -> None:
    vectors = load_vectors("ibc_store_proofs")
    claims = []
    for case in vectors["proofs"]:
        if case["spec"] in SPECS:
            root, key, value, proof = decode_all([case[name] for name in ("root", "key", "value", "proof")])
            claims.append(Claim(case["spec"], root, key, value or None, proof))
    for batch in vectors["batches"]:
        if batch["spec"] in SPECS:
            root, proof = decode_all([batch["root"], batch["proof"]])
            for key, value in map(decode_all, batch["items"]):
                claims.append(Claim(batch["spec"], root, key, value or None, proof))
    assert len(claims) == 7 + 40
    assert verdicts(node, claims) == [own_verdict(claim) for claim in claims] == [True] * len(claims)
    wrong = [claim for right in claims[:7] for claim in altered_claims(right)]
    assert verdicts(node, wrong) == [own_verdict(claim) for claim in wrong] == [False] * len(wrong)


def test_proofs_of_locally_built_trees_hold_for_both(node: Node) -> None:
    stored = {f"key-{number:03}".encode(): f"value {number}".encode() for number in range(0, 74, 2)}
    claims = []
    for spec, build in (("iavl", build_iavl), ("tendermint", build_simple)):
        tree = build(stored)
        for key, value in stored.items():
            claims.append(Claim(spec, tree.root, key, value, tree.existence(key).SerializeToString()))
        for key in (b"a", b"key-011", b"key-063", b"z"):
            claims.append(Claim(spec, tree.root, key, None, tree.non_existence(key).SerializeToString()))
    assert verdicts(node, claims) == [own_verdict(claim) for claim in claims] == [True] * len(claims)
    wrong = [claim for right in claims[::7] for claim in altered_claims(right)]
    assert verdicts(node, wrong) == [own_verdict(claim) for claim in wrong] == [False] * len(wrong)
