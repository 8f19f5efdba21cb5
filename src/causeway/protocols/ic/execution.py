"""The execution phase: schedule the inputs, run the programs, push what they produced (IC reference 3.5).

``schedule_and_execute`` is evaluated once a round (D-13): ``Schedule`` says what it took from the queues, the program
runner says what was produced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from causeway_proofs.ic.messages import RejectCode
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
    """Which elements are consumed (masks over the elements of the queues), and the inputs in the order of consumption.

    ``inputs`` has the message columns and ``index``, the position in the queue; ``missing``: those whose canister is
    mapped here but not installed. ``turns``, ``next_sources``: those of the state after it.
    """

    ingress: np.ndarray
    xnet: np.ndarray
    inputs: Frame
    missing: np.ndarray
    turns: Frame
    next_sources: Frame


def schedule(state: State, induction: Sequence[RoundStep], context: Context) -> Schedule:
    """Choose what every canister consumes."""
    ingress, queued = state.ingress_queues.elements, state.input_queues.elements
    turns, next_sources = state.turns, state.next_sources
    nothing = np.zeros(0, dtype=bool)
    if len(queued) == 0 and len(ingress) == 0:
        return Schedule(nothing, nothing, queued.select(INPUT_COLUMNS), nothing, turns, next_sources)
    elements = queued if len(ingress) == 0 else concat([ingress, queued])
    if limit := context.options.messages_per_canister:
        turns = move_behind(turns, enqueued_queues([step.arrivals for step in induction]))
        local = context.host_of(queued["sender"]) == context.host_of(queued["receiver"])
        taken = take_in_turn(ingress, queued, turns, next_sources, local, limit)
        order, turns = taken.order, taken.turns
        next_sources = taken.next_sources.filter(state.installed(taken.next_sources["receiver"]))
    else:
        # The order in which everything is consumed, as rows of the ingress queues' elements and behind them of the
        # input queues': a canister's ingress by index, then its input queues in passes, the oldest of each first.
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
    """Run the programs on their inputs, and push what they produced to the output queues.

    ``induction``: the steps of the induction phase, of which it is told here what was consumed in the same round.
    """
    log = EventLog()
    plan = schedule(state, induction, context)
    inputs, answers = plan.inputs, None
    if plan.missing.any():
        # Answer the requests to canisters that are mapped here but not installed; nothing else waits for one.
        requests = plan.inputs.filter(plan.missing)
        at = {"chain": context.host_of(requests["receiver"]).view(np.uint32), "queue_index": requests["index"]}
        code, reason = RejectCode.DestinationInvalid, RejectReason.CanisterNotFound.name
        log.add(event_rows(requests, Event.REJECTED, code=code, reason=reason, **at))
        answers = reject_responses(requests, code, NOT_FOUND)
        inputs, answers = plan.inputs.filter(~plan.missing), answers.select(MESSAGE_COLUMNS)
    # Write what happened to every input: received in this round, executed in this round, or both.
    for arrivals, elements, consumed in (
        (concat([step.arrivals for step in induction]), state.input_queues.elements, plan.xnet),
        (concat([step.ingress for step in induction]), state.ingress_queues.elements, plan.ingress),
    ):
        executed = consumed
        if plan.missing.any():
            executed = consumed & state.installed(elements["receiver"])
        on_lane = "index" in arrivals
        if len(arrivals) == len(elements) and bool(executed.all()):
            log.add(_received(arrivals, _executed_bits(arrivals), on_lane))
            continue
        # The row of each arrival among the elements: they are the last of each queue, in the order of pushing.
        ingress = "index" not in arrivals
        keys = ["receiver"] if ingress else ["receiver", "sender"]
        arrival_order = stable_order(*(arrivals[key] for key in keys), arrivals["queue_index"])
        both = [np.concatenate([elements[key], arrivals[key]]) for key in keys]
        index = np.concatenate([elements["index"], arrivals["queue_index"]])
        order = stable_order(*both, index)
        # Every arrival follows its element in this order, because they have equal keys and elements come first.
        is_arrival = order >= len(elements)
        arrival_rows = np.empty(len(arrivals), dtype=np.int64)
        arrival_rows[arrival_order] = order[np.flatnonzero(is_arrival) - 1]
        log.add(
            _received(
                arrivals, np.where(executed[arrival_rows], _executed_bits(arrivals), 0).astype(np.uint16), on_lane
            )
        )
        older = np.ones(len(elements), dtype=bool)
        older[arrival_rows] = False
        earlier = elements.take(np.flatnonzero(older & executed))
        hosts = context.host_of(earlier["receiver"]).view(np.uint32)
        bits = _executed_bits(earlier)
        log.add(event_rows(earlier, bits, chain=hosts, queue_index=earlier["index"], code=earlier["code"]))
    if len(plan.inputs) == 0:
        return RoundStep(state, log)
    outcome = context.programs.run(inputs.select(MESSAGE_COLUMNS), state.accounts, state.programs)
    if len(outcome.failures):
        rows = inputs.take(outcome.failures["row"])
        log.add(
            event_rows(
                rows,
                Event.REJECTED,
                chain=context.host_of(rows["receiver"]).view(np.uint32),
                queue_index=rows["index"],
                code=RejectCode.CanisterError,
                reason=outcome.failures["text"].dictionary_encode(),
            )
        )
    log.failures(inputs, outcome.raised, context.host_of(inputs["receiver"]))
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


def arrival_events(arrivals: Frame) -> Frame:
    """Return the event rows of arrivals on chains that execute nothing in this round."""
    return _received(arrivals, np.zeros(len(arrivals), dtype=np.uint16), on_lane=True)


def _executed_bits(messages: Frame) -> np.ndarray:
    bits = np.full(len(messages), int(Event.EXECUTED), dtype=np.uint16)
    bits[messages["kind"] == Kind.RESPONSE] |= int(Event.ANSWERED)
    return bits


def _received(arrivals: Frame, executed: np.ndarray, on_lane: bool) -> Frame:
    bits = executed | np.uint16(Event.RECEIVED)
    via = arrivals.get("via", Via.INGRESS)
    return event_rows(
        arrivals,
        bits,
        chain=arrivals["chain"],
        on_lane=on_lane,
        queue_index=arrivals["queue_index"],
        code=arrivals["code"],
        via=via,
    )
