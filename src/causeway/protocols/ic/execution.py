"""The execution phase: schedule the inputs, run the programs, push their messages.

``schedule_and_execute`` runs once a round (D-13): ``Schedule`` holds the consumed inputs, the program runner returns
the produced messages.

Reference:
    IC reference 3.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from causeway_proofs.ic.messages import StreamRejectCode
from causeway_proofs.ic.stream_header import RejectReason
from causeway_proofs.order import group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.ic.messages import NOT_FOUND, reject_responses, truncate_reject_texts
from causeway.protocols.ic.open_calls import update_inflight
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.scheduler import enqueued_queues, move_behind, take_in_turn
from causeway.protocols.ic.state import RoundStep, State, update_certified_data
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import MESSAGE_COLUMNS

INPUT_COLUMNS = [*MESSAGE_COLUMNS, "index"]


@dataclass(frozen=True)
class Schedule:
    """The consumed elements of the queues, and the inputs in order of consumption.

    Attributes:
        ingress: Mask of the consumed elements of ingress queues.
        xnet: Mask of the consumed elements of input queues.
        inputs: The message columns, and ``index``, the queue index.
        missing: Mask of the inputs whose canister is mapped to the subnet but not installed.
        turns: The round-robin turns afterwards.
        next_sources: The next sources afterwards.
    """

    ingress: np.ndarray
    xnet: np.ndarray
    inputs: Frame
    missing: np.ndarray
    turns: Frame
    next_sources: Frame


def schedule(state: State, induction: Sequence[RoundStep], context: Context) -> Schedule:
    """Select the inputs that every canister consumes."""
    ingress, queued = state.ingress_queues.elements, state.input_queues.elements
    turns, next_sources = state.turns, state.next_sources
    nothing = np.zeros(0, dtype=bool)
    if len(queued) == 0 and len(ingress) == 0:
        return Schedule(nothing, nothing, queued.select(INPUT_COLUMNS), nothing, turns, next_sources)
    elements = queued if len(ingress) == 0 else concat([ingress, queued])
    if limit := context.options.messages_per_canister:
        turns = move_behind(turns, enqueued_queues([step.arrivals for step in induction]))
        local = context.registry.host_of(queued["sender"]) == context.registry.host_of(queued["receiver"])
        order, turns, next_sources = take_in_turn(ingress, queued, turns, next_sources, local, limit)
        next_sources = next_sources.filter(state.installed(next_sources["receiver"]))
    else:
        # Rows of ingress queues, then of input queues: a canister consumes its ingress by index, then the oldest
        # message of each input queue in turn.
        position = group_rows(queued["receiver"], queued["sender"]).ranks().astype(np.uint64)
        if len(ingress) == 0:
            order = stable_order(queued["receiver"], position, queued["sender"])
        else:
            receiver = np.concatenate([ingress["receiver"], queued["receiver"]])
            from_queue = np.zeros(len(receiver), dtype=np.uint8)
            from_queue[len(ingress) :] = 1
            passes = np.concatenate([group_rows(ingress["receiver"]).ranks().astype(np.uint64), position])
            sender = np.concatenate([np.zeros(len(ingress), dtype=np.uint64), queued["sender"]])
            order = stable_order(receiver, from_queue, passes, sender)
    if len(order) == len(elements):
        consumed = np.ones(len(elements), dtype=bool)
    else:
        consumed = np.zeros(len(elements), dtype=bool)
        consumed[order] = True
    inputs = elements.select(INPUT_COLUMNS)
    if not bool((order[1:] > order[:-1]).all()) or len(order) < len(elements):
        inputs = inputs.take(order)
    receivers = group_rows(inputs["receiver"])
    missing = receivers.spread(~state.installed(inputs["receiver"][receivers.starts]))
    return Schedule(consumed[: len(ingress)], consumed[len(ingress) :], inputs, missing, turns, next_sources)


def execute(state: State, induction: Sequence[RoundStep], context: Context) -> RoundStep:
    """Run the programs on their inputs, and push the produced messages to the output queues.

    ``induction`` holds the steps of the induction phase; the events of their arrivals tell if they were consumed.
    """
    log = EventLog()
    plan = schedule(state, induction, context)
    inputs, answers = plan.inputs, None
    if plan.missing.any():
        # Answer the requests to canisters that are mapped to the subnet but not installed.
        requests = plan.inputs.filter(plan.missing)
        at = {"chain": context.registry.host_of(requests["receiver"]).view(np.uint32), "queue_index": requests["index"]}
        code, reason = StreamRejectCode.DestinationInvalid, RejectReason.CanisterNotFound.name
        log.add(event_rows(requests, Event.REJECTED, code=code, reason=reason, **at))
        answers = reject_responses(requests, code, NOT_FOUND)
        inputs, answers = plan.inputs.filter(~plan.missing), answers.select(MESSAGE_COLUMNS)
    for arrivals, elements, consumed in (
        (concat([step.arrivals for step in induction]), state.input_queues.elements, plan.xnet),
        (concat([step.ingress for step in induction]), state.ingress_queues.elements, plan.ingress),
    ):
        executed = consumed & state.installed(elements["receiver"]) if plan.missing.any() else consumed
        if len(elements):
            _log_inputs(arrivals, elements, executed, context, log)
    if len(plan.inputs) == 0:
        return RoundStep(state, log)
    outcome = context.programs.run(inputs.select(MESSAGE_COLUMNS), state.accounts, state.programs)
    if len(outcome.failures):
        rows = inputs.take(outcome.failures["row"])
        log.add(
            event_rows(
                rows,
                Event.REJECTED,
                chain=context.registry.host_of(rows["receiver"]).view(np.uint32),
                queue_index=rows["index"],
                code=StreamRejectCode.CanisterError,
                reason=outcome.failures["text"].dictionary_encode(),
            )
        )
    log.failures(inputs, outcome.raised, context.registry.host_of(inputs["receiver"]))
    produced = truncate_reject_texts(outcome.produced)
    if answers is not None:
        produced = concat([produced, answers])
    state = replace(
        state,
        ingress_queues=state.ingress_queues.keep(~plan.ingress),
        input_queues=state.input_queues.keep(~plan.xnet),
        output_queues=state.output_queues.push(produced.with_columns(sent_tick=np.uint64(context.tick))),
        open_calls=state.open_calls.opened_by(produced.filter(produced["kind"] == Kind.REQUEST)),
        turns=plan.turns,
        next_sources=plan.next_sources,
        in_hand=update_inflight(state.in_hand, inputs, outcome),
        accounts=outcome.accounts,
        certified_data=update_certified_data(state.certified_data, outcome.certified),
        programs=outcome.programs,
    )
    return RoundStep(state, log)


def _log_inputs(arrivals: Frame, elements: Frame, executed: np.ndarray, context: Context, log: EventLog) -> None:
    """Log every input of some queues: received in this round, executed in this round, or both.

    Args:
        arrivals: The messages pushed in this round.
        elements: All elements of the queues.
        executed: Mask of the executed elements.
        context: The metadata of the round.
        log: The log of events.
    """
    on_lane = "index" in arrivals
    if len(arrivals) == len(elements) and bool(executed.all()):
        log.add(arrival_events(arrivals, np.ones(len(arrivals), dtype=bool)))
        return
    # Find the row of each arrival among the elements: the last ones of each queue, in push order.
    keys = ["receiver", "sender"] if on_lane else ["receiver"]
    arrival_order = stable_order(*(arrivals[key] for key in keys), arrivals["queue_index"])
    both = [np.concatenate([elements[key], arrivals[key]]) for key in keys]
    index = np.concatenate([elements["index"], arrivals["queue_index"]])
    order = stable_order(*both, index)
    # An arrival directly follows its element: their keys are equal, and the sort is stable.
    rows = np.empty(len(arrivals), dtype=np.int64)
    rows[arrival_order] = order[np.flatnonzero(order >= len(elements)) - 1]
    log.add(arrival_events(arrivals, executed[rows]))
    older = np.ones(len(elements), dtype=bool)
    older[rows] = False
    earlier = elements.take(np.flatnonzero(older & executed))
    hosts = context.registry.host_of(earlier["receiver"]).view(np.uint32)
    bits = np.where(earlier["kind"] == Kind.RESPONSE, EXECUTED_ANSWER, np.uint16(Event.EXECUTED))
    log.add(event_rows(earlier, bits, chain=hosts, queue_index=earlier["index"], code=earlier["code"]))


def arrival_events(arrivals: Frame, executed: np.ndarray) -> Frame:
    """Return the events of arrivals: received in this round, and executed in it where the mask ``executed`` says so."""
    bits = np.where(arrivals["kind"] == Kind.RESPONSE, EXECUTED_ANSWER, np.uint16(Event.EXECUTED))
    return event_rows(
        arrivals,
        np.where(executed, bits, np.uint16(0)) | np.uint16(Event.RECEIVED),
        chain=arrivals["chain"],
        on_lane="index" in arrivals,
        queue_index=arrivals["queue_index"],
        code=arrivals["code"],
        via=arrivals.get("via", Via.INGRESS),
    )


EXECUTED_ANSWER = np.uint16(Event.EXECUTED | Event.ANSWERED)
"""The event of an executed response."""
