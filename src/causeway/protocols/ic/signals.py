"""Signals: what the verdicts on our messages do to our streams, and what becomes of the rejected (IC reference 3.4,
X-13).

Outcomes for a message of ours that a header signals: collected; if rejected, answered to its sender by a synthetic
reject (a request) or put on the way to its receiver's present host (a response).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import codes, lookup
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import U64, groups_of
from causeway.model.queues import Queues
from causeway.proofs.ic.stream_header import RejectReason
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.events import reason_names, reject_codes
from causeway.protocols.ic.messages import UNROUTABLE, induction_rejects
from causeway.protocols.ic.push import push_responses
from causeway.protocols.ic.state import State
from causeway.protocols.ic.step import ARRIVALS_SCHEMA, ONWARD_SCHEMA
from causeway.protocols.messages import LANE, MESSAGE_COLUMNS, NO_QUEUE

_NONE = np.uint64(NO_QUEUE)


def collect_messages(streams: Queues, lanes: Frame, end: U64, signalled: Frame) -> Queues:
    """Remove the messages below ``end`` from the streams of ``lanes``, and their bytes from the streams' sizes.

    ``signalled``: messages with their ``size``; those of a segment that is cut are among them where limits are on.
    """
    segments = streams.segments
    assert segments is not None
    if len(segments) == 0:
        return streams.advance(lanes, end)
    limit = lookup(lanes, segments, LANE, ordered=False)
    to = np.where(limit >= 0, end[limit], np.uint64(0))
    cut = (segments["first"] < to) & (to < segments["first"] + segments["count"])
    if cut.any() and len(signalled):
        bytes_left = _without(segments, cut, to, signalled)
        streams = replace(streams, segments=segments.with_columns(bytes=bytes_left))
    streams = streams.advance(lanes, end)
    # The bytes of each stream's messages: the sum over its segments.
    segments = streams.segments
    assert segments is not None
    sizes = np.zeros(len(streams.counters), dtype=np.uint64)
    if len(segments):
        groups = groups_of(*(segments[name] for name in LANE))
        rows = streams.positions(segments.select(LANE).take(groups.starts))
        sizes[rows] = np.add.reduceat(segments["bytes"], groups.starts)
    return streams.with_counters(stream_bytes=sizes)


def _without(segments: Frame, cut: np.ndarray, to: U64, signalled: Frame) -> U64:
    """Return the bytes of each segment without those of its ``signalled`` messages below ``to`` where it is ``cut``."""
    starts, asked = codes((*LANE, "first"), segments, signalled.select(LANE).with_columns(first=signalled["index"]))
    row = np.searchsorted(starts, asked, side="right") - 1
    # Whoever rebuilds trees was given all messages, those of loopback streams among them that are collected by now.
    gone = (row >= 0) & (signalled["index"] < to[row])
    for name in LANE:
        gone &= signalled[name] == segments[name][row]
    sizes = np.zeros(len(segments), dtype=np.uint64)
    np.add.at(sizes, row[gone], signalled["size"][gone])
    left: U64 = segments["bytes"] - np.where(cut, sizes, np.uint64(0))
    return left


def handle_rejects(state: State, rejected: Frame, context: Context, log: EventLog) -> tuple[State, Frame, Frame]:
    """Make the synthetic rejects of requests and send responses on (X-13).

    ``rejected``: our messages with the ``reason`` of their signal. Returns the state, the rejects pushed here, and what
    is to be appended to streams. Each leaves an event ACKNOWLEDGED with its reason; that the others were accepted
    follows from the ranges collected.
    """
    if len(rejected) == 0:
        return state, empty_frame(ARRIVALS_SCHEMA), empty_frame(ONWARD_SCHEMA)
    seen = {"chain": rejected["source"], "on_lane": True, "code": reject_codes(rejected["reason"])}
    log.add(event_rows(rejected, Event.ACKNOWLEDGED, reason=reason_names(rejected["reason"]), **seen))
    request = rejected["kind"] == Kind.REQUEST
    columns = ["row", "fresh", *ONWARD_SCHEMA.names]
    answers = []
    for reason in RejectReason:
        rows = np.flatnonzero(request & (rejected["reason"] == reason))
        if len(rows):
            at = {"source": rejected["source"][rows], "queue_index": _NONE, "sent_tick": np.uint64(context.tick)}
            made = induction_rejects(rejected.take(rows), reason).with_columns(row=rows, fresh=np.True_, **at)
            answers.append(made.select(columns))
    again = np.flatnonzero(~request)
    if len(again):
        kept = rejected.select(["source", *MESSAGE_COLUMNS, "sent_tick"]).take(again)
        answers.append(kept.with_columns(row=again, fresh=np.False_, queue_index=_NONE).select(columns))
    onward = concat(answers)
    onward = onward.take(np.argsort(onward["row"], kind="stable"))
    hosts = context.host_of(onward["receiver"])
    lost = onward.take(np.flatnonzero(hosts < 0))
    log.add(event_rows(lost, Event.DROPPED, chain=lost["source"], queue_index=_NONE, reason=UNROUTABLE))
    here = onward["fresh"] & (hosts == onward["source"].view(np.int32))
    local = onward.take(np.flatnonzero(here))
    state, arrivals = push_responses(state, local, local["source"], Via.SYNTHETIC, log)
    away = onward.take(np.flatnonzero((hosts >= 0) & ~here))
    return state, arrivals, away.select(ONWARD_SCHEMA.names)
