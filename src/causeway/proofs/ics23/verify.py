"""Verification of one claim: that a value is stored under a key, or that a key is not stored.

Source: IBC reference 2.6. Functions return when the proof holds and raise when it does not.
"""

from __future__ import annotations

from causeway.proofs.errors import MalformedProof
from causeway.proofs.ics23.batch import (
    Batch,
    Proof,
    entries_of,
    message_of,
)
from causeway.proofs.ics23.encoded import encoded_root, existence_root
from causeway.proofs.ics23.errors import NoProofForKey
from causeway.proofs.ics23.existence import Existence, calculate, existence_of, existence_steps, verify_existence
from causeway.proofs.ics23.non_existence import (
    Absence,
    absence_of,
    calculate_absence,
    require_gap,
    verify_neighbor_proofs,
)
from causeway.proofs.ics23.proof_specs import SpecRules, rules_of
from causeway.proofs.steps import Step
from causeway.proofs.wire.ics23_pb2 import CommitmentProof, NonExistenceProof, ProofSpec


def verify_membership(spec: ProofSpec, root: bytes, proof: Proof, key: bytes, value: bytes) -> None:
    """Check that ``value`` is stored under ``key`` in the tree of ``root``.

    ``proof`` is a CommitmentProof, encoded or as a message; of a batch, the first entry for the key is verified.

    Raises:
        MalformedProof: it is not the encoding of a proof.
        NotProven: it does not show that; the class says which check failed (``ics23.errors``).
    """
    rules = rules_of(spec)
    if isinstance(proof, bytes) and encoded_root(rules, proof, key, value) == root:
        return
    message = message_of(proof)
    kind = message.WhichOneof("proof")
    if kind == "exist":
        verify_existence(existence_of(message.exist), rules, root, key, value)
    elif kind == "nonexist":
        raise NoProofForKey("the proof is one of non-existence")
    else:
        Batch(rules, root, message).require_membership({key: value})


def verify_non_membership(spec: ProofSpec, root: bytes, proof: Proof, key: bytes) -> None:
    """Check that nothing is stored under ``key`` in the tree of ``root``.

    ``proof`` is a CommitmentProof, encoded or as a message; of a batch, the first entry for the key is verified.

    Raises:
        MalformedProof: it is not the encoding of a proof.
        NotProven: it does not show that; the class says which check failed (``ics23.errors``).
    """
    message = message_of(proof)
    kind = message.WhichOneof("proof")
    if kind == "nonexist":
        rules, absence = rules_of(spec), absence_of(message.nonexist)
        if not _neighbors_are_stored(message.nonexist, rules, root):
            verify_neighbor_proofs(absence, rules, root)
        require_gap(absence, rules, key)
    elif kind == "exist":
        raise NoProofForKey("the proof is one of existence")
    else:
        Batch(rules_of(spec), root, message).require_non_membership([key])


def _neighbors_are_stored(proof: NonExistenceProof, rules: SpecRules, root: bytes) -> bool:
    """Return whether there are neighbours whose encoding alone shows that they are stored; see ``encoded_root``."""
    found = [getattr(proof, side) for side in ("left", "right") if proof.HasField(side)]
    return bool(found) and all(existence_root(rules, each) == root for each in found)


def explain(spec: ProofSpec, root: bytes, proof: Proof, key: bytes, value: bytes | None) -> tuple[Step, ...]:
    """Verify a claim and return the steps from the leaf, or from each neighbour's leaf, to the root.

    ``value`` None claims that the key is not stored.

    Raises:
        MalformedProof, NotProven: as ``verify_membership`` and ``verify_non_membership``.
    """
    message = message_of(proof)
    batch = Batch(rules_of(spec), root, message)
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
    """Return the root that the first claim of a message leads to; nothing else about it is checked.

    Raises:
        MalformedProof: it carries no proof.
        NotProven: a step cannot be made.
    """
    entries = entries_of(proof)
    if not entries:
        raise MalformedProof("batch proof has empty entry")
    first = entries[0]
    return calculate(first) if isinstance(first, Existence) else calculate_absence(first)
