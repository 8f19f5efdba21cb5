"""The responses of a block to requests, and those that requests acknowledge (XDM reference 3.4 step 15, 3.6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows, merge_ranges
from causeway.core.vocabulary import Kind, ValueHolder, ValueReason
from causeway.protocols.shared.contents import encode_contents, truncate_answers
from causeway.protocols.shared.messages import LANE, MESSAGE_COLUMNS, blank_messages
from causeway.protocols.xdm.calls.arrivals import REJECTED
from causeway.protocols.xdm.calls.relay_message import DueRequests
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK
from causeway.protocols.xdm.events import ChainEvent, message_events
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import NOBODY, RESPONSE, RequestKind, State, lane_channels, substream
from causeway.protocols.xdm.tables import INDEXED, RESPONSES_SCHEMA
from causeway.protocols.xdm.value.balances import INBOX_FEES, MESSAGES, ChainSums, Purse
from causeway.protocols.xdm.wire import ENDPOINT, NO_ENDPOINT, PROTOCOL, TAG_BITS, Tag

LEFT_BEHIND = "ResponsesLeft"
"""What a notice says of responses that stay because the acknowledged ones have a gap below them (hazard 21)."""


def store_responses(
    state: State, requests: DueRequests, produced: Frame, money: ChainSums, context: Context
) -> tuple[State, Frame, Frame]:
    """Return the state with the response of every request of the block, what is outbound of them (columns of
    ``OUTBOUND_SCHEMA``), and which of ``produced`` are no answers to them.

    ``produced``: what programs made, in the order of production.
    """
    rows = requests.rows
    count = len(rows)
    content = requests.content
    answers = np.flatnonzero(produced["kind"] == Kind.RESPONSE)
    asked = Frame(
        {
            "sender": produced["receiver"][answers],
            "receiver": produced["sender"][answers],
            "callback": produced["callback"][answers],
        },
        len(answers),
    )
    found = lookup_rows(requests.calls, asked, ("sender", "receiver", "callback"), ordered=False)
    own = found >= 0
    at, given = requests.call_rows[found[own]], answers[own]
    shown = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8))
    ends = {"sender": repeat_value(np.uint64(NOBODY), count), "receiver": repeat_value(np.uint64(NOBODY), count)}
    shown = shown.with_columns(**ends)
    if count:
        pick = np.full(count, -1, dtype=np.int64)
        pick[at] = given
        taken = pick >= 0
        if taken.any():
            back = truncate_answers(produced.take(pick[taken]), REJECTED)
            content = pa.compute.replace_with_mask(content, pa.array(taken), encode_contents(back))
            # What goes back leaves the chain that answers.
            asking = rows.filter(taken)
            lanes = {
                "source": asking["destination"],
                "destination": asking["source"],
                "substream": asking["substream"] | np.uint64(RESPONSE),
                "index": asking["index"],
            }
            gone = back["amount_low"], back["amount_high"], Frame(lanes, len(asking))
            money.move(
                ValueReason.SENT, lanes["source"], MESSAGES, Purse(ValueHolder.ABROAD, lanes["destination"]), *gone
            )
            merged = concat([shown.filter(~taken), back.select(MESSAGE_COLUMNS)])
            order = np.argsort(np.concatenate([np.flatnonzero(~taken), np.flatnonzero(taken)]), kind="stable")
            shown = merged.take(order)
    of_endpoint = requests.asked == RequestKind.ENDPOINT
    channel = lane_channels(rows["substream"])
    trusted = context.options.trust_tag == "on"
    # Of which endpoint the responses to requests of endpoints say that they are: that of the request's tag, where
    # tags are `trusted`, and then `NO_ENDPOINT` where it is no tag of such a request (3.4).
    endpoints = requests.endpoint
    if trusted:
        of_request = rows["tag"] & np.uint64(2**TAG_BITS - 1) == np.uint64(Tag.ENDPOINT_REQUEST)
        endpoints = np.where(of_request, rows["tag"] >> np.uint64(TAG_BITS), np.uint64(NO_ENDPOINT))
    responses = Frame(
        {
            "source": rows["destination"],
            "destination": rows["source"],
            "substream": substream(channel, RESPONSE),
            "index": rows["index"],
            "sent": np.full(count, context.number, dtype=np.uint64),
            "layer": np.where(of_endpoint, ENDPOINT, PROTOCOL).astype(np.uint8),
            "asked": requests.asked,
            "error": requests.error,
            "endpoint": np.where(of_endpoint, endpoints, requests.endpoint),
            "payload": pa.compute.if_else(
                pa.array(of_endpoint & (requests.error == OK)), content, pa.scalar(b"", pa.large_binary())
            ).cast(pa.binary()),
            "fee": requests.held,
        },
        count,
    )
    outbound = shown.with_columns(
        **{name: responses[name] for name in (*LANE, "index")}, queue_index=responses["index"]
    )
    stored = LaneTable.of(state["responses"]).with_rows(responses.select(RESPONSES_SCHEMA.names))
    rest = np.ones(len(produced), dtype=bool)
    rest[given] = False
    after = state.with_tables(responses=stored) if count else state
    return after, outbound, produced.filter(rest)


def acknowledge(state: State, requests: DueRequests, money: ChainSums) -> tuple[State, list[ChainEvent]]:
    """Return the state without responses that requests acknowledge; their fees become due to operators (3.6).

    A request that acknowledges a nonce ends the responses up to it that lie without a gap, and none where that of the
    nonce itself is not there, or came later than the request. What a gap leaves behind is told.
    """
    some = requests.acknowledges > 0
    table = LaneTable.of(state["responses"])
    if not some.any() or not len(table):
        return state, []
    rows, nonce = requests.rows.filter(some), requests.acknowledges[some] - np.uint64(1)
    named = {"source": rows["destination"], "destination": rows["source"]}
    named |= {"substream": rows["substream"] | np.uint64(RESPONSE), "index": nonce}
    ends = Frame(named, len(rows))
    ends = ends.filter((table.find(ends) >= 0) & (nonce <= rows["index"]))
    if len(ends) == 0:
        return state, []
    lanes, lane = np.unique(table.number_of(ends), return_inverse=True)
    stop = np.zeros(len(lanes), dtype=np.uint64)
    np.maximum.at(stop, lane, ends["index"] + np.uint64(1))
    _, near = table.window(lanes, np.zeros(len(lanes), dtype=np.uint64), stop)
    responses = table.rows_at(near)
    at = lookup_rows(responses, ends, INDEXED)
    starts, _, _ = merge_ranges(responses["index"], *(responses[name] for name in LANE))
    stretch = np.searchsorted(starts, at, side="right") - 1
    last = np.full(len(starts), -1, dtype=np.int64)
    np.maximum.at(last, stretch, at)
    done = np.arange(len(responses)) <= np.repeat(last, np.diff(starts, append=len(responses)))
    gone = responses.filter(done)
    money.pay(gone["source"], INBOX_FEES, gone["fee"], gone["sent"], gone)
    ended = last >= 0
    # A notice for each stretch of responses that was acknowledged and has others of its lane below it.
    before = starts[ended] - 1
    same = np.logical_and.reduce([responses[name][before] == responses[name][starts[ended]] for name in LANE])
    left = message_events(responses.take(last[ended][(before >= 0) & same]), LEFT_BEHIND)
    return state.with_tables(responses=table.without(near[done])), left
