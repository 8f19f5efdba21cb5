"""The induction phase: time-outs, loopback, collection from slice headers, induction (IC reference 3.4, X-13).

Outcomes for a message of a slice: pushed to its input queue; dropped and lost; rejected with a signal. What becomes of
our own messages that a header signals stands in ``signals``.

The steps and their order are those of ``docs/protocols/ic.md``, "One round of one subnet". Steps 2 to 4 push to
different queues or in a fixed order to the same, so that all pushes of the phase are numbered in one go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvariantViolation
from causeway.model.frame import Frame, concat, empty_frame, from_table, repeated
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import U64, groups_of, pair_codes, positions_in, stable_order
from causeway.protocols.ic.arrivals import (
    ARRIVAL_SCHEMA,
    INGRESS_ARRIVAL_SCHEMA,
    as_arrivals,
    push_arrivals,
    push_strays,
)
from causeway.protocols.ic.context import Context, lifetime_ticks
from causeway.protocols.ic.events import EventLog, event_rows, names_column, reason_names, reject_codes
from causeway.protocols.ic.judge import LostCause, Verdicts, judge
from causeway.protocols.ic.messages import (
    CHAIN_HALTED,
    LANE_COLUMNS,
    MESSAGE_COLUMNS,
    TIMED_OUT,
    RejectCode,
    RejectReason,
    reject_responses,
)
from causeway.protocols.ic.signals import collect, collect_loopback, handle_rejects
from causeway.protocols.ic.state import State, lane_codes

DENSE_LANES = 1 << 22
"""Below this code of (chain, remote), flat lanes are looked up in an array instead of by bisection."""


@dataclass(frozen=True)
class Induction:
    """What the induction phase gives besides the state.

    ``arrivals``: the rows of ``ARRIVAL_SCHEMA`` pushed, with their ``queue_index``; their events are written after
    execution, which knows what was consumed. ``ingress_arrivals``: likewise. ``outgoing``: messages to append to
    streams.
    """

    state: State
    arrivals: Frame
    ingress_arrivals: Frame
    outgoing: Frame


def pre_process(
    state: State, headers: Frame, messages: Frame, recalled: Frame, ingress: pa.Table, context: Context, log: EventLog
) -> Induction:
    """Return the state after induction.

    ``headers``: the accepted lanes' headers (``Plan.headers``); ``messages``: the slices' messages and those of the
    loopback streams; ``recalled``: our own messages that headers reject, or that the stream size needs; ``ingress``:
    rows of ``INGRESS_SCHEMA``. Raises ``InvariantViolation`` when slices do not continue the streams (they were
    checked before agreement).
    """
    state, timed_out = time_out_requests(state, context, log)
    messages = _in_queue_order(messages)
    verdicts = judge(messages, state, context)
    loopback = messages["remote"] == messages["chain"]
    _ensure_complete(headers, messages)
    state, headers = _with_lanes(state, headers)
    state = _signal(state, headers, messages, verdicts)
    _log_verdicts(messages, verdicts, log)
    state = collect_loopback(state, headers, log)
    local, outgoing = handle_rejects(_rejected_loopback(messages, verdicts, loopback), context, log)
    state, rejected = collect(state, headers, recalled, log)
    remote_local, remote_outgoing = handle_rejects(rejected, context, log)
    accepted = messages.select([*LANE_COLUMNS, *MESSAGE_COLUMNS]).with_columns(via=_via(messages))
    from_loopback = accepted.filter(verdicts.enqueued & loopback) if loopback.any() else accepted.slice(0, 0)
    from_slices = accepted.filter(verdicts.enqueued & ~loopback if loopback.any() else verdicts.enqueued)
    arrivals = concat([timed_out, from_loopback, local, remote_local, from_slices])
    if context.options.receiver_check == "off":
        here = context.host_of(arrivals["receiver"]) == arrivals["chain"].view(np.int32)
        state, strays = push_strays(state, arrivals.filter(~here))
        places = {"chain": strays["chain"], "on_lane": True, "queue_index": strays["queue_index"]}
        log.add(event_rows(strays, Event.RECEIVED, code=strays["code"], via=strays["via"], **places))
        arrivals = arrivals.filter(here)
    state, arrivals = push_arrivals(state, arrivals)
    state, ingress_arrivals = induct_ingress(state, ingress, context, log)
    return Induction(state, arrivals, ingress_arrivals, concat([outgoing, remote_outgoing]))


def time_out_requests(state: State, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Remove guaranteed requests that waited too long in output queues; return their synthetic rejects (X-3)."""
    none = empty_frame(ARRIVAL_SCHEMA)
    elements = state.output_queues.elements
    if context.options.timeouts == "off" or len(elements) == 0:
        return state, none
    # Whole ticks, so that no product of ticks and nanoseconds can pass a word.
    lifetime = lifetime_ticks(context.options, context.tick_ns)
    waited = np.uint64(context.tick) - elements["sent_tick"] >= np.uint64(lifetime)
    expired = waited & (elements["kind"] == Kind.REQUEST) & (elements["deadline"] == 0)
    if not expired.any():
        return state, none
    requests = elements.take(np.flatnonzero(expired))
    hosts = context.host_of(requests["sender"]).view(np.uint32)
    log.add(
        event_rows(
            requests,
            Event.TIMED_OUT,
            chain=hosts,
            queue_index=requests["index"],
            code=RejectCode.SYS_TRANSIENT,
            reason="RequestTimedOut",
        )
    )
    responses = reject_responses(requests, RejectCode.SYS_TRANSIENT, TIMED_OUT)
    state = replace(state, output_queues=state.output_queues.keep(~expired))
    return state, as_arrivals(responses, hosts, Via.TIMEOUT)


def _in_queue_order(messages: Frame) -> Frame:
    """Return the messages by input queue, in each in the order of pushing: loopback, then slices by lane and index."""
    if len(messages) == 0:
        return messages
    from_slice = (messages["remote"] != messages["chain"]).astype(np.uint8)
    order = stable_order(
        messages["receiver"],
        messages["sender"],
        from_slice,
        messages["remote"],
        messages["substream"],
        messages["index"],
    )
    return messages.take(order)


def _with_lanes(state: State, headers: Frame) -> tuple[State, Frame]:
    """Return the state with a lane for every header that brings messages, and the headers that have a lane.

    A header for a lane of which nothing was ever sent or received either way has nothing to say.
    """
    bringing = headers.filter(headers["message_end"] > headers["message_begin"])
    lanes = state.lanes.ensure(bringing["chain"], bringing["remote"], bringing["substream"])
    known = lanes.positions(headers["chain"], headers["remote"], headers["substream"]) >= 0
    return (state if lanes is state.lanes else replace(state, lanes=lanes)), headers.filter(known)


def _signal(state: State, headers: Frame, messages: Frame, verdicts: Verdicts) -> State:
    """Record a verdict for every message: the expected indices move on, REJECT signals are listed."""
    if len(headers) == 0:
        return state
    lanes = state.lanes
    rows = lanes.positions(headers["chain"], headers["remote"], headers["substream"])
    expected = lanes.rows["expected"].copy()
    begins = headers["message_begin"]
    rejects = state.rejects
    if not bool((begins == expected[rows]).all()):
        wrong = int(np.argmax(begins != expected[rows]))
        raise InvariantViolation(f"a slice starts at {begins[wrong]}, expected is {expected[rows][wrong]}")
    expected[rows] = headers["message_end"]
    rejected = np.flatnonzero(verdicts.reason > 0)
    if len(rejected):
        added = messages.select(LANE_COLUMNS).take(rejected).with_columns(reason=verdicts.reason[rejected])
        rejects = concat([rejects, added.select(rejects.names)])
        rejects = rejects.take(
            stable_order(rejects["chain"], rejects["remote"], rejects["substream"], rejects["index"])
        )
    return replace(state, lanes=lanes.with_columns(expected=expected), rejects=rejects)


def _ensure_complete(headers: Frame, messages: Frame) -> None:
    """Raise ``InvariantViolation`` unless the messages are exactly the ranges of the headers, each index once."""
    counts = (headers["message_end"] - headers["message_begin"]).astype(np.int64)
    total = int(counts.sum())
    if total != len(messages):
        raise InvariantViolation(f"the slices hold {len(messages)} messages, their headers say {total}")
    if total == 0:
        return
    rows = _header_rows(headers, messages)
    begin = headers["message_begin"][rows]
    inside = (messages["index"] >= begin) & (messages["index"] < headers["message_end"][rows])
    if bool(inside.all()):
        place = (np.cumsum(counts) - counts)[rows] + (messages["index"] - begin).astype(np.int64)
        seen = np.zeros(total, dtype=bool)
        seen[place] = True
        if bool(seen.all()):
            return
    raise InvariantViolation("a slice's messages are not a run without gaps")


def _header_rows(headers: Frame, messages: Frame) -> np.ndarray:
    """Return the row of each message's lane among the headers."""
    own = lane_codes(headers["chain"], headers["remote"])
    asked = lane_codes(messages["chain"], messages["remote"])
    if not headers["substream"].any() and len(own) and int(own.max()) < DENSE_LANES and not messages["substream"].any():
        table = np.zeros(int(own.max()) + 2, dtype=np.int64)
        table[own] = np.arange(len(own))
        return table[np.minimum(asked, np.uint64(len(table) - 1))]
    own, asked = pair_codes((own, headers["substream"]), (asked, messages["substream"]))
    order = np.argsort(own)
    return order[np.maximum(positions_in(own[order], asked), 0)]


def _log_verdicts(messages: Frame, verdicts: Verdicts, log: EventLog) -> None:
    rejected = np.flatnonzero(verdicts.reason > 0)
    if len(rejected):
        reasons = verdicts.reason[rejected]
        rows = messages.take(rejected)
        judged = {"chain": rows["chain"], "on_lane": True, "via": _via(rows)}
        log.add(event_rows(rows, Event.REJECTED, code=reject_codes(reasons), reason=reason_names(reasons), **judged))
    dropped = np.flatnonzero(verdicts.cause > 0)
    if len(dropped):
        rows = messages.take(dropped)
        names = names_column([cause.name for cause in LostCause], verdicts.cause[dropped])
        log.add(event_rows(rows, Event.DROPPED, chain=rows["chain"], on_lane=True, via=_via(rows), reason=names))


def _via(messages: Frame) -> np.ndarray:
    loopback = messages["remote"] == messages["chain"]
    return np.where(loopback, np.uint8(Via.LOOPBACK), np.uint8(Via.XNET))


def _rejected_loopback(messages: Frame, verdicts: Verdicts, loopback: np.ndarray) -> Frame:
    rows = np.flatnonzero((verdicts.reason > 0) & loopback)
    taken = messages.take(rows).with_columns(reason=verdicts.reason[rows])
    order = stable_order(taken["chain"], taken["substream"], taken["index"])
    return taken.take(order)


def induct_ingress(state: State, ingress: pa.Table, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Push the ingress messages to their canisters' queues; refuse those for canisters or chains that are not here."""
    length = ingress.num_rows
    if length == 0:
        return state, empty_frame(INGRESS_ARRIVAL_SCHEMA)
    rows = from_table(ingress.select(["chain", "receiver", "sender", "method", "payload"]))
    messages = Frame(
        {
            "chain": rows["chain"].astype(np.uint32),
            "kind": repeated(np.uint8(Kind.INGRESS), length),
            "sender": rows["sender"],
            "receiver": rows["receiver"],
            "callback": repeated(np.uint64(0), length),
            "cycles_high": repeated(np.uint64(0), length),
            "cycles_low": repeated(np.uint64(0), length),
            "code": repeated(np.uint8(0), length),
            "deadline": repeated(np.uint32(0), length),
            "method": rows["method"].dictionary_encode(),
            "payload": rows["payload"],
        },
        length,
    )
    here = context.host_of(messages["receiver"]) == messages["chain"].view(np.int32)
    running = np.isin(messages["chain"], context.chains)
    accepted = here & running & state.installed(messages["receiver"])
    for mask, code, reason in (
        (running & ~accepted, RejectCode.DESTINATION_INVALID, RejectReason.CanisterNotFound.name),
        (~running, RejectCode.SYS_TRANSIENT, CHAIN_HALTED),
    ):
        if mask.any():
            place = _places_in_payload(messages)[mask]
            refused = messages.filter(mask).with_columns(callback=place)
            places = {"chain": refused["chain"], "index": place, "via": Via.INGRESS}
            log.add(event_rows(refused, Event.REJECTED, code=code, reason=reason, **places))
    kept = messages.filter(accepted)
    queues = state.ingress_queues
    index, counters = queues.counters.push(kept["receiver"], kept["receiver"])
    kept = kept.with_columns(callback=index)
    merged = replace(queues, counters=counters).merge(kept.select(MESSAGE_COLUMNS).with_columns(index=index))
    return replace(state, ingress_queues=merged), kept.with_columns(queue_index=index)


def _places_in_payload(messages: Frame) -> U64:
    """Return the place of each ingress message in the payload of its chain, from 1; the rows are in its order."""
    order = stable_order(messages["chain"])
    places = np.empty(len(messages), dtype=np.uint64)
    places[order] = groups_of(messages["chain"][order]).ranks() + 1
    return places
