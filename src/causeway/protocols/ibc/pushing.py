"""Pushes to queues, and what they leave: numbered entries, their leaves in the store, the runs they lie in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, repeated
from causeway.model.joins import stretches
from causeway.model.order import groups_of, stable_order
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.entries import entry_digests
from causeway.protocols.ibc.expiry import height_limits
from causeway.protocols.ibc.leaves import LEAVES_SCHEMA
from causeway.protocols.ibc.state import (
    RECEIPT,
    RECEIPTS_SCHEMA,
    RUNS_SCHEMA,
    State,
    slot_entries,
)
from causeway.protocols.ibc.unordered import first_missing
from causeway.protocols.messages import LANE, LANE_COLUMNS, NO_QUEUE, OUTBOUND_SCHEMA

ENTRIES_SCHEMA = pa.schema(
    [
        *OUTBOUND_SCHEMA,
        pa.field("sent_height", pa.uint64(), nullable=False),
        pa.field("max_height", pa.uint64(), nullable=False),
    ]
)
"""An entry of the queue ``substream`` (0: receipts, 1: packets) of ``source`` for ``destination``, or a local message.
``max_height``: the height of the destination after which a packet has expired, ``NO_LIMIT`` for none.
``queue_index`` is its index again, or ``NO_QUEUE`` for a receipt that the protocol itself made and for a packet that a
byzantine zone forged."""


def push(state: State, sent: Frame, receipts: Frame, context: Context) -> tuple[State, Frame]:
    """Push packets and local messages, and write receipts at the indices that they have already.

    ``sent``: message columns with their lane and ``of_program`` (whether a program made it), in the order of pushing;
    ``receipts``: likewise, with ``index``. Returns the state with the queues after, and what is outbound
    (``ENTRIES_SCHEMA``). Raises ``IndexOverflow`` when a queue would reach ``MAX_INDEX``.
    """
    index, queues = state.queues.number(sent)
    sent = sent.with_columns(index=index)
    outbound = concat([sent, receipts.select(sent.names)])
    if len(outbound) == 0:
        return state, empty_frame(ENTRIES_SCHEMA)
    outbound = outbound.with_columns(
        queue_index=np.where(outbound["of_program"], outbound["index"], np.uint64(NO_QUEUE)),
        sent_tick=repeated(np.uint64(context.tick), len(outbound)),
        sent_height=repeated(np.uint64(context.height), len(outbound)),
        max_height=height_limits(outbound, state.connections, context.options),
    )
    order = stable_order(*(outbound[name] for name in ("destination", "source", "substream", "index")))
    outbound = outbound.take(order).select(ENTRIES_SCHEMA.names)
    leaves, written = _leaves(outbound, context)
    queues = queues.add_segments(_runs(outbound, context))
    receipts = state.receipts
    if len(written):
        receipts = concat([receipts, written])
        receipts = receipts.take(stable_order(*(receipts[name] for name in LANE_COLUMNS)))
    return replace(state, queues=queues, leaves=state.leaves.merge(leaves), receipts=receipts), outbound


def _leaves(outbound: Frame, context: Context) -> tuple[Frame, Frame]:
    """Return the leaves (``LEAVES_SCHEMA``) of what is in a store, and the receipts (``RECEIPTS_SCHEMA``) of which the
    values are kept."""
    entries = outbound.filter(outbound["source"] != outbound["destination"])
    if len(entries) == 0:
        return empty_frame(LEAVES_SCHEMA), empty_frame(RECEIPTS_SCHEMA)
    values, digests = entry_digests(entries, context.zones, context.tick_ns)
    leaves = entries.with_columns(digest=digests).select(LEAVES_SCHEMA.names)
    if not context.options.absence:
        return leaves, empty_frame(RECEIPTS_SCHEMA)
    receipts = entries.with_columns(value=values).select(RECEIPTS_SCHEMA.names)
    return leaves, receipts.filter(receipts["substream"] == RECEIPT)


def _runs(outbound: Frame, context: Context) -> Frame:
    """Return one run (``RUNS_SCHEMA``) for each stretch of indices that a lane got now."""
    at, first, end = stretches(outbound["index"], *(outbound[name] for name in LANE))
    runs = outbound.select(LANE).take(at)
    return runs.with_columns(
        height=np.uint64(context.height),
        tick=np.uint64(context.tick),
        first=first,
        count=end - first,
        max_height=outbound["max_height"][at],
    ).select(RUNS_SCHEMA.names)


def with_ready(state: State, before: State, ordered: bool) -> State:
    """Return the state with ``ready`` of each queue: where its written entries end, in unordered queues where their
    first stretch without a gap does; ``before``: the state that the block began with."""
    queues = state.queues
    ready = queues.counters["next_index"] if ordered else first_missing(state, before)
    unwritten = slot_entries(state)
    if len(unwritten):
        ready = ready.copy()
        first = unwritten.take(groups_of(*(unwritten[name] for name in LANE)).starts)  # the lowest of each lane
        rows = queues.positions(first)
        ready[rows] = np.minimum(ready[rows], first["index"])
    return replace(state, queues=queues.with_counters(ready=ready))


__all__ = ["ENTRIES_SCHEMA", "push", "with_ready"]
