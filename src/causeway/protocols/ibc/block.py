"""One block of a set of zones (IBC reference 3): submissions, program handlers, queues.

Every step is a function of the state and the previous step's result. The section "One block of one zone" of
``docs/explanation/protocols/ibc.md`` lists the steps in the same order.

Handlers run in the block's order (IBC reference 3.3, 3.4). A packet either gets its receipt at once, without a program;
or is handled and answered, now or later; or is handled and undone, because the handler failed (G10) or did not answer
at once where it must. An answer ends its packet, or its handler fails and the call has no effect (``HandlerFault``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from causeway_proofs.order import Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, repeat_bytes, repeat_text, repeat_value
from causeway.core.joins import Intervals, expand_ranges, lookup_rows, merge_ranges
from causeway.core.vocabulary import COLLECTED_MESSAGES, NO_CHAIN, Event, Kind, Via
from causeway.protocols.contract import Inputs
from causeway.protocols.ibc.calls.receive import result_codes
from causeway.protocols.ibc.calls.recovery import recover
from causeway.protocols.ibc.calls.send import send
from causeway.protocols.ibc.calls.submission import RelayPlan, process_submissions
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnection import disconnect, end_connections, is_final
from causeway.protocols.ibc.events import zone_event_rows
from causeway.protocols.ibc.program_inputs import (
    ARRIVAL_COLUMNS,
    ReceiptCode,
    answers_by_slot,
    ingress_arrivals,
    is_installed_locally,
    receipt_codes,
    receipt_texts,
    restore_identities,
    truncate_receipts,
)
from causeway.protocols.ibc.progress import Pair
from causeway.protocols.ibc.queue_entries import entry_digests, push, update_ready
from causeway.protocols.ibc.relay.backoff import record_backoffs
from causeway.protocols.ibc.relay.delays import record_known_headers
from causeway.protocols.ibc.relay.evidence import verify_proofs
from causeway.protocols.ibc.relay.submissions import select_own_share
from causeway.protocols.ibc.state import (
    RECEIPT,
    SEND,
    SLOTS_SCHEMA,
    STATE_TABLES,
    State,
    connection_rows,
    lanes_of,
    reverse_lanes,
)
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.execution import Execution
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, NO_QUEUE

PUSHED = [*LANE, *MESSAGE_COLUMNS, "of_program"]
"""The columns of a message pushed to a queue.

``of_program`` marks messages produced by programs.
"""

CODES = np.array(list(ReceiptCode))
NAMES = [code.name for code in ReceiptCode]


@dataclass(frozen=True)
class ExecutionResult:
    """Result of the handlers of a block.

    Attributes:
        state: The state after the programs.
        produced: The produced messages, in the order of the arrivals that caused them.
        handled: Packets handled by programs.
        immediate: Receipts (``PUSHED`` and ``index``) of the other packets.
        settled: Answers whose packets have ended.
    """

    state: State
    produced: Frame
    handled: Frame
    immediate: Frame
    settled: Frame


@dataclass(frozen=True)
class AnswerHandlersRaised:
    """Answers (lane, ``index``) whose handlers raised: their calls must be refused."""

    answers: Frame


def run_handlers(
    state: State, packets: Frame, answers: Frame, local: Frame, users: Frame, context: Context, log: EventLog
) -> ExecutionResult | AnswerHandlersRaised:
    """Run the programs over a block's inputs.

    Packets and answers come by ``sequence``, then local messages, then users' messages.

    An answer to a packet that the zone forged for a missing program ends the packet without a handler; so does the
    answer to a final packet.

    Returns:
        The result; or the answers whose handlers raised, if any. Then the block's calls must be processed again without
        these.
    """
    codes = result_codes(packets, state, context)
    served = (codes == 0) & ~is_final(packets)
    while True:
        handled = packets.filter(served).with_columns(via=np.uint8(Via.LANE))
        heard = answers.filter(is_installed_locally(answers, state, context))
        from_afar = concat([part.select([*ARRIVAL_COLUMNS, "sequence"]) for part in (handled, heard)])
        by_sequence = stable_order(from_afar["sequence"].view(np.uint64))
        from_afar = from_afar.take(by_sequence)
        arrivals = concat([part.select(ARRIVAL_COLUMNS) for part in (from_afar, local, users)])
        order = stable_order(arrivals["receiver"])
        inputs = arrivals.take(order)
        outcome = context.programs.run(inputs.select(MESSAGE_COLUMNS), state.accounts, state.programs)
        failed = order[outcome.failures["row"]]
        of_answers = _remote_answers(arrivals.take(failed))
        if of_answers.any():
            at = _remote_answers(inputs.take(outcome.raised["row"]))
            log.failures(inputs, outcome.raised.filter(at), inputs["destination"])
            return AnswerHandlersRaised(arrivals.take(failed[of_answers]).select(LANE_COLUMNS))
        silent = _unanswered(handled, np.argsort(by_sequence)[: len(handled)], outcome, order, context)
        if silent.any():
            unanswered = np.flatnonzero(served)[silent]
            codes[unanswered], served[unanswered] = ReceiptCode.HANDLER_FAILED, False
            continue
        break
    _log(arrivals, failed, outcome, log)
    log.failures(inputs, outcome.raised, inputs["destination"])
    _log_forged_answers(answers.filter(~is_installed_locally(answers, state, context)), log)
    produced = outcome.produced.take(stable_order(order[outcome.origins].astype(np.uint64)))
    after = state.with_programs(outcome.accounts, outcome.programs)
    finals = packets.filter(is_final(packets) & (codes == 0))
    after = disconnect(after, finals["destination"], finals["source"])
    # Packets without a handler get a receipt at once, and an event with the reason unless they are final.
    packets = packets.filter(~served)
    codes = codes[~served]
    # A late final packet costs no program anything, and a rejected control row would mean a refused call.
    rejected = ~is_final(packets)
    names = names_column(["", *NAMES], np.where(rejected, np.searchsorted(CODES, codes) + 1, 0))
    where = {"chain": packets["destination"], "code": codes, "via": Via.LANE, "reason": names}
    bits = np.where(rejected, int(Event.RECEIVED | Event.REJECTED), int(Event.RECEIVED)).astype(np.uint16)
    log.add(event_rows(packets, bits, on_lane=True, queue_index=packets["index"], **where))
    immediate = protocol_answers(packets, codes).select([*PUSHED, "index"])
    return ExecutionResult(after, produced, handled, immediate, answers)


def _remote_answers(arrivals: Frame) -> np.ndarray:
    """Return a mask of answers from other zones.

    If their handler raises, the packet stays (3.4).
    """
    return np.asarray((arrivals["kind"] == Kind.RESPONSE) & (arrivals["source"] != arrivals["destination"]))


def _unanswered(handled: Frame, rows: Rows, outcome: Execution, order: Rows, context: Context) -> np.ndarray:
    """Return a mask of packets without the required immediate answer.

    Answers are required with ``acknowledgements = synchronous``.

    Only an answer from the packet's own handler counts; another answer in the same block is late.

    Args:
        handled: The packets.
        rows: The row of each packet among the arrivals.
        outcome: The result of the handlers.
        order: The arrival of each input.
        context: The metadata of the block.
    """
    if context.options.acknowledgements == "asynchronous" or len(handled) == 0:
        return np.zeros(len(handled), dtype=bool)
    packet = np.full(len(order), -1, dtype=np.int64)
    packet[rows] = np.arange(len(handled))
    packet = packet[order[outcome.origins]]
    answered = np.flatnonzero((outcome.produced["kind"] == Kind.RESPONSE) & (packet >= 0))
    packets = packet[answered]
    for one, other in (("receiver", "sender"), ("sender", "receiver"), ("callback", "callback")):
        own = outcome.produced[one][answered] == handled[other][packets]
        answered, packets = answered[own], packets[own]
    silent = np.ones(len(handled), dtype=bool)
    silent[packets] = False
    return silent


def _log(arrivals: Frame, failed: Rows, outcome: Execution, log: EventLog) -> None:
    bits = np.full(len(arrivals), int(Event.RECEIVED | Event.EXECUTED), dtype=np.uint16)
    bits[arrivals["kind"] == Kind.RESPONSE] |= int(Event.ANSWERED)
    of_user = arrivals["source"] == NO_CHAIN
    position = np.where(of_user, arrivals["callback"], arrivals["index"])
    where = {"chain": arrivals["destination"], "via": arrivals["via"], "code": arrivals["code"]}
    # A timeout arrives over no lane; its index is that of the own packet.
    timed_out = arrivals["via"] == Via.TIMEOUT
    nowhere = of_user | timed_out
    ends = {name: np.where(nowhere, np.uint32(NO_CHAIN), arrivals[name]) for name in ("source", "destination")}
    substream = np.where(timed_out, np.uint64(SEND), arrivals["substream"])
    rows = arrivals.with_columns(**ends, substream=substream)
    log.add(event_rows(rows, bits, on_lane=True, queue_index=position, **where))
    if len(failed):
        rows = arrivals.take(failed)
        reason = outcome.failures["text"].dictionary_encode()
        where = {"chain": rows["destination"], "code": ReceiptCode.HANDLER_FAILED, "reason": reason}
        log.add(event_rows(rows, Event.REJECTED, queue_index=rows["index"], **where))


def _log_forged_answers(answers: Frame, log: EventLog) -> None:
    """Log the answers to packets that the zone forged: no local program sent them."""
    bits = np.full(len(answers), int(Event.RECEIVED | Event.DROPPED), dtype=np.uint16)
    final = is_final(answers)
    bits[final] = int(Event.RECEIVED)
    where = {"chain": answers["destination"], "code": answers["code"], "via": answers["via"]}
    reason = names_column(["", ReceiptCode.NO_PROGRAM.name], ~final)
    # A timeout arrives over no lane; it is logged on the packet's lane.
    timed_out, packets = answers["via"] == Via.TIMEOUT, reverse_lanes(answers, SEND)
    rows = answers.with_columns(**{name: np.where(timed_out, packets[name], answers[name]) for name in LANE})
    log.add(event_rows(rows, bits, on_lane=True, queue_index=rows["index"], reason=reason, **where))


def protocol_answers(requests: Frame, codes: np.ndarray) -> Frame:
    """Return the protocol's own answers to requests, which return all attached value."""
    length, lanes = len(requests), reverse_lanes(requests, RECEIPT)
    return requests.with_columns(
        **{name: lanes[name] for name in LANE},
        kind=np.where(is_final(requests), requests["kind"], np.uint8(Kind.RESPONSE)),
        sender=requests["receiver"],
        receiver=requests["sender"],
        code=codes.astype(np.uint8),
        method=repeat_text("", length),
        payload=receipt_texts(requests, codes),
        of_program=repeat_value(np.bool_(False), length),
    )


def process_block(
    state: State, plan: RelayPlan, inputs: Inputs[State], own: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Process a block up to, but without, the commitment of its stores.

    Args:
        state: The state of the zones.
        plan: The relayers' plan.
        inputs: The inputs of the round.
        own: Packets (``PUSHED``) of the zones themselves: forged ones of byzantine zones, and final packets of
            connections.
        context: The metadata of the block.
        log: The log of events.

    Returns:
        The state after the block, and the outbound entries (``ENTRIES_SCHEMA``).
    """
    inside = inputs.offered["source"] == inputs.offered["destination"]
    local = inputs.offered.filter(inside)
    offered = in_lane_order(inputs.offered.filter(~inside))
    ordered, before = context.options.order == "ordered", state
    state = recover(state, plan.decisions, context, log)
    users = ingress_arrivals(inputs.ingress, inputs.carried, state, context, log)
    calls, unserved = _local_arrivals(local, state)
    if context.options.relay.users or context.options.relay.sponsored:
        plan = replace(plan, submissions=select_own_share(plan.submissions, offered, inputs.own, context))
    leaves = entry_digests(offered, context.zones, context.tick_ns)[1]
    evidence = verify_proofs(plan.submissions, plan.provable.proofs, offered, leaves, context)
    raising: dict[Pair, Intervals] = {}
    while True:
        after, accepted = process_submissions(
            state, plan, offered, inputs.headers, context, evidence=evidence, raising=raising
        )
        entries = accepted.entries
        packets = entries.filter(entries["substream"] == SEND)
        after = _prune_receipts(_extend_receipts(after, packets), accepted.cleaned)
        answers = _answers(entries.filter(entries["substream"] == RECEIPT), accepted.expired, inputs.own)
        after = after.trimmed(local)
        executed = run_handlers(after, packets, answers, calls, users, context, log)
        if isinstance(executed, ExecutionResult):
            break
        # A call is refused if the handler of its answer raises (3.4). Later calls depend on that, so process the
        # block again from the same state.
        _record_raising(executed.answers, raising, ordered)
    if accepted.notices:
        log.add(zone_event_rows(accepted.notices))
    accepted.fees.log(log)
    if len(accepted.cleaned):
        # Drop receipts below the heads of their queues.
        immediate = executed.immediate
        immediate = immediate.filter(immediate["index"] >= executed.state.queues.read_counters("begin", immediate))
        handled = _not_below_head(executed.handled, executed.state)
        executed = replace(executed, handled=handled, immediate=immediate)
    state = _pop_settled(executed.state, executed.settled, log)
    _log_timeouts(executed.settled, log)
    sent, receipts, slots = _outgoing(state, executed, context, log)
    state = replace(state, relayers=accepted.fees.after(state.relayers), funds=accepted.funds)
    state, own = end_connections(state, own)
    sent = concat([sent, unserved, own.select(sent.names)])
    state, outbound = push(state, sent, concat([executed.immediate, receipts]), context)
    state = update_ready(replace(state, slots=slots), before, ordered)
    state = _record_view(state, plan, ordered)
    state = record_known_headers(state, plan.seen, context)
    state = record_backoffs(state, accepted.fees.made, context)
    return _forget_done_runs(state), outbound


def _log_timeouts(settled: Frame, log: EventLog) -> None:
    """Log each own packet that ended without a receipt."""
    late = settled.filter(settled["via"] == Via.TIMEOUT)
    if len(late) == 0:
        return
    packets = late.with_columns(
        kind=np.where(is_final(late), late["kind"], np.uint8(Kind.REQUEST)),
        sender=late["receiver"],
        receiver=late["sender"],
    )
    at = {"chain": late["destination"], "queue_index": late["index"]}
    log.add(event_rows(packets, Event.TIMED_OUT, code=ReceiptCode.TIMEOUT, **at))


def _forget_done_runs(state: State) -> State:
    """Forget the runs of popped packets, local messages, and processed receipts.

    Relayers saw the destination process the receipts.
    """
    queues, connections = state.queues.counters, state.connections
    connection = connection_rows(connections, queues["source"], queues["destination"])
    receipts = (queues["substream"] == RECEIPT) & (connection >= 0)
    done = queues["begin"].copy()
    done[receipts] = np.maximum(done[receipts], connections["peer_done"][connection[receipts]])
    return replace(state, queues=state.queues.forget(done))


def _record_raising(answers: Frame, raising: dict[Pair, Intervals], ordered: bool) -> None:
    """Record the answers (lane, ``index``) with raising handlers.

    In ordered queues only the first of each lane counts, because later ones must not have been tried.
    """
    answers = in_lane_order(answers)
    if ordered:
        answers = answers.take(group_rows(*(answers[name] for name in LANE)).starts)
    columns = (answers[name].tolist() for name in ("destination", "source", "index"))
    for chain, counterparty, index in zip(*columns, strict=True):
        raising.setdefault((chain, counterparty), Intervals()).add(index, index + 1)


def in_lane_order(entries: Frame) -> Frame:
    """Sort entries by lane and index."""
    return entries.take(stable_order(*(entries[name] for name in LANE_COLUMNS)))


def _extend_receipts(state: State, packets: Frame) -> State:
    """Extend the receipt queues by one index for every accepted packet."""
    if len(packets) == 0:
        return state
    packets = in_lane_order(packets.select(LANE_COLUMNS))
    groups = group_rows(*(packets[name] for name in LANE))
    last = packets.take(groups.starts + groups.counts - 1)
    queues = state.queues.extend(reverse_lanes(last, RECEIPT), last["index"] + np.uint64(1))
    return replace(state, queues=queues)


def _prune_receipts(state: State, cleaned: Frame) -> State:
    """Prune receipts below the new heads (``end``) of their queues; a lower tail follows (X-2)."""
    if len(cleaned) == 0:
        return state
    # A queue may be cleaned more than once; the last cleanup has the greatest end.
    cleaned = cleaned.take(stable_order(*(cleaned[name] for name in (*LANE, "end"))))
    groups = group_rows(*(cleaned[name] for name in LANE))
    last = cleaned.take(groups.starts + groups.counts - 1)
    lanes, to = reverse_lanes(last, RECEIPT), last["end"]
    state = replace(state, queues=state.queues.advance(lanes, to), leaves=state.leaves.advance(lanes, to))
    return replace(
        state,
        slots=_not_below_head(state.slots, state),
        receipts=state.receipts.filter(state.receipts["index"] >= state.queues.read_counters("begin", state.receipts))
        if len(state.receipts)
        else state.receipts,
    )


def _not_below_head(packets: Frame, state: State) -> Frame:
    """Select the packets (lane or ends, ``index``) with receipts not below their queues' heads."""
    return packets.filter(packets["index"] >= state.queues.read_counters("begin", reverse_lanes(packets, RECEIPT)))


def _answers(receipts: Frame, expired: Frame, recalled: Frame) -> Frame:
    """Return the answers for programs, with ``sequence``: receipts, and timeouts (code 2).

    The ``recalled`` own packets identify the senders.
    """
    row, index = expand_ranges(expired["begin"], expired["end"])
    late = expired.select([*LANE, "sequence"]).take(row).with_columns(index=index)
    timed_out = own_packets(recalled, late)
    late = timed_out.with_columns(
        **{name: late[name] for name in (*LANE_COLUMNS, "sequence")},
        code=repeat_value(np.uint8(ReceiptCode.TIMEOUT), len(index)),
        payload=repeat_bytes(b"", len(index)),
        via=repeat_value(np.uint8(Via.TIMEOUT), len(index)),
    )
    own = own_packets(recalled, receipts)
    parts = [
        restore_identities(receipts.with_columns(via=repeat_value(np.uint8(Via.LANE), len(receipts))), own),
        restore_identities(late, timed_out),
    ]
    return concat([part.select([*ARRIVAL_COLUMNS, "sequence"]) for part in parts])


def own_packets(recalled: Frame, answers: Frame) -> Frame:
    """Return the own packets that answers (lane, ``index``) belong to, row by row."""
    if len(answers) == 0:
        return recalled.slice(0, 0)
    keys = reverse_lanes(answers, SEND).with_columns(index=answers["index"])
    return recalled.take(lookup_rows(recalled, keys, LANE_COLUMNS, ordered=False))


def _pop_settled(state: State, answers: Frame, log: EventLog) -> State:
    """Remove the packets that ended: one for each row of ``answers``."""
    if len(answers) == 0:
        return state
    packets = reverse_lanes(answers, SEND).with_columns(index=answers["index"])
    rows = in_lane_order(packets)
    at, first, end = merge_ranges(rows["index"], *(rows[name] for name in LANE))
    log.collected(rows.select(LANE).take(at), COLLECTED_MESSAGES, first, end)
    return replace(state, leaves=state.leaves.delete(packets)).trimmed(packets)


def _local_arrivals(local: Frame, state: State) -> tuple[Frame, Frame]:
    """Split the local lanes into arrivals and unserved calls.

    Returns:
        The arrivals: calls before answers, in push order; and the protocol's answers (``PUSHED``) to calls of missing
        programs.
    """
    order = stable_order(local["source"], np.uint64(SEND) - local["substream"], local["index"])
    rejected = local["queue_index"] == np.uint64(NO_QUEUE)
    via = np.where(rejected, np.uint8(Via.SYNTHETIC), np.uint8(Via.LOOPBACK))
    arrivals = local.with_columns(via=via).take(order)
    installed = find_positions(state.accounts["program"], arrivals["receiver"]) >= 0
    nobody = ~installed & (arrivals["kind"] == Kind.REQUEST)
    unserved = arrivals.filter(nobody) if nobody.any() else arrivals.slice(0, 0)
    codes = np.full(len(unserved), ReceiptCode.NO_PROGRAM, dtype=np.uint8)
    answers = protocol_answers(unserved, codes)
    return arrivals.filter(~nobody), answers.select(PUSHED)


def _outgoing(state: State, executed: ExecutionResult, context: Context, log: EventLog) -> tuple[Frame, Frame, Frame]:
    """Return messages to push, receipts with indices, and slots without an answer."""
    produced = executed.produced
    requests = produced.filter(produced["kind"] == Kind.REQUEST)
    answers = produced.filter(produced["kind"] == Kind.RESPONSE)
    zones = context.zones
    home = zones.host_of(answers["sender"]).view(np.uint32)
    inside = zones.host_of(answers["receiver"]).view(np.uint32) == home
    own = answers.filter(inside)
    local = own.with_columns(
        source=home[inside], destination=home[inside], substream=np.uint64(RECEIPT), code=receipt_codes(own["code"])
    )
    sent = send(requests, state, context, log)
    rejected = sent["kind"] == Kind.RESPONSE
    sent = sent.with_columns(of_program=~rejected)
    local = local.with_columns(of_program=np.ones(len(local), dtype=bool))
    waiting = concat([state.slots, executed.handled.select(SLOTS_SCHEMA.names)])
    receipts, slots = answers_by_slot(answers.filter(~inside), waiting, context, log)
    receipts = receipts.with_columns(
        code=receipt_codes(receipts["code"]), of_program=np.ones(len(receipts), dtype=bool)
    )
    receipts = truncate_receipts(receipts, context)
    slots = slots.take(stable_order(*(slots[name] for name in STATE_TABLES["slots"].order)))
    pushed = concat([sent.select(PUSHED), local.select(PUSHED)])
    return pushed, receipts.select([*PUSHED, "index"]), slots


def _record_view(state: State, plan: RelayPlan, ordered: bool) -> State:
    """Record the relayers' view: packets received without a gap, and processed receipts."""
    connections = state.connections
    theirs = (connections["counterparty"], connections["chain"])
    receipts = lanes_of(*theirs, RECEIPT)
    received = plan.seen.ends(receipts)[1] if ordered else plan.seen.ready(receipts)
    done, _ = plan.seen.ends(lanes_of(*theirs, SEND))
    received, done = (
        np.maximum(connections[name], seen) for name, seen in (("peer_received", received), ("peer_done", done))
    )
    if np.array_equal(received, connections["peer_received"]) and np.array_equal(done, connections["peer_done"]):
        return state
    return replace(state, connections=connections.with_columns(peer_received=received, peer_done=done))
