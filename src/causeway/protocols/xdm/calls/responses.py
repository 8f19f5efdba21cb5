"""Responses to the requests of a block, and acknowledgements.

Reference: XDM, section 3.4 step 15, and section 3.6.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows, merge_ranges
from causeway.core.vocabulary import Kind, ValueHolder, ValueReason
from causeway.protocols.shared.contents import encode_contents, truncate_answers
from causeway.protocols.shared.messages import LANE, MESSAGE_COLUMNS, blank_messages
from causeway.protocols.shared.state_tables import blank_rows
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

GAP_BELOW = "ResponsesLeft"
"""Event name of responses that stay below a gap in the acknowledged ones (hazard 21)."""


def store_responses(
    state: State, requests: DueRequests, produced: Frame, money: ChainSums, context: Context
) -> tuple[State, Frame, Frame]:
    """Store the response of every request of the block.

    Args:
        state: State after program execution.
        requests: Requests in turn.
        produced: Messages of programs, in order of production.
        money: Sums of the chains, changed in place.
        context: Context of the block.

    Returns:
        The state after, the responses as outbound columns, and the messages of ``produced`` that answer no request.
    """
    rows = requests.rows
    count = len(rows)
    content = requests.content
    answers = np.flatnonzero(produced["kind"] == Kind.RESPONSE)
    keys = Frame(
        {
            "sender": produced["receiver"][answers],
            "receiver": produced["sender"][answers],
            "callback": produced["callback"][answers],
        },
        len(answers),
    )
    found = lookup_rows(requests.calls, keys, ("sender", "receiver", "callback"), ordered=False)
    own = found >= 0
    at, answer_rows = requests.call_rows[found[own]], answers[own]
    messages = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8))
    ends = {"sender": repeat_value(np.uint64(NOBODY), count), "receiver": repeat_value(np.uint64(NOBODY), count)}
    messages = messages.with_columns(**ends)
    if count:
        answer_of = np.full(count, -1, dtype=np.int64)
        answer_of[at] = answer_rows
        answered = answer_of >= 0
        if answered.any():
            answer_messages = truncate_answers(produced.take(answer_of[answered]), REJECTED)
            content = pa.compute.replace_with_mask(content, pa.array(answered), encode_contents(answer_messages))
            asking = rows.filter(answered)
            lanes = {
                "source": asking["destination"],
                "destination": asking["source"],
                "substream": asking["substream"] | np.uint64(RESPONSE),
                "index": asking["index"],
            }
            amounts = answer_messages["amount_low"], answer_messages["amount_high"], Frame(lanes, len(asking))
            money.move(
                ValueReason.SENT, lanes["source"], MESSAGES, Purse(ValueHolder.ABROAD, lanes["destination"]), *amounts
            )
            merged = concat([messages.filter(~answered), answer_messages.select(MESSAGE_COLUMNS)])
            order = np.argsort(np.concatenate([np.flatnonzero(~answered), np.flatnonzero(answered)]), kind="stable")
            messages = merged.take(order)
    of_endpoint = requests.asked == RequestKind.ENDPOINT
    channel = lane_channels(rows["substream"])
    trusted = context.options.trust_tag == "on"
    # 3.4: with trusted tags, a response names the endpoint of the request's tag, NO_ENDPOINT for another tag.
    endpoints = requests.endpoint
    if trusted:
        of_request = rows["tag"] & np.uint64(2**TAG_BITS - 1) == np.uint64(Tag.ENDPOINT_REQUEST)
        endpoints = np.where(of_request, rows["tag"] >> np.uint64(TAG_BITS), np.uint64(NO_ENDPOINT))
    responses = blank_rows(
        RESPONSES_SCHEMA,
        count,
        source=rows["destination"],
        destination=rows["source"],
        substream=substream(channel, RESPONSE),
        index=rows["index"],
        sent=context.number,
        layer=np.where(of_endpoint, ENDPOINT, PROTOCOL).astype(np.uint8),
        asked=requests.asked,
        error=requests.error,
        endpoint=np.where(of_endpoint, endpoints, requests.endpoint),
        payload=pa.compute.if_else(
            pa.array(of_endpoint & (requests.error == OK)), content, pa.scalar(b"", pa.large_binary())
        ).cast(pa.binary()),
        fee=requests.held,
    )
    outbound = messages.with_columns(
        **{name: responses[name] for name in (*LANE, "index")}, queue_index=responses["index"]
    )
    stored = LaneTable.of(state["responses"]).with_rows(responses)
    rest = np.ones(len(produced), dtype=bool)
    rest[answer_rows] = False
    after = state.with_tables(responses=stored) if count else state
    return after, outbound, produced.filter(rest)


def acknowledge(state: State, requests: DueRequests, money: ChainSums) -> tuple[State, list[ChainEvent]]:
    """Remove acknowledged responses; their fees become due to operators (3.6).

    A request acknowledges the contiguous responses up to its nonce. It acknowledges none if the response of that nonce
    is missing or newer than the request. Responses below a gap stay and leave an event.
    """
    acknowledging = requests.acknowledges > 0
    table = LaneTable.of(state["responses"])
    if not acknowledging.any() or not len(table):
        return state, []
    rows, nonce = requests.rows.filter(acknowledging), requests.acknowledges[acknowledging] - np.uint64(1)
    named = {"source": rows["destination"], "destination": rows["source"]}
    named |= {"substream": rows["substream"] | np.uint64(RESPONSE), "index": nonce}
    ends = Frame(named, len(rows))
    ends = ends.filter((table.find(ends) >= 0) & (nonce <= rows["index"]))
    if len(ends) == 0:
        return state, []
    lanes, lane = np.unique(lookup_rows(table.lanes, ends, LANE), return_inverse=True)
    stop = np.zeros(len(lanes), dtype=np.uint64)
    np.maximum.at(stop, lane, ends["index"] + np.uint64(1))
    _, window_rows = table.window(lanes, np.zeros(len(lanes), dtype=np.uint64), stop)
    responses = table.rows_at(window_rows)
    at = lookup_rows(responses, ends, INDEXED)
    starts, _, _ = merge_ranges(responses["index"], *(responses[name] for name in LANE))
    segment = np.searchsorted(starts, at, side="right") - 1
    last = np.full(len(starts), -1, dtype=np.int64)
    np.maximum.at(last, segment, at)
    done = np.arange(len(responses)) <= np.repeat(last, np.diff(starts, append=len(responses)))
    acknowledged = responses.filter(done)
    money.pay(acknowledged["source"], INBOX_FEES, acknowledged["fee"], acknowledged["sent"], acknowledged)
    ended = last >= 0
    before = starts[ended] - 1
    same = np.logical_and.reduce([responses[name][before] == responses[name][starts[ended]] for name in LANE])
    left = message_events(responses.take(last[ended][(before >= 0) & same]), GAP_BELOW)
    return state.with_tables(responses=table.without(window_rows[done])), left
