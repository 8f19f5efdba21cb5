"""Proofs as documents: a proof of any family with what it claims, and what is trusted, as people keep them in files.

``reading`` reads files into documents, ``trust`` what is trusted, ``kinds`` knows every kind by its name, and
``verdict`` says whether a document is true. One module a family defines the documents of its kinds. The form is
described in docs/how-to/verify-a-proof.md.
"""

from __future__ import annotations

from causeway.proofs.documents.document import ProofDocument, Track
from causeway.proofs.documents.errors import ClaimMismatch
from causeway.proofs.documents.ic import IcCertificate, IcStreamSlice
from causeway.proofs.documents.ics23 import Ics23, Ics23Batch, Ics23Chained, Ics23Range
from causeway.proofs.documents.kinds import KINDS
from causeway.proofs.documents.mmr import Mmr, MmrAncestry, MmrLeaf
from causeway.proofs.documents.reading import Reading, document_of, read_document
from causeway.proofs.documents.substrate import HrmpQueue, SubstrateOrderedRoot, SubstrateStorage
from causeway.proofs.documents.tendermint import TendermintUpdate
from causeway.proofs.documents.trust import (
    IC_MAINNET,
    IC_MAINNET_KEY,
    IcPublicKey,
    RootTrust,
    TendermintTrust,
    Trust,
    read_trust,
    trust_of,
)
from causeway.proofs.documents.verdict import Verdict, judge
from causeway.proofs.documents.xdm import XdmMessage

__all__ = [
    "IC_MAINNET", "IC_MAINNET_KEY", "KINDS", "ClaimMismatch", "HrmpQueue", "IcCertificate", "IcPublicKey",
    "IcStreamSlice", "Ics23", "Ics23Batch", "Ics23Chained", "Ics23Range", "Mmr", "MmrAncestry", "MmrLeaf",
    "ProofDocument", "Reading", "RootTrust", "SubstrateOrderedRoot", "SubstrateStorage", "TendermintTrust",
    "TendermintUpdate", "Track", "Trust", "Verdict", "XdmMessage", "document_of", "judge", "read_document",
    "read_trust", "trust_of",
]  # fmt: skip
