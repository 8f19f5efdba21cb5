"""The routing phase: from output queues to streams (IC reference 3.6, X-6, X-7).

A message of an output queue is appended to the stream to its receiver's subnet, or held back by a full stream. Without
a receiving subnet it is removed: a request is answered with a reject, a response is lost. An oversized message is
removed or shortened.

``queued`` are the elements of the output queues by (sender, receiver, index), with their lanes: ``source``,
``destination``, ``substream``.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.ic.messages import StreamRejectCode
from causeway_proofs.order import U64, Rows, group_rows, stable_order

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import NO_HOST
from causeway.protocols.ic.commitment import outbound_segments
from causeway.protocols.ic.input_queues import push_responses
from causeway.protocols.ic.messages import (
    MESSAGE_OVERHEAD,
    NO_RECEIVER,
    NO_REJECT,
    NO_ROUTE,
    UNROUTABLE,
    reject_responses,
    replace_payloads,
)
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.scheduler import move_behind
from causeway.protocols.ic.state import RoundStep, State, reverse_lanes
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA, method_lengths, payload_lengths
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words

TOO_LARGE = "PayloadTooLarge"
OVERSIZED = "{} payload of {} bytes exceeds the limit of {}"
SAYS_OVERSIZED = re.compile(re.escape(OVERSIZED).replace(r"\{\}", r"\w+").encode())
"""Pattern of the text of a reject of an oversized message."""

Mask = npt.NDArray[np.bool_]

_ROUTED = [name for name in OUTBOUND_SCHEMA.names if name != "index"]


def post_process(state: State, onward: Frame, context: Context) -> tuple[RoundStep, Frame]:
    """Run the routing phase.

    Args:
        state: The state after execution.
        onward: Messages appended first, regardless of limits (``ONWARD_SCHEMA``).
        context: The metadata of the round.

    Returns:
        The step, and the messages appended to the streams (``OUTBOUND_SCHEMA``).
    """
    log = EventLog()
    elements = state.output_queues.elements
    queued = assign_lanes(elements, context.registry.host_of(elements["sender"]).view(np.uint32), context)
    routable = queued["destination"].view(np.int32) != NO_HOST
    state = replace(state, output_queues=state.output_queues.keep(routable))
    queued, unroutable = queued.filter(routable), queued.take(np.flatnonzero(~routable))
    # Push a reject for every request to a canister without a host (D-8).
    if len(unroutable):
        request = unroutable["kind"] == Kind.REQUEST
        for mask, event, code, reason in (
            (request, Event.REJECTED, StreamRejectCode.DestinationInvalid, NO_RECEIVER),
            (~request, Event.DROPPED, NO_REJECT, UNROUTABLE),
        ):
            rows = unroutable.filter(mask)
            at = {"chain": rows["source"], "queue_index": rows["index"]}
            log.add(event_rows(rows, _sent_bits(rows, event, context), code=code, reason=reason, **at))
        answered = unroutable
        if context.options.dead_destination == "requests_only":
            answered = unroutable.filter(request)
        elif not request.all():
            # A response has no cycles of its own, so its refund is lost.
            own = {name: np.where(request, unroutable[name], np.uint64(0)) for name in ("amount_high", "amount_low")}
            answered = unroutable.with_columns(**own)
        replies = reject_responses(answered, StreamRejectCode.DestinationInvalid, NO_ROUTE)
        state = _answer(state, replies, answered["source"], context, log)
    onward = assign_lanes(onward, onward["source"], context)
    if context.options.limits == "deployed":
        state, queued = reject_oversized(state, queued, context, log)
        state, queued = take_within_limits(state, queued, onward, context, log)  # X-6, 3.6 (2)
    else:
        state = replace(state, output_queues=state.output_queues.clear())  # 3.6 (2)
    routed = queued.with_columns(queue_index=queued["index"])
    routed = concat([onward.select(_ROUTED), routed.select(_ROUTED)])
    state, outbound = append_to_streams(state, routed, context)  # 3.6 (1)
    return RoundStep(state, log), outbound


def append_onward(state: State, onward: Frame, context: Context) -> tuple[State, Frame]:
    """Append the messages of chains that run no round; also return them (``OUTBOUND_SCHEMA``)."""
    return append_to_streams(state, assign_lanes(onward, onward["source"], context).select(_ROUTED), context)


def in_lane_order(outbound: Frame) -> Frame:
    """Sort appended messages in the order of ``RoundResult.outbound``."""
    return outbound.take(stable_order(*(outbound[name] for name in ("destination", "source", "substream", "index"))))


def assign_lanes(messages: Frame, source: npt.NDArray[np.uint32], context: Context) -> Frame:
    """Add the lane from each message's source to the present host of its receiver."""
    # Flat streams have the single substream 0; else the receiver or the sender names it.
    if context.options.flat:
        substream_id = repeat_value(np.uint64(0), len(messages))
    else:
        canisters: U64 = messages["receiver" if context.options.substreams == "per_destination" else "sender"]
        substream_id = canisters
    return messages.with_columns(
        source=source,
        destination=context.registry.host_of(messages["receiver"]).view(np.uint32),
        substream=substream_id,
    )


def _sent_bits(queued: Frame, event: Event, context: Context) -> np.ndarray:
    """Return ``event`` for each message, with SENT for those produced in this round."""
    return np.where(queued["sent_tick"] == np.uint64(context.tick), np.uint16(Event.SENT | event), np.uint16(event))


def _answer(state: State, replies: Frame, chains: npt.NDArray[np.uint32], context: Context, log: EventLog) -> State:
    """Push the rejects of routing, which nobody consumes before the next round."""
    state, arrivals = push_responses(state, replies, chains, Via.SYNTHETIC, log)
    at = {"chain": arrivals["chain"], "queue_index": arrivals["queue_index"], "via": Via.SYNTHETIC}
    log.add(event_rows(arrivals, Event.RECEIVED, code=arrivals["code"], **at))
    if context.options.messages_per_canister:
        state = replace(state, turns=move_behind(state.turns, arrivals))
    return state


def reject_oversized(state: State, queued: Frame, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Reject oversized requests to other subnets and shorten oversized responses (X-7).

    The method's name counts as payload: the message must fit into a block, or its stream would stall. The request is
    answered with a reject; the response's data is replaced by a reject.

    Returns:
        The state with the replies pushed, and the messages still queued.
    """
    limit = context.options.limit.message_bytes
    lengths = payload_lengths(queued) + method_lengths(queued)
    large = (lengths > np.uint64(limit)) & (queued["code"] == NO_REJECT)
    if not large.any():
        return state, queued
    request = queued["kind"] == Kind.REQUEST
    changed = np.flatnonzero(large & ~request)
    if len(changed):
        smaller = _shortened(queued, changed, lengths, limit, log)
        state = replace(state, output_queues=state.output_queues.with_values(**smaller))
        queued = queued.with_columns(**smaller)
    refused = large & request & (queued["destination"] != queued["source"])
    if not refused.any():
        return state, queued
    state = replace(state, output_queues=state.output_queues.keep(~refused))
    requests = queued.filter(refused)
    at = {"chain": requests["source"], "queue_index": requests["index"], "code": StreamRejectCode.CanisterError}
    log.add(event_rows(requests, _sent_bits(requests, Event.REJECTED, context), reason=TOO_LARGE, **at))
    limit = context.options.limit.message_bytes
    texts = [OVERSIZED.format("Request", length, limit).encode() for length in lengths[refused].tolist()]
    replies = reject_responses(requests, StreamRejectCode.CanisterError, "")
    state = _answer(state, replies.with_columns(payload=pa.array(texts, pa.binary())), requests["source"], context, log)
    return state, queued.filter(~refused)


def _shortened(queued: Frame, rows: Rows, lengths: U64, limit: int, log: EventLog) -> dict[str, npt.NDArray[np.uint8]]:
    """Return the columns ``code`` and ``payload`` with the responses ``rows`` (few) shortened."""
    large, code = queued.take(rows), queued["code"].copy()
    code[rows] = StreamRejectCode.CanisterError
    texts = [OVERSIZED.format("Response", length, limit).encode() for length in lengths[rows].tolist()]
    payload = replace_payloads(queued["payload"], rows, texts)
    at = {"chain": large["source"], "queue_index": large["index"]}
    log.add(event_rows(large, Event.REJECTED, code=code[rows], reason=TOO_LARGE, **at))
    return {"code": code, "payload": payload}


def take_within_limits(
    state: State, queued: Frame, onward: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Remove the messages that stream limits admit, and return them in routing order (X-6)."""
    # The order in which the output queues are visited under limits.
    position = group_rows(queued["sender"], queued["receiver"]).ranks().astype(np.uint64)
    merged = stable_order(queued["sender"], position, queued["receiver"])
    turns = group_rows(queued["sender"][merged])
    senders = queued.select(["source", "sender"]).take(merged[turns.starts])
    by_chain = stable_order(senders["source"], senders["sender"])
    canisters = group_rows(senders["source"][by_chain])
    turn: U64 = np.empty(len(senders), dtype=np.uint64)
    for start, count in zip(canisters.starts, canisters.counts, strict=True):
        chain = int(senders["source"][by_chain[start]])
        shift = int(
            draw_words(
                DrawPurpose.WORD, context.seed, int(context.registry.subnets[chain]), context.height
            ).random_raw()
        ) % int(count)
        turn[by_chain[start : start + count]] = (np.arange(count) - shift) % count
    order: Rows = merged[stable_order(turns.ranks().astype(np.uint64), turns.spread(turn))]
    ordered = queued.take(order)
    by_stream = stable_order(ordered["destination"], ordered["source"])
    order, ordered = order[by_stream], ordered.take(by_stream)
    room = _has_room(state, ordered, onward, context)
    pulled = np.empty(len(queued), dtype=bool)
    pulled[order] = room
    new = queued.filter(~pulled & (queued["sent_tick"] == np.uint64(context.tick)))
    log.add(event_rows(new, Event.SENT, chain=new["source"], queue_index=new["index"]))
    return replace(state, output_queues=state.output_queues.keep(~pulled)), ordered.filter(room)


def _has_room(state: State, queued: Frame, onward: Frame, context: Context) -> Mask:
    """Return a mask of the messages whose stream is below its limits.

    They are by stream, in routing order.
    """
    limit = context.options.limit
    streams = state.streams.ensure(queued).ensure(onward)
    lanes = streams.counters
    count = (lanes["next_index"] - lanes["begin"]).astype(np.int64)
    size = lanes["stream_bytes"].astype(np.int64)
    np.add.at(size, streams.positions(reverse_lanes(state.rejects)), 1)
    ahead = streams.positions(onward)
    np.add.at(count, ahead, 1)
    np.add.at(size, ahead, (payload_lengths(onward) + np.uint64(MESSAGE_OVERHEAD)).astype(np.int64))
    # The limits are the stream's, over all its substreams.
    stream = group_rows(lanes["source"], lanes["destination"])
    count = stream.spread(np.add.reduceat(count, stream.starts)) if len(stream) else count
    size = stream.spread(np.add.reduceat(size, stream.starts)) if len(stream) else size
    groups = group_rows(queued["destination"], queued["source"])
    lane = streams.positions(queued)
    sizes = (payload_lengths(queued) + np.uint64(MESSAGE_OVERHEAD)).astype(np.int64)
    before = np.cumsum(sizes) - sizes
    before -= groups.spread(before[groups.starts])
    most = np.where(
        context.registry.system, min(limit.system_stream_messages, limit.stream_messages), limit.stream_messages
    )
    full = count[lane] + groups.ranks() >= most[queued["destination"]]
    full |= size[lane] + before >= limit.stream_bytes
    room: Mask = ~full | (queued["destination"] == queued["source"])
    return room


def append_to_streams(state: State, routed: Frame, context: Context) -> tuple[State, Frame]:
    """Append messages to the streams, those of one substream in order.

    Also return them (``OUTBOUND_SCHEMA``).

    Raises:
        IndexOverflow: A stream would exceed the greatest index.
    """
    routed = routed.take(stable_order(routed["destination"], routed["source"], routed["substream"]))
    index, streams = state.streams.number_grouped(routed)
    outbound = routed.with_columns(index=index).select(OUTBOUND_SCHEMA.names)
    if len(outbound) == 0:
        return state, outbound
    segments = outbound_segments(outbound, context)
    stream_bytes = streams.read_counters("stream_bytes", segments) + segments["bytes"]
    streams = streams.set_counters(segments, stream_bytes=stream_bytes).add_segments(segments)
    return replace(state, streams=streams), outbound
