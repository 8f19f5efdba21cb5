"""One block of a set of zones (IBC reference 3): what relayers submit, what programs make of it, the queues after.

Every step is a function of the state and of what the step before gave; the steps and their order are those of
``docs/protocols/ibc.md``, "One block of one zone".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated, repeated_text
from causeway.model.ledger import COLLECTED_MESSAGES, Event, Kind, Via
from causeway.model.order import groups_of, pair_codes, positions_in, stable_order
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.execute import execute
from causeway.protocols.ibc.inputs import (
    ARRIVAL_COLUMNS,
    TEXTS,
    Code,
    ingress_arrivals,
    judge_packets,
    with_own_identity,
)
from causeway.protocols.ibc.outputs import answers_by_slot, receipt_codes, send
from causeway.protocols.ibc.pushing import push, with_ready, without_finished
from causeway.protocols.ibc.state import RECEIPT, SEND, SLOTS_SCHEMA, State, keys_of, lane_keys
from causeway.protocols.ibc.submitting import RelayPlan, take_submissions, turned
from causeway.protocols.messages import MESSAGE_COLUMNS

PUSHED = ["chain", "remote", "substream", *MESSAGE_COLUMNS, "of_program"]


def process_block(
    state: State, plan: RelayPlan, messages: Frame, recalled: Frame, ingress: pa.Table, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state after a block, its stores not yet committed, and what is outbound (``ENTRIES_SCHEMA``).

    ``messages``: what the plan wanted; ``recalled``: our own packets to which receipts came; ``ingress``: from users.
    """
    inside = messages["chain"] == messages["remote"]
    local = messages.filter(inside)
    state, accepted = take_submissions(state, plan, turned(messages.filter(~inside)), context, log)
    is_packet = accepted["substream"] == SEND
    packets, receipts = accepted.filter(is_packet), accepted.filter(~is_packet)
    state = _with_tails(state, packets)
    state, own = _popped(state, receipts, recalled, log)
    state = _without_local(state, local)
    codes = judge_packets(packets, state, context)
    immediate = _immediate_receipts(packets.filter(codes > 0), codes[codes > 0], log)
    handled = packets.filter(codes == 0)
    order = np.concatenate([np.flatnonzero(is_packet)[codes == 0], np.flatnonzero(~is_packet)])
    from_afar = concat([part.select(ARRIVAL_COLUMNS[:-1]) for part in (handled, with_own_identity(receipts, own))])
    from_afar = from_afar.take(np.argsort(order, kind="stable")).with_columns(via=np.uint8(Via.XNET))
    users = ingress_arrivals(ingress, state, context, log)
    arrivals = concat([part.select(ARRIVAL_COLUMNS) for part in (from_afar, _local_arrivals(local), users)])
    state, produced = execute(state, arrivals, context, log)
    sent, receipts, slots = _outgoing(state, handled, produced, context, log)
    state, outbound = push(state, sent, concat([immediate, receipts]), context)
    state = with_ready(replace(state, slots=slots))
    return without_finished(_with_knowledge(state, plan)), outbound


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


def _popped(state: State, receipts: Frame, recalled: Frame, log: EventLog) -> tuple[State, Frame]:
    """Return the state without the packets that were answered, and those packets, one a receipt in its order."""
    own, asked = pair_codes(
        (keys_of(recalled), recalled["index"]),
        (lane_keys(receipts["chain"], receipts["remote"], SEND), receipts["index"]),
    )
    order = np.argsort(own, kind="stable")
    packets = recalled.take(order[np.searchsorted(own[order], asked)]) if len(receipts) else recalled.slice(0, 0)
    if len(receipts) == 0:
        return state, packets
    leaves = state.leaves
    known, gone = pair_codes((keys_of(leaves), leaves["index"]), (keys_of(packets), packets["index"]))
    kept = np.ones(len(leaves), dtype=bool)
    kept[positions_in(known, gone)] = False
    state = replace(state, leaves=leaves.filter(kept))
    _log_collected(packets, log)
    return replace(state, queues=_with_heads(state, np.unique(keys_of(packets)))), packets


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


def _local_arrivals(local: Frame) -> Frame:
    """Return what the local lanes hold: calls before answers, in the order of pushing."""
    order = stable_order(local["chain"], np.uint64(SEND) - local["substream"], local["index"])
    rejected = local["queue_index"] == np.uint64(2**64 - 1)
    via = np.where(rejected, np.uint8(Via.SYNTHETIC), np.uint8(Via.LOOPBACK))
    return local.with_columns(via=via).take(order)


def _immediate_receipts(packets: Frame, codes: np.ndarray, log: EventLog) -> Frame:
    """Return the receipts of packets that no program handles; each leaves an event with the reason."""
    length = len(packets)
    names = names_column([code.name for code in Code], np.searchsorted(np.array(list(Code)), codes))
    where = {"chain": packets["chain"], "code": codes, "via": Via.XNET, "reason": names}
    bits = np.full(length, int(Event.RECEIVED | Event.REJECTED), dtype=np.uint16)
    log.add(event_rows(packets, bits, on_lane=True, queue_index=packets["index"], **where))
    texts = pa.array([TEXTS.get(code, "").encode() for code in Code], pa.binary())
    receipts = packets.with_columns(
        substream=repeated(np.uint64(RECEIPT), length),
        kind=repeated(np.uint8(Kind.RESPONSE), length),
        sender=packets["receiver"],
        receiver=packets["sender"],
        code=codes.astype(np.uint8),
        method=repeated_text("", length),
        payload=texts.take(pa.array(np.searchsorted(np.array(list(Code)), codes))),
        of_program=repeated(np.bool_(False), length),
    )
    return receipts.select([*PUSHED, "index"])


def _outgoing(
    state: State, handled: Frame, produced: Frame, context: Context, log: EventLog
) -> tuple[Frame, Frame, Frame]:
    """Return packets and local messages to push, receipts with their places, and the places still without an answer."""
    requests = produced.filter(produced["kind"] == Kind.REQUEST)
    answers = produced.filter(produced["kind"] == Kind.RESPONSE)
    zones = context.zones
    home = zones.host_of(answers["sender"]).view(np.uint32)
    inside = zones.host_of(answers["receiver"]).view(np.uint32) == home
    own = answers.filter(inside)
    local = own.with_columns(chain=home[inside], remote=home[inside], substream=np.uint64(RECEIPT))
    sent = send(requests, state, context, log)
    rejected = sent["kind"] == Kind.RESPONSE
    sent = sent.with_columns(of_program=~rejected)
    local = local.with_columns(of_program=np.ones(len(local), dtype=bool))
    waiting = concat([state.slots, handled.select(SLOTS_SCHEMA.names)])
    receipts, slots = answers_by_slot(answers.filter(~inside), waiting, context)
    receipts = receipts.with_columns(
        code=receipt_codes(receipts["code"]), of_program=np.ones(len(receipts), dtype=bool)
    )
    slots = slots.take(stable_order(slots["chain"], slots["remote"], slots["index"]))
    pushed = concat([sent.select(PUSHED), local.select(PUSHED)])
    return pushed, receipts.select([*PUSHED, "index"]), slots


def _with_knowledge(state: State, plan: RelayPlan) -> State:
    """Return the state with what relayers saw of the remote queues: how far our packets were received, and our receipts
    processed."""
    connections = state.connections
    _, received = plan.seen.positions(connections["chain"], connections["remote"], RECEIPT)
    done, _ = plan.seen.positions(connections["chain"], connections["remote"], SEND)
    received, done = (
        np.maximum(connections[name], seen) for name, seen in (("peer_received", received), ("peer_done", done))
    )
    if np.array_equal(received, connections["peer_received"]) and np.array_equal(done, connections["peer_done"]):
        return state
    return replace(state, connections=connections.with_columns(peer_received=received, peer_done=done))
