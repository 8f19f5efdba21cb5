"""The routing phase: from output queues to streams (IC reference 3.6, X-6, X-7).

Outcomes for a message of an output queue: appended to the stream to its receiver's subnet; held back, because that
stream is full; taken out because its receiver is on no subnet (a request is answered with a reject, a response is
lost); taken out, or made smaller, because its payload is too large.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import IndexOverflow
from causeway.model.frame import Frame, concat, repeated
from causeway.model.index import MAX_INDEX
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import U64, Rows, groups_of, stable_order
from causeway.proofs.ic.messages import RejectCode
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.arrivals import as_arrivals, push_arrivals
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.messages import NO_RECEIVER, NO_REJECT, NO_ROUTE, message_sizes, reject_responses
from causeway.protocols.ic.registry import NO_HOST
from causeway.protocols.ic.state import State
from causeway.protocols.messages import MESSAGE_COLUMNS, NO_QUEUE, QUEUED_SCHEMA, STREAMED_SCHEMA, payload_lengths

MAX_TEXT = 8 * 1024
"""Bytes of the text of a reject whose payload is too large that are left (X-7)."""

TOO_LARGE = "PayloadTooLarge"
OVERSIZED = "{} payload of {} bytes exceeds the limit of {}"

ON_STREAM = [name for name in STREAMED_SCHEMA.names if name != "index"]


def post_process(
    state: State, produced: Frame, outgoing: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state after routing, and what was appended to the streams (``STREAMED_SCHEMA``).

    ``produced``: what execution made, in order; ``outgoing``: what induction appends to streams before everything else.
    """
    state, queued = push_produced(state, produced, context)
    queued, gone = filter(queued)
    state = non_existent_canister_replies(state, gone, context, log)
    sent_on = outgoing.with_columns(
        remote=context.host_of(outgoing["receiver"]).view(np.uint32),
        substream=substream_of(outgoing, context),
        queue_index=np.uint64(NO_QUEUE),
    ).select(ON_STREAM)
    if context.options.limits == "deployed":
        state, queued = reject_oversized(state, queued, context, log)
        queued, held = hold_back(state, queued, sent_on, context, log)
        state = _with_output(state, held)
    else:
        state = _with_output(state, queued.slice(0, 0))
    rows = queued.select(ON_STREAM)
    if len(sent_on):
        rows = concat([sent_on, rows])
        rows = rows.take(stable_order(rows["remote"], rows["chain"], rows["substream"]))
    state, outbound = append_to_streams(state, rows)
    return state, outbound


def _with_output(state: State, held: Frame) -> State:
    """Return the state whose output queues hold what was held back, and nothing else."""
    queues = state.output_queues
    if len(held) == 0 and len(queues.elements) == 0:
        return state
    elements = held.with_columns(index=held["queue_index"]).select(QUEUED_SCHEMA.names)
    return replace(state, output_queues=replace(queues, elements=elements))


def substream_of(messages: Frame, context: Context) -> np.ndarray:
    """Return ``substream_id`` of each message: the unit (0) for flat streams, else the receiver."""
    if context.options.substreams == "per_destination":
        receivers: np.ndarray = messages["receiver"]
        return receivers
    return repeated(np.uint64(0), len(messages))


def push_produced(state: State, produced: Frame, context: Context) -> tuple[State, Frame]:
    """Push what was produced to the output queues.

    Returns the state with advanced counters and all that is queued now, with its lane: ``ON_STREAM`` columns and
    ``is_new``, in the order (remote, chain, substream, sender, receiver, queue index), which is that of routing
    without limits.
    """
    lanes = {
        "chain": context.host_of(produced["sender"]).view(np.uint32),
        "remote": context.host_of(produced["receiver"]).view(np.uint32),
    }
    substream = substream_of(produced, context)
    order = stable_order(lanes["remote"], lanes["chain"], substream, produced["sender"], produced["receiver"])
    rows = produced.with_columns(**lanes, substream=substream).take(order)
    index, counters = state.output_queues.counters.push_grouped(rows["sender"], rows["receiver"])
    rows = rows.with_columns(queue_index=index, sent_tick=np.uint64(context.tick), is_new=np.True_)
    earlier = state.output_queues.elements
    state = replace(state, output_queues=replace(state.output_queues, counters=counters))
    if len(earlier) == 0:
        return state, rows
    waiting = earlier.with_columns(
        chain=context.host_of(earlier["sender"]).view(np.uint32),
        remote=context.host_of(earlier["receiver"]).view(np.uint32),
        substream=substream_of(earlier, context),
        queue_index=earlier["index"],
        is_new=np.False_,
    )
    both = concat([waiting.select(rows.names), rows])
    keys = ("remote", "chain", "substream", "sender", "receiver", "queue_index")
    return state, both.take(stable_order(*(both[key] for key in keys)))


def filter(queued: Frame) -> tuple[Frame, Frame]:
    """Return what is queued for canisters on some subnet, and in order of the queues what is for others (3.6)."""
    dead = queued["remote"].view(np.int32) == NO_HOST
    if not dead.any():
        return queued, queued.slice(0, 0)
    gone = queued.take(np.flatnonzero(dead))
    gone = gone.take(stable_order(gone["sender"], gone["receiver"], gone["queue_index"]))
    return queued.filter(~dead), gone


def non_existent_canister_replies(state: State, gone: Frame, context: Context, log: EventLog) -> State:
    """Push a reject for every request of ``gone``, what is for canisters on no subnet (3.6, D-8).

    The responses are lost, and, by the letter of 3.6, answered too.
    """
    if len(gone) == 0:
        return state
    request = gone["kind"] == Kind.REQUEST
    sent = np.where(gone["is_new"], np.uint16(Event.SENT), np.uint16(0))
    for mask, event, code, reason in (
        (request, Event.REJECTED, RejectCode.DestinationInvalid, NO_RECEIVER),
        (~request, Event.DROPPED, NO_REJECT, "unroutable_response"),
    ):
        rows = gone.filter(mask)
        bits = sent[mask] | np.uint16(event)
        log.add(event_rows(rows, bits, chain=rows["chain"], queue_index=rows["queue_index"], code=code, reason=reason))
    answered = gone
    if context.options.dead_destination == "requests_only":
        answered = gone.filter(request)
    elif not request.all():
        # A response has no cycles of its own to give back: its refund is lost with it.
        own = {name: np.where(request, gone[name], np.uint64(0)) for name in ("amount_high", "amount_low")}
        answered = gone.with_columns(**own)
    replies = reject_responses(answered, RejectCode.DestinationInvalid, NO_ROUTE)
    state, arrivals = push_arrivals(state, as_arrivals(replies, answered["chain"], Via.SYNTHETIC))
    log.add(
        event_rows(
            arrivals,
            Event.RECEIVED,
            chain=arrivals["chain"],
            queue_index=arrivals["queue_index"],
            code=arrivals["code"],
            via=Via.SYNTHETIC,
        )
    )
    return state


def reject_oversized(state: State, queued: Frame, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Take out requests to other subnets whose payload is too large, and make responses smaller whose is (X-7).

    Such a request is answered with a reject here; data of such a response gives way to a reject, of a text only
    ``MAX_TEXT`` bytes are left. Returns the state with the replies pushed, and what is still queued.
    """
    limit = context.options.limit.message_bytes
    lengths = payload_lengths(queued)
    large = lengths > np.where(queued["code"] == NO_REJECT, np.uint64(limit), np.uint64(max(limit, MAX_TEXT)))
    if not large.any():
        return state, queued
    request = queued["kind"] == Kind.REQUEST
    refused = large & request & (queued["remote"] != queued["chain"])
    state = _refuse_oversized(state, queued.filter(refused), lengths[refused], limit, log) if refused.any() else state
    changed = large & ~request
    if changed.any():
        queued = _with_smaller(queued, np.flatnonzero(changed), lengths, limit, log)
    return state, queued.filter(~refused)


def _refuse_oversized(state: State, requests: Frame, lengths: U64, limit: int, log: EventLog) -> State:
    order = stable_order(requests["sender"], requests["receiver"], requests["queue_index"])
    requests, lengths = requests.take(order), lengths[order]
    chain = requests["chain"]
    sent = np.where(requests["is_new"], np.uint16(Event.SENT), np.uint16(0)) | np.uint16(Event.REJECTED)
    places = {"chain": chain, "queue_index": requests["queue_index"], "code": RejectCode.CanisterError}
    log.add(event_rows(requests, sent, reason=TOO_LARGE, **places))
    texts = [OVERSIZED.format("Request", length, limit).encode() for length in lengths.tolist()]
    replies = reject_responses(requests, RejectCode.CanisterError, "")
    replies = replies.with_columns(payload=pa.array(texts, pa.binary()))
    state, arrivals = push_arrivals(state, as_arrivals(replies, chain, Via.SYNTHETIC))
    places = {"chain": arrivals["chain"], "queue_index": arrivals["queue_index"], "code": arrivals["code"]}
    log.add(event_rows(arrivals, Event.RECEIVED, via=Via.SYNTHETIC, **places))
    return state


def _with_smaller(queued: Frame, rows: Rows, lengths: U64, limit: int, log: EventLog) -> Frame:
    """Return what is queued with the payloads of the responses ``rows`` (few) made smaller."""
    large = queued.select([*MESSAGE_COLUMNS, "chain", "queue_index"]).take(rows)
    code = queued["code"].copy()
    data = large["code"] == NO_REJECT
    code[rows[data]] = RejectCode.CanisterError
    smaller = [
        OVERSIZED.format("Response", length, limit).encode() if is_data else _beginning(text, MAX_TEXT)
        for is_data, length, text in zip(data, lengths[rows].tolist(), large["payload"].to_pylist(), strict=True)
    ]
    # The new payloads stand behind the old ones; every row takes its own.
    place = np.arange(len(queued))
    place[rows] = len(queued) + np.arange(len(rows))
    payload = pa.concat_arrays([queued["payload"], pa.array(smaller, pa.binary())]).take(pa.array(place))
    places = {"chain": large["chain"], "queue_index": large["queue_index"]}
    log.add(event_rows(large, Event.REJECTED, code=code[rows], reason=TOO_LARGE, **places))
    return queued.with_columns(code=code, payload=payload)


def _beginning(text: bytes, size: int) -> bytes:
    """Return the beginning of a text, at most ``size`` bytes, that cuts no character."""
    end = min(size, len(text))
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]


def hold_back(state: State, queued: Frame, sent_on: Frame, context: Context, log: EventLog) -> tuple[Frame, Frame]:
    """Split what is queued into what the stream limits let through, in stream order, and what stays (X-6)."""
    queued = queued.take(routing_order(queued, context))
    queued = queued.take(stable_order(queued["remote"], queued["chain"]))
    room = _room(state, queued, sent_on, context)
    held = queued.filter(~room)
    held = held.take(stable_order(held["sender"], held["receiver"], held["queue_index"]))
    new = held.filter(held["is_new"])
    log.add(event_rows(new, Event.SENT, chain=new["chain"], queue_index=new["queue_index"]))
    routed = queued.filter(room)
    return routed.take(stable_order(routed["remote"], routed["chain"], routed["substream"])), held


def routing_order(queued: Frame, context: Context) -> np.ndarray:
    """Return the order in which the output queues are visited under limits (X-7, and ``docs/protocols/ic.md``)."""
    by_queue = stable_order(queued["sender"], queued["receiver"], queued["queue_index"])
    rows = queued.select(["chain", "sender", "receiver"]).take(by_queue)
    position = groups_of(rows["sender"], rows["receiver"]).ranks().astype(np.uint64)
    merged = stable_order(rows["sender"], position, rows["receiver"])
    turns = groups_of(rows["sender"][merged])
    senders = rows.take(merged[turns.starts])
    by_chain = stable_order(senders["chain"], senders["sender"])
    canisters = groups_of(senders["chain"][by_chain])
    place: U64 = np.empty(len(senders), dtype=np.uint64)
    for start, count in zip(canisters.starts, canisters.counts, strict=True):
        chain = int(senders["chain"][by_chain[start]])
        shift = draw(context.seed, int(context.registry.subnets[chain]), context.height) % int(count)
        place[by_chain[start : start + count]] = (np.arange(count) - shift) % count
    order = stable_order(turns.ranks().astype(np.uint64), turns.spread(place))
    return by_queue[merged[order]]


def draw(seed: int, subnet: int, height: int) -> int:
    """Return a subnet's random word of the round: the first raw one of NumPy's Philox (``docs/protocols/ic.md``)."""
    generator = np.random.Philox(key=np.array([seed, subnet], dtype=np.uint64), counter=height)
    return int(generator.random_raw())


def _room(state: State, queued: Frame, sent_on: Frame, context: Context) -> np.ndarray:
    """Return which messages (by stream, in routing order) find their stream below its limits."""
    limit = context.options.limit
    lanes = state.lanes.ensure(queued["chain"], queued["remote"], queued["substream"])
    lanes = lanes.ensure(sent_on["chain"], sent_on["remote"], sent_on["substream"])
    rows = lanes.rows
    count = (rows["next_index"] - rows["begin"]).astype(np.int64)
    size = rows["stream_bytes"].astype(np.int64)
    np.add.at(size, lanes.positions(state.rejects["chain"], state.rejects["remote"], state.rejects["substream"]), 1)
    ahead = lanes.positions(sent_on["chain"], sent_on["remote"], sent_on["substream"])
    np.add.at(count, ahead, 1)
    np.add.at(size, ahead, message_sizes(sent_on).astype(np.int64))
    # The limits are the stream's, over all its substreams.
    stream = groups_of(rows["chain"], rows["remote"])
    count = stream.spread(np.add.reduceat(count, stream.starts)) if len(stream) else count
    size = stream.spread(np.add.reduceat(size, stream.starts)) if len(stream) else size
    groups = groups_of(queued["remote"], queued["chain"])
    lane = lanes.positions(queued["chain"], queued["remote"], queued["substream"])
    sizes = message_sizes(queued).astype(np.int64)
    before = np.cumsum(sizes) - sizes
    before -= groups.spread(before[groups.starts])
    full: npt.NDArray[np.bool_] = (count[lane] + groups.ranks() >= limit.stream_messages) | (
        size[lane] + before >= limit.stream_bytes
    )
    room: np.ndarray = ~full | (queued["remote"] == queued["chain"])
    return room


def append_to_streams(state: State, rows: Frame) -> tuple[State, Frame]:
    """Append messages (by lane, in order) to the streams; also return them with their stream index."""
    if len(rows) == 0:
        return state, rows.with_columns(index=np.uint64(0)).select(STREAMED_SCHEMA.names)
    groups = groups_of(rows["remote"], rows["chain"], rows["substream"])
    heads = rows.select(["chain", "remote", "substream"]).take(groups.starts)
    lanes = state.lanes.ensure(heads["chain"], heads["remote"], heads["substream"])
    lane = lanes.positions(heads["chain"], heads["remote"], heads["substream"])
    next_index = lanes.rows["next_index"].copy()
    stream_bytes = lanes.rows["stream_bytes"].copy()
    start = next_index[lane]
    counts = groups.counts.astype(np.uint64)
    if bool((start > np.uint64(MAX_INDEX) - counts).any()):
        raise IndexOverflow(f"a stream would pass index {MAX_INDEX}")
    index = groups.spread(start) + groups.ranks().astype(np.uint64)
    next_index[lane] = start + counts
    stream_bytes[lane] += np.add.reduceat(message_sizes(rows), groups.starts)
    state = replace(state, lanes=lanes.with_columns(next_index=next_index, stream_bytes=stream_bytes))
    return state, rows.with_columns(index=index).select(STREAMED_SCHEMA.names)
