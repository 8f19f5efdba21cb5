"""Reading protobuf messages from strangers: bounded, and in one form only.

Protobuf has many encodings of one message: unknown fields, repeated scalars, padded integers. A proof that may be
rewritten without becoming another proof cannot be told apart from a tampered one, so only the form that the deployed
encoders write is read.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, EncodeError, Message

from causeway.proofs.errors import MalformedProof
from causeway.proofs.limits import MAX_MESSAGE_BYTES, require_length

M = TypeVar("M", bound=Message)


def parse_canonical(message_type: type[M], data: bytes, what: str, limit: int = MAX_MESSAGE_BYTES) -> M:
    """Return the message that ``data`` is the canonical encoding of: fields ascending, no unknown ones, no padding.

    Raises:
        OverLimit: ``data`` is longer than ``limit`` bytes.
        MalformedProof: it is no such message, or not its canonical encoding; the text says which, of ``what``.
    """
    require_length(data, what, limit)
    message = message_type()
    try:
        message.ParseFromString(data)
        # Unknown fields would be kept and written back.
        message.DiscardUnknownFields()
        canonical = message.SerializeToString(deterministic=True)
    except (DecodeError, EncodeError, UnicodeDecodeError) as error:
        # The library's pure Python form lets what is wrong with text through as it is.
        raise MalformedProof(f"{what} is no protobuf message {message_type.DESCRIPTOR.full_name}") from error
    if canonical != data:
        raise MalformedProof(f"{what} is not in the canonical encoding of {message_type.DESCRIPTOR.full_name}")
    return message
