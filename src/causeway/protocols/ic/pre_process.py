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
from causeway.model.order import U64, groups_of, stable_order
from causeway.proofs.ic.messages import RejectCode
from causeway.proofs.ic.stream_header import RejectReason
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ic.arrivals import (
    ARRIVAL_SCHEMA,
    INGRESS_ARRIVAL_SCHEMA,
    as_arrivals,
    push_arrivals,
    push_strays,
)
from causeway.protocols.ic.batch import DecodedBatch
from causeway.protocols.ic.context import Context, lifetime_ticks
from causeway.protocols.ic.events import reason_names, reject_codes
from causeway.protocols.ic.messages import CHAIN_HALTED, TIMED_OUT, reject_responses
from causeway.protocols.ic.signals import collect, collect_loopback, handle_rejects
from causeway.protocols.ic.state import State
from causeway.protocols.ic.vsr import LostCause, Verdicts, vsr_check_ingress, vsr_check_xnet
from causeway.protocols.messages import LANE_COLUMNS, MESSAGE_COLUMNS


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


def pre_process(state: State, batch: DecodedBatch, context: Context, log: EventLog) -> Induction:
    """Return the state after induction.

    Raises ``InvariantViolation`` when slices do not continue the streams (they were checked before agreement).
    """
    state, timed_out = time_out_requests(state, context, log)
    messages = queue_index(batch.messages)
    verdicts = vsr_check_xnet(state, messages, context)
    loopback = messages["remote"] == messages["chain"]
    state, headers = _with_lanes(state, batch.headers)
    state = _signal(state, headers, messages, verdicts)
    _log_verdicts(messages, verdicts, log)
    state = collect_loopback(state, headers, log)
    local, outgoing = handle_rejects(_rejected_loopback(messages, verdicts, loopback), context, log)
    state, rejected = collect(state, headers, batch.recalled, log)
    remote_local, remote_outgoing = handle_rejects(rejected, context, log)
    from_loopback, from_slices = map_valid_xnet_messages(messages, verdicts, loopback)
    arrivals = concat([timed_out, from_loopback, local, remote_local, from_slices])
    if context.options.receiver_check == "off":
        here = context.host_of(arrivals["receiver"]) == arrivals["chain"].view(np.int32)
        state, strays = push_strays(state, arrivals.filter(~here))
        places = {"chain": strays["chain"], "on_lane": True, "queue_index": strays["queue_index"]}
        log.add(event_rows(strays, Event.RECEIVED, code=strays["code"], via=strays["via"], **places))
        arrivals = arrivals.filter(here)
    state, arrivals = push_arrivals(state, arrivals)
    state, ingress_arrivals = induct_ingress(state, batch.ingress, context, log)
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
            code=RejectCode.SysTransient,
            reason="RequestTimedOut",
        )
    )
    responses = reject_responses(requests, RejectCode.SysTransient, TIMED_OUT)
    state = replace(state, output_queues=state.output_queues.keep(~expired))
    return state, as_arrivals(responses, hosts, Via.TIMEOUT)


def queue_index(messages: Frame) -> Frame:
    """Return the messages in the order of their ``QueueIndex`` (3.4), which a push then numbers.

    By input queue (m.src, m.dst), in each of them the loopback stream first, then slices by lane and index.
    """
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


def map_valid_xnet_messages(messages: Frame, verdicts: Verdicts, loopback: np.ndarray) -> tuple[Frame, Frame]:
    """Return what goes to input queues (3.4): the valid messages of the loopback streams, and those of slices."""
    columns = messages.select([*LANE_COLUMNS, *MESSAGE_COLUMNS]).with_columns(via=_via(messages))
    if not loopback.any():
        return columns.slice(0, 0), columns.filter(verdicts.enqueued)
    return columns.filter(verdicts.enqueued & loopback), columns.filter(verdicts.enqueued & ~loopback)


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
    return np.where(loopback, np.uint8(Via.LOOPBACK), np.uint8(Via.LANE))


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
            "amount_high": repeated(np.uint64(0), length),
            "amount_low": repeated(np.uint64(0), length),
            "code": repeated(np.uint8(0), length),
            "deadline": repeated(np.uint32(0), length),
            "method": rows["method"].dictionary_encode(),
            "payload": rows["payload"],
        },
        length,
    )
    running = np.isin(messages["chain"], context.chains)
    accepted = running & vsr_check_ingress(state, messages, context)
    for mask, code, reason in (
        (running & ~accepted, RejectCode.DestinationInvalid, RejectReason.CanisterNotFound.name),
        (~running, RejectCode.SysTransient, CHAIN_HALTED),
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
