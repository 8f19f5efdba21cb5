"""Verify ICS-23 claims: a value is stored under a key, or a key is absent.

A claim is verified in one store, or through nested stores: the root of each store is the value proven by the next one,
up to a header's root. Deployed chains keep an IAVL tree a module and a simple tree over the modules' roots.

Functions return if the proof holds and raise otherwise.

Reference:
    IBC reference 2.6 (``chained`` for nested stores).
"""

from __future__ import annotations

from collections.abc import Sequence

from causeway_proofs.errors import MalformedProof, NotProven, RootMismatch, hex_text
from causeway_proofs.ics23.batch import BatchClaims, Proof, batch_entries, decode_proof
from causeway_proofs.ics23.errors import ChainMismatch, NoProofForKey
from causeway_proofs.ics23.existence import (
    Absence,
    Existence,
    calculate_absence,
    calculate_existence,
    encoded_root,
    existence_root,
    existence_steps,
    key_for_comparison,
    prove_existence,
    read_absence,
    read_existence,
    require_gap,
    verify_existence,
    verify_neighbor_proofs,
    verify_non_existence,
)
from causeway_proofs.ics23.proof_specs import SpecRules, spec_rules
from causeway_proofs.protobuf import describe_encoding, parse
from causeway_proofs.steps import Step
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway_proofs.wire.ics23_pb2 import CommitmentProof, NonExistenceProof, ProofSpec


def verify_membership(spec: ProofSpec, root: bytes, proof: Proof, key: bytes, value: bytes) -> None:
    """Verify that ``value`` is stored under ``key`` in the tree of ``root``.

    Args:
        spec: the store's proof spec.
        root: the trusted root.
        proof: a CommitmentProof, encoded or as a message; in a batch, the first entry for the key is verified.
        key: the key.
        value: the claimed value.

    Raises:
        MalformedProof: ``proof`` is not the encoding of a proof.
        NotProven: the proof does not show the claim; the class names the failed check (``ics23.errors``).
    """
    rules = spec_rules(spec)
    if isinstance(proof, bytes) and encoded_root(rules, proof, key, value) == root:
        return
    message = decode_proof(proof)
    kind = message.WhichOneof("proof")
    if kind == "exist":
        verify_existence(read_existence(message.exist), rules, root, key, value)
    elif kind == "nonexist":
        raise NoProofForKey("the proof is one of non-existence")
    else:
        BatchClaims(rules, root, message).require_membership({key: value})


def verify_non_membership(spec: ProofSpec, root: bytes, proof: Proof, key: bytes) -> None:
    """Verify that no value is stored under ``key`` in the tree of ``root``.

    Args:
        spec: the store's proof spec.
        root: the trusted root.
        proof: a CommitmentProof, encoded or as a message; in a batch, the first entry for the key is verified.
        key: the absent key.

    Raises:
        MalformedProof: ``proof`` is not the encoding of a proof.
        NotProven: the proof does not show the claim; the class names the failed check (``ics23.errors``).
    """
    message = decode_proof(proof)
    kind = message.WhichOneof("proof")
    if kind == "nonexist":
        rules, absence = spec_rules(spec), read_absence(message.nonexist)
        if not _neighbors_are_stored(message.nonexist, rules, root):
            verify_neighbor_proofs(absence, rules, root)
        require_gap(absence, rules, key)
    elif kind == "exist":
        raise NoProofForKey("the proof is one of existence")
    else:
        BatchClaims(spec_rules(spec), root, message).require_non_membership([key])


def _neighbors_are_stored(proof: NonExistenceProof, rules: SpecRules, root: bytes) -> bool:
    """Return True if the encodings alone prove the neighbors (see ``encoded_root``)."""
    found = [getattr(proof, side) for side in ("left", "right") if proof.HasField(side)]
    return bool(found) and all(existence_root(rules, each) == root for each in found)


def explain(spec: ProofSpec, root: bytes, proof: Proof, key: bytes, value: bytes | None) -> tuple[Step, ...]:
    """Verify a claim and return the steps from the leaf, or the neighbors', to the root.

    Args:
        spec: the store's proof spec.
        root: the trusted root.
        proof: a CommitmentProof, encoded or as a message.
        key: the key.
        value: the claimed value, None if the key is claimed to be absent.

    Returns:
        The steps, leaf first.

    Raises:
        MalformedProof: ``proof`` is not the encoding of a proof.
        NotProven: the proof does not show the claim.
    """
    message = decode_proof(proof)
    batch = BatchClaims(spec_rules(spec), root, message)
    if value is not None:
        verify_membership(spec, root, message, key, value)
        return existence_steps(batch.existence(key))
    verify_non_membership(spec, root, message, key)
    return _absence_steps(batch.absences([key])[key])


def _absence_steps(proof: Absence) -> tuple[Step, ...]:
    steps: list[Step] = []
    for side, neighbor in (("left", proof.left), ("right", proof.right)):
        if neighbor is not None:
            steps.append(Step("neighbor", f"{side}, key {neighbor.key.hex()}"))
            steps.extend(existence_steps(neighbor))
    return tuple(steps)


def calculate_root(proof: CommitmentProof) -> bytes:
    """Return the root of a message's first claim, without verifying anything else.

    Args:
        proof: the message.

    Returns:
        The root.

    Raises:
        MalformedProof: the message carries no proof.
        NotProven: a step cannot be computed.
    """
    entries = batch_entries(proof)
    if not entries:
        raise MalformedProof("batch proof has empty entry")
    first = entries[0]
    return calculate_existence(first) if isinstance(first, Existence) else calculate_absence(first)


def verify_chained_membership(
    specs: Sequence[ProofSpec], root: bytes, proof: bytes | MerkleProof, path: Sequence[bytes], value: bytes
) -> tuple[Step, ...]:
    """Verify that ``value`` is stored at ``path`` under ``root``, through nested stores.

    Args:
        specs: the stores' proof specs, innermost first, in the order of client states.
        root: the outermost root, from a header.
        proof: a MerkleProof with one existence proof a store, innermost first.
        path: the keys, outermost first, as in IBC paths: the store's name, then the key in it.
        value: the claimed value.

    Returns:
        One step a store, with the root that it leads to.

    Raises:
        ChainMismatch: specs, proofs and keys differ in number, or are empty.
        NoProofForKey: a proof is not an existence proof.
        RootMismatch: the last proof leads to another root.
        NotProven: a store's proof does not hold; the text begins with its index, 0 for the innermost.
        MalformedProof: ``proof`` is not the encoding of a MerkleProof.
    """
    proofs = _proofs(specs, proof, path)
    return _climb(specs, root, proofs, path, value, start=0)


def verify_chained_non_membership(
    specs: Sequence[ProofSpec], root: bytes, proof: bytes | MerkleProof, path: Sequence[bytes]
) -> tuple[Step, ...]:
    """Verify that no value is stored at ``path`` under ``root``, through nested stores.

    The innermost proof is a non-existence proof, all others are existence proofs.

    Args:
        specs: the stores' proof specs, innermost first.
        root: the outermost root, from a header.
        proof: a MerkleProof with one proof a store, innermost first.
        path: the keys, outermost first.

    Returns:
        One step a store, with the root that it leads to.

    Raises:
        ProofError: as ``verify_chained_membership``.
    """
    proofs = _proofs(specs, proof, path)
    innermost = proofs[0]
    if innermost.WhichOneof("proof") is None:
        raise MalformedProof("proof 0 carries no proof")
    if not innermost.HasField("nonexist"):
        raise NoProofForKey("proof 0 is not one of non-existence")
    rules, absence, key = spec_rules(specs[0]), read_absence(innermost.nonexist), path[-1]
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

    Args:
        specs: the stores' proof specs, innermost first.
        root: the outermost root, from a header.
        proof: a MerkleProof with one existence proof a store, innermost first.
        path: the keys, outermost first.
        value: the claimed value.

    Returns:
        The steps, innermost leaf first.

    Raises:
        ProofError: as ``verify_chained_membership``.
    """
    proofs = _proofs(specs, proof, path)
    stores = _climb(specs, root, proofs, path, value, start=0)
    steps: list[Step] = []
    for message, store in zip(proofs, stores, strict=True):
        steps.extend(existence_steps(read_existence(message.exist)))
        steps.append(store)
    return tuple(steps)


def find_chain_remarks(specs: Sequence[ProofSpec], proof: bytes | Sequence[bytes], path: Sequence[bytes]) -> list[str]:
    """Return one line for each oddity of a verified chained proof.

    Deployed verifiers accept these oddities, but no deployed encoder writes them.

    Args:
        specs: the stores' proof specs, innermost first.
        proof: a MerkleProof, or one proof a store.
        path: the keys, outermost first.

    Returns:
        The remarks.
    """
    if isinstance(proof, bytes):
        merkle = parse(MerkleProof, proof, "proof")
        lines, innermost = describe_encoding(merkle, proof, "proof"), merkle.proofs[0]
    else:
        lines = []
        for number, each in enumerate(proof):
            lines += describe_encoding(decode_proof(each), each, f"proof {number}")
        innermost = decode_proof(proof[0])
    key, named = path[-1], innermost.nonexist.key
    if named not in (b"", key, key_for_comparison(spec_rules(specs[0]), key)):
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
    """Verify the proofs from index ``start`` on; ``value`` is the value of the first of them."""
    steps = []
    for number in range(start, len(proofs)):
        if proofs[number].WhichOneof("proof") is None:
            raise MalformedProof(f"proof {number} carries no proof")
        if not proofs[number].HasField("exist"):
            raise NoProofForKey(f"proof {number} is not one of existence")
        key = path[len(path) - 1 - number]
        try:
            value = _root_of(proofs[number], spec_rules(specs[number]), key, value)
        except NotProven as error:
            raise type(error)(f"proof {number}, {error}") from None
        steps.append(Step("store", f"key {key.hex()}", value))
    _require_root(root, value)
    return tuple(steps)


def _root_of(proof: CommitmentProof, rules: SpecRules, key: bytes, value: bytes) -> bytes:
    found = existence_root(rules, proof.exist, key, value)
    return prove_existence(read_existence(proof.exist), rules, key, value) if found is None else found


def _require_root(root: bytes, calculated: bytes) -> None:
    if root != calculated:
        raise RootMismatch(f"the proofs lead to root {calculated.hex()}, not to {root.hex()}")
