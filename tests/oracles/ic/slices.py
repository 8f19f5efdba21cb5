"""A slice made of a payload and its witness."""

from __future__ import annotations

from causeway.proofs.ic.labeled_tree import LabeledTree
from causeway.proofs.ic.slice import CertifiedStreamSlice
from causeway.proofs.ic.slice_certification import (
    Certification,
)
from causeway.proofs.ic.slice_payload import read_payload
from causeway.proofs.ic.versions import CURRENT, CertificationVersion
from causeway.proofs.ic.witness import (
    Witness,
)


def build_certified_stream_slice(
    payload: LabeledTree, witness: Witness, certification: Certification, version: CertificationVersion = CURRENT
) -> CertifiedStreamSlice:
    """Return the slice of a labeled tree and its witness, checked like one that was received.

    Raises:
        InvalidSlice, DecodeFailed: the tree is not the payload of a slice.
        WitnessPruningFailed, RootHashMismatch: it has not the certified root.
    """
    certified = CertifiedStreamSlice(read_payload(payload, version), witness, certification)
    certified.verify_root()
    return certified
