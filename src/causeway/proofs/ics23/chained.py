"""Proofs through several stores: the root of one is the value that the next one proves, up to a header's root.

Deployed chains keep an IAVL tree a module and a simple tree over the modules' roots. Source: IBC reference 2.6
(``chained``).
"""

from __future__ import annotations

from collections.abc import Sequence

from causeway.proofs.errors import MalformedProof, NotProven, hex_text
from causeway.proofs.ics23.batch import message_of
from causeway.proofs.ics23.encoded import existence_root
from causeway.proofs.ics23.errors import ChainMismatch, NoProofForKey, RootMismatch
from causeway.proofs.ics23.existence import existence_of, existence_steps, prove_existence
from causeway.proofs.ics23.non_existence import (
    absence_of,
    calculate_absence,
    key_for_comparison,
    verify_non_existence,
)
from causeway.proofs.ics23.proof_specs import SpecRules, rules_of
from causeway.proofs.protobuf import parse, remarks_on_encoding
from causeway.proofs.steps import Step
from causeway.proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway.proofs.wire.ics23_pb2 import CommitmentProof, ProofSpec


def verify_chained_membership(
    specs: Sequence[ProofSpec], root: bytes, proof: bytes | MerkleProof, path: Sequence[bytes], value: bytes
) -> tuple[Step, ...]:
    """Check that ``value`` is stored at ``path`` under ``root``, and return the roots on the way.

    Args:
        specs: the stores' proof specs, innermost first, as clients keep them.
        root: the outermost root, from a header.
        proof: a MerkleProof: one existence proof a store, innermost first.
        path: the keys, outermost first, as IBC writes paths: the store's name, then the key in it.
        value: what is claimed to be stored.

    Raises:
        ChainMismatch: specs, proofs and keys are not equally many, or there are none.
        NoProofForKey: a proof is not one of existence.
        RootMismatch: the last proof leads to another root.
        NotProven: a store's proof does not hold; the text begins with its number, the innermost being 0.
        MalformedProof: ``proof`` is not the encoding of a MerkleProof.
    """
    proofs = _proofs(specs, proof, path)
    return _climb(specs, root, proofs, path, value, start=0)


def verify_chained_non_membership(
    specs: Sequence[ProofSpec], root: bytes, proof: bytes | MerkleProof, path: Sequence[bytes]
) -> tuple[Step, ...]:
    """Check that nothing is stored at ``path`` under ``root``, and return the roots on the way.

    The innermost proof is one of non-existence, all others are of existence; arguments and errors are those of
    ``verify_chained_membership``.
    """
    proofs = _proofs(specs, proof, path)
    innermost = proofs[0]
    if innermost.WhichOneof("proof") is None:
        raise MalformedProof("proof 0 carries no proof")
    if not innermost.HasField("nonexist"):
        raise NoProofForKey("proof 0 is not one of non-existence")
    rules, absence, key = rules_of(specs[0]), absence_of(innermost.nonexist), path[-1]
    try:
        subroot = calculate_absence(absence, rules)
        verify_non_existence(absence, rules, subroot, key)
    except NotProven as error:
        raise type(error)(f"proof 0, {error}") from None
    step = Step("store", f"key {key.hex()} is absent", subroot)
    if len(proofs) == 1:
        _require_root(root, subroot)
        return (step,)
    return (step, *_climb(specs, root, proofs, path, subroot, start=1))


def explain_chained_membership(
    specs: Sequence[ProofSpec], root: bytes, proof: bytes | MerkleProof, path: Sequence[bytes], value: bytes
) -> tuple[Step, ...]:
    """Verify as ``verify_chained_membership`` and return every step of every store.

    Raises:
        ProofError: as ``verify_chained_membership``.
    """
    proofs = _proofs(specs, proof, path)
    stores = _climb(specs, root, proofs, path, value, start=0)
    steps: list[Step] = []
    for message, store in zip(proofs, stores, strict=True):
        steps.extend(existence_steps(existence_of(message.exist)))
        steps.append(store)
    return tuple(steps)


def remarks_on_chain(specs: Sequence[ProofSpec], proof: bytes | Sequence[bytes], path: Sequence[bytes]) -> list[str]:
    """Return what is odd about a chained proof that shows a claim about ``path``, a line each.

    ``proof``: a MerkleProof, or the proof of each store. Deployed verifiers accept it, no encoder of theirs writes it.
    """
    if isinstance(proof, bytes):
        merkle = parse(MerkleProof, proof, "proof")
        lines, innermost = remarks_on_encoding(merkle, proof, "proof"), merkle.proofs[0]
    else:
        lines = []
        for number, each in enumerate(proof):
            lines += remarks_on_encoding(message_of(each), each, f"proof {number}")
        innermost = message_of(proof[0])
    key, named = path[-1], innermost.nonexist.key
    if named not in (b"", key, key_for_comparison(rules_of(specs[0]), key)):
        lines.append(f"the absence of key {hex_text(key)} names key {hex_text(named)}")
    return lines


def _proofs(specs: Sequence[ProofSpec], proof: bytes | MerkleProof, path: Sequence[bytes]) -> Sequence[CommitmentProof]:
    message = parse(MerkleProof, proof, "proof") if isinstance(proof, bytes) else proof
    if not specs or not len(specs) == len(message.proofs) == len(path):
        raise ChainMismatch(
            f"{len(specs)} specs, {len(message.proofs)} proofs and {len(path)} keys: there must be one of each a store"
        )
    return message.proofs


def _climb(
    specs: Sequence[ProofSpec],
    root: bytes,
    proofs: Sequence[CommitmentProof],
    path: Sequence[bytes],
    value: bytes,
    start: int,
) -> tuple[Step, ...]:
    """Verify the proofs from number ``start`` on, ``value`` being what the first of them must prove."""
    steps = []
    for number in range(start, len(proofs)):
        if proofs[number].WhichOneof("proof") is None:
            raise MalformedProof(f"proof {number} carries no proof")
        if not proofs[number].HasField("exist"):
            raise NoProofForKey(f"proof {number} is not one of existence")
        key = path[len(path) - 1 - number]
        try:
            value = _root_of(proofs[number], rules_of(specs[number]), key, value)
        except NotProven as error:
            raise type(error)(f"proof {number}, {error}") from None
        steps.append(Step("store", f"key {key.hex()}", value))
    _require_root(root, value)
    return tuple(steps)


def _root_of(proof: CommitmentProof, rules: SpecRules, key: bytes, value: bytes) -> bytes:
    found = existence_root(rules, proof.exist, key, value)
    return prove_existence(existence_of(proof.exist), rules, key, value) if found is None else found


def _require_root(root: bytes, calculated: bytes) -> None:
    if root != calculated:
        raise RootMismatch(f"the proofs lead to root {calculated.hex()}, not to {root.hex()}")
