from .document import ProofDocument, Track
from .errors import ClaimMismatch
from .ic import IcCertificate, IcStreamSlice
from .icmp import IcmpMessage
from .ics23 import Ics23, Ics23Batch, Ics23Chained, Ics23Range
from .kinds import KINDS
from .mmr import Mmr, MmrAncestry, MmrLeaf
from .reading import Reading, document_in, document_of, read_document
from .substrate import HrmpQueue, SubstrateOrderedRoot, SubstrateStorage
from .tendermint import TendermintUpdate
from .trust import (
    IC_MAINNET,
    IC_MAINNET_KEY,
    IcmpHead,
    IcPublicKey,
    RootTrust,
    TendermintTrust,
    Trust,
    read_trust,
    trust_in,
    trust_of,
)
from .verdict import Answer, Verdict, judge
from .xdm import XdmMessage

__all__ = [
    "IC_MAINNET", "IC_MAINNET_KEY", "KINDS", "Answer", "ClaimMismatch", "HrmpQueue", "IcCertificate", "IcPublicKey",
    "IcStreamSlice", "IcmpHead", "IcmpMessage", "Ics23", "Ics23Batch", "Ics23Chained", "Ics23Range", "Mmr",
    "MmrAncestry", "MmrLeaf", "ProofDocument", "Reading", "RootTrust", "SubstrateOrderedRoot", "SubstrateStorage",
    "TendermintTrust", "TendermintUpdate", "Track", "Trust", "Verdict", "XdmMessage", "document_in", "document_of",
    "judge", "read_document", "read_trust", "trust_in", "trust_of",
]  # fmt: skip
