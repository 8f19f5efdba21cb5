from .analysis.selections import Rows
from .core.frame import Frame
from .core.vocabulary import Kind, RejectCode
from .errors import CausewayError, InvalidInput
from .network.network import LakeNetwork
from .network.opened_ledger import OpenedLedger, open
from .programs import Effects, Program, Reject, VectorProgram
from .programs.bundled.tokens import TokenSupply, token_books, token_supply
from .programs.naming import UnknownProgram, ref
from .programs.scalar import (
    Answer,
    BalanceOverflow,
    Call,
    Context,
    ExceedsAttached,
    Ingress,
    InsufficientFunds,
    NoOpenRequest,
    Reply,
    Request,
)
from .programs.trial import HandlerFailed, Trial
from .programs.vector import method_is, rows_of
from .testing.declarations import Deploy, Fault, FaultKind, MessageKind, MessageStatus, ProtocolName, RejectName
from .testing.errors import NoAnswer, NotDeterministic, Rejected, Undone
from .testing.handles import Result, SentCall, SentMessage
from .testing.messages import MessageRow, Messages
from .testing.network import ForkNetwork, MakeNetwork, Network, Snapshot

__all__ = [
    "Answer",
    "BalanceOverflow",
    "Call",
    "CausewayError",
    "Context",
    "Deploy",
    "Effects",
    "ExceedsAttached",
    "Fault",
    "FaultKind",
    "ForkNetwork",
    "Frame",
    "HandlerFailed",
    "Ingress",
    "InsufficientFunds",
    "InvalidInput",
    "Kind",
    "LakeNetwork",
    "MakeNetwork",
    "MessageKind",
    "MessageRow",
    "MessageStatus",
    "Messages",
    "Network",
    "NoAnswer",
    "NoOpenRequest",
    "NotDeterministic",
    "OpenedLedger",
    "Program",
    "ProtocolName",
    "Reject",
    "RejectCode",
    "RejectName",
    "Rejected",
    "Reply",
    "Request",
    "Result",
    "Rows",
    "SentCall",
    "SentMessage",
    "Snapshot",
    "TokenSupply",
    "Trial",
    "Undone",
    "UnknownProgram",
    "VectorProgram",
    "__version__",
    "method_is",
    "open",
    "ref",
    "rows_of",
    "token_books",
    "token_supply",
]

__version__: str
