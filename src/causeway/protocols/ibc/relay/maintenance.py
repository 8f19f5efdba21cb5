"""Relayers' submissions besides messages: timeouts, cleanups, and header refreshes.

Reference:
    IBC reference X-1, X-2, X-4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.order import Rows, group_rows
from causeway_proofs.tendermint.trust import is_period_over

from causeway.core.frame import Frame, empty_frame, repeat_value
from causeway.core.joins import expand_ranges, lookup_rows, merge_ranges
from causeway.protocols.ibc.client import newest_times
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.expiry import expired_parts, expired_prefix_ends
from causeway.protocols.ibc.keys import KeyPart
from causeway.protocols.ibc.packets import binary_lengths
from causeway.protocols.ibc.relayer_view import NO_PROOF, SUBMISSIONS_SCHEMA, Alteration, RelayerView, SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, SEND, State, is_frozen, lanes_of, reverse_lanes
from causeway.protocols.shared.messages import LANE

REFRESH = 3
"""The part of the unbonding period after which relayers refresh a client: one third."""


def plan_timeouts(
    state: State, seen: RelayerView, mine: Frame | None, everything: Frame, relayer: int, context: Context
) -> Frame:
    """Return a relayer's timeouts of packets.

    The remote header shows them to be expired and not received.

    The first unreceived packet must be at the head of the queue, so all receipts of the remote zone are submitted
    first.

    Args:
        state: The state.
        seen: The relayers' view.
        mine: The relayer's other submissions; None if all receipts count as submitted.
        everything: The offered queues with ``expected``.
        relayer: The relayer.
        context: The metadata of the block.
    """
    lanes = everything.filter(everything["substream"] == RECEIPT)
    settled = lanes["ready"] == lanes["next_index"]
    if mine is not None:
        # The end of the submitted receipts of each queue, else `expected`.
        receipts = mine.filter(mine["call"] == SubmissionKind.RECEIPT)
        until = lanes["expected"].copy()
        if len(receipts):
            groups = group_rows(*(receipts[name] for name in LANE))
            rows = lookup_rows(lanes, receipts.select(LANE).take(groups.starts), LANE)
            until[rows] = receipts["end"][groups.starts + groups.counts - 1]
        settled &= until == np.maximum(lanes["ready"], lanes["expected"])
    proof = _proofs_of(seen, lanes, KeyPart.TAIL)
    lanes, proof = lanes.filter(settled & (proof >= 0)), proof[settled & (proof >= 0)]
    begin = np.maximum(lanes["expected"], lanes["next_index"])
    own = reverse_lanes(lanes, SEND)
    end = expired_prefix_ends(state, own, begin, seen, context)
    is_expired = end > begin
    return _rows(lanes, np.flatnonzero(is_expired), SubmissionKind.TIMEOUT, begin, end, proof, relayer)


def plan_absence_timeouts(state: State, seen: RelayerView, everything: Frame, relayer: int, context: Context) -> Frame:
    """Return a relayer's timeouts in unordered queues (X-6).

    They are of pending packets that the remote header shows to be expired, and that provably have no receipt.
    """
    gap_rows = np.flatnonzero(
        (seen.proofs["part"] == KeyPart.ABSENT) & (lookup_rows(everything, seen.proofs, LANE) >= 0)
    )
    gaps = seen.proofs.take(gap_rows)
    own = reverse_lanes(gaps, SEND)
    missing = own.with_columns(begin=gaps["first"], end=gaps["first"] + gaps["count"])
    gap, *ends = expired_parts(state, missing, seen, context)
    lanes = own.take(gap)
    part, rank = expand_ranges(*(state.leaves.ranks(lanes, index) for index in ends))
    gap, index = gap[part], state.leaves.at(lanes.take(part), rank)
    at, begin, end = merge_ranges(index, gap)
    of_gap, each = gap[at], np.arange(len(at))
    return _rows(gaps.take(of_gap), each, SubmissionKind.TIMEOUT, begin, end, gap_rows[of_gap], relayer)


def plan_cleanups(state: State, seen: RelayerView, everything: Frame, relayer: int) -> Frame:
    """Return a relayer's cleanups: of receipt queues whose packets the remote zone has popped."""
    lanes = everything.filter(everything["substream"] == SEND)
    head = state.queues.read_counters("begin", reverse_lanes(lanes, RECEIPT))
    proof = _proofs_of(seen, lanes, KeyPart.HEAD)
    popped = np.where(proof >= 0, seen.proofs["first"][np.maximum(proof, 0)], 0) if len(seen.proofs) else head
    is_behind = (proof >= 0) & (popped > head)
    return _rows(lanes, np.flatnonzero(is_behind), SubmissionKind.CLEANUP, head, popped, proof, relayer)


def requested_positions(state: State, seen: RelayerView, context: Context) -> list[tuple[KeyPart, Frame]]:
    """Return the queues whose head or tail relayers may need proved.

    They are the tails of receipt queues with packets in flight, and the heads of send queues that are ahead of the
    remote receipt queue.
    """
    requested = []
    queues = state.queues.counters
    is_remote = (queues["source"] != queues["destination"]) & np.isin(queues["source"], context.chains)
    if context.options.limited and not context.options.absence:
        lanes = queues.filter(is_remote & (queues["substream"] == RECEIPT))
        begin, end = seen.ends(reverse_lanes(lanes, SEND))
        requested.append((KeyPart.TAIL, lanes.filter(end > begin)))
    if context.options.cleanup == "on":
        lanes = queues.filter(is_remote & (queues["substream"] == SEND))
        begin, _ = seen.ends(reverse_lanes(lanes, RECEIPT))
        requested.append((KeyPart.HEAD, lanes.filter(lanes["begin"] > begin)))
    return [(part, lanes.select(LANE)) for part, lanes in requested]


def requested_absences(state: State, seen: RelayerView, context: Context) -> Frame:
    """Return ranges of receipt queues for packets in flight, to prove absent.

    A range is ``begin`` to ``end`` - 1.
    """
    queues = state.queues.counters
    lanes = queues.filter(
        (queues["source"] != queues["destination"])
        & np.isin(queues["source"], context.chains)
        & (queues["substream"] == RECEIPT)
    ).select(LANE)
    begin, end = seen.ends(reverse_lanes(lanes, SEND))
    ranges = lanes.with_columns(begin=begin, end=end)
    return ranges.filter(end > begin)


def plan_refreshes(state: State, seen: RelayerView, relayer: int, context: Context) -> Frame:
    """Return a relayer's headers that keep idle clients from expiring (X-4).

    They are for open connections whose newest trusted header is a third of the unbonding period old, but not expired. A
    younger header is less than two thirds old in the next block, however long the pause (``longest_pause``). Partners
    share the remote zones.
    """
    connections, options = state.connections, context.options
    period = options.unbonding_ns
    if len(connections) == 0 or context.time * REFRESH < period:
        return empty_frame(SUBMISSIONS_SCHEMA)
    newest = newest_times(state)
    signed = seen.headers["chain"][binary_lengths(seen.headers["certification"]) > 0]
    now = np.uint64(context.time)
    due = is_period_over(newest, np.uint64(period // REFRESH), now) & ~is_period_over(
        newest, np.uint64(options.trusting_ns), now
    )
    due &= ~is_frozen(connections)
    due &= np.isin(connections["counterparty"], signed) & np.isin(connections["chain"], context.chains)
    if options.relay.coordination == "partition":
        due &= connections["counterparty"] % np.uint32(len(options.relayers)) == relayer
    elif options.relay.coordination == "leader" and relayer:
        due[:] = False
    return plan_updates(lanes_of(connections["counterparty"][due], connections["chain"][due], RECEIPT), relayer)


def plan_updates(rows: Frame, relayer: int) -> Frame:
    """Return the submissions of headers alone for the sources of some lanes."""
    zero = repeat_value(np.uint64(0), len(rows))
    none = repeat_value(np.int64(NO_PROOF), len(rows))
    return _rows(rows, np.arange(len(rows)), SubmissionKind.UPDATE, zero, zero, none, relayer)


def _proofs_of(seen: RelayerView, lanes: Frame, part: KeyPart) -> Rows:
    """Return the row of the proof of each queue's head or tail, or -1."""
    rows = np.flatnonzero(seen.proofs["part"] == part)
    found = lookup_rows(seen.proofs.take(rows), lanes, LANE)
    return np.where(found >= 0, rows[np.maximum(found, 0)], -1) if len(rows) else np.full(len(lanes), -1)


def _rows(lanes: Frame, rows: Rows, call: SubmissionKind, begin: Any, end: Any, proof: Rows, relayer: int) -> Frame:
    return (
        lanes.select(LANE)
        .take(rows)
        .with_columns(
            relayer=repeat_value(np.uint32(relayer), len(rows)),
            call=repeat_value(np.uint8(call), len(rows)),
            begin=begin[rows],
            end=end[rows],
            alteration=repeat_value(np.uint8(Alteration.NONE), len(rows)),
            proof=proof[rows].astype(np.int64),
        )
    )
