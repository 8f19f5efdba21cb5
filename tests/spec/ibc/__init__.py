"""The IBC messaging queue in plain numbers, dicts and sets: the oracle.

It restates the published text step by step, the slow and obvious way, so that a reader can hold it beside the text.
Section numbers ("3.3", "D-1", "X-2") are those of docs/reference/ibc.md. It imports nothing of causeway, and only
tests import it.

| file | sections |
|---|---|
| options, errors | 4 and 5, 3.6 |
| keys, values | 2.1, 2.3, 2.4, D-5 |
| queue, tree | 2.2, 2.6 |
| headers | 2.5 headers and proofs, X-4 |
| zone | 2.5 chain state, 3.1, X-3, X-11 |
| calls | 3.2, 3.3, 3.4, X-6, X-9, X-10 |
| beyond | X-1, X-2, X-5 |
| programs, relayers, network | programs as modules, 3.5, blocks of several zones |
| accounts | 3.5, the accounts of relayers |
| events | 1.1 |
| invariants, states, clients | 1.2, 1.3 and what section 5 promises, on the log and the states of a network (record) |
| guarantees | all of these together |
"""

from tests.spec.ibc.accounts import Accounts
from tests.spec.ibc.beyond import IBCcleanup, IBCtimeout, close, disconnect, shut_down
from tests.spec.ibc.calls import IBCreceipt, IBCreceive, IBCsend, IBCwrite
from tests.spec.ibc.errors import (
    AdvanceBackwards,
    AlreadyRegistered,
    CallNotOffered,
    CleanupBackwards,
    ClientExpired,
    ConnectionFrozen,
    DelayNotElapsed,
    HandlerFault,
    InvalidChainId,
    InvalidHeader,
    InvalidMisbehaviour,
    InvalidPacket,
    InvalidProof,
    MalformedKey,
    MissingHeader,
    MustBeReceipt,
    MustBeSend,
    MustBeSendQueue,
    NeedIntermediateHeader,
    NotAHeadProof,
    NotATailProof,
    NotClosable,
    OnlyMessageProofs,
    OutOfOrder,
    PermissionDenied,
    ReceiptExists,
    SlotNotOpen,
    SpecError,
    TimeoutElapsed,
    TimeoutNotReached,
    UnregisteredDestination,
    UnregisteredSender,
    UnsupportedType,
    WrongChain,
)
from tests.spec.ibc.events import (
    Abandoned,
    Acked,
    Cleaned,
    Failed,
    Frozen,
    Funded,
    HeaderAdded,
    OutOfFunds,
    Received,
    Recovered,
    Refused,
    Rejected,
    Root,
    Row,
    Sent,
    TimedOut,
    Written,
)
from tests.spec.ibc.headers import Header, Proof, bisect, signed_header, valid_by_validators, validators_hash
from tests.spec.ibc.keys import HEAD, TAIL, key, key_b, parse, readings_b
from tests.spec.ibc.network import Network
from tests.spec.ibc.options import Options
from tests.spec.ibc.programs import Accept, Answer, Call, Ingress, Reply, Request, RequestKey
from tests.spec.ibc.queue import Queue
from tests.spec.ibc.relayers import Relayer, Submission, View
from tests.spec.ibc.tree import simple_root
from tests.spec.ibc.values import (
    Packet,
    Receipt,
    decode_packet,
    decode_receipt,
    decode_state,
    encode_packet,
    encode_receipt,
    encode_state,
)
from tests.spec.ibc.zone import (
    LATER,
    NOOP,
    Arrived,
    Handler,
    Zone,
    begin_block,
    commit_block,
    freeze,
    recover,
    registerChain,
    submitMisbehaviour,
    updateHeader,
)

__all__ = [
    "HEAD",
    "LATER",
    "NOOP",
    "TAIL",
    "Abandoned",
    "Accept",
    "Accounts",
    "Acked",
    "AdvanceBackwards",
    "AlreadyRegistered",
    "Answer",
    "Arrived",
    "Call",
    "CallNotOffered",
    "Cleaned",
    "CleanupBackwards",
    "ClientExpired",
    "ConnectionFrozen",
    "DelayNotElapsed",
    "Failed",
    "Frozen",
    "Funded",
    "Handler",
    "HandlerFault",
    "Header",
    "HeaderAdded",
    "IBCcleanup",
    "IBCreceipt",
    "IBCreceive",
    "IBCsend",
    "IBCtimeout",
    "IBCwrite",
    "Ingress",
    "InvalidChainId",
    "InvalidHeader",
    "InvalidMisbehaviour",
    "InvalidPacket",
    "InvalidProof",
    "MalformedKey",
    "MissingHeader",
    "MustBeReceipt",
    "MustBeSend",
    "MustBeSendQueue",
    "NeedIntermediateHeader",
    "Network",
    "NotAHeadProof",
    "NotATailProof",
    "NotClosable",
    "OnlyMessageProofs",
    "Options",
    "OutOfFunds",
    "OutOfOrder",
    "Packet",
    "PermissionDenied",
    "Proof",
    "Queue",
    "Receipt",
    "ReceiptExists",
    "Received",
    "Recovered",
    "Refused",
    "Rejected",
    "Relayer",
    "Reply",
    "Request",
    "RequestKey",
    "Root",
    "Row",
    "Sent",
    "SlotNotOpen",
    "SpecError",
    "Submission",
    "TimedOut",
    "TimeoutElapsed",
    "TimeoutNotReached",
    "UnregisteredDestination",
    "UnregisteredSender",
    "UnsupportedType",
    "View",
    "Written",
    "WrongChain",
    "Zone",
    "begin_block",
    "bisect",
    "close",
    "commit_block",
    "decode_packet",
    "decode_receipt",
    "decode_state",
    "disconnect",
    "encode_packet",
    "encode_receipt",
    "encode_state",
    "freeze",
    "key",
    "key_b",
    "parse",
    "readings_b",
    "recover",
    "registerChain",
    "shut_down",
    "signed_header",
    "simple_root",
    "submitMisbehaviour",
    "updateHeader",
    "valid_by_validators",
    "validators_hash",
]
