"""Every kind of document by its name."""

from __future__ import annotations

from causeway.proofs.documents.document import ProofDocument
from causeway.proofs.documents.ic import IcCertificate, IcStreamSlice
from causeway.proofs.documents.ics23 import Ics23, Ics23Batch, Ics23Chained, Ics23Range
from causeway.proofs.documents.mmr import Mmr, MmrAncestry, MmrLeaf
from causeway.proofs.documents.substrate import HrmpQueue, SubstrateOrderedRoot, SubstrateStorage
from causeway.proofs.documents.tendermint import TendermintUpdate
from causeway.proofs.documents.xdm import XdmMessage

KINDS: dict[str, type[ProofDocument]] = {
    "ic_certificate": IcCertificate,
    "ic_stream_slice": IcStreamSlice,
    "ics23": Ics23,
    "ics23_batch": Ics23Batch,
    "ics23_chained": Ics23Chained,
    "ics23_range": Ics23Range,
    "tendermint_update": TendermintUpdate,
    "substrate_storage": SubstrateStorage,
    "substrate_ordered_root": SubstrateOrderedRoot,
    "hrmp_queue": HrmpQueue,
    "xdm_message": XdmMessage,
    "mmr_leaf": MmrLeaf,
    "mmr_ancestry": MmrAncestry,
    "mmr": Mmr,
}
