"""Reject codes, reasons and texts of event rows, and the rejects of routing.

Reference:
    IC reference 2.4, X-13.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.ic.messages import StreamRejectCode
from causeway_proofs.ic.stream_header import RejectReason
from causeway_proofs.order import Rows

from causeway.core.frame import Frame, repeat_bytes
from causeway.core.vocabulary import Kind
from causeway.protocols.ic.ids import canister_texts
from causeway.protocols.shared.events import names_column
from causeway.protocols.shared.messages import blank_messages, payload_lengths

NO_REJECT = 0
"""The code of responses with data, besides each ``StreamRejectCode``."""

ACCEPT = 0
"""The verdict besides each ``RejectReason``."""

REASON_CODES = {
    RejectReason.CanisterMigrating: StreamRejectCode.SysTransient,
    RejectReason.CanisterNotFound: StreamRejectCode.DestinationInvalid,
    RejectReason.CanisterStopped: StreamRejectCode.CanisterError,
    RejectReason.CanisterStopping: StreamRejectCode.CanisterError,
    RejectReason.QueueFull: StreamRejectCode.SysTransient,
    RejectReason.OutOfMemory: StreamRejectCode.CanisterError,
    RejectReason.Unknown: StreamRejectCode.SysFatal,
}

REASON_TEXTS = {
    RejectReason.CanisterMigrating: "Canister migration in progress",
    RejectReason.CanisterNotFound: "Canister {} not found",
    RejectReason.CanisterStopped: "Canister {} is stopped",
    RejectReason.CanisterStopping: "Canister {} is stopping",
    RejectReason.QueueFull: "Canister {} input queue is full",
    RejectReason.OutOfMemory: "Cannot induct request. Out of memory: requested {}",
    RejectReason.Unknown: "Inducting request failed due to an unknown error",
}

NO_RECEIVER = "NON_EXISTENT_CANISTER"
"""Reason of events of messages without a receiving subnet: the name of their answer (3.6)."""

UNROUTABLE = "unroutable_response"
"""Reason of events of responses lost because their originator has no subnet."""

CHAIN_HALTED = "ChainHalted"
CHAIN_SPLITTING = "ChainSplitting"
UNKNOWN_SUBNET = "UnknownSubnet"
FORGED_FOR_NOBODY = "forged_for_nobody"
"""Reasons of events of a byzantine subnet's messages that cannot enter a stream.

The first three are also reasons of refusing users' messages on a subnet that runs no round.
"""

MAX_TEXT = 8 * 1024
"""Maximum bytes of the text of a handler's reject (X-7); texts of routing are far shorter."""

MESSAGE_OVERHEAD = 256
"""Bytes counted for a message besides its payload (D-3)."""

MAX_RESPONSE = 2 * 1024 * 1024 + MESSAGE_OVERHEAD
"""Bytes of the largest response, reserved for every request (X-4)."""

NO_ROUTE = "No route to canister {}"
NOT_FOUND = REASON_TEXTS[RejectReason.CanisterNotFound]
TIMED_OUT = "Request timed out."


def induction_rejects(requests: Frame, reason: RejectReason) -> Frame:
    """Return the reject response of each request rejected at its receiver for ``reason`` (X-13)."""
    code, text = REASON_CODES[reason], REASON_TEXTS[reason]
    if reason != RejectReason.OutOfMemory:
        return reject_responses(requests, code, text)
    wanted = np.maximum(payload_lengths(requests) + np.uint64(MESSAGE_OVERHEAD), np.uint64(MAX_RESPONSE)).tolist()
    texts = pa.array([text.format(size).encode() for size in wanted], pa.binary())
    return reject_responses(requests, code, "").with_columns(payload=texts)


def truncate_reject_texts(messages: Frame) -> Frame:
    """Truncate the texts of rejects to ``MAX_TEXT`` bytes, at a character boundary."""
    code = messages["code"]
    if len(code) == 0 or not code.any():
        return messages
    long = np.flatnonzero((code != NO_REJECT) & (payload_lengths(messages) > MAX_TEXT))
    if len(long) == 0:
        return messages
    texts = messages["payload"].take(pa.array(long)).to_pylist()
    for row, text in enumerate(texts):
        end = MAX_TEXT
        while end and text[end] & 0xC0 == 0x80:
            end -= 1
        texts[row] = text[:end]
    return messages.with_columns(payload=replace_payloads(messages["payload"], long, texts))


def replace_payloads(payload: pa.BinaryArray, rows: Rows, texts: list[bytes]) -> pa.BinaryArray:
    """Replace the payloads of ``rows`` (few)."""
    # Append the new payloads and take each row's own.
    position = np.arange(len(payload))
    position[rows] = len(payload) + np.arange(len(rows))
    return pa.concat_arrays([payload, pa.array(texts, pa.binary())]).take(pa.array(position))


def reject_responses(requests: Frame, code: StreamRejectCode, text: str) -> Frame:
    """Return the reject response of each request, with all its cycles refunded.

    Args:
        requests: The requests (message columns).
        code: The reject code.
        text: The text; ``{}`` stands for the principal text of the request's receiver.
    """
    if "{}" in text:
        texts = [text.format(canister).encode() for canister in canister_texts(requests["receiver"])]
        payload = pa.array(texts, pa.binary())
    else:
        payload = repeat_bytes(text.encode(), len(requests))
    return blank_messages(
        len(requests),
        kind=int(Kind.RESPONSE),
        sender=requests["receiver"],
        receiver=requests["sender"],
        callback=requests["callback"],
        amount_high=requests["amount_high"],
        amount_low=requests["amount_low"],
        code=int(code),
        deadline=requests["deadline"],
        payload=payload,
    )


def reason_names(reasons: np.ndarray) -> pa.DictionaryArray:
    """Return the name of each verdict: ``ACCEPT`` or a ``RejectReason``."""
    return names_column(["ACCEPT", *(reason.name for reason in RejectReason)], reasons)


def reject_codes(reasons: np.ndarray) -> np.ndarray:
    """Return the reject code of each verdict; 0 for ``ACCEPT``."""
    codes: np.ndarray = np.zeros(1 + max(RejectReason), dtype=np.uint8)
    codes[list(REASON_CODES)] = list(REASON_CODES.values())
    found: np.ndarray = codes[reasons]
    return found
