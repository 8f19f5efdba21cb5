"""Messages between programs in SCALE: calls and answers.

Under xdm a call is a request to the programs' endpoint ("Programs" in ``docs/explanation/protocols/xdm.md``). An answer
in the same block is the response's content. Otherwise the response says ``Accepted``, and the answer follows as a
request to the same endpoint in the other direction, without a response. Under icmp calls and answers are messages of
egress queues.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.substrate import ScaleColumns, ScaleTypes, enum, limbs_column, struct, to_limbs

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind
from causeway.protocols.shared.limits import MAX_DATA_BYTES
from causeway.protocols.shared.messages import blank_messages, method_lengths, payload_lengths

CALL, ANSWER, ACCEPTED = 0, 1, 2
"""The variants of a content."""

_TYPES = ScaleTypes(
    {
        "Call": struct(
            ("callback", "u64"),
            ("sender", "u64"),
            ("receiver", "u64"),
            ("amount", "u128"),
            ("deadline", "u32"),
            ("method", "Vec<u8>"),
            ("payload", "Vec<u8>"),
        ),
        "Answer": struct(
            ("callback", "u64"),
            ("sender", "u64"),
            ("receiver", "u64"),
            ("amount", "u128"),
            ("code", "u8"),
            ("payload", "Vec<u8>"),
        ),
        "Content": enum(("Call", "Call"), ("Answer", "Answer"), "Accepted"),
    }
)

_CONTENTS = ScaleColumns(
    _TYPES,
    "Content",
    "a content of the programs' endpoint",
    MAX_DATA_BYTES,
    names={"Call": "", "Answer": ""},
    tags={"Content": "variant"},
)

_ACCEPTED = bytes([ACCEPTED])

_BESIDE = 64
"""Maximum bytes of a content besides the method's name and the payload."""


def is_within_limit(messages: Frame, limit: int = MAX_DATA_BYTES) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages that fit a content.

    Args:
        messages: The messages (``MESSAGE_FIELDS``).
        limit: The maximum size of a content in bytes.
    """
    lengths = (method_lengths(messages) + payload_lengths(messages)).astype(np.int64)
    return np.asarray(lengths + _BESIDE <= limit)


def oversize_text(limit: int = MAX_DATA_BYTES) -> str:
    """Return the text of the reject that replaces an oversized answer to a handled call."""
    return f"an answer has at most {limit - _BESIDE} bytes"


def truncate_answers(answers: Frame, code: int, limit: int = MAX_DATA_BYTES) -> Frame:
    """Replace oversized answers by rejects; refunds stay.

    Args:
        answers: The answers (``MESSAGE_FIELDS``).
        code: The code of the rejects.
        limit: The maximum size of a content in bytes.
    """
    long = ~is_within_limit(answers, limit)
    if not long.any():
        return answers
    payload = pc.if_else(pa.array(long), pa.scalar(oversize_text(limit).encode(), pa.binary()), answers["payload"])
    return answers.with_columns(payload=payload, code=np.where(long, np.uint8(code), answers["code"]).astype(np.uint8))


def encode_contents(messages: Frame) -> pa.LargeBinaryArray:
    """Encode messages (``MESSAGE_FIELDS``): requests as calls, responses as answers."""
    calls = messages["kind"] == Kind.REQUEST
    amounts = np.stack([messages["amount_low"], messages["amount_high"]], axis=1)
    method = messages["method"].dictionary_decode().cast(pa.large_binary())
    columns = {
        "variant": pa.array(np.where(calls, CALL, ANSWER).astype(np.uint8)),
        "callback": pa.array(messages["callback"]),
        "sender": pa.array(messages["sender"]),
        "receiver": pa.array(messages["receiver"]),
        "amount": limbs_column(amounts),
        "deadline": pa.array(messages["deadline"], mask=~calls),
        "code": pa.array(messages["code"], mask=calls),
        "method": pc.if_else(pa.array(calls), method, pa.scalar(None, pa.large_binary())),
        "payload": messages["payload"].cast(pa.large_binary()),
    }
    return _CONTENTS.encode(columns)


def acceptance_content(count: int) -> pa.LargeBinaryArray:
    """Return the content that accepts a call for a later answer, ``count`` times."""
    return pa.repeat(pa.scalar(_ACCEPTED, pa.large_binary()), count)


def decode_contents(contents: pa.LargeBinaryArray) -> tuple[np.ndarray, Frame]:
    """Decode contents into variants and messages (``MESSAGE_FIELDS``).

    The variant of an invalid content is -1.
    """
    decoded = _CONTENTS.decode(contents)
    rows = decoded.columns
    variant = rows["variant"].cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    amounts = to_limbs(rows["amount"].fill_null(bytes(16)))
    text = pc.is_valid(rows["method"])
    method = rows["method"].fill_null(b"")
    readable = _is_utf8(method)
    variant = np.where((variant == CALL) & ~(readable & text.to_numpy(zero_copy_only=False)), -1, variant)
    count = len(variant)
    messages = blank_messages(
        count,
        kind=np.where(variant == CALL, np.uint8(Kind.REQUEST), np.uint8(Kind.RESPONSE)),
        sender=_numbers(rows["sender"], np.uint64),
        receiver=_numbers(rows["receiver"], np.uint64),
        callback=_numbers(rows["callback"], np.uint64),
        amount_high=amounts[:, 1].copy(),
        amount_low=amounts[:, 0].copy(),
        code=_numbers(rows["code"], np.uint8),
        deadline=_numbers(rows["deadline"], np.uint32),
        method=pc.if_else(pa.array(readable), method, pa.scalar(b"", pa.large_binary()))
        .cast(pa.binary())
        .cast(pa.string())
        .dictionary_encode(),
        payload=rows["payload"].fill_null(b"").cast(pa.binary()),
    )
    return variant, messages


def _is_utf8(column: pa.LargeBinaryArray) -> np.ndarray:
    """Return a mask of the values that are valid UTF-8."""
    distinct = column.dictionary_encode()
    readable = []
    for value in distinct.dictionary.to_pylist():
        try:
            value.decode()
            readable.append(True)
        except UnicodeDecodeError:
            readable.append(False)
    table = np.array(readable or [True])
    return np.asarray(table[distinct.indices.to_numpy(zero_copy_only=False)]) if len(column) else np.ones(0, dtype=bool)


def _numbers(column: pa.Array, kind: type[np.generic]) -> np.ndarray:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False).astype(kind))
