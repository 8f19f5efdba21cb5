"""The induction phase: time-outs, loopback, collection from slice headers, induction (IC reference 3.4, X-13).

The steps and their order are those of IC reference 3.1; "3.4 (n)" is line n of that section. Outcomes for a message of
a slice: pushed to its input queue; dropped and lost; rejected with a signal. ``signals`` handles the signals about our
own messages.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.errors import InvariantViolation
from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.ledger import COLLECTED_MESSAGES, COLLECTED_SIGNALS, Event, Kind, Via
from causeway.model.order import stable_order
from causeway.proofs.ic.messages import RejectCode
from causeway.proofs.ic.stream_header import RejectReason
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.batch import DecodedBatch, refuse_ingress
from causeway.protocols.ic.context import Context, lifetime_ticks
from causeway.protocols.ic.events import reason_names, reject_codes
from causeway.protocols.ic.messages import TIMED_OUT, reject_responses
from causeway.protocols.ic.push import match_responses, push_messages, push_responses
from causeway.protocols.ic.signals import collect_messages, handle_rejects
from causeway.protocols.ic.state import REJECTS_SCHEMA, State, opposite
from causeway.protocols.ic.step import ARRIVALS_SCHEMA, INGRESS_ARRIVALS_SCHEMA, Step
from causeway.protocols.ic.vsr import Mask, Verdicts, lost_causes, vsr_check_xnet
from causeway.protocols.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS


def pre_process(state: State, batch: DecodedBatch, context: Context) -> tuple[State, list[Step]]:
    """Return the state after the induction phase, and its steps in their order (3.4).

    Raises ``InvariantViolation`` when slices do not continue the streams (they were checked before agreement).
    """
    timed_out = time_out_requests(state, context)  # step 1: X-3
    loopback = induct_loopback(timed_out.state, batch, context)  # step 2: D-7, all of 3.4 for our own stream
    collected = collect_from_headers(loopback.state, batch, context)  # step 3: 3.4 (3), of 3.4 (4) what goes; X-13
    slices = induct_slices(collected.state, batch, context)  # step 4: 3.4 (2), of 3.4 (4) what is added, 3.4 (5)
    ingress = induct_ingress(slices.state, batch.ingress, context)  # step 4: 3.4 (1)
    return ingress.state, [timed_out, loopback, collected, slices, ingress]


# ---- step 1, time-outs


def time_out_requests(state: State, context: Context) -> Step:
    """Remove guaranteed requests that waited too long in output queues; push their synthetic rejects."""
    elements = state.output_queues.elements
    if context.options.timeouts == "off" or len(elements) == 0:
        return Step(state)
    # Whole ticks, so that no product of ticks and nanoseconds can pass a word.
    lifetime = lifetime_ticks(context.options, context.tick_ns)
    waited = np.uint64(context.tick) - elements["sent_tick"] >= np.uint64(lifetime)
    expired = waited & (elements["kind"] == Kind.REQUEST) & (elements["deadline"] == 0)
    if not expired.any():
        return Step(state)
    requests = elements.take(np.flatnonzero(expired))
    hosts = context.host_of(requests["sender"]).view(np.uint32)
    log = EventLog()
    at = {"chain": hosts, "queue_index": requests["index"]}
    log.add(event_rows(requests, Event.TIMED_OUT, code=RejectCode.SysTransient, reason="RequestTimedOut", **at))
    state = replace(state, output_queues=state.output_queues.keep(~expired))
    responses = reject_responses(requests, RejectCode.SysTransient, TIMED_OUT)
    state, arrivals = push_responses(state, responses, hosts, Via.TIMEOUT, log)
    return Step(state, log, arrivals)


# ---- step 2, loopback (D-7)


def induct_loopback(state: State, batch: DecodedBatch, context: Context) -> Step:
    """Induct all messages of the loopback streams, remove them, then handle those that were rejected."""
    lanes = batch.loopback
    if len(lanes) == 0:
        return Step(state)
    log, messages = EventLog(), queue_index(batch.loopback_messages)
    state, verdicts = judge(state, messages, context)
    _log_verdicts(messages, verdicts, Via.LOOPBACK, log)
    state, arrivals = map_valid_xnet_messages(state, messages, verdicts, Via.LOOPBACK, context, log)
    # Their signals are removed at once, so none is ever listed.
    end = lanes["message_end"]
    log.collected(lanes, COLLECTED_MESSAGES, state.streams.count_of("begin", lanes), end)
    streams = collect_messages(state.streams, lanes, end, batch.signalled)
    state = replace(state, streams=streams.set_counters(lanes, expected=end, signals_begin=end))
    rows = np.flatnonzero(verdicts.reason > 0)
    rejected = messages.take(rows).with_columns(reason=verdicts.reason[rows])
    rejected = rejected.take(stable_order(rejected["source"], rejected["substream"], rejected["index"]))
    state, answers, onward = handle_rejects(state, rejected, context, log)
    return Step(state, log, concat([arrivals, answers]), onward=onward)


# ---- step 3, collection from slice headers (3.4 (3) and (4), D-6, X-13)


def collect_from_headers(state: State, batch: DecodedBatch, context: Context) -> Step:
    """Remove our messages that have a signal, handle those that were rejected, then remove our signals about messages
    that are no longer in their stream."""
    log = EventLog()
    rejected = batch.signalled.filter(batch.signalled["reason"] > 0)
    rejected = rejected.take(stable_order(*(rejected[name] for name in LANE_COLUMNS)))
    slices = batch.slices
    bringing = slices.filter(slices["message_end"] > slices["message_begin"])
    state = replace(state, streams=state.streams.ensure(opposite(bringing)))
    # A header for a lane of which nothing was ever sent or received either way has nothing to say.
    known = state.streams.positions(opposite(slices)) >= 0
    slices = slices.filter(known)
    if len(slices):
        ours, end = opposite(slices), slices["signals_end"]
        begin, next_index = (state.streams.count_of(name, ours) for name in ("begin", "next_index"))
        # Raise `InvariantViolation` unless headers signal messages of our streams and reject what they signal
        #
        outside = (end < begin) | (end > next_index)
        if outside.any():
            raise InvariantViolation("a header signals messages outside our stream", slices["destination"][outside])
        if len(batch.signals):
            row = lookup(opposite(slices), batch.signals, LANE, ordered=False)
            beyond = (row < 0) | (batch.signals["index"] >= slices["signals_end"][row])
            if beyond.any():
                raise InvariantViolation(
                    "a header rejects messages beyond its signals", batch.signals["source"][beyond]
                )
        log.collected(ours, COLLECTED_MESSAGES, begin, end)
        state = replace(state, streams=collect_messages(state.streams, ours, end, batch.signalled))
        # Remove our signals about the slices' messages below the `begin` of their stream (3.4 (4)).
        ours = opposite(slices)
        first = state.streams.count_of("signals_begin", ours)
        seen = np.maximum(first, slices["begin"])
        log.collected(slices, COLLECTED_SIGNALS, first, seen)
        streams, rejects = state.streams.set_counters(ours, signals_begin=seen), state.rejects
        kept = rejects["index"] >= streams.count_of("signals_begin", opposite(rejects))
        state = replace(state, streams=streams, rejects=rejects.filter(kept))
    state, arrivals, onward = handle_rejects(state, rejected, context, log)
    return Step(state, log, arrivals, onward=onward)


# ---- step 4, induction (3.4 (1), (2), (4) and (5))


def induct_slices(state: State, batch: DecodedBatch, context: Context) -> Step:
    """Judge and signal every message of the slices, and push those that are accepted."""
    bringing = batch.slices.filter(batch.slices["message_end"] > batch.slices["message_begin"])
    if len(bringing) == 0:
        return Step(state)
    log, messages = EventLog(), queue_index(batch.messages)
    state, verdicts = judge(state, messages, context)
    _log_verdicts(messages, verdicts, Via.LANE, log)
    state, arrivals = map_valid_xnet_messages(state, messages, verdicts, Via.LANE, context, log)  # 3.4 (2)
    # List the REJECT signals; that the others are ACCEPT follows from the expected index.
    rejected = np.flatnonzero(verdicts.reason > 0)
    if len(rejected):
        added = messages.select(LANE_COLUMNS).take(rejected).with_columns(reason=verdicts.reason[rejected])
        rejects = concat([state.rejects, added.select(REJECTS_SCHEMA.names)])
        order = stable_order(*(rejects[name] for name in ("destination", "source", "substream", "index")))
        state = replace(state, rejects=rejects.take(order))
    # Move the expected indices past the messages of the slices.
    ours, begins = opposite(bringing), bringing["message_begin"]
    expected = state.streams.count_of("expected", ours)
    wrong = begins != expected
    if wrong.any():
        first = int(np.argmax(wrong))
        text = f"a slice starts at {begins[first]}, expected is {expected[first]}"
        raise InvariantViolation(text, bringing["destination"][wrong])
    state = replace(state, streams=state.streams.set_counters(ours, expected=bringing["message_end"]))
    return Step(state, log, arrivals)


def judge(state: State, messages: Frame, context: Context) -> tuple[State, Verdicts]:
    """Return the verdicts on messages in the order of their ``QueueIndex``, and the state after the calls that the
    responses among them answer are closed; a response that answers none is dropped."""
    verdicts = vsr_check_xnet(state, messages, context)
    answering = verdicts.enqueued & (messages["kind"] == Kind.RESPONSE)
    if context.options.receiver_check == "off":
        # What is enqueued where its receiver is not hosted answers nothing: the call is open elsewhere.
        answering &= context.host_of(messages["receiver"]) == messages["destination"].view(np.int32)
    rows = np.flatnonzero(answering)
    if len(rows) == 0:
        return state, verdicts
    state, cause = match_responses(state, messages.take(rows))
    if cause.any():
        causes = verdicts.cause.copy()
        causes[rows] = cause
        verdicts = replace(verdicts, cause=causes)
    return state, verdicts


def queue_index(messages: Frame) -> Frame:
    """Return the messages in the order of their ``QueueIndex`` (3.4), which a push then numbers.

    By input queue (m.src, m.dst), in each of them by lane and index.
    """
    if len(messages) == 0:
        return messages
    keys = ("receiver", "sender", "source", "substream", "index")
    return messages.take(stable_order(*(messages[key] for key in keys)))


def map_valid_xnet_messages(
    state: State, messages: Frame, verdicts: Verdicts, via: Via, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Push the valid messages to their input queues (3.4); also return them (``ARRIVALS_SCHEMA``)."""
    valid = messages.select([*LANE_COLUMNS, *MESSAGE_COLUMNS]).filter(verdicts.enqueued)
    valid = valid.with_columns(chain=valid["destination"], via=np.uint8(via))
    if context.options.receiver_check == "off":
        here = context.host_of(valid["receiver"]) == valid["chain"].view(np.int32)
        # Enqueue messages (with `chain`) where nobody will execute them; also return them with `queue_index`.
        messages = valid.filter(~here)
        index, queues = state.misrouted.number(messages)
        queues = queues.merge(messages.select(["chain", *MESSAGE_COLUMNS]).with_columns(index=index))
        state, misrouted = replace(state, misrouted=queues), messages.with_columns(queue_index=index)
        at = {"chain": misrouted["chain"], "on_lane": True, "queue_index": misrouted["queue_index"], "via": via}
        log.add(event_rows(misrouted, Event.RECEIVED, code=misrouted["code"], **at))
        valid = valid.filter(here)
    state, arrivals = push_messages(state, valid)
    return state, arrivals.select(ARRIVALS_SCHEMA.names)


def _log_verdicts(messages: Frame, verdicts: Verdicts, via: Via, log: EventLog) -> None:
    rejected = np.flatnonzero(verdicts.reason > 0)
    if len(rejected):
        reasons = verdicts.reason[rejected]
        rows = messages.take(rejected)
        judged = {"chain": rows["destination"], "on_lane": True, "via": via}
        log.add(event_rows(rows, Event.REJECTED, code=reject_codes(reasons), reason=reason_names(reasons), **judged))
    dropped = np.flatnonzero(verdicts.cause > 0)
    if len(dropped):
        rows = messages.take(dropped)
        at = {"chain": rows["destination"], "on_lane": True, "via": via}
        log.add(event_rows(rows, Event.DROPPED, reason=lost_causes(verdicts.cause[dropped]), **at))


def induct_ingress(state: State, ingress: Frame, context: Context) -> Step:
    """Push the messages from users to their canisters' queues; refuse those for canisters that are not here."""
    if len(ingress) == 0:
        return Step(state)
    # Which ingress messages (`chain`, `receiver`) are accepted: canisters installed where they enter.
    here = context.host_of(ingress["receiver"]) == ingress["chain"].view(np.int32)
    accepted: Mask = here & state.installed(ingress["receiver"])
    log = EventLog()
    kept = refuse_ingress(ingress, ~accepted, RejectCode.DestinationInvalid, RejectReason.CanisterNotFound.name, log)
    index, queues = state.ingress_queues.number(kept)
    kept = kept.with_columns(callback=index, queue_index=index)
    queues = queues.merge(kept.select(MESSAGE_COLUMNS).with_columns(index=index))
    return Step(replace(state, ingress_queues=queues), log, ingress=kept.select(INGRESS_ARRIVALS_SCHEMA.names))
