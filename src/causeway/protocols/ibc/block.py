"""One block of a set of zones (IBC reference 3): what relayers submit, what programs make of it, the queues after.

Every step is a function of the state and of what the step before gave; the steps and their order are those of
``docs/protocols/ibc.md``, "One block of one zone".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame, concat, repeated, repeated_bytes
from causeway.model.ledger import COLLECTED_MESSAGES, Event, Kind, Via
from causeway.model.order import groups_of, pair_codes, positions_in, stable_order
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import ended, is_final
from causeway.protocols.ibc.execute import PUSHED, Handled, as_answers, run_handlers
from causeway.protocols.ibc.external import relayed
from causeway.protocols.ibc.inputs import ARRIVAL_COLUMNS, Code, ingress_arrivals, with_own_identity
from causeway.protocols.ibc.outputs import answers_by_slot, receipt_codes, send
from causeway.protocols.ibc.pushing import push, with_ready, without_finished
from causeway.protocols.ibc.state import RECEIPT, SEND, SLOTS_SCHEMA, State, keys_of, lane_keys
from causeway.protocols.ibc.submitting import RelayPlan, take_submissions, turned
from causeway.protocols.messages import NO_QUEUE


def process_block(
    state: State,
    plan: RelayPlan,
    messages: Frame,
    recalled: Frame,
    ingress: pa.Table,
    own: Frame,
    context: Context,
    log: EventLog,
) -> tuple[State, Frame]:
    """Return the state after a block, its stores not yet committed, and what is outbound (``ENTRIES_SCHEMA``).

    ``messages``: what the plan wanted; ``recalled``: our own packets that end now; ``ingress``: from users;
    ``own``: packets (``PUSHED``) of zones themselves: what byzantine ones forge, and the final packets of connections.
    """
    inside = messages["chain"] == messages["remote"]
    local = messages.filter(inside)
    outside = relayed(ingress, context)
    transactions = ingress.filter(outside)
    state, accepted = take_submissions(state, plan, turned(messages.filter(~inside)), transactions, context, log)
    entries = accepted.entries
    packets = entries.filter(entries["substream"] == SEND)
    state = _cleaned(_with_tails(state, packets), accepted.cleaned)
    answers = _answers(entries.filter(entries["substream"] == RECEIPT), accepted.expired, recalled)
    state = _without_local(state, local)
    users = ingress_arrivals(ingress, pc.invert(outside), state, context, log)
    calls, unserved = _local_arrivals(local, state)
    taken = run_handlers(state, packets, answers, calls, users, context, log)
    if len(accepted.cleaned):
        taken = _without_cleaned(taken, state.queues)
    state = _popped(taken.state, taken.settled, log)
    _log_timed_out(taken.settled, log)
    sent, receipts, slots = _outgoing(state, taken, context, log)
    state, own = ended(state, own)
    sent = concat([sent, unserved, own.select(sent.names)])
    state, outbound = push(state, sent, concat([taken.immediate, receipts]), context)
    ordered = context.options.order == "ordered"
    state = with_ready(replace(state, slots=slots), ordered)
    return without_finished(_with_knowledge(state, plan, ordered)), outbound


def _with_tails(state: State, packets: Frame) -> State:
    """Return the state with a place in its receipt queue for every packet accepted."""
    if len(packets) == 0:
        return state
    lanes = lane_keys(packets["chain"], packets["remote"], RECEIPT)
    order = stable_order(lanes, packets["index"])
    groups = groups_of(lanes[order])
    last = order[groups.starts + groups.counts - 1]
    rows = np.searchsorted(keys_of(state.queues), lanes[last])
    tails = state.queues["next_index"].copy()
    tails[rows] = np.maximum(tails[rows], packets["index"][last] + np.uint64(1))
    return replace(state, queues=state.queues.with_columns(next_index=tails))


def _cleaned(state: State, cleaned: Frame) -> State:
    """Return the state without receipts below the new heads (``end``) of their queues; a tail below follows (X-2)."""
    if len(cleaned) == 0:
        return state
    lanes = lane_keys(cleaned["chain"], cleaned["remote"], RECEIPT)
    rows = np.searchsorted(keys_of(state.queues), lanes)
    heads, tails = state.queues["begin"].copy(), state.queues["next_index"].copy()
    heads[rows] = np.maximum(heads[rows], cleaned["end"])
    tails[rows] = np.maximum(tails[rows], cleaned["end"])
    queues = state.queues.with_columns(begin=heads, next_index=tails)
    return replace(
        state,
        queues=queues,
        leaves=_from_heads(state.leaves, keys_of(state.leaves), queues),
        slots=_from_heads(state.slots, lane_keys(state.slots["chain"], state.slots["remote"], RECEIPT), queues),
    )


def _from_heads(rows: Frame, lanes: np.ndarray, queues: Frame) -> Frame:
    """Return the rows whose ``index`` is not below the head of their queue."""
    head = queues["begin"][np.searchsorted(keys_of(queues), lanes)]
    return rows.filter(rows["index"] >= head)


def _without_cleaned(taken: Handled, queues: Frame) -> Handled:
    """Return what came of the handlers without places for receipts below the heads of their queues.

    A cleanup may have passed a packet that came in this very block, with an old proof.
    """

    def kept(rows: Frame) -> Frame:
        return _from_heads(rows, lane_keys(rows["chain"], rows["remote"], RECEIPT), queues)

    return replace(taken, handled=kept(taken.handled), immediate=kept(taken.immediate))


def _answers(receipts: Frame, expired: Frame, recalled: Frame) -> Frame:
    """Return what programs are given for packets that ended, with ``sequence``: receipts, and time-outs (code 2).

    Who asked whom is taken from our own packets, ``recalled``.
    """
    counts = (expired["end"] - expired["begin"]).astype(np.int64)
    offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    index = np.repeat(expired["begin"], counts) + offset.astype(np.uint64)
    lanes = expired.select(["chain", "remote", "sequence"]).take(np.repeat(np.arange(len(expired)), counts))
    timed_out = own_packets(recalled, lanes["chain"], lanes["remote"], index)
    late = timed_out.with_columns(
        code=repeated(np.uint8(Code.TIMEOUT), len(index)),
        payload=repeated_bytes(b"", len(index)),
        sequence=lanes["sequence"],
        via=repeated(np.uint8(Via.TIMEOUT), len(index)),
    )
    own = own_packets(recalled, receipts["chain"], receipts["remote"], receipts["index"])
    parts = [
        with_own_identity(receipts.with_columns(via=repeated(np.uint8(Via.LANE), len(receipts))), own),
        with_own_identity(late, timed_out),
    ]
    return concat([part.select([*ARRIVAL_COLUMNS, "sequence"]) for part in parts])


def own_packets(recalled: Frame, chain: np.ndarray, remote: np.ndarray, index: np.ndarray) -> Frame:
    """Return our own packets at these places of our send queues, row by row."""
    if len(index) == 0:
        return recalled.slice(0, 0)
    own, asked = pair_codes((keys_of(recalled), recalled["index"]), (lane_keys(chain, remote, SEND), index))
    order = np.argsort(own, kind="stable")
    return recalled.take(order[np.searchsorted(own[order], asked)])


def _popped(state: State, answers: Frame, log: EventLog) -> State:
    """Return the state without the packets that ended: a row of ``answers`` for each."""
    if len(answers) == 0:
        return state
    packets = answers.select(["chain", "remote", "index"]).with_columns(substream=np.uint64(SEND))
    leaves = state.leaves
    known, gone = pair_codes((keys_of(leaves), leaves["index"]), (keys_of(packets), packets["index"]))
    kept = np.ones(len(leaves), dtype=bool)
    kept[positions_in(known, gone)] = False
    state = replace(state, leaves=leaves.filter(kept))
    _log_collected(packets, log)
    return replace(state, queues=_with_heads(state, np.unique(keys_of(packets))))


def _with_heads(state: State, lanes: np.ndarray) -> Frame:
    """Return the queues with the heads of send queues moved to what is left in them."""
    queues, leaves = state.queues, state.leaves
    rows = np.searchsorted(keys_of(queues), lanes)
    entries = keys_of(leaves)
    first = np.searchsorted(entries, lanes)
    left = np.searchsorted(entries, lanes, side="right") > first
    heads = queues["begin"].copy()
    heads[rows] = queues["next_index"][rows]
    heads[rows[left]] = leaves["index"][first[left]]
    return queues.with_columns(begin=heads)


def _log_timed_out(answers: Frame, log: EventLog) -> None:
    """Leave an event for each of our packets that ended without a receipt."""
    late = answers.filter(answers["via"] == Via.TIMEOUT)
    packets = late.with_columns(
        kind=np.where(is_final(late), late["kind"], np.uint8(Kind.REQUEST)),
        sender=late["receiver"],
        receiver=late["sender"],
    )
    if len(late):
        where = {"chain": late["chain"], "queue_index": late["index"]}
        log.add(event_rows(packets, Event.TIMED_OUT, code=Code.TIMEOUT, **where))


def _log_collected(packets: Frame, log: EventLog) -> None:
    rows = packets.take(stable_order(keys_of(packets), packets["index"]))
    index = rows["index"]
    groups = groups_of(keys_of(rows), index - np.arange(len(index), dtype=np.uint64))
    lanes = rows.select(["chain", "remote", "substream"]).take(groups.starts)
    first = index[groups.starts]
    log.collected(lanes, COLLECTED_MESSAGES, first, first + groups.counts.astype(np.uint64))


def _without_local(state: State, local: Frame) -> State:
    """Return the state with the local lanes empty: all that was in them is taken now."""
    if len(local) == 0:
        return state
    queues = state.queues
    rows = np.searchsorted(keys_of(queues), np.unique(keys_of(local)))
    heads = queues["begin"].copy()
    heads[rows] = queues["next_index"][rows]
    return replace(state, queues=queues.with_columns(begin=heads))


def _local_arrivals(local: Frame, state: State) -> tuple[Frame, Frame]:
    """Return what the local lanes hold for programs: calls before answers, in the order of pushing; and the answers
    (``PUSHED``) to calls of programs that are not there."""
    order = stable_order(local["chain"], np.uint64(SEND) - local["substream"], local["index"])
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
    """Return packets and local messages to push, receipts with their places, and the places still without an answer."""
    produced = taken.produced
    requests = produced.filter(produced["kind"] == Kind.REQUEST)
    answers = produced.filter(produced["kind"] == Kind.RESPONSE)
    zones = context.zones
    home = zones.host_of(answers["sender"]).view(np.uint32)
    inside = zones.host_of(answers["receiver"]).view(np.uint32) == home
    own = answers.filter(inside)
    local = own.with_columns(
        chain=home[inside], remote=home[inside], substream=np.uint64(RECEIPT), code=receipt_codes(own["code"])
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
    slots = slots.take(stable_order(slots["chain"], slots["remote"], slots["index"]))
    pushed = concat([sent.select(PUSHED), local.select(PUSHED)])
    return pushed, receipts.select([*PUSHED, "index"]), slots


def _with_knowledge(state: State, plan: RelayPlan, ordered: bool) -> State:
    """Return the state with what relayers saw of the remote queues: how far our packets were received without a gap,
    and our receipts processed."""
    connections = state.connections
    _, received = plan.seen.positions(connections["chain"], connections["remote"], RECEIPT)
    if not ordered:
        received = plan.seen.ready(connections["chain"], connections["remote"], RECEIPT)
    done, _ = plan.seen.positions(connections["chain"], connections["remote"], SEND)
    received, done = (
        np.maximum(connections[name], seen) for name, seen in (("peer_received", received), ("peer_done", done))
    )
    if np.array_equal(received, connections["peer_received"]) and np.array_equal(done, connections["peer_done"]):
        return state
    return replace(state, connections=connections.with_columns(peer_received=received, peer_done=done))
