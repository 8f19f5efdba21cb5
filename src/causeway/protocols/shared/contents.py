"""Messages between programs as SCALE: calls, and answers to them, for protocols whose messages are bytes.

Under xdm a call travels as a request of the programs' endpoint (``docs/protocols/xdm.md``, "Programs"). The program's
answer is the response's content where it answers in the same block; otherwise the response says ``Accepted``, and the
answer comes later, as a request of the same endpoint in the other direction, which nobody answers with anything. Under
icmp calls and answers are messages of egress queues alike.
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
from causeway.protocols.shared.messages import blank_messages, payload_lengths

CALL, ANSWER, ACCEPTED = 0, 1, 2
"""What a content is, by its variant."""

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
"""Bytes of a content besides a method's name and a payload, at most."""


def is_within_limit(messages: Frame, limit: int = MAX_DATA_BYTES) -> npt.NDArray[np.bool_]:
    """Return which messages (``MESSAGE_FIELDS``) are short enough for a content of at most ``limit`` bytes."""
    method = messages["method"]
    lengths = np.array([len(name.encode()) for name in method.dictionary.to_pylist()] or [0], dtype=np.int64)
    named = lengths[method.indices.to_numpy(zero_copy_only=False)]
    return np.asarray(named + payload_lengths(messages).astype(np.int64) + _BESIDE <= limit)


def oversize_text(limit: int = MAX_DATA_BYTES) -> str:
    """Return the text of the reject that takes the place of a longer answer: its call has been handled."""
    return f"an answer has at most {limit - _BESIDE} bytes"


def truncate_answers(answers: Frame, code: int, limit: int = MAX_DATA_BYTES) -> Frame:
    """Return answers with those that are too long in a form that says so; what they give back stays."""
    long = ~is_within_limit(answers, limit)
    if not long.any():
        return answers
    payload = pc.if_else(pa.array(long), pa.scalar(oversize_text(limit).encode(), pa.binary()), answers["payload"])
    return answers.with_columns(payload=payload, code=np.where(long, np.uint8(code), answers["code"]).astype(np.uint8))


def encode_contents(messages: Frame) -> pa.LargeBinaryArray:
    """Return the content of each message (``MESSAGE_FIELDS``): a call of a request, an answer of a response."""
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
    """Return the content that says that a call is taken, and answered later."""
    return pa.repeat(pa.scalar(_ACCEPTED, pa.large_binary()), count)


def decode_contents(contents: pa.LargeBinaryArray) -> tuple[np.ndarray, Frame]:
    """Return which variant each content is, -1 for what is none, and the messages (``MESSAGE_FIELDS``)."""
    decoded = _CONTENTS.decode(contents)
    rows = decoded.columns
    variant = rows["variant"].cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    amounts = to_limbs(rows["amount"].fill_null(bytes(16)))
    text = pc.is_valid(rows["method"])
    method = rows["method"].fill_null(b"")
    readable = _utf8(method)
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


def _utf8(column: pa.LargeBinaryArray) -> np.ndarray:
    """Return which values are texts."""
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
