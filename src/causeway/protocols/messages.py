"""Messages as columns: what travels between programs, in whatever protocol, and its place in a lane."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame

MESSAGE_FIELDS = [
    pa.field("kind", pa.uint8(), nullable=False),
    pa.field("sender", pa.uint64(), nullable=False),
    pa.field("receiver", pa.uint64(), nullable=False),
    pa.field("callback", pa.uint64(), nullable=False),
    pa.field("amount_high", pa.uint64(), nullable=False),
    pa.field("amount_low", pa.uint64(), nullable=False),
    pa.field("code", pa.uint8(), nullable=False),
    pa.field("deadline", pa.uint32(), nullable=False),
    pa.field("method", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("payload", pa.binary(), nullable=False),
]
"""A request's sender, receiver and attached cycles; a response's respondent (``sender``), originator (``receiver``)
and refund (``cycles``). ``code``: 0 = data, else the reject code, and ``payload`` is then the text. Ingress:
``sender`` is the user."""

MESSAGE_COLUMNS = [item.name for item in MESSAGE_FIELDS]

LANE_COLUMNS = ["chain", "remote", "substream", "index"]
"""The place of a message in a stream."""

QUEUED_SCHEMA = pa.schema(
    [
        *MESSAGE_FIELDS,
        pa.field("index", pa.uint64(), nullable=False),
        pa.field("sent_tick", pa.uint64(), nullable=False),
    ]
)
"""An element of an ingress, input or output queue; ``sent_tick`` is the tick it was sent (0 for ingress)."""

NO_QUEUE = 2**64 - 1
"""In a column of places in output queues: in none."""

STREAMED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("remote", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("index", pa.uint64(), nullable=False),
        *MESSAGE_FIELDS,
        pa.field("queue_index", pa.uint64(), nullable=False),
        pa.field("sent_tick", pa.uint64(), nullable=False),
    ]
)
"""A message in the stream from ``chain`` to ``remote``; ``queue_index``: its place in its output queue, ``NO_QUEUE``
for what came there another way: a reject that routing made, a response put back on its way, what a byzantine subnet
forged."""


def payload_lengths(messages: Frame) -> np.ndarray:
    """Return the length in bytes of each payload."""
    payload = messages["payload"]
    offsets = np.frombuffer(payload.buffers()[1], dtype=np.int32)[payload.offset : payload.offset + len(payload) + 1]
    return np.diff(offsets).astype(np.uint64) if len(payload) else np.empty(0, dtype=np.uint64)
