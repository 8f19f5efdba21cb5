"""Pushes to queues, and what they leave: numbered entries, their leaves in the store, the runs they lie in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.errors import IndexOverflow
from causeway.model.frame import Frame, concat, empty_frame, repeated
from causeway.model.order import groups_of, lane_codes, stable_order
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.entries import entry_leaves
from causeway.protocols.ibc.keys import MAX_INDEX
from causeway.protocols.ibc.state import (
    LEAVES_SCHEMA,
    RECEIPT,
    RUNS_SCHEMA,
    State,
    keys_of,
    lane_keys,
)
from causeway.protocols.ibc.unordered import first_missing
from causeway.protocols.messages import NO_QUEUE, STREAMED_SCHEMA

ENTRIES_SCHEMA = pa.schema([*STREAMED_SCHEMA, pa.field("sent_height", pa.uint64(), nullable=False)])
"""An entry of the queue ``substream`` (0: receipts, 1: packets) of ``chain`` for ``remote``, or a local message.
``queue_index`` is its index again, or ``NO_QUEUE`` for a receipt that the protocol itself made and for a packet that a
byzantine zone forged."""


def push(state: State, sent: Frame, receipts: Frame, context: Context) -> tuple[State, Frame]:
    """Push packets and local messages, and write receipts into their slots.

    ``sent``: message columns with ``chain``, ``remote``, ``substream`` and ``of_program`` (whether a program made it),
    in the order of pushing; ``receipts``: likewise, with ``index``. Returns the state with the queues, leaves and runs
    after, and what is outbound (``ENTRIES_SCHEMA``). Raises ``IndexOverflow`` when a queue would reach ``MAX_INDEX``.
    """
    state, sent = _numbered(state, sent)
    outbound = concat([sent, receipts.select(sent.names)])
    if len(outbound) == 0:
        return state, empty_frame(ENTRIES_SCHEMA)
    outbound = outbound.with_columns(
        queue_index=np.where(outbound["of_program"], outbound["index"], np.uint64(NO_QUEUE)),
        sent_tick=repeated(np.uint64(context.tick), len(outbound)),
        sent_height=repeated(np.uint64(context.height), len(outbound)),
    )
    order = stable_order(outbound["remote"], outbound["chain"], outbound["substream"], outbound["index"])
    outbound = outbound.take(order).select(ENTRIES_SCHEMA.names)
    leaves, runs = _with_leaves(state.leaves, outbound, context), _with_runs(state, outbound, context)
    return replace(state, leaves=leaves, runs=runs), outbound


def _numbered(state: State, sent: Frame) -> tuple[State, Frame]:
    """Return the state with advanced tails of send queues and local lanes, and the messages with their ``index``."""
    if len(sent) == 0:
        return state, sent.with_columns(index=np.empty(0, dtype=np.uint64))
    sent = sent.take(stable_order(keys_of(sent)))
    groups = groups_of(keys_of(sent))
    rows = np.searchsorted(keys_of(state.queues), keys_of(sent)[groups.starts])
    tails = state.queues["next_index"].copy()
    first = tails[rows]
    tails[rows] += groups.counts.astype(np.uint64)
    if int(tails.max()) >= MAX_INDEX:
        raise IndexOverflow(f"a queue would reach index {MAX_INDEX}")
    sent = sent.with_columns(index=groups.spread(first) + groups.ranks().astype(np.uint64))
    return replace(state, queues=state.queues.with_columns(next_index=tails)), sent


def _with_leaves(leaves: Frame, outbound: Frame, context: Context) -> Frame:
    entries = outbound.filter(outbound["chain"] != outbound["remote"])
    if len(entries) == 0:
        return leaves
    digests = entry_leaves(entries, entries["remote"], context.zones, context.tick_ns)
    added = entries.select(["chain", "remote", "substream", "index"]).with_columns(digest=digests)
    joined = concat([leaves, added.select(LEAVES_SCHEMA.names)])
    return joined.take(stable_order(keys_of(joined), joined["index"]))


def _with_runs(state: State, outbound: Frame, context: Context) -> Frame:
    """Return ``runs`` with one run for each stretch of indices that a lane got now."""
    lane, index = keys_of(outbound), outbound["index"]
    stretch = index - np.arange(len(index), dtype=np.uint64)  # equal along consecutive indices of a lane
    groups = groups_of(lane, stretch)
    runs = outbound.select(["chain", "remote", "substream"]).take(groups.starts)
    runs = runs.with_columns(
        height=np.uint64(context.height),
        tick=np.uint64(context.tick),
        first=index[groups.starts],
        count=groups.counts.astype(np.uint64),
    )
    joined = concat([state.runs, runs.select(RUNS_SCHEMA.names)])
    return joined.take(stable_order(keys_of(joined), joined["first"]))


def without_finished(state: State) -> State:
    """Return the state without the runs that nobody will ask for: popped packets and local messages, and receipts that
    the remote zone has processed, as far as relayers saw."""
    runs = state.runs
    if len(runs) == 0:
        return state
    lane = np.searchsorted(keys_of(state.queues), keys_of(runs))
    done = state.queues["begin"][lane]
    receipts = np.flatnonzero((runs["substream"] == RECEIPT) & (runs["chain"] != runs["remote"]))
    connections = state.connections
    place = np.searchsorted(
        lane_codes(connections["chain"], connections["remote"]),
        lane_codes(runs["chain"][receipts], runs["remote"][receipts]),
    )
    done = done.copy()
    done[receipts] = np.maximum(done[receipts], connections["peer_done"][place])
    return replace(state, runs=runs.filter(runs["first"] + runs["count"] > done))


def with_ready(state: State, ordered: bool) -> State:
    """Return the state with ``ready`` of each queue: where its written entries end, in unordered queues where their
    first stretch without a gap does."""
    queues, slots = state.queues, state.slots
    ready = queues["next_index"]
    if not ordered:
        receipts = (queues["substream"] == RECEIPT) & (queues["chain"] != queues["remote"])
        ready = np.where(receipts, first_missing(queues, state.leaves), ready)
    if len(slots):
        ready = ready.copy()
        keys = lane_keys(slots["chain"], slots["remote"], RECEIPT)
        groups = groups_of(keys)  # by lane, then index: the first is the lowest
        rows = np.searchsorted(keys_of(queues), keys[groups.starts])
        ready[rows] = np.minimum(ready[rows], slots["index"][groups.starts])
    return replace(state, queues=queues.with_columns(ready=ready))


__all__ = ["ENTRIES_SCHEMA", "push", "with_ready", "without_finished"]
