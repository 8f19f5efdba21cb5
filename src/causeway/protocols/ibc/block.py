"""One block of a set of zones (IBC reference 3): what relayers submit, what programs make of it, the queues after.

Every step is a function of the state and of what the step before gave; the steps and their order are those of
``docs/protocols/ibc.md``, "One block of one zone".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from causeway.model.frame import Frame, concat, repeated, repeated_bytes
from causeway.model.intervals import Intervals
from causeway.model.joins import lookup, over, stretches
from causeway.model.ledger import COLLECTED_MESSAGES, Event, Kind, Via
from causeway.model.order import groups_of, positions_in, stable_order
from causeway.protocols.contract import Inputs
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ibc.answers import answers_by_slot, carried_whole, receipt_codes
from causeway.protocols.ibc.backing_off import remember
from causeway.protocols.ibc.carrying import own_share
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.delays import with_known
from causeway.protocols.ibc.disconnecting import ended, is_final
from causeway.protocols.ibc.entries import entry_digests
from causeway.protocols.ibc.evidence import weigh
from causeway.protocols.ibc.execute import PUSHED, Handled, as_answers, run_handlers
from causeway.protocols.ibc.inputs import ARRIVAL_COLUMNS, Code, ingress_arrivals, with_own_identity
from causeway.protocols.ibc.messages.send import send
from causeway.protocols.ibc.notices import notice_rows
from causeway.protocols.ibc.progress import Pair
from causeway.protocols.ibc.pushing import push, with_ready
from causeway.protocols.ibc.recovering import recover
from causeway.protocols.ibc.state import (
    RECEIPT,
    SEND,
    SLOTS_SCHEMA,
    STATE_TABLES,
    State,
    answering,
    connection_rows,
    lanes_of,
)
from causeway.protocols.ibc.submitting import RelayPlan, take_submissions
from causeway.protocols.messages import LANE, LANE_COLUMNS, NO_QUEUE


def process_block(
    state: State, plan: RelayPlan, inputs: Inputs[State], own: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state after a block, its stores not yet committed, and what is outbound (``ENTRIES_SCHEMA``).

    ``own``: packets (``PUSHED``) of zones themselves: what byzantine ones forge, and the final packets of connections.
    """
    inside = inputs.offered["source"] == inputs.offered["destination"]
    local = inputs.offered.filter(inside)
    offered = in_lane_order(inputs.offered.filter(~inside))
    ordered, before = context.options.order == "ordered", state
    state = recover(state, plan.decisions, context, log)
    users = ingress_arrivals(inputs.ingress, inputs.carried, state, context, log)
    calls, unserved = _local_arrivals(local, state)
    if context.options.relay.users or context.options.relay.sponsored:
        plan = replace(plan, submissions=own_share(plan.submissions, offered, inputs.own, context))
    # What the proofs of a block amount to; `messages`: the entries that they cover, by lane and index.
    leaves = entry_digests(offered, context.zones, context.tick_ns)[1]
    evidence, raising = weigh(plan.submissions, plan.provable.proofs, offered, leaves, context), dict[Pair, Intervals]()
    while True:
        after, accepted = take_submissions(
            state, plan, offered, inputs.headers, context, evidence=evidence, raising=raising
        )
        entries = accepted.entries
        packets = entries.filter(entries["substream"] == SEND)
        after = _cleaned(_with_tails(after, packets), accepted.cleaned)
        answers = _answers(entries.filter(entries["substream"] == RECEIPT), accepted.expired, inputs.own)
        after = after.trimmed(local)
        taken = run_handlers(after, packets, answers, calls, users, context, log)
        if isinstance(taken, Handled):
            break
        # Where the program that waits for an answer raises, the call is refused (3.4), and all behind it is judged by
        # that: the same block from the same state, which gives the same but for this.
        _note(taken.answers, raising, ordered)
    if accepted.notices:
        log.add(notice_rows(accepted.notices))
    accepted.fees.log(log)
    if len(accepted.cleaned):
        # What came of the handlers without receipts below the heads of their queues.
        immediate = taken.immediate
        passed = immediate["index"] < taken.state.queues.count_of("begin", immediate)
        taken = replace(taken, handled=_not_below_head(taken.handled, taken.state), immediate=immediate.filter(~passed))
    state = _popped(taken.state, taken.settled, log)
    # Leave an event for each of our packets that ended without a receipt.
    late = taken.settled.filter(taken.settled["via"] == Via.TIMEOUT)
    packets = late.with_columns(
        kind=np.where(is_final(late), late["kind"], np.uint8(Kind.REQUEST)),
        sender=late["receiver"],
        receiver=late["sender"],
    )
    if len(late):
        where = {"chain": late["destination"], "queue_index": late["index"]}
        log.add(event_rows(packets, Event.TIMED_OUT, code=Code.TIMEOUT, **where))
    sent, receipts, slots = _outgoing(state, taken, context, log)
    state, own = ended(replace(state, relayers=accepted.fees.after(state.relayers), funds=accepted.funds), own)
    sent = concat([sent, unserved, own.select(sent.names)])
    state, outbound = push(state, sent, concat([taken.immediate, receipts]), context)
    state = with_ready(replace(state, slots=slots), before, ordered)
    state = remember(with_known(_with_knowledge(state, plan, ordered), plan.seen, context), accepted.fees.made, context)
    # The state without the runs that nobody will ask for: popped packets and local messages, and receipts that the
    # destination has processed, as far as relayers saw.
    queues, connections = state.queues.counters, state.connections
    connection = connection_rows(connections, queues["source"], queues["destination"])
    receipts = (queues["substream"] == RECEIPT) & (connection >= 0)
    done = queues["begin"].copy()
    done[receipts] = np.maximum(done[receipts], connections["peer_done"][connection[receipts]])
    return replace(state, queues=state.queues.forget(done)), outbound


def _note(answers: Frame, raising: dict[Pair, Intervals], ordered: bool) -> None:
    """Note the answers (lane, ``index``) at which handlers raised; in order the first of each lane, what is behind it
    must not have been tried."""
    answers = in_lane_order(answers)
    if ordered:
        answers = answers.take(groups_of(*(answers[name] for name in LANE)).starts)
    columns = (answers[name].tolist() for name in ("destination", "source", "index"))
    for chain, counterparty, index in zip(*columns, strict=True):
        raising.setdefault((chain, counterparty), Intervals()).add(index, index + 1)


def in_lane_order(entries: Frame) -> Frame:
    """Return entries by lane and index."""
    return entries.take(stable_order(*(entries[name] for name in LANE_COLUMNS)))


def _with_tails(state: State, packets: Frame) -> State:
    """Return the state with an index in its receipt queue for every packet accepted."""
    if len(packets) == 0:
        return state
    packets = in_lane_order(packets.select(LANE_COLUMNS))
    groups = groups_of(*(packets[name] for name in LANE))
    last = packets.take(groups.starts + groups.counts - 1)
    queues = state.queues.extend(answering(last, RECEIPT), last["index"] + np.uint64(1))
    return replace(state, queues=queues)


def _cleaned(state: State, cleaned: Frame) -> State:
    """Return the state without receipts below the new heads (``end``) of their queues; a tail below follows (X-2)."""
    if len(cleaned) == 0:
        return state
    # A queue may be cleaned more than once: the last goes furthest.
    cleaned = cleaned.take(stable_order(*(cleaned[name] for name in (*LANE, "end"))))
    groups = groups_of(*(cleaned[name] for name in LANE))
    last = cleaned.take(groups.starts + groups.counts - 1)
    lanes, to = answering(last, RECEIPT), last["end"]
    state = replace(state, queues=state.queues.advance(lanes, to), leaves=state.leaves.advance(lanes, to))
    return replace(
        state,
        slots=_not_below_head(state.slots, state),
        receipts=state.receipts.filter(state.receipts["index"] >= state.queues.count_of("begin", state.receipts))
        if len(state.receipts)
        else state.receipts,
    )


def _not_below_head(packets: Frame, state: State) -> Frame:
    """Return the packets (lane or ends, ``index``) whose receipts are not below the heads of their queues."""
    return packets.filter(packets["index"] >= state.queues.count_of("begin", answering(packets, RECEIPT)))


def _answers(receipts: Frame, expired: Frame, recalled: Frame) -> Frame:
    """Return what programs are given for packets that ended, with ``sequence``: receipts, and time-outs (code 2).

    Who asked whom is taken from our own packets, ``recalled``.
    """
    row, index = over(expired["begin"], expired["end"])
    late = expired.select([*LANE, "sequence"]).take(row).with_columns(index=index)
    timed_out = own_packets(recalled, late)
    late = timed_out.with_columns(
        **{name: late[name] for name in (*LANE_COLUMNS, "sequence")},
        code=repeated(np.uint8(Code.TIMEOUT), len(index)),
        payload=repeated_bytes(b"", len(index)),
        via=repeated(np.uint8(Via.TIMEOUT), len(index)),
    )
    own = own_packets(recalled, receipts)
    parts = [
        with_own_identity(receipts.with_columns(via=repeated(np.uint8(Via.LANE), len(receipts))), own),
        with_own_identity(late, timed_out),
    ]
    return concat([part.select([*ARRIVAL_COLUMNS, "sequence"]) for part in parts])


def own_packets(recalled: Frame, answers: Frame) -> Frame:
    """Return our own packets that answers (lane, ``index``) are to, row by row."""
    if len(answers) == 0:
        return recalled.slice(0, 0)
    asked = answering(answers, SEND).with_columns(index=answers["index"])
    return recalled.take(lookup(recalled, asked, LANE_COLUMNS, ordered=False))


def _popped(state: State, answers: Frame, log: EventLog) -> State:
    """Return the state without the packets that ended: a row of ``answers`` for each."""
    if len(answers) == 0:
        return state
    packets = answering(answers, SEND).with_columns(index=answers["index"])
    rows = in_lane_order(packets)
    at, first, end = stretches(rows["index"], *(rows[name] for name in LANE))
    log.collected(rows.select(LANE).take(at), COLLECTED_MESSAGES, first, end)
    return replace(state, leaves=state.leaves.delete(packets)).trimmed(packets)


def _local_arrivals(local: Frame, state: State) -> tuple[Frame, Frame]:
    """Return what the local lanes hold for programs: calls before answers, in the order of pushing; and the answers
    (``PUSHED``) to calls of programs that are not there."""
    order = stable_order(local["source"], np.uint64(SEND) - local["substream"], local["index"])
    rejected = local["queue_index"] == np.uint64(NO_QUEUE)
    via = np.where(rejected, np.uint8(Via.SYNTHETIC), np.uint8(Via.LOOPBACK))
    arrivals = local.with_columns(via=via).take(order)
    installed = positions_in(state.accounts["program"], arrivals["receiver"]) >= 0
    nobody = ~installed & (arrivals["kind"] == Kind.REQUEST)
    unserved = arrivals.filter(nobody) if nobody.any() else arrivals.slice(0, 0)
    codes = np.full(len(unserved), Code.NO_PROGRAM, dtype=np.uint8)
    answers = as_answers(unserved, codes)
    return arrivals.filter(~nobody), answers.select(PUSHED)


def _outgoing(state: State, taken: Handled, context: Context, log: EventLog) -> tuple[Frame, Frame, Frame]:
    """Return packets and local messages to push, receipts with their indices, and the slots still without an answer."""
    produced = taken.produced
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
    waiting = concat([state.slots, taken.handled.select(SLOTS_SCHEMA.names)])
    receipts, slots = answers_by_slot(answers.filter(~inside), waiting, context, log)
    receipts = receipts.with_columns(
        code=receipt_codes(receipts["code"]), of_program=np.ones(len(receipts), dtype=bool)
    )
    receipts = carried_whole(receipts, context)
    slots = slots.take(stable_order(*(slots[name] for name in STATE_TABLES["slots"].order)))
    pushed = concat([sent.select(PUSHED), local.select(PUSHED)])
    return pushed, receipts.select([*PUSHED, "index"]), slots


def _with_knowledge(state: State, plan: RelayPlan, ordered: bool) -> State:
    """Return the state with what relayers saw of the remote queues: how far our packets were received without a gap,
    and our receipts processed."""
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
