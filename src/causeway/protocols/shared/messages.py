"""Messages as columns, in every protocol, their positions in lanes, and segments of lanes.

A segment is a run of entries that one chain appended at one height.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, empty_frame, repeat_bytes, repeat_text, repeat_value
from causeway.core.joins import encode_keys, expand_ranges
from causeway.protocols.contract import BYTES, RANGES_SCHEMA, TEXT, UINT8, UINT32, UINT64, table_schema

MESSAGE_FIELDS = [
    *table_schema(kind=UINT8, sender=UINT64, receiver=UINT64, callback=UINT64, amount_high=UINT64, amount_low=UINT64),
    *table_schema(code=UINT8, deadline=UINT32, method=pa.dictionary(pa.int32(), TEXT), payload=BYTES),
]
"""The fields of a message.

A request has sender, receiver and attached amount of value; a response its respondent (``sender``), originator
(``receiver``) and refund (``amount``). ``code``: 0 = data, else the reject code, with the text in ``payload``. For
ingress, ``sender`` is the user.
"""

MESSAGE_COLUMNS = [item.name for item in MESSAGE_FIELDS]

LANE = ("source", "destination", "substream")
"""The key of a lane: its ends and its number between them."""

LANE_COLUMNS = [*LANE, "index"]
"""The position of a message in a lane."""

LANE_FIELDS = [*table_schema(source=UINT32, destination=UINT32, substream=UINT64)]

QUEUED_SCHEMA = table_schema(*MESSAGE_FIELDS, index=UINT64, sent_tick=UINT64)
"""An element of an ingress, input or output queue.

``sent_tick`` is its tick (0 for ingress).
"""

NO_QUEUE = 2**64 - 1
"""Index in an output queue of a message in none."""

FORGED = 2**64 - 2
"""Index in an output queue of a message forged by a byzantine chain."""

OUTBOUND_SCHEMA = table_schema(
    *LANE_FIELDS, *table_schema(index=UINT64), *MESSAGE_FIELDS, queue_index=UINT64, sent_tick=UINT64
)
"""A message in a lane from ``source`` to ``destination``.

``queue_index``: its index in its output queue; ``NO_QUEUE`` for a reject of routing or a forwarded response; ``FORGED``
for a forged message.
"""


def message_columns(messages: Frame) -> dict[str, Any]:
    """Return the columns of ``MESSAGE_FIELDS`` by name."""
    return {name: messages[name] for name in MESSAGE_COLUMNS}


def blank_messages(length: int, **columns: Any) -> Frame:
    """Return messages with some columns given and the others zero or empty.

    Args:
        length: The number of messages.
        columns: Columns, or one value for all rows. Columns beyond ``MESSAGE_FIELDS`` are appended.
    """
    remaining = {name: _column(name, value, length) for name, value in columns.items()}
    messages = {name: remaining.pop(name) if name in remaining else _zeros(name, length) for name in MESSAGE_COLUMNS}
    return Frame({**messages, **remaining}, length)


def _zeros(name: str, length: int) -> Any:
    if name in _NUMBERS:
        return repeat_value(_NUMBERS[name](0), length)
    return repeat_text("", length) if name == "method" else repeat_bytes(b"", length)


def _column(name: str, value: Any, length: int) -> Any:
    if isinstance(value, str):
        return repeat_text(value, length)
    if isinstance(value, bytes):
        return repeat_bytes(value, length)
    if isinstance(value, int) and name in _NUMBERS:
        return repeat_value(_NUMBERS[name](value), length)
    return value if hasattr(value, "__len__") else repeat_value(value, length)


_NUMBERS = {item.name: item.type.to_pandas_dtype() for item in MESSAGE_FIELDS if pa.types.is_integer(item.type)}


def payload_lengths(messages: Frame) -> np.ndarray:
    """Return the length of each payload in bytes, uint64."""
    payload = messages["payload"]
    offsets = np.frombuffer(payload.buffers()[1], dtype=np.int32)[payload.offset : payload.offset + len(payload) + 1]
    return np.diff(offsets).astype(np.uint64) if len(payload) else np.empty(0, dtype=np.uint64)


def method_lengths(messages: Frame) -> np.ndarray:
    """Return the length of each method's name in bytes, uint64."""
    method = messages["method"]
    names = np.array([len(name.as_py().encode()) for name in method.dictionary] or [0], dtype=np.uint64)
    found: np.ndarray = names[method.indices.to_numpy(zero_copy_only=False)]
    return found


def locate_ranges(ranges: Frame, segments: Frame) -> Frame:
    """Split ranges of lanes at the segments that hold them.

    Args:
        ranges: Lane, ``begin``, ``end``; any number a lane, each inside the segments.
        segments: Lane, ``height``, ``first``, ``count``; gapless and ascending in each lane.

    Returns:
        Ranges with heights (``RANGES_SCHEMA``).
    """
    ranges = ranges.filter(ranges["end"] > ranges["begin"])
    if len(ranges) == 0:
        return empty_frame(RANGES_SCHEMA)
    starts = segments.select([*LANE, "first"])
    lanes = ranges.select(LANE)
    first, begin, last = encode_keys(
        (*LANE, "first"),
        starts,
        lanes.with_columns(first=ranges["begin"]),
        lanes.with_columns(first=ranges["end"] - np.uint64(1)),
    )
    order = np.argsort(first, kind="stable")
    low = np.searchsorted(first[order], begin, side="right") - 1
    high = np.searchsorted(first[order], last, side="right")
    wanted, position = expand_ranges(low, high)
    rows = order[position]
    cut = segments.select([*LANE, "height"]).take(rows)
    return cut.with_columns(
        begin=np.maximum(ranges["begin"][wanted], segments["first"][rows]),
        end=np.minimum(ranges["end"][wanted], (segments["first"] + segments["count"])[rows]),
    )


def oldest_height(segments: Frame) -> int | None:
    """Return the lowest height with entries in a lane, or None."""
    return int(segments["height"].min()) if len(segments) else None
