"""Proof documents of ICS-23: one key, many keys, paths through stores, and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from causeway_proofs.documents.document import (
    ProofDocument,
    ProofPath,
    format_bytes,
    trusted_root,
    unique_claims,
    value_claim,
)
from causeway_proofs.documents.trust import RootTrust, TendermintTrust, Trust
from causeway_proofs.documents.validation import EITHER, PARTS, PLAIN, ClaimMismatch
from causeway_proofs.documents.values import Bytes, DocumentSection, Label, Listed, Number
from causeway_proofs.errors import InvalidInput, OverLimit
from causeway_proofs.ics23.batch import BatchClaims, batch_entries, decode_proof, entry_paths, find_remarks
from causeway_proofs.ics23.errors import NoProofForKey
from causeway_proofs.ics23.existence import Absence, Existence, existence_steps, read_absence, read_existence
from causeway_proofs.ics23.proof_specs import PROOF_SPECS, spec_rules
from causeway_proofs.ics23.simple_store import range_proof_root, verify_range_proof
from causeway_proofs.ics23.verify import (
    find_chain_remarks,
    verify_chained_membership,
    verify_chained_non_membership,
    verify_membership,
    verify_non_membership,
)
from causeway_proofs.limits import MAX_DEPTH, MAX_MESSAGE_BYTES, MAX_PROOF_BYTES, require_length
from causeway_proofs.protobuf import parse
from causeway_proofs.steps import Step
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof
from causeway_proofs.wire.ics23_pb2 import CommitmentProof, InnerOp

SpecName = Literal["iavl", "tendermint", "smt"]


def _deployed_specs() -> list[SpecName]:
    return ["iavl", "tendermint"]


_SIBLING_PREFIX_BYTES = 8

DEEPEST = 256
"""Most steps of a path in a deployed store."""


class ClaimedItem(DocumentSection):
    """A key with its value; null or empty, which cannot be proven, marks an absent key."""

    key: Bytes
    value: Bytes | None

    @property
    def content(self) -> bytes | None:
        """Return the value, or None for an absent key."""
        return self.value or None


class ClaimedEntry(DocumentSection):
    """A key with its value."""

    key: Bytes
    value: Bytes


class Ics23(ProofDocument):
    """One key under a root.

    Attributes:
        spec: name of the proof spec.
        key: the key.
        value: the claimed value, null for an absent key.
        proof: a ``cosmos.ics23.v1.CommitmentProof``.
    """

    kind: Literal["ics23"]
    spec: SpecName
    key: Bytes
    value: Bytes | None
    proof: Bytes
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, TendermintTrust)

    def claim(self) -> str:
        """Return the claim in one line."""
        return value_claim(self.key, self.value or None)

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path to the root.

        Args:
            trust: the trusted root or header.

        Returns:
            The paths.

        Raises:
            ProofError: as ``ics23.verify``.
        """
        spec, root, message = PROOF_SPECS[self.spec], trusted_root(trust), decode_proof(self.proof)
        if self.value:
            verify_membership(spec, root, message, self.key, self.value)
        else:
            verify_non_membership(spec, root, message, self.key)
        return _claim_tracks(BatchClaims(spec_rules(spec), root, message), {self.key: self.value or None})

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return features of the proof that no encoder writes."""
        return find_remarks(PROOF_SPECS[self.spec], trusted_root(trust), self.proof, {self.key: self.value or None})

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path to the computed root."""
        return _sketched(batch_entries(decode_proof(self.proof))[:1])


class Ics23Batch(ProofDocument):
    """Many keys under one root.

    Attributes:
        spec: name of the proof spec.
        items: claimed keys and values.
        proof: a CommitmentProof with a batch, compressed or not.
    """

    kind: Literal["ics23_batch"]
    spec: SpecName
    items: Annotated[Listed[ClaimedItem], Field(min_length=1)]
    proof: Bytes
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, TendermintTrust)

    def claim(self) -> str:
        """Return the claims in one line."""
        there = sum(item.content is not None for item in self.items)
        return f"{there} values are stored, {len(self.items) - there} keys are absent"

    def lines(self) -> Sequence[str]:
        """Return one line an item."""
        return [value_claim(item.key, item.content) for item in self.items]

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of every key to the root.

        Args:
            trust: the trusted root or header.

        Returns:
            The paths.

        Raises:
            ProofError: as ``ics23.batch``.
        """
        claimed = self._claimed()
        batch = BatchClaims(spec_rules(PROOF_SPECS[self.spec]), trusted_root(trust), decode_proof(self.proof))
        batch.require_membership({key: value for key, value in claimed.items() if value is not None})
        batch.require_non_membership([key for key, value in claimed.items() if value is None])
        return _claim_tracks(batch, claimed)

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return features of the proof that no encoder writes."""
        return find_remarks(PROOF_SPECS[self.spec], trusted_root(trust), self.proof, self._claimed())

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of each batch entry to its computed root."""
        return _sketched(batch_entries(decode_proof(self.proof))[: len(self.items)])

    def _claimed(self) -> dict[bytes, bytes | None]:
        return unique_claims(((item.key, item.content) for item in self.items), "items")


class Ics23Chained(ProofDocument):
    """A path through nested stores.

    Attributes:
        specs: names of the proof specs, innermost first.
        path: keys, outermost first, as in IBC.
        value: the claimed value, null for an absent key.
        proof: an ``ibc.core.commitment.v1.MerkleProof``, or a list of CommitmentProofs, innermost first, as in a node's
            answer to a query (``proofOps``).
        state_height: block after which the state is; its root is in the next block's header, as in CometBFT.
    """

    kind: Literal["ics23_chained"]
    specs: Listed[SpecName] = Field(default_factory=_deployed_specs, min_length=1, max_length=MAX_DEPTH)
    path: Annotated[Listed[Label], Field(min_length=1, max_length=MAX_DEPTH)]
    value: Bytes | None
    proof: Annotated[Annotated[Bytes, PLAIN] | Annotated[Listed[Bytes], PARTS], EITHER]
    state_height: Number | None = None
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, TendermintTrust)

    def claim(self) -> str:
        """Return the claim in one line."""
        path = "/".join(label.decode() if label.isascii() else format_bytes(label) for label in self.path)
        after = "" if self.state_height is None else f" after block {self.state_height}"
        return f"{'nothing' if not self.value else format_bytes(self.value)} is stored at {path}{after}"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path through every store.

        Args:
            trust: the trusted root or header.

        Returns:
            The paths.

        Raises:
            ProofError: as ``verify_chained_membership``.
            InvalidInput: the claims do not fit together.
        """
        if self.state_height is not None and isinstance(trust, TendermintTrust):
            height, root_height = trust.trusted.height, self.state_height + 1
            if height != root_height:
                raise InvalidInput(f"trust: is the header {height}; the root is in that of height {root_height}")
        specs, root, message = [PROOF_SPECS[name] for name in self.specs], trusted_root(trust), self._message()
        if self.value:
            verify_chained_membership(specs, root, message, self.path, self.value)
        else:
            verify_chained_non_membership(specs, root, message, self.path)
        return self._tracks(message)

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return features of the proof that no encoder writes."""
        return find_chain_remarks([PROOF_SPECS[name] for name in self.specs], self.proof, self.path)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of each store's proof to its computed root."""
        return self._tracks(self._message())

    def _message(self) -> MerkleProof:
        if isinstance(self.proof, bytes):
            return parse(MerkleProof, self.proof, "proof")
        require_length(b"".join(self.proof), "proof", MAX_MESSAGE_BYTES)
        return MerkleProof(proofs=[parse(CommitmentProof, proof, "proof") for proof in self.proof])

    def _tracks(self, message: MerkleProof) -> tuple[ProofPath, ...]:
        tracks: list[ProofPath] = []
        for number, proof in enumerate(message.proofs):
            if proof.HasField("exist"):
                found = _sketched([read_existence(proof.exist)])
            elif proof.HasField("nonexist"):
                found = _sketched([read_absence(proof.nonexist)])
            else:
                raise NoProofForKey(f"proof {number} is neither one of existence nor of non-existence")
            tracks += [ProofPath(f"store {number}: {track.title}", track.steps) for track in found]
        return tuple(tracks)


class Ics23Range(ProofDocument):
    """Adjacent entries of a simple store.

    Attributes:
        entries: the claimed entries, sorted by key.
        begins_store: claim that no entry precedes them, optional.
        ends_store: claim that no entry follows them, optional.
        proof: a ``causeway`` RangeProof.
    """

    kind: Literal["ics23_range"]
    entries: Annotated[Listed[ClaimedEntry], Field(min_length=1)]
    begins_store: bool | None = None
    ends_store: bool | None = None
    proof: Bytes
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, TendermintTrust)

    def claim(self) -> str:
        """Return the claim in one line."""
        first, last = format_bytes(self.entries[0].key), format_bytes(self.entries[-1].key)
        return f"{len(self.entries)} entries from {first} to {last} are stored, and nothing between them"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of the range to the root.

        Args:
            trust: the trusted root or header.

        Returns:
            One path.

        Raises:
            ClaimMismatch: the range differs from the claims.
            ProofError: as ``verify_range_proof``.
        """
        run = verify_range_proof(trusted_root(trust), self.proof)
        entries = list(zip(run.entries.keys.to_pylist(), run.entries.values.to_pylist(), strict=True))
        claimed = [(item.key, item.value) for item in self.entries]
        if len(entries) != len(claimed):
            raise ClaimMismatch(f"the proof is of {len(entries)} entries, {len(claimed)} are claimed")
        for position, (one, other) in enumerate(zip(entries, claimed, strict=True)):
            if one != other:
                raise ClaimMismatch(
                    f"entry {position} of the proof says: {value_claim(*one)}; claimed is: {value_claim(*other)}"
                )
        for name, claim, fact in (
            ("begins_store", self.begins_store, run.begins_store),
            ("ends_store", self.ends_store, run.ends_store),
        ):
            if claim is not None and claim != fact:
                raise ClaimMismatch(f"{name}: the proof shows {fact}, claimed is {claim}".lower())
        return (ProofPath(self.claim(), run.steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of the proof's range to its computed root."""
        _, run = range_proof_root(self.proof)
        title = f"{len(run.entries)} entries are in the proof"
        return (ProofPath(title, run.steps),)


def _claim_tracks(batch: BatchClaims, claims: Mapping[bytes, bytes | None]) -> tuple[ProofPath, ...]:
    absences = batch.absences(key for key, value in claims.items() if value is None)
    entries = [absences[key] if value is None else batch.existence(key) for key, value in claims.items()]
    # Keys in one gap share a proof.
    return _tracks(list({id(entry): entry for entry in entries}.values()))


def _sketched(entries: Sequence[Existence | Absence]) -> tuple[ProofPath, ...]:
    """Return the paths of unverified entries.

    Raises:
        OverLimit: they exceed the longest valid paths, or the work limit.
    """
    paths = [path for entry in entries for path in entry_paths(entry)]
    if max(map(len, paths), default=0) > DEEPEST:
        raise OverLimit(f"a path has more than {DEEPEST} steps")
    if sum(len(step.prefix) + len(step.suffix) for path in paths for step in path) > MAX_PROOF_BYTES:
        raise OverLimit(f"the steps have more than {MAX_PROOF_BYTES} bytes")
    return _tracks(entries)


def _tracks(entries: Sequence[Existence | Absence]) -> tuple[ProofPath, ...]:
    """Return the path of each entry, or of both neighbors of an absent one, to a root."""
    tracks = []
    for entry in entries:
        if isinstance(entry, Existence):
            tracks.append(ProofPath(value_claim(entry.key, entry.value), _steps(entry)))
            continue
        for side, neighbor in (("left", entry.left), ("right", entry.right)):
            if neighbor is not None:
                tracks.append(
                    ProofPath(f"{side} neighbour: {value_claim(neighbor.key, neighbor.value)}", _steps(neighbor))
                )
    return tuple(tracks)


def _steps(proof: Existence) -> tuple[Step, ...]:
    """Return the steps of an existence proof, each with the beginning of its sibling."""
    leaf, *inner = existence_steps(proof)
    return (leaf, *(_beside(step, operation) for step, operation in zip(inner, proof.path, strict=True)))


def _beside(step: Step, operation: InnerOp) -> Step:
    siblings = operation.suffix or operation.prefix
    return Step(step.operation, f"{step.detail} ({siblings[-32:][:_SIBLING_PREFIX_BYTES].hex()}...)", step.result)
