"""Encode and decode requests, responses and refunds of streams (IC reference 2.4, 2.9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from causeway_proofs.ic.errors import DecodeError, EncodeError
from causeway_proofs.ic.packed_cbor import (
    Fields,
    Item,
    cycles_item,
    funds_item,
    read_cycles,
    read_funds,
    read_item,
    require_principal,
    require_same,
    require_text,
    require_unsigned,
    write_item,
)
from causeway_proofs.ic.primitives import CURRENT, CYCLES_FIELDS, REFUNDS, CertificationVersion

STREAM_MESSAGE = ("request", "response", "refund")
REQUEST = (
    "receiver",
    "sender",
    "sender_reply_callback",
    "payment",
    "method_name",
    "method_payload",
    "cycles_payment",
    "metadata",
    "deadline",
)
METADATA = ("call_tree_depth", "call_tree_start_time_u64", "call_subtree_deadline_u64")
RESPONSE = (
    "originator",
    "respondent",
    "originator_reply_callback",
    "refund",
    "response_payload",
    "cycles_refund",
    "deadline",
)
PAYLOAD = ("data", "reject")
REJECT_CONTEXT = ("code", "message")
REFUND = ("recipient", "amount")

DEADLINE_LIMIT = 1 << 32


class StreamRejectCode(IntEnum):
    """Kind of failure in a reject response."""

    SysFatal = 1
    SysTransient = 2
    DestinationInvalid = 3
    CanisterReject = 4
    CanisterError = 5
    SysUnknown = 6


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Position of a request in a tree of calls; unknown numbers are None.

    Attributes:
        call_tree_depth: number of calls above it.
        call_tree_start_time_nanos: time of the first call, nanoseconds since 1970.
    """

    call_tree_depth: int | None = 0
    call_tree_start_time_nanos: int | None = 0


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A call from one canister to another.

    Attributes:
        receiver: id of the called canister.
        sender: id of the calling canister.
        sender_reply_callback: callback id that the response names.
        cycles_payment: attached cycles, below 2^128.
        method_name: name of the method.
        method_payload: argument of the method.
        metadata: position in the call tree, or None.
        deadline: seconds since 1970; 0 for none: a guaranteed response.
    """

    receiver: bytes
    sender: bytes
    sender_reply_callback: int
    cycles_payment: int
    method_name: str
    method_payload: bytes
    metadata: RequestMetadata | None = RequestMetadata()
    deadline: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """Successful result of a call."""

    data: bytes


@dataclass(frozen=True, slots=True)
class RejectContext:
    """Failed result of a call: code and message."""

    code: StreamRejectCode
    message: str


Payload: TypeAlias = Data | RejectContext


@dataclass(frozen=True, slots=True)
class StreamResponse:
    """The response to a request.

    Attributes:
        originator: id of the canister that sent the request.
        respondent: id of the canister that received it.
        originator_reply_callback: the request's callback id.
        cycles_refund: refunded cycles, below 2^128.
        payload: the result.
        deadline: the request's deadline, seconds since 1970; 0 for none.
    """

    originator: bytes
    respondent: bytes
    originator_reply_callback: int
    cycles_refund: int
    payload: Payload
    deadline: int = 0


@dataclass(frozen=True, slots=True)
class StreamRefund:
    """Cycles refunded to ``recipient`` without a message.

    Attributes:
        recipient: id of the canister.
        amount: cycles, below 2^128.
    """

    recipient: bytes
    amount: int


StreamMessage: TypeAlias = StreamRequest | StreamResponse | StreamRefund


def encode_stream_message(message: StreamMessage, version: CertificationVersion = CURRENT) -> bytes:
    """Encode a message canonically at a certification version.

    Args:
        message: the message.
        version: certification version.

    Returns:
        The encoding.

    Raises:
        EncodeError: a number, id or text is out of range, or the version lacks such messages.
    """
    match message:
        case StreamRequest():
            return write_item({0: _request_item(message, version)})
        case StreamResponse():
            return write_item({1: _response_item(message, version)})
        case StreamRefund():
            if version < REFUNDS:
                raise EncodeError(f"StreamMessage: certification version {version:d} has no refunds")
            return write_item({2: _refund_item(message)})


def decode_stream_message(data: bytes, version: CertificationVersion = CURRENT) -> StreamMessage:
    """Decode the canonical encoding of a message at a certification version.

    Args:
        data: the encoding.
        version: certification version.

    Returns:
        The message.

    Raises:
        OverLimit: ``data`` is too long.
        DecodeError: ``data`` is not such an encoding; the text is the deployed decoder's where it has one.
    """
    fields = Fields(read_item(data, "StreamMessage"), "StreamMessage", STREAM_MESSAGE)
    given = [name for name in STREAM_MESSAGE if name in fields]
    if len(given) != 1:
        listing = ", ".join(f"{name}: {'Some(_)' if name in given else 'None'}" for name in STREAM_MESSAGE)
        raise DecodeError(
            "StreamMessage: expected exactly one of `request`, `response` or `refund` to be `Some(_)`, got "
            f"`StreamMessage {{ {listing} }}`"
        )
    item = fields.item(given[0])
    message: StreamMessage
    if given == ["request"]:
        message = _read_request(item, version)
    elif given == ["response"]:
        message = _read_response(item, version)
    elif version >= REFUNDS:
        message = _read_refund(item)
    else:
        raise DecodeError(f"StreamMessage: certification version {version:d} has no refunds")
    require_same(data, encode_stream_message(message, version), "StreamMessage")
    return message


def _request_item(request: StreamRequest, version: CertificationVersion) -> Item:
    item: dict[int, Item] = {
        0: require_principal(request.receiver, "Request: receiver"),
        1: require_principal(request.sender, "Request: sender"),
        2: require_unsigned(request.sender_reply_callback, "Request: sender_reply_callback"),
    }
    if version < CYCLES_FIELDS:
        item[3] = funds_item(request.cycles_payment, "Request: cycles_payment")
    item[4] = require_text(request.method_name, "Request: method_name")
    item[5] = bytes(request.method_payload)
    if version >= CYCLES_FIELDS:
        item[6] = cycles_item(request.cycles_payment, "Request: cycles_payment")
    if request.metadata is not None:
        given = (request.metadata.call_tree_depth, request.metadata.call_tree_start_time_nanos)
        item[7] = {
            key: require_unsigned(value, f"Request: {METADATA[key]}")
            for key, value in enumerate(given)
            if value is not None
        }
    if request.deadline:
        item[8] = require_unsigned(request.deadline, "Request: deadline", DEADLINE_LIMIT)
    return item


def _read_request(item: Item, version: CertificationVersion) -> StreamRequest:
    fields = Fields(item, "Request", REQUEST)
    receiver, sender = fields.principal("receiver"), fields.principal("sender")
    callback = fields.unsigned("sender_reply_callback")
    cycles = _read_amount(fields, "payment", "cycles_payment", version)
    name, payload = fields.text("method_name"), fields.blob("method_payload")
    metadata = _read_metadata(fields.item("metadata")) if "metadata" in fields else None
    deadline = fields.optional_unsigned("deadline", 32) or 0
    return StreamRequest(receiver, sender, callback, cycles, name, payload, metadata, deadline)


def _read_metadata(item: Item) -> RequestMetadata:
    fields = Fields(item, "RequestMetadata", METADATA)
    if "call_subtree_deadline_u64" in fields:
        # Announced but never written.
        raise DecodeError("RequestMetadata: field `call_subtree_deadline_u64` is populated")
    return RequestMetadata(
        fields.optional_unsigned("call_tree_depth"), fields.optional_unsigned("call_tree_start_time_u64")
    )


def _response_item(response: StreamResponse, version: CertificationVersion) -> Item:
    item: dict[int, Item] = {
        0: require_principal(response.originator, "Response: originator"),
        1: require_principal(response.respondent, "Response: respondent"),
        2: require_unsigned(response.originator_reply_callback, "Response: originator_reply_callback"),
    }
    if version < CYCLES_FIELDS:
        item[3] = funds_item(response.cycles_refund, "Response: cycles_refund")
    item[4] = _payload_item(response.payload)
    if version >= CYCLES_FIELDS:
        item[5] = cycles_item(response.cycles_refund, "Response: cycles_refund")
    if response.deadline:
        item[6] = require_unsigned(response.deadline, "Response: deadline", DEADLINE_LIMIT)
    return item


def _read_response(item: Item, version: CertificationVersion) -> StreamResponse:
    fields = Fields(item, "Response", RESPONSE)
    originator, respondent = fields.principal("originator"), fields.principal("respondent")
    callback = fields.unsigned("originator_reply_callback")
    cycles = _read_amount(fields, "refund", "cycles_refund", version)
    payload = _read_payload(fields.item("response_payload"))
    deadline = fields.optional_unsigned("deadline", 32) or 0
    return StreamResponse(originator, respondent, callback, cycles, payload, deadline)


def _read_amount(fields: Fields, before: str, after: str, version: CertificationVersion) -> int:
    """Read the cycles of a message: field ``before`` up to version 22, ``after`` from then on."""
    right, wrong = (before, after) if version < CYCLES_FIELDS else (after, before)
    item = fields.item(right)
    if wrong in fields:
        raise DecodeError(f"{fields.struct}: field `{wrong}` is populated, certification version {version:d} has none")
    return read_funds(item) if version < CYCLES_FIELDS else read_cycles(item)


def _payload_item(payload: Payload) -> Item:
    return {0: bytes(payload.data)} if isinstance(payload, Data) else {1: _reject_item(payload)}


def _read_payload(item: Item) -> Payload:
    fields = Fields(item, "Payload", PAYLOAD)
    if ("data" in fields) == ("reject" in fields):
        listing = ", ".join(f"{name}: {'Some(_)' if name in fields else 'None'}" for name in PAYLOAD)
        raise DecodeError(
            f"Payload: expected exactly one of `data` or `reject` to be `Some(_)`, got `Payload {{ {listing} }}`"
        )
    return Data(fields.blob("data")) if "data" in fields else _read_reject(fields.item("reject"))


def _reject_item(context: RejectContext) -> Item:
    if context.code not in set(StreamRejectCode):
        raise EncodeError(f"RejectContext: code is {context.code!r}, allowed are 1 to {max(StreamRejectCode):d}")
    return {0: int(context.code), 1: require_text(context.message, "RejectContext: message")}


def _read_reject(item: Item) -> RejectContext:
    fields = Fields(item, "RejectContext", REJECT_CONTEXT)
    code, message = fields.unsigned("code", 8), fields.text("message")
    if code not in set(StreamRejectCode):
        raise DecodeError(f"Value out of range for type RejectContext: {code}")
    return RejectContext(StreamRejectCode(code), message)


def _refund_item(refund: StreamRefund) -> Item:
    return {
        0: require_principal(refund.recipient, "Refund: recipient"),
        1: cycles_item(refund.amount, "Refund: amount"),
    }


def _read_refund(item: Item) -> StreamRefund:
    fields = Fields(item, "Refund", REFUND)
    return StreamRefund(fields.principal("recipient"), read_cycles(fields.item("amount")))
