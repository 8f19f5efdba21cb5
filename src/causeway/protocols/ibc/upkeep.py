"""What relayers submit besides messages: time-outs of what was not received, cleanups of what is settled, headers that
keep clients from expiring (IBC reference X-1, X-2, X-4).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from causeway.model.frame import Frame, empty_frame, repeated
from causeway.model.order import Rows, groups_of
from causeway.protocols.ibc.client import Clients, header_times, newest_times
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.inputs import has_expired
from causeway.protocols.ibc.judge import Expired
from causeway.protocols.ibc.keys import Part
from causeway.protocols.ibc.seen import NO_PROOF, SUBMISSIONS_SCHEMA, Alteration, Call, Seen
from causeway.protocols.ibc.state import FROZEN, RECEIPT, SEND, State, keys_of, lane_keys, lane_positions
from causeway.protocols.ibc.values import binary_lengths

REFRESH = 3
"""A client is brought a new header after this part of the unbonding period."""


def timeouts(state: State, seen: Seen, mine: Frame, everything: Frame, relayer: int, context: Context) -> Frame:
    """Return the time-outs of a relayer: for packets that the remote header shows to be expired and not received.

    Only once all receipts that the remote zone has are submitted, too (``mine``), so that the first packet not received
    is at the head of the queue. ``everything``: the offered queues with ``expected``.
    """
    lanes = everything.filter(everything["substream"] == RECEIPT)
    taken = _submitted_until(mine, lanes)
    settled = (lanes["ready"] == lanes["next_index"]) & (taken == np.maximum(lanes["ready"], lanes["expected"]))
    proof = _proofs_of(seen, lanes, Part.TAIL)
    lanes, proof = lanes.filter(settled & (proof >= 0)), proof[settled & (proof >= 0)]
    begin = np.maximum(lanes["expected"], lanes["next_index"])
    end = expired_until(state, lanes, seen, context)
    kept = end > begin
    return _rows(lanes, np.flatnonzero(kept), Call.TIMEOUT, begin, end, proof, relayer)


def _submitted_until(mine: Frame, lanes: Frame) -> Any:
    """Return for each receipt queue where what is submitted of it ends, ``expected`` where nothing is."""
    receipts = mine.filter(mine["call"] == Call.RECEIPT)
    until = lanes["expected"].copy()
    if len(receipts):
        groups = groups_of(keys_of(receipts))
        rows = np.searchsorted(keys_of(lanes), keys_of(receipts)[groups.starts])
        until[rows] = receipts["end"][groups.starts + groups.counts - 1]
    return until


def expired_until(state: State, lanes: Frame, seen: Seen, context: Context) -> Any:
    """Return for each connection of ``lanes`` the end of our packets that are past their limits at the remote header.

    Packets of one queue expire in their order. 0 where none has.
    """
    runs = state.runs.filter(state.runs["substream"] == SEND)
    now = header_times(seen.headers)
    at = np.array([now.get(remote, 0) for remote in runs["remote"].tolist()], dtype=np.uint64)
    late = runs.filter(has_expired(runs["height"], runs["tick"], np.uint64(context.height - 1), at, context))
    end = np.zeros(len(lanes), dtype=np.uint64)
    if len(late):
        keys = lane_keys(lanes["chain"], lanes["remote"], SEND)
        groups = groups_of(keys_of(late))
        last = groups.starts + groups.counts - 1
        place = np.searchsorted(keys, keys_of(late)[last])
        known = place < len(keys)
        known[known] &= keys[place[known]] == keys_of(late)[last][known]
        end[place[known]] = (late["first"] + late["count"])[last][known]
    return end


def expiry(state: State, clients: Clients, context: Context) -> Expired:
    """Return what says how far our packets in a queue have expired by a trusted header of the remote chain."""
    keys = keys_of(state.runs)

    @cache  # as many time-outs as one likes may be submitted under one header
    def expired(chain: int, remote: int, height: int) -> int:
        if not context.options.limited:
            return 0
        key = lane_keys(np.array([chain]), np.array([remote]), SEND)
        start, stop = int(np.searchsorted(keys, key)[0]), int(np.searchsorted(keys, key, side="right")[0])
        runs = state.runs.slice(start, stop)
        now = np.uint64(clients.time(chain, remote, height))
        late = np.flatnonzero(has_expired(runs["height"], runs["tick"], np.uint64(height), now, context))
        return int(runs["first"][late[-1]] + runs["count"][late[-1]]) if len(late) else 0

    return expired


def cleanups(state: State, seen: Seen, everything: Frame, relayer: int) -> Frame:
    """Return the cleanups of a relayer: of receipt queues whose packets the remote zone has popped."""
    lanes = everything.filter(everything["substream"] == SEND)
    own = lane_positions(state.queues, lanes["chain"], lanes["remote"], RECEIPT)
    head = state.queues["begin"][own]
    proof = _proofs_of(seen, lanes, Part.HEAD)
    popped = np.where(proof >= 0, seen.proofs["first"][np.maximum(proof, 0)], 0) if len(seen.proofs) else head
    kept = (proof >= 0) & (popped > head)
    return _rows(lanes, np.flatnonzero(kept), Call.CLEANUP, head, popped, proof, relayer)


def asked_positions(state: State, seen: Seen, context: Context) -> list[tuple[Part, Frame]]:
    """Return the queues of which relayers may want the head or the tail proved.

    The tail of a receipt queue to whose zone, as relayers saw, packets are on their way; the head of a send queue that
    is past the head of the remote receipt queue.
    """
    asked = []
    queues = state.queues
    apart = (queues["chain"] != queues["remote"]) & np.isin(queues["chain"], context.chains)
    if context.options.limited:
        lanes = queues.filter(apart & (queues["substream"] == RECEIPT))
        begin, end = seen.positions(lanes["chain"], lanes["remote"], SEND)
        asked.append((Part.TAIL, lanes.filter(end > begin)))
    if context.options.cleanup == "on":
        lanes = queues.filter(apart & (queues["substream"] == SEND))
        begin, _ = seen.positions(lanes["chain"], lanes["remote"], RECEIPT)
        asked.append((Part.HEAD, lanes.filter(lanes["begin"] > begin)))
    return [(part, lanes.select(["chain", "remote", "substream"])) for part, lanes in asked]


def refreshes(state: State, seen: Seen, relayer: int, context: Context) -> Frame:
    """Return the headers that a relayer brings alone, so that no client expires where nothing is relayed (X-4).

    Of open connections whose newest trusted header is a third of the unbonding period old, and not yet too old: if it
    is younger now, it is less than two thirds old in the next block, however many ticks come between
    (``longest_pause``). Partners share the remote zones.
    """
    connections, options = state.connections, context.options
    period = options.unbonding_ns
    if len(connections) == 0 or context.time * REFRESH < period:
        return empty_frame(SUBMISSIONS_SCHEMA)
    newest = newest_times(state)
    signed = seen.headers["chain"][binary_lengths(seen.headers["certification"]) > 0]
    due = (newest + np.uint64(period // REFRESH) <= np.uint64(context.time)) & (connections["frozen"] != FROZEN)
    due &= newest + np.uint64(period) > np.uint64(context.time)
    due &= np.isin(connections["remote"], signed) & np.isin(connections["chain"], context.chains)
    if options.relay.coordination == "partition":
        due &= connections["remote"] % np.uint32(len(options.relayers)) == relayer
    elif options.relay.coordination == "leader" and relayer:
        due[:] = False
    rows = connections.select(["chain", "remote"]).filter(due)
    zero = repeated(np.uint64(0), len(rows))
    rows = rows.with_columns(substream=repeated(np.uint64(RECEIPT), len(rows)), begin=zero, end=zero)
    none = repeated(np.int64(NO_PROOF), len(rows))
    return _rows(rows, np.arange(len(rows)), Call.UPDATE, zero, zero, none, relayer)


def _proofs_of(seen: Seen, lanes: Frame, part: Part) -> Rows:
    """Return the row of the proof of each queue's head or tail among the proofs seen, -1 where there is none."""
    rows = np.flatnonzero(seen.proofs["part"] == part)
    found = lane_positions(seen.proofs.take(rows), lanes["chain"], lanes["remote"], lanes["substream"])
    return np.where(found >= 0, rows[np.maximum(found, 0)], -1) if len(rows) else np.full(len(lanes), -1)


def _rows(lanes: Frame, kept: Rows, call: Call, begin: Any, end: Any, proof: Rows, relayer: int) -> Frame:
    return (
        lanes.select(["chain", "remote", "substream"])
        .take(kept)
        .with_columns(
            relayer=repeated(np.uint32(relayer), len(kept)),
            call=repeated(np.uint8(call), len(kept)),
            begin=begin[kept],
            end=end[kept],
            alteration=repeated(np.uint8(Alteration.NONE), len(kept)),
            proof=proof[kept].astype(np.int64),
        )
    )
