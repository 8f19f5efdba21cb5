"""A slice made of a payload and its witness."""

from __future__ import annotations

from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.slice import Certification, CertifiedStreamSlice
from causeway_proofs.ic.slice_payload import read_payload
from causeway_proofs.ic.witness import LabeledTree, Witness


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
