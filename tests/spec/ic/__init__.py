"""The Internet Computer message routing state machine in plain numbers, dicts and sets: the oracle.

It restates the published text formula by formula, the slow and obvious way, so that a reader can hold it beside the
text. Section numbers ("3.4", "D-7", "X-2") are those of docs/reference/ic.md; what the text leaves open follows
docs/explanation/protocols/ic.md. It imports nothing of causeway, and only tests import it.

| file | sections |
|---|---|
| options, errors | 4.1, 3.11 |
| queues | 2.1 notation, 2.2 indices, 2.3 queues |
| ids, messages, state | 2.9 ids, 2.4 messages, 2.5 and 2.6 state and streams, 2.7 registry, moves |
| judge | 3.3, X-2: one message |
| induction | 3.3 and 3.4: time-outs, loopback, collection, valid set rule, pre_process |
| execution | 3.5 |
| routing | 3.6, X-6, X-7 |
| removal | canisters that end |
| slices, payloads | 3.7, 3.9 and 3.10 of one slice; 3.8, 3.9 of payloads, malicious block makers |
| encoding, hash_tree, tree | 2.9: leaves, hash trees and witnesses, the state tree of a subnet |
| certified, pool | 2.8: what is signed, served and taken; X-15 |
| sizes | 2.10: count_bytes |
| coordination, network | 3.1, 3.2, 2.8; rounds of several subnets |
| events, guarantees, value, accounts | 1.1; 1.2 over the log; G9 over the log; 1.2 and 1.3 over states and log |
"""

from tests.spec.ic.coordination import Batch, Ignored, StateManager, one_round, process_batch
from tests.spec.ic.errors import (
    ContradictoryIndices,
    EmptySlice,
    IndexOverflow,
    InvalidSliceBounds,
    InvalidStream,
    InvalidStreamBounds,
    InvariantViolation,
    LoopbackSlice,
    NotInQueue,
    PayloadTooLarge,
    SliceAboveMessageLimit,
    SliceError,
    SpecError,
    StateNotCommittedYet,
    StateRemoved,
    TooManySignals,
    UnexpectedMessages,
    UnexpectedSignals,
    UnknownSubnet,
)
from tests.spec.ic.events import Event
from tests.spec.ic.execution import Accept, Behaviour, Call, CertifiedData, Effect, Reply, RequestKey, execute
from tests.spec.ic.ids import canister_bytes, canister_text, draw, subnet_bytes
from tests.spec.ic.induction import DecodedBatch, map_valid_xnet_messages, pre_process, queue_index, substream_id
from tests.spec.ic.judge import Judgement, judge, sender_class, valid_sender
from tests.spec.ic.messages import (
    ACCEPT,
    NON_EXISTENT_CANISTER,
    REJECT,
    Ingress,
    Message,
    Reason,
    RejectCode,
    Request,
    Response,
    Verdict,
    message_id,
)
from tests.spec.ic.network import network_round, offered_slices
from tests.spec.ic.options import Limit, Options, deployed_profile
from tests.spec.ic.payloads import check_payload, get_xnet_payload, validate_xnet_payload
from tests.spec.ic.queues import Queue, clear, clear_map, delete, delete_map, new_queue, push, push_map
from tests.spec.ic.routing import filter, non_existent_canister_replies, post_process, routing_order
from tests.spec.ic.slices import (
    StreamSlice,
    check_slice,
    expected_indexes,
    slice_for,
    slice_indexes,
    state_and_payload_indexes,
)
from tests.spec.ic.state import CanonicalState, Registry, Stream, expected_index, genesis, move_canisters

__all__ = [
    "ACCEPT",
    "NON_EXISTENT_CANISTER",
    "REJECT",
    "Accept",
    "Batch",
    "Behaviour",
    "Call",
    "CanonicalState",
    "CertifiedData",
    "ContradictoryIndices",
    "DecodedBatch",
    "Effect",
    "EmptySlice",
    "Event",
    "Ignored",
    "IndexOverflow",
    "Ingress",
    "InvalidSliceBounds",
    "InvalidStream",
    "InvalidStreamBounds",
    "InvariantViolation",
    "Judgement",
    "Limit",
    "LoopbackSlice",
    "Message",
    "NotInQueue",
    "Options",
    "PayloadTooLarge",
    "Queue",
    "Reason",
    "Registry",
    "RejectCode",
    "Reply",
    "Request",
    "RequestKey",
    "Response",
    "SliceAboveMessageLimit",
    "SliceError",
    "SpecError",
    "StateManager",
    "StateNotCommittedYet",
    "StateRemoved",
    "Stream",
    "StreamSlice",
    "TooManySignals",
    "UnexpectedMessages",
    "UnexpectedSignals",
    "UnknownSubnet",
    "Verdict",
    "canister_bytes",
    "canister_text",
    "check_payload",
    "check_slice",
    "clear",
    "clear_map",
    "delete",
    "delete_map",
    "deployed_profile",
    "draw",
    "execute",
    "expected_index",
    "expected_indexes",
    "filter",
    "genesis",
    "get_xnet_payload",
    "judge",
    "map_valid_xnet_messages",
    "message_id",
    "move_canisters",
    "network_round",
    "new_queue",
    "non_existent_canister_replies",
    "offered_slices",
    "one_round",
    "post_process",
    "pre_process",
    "process_batch",
    "push",
    "push_map",
    "queue_index",
    "routing_order",
    "sender_class",
    "slice_for",
    "slice_indexes",
    "state_and_payload_indexes",
    "subnet_bytes",
    "substream_id",
    "valid_sender",
    "validate_xnet_payload",
]
