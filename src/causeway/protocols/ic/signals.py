"""Signals: what the verdicts on our messages do to our streams, and what becomes of the rejected (IC reference 3.4,
X-13).

Outcomes for a message of ours that a header signals: collected; if rejected, answered to its sender by a synthetic
reject (a request) or put on the way to its receiver's present host (a response).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.errors import InvariantViolation
from causeway.model.frame import Frame, concat, empty_frame, repeated
from causeway.model.ledger import COLLECTED_MESSAGES, COLLECTED_SIGNALS, Event, Kind, Via
from causeway.model.order import lane_codes, pair_codes, positions_in, stable_order
from causeway.proofs.ic.stream_header import RejectReason
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.arrivals import ARRIVAL_SCHEMA, OUTGOING_SCHEMA, as_arrivals
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.events import reason_names, reject_codes
from causeway.protocols.ic.messages import induction_rejects
from causeway.protocols.ic.state import Lanes, State
from causeway.protocols.messages import MESSAGE_COLUMNS


def collect_loopback(state: State, headers: Frame, log: EventLog) -> State:
    """Remove the inducted messages of the loopback streams and the signals made for them (D-7)."""
    own = headers.take(np.flatnonzero(headers["chain"] == headers["remote"]))
    if len(own) == 0:
        return state
    lanes = state.lanes
    rows = lanes.positions(own["chain"], own["remote"], own["substream"])
    begin = lanes.rows["begin"].copy()
    signals_begin = lanes.rows["signals_begin"].copy()
    stream_bytes = lanes.rows["stream_bytes"].copy()
    log.collected(own, COLLECTED_MESSAGES, begin[rows], own["message_end"])
    begin[rows] = own["message_end"]
    signals_begin[rows] = own["message_end"]
    stream_bytes[rows] = 0
    gone = state.rejects["chain"] == state.rejects["remote"]
    codes, asked = pair_codes(
        (lane_codes(own["chain"], own["remote"]), own["substream"]),
        (lane_codes(state.runs["chain"], state.runs["remote"]), state.runs["substream"]),
    )
    kept_runs = state.runs.filter(positions_in(np.sort(codes), asked) < 0)
    lanes = lanes.with_columns(begin=begin, signals_begin=signals_begin, stream_bytes=stream_bytes)
    return replace(state, lanes=lanes, rejects=state.rejects.filter(~gone), runs=kept_runs)


def collect(state: State, headers: Frame, recalled: Frame, log: EventLog) -> tuple[State, Frame]:
    """Remove our messages that have a signal, and our signals that the remote has seen (3.4 steps 3 and 4).

    Returns the state and the messages that were rejected, with their ``reason``, by subnet, substream, index. Each of
    those leaves an event ACKNOWLEDGED with its reason; that the others were accepted follows from the ranges collected.
    """
    remote = headers.filter(headers["chain"] != headers["remote"])
    rejected = recalled.filter(recalled["reason"] > 0)
    rejected = rejected.take(
        stable_order(rejected["chain"], rejected["remote"], rejected["substream"], rejected["index"])
    )
    if len(remote) == 0:
        return state, rejected
    lanes = state.lanes
    rows = lanes.positions(remote["chain"], remote["remote"], remote["substream"])
    begin = lanes.rows["begin"].copy()
    signals_begin = lanes.rows["signals_begin"].copy()
    end = remote["signals_end"]
    next_index = lanes.rows["next_index"][rows]
    if bool(((end < begin[rows]) | (end > next_index)).any()):
        raise InvariantViolation("a header signals messages outside our stream")
    log.collected(remote, COLLECTED_MESSAGES, begin[rows], end)
    begin[rows] = end
    seen = np.maximum(signals_begin[rows], remote["begin"])
    log.collected(remote, COLLECTED_SIGNALS, signals_begin[rows], seen)
    signals_begin[rows] = seen
    lanes = lanes.with_columns(begin=begin, signals_begin=signals_begin)
    lane = lanes.positions(state.rejects["chain"], state.rejects["remote"], state.rejects["substream"])
    rejects = state.rejects.filter(state.rejects["index"] >= signals_begin[lane])
    lanes, runs = _trim_runs(replace(state, lanes=lanes), recalled)
    return replace(state, lanes=lanes, rejects=rejects, runs=runs), rejected


def _trim_runs(state: State, recalled: Frame) -> tuple[Lanes, Frame]:
    """Forget runs that are collected as a whole, and take the bytes of what was collected from the streams' sizes."""
    runs, lanes = state.runs, state.lanes
    if len(runs) == 0:
        return lanes, runs
    lane = lanes.positions(runs["chain"], runs["remote"], runs["substream"])
    begin = lanes.rows["begin"][lane]
    left = runs["bytes"].copy()
    cut = (begin > runs["first"]) & (begin < runs["first"] + runs["count"])
    if cut.any() and len(recalled):
        owner_lane = lanes.positions(recalled["chain"], recalled["remote"], recalled["substream"])
        gone = recalled["index"] < lanes.rows["begin"][owner_lane]
        firsts, asked = pair_codes(
            (lane.astype(np.uint64), runs["first"]), (owner_lane.astype(np.uint64), recalled["index"])
        )
        run = np.searchsorted(firsts, asked, side="right") - 1
        sizes = np.zeros(len(runs), dtype=np.uint64)
        np.add.at(sizes, run[gone], recalled["size"][gone])
        left[cut] -= sizes[cut]
    whole = begin >= runs["first"] + runs["count"]
    left[whole] = 0
    removed = np.zeros(len(lanes.rows), dtype=np.uint64)
    np.add.at(removed, lane, runs["bytes"] - left)
    lanes = lanes.with_columns(stream_bytes=lanes.rows["stream_bytes"] - removed)
    return lanes, runs.with_columns(bytes=left).filter(~whole)


def handle_rejects(rejected: Frame, context: Context, log: EventLog) -> tuple[Frame, Frame]:
    """Make the synthetic rejects of requests and send responses on (X-13); returns arrivals and messages to append."""
    if len(rejected) == 0:
        return empty_frame(ARRIVAL_SCHEMA), empty_frame(OUTGOING_SCHEMA)
    seen = {"chain": rejected["chain"], "on_lane": True, "code": reject_codes(rejected["reason"])}
    log.add(event_rows(rejected, Event.ACKNOWLEDGED, reason=reason_names(rejected["reason"]), **seen))
    request = rejected["kind"] == Kind.REQUEST
    answers = []
    for reason in RejectReason:
        rows = np.flatnonzero(request & (rejected["reason"] == reason))
        if len(rows):
            made = induction_rejects(rejected.take(rows), reason)
            answers.append(made.with_columns(row=rows, chain=rejected["chain"][rows], fresh=True))
    again = np.flatnonzero(~request)
    if len(again):
        kept = rejected.take(again).select([*MESSAGE_COLUMNS, "chain"])
        answers.append(kept.with_columns(row=again, fresh=False, sent_tick=rejected["sent_tick"][again]))
    answers = [
        part if "sent_tick" in part else part.with_columns(sent_tick=repeated(np.uint64(context.tick), len(part)))
        for part in answers
    ]
    onward = concat(answers)
    onward = onward.take(np.argsort(onward["row"], kind="stable"))
    hosts = context.host_of(onward["receiver"])
    lost = onward.take(np.flatnonzero(hosts < 0))
    log.add(event_rows(lost, Event.DROPPED, chain=lost["chain"], reason="unroutable_response"))
    here = onward["fresh"] & (hosts == onward["chain"].view(np.int32))
    local = onward.take(np.flatnonzero(here))
    away = onward.take(np.flatnonzero((hosts >= 0) & ~here))
    return as_arrivals(local, local["chain"], Via.SYNTHETIC), away.select(OUTGOING_SCHEMA.names)
