"""Describe leaves of a subnet's state in words: headers and messages of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from causeway_proofs.errors import CausewayError
from causeway_proofs.ic.messages import Data, Refund, Request, Response, StreamMessage, decode_stream_message
from causeway_proofs.ic.primitives import CertificationVersion, principal_to_text
from causeway_proofs.ic.slice_payload import STREAMS
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header
from causeway_proofs.ic.stream_tree import HEADER, MESSAGES_LABEL

Name = Callable[[bytes], str]
"""Returns the display name of a canister."""

_VERSIONS = sorted(CertificationVersion, reverse=True)


def read_leaf(path: Sequence[bytes], value: bytes) -> str:
    """Describe the leaf ``value`` at a path, if it is a header or message of a stream.

    Returns an empty text for other leaves.

    Only the bytes are certified, not the description.
    """
    for version in _VERSIONS:
        try:
            if len(path) == 3 and path[0] == STREAMS and path[2] == HEADER:
                return header_text(decode_stream_header(value, version))
            if len(path) == 4 and path[0] == STREAMS and path[2] == MESSAGES_LABEL:
                return message_text(decode_stream_message(value, version))
        except CausewayError:
            continue
    return ""


def header_text(header: StreamHeader) -> str:
    """Describe the header of a stream."""
    rejected = f", {len(header.reject_signals):,} rejected" if header.reject_signals else ""
    return f"begin {header.begin}, end {header.end}, signals_end {header.signals_end}{rejected}"


def message_text(message: StreamMessage, name: Name = principal_to_text) -> str:
    """Describe a message of a stream; ``name`` formats canister ids."""
    match message:
        case Request():
            ends, amount = (message.sender, message.receiver), message.cycles_payment
            callback = f", callback {message.sender_reply_callback}"
            text = f"method {message.method_name}, payload of {len(message.method_payload):,} bytes{callback}"
        case Response():
            ends, amount = (message.respondent, message.originator), message.cycles_refund
            callback = f", callback {message.originator_reply_callback}"
            answer = message.payload
            result_text = f"{len(answer.data):,} bytes" if isinstance(answer, Data) else f"reject {answer.code.name}"
            text = f"{result_text}{callback}"
        case Refund():
            return f"refund of {message.amount:,} cycles to {name(message.recipient)}"
    kind = type(message).__name__.lower()
    sender, receiver = (name(end) for end in ends)
    return f"{kind} from {sender} to {receiver}, {text}" + (f", {amount:,} cycles" if amount else "")
