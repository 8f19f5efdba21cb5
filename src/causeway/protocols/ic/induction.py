"""The induction phase: timeouts, loopback, collection from slice headers, induction.

The steps follow IC reference 3.1 in order; "3.4 (n)" is line n of that section. A message of a slice is pushed to its
input queue, or dropped, or rejected with a signal.

Signals of others decide our own messages: accepted ones are collected. A rejected request is answered to its sender by
a synthetic reject; a rejected response is sent on to its receiver's present host (IC reference 3.4, X-13).

Reference:
    IC reference 3.4, X-13.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from causeway_proofs.errors import InvariantViolation
from causeway_proofs.ic.messages import StreamRejectCode
from causeway_proofs.ic.stream_header import RejectReason
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.queues import Queues
from causeway.core.vocabulary import COLLECTED_MESSAGES, COLLECTED_SIGNALS, Event, Kind, Via
from causeway.protocols.ic.batch import DecodedBatch, refuse_ingress
from causeway.protocols.ic.input_queues import (
    Mask,
    lost_causes,
    match_responses,
    push_messages,
    push_responses,
    vsr_check_xnet,
)
from causeway.protocols.ic.messages import (
    TIMED_OUT,
    UNROUTABLE,
    induction_rejects,
    reason_names,
    reject_codes,
    reject_responses,
)
from causeway.protocols.ic.registry import Context, lifetime_ticks
from causeway.protocols.ic.state import (
    ARRIVALS_SCHEMA,
    INGRESS_ARRIVALS_SCHEMA,
    ONWARD_SCHEMA,
    REJECTS_ORDER,
    REJECTS_SCHEMA,
    RoundStep,
    State,
    reverse_lanes,
)
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, NO_QUEUE

_NONE = np.uint64(NO_QUEUE)

QUEUE_INDEX = ("receiver", "sender", "source", "substream", "index")
"""The sort keys of ``QueueIndex`` (3.4), the order in which a push numbers messages.

The order is by input queue (m.src, m.dst), then by lane and index.
"""


def collect_messages(streams: Queues, lanes: Frame, end: U64, signalled: Frame) -> Queues:
    """Remove the messages below ``end`` from the streams of ``lanes``, and subtract their bytes.

    Args:
        streams: The streams.
        lanes: The lanes to collect from.
        end: The end of the collected messages of each lane.
        signalled: Messages with ``size``; under limits they include those of partly collected segments.
    """
    segments = streams.segments
    assert segments is not None
    if len(segments) == 0:
        return streams.advance(lanes, end)
    limit = lookup_rows(lanes, segments, LANE, ordered=False)
    to = np.where(limit >= 0, end[limit], np.uint64(0))
    cut = (segments["first"] < to) & (to < segments["first"] + segments["count"])
    if cut.any() and len(signalled):
        bytes_left = _remaining_bytes(segments, cut, to, signalled)
        streams = replace(streams, segments=segments.with_columns(bytes=bytes_left))
    streams = streams.advance(lanes, end)
    # The bytes of each stream's messages: the sum over its segments.
    segments = streams.segments
    assert segments is not None
    sizes = np.zeros(len(streams.counters), dtype=np.uint64)
    if len(segments):
        groups = group_rows(*(segments[name] for name in LANE))
        rows = streams.positions(segments.select(LANE).take(groups.starts))
        sizes[rows] = np.add.reduceat(segments["bytes"], groups.starts)
    return streams.with_counters(stream_bytes=sizes)


def _remaining_bytes(segments: Frame, cut: np.ndarray, to: U64, signalled: Frame) -> U64:
    """Return the bytes of each segment without its collected messages.

    These are ``signalled`` messages below ``to``, where a segment is ``cut``.
    """
    starts, keys = encode_keys(
        (*LANE, "first"), segments, signalled.select(LANE).with_columns(first=signalled["index"])
    )
    row = np.searchsorted(starts, keys, side="right") - 1
    # After a rebuild of trees, the messages include collected ones of loopback streams.
    collected = (row >= 0) & (signalled["index"] < to[row])
    for name in LANE:
        collected &= signalled[name] == segments[name][row]
    sizes = np.zeros(len(segments), dtype=np.uint64)
    np.add.at(sizes, row[collected], signalled["size"][collected])
    left: U64 = segments["bytes"] - np.where(cut, sizes, np.uint64(0))
    return left


def handle_rejects(state: State, rejected: Frame, context: Context, log: EventLog) -> tuple[State, Frame, Frame]:
    """Answer rejected requests with synthetic rejects and forward rejected responses (X-13).

    Each rejected message leaves an event ACKNOWLEDGED with its reason. The collected ranges imply the accepted ones.

    Args:
        state: The state.
        rejected: Own messages with the ``reason`` of their signal.
        context: The metadata of the round.
        log: The log of events.

    Returns:
        The state, the rejects pushed locally, and the messages to append to streams.
    """
    event_columns = {"chain": rejected["source"], "on_lane": True, "code": reject_codes(rejected["reason"])}
    log.add(event_rows(rejected, Event.ACKNOWLEDGED, reason=reason_names(rejected["reason"]), **event_columns))
    request = rejected["kind"] == Kind.REQUEST
    columns = ["row", "fresh", *ONWARD_SCHEMA.names]
    answers = []
    for reason in RejectReason:
        rows = np.flatnonzero(request & (rejected["reason"] == reason))
        if len(rows):
            at = {"source": rejected["source"][rows], "queue_index": _NONE, "sent_tick": np.uint64(context.tick)}
            rejects = induction_rejects(rejected.take(rows), reason).with_columns(row=rows, fresh=np.True_, **at)
            answers.append(rejects.select(columns))
    responses = np.flatnonzero(~request)
    if len(responses):
        forwarded = rejected.select(["source", *MESSAGE_COLUMNS, "sent_tick"]).take(responses)
        answers.append(forwarded.with_columns(row=responses, fresh=np.False_, queue_index=_NONE).select(columns))
    onward = concat(answers)
    onward = onward.take(np.argsort(onward["row"], kind="stable"))
    hosts = context.registry.host_of(onward["receiver"])
    lost = onward.take(np.flatnonzero(hosts < 0))
    log.add(event_rows(lost, Event.DROPPED, chain=lost["source"], queue_index=_NONE, reason=UNROUTABLE))
    here = onward["fresh"] & (hosts == onward["source"].view(np.int32))
    local = onward.take(np.flatnonzero(here))
    state, arrivals = push_responses(state, local, local["source"], Via.SYNTHETIC, log)
    remote = onward.take(np.flatnonzero((hosts >= 0) & ~here))
    return state, arrivals, remote.select(ONWARD_SCHEMA.names)


def pre_process(state: State, batch: DecodedBatch, context: Context) -> tuple[State, list[RoundStep]]:
    """Run the induction phase (3.4); return the state and the steps in order.

    Raises:
        InvariantViolation: A slice does not continue its stream, although it was checked before agreement.
    """
    steps = [RoundStep(state)]
    if context.options.timeouts == "on" and len(state.output_queues.elements):
        steps.append(time_out_requests(steps[-1].state, context))  # step 1: X-3
    if len(batch.loopback):
        steps.append(induct_loopback(steps[-1].state, batch, context))  # step 2: D-7, all of 3.4 for our own stream
    steps.append(collect_from_headers(steps[-1].state, batch, context))  # step 3: 3.4 (3), removals of 3.4 (4); X-13
    if len(batch.messages):
        steps.append(induct_slices(steps[-1].state, batch, context))  # step 4: 3.4 (2), additions of 3.4 (4), 3.4 (5)
    if len(batch.ingress):
        steps.append(induct_ingress(steps[-1].state, batch.ingress, context))  # step 4: 3.4 (1)
    return steps[-1].state, steps


# ---- step 1, timeouts


def time_out_requests(state: State, context: Context) -> RoundStep:
    """Remove expired guaranteed requests from output queues and push their synthetic rejects."""
    elements = state.output_queues.elements
    # Compare whole ticks: a product of ticks and nanoseconds may overflow 64 bits.
    lifetime = lifetime_ticks(context.options, context.tick_ns)
    waited = np.uint64(context.tick) - elements["sent_tick"] >= np.uint64(lifetime)
    expired = waited & (elements["kind"] == Kind.REQUEST) & (elements["deadline"] == 0)
    if not expired.any():
        return RoundStep(state)
    requests = elements.take(np.flatnonzero(expired))
    hosts = context.registry.host_of(requests["sender"]).view(np.uint32)
    log = EventLog()
    at = {"chain": hosts, "queue_index": requests["index"]}
    log.add(event_rows(requests, Event.TIMED_OUT, code=StreamRejectCode.SysTransient, reason="RequestTimedOut", **at))
    state = replace(state, output_queues=state.output_queues.keep(~expired))
    responses = reject_responses(requests, StreamRejectCode.SysTransient, TIMED_OUT)
    state, arrivals = push_responses(state, responses, hosts, Via.TIMEOUT, log)
    return RoundStep(state, log, arrivals)


# ---- step 2, loopback (D-7)


def induct_loopback(state: State, batch: DecodedBatch, context: Context) -> RoundStep:
    """Induct and remove all messages of the loopback streams, then handle the rejected ones."""
    lanes, log = batch.loopback, EventLog()
    state, arrivals, rejected = induct_messages(state, batch.loopback_messages, Via.LOOPBACK, context, log)
    # Their signals are removed at once and never listed.
    end = lanes["message_end"]
    log.collected(lanes, COLLECTED_MESSAGES, state.streams.read_counters("begin", lanes), end)
    streams = collect_messages(state.streams, lanes, end, batch.signalled)
    state = replace(state, streams=streams.set_counters(lanes, expected=end, signals_begin=end))
    if len(rejected) == 0:
        return RoundStep(state, log, arrivals)
    rejected = rejected.take(stable_order(rejected["source"], rejected["substream"], rejected["index"]))
    state, answers, onward = handle_rejects(state, rejected, context, log)
    return RoundStep(state, log, concat([arrivals, answers]), onward=onward)


# ---- step 3, collection from slice headers (3.4 (3) and (4), D-6, X-13)


def collect_from_headers(state: State, batch: DecodedBatch, context: Context) -> RoundStep:
    """Remove our signalled messages, handle the rejected ones, then remove our outdated signals.

    A signal is outdated when its message has left the source's stream.
    """
    log = EventLog()
    rejected = batch.signalled.filter(batch.signalled["reason"] > 0)
    rejected = rejected.take(stable_order(*(rejected[name] for name in LANE_COLUMNS)))
    slices = batch.slices
    bringing = slices.filter(slices["message_end"] > slices["message_begin"])
    state = replace(state, streams=state.streams.ensure(reverse_lanes(bringing)))
    # A header of a lane without any past message carries no information.
    known = state.streams.positions(reverse_lanes(slices)) >= 0
    slices = slices.filter(known)
    if len(slices):
        ours, end = reverse_lanes(slices), slices["signals_end"]
        begin, next_index = (state.streams.read_counters(name, ours) for name in ("begin", "next_index"))
        # Headers must signal messages of our streams, and reject only signalled ones.
        outside = (end < begin) | (end > next_index)
        if outside.any():
            raise InvariantViolation("a header signals messages outside our stream", slices["destination"][outside])
        if len(batch.signals):
            row = lookup_rows(reverse_lanes(slices), batch.signals, LANE, ordered=False)
            beyond = (row < 0) | (batch.signals["index"] >= slices["signals_end"][row])
            if beyond.any():
                raise InvariantViolation(
                    "a header rejects messages beyond its signals", batch.signals["source"][beyond]
                )
        log.collected(ours, COLLECTED_MESSAGES, begin, end)
        state = replace(state, streams=collect_messages(state.streams, ours, end, batch.signalled))
        # Remove our signals about the slices' messages below the `begin` of their stream (3.4 (4)).
        ours = reverse_lanes(slices)
        first = state.streams.read_counters("signals_begin", ours)
        seen = np.maximum(first, slices["begin"])
        log.collected(slices, COLLECTED_SIGNALS, first, seen)
        streams, rejects = state.streams.set_counters(ours, signals_begin=seen), state.rejects
        is_current = rejects["index"] >= streams.read_counters("signals_begin", reverse_lanes(rejects))
        state = replace(state, streams=streams, rejects=rejects.filter(is_current))
    if len(rejected) == 0:
        return RoundStep(state, log)
    state, arrivals, onward = handle_rejects(state, rejected, context, log)
    return RoundStep(state, log, arrivals, onward=onward)


# ---- step 4, induction (3.4 (1), (2), (4) and (5))


def induct_slices(state: State, batch: DecodedBatch, context: Context) -> RoundStep:
    """Validate and signal every message of the slices, and push the accepted ones."""
    bringing = batch.slices.filter(batch.slices["message_end"] > batch.slices["message_begin"])
    log = EventLog()
    state, arrivals, rejected = induct_messages(state, batch.messages, Via.LANE, context, log)  # 3.4 (2)
    # List the REJECT signals; the expected index implies the ACCEPT ones.
    if len(rejected):
        rejects = concat([state.rejects, rejected.select(REJECTS_SCHEMA.names)])
        state = replace(state, rejects=rejects.take(stable_order(*(rejects[name] for name in REJECTS_ORDER))))
    # Move the expected indices past the messages of the slices.
    ours, begins = reverse_lanes(bringing), bringing["message_begin"]
    expected = state.streams.read_counters("expected", ours)
    wrong = begins != expected
    if wrong.any():
        first = int(np.argmax(wrong))
        text = f"a slice starts at {begins[first]}, expected is {expected[first]}"
        raise InvariantViolation(text, bringing["destination"][wrong])
    state = replace(state, streams=state.streams.set_counters(ours, expected=bringing["message_end"]))
    return RoundStep(state, log, arrivals)


def induct_messages(
    state: State, messages: Frame, via: Via, context: Context, log: EventLog
) -> tuple[State, Frame, Frame]:
    """Validate messages, close the calls of accepted responses and push the valid messages to their input queues.

    A response without an open call is dropped.

    Args:
        state: The state.
        messages: The messages (``LANE_COLUMNS`` and the message columns), in any order.
        via: The path of the messages.
        context: The metadata of the round.
        log: The log of events.

    Returns:
        The state, the pushes (``ARRIVALS_SCHEMA``), and the rejected messages with the ``reason`` of their signal.
    """
    messages = messages.take(stable_order(*(messages[key] for key in QUEUE_INDEX)))
    verdicts = vsr_check_xnet(state, messages, context)
    chain = messages["destination"]
    answering = (verdicts.reason == 0) & (verdicts.cause == 0) & (messages["kind"] == Kind.RESPONSE)
    if context.options.receiver_check == "off":
        # A misrouted response answers no call: its call is open on another subnet.
        answering &= context.registry.host_of(messages["receiver"]) == chain.view(np.int32)
    rows = np.flatnonzero(answering)
    if len(rows):
        state, cause = match_responses(state, messages.take(rows))
        verdicts.cause[rows] = cause
    rejected = messages.filter(verdicts.reason > 0).with_columns(reason=verdicts.reason[verdicts.reason > 0])
    dropped = messages.filter(verdicts.cause > 0)
    at: dict[str, Any] = {"on_lane": True, "via": via}
    if len(rejected):
        names = {"code": reject_codes(rejected["reason"]), "reason": reason_names(rejected["reason"])}
        log.add(event_rows(rejected, Event.REJECTED, chain=rejected["destination"], **names, **at))
    if len(dropped):
        causes = lost_causes(verdicts.cause[verdicts.cause > 0])
        log.add(event_rows(dropped, Event.DROPPED, chain=dropped["destination"], reason=causes, **at))
    valid = messages.select([*LANE_COLUMNS, *MESSAGE_COLUMNS]).filter((verdicts.reason == 0) & (verdicts.cause == 0))
    valid = valid.with_columns(chain=valid["destination"], via=np.uint8(via))
    if context.options.receiver_check == "off":
        here = context.registry.host_of(valid["receiver"]) == valid["chain"].view(np.int32)
        # Enqueue misrouted messages; nothing will execute them.
        misrouted = valid.filter(~here)
        index, queues = state.misrouted.number(misrouted)
        queues = queues.merge(misrouted.select(["chain", *MESSAGE_COLUMNS]).with_columns(index=index))
        state, at = replace(state, misrouted=queues), {**at, "code": misrouted["code"], "queue_index": index}
        log.add(event_rows(misrouted, Event.RECEIVED, chain=misrouted["chain"], **at))
        valid = valid.filter(here)
    state, arrivals = push_messages(state, valid)
    return state, arrivals.select(ARRIVALS_SCHEMA.names), rejected


def induct_ingress(state: State, ingress: Frame, context: Context) -> RoundStep:
    """Push users' messages to their canisters' queues.

    Messages to canisters that are not local are refused.
    """
    # Accept ingress messages (`chain`, `receiver`) for canisters installed on the subnet.
    is_local = context.registry.host_of(ingress["receiver"]) == ingress["chain"].view(np.int32)
    accepted: Mask = is_local & state.installed(ingress["receiver"])
    log = EventLog()
    inducted = refuse_ingress(
        ingress, ~accepted, StreamRejectCode.DestinationInvalid, RejectReason.CanisterNotFound.name, log
    )
    index, queues = state.ingress_queues.number(inducted)
    inducted = inducted.with_columns(callback=index, queue_index=index)
    queues = queues.merge(inducted.select(MESSAGE_COLUMNS).with_columns(index=index))
    return RoundStep(replace(state, ingress_queues=queues), log, ingress=inducted.select(INGRESS_ARRIVALS_SCHEMA.names))
