"""Pushes to input queues: whatever brings a message to a canister, all are numbered by the same few lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.index import MAX_INDEX
from causeway.model.ledger import NO_CHAIN, Via
from causeway.model.order import groups_of, stable_order
from causeway.protocols.ic.state import State
from causeway.protocols.messages import LANE_COLUMNS, MESSAGE_COLUMNS, STREAMED_SCHEMA

ARRIVAL_SCHEMA = pa.schema(
    [
        *(STREAMED_SCHEMA.field(name) for name in [*LANE_COLUMNS, *MESSAGE_COLUMNS]),
        pa.field("via", pa.uint8(), nullable=False),
    ]
)
"""A push to an input queue: the message, where it came from (``remote`` is ``NO_CHAIN`` when from no lane), and by
which way."""

INGRESS_ARRIVAL_SCHEMA = pa.schema([STREAMED_SCHEMA.field(name) for name in ["chain", *MESSAGE_COLUMNS, "queue_index"]])
"""A push to an ingress queue."""

OUTGOING_SCHEMA = pa.schema([*(STREAMED_SCHEMA.field(name) for name in ["chain", *MESSAGE_COLUMNS, "sent_tick"])])
"""A message that routing itself appends to a stream: ``chain`` is the subnet that sends it on."""


def as_arrivals(responses: Frame, hosts: np.ndarray, via: Via) -> Frame:
    """Return rows of ``ARRIVAL_SCHEMA`` for responses that routing made at ``hosts``."""
    return responses.with_columns(
        chain=hosts.astype(np.uint32),
        remote=np.uint32(NO_CHAIN),
        substream=np.uint64(0),
        index=np.uint64(0),
        via=np.uint8(via),
    ).select(ARRIVAL_SCHEMA.names)


def push_arrivals(state: State, arrivals: Frame) -> tuple[State, Frame]:
    """Push arrivals to their input queues in row order; returns the state and the arrivals with ``queue_index``."""
    if len(arrivals) == 0:
        return state, arrivals.with_columns(queue_index=np.uint64(0))
    queues = state.input_queues
    index, counters = queues.counters.push(arrivals["receiver"], arrivals["sender"])
    numbered = arrivals.select(MESSAGE_COLUMNS).with_columns(index=index)
    merged = replace(queues, counters=counters).merge(numbered)
    return replace(state, input_queues=merged), arrivals.with_columns(queue_index=index)


def push_strays(state: State, arrivals: Frame) -> tuple[State, Frame]:
    """Enqueue arrivals where nobody will execute them; returns the state and the arrivals with ``queue_index``."""
    if len(arrivals) == 0:
        return state, arrivals.with_columns(queue_index=np.uint64(0))
    queue = ("chain", "receiver", "sender")
    numbered = arrivals.with_columns(index=np.uint64(MAX_INDEX)).select(state.strays.names)
    # The new ones come last in each queue, in the order of pushing; queues lose nothing, so a rank is an index.
    joined = concat([state.strays, numbered])
    order = stable_order(*(joined[key] for key in queue))
    joined = joined.take(order)
    ranks = groups_of(*(joined[key] for key in queue)).ranks().astype(np.uint64)
    index = ranks + np.uint64(state.lanes.base)
    place = np.empty(len(order), dtype=np.uint64)
    place[order] = index
    arrivals = arrivals.with_columns(queue_index=place[len(state.strays) :])
    return replace(state, strays=joined.with_columns(index=index)), arrivals
