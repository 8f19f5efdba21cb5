from .document import ProofDocument, ProofPath
from .ic import IcCertificate, IcStreamSlice
from .icmp import IcmpMessage
from .ics23 import Ics23, Ics23Batch, Ics23Chained, Ics23Range
from .mmr import Mmr, MmrAncestry, MmrLeaves
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
    parse_trust,
    parse_trust_object,
    read_trust,
)
from .validation import ClaimMismatch
from .verification import (
    KINDS,
    Decision,
    DocumentVerdict,
    Reading,
    build_document,
    parse_document,
    read_document,
    verify_document,
)
from .xdm import XdmMessage

__all__ = [
    "IC_MAINNET",
    "IC_MAINNET_KEY",
    "KINDS",
    "ClaimMismatch",
    "Decision",
    "DocumentVerdict",
    "HrmpQueue",
    "IcCertificate",
    "IcPublicKey",
    "IcStreamSlice",
    "IcmpHead",
    "IcmpMessage",
    "Ics23",
    "Ics23Batch",
    "Ics23Chained",
    "Ics23Range",
    "Mmr",
    "MmrAncestry",
    "MmrLeaves",
    "ProofDocument",
    "ProofPath",
    "Reading",
    "RootTrust",
    "SubstrateOrderedRoot",
    "SubstrateStorage",
    "TendermintTrust",
    "TendermintUpdate",
    "Trust",
    "XdmMessage",
    "build_document",
    "parse_document",
    "parse_trust",
    "parse_trust_object",
    "read_document",
    "read_trust",
    "verify_document",
]  # fmt: skip
