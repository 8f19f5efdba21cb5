"""Proof documents of Merkle mountain ranges: leaves, prefixes and whole ranges."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from causeway_proofs.documents.document import ProofDocument, ProofPath, format_bytes, range_root
from causeway_proofs.documents.trust import Trust
from causeway_proofs.documents.validation import EITHER, PARTS, PLAIN
from causeway_proofs.documents.values import Bytes, Digest, DocumentSection, Listed, Number, parse_bytes, parse_digest
from causeway_proofs.errors import RootMismatch
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.mmr.errors import CorruptedProof
from causeway_proofs.mmr.mountain_range import bag_peaks, leaf_hash
from causeway_proofs.mmr.peaks import RangeState
from causeway_proofs.mmr.proof import (
    AncestryProof,
    LeafProof,
    ancestry_roots,
    bag_with_steps,
    leaf_proof_root,
    require_same_root,
    verify_ancestry_proof,
    verify_leaf_proof,
)
from causeway_proofs.steps import Step


def _leaf_of(value: object) -> bytes:
    """Return a leaf's hash: given directly, or of the SCALE encoding in ``data``."""
    if not isinstance(value, dict):
        return parse_digest(value)
    if set(value) != {"data"}:
        raise ValueError('must be a hash of 32 bytes, or {"data": ...} with the encoded leaf')
    return leaf_hash(parse_bytes(value["data"]))


LeafHash = Annotated[bytes, BeforeValidator(_leaf_of)]


class LeafProofParts(DocumentSection):
    """Fields of a leaf proof, as in the pallet."""

    leaf_indices: Listed[Number]
    leaf_count: Number
    items: Listed[Digest]

    def proof(self) -> LeafProof:
        """Return the proof."""
        return LeafProof(tuple(self.leaf_indices), self.leaf_count, tuple(self.items))


class AncestryItem(DocumentSection):
    """A node of the later range: position and hash."""

    position: Number
    hash: Digest


class AncestryProofParts(DocumentSection):
    """Fields of an ancestry proof."""

    prev_peaks: Listed[Digest]
    prev_leaf_count: Number
    leaf_count: Number
    items: Listed[AncestryItem]

    def proof(self) -> AncestryProof:
        """Return the proof."""
        items = tuple((item.position, item.hash) for item in self.items)
        return AncestryProof(tuple(self.prev_peaks), self.prev_leaf_count, self.leaf_count, items)


class MmrLeaves(ProofDocument):
    """Leaves in a range.

    Attributes:
        leaves: hashes of the leaves, in the order of the proof's indices.
        proof: a LeafProof in SCALE, or its fields.
    """

    kind: Literal["mmr_leaf"]
    leaves: Annotated[Listed[LeafHash], Field(min_length=1)]
    proof: Annotated[Annotated[Bytes, PLAIN] | Annotated[LeafProofParts, PARTS], EITHER]

    def claim(self) -> str:
        """Return the claim in one line."""
        if len(self.leaves) == 1:
            return f"the leaf {format_bytes(self.leaves[0])} is in the range"
        return f"these {len(self.leaves)} leaves are in the range"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path to the root.

        Args:
            trust: the trusted root.

        Returns:
            One path.

        Raises:
            ProofError: as ``verify_leaf_proof``.
        """
        root = range_root(trust)
        steps = verify_leaf_proof(self._proof(), self.leaves, root.root, root.leaf_count)
        return (ProofPath(self.claim(), steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path to the computed root, or the leaves alone if none is computable."""
        proof = self._proof()
        try:
            root, steps = leaf_proof_root(proof, self.leaves)
        except CorruptedProof:
            named = zip(proof.leaf_indices, self.leaves, strict=False)
            return (ProofPath(self.claim(), tuple(Step("leaf", f"leaf {index}", leaf) for index, leaf in named)),)
        return (ProofPath(self.claim(), (*steps, Step("root", f"of {proof.leaf_count} leaves", root))),)

    def _proof(self) -> LeafProof:
        return LeafProof.decode(self.proof) if isinstance(self.proof, bytes) else self.proof.proof()


class MmrAncestry(ProofDocument):
    """A range as a prefix of the trusted later one.

    Attributes:
        prev_root: root of the earlier range.
        proof: an AncestryProof in SCALE, or its fields.
    """

    kind: Literal["mmr_ancestry"]
    prev_root: Digest
    proof: Annotated[Annotated[Bytes, PLAIN] | Annotated[AncestryProofParts, PARTS], EITHER]

    def claim(self) -> str:
        """Return the claim in one line."""
        return f"the range with root {format_bytes(self.prev_root)} is the beginning of the later one"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path to the later root.

        Args:
            trust: the trusted root of the later range.

        Returns:
            The paths.

        Raises:
            ProofError: as ``verify_ancestry_proof``.
        """
        root = range_root(trust)
        steps = verify_ancestry_proof(self._proof(), root.root, self.prev_root, root.leaf_count)
        return (ProofPath(self.claim(), steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the paths to the computed roots, to the earlier one alone if need be."""
        proof = self._proof()
        first = f"of the first {proof.prev_leaf_count} leaves"
        try:
            found = ancestry_roots(proof)
        except CorruptedProof:
            return (ProofPath(self.claim(), (Step("root", first, bag_peaks(proof.prev_peaks)),)),)
        earlier = Step("root", first, found.prev_root)
        later = Step("root", f"of {proof.leaf_count} leaves", found.root)
        return (ProofPath(self.claim(), (*found.prev_steps, earlier, *found.steps, later)),)

    def _proof(self) -> AncestryProof:
        return AncestryProof.decode(self.proof) if isinstance(self.proof, bytes) else self.proof.proof()


class Mmr(ProofDocument):
    """A whole range: all its leaves, in order, under its root.

    Attributes:
        leaves: hashes of all leaves.
    """

    kind: Literal["mmr"]
    leaves: Annotated[Listed[LeafHash], Field(min_length=1)]

    def claim(self) -> str:
        """Return the claim in one line."""
        return f"the range has exactly these {len(self.leaves)} leaves, in this order"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path from the peaks to the root.

        Args:
            trust: the trusted root.

        Returns:
            One path.

        Raises:
            RootMismatch: the leaves have another root, or their number differs from the trusted range.
        """
        root = range_root(trust)
        if root.leaf_count not in (None, len(self.leaves)):
            raise RootMismatch(f"{len(self.leaves)} leaves are given, the range has {root.leaf_count}")
        peaks = self._peaks()
        steps = _peak_steps(peaks)
        require_same_root(bag_with_steps(peaks, steps), root.root, steps)
        return (ProofPath(self.claim(), tuple(steps)),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the peaks and their computed root."""
        peaks = self._peaks()
        steps = [*_peak_steps(peaks), Step("root", "of the leaves given", bag_peaks(peaks))]
        return (ProofPath(self.claim(), tuple(steps)),)

    def _peaks(self) -> list[bytes]:
        leaves = np.frombuffer(b"".join(self.leaves), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        return list(RangeState().extend(leaves).peaks)


def _peak_steps(peaks: list[bytes]) -> list[Step]:
    return [Step("peak", f"mountain {place} from the left", peak) for place, peak in enumerate(peaks)]
