"""``relay_message`` and ``relay_message_response``: what accepted messages do (XDM reference 3.4, 3.5, 3.6).

Outcomes for a request: a channel opened or closed; a call or a late answer for a program; an error that its response
carries. For a response: a channel opened; an answer for the program that asked. Whatever comes of it, its nonce is used
up, and a request has its response in the same block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated
from causeway.model.joins import lookup
from causeway.model.ledger import Kind, Via
from causeway.model.order import groups_of, positions_in, stable_order
from causeway.protocols.messages import LANE, MESSAGE_COLUMNS
from causeway.protocols.xdm.books import Moved
from causeway.protocols.xdm.calls import ANSWER, CALL, PROGRAMS_ENDPOINT, accepted, decode_contents
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, MessengerError, error_texts, of_messenger
from causeway.protocols.xdm.money import Money
from causeway.protocols.xdm.prepare import Accepted, bodies_at
from causeway.protocols.xdm.state import (
    CHANNELS_SCHEMA,
    INDEXED,
    NEXT_CHANNELS_SCHEMA,
    OPEN_CALLS_SCHEMA,
    Asked,
    ChannelState,
    State,
    channel_of,
    channel_rows,
    is_response,
)
from causeway.protocols.xdm.sums import sums

ARRIVALS = [*LANE, "index", *MESSAGE_COLUMNS, "via"]
"""What a program is given, and how it came."""

REJECTED = 16
"""The code of an answer that the protocol itself made, because the request was refused."""

_OPEN_CALL = ("chain", "sender", "callback")


@dataclass(frozen=True)
class Requests:
    """Requests whose turn it was. ``rows``: lane and ``index``; ``error``: what the response says (``errors``), ``OK``
    so far; ``content``: of those of endpoints that are answered already; ``held``: the fee that was minted."""

    rows: Frame
    asked: npt.NDArray[np.uint8]
    endpoint: npt.NDArray[np.uint64]
    error: npt.NDArray[np.uint8]
    content: pa.LargeBinaryArray
    held: npt.NDArray[np.uint64]
    acknowledges: npt.NDArray[np.uint64]
    calls: Frame
    call_rows: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Taken:
    """What came of a block's messages: the state and ``requests``, and for programs ``arrivals`` (``ARRIVALS``), calls
    and late answers before answers. ``settled``: requests of our own (``OUTBOX_SCHEMA``) whose responses came, with
    the ``error`` of each."""

    state: State
    requests: Requests
    arrivals: Frame
    settled: Frame


def take(state: State, accepted_now: Accepted, money: Money, context: Context) -> Taken:
    """Return what accepted messages do to channels and balances, and what programs are given of them."""
    of_response = is_response(accepted_now.rows["substream"])
    asking, answering = np.flatnonzero(~of_response), np.flatnonzero(of_response)
    state = replace(state, tables={**state.tables, "early": accepted_now.early})
    state = _advanced(state, accepted_now, context)
    requests, arrivals, state = _requests(state, accepted_now, asking, money, context)
    answers, settled, state = _responses(state, accepted_now, answering, money, context)
    return Taken(state, requests, concat([arrivals, answers]), settled)


def _advanced(state: State, now: Accepted, context: Context) -> State:
    """Return the state with nonces used up, and channels created, opened and closed by the requests of others."""
    rows = now.rows
    if len(rows) == 0:
        return state
    opening = (now.bodies.asked == Asked.CHANNEL_OPEN) & ~is_response(rows["substream"])
    if opening.any():
        state = _created(state, rows.filter(opening), now.bodies, np.flatnonzero(opening))
    channels = state["channels"]
    last = groups_of(*(rows[name] for name in LANE))
    ends = rows.take(last.starts + last.counts - 1)
    at = channel_rows(channels, ends["destination"], ends["source"], channel_of(ends["substream"]))
    after = ends["index"] + np.uint64(1)
    response = is_response(ends["substream"])
    inbox, responses = channels["next_inbox"].copy(), channels["next_response"].copy()
    inbox[at[~response]] = after[~response]
    responses[at[response]] = after[response]
    changed = {"next_inbox": inbox, "next_response": responses}
    closing = (now.bodies.asked == Asked.CHANNEL_CLOSE) & ~is_response(rows["substream"])
    if closing.any():
        closed = rows.filter(closing)
        states = channels["state"].copy()
        states[channel_rows(channels, closed["destination"], closed["source"], channel_of(closed["substream"]))] = (
            ChannelState.CLOSED
        )
        changed["state"] = states
    return state.with_tables(channels=channels.with_columns(**changed).select(CHANNELS_SCHEMA.names))


def _created(state: State, rows: Frame, bodies: object, at: npt.NDArray[np.int64]) -> State:
    """Return the state with the channels that others opened; without an owner and a reserve (3.4, 11)."""
    count = len(rows)
    zero = np.zeros(count, dtype=np.uint64)
    channel = channel_of(rows["substream"])
    added = Frame(
        {
            "chain": rows["destination"],
            "foreign": rows["source"],
            "channel": channel,
            "state": np.full(count, ChannelState.OPEN, dtype=np.uint8),
            "next_inbox": zero,
            "next_outbox": zero,
            "next_response": zero,
            "max_outgoing": bodies.max_outgoing[at],  # type: ignore[attr-defined]
            "count": zero,
            "has_owner": zero.astype(np.uint8),
            "owner": zero,
            "reserve": zero,
            "relay_fee": bodies.relay_fee[at],  # type: ignore[attr-defined]
        },
        count,
    )
    channels = concat([state["channels"], added])
    order = stable_order(*(channels[name] for name in ("chain", "foreign", "channel")))
    following = state["next_channels"]
    seen = lookup(following, added, ("chain", "foreign"))
    highest = np.zeros(len(following), dtype=np.uint64)
    np.maximum.at(highest, seen[seen >= 0], channel[seen >= 0] + np.uint64(1))
    following = following.with_columns(next_channel=np.maximum(following["next_channel"], highest))
    new = (
        added.filter(seen < 0)
        .with_columns(next_channel=channel[seen < 0] + np.uint64(1))
        .select(NEXT_CHANNELS_SCHEMA.names)
    )
    following = concat([following.select(NEXT_CHANNELS_SCHEMA.names), new])
    return state.with_tables(
        channels=channels.take(order).select(CHANNELS_SCHEMA.names),
        next_channels=following.take(stable_order(following["chain"], following["foreign"])),
    )


def _requests(
    state: State, now: Accepted, at: npt.NDArray[np.int64], money: Money, context: Context
) -> tuple[Requests, Frame, State]:
    rows, bodies, states = now.rows.take(at), bodies_at(now.bodies, at), now.state[at]
    count = len(rows)
    of_endpoint = bodies.asked == Asked.ENDPOINT
    error = np.full(count, OK, dtype=np.uint8)
    error[of_endpoint & (states != ChannelState.OPEN)] = of_messenger(MessengerError.InvalidChannelState)
    error[of_endpoint & (bodies.dst_endpoint != PROGRAMS_ENDPOINT)] = of_messenger(MessengerError.NoMessageHandler)
    held = np.where(of_endpoint, _minted(bodies.dst_fee, context), np.uint64(0))
    _mint(rows, held, money)
    variant, messages = decode_contents(bodies.payload)
    here = context.network.host_of(messages["receiver"]) == rows["destination"].view(np.int32)
    theirs = context.network.host_of(messages["sender"]) == rows["source"].view(np.int32)
    good = of_endpoint & (error == OK)
    formed = ((variant == CALL) | (variant == ANSWER)) & theirs & here
    error[good & ~formed] = of_messenger(MessengerError.InvalidMessagePayload)
    good &= formed
    installed = positions_in(state["accounts"]["program"], messages["receiver"]) >= 0
    error[good & (variant == CALL) & ~installed] = of_messenger(MessengerError.NoMessageHandler)
    good &= installed | (variant != CALL)
    late, state, unknown = _late_answers(state, messages, rows, np.flatnonzero(good & (variant == ANSWER)))
    error[unknown] = of_messenger(MessengerError.InvalidMessagePayload)
    good[unknown] = False
    calls = np.flatnonzero(good & (variant == CALL))
    given = np.sort(np.concatenate([calls, late]))
    arrivals = messages.take(given).with_columns(
        **{name: rows[name][given] for name in (*LANE, "index")}, via=repeated(np.uint8(Via.LANE), len(given))
    )
    _value_in(arrivals, money)
    content = accepted(count)
    return (
        Requests(
            rows, bodies.asked, bodies.dst_endpoint, error, content, held, bodies.next_response,
            messages.take(calls), calls,
        ),
        arrivals.select(ARRIVALS),
        state,
    )  # fmt: skip


def _minted(collected: npt.NDArray[np.uint64], context: Context) -> npt.NDArray[np.uint64]:
    """Return what is minted for each request (D-4)."""
    return collected


def _mint(rows: Frame, held: npt.NDArray[np.uint64], money: Money) -> None:
    """Mint the fees of requests (``InboxFee``): held, and noted as a transfer that has come."""
    for chain, foreign, amount in sums(rows["destination"], rows["source"], held):
        money.add(chain, "issuance", amount)
        money.add(chain, "inbox_held", amount)
        money.move(chain, Moved.IN, foreign, amount)


def _value_in(arrivals: Frame, money: Money) -> None:
    """Note the value that calls and answers bring."""
    ends = arrivals["destination"], arrivals["source"]
    for chain, foreign, amount in sums(*ends, arrivals["amount_low"], arrivals["amount_high"]):
        money.add(chain, "issuance", amount)
        money.move(chain, Moved.IN, foreign, amount)


def _late_answers(
    state: State, messages: Frame, rows: Frame, at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], State, npt.NDArray[np.int64]]:
    """Return which late answers somebody waits for, the state without what they end, and which nobody does."""
    if len(at) == 0:
        return at, state, at
    calls = state["open_calls"]
    asked = Frame(
        {
            "chain": rows["destination"][at],
            "sender": messages["receiver"][at],
            "callback": messages["callback"][at],
        },
        len(at),
    )
    found = lookup(calls, asked, _OPEN_CALL)
    known = found >= 0
    if len(calls):
        known &= calls["receiver"][found] == messages["sender"][at]
    first = np.zeros(len(at), dtype=bool)
    first[np.unique(np.where(known, found, -1), return_index=True)[1]] = True
    known &= first
    keep = np.ones(len(calls), dtype=bool)
    keep[found[known]] = False
    return at[known], state.with_tables(open_calls=calls.filter(keep)), at[~known]


def _responses(
    state: State, now: Accepted, at: npt.NDArray[np.int64], money: Money, context: Context
) -> tuple[Frame, Frame, State]:
    """Return the answers for programs, what is settled, and the state without the requests that have theirs."""
    rows, bodies = now.rows.take(at), bodies_at(now.bodies, at)
    asked = Frame(
        {
            "source": rows["destination"],
            "destination": rows["source"],
            "substream": rows["substream"] & ~np.uint64(1),
            "index": rows["index"],
        },
        len(rows),
    )
    outbox = state["outbox"]
    own = lookup(outbox, asked, INDEXED)
    # A response to what is not in the outbox cannot be proved by a chain that keeps the rules: MissingMessage.
    there = own >= 0
    rows, bodies, own = rows.filter(there), bodies_at(bodies, np.flatnonzero(there)), own[there]
    settled = outbox.take(own)
    state = _without(state, settled, own, bodies, rows)
    for chain, _, amount in sums(settled["source"], settled["source"], settled["src_fee"]):
        money.add(chain, "outbox_held", -amount)
        money.pay(chain, amount)
    of_endpoint = (settled["asked"] == Asked.ENDPOINT) & (settled["dst_endpoint"] == PROGRAMS_ENDPOINT)
    variant, messages = decode_contents(
        pa.compute.if_else(pa.array(of_endpoint), bodies.payload, pa.scalar(b"", pa.large_binary()))
    )
    failed = bodies.error != OK
    is_call = of_endpoint & (settled["sender"] != NOBODY)
    answered = is_call & ~failed & (variant == ANSWER)
    refused = is_call & (
        failed | (answered & ~_within(messages, settled)) | (~failed & (variant == CALL)) | (~failed & (variant < 0))
    )
    answered &= ~refused
    waits = is_call & ~refused & ~answered
    state = _with_open_calls(state, settled.filter(waits))
    given = np.flatnonzero(answered | refused)
    back = refused[given]
    texts = error_texts(bodies.error[given])
    arrivals = messages.take(given).with_columns(
        kind=repeated(np.uint8(Kind.RESPONSE), len(given)),
        sender=settled["receiver"][given],
        receiver=settled["sender"][given],
        callback=settled["callback"][given],
        code=np.where(back, np.uint8(REJECTED), messages["code"][given]).astype(np.uint8),
        payload=pa.compute.if_else(pa.array(back), texts, messages["payload"].take(pa.array(given))),
        amount_high=np.where(back, settled["amount_high"][given], messages["amount_high"][given]),
        amount_low=np.where(back, settled["amount_low"][given], messages["amount_low"][given]),
        **{name: rows[name][given] for name in (*LANE, "index")},
        via=repeated(np.uint8(Via.LANE), len(given)),
    )
    _value_in(arrivals.filter(~back), money)
    for chain, foreign, amount in sums(
        arrivals["destination"][back],
        arrivals["source"][back],
        arrivals["amount_low"][back],
        arrivals["amount_high"][back],
    ):
        money.add(chain, "issuance", amount)
        money.move(chain, Moved.CLAIMED, foreign, amount)
    return arrivals.select(ARRIVALS), settled.with_columns(error=bodies.error), state


NOBODY = 2**64 - 1
"""The sender of a request that no program waits for: an answer that came later, a request of the protocol."""


def _within(messages: Frame, settled: Frame) -> npt.NDArray[np.bool_]:
    """Return which answers give back no more than was attached."""
    high, low = messages["amount_high"], messages["amount_low"]
    return np.asarray(
        (high < settled["amount_high"]) | ((high == settled["amount_high"]) & (low <= settled["amount_low"]))
    )


def _without(state: State, settled: Frame, own: npt.NDArray[np.int64], bodies: object, rows: Frame) -> State:
    """Return the state without requests that have their responses; a channel that is taken up by the other is open."""
    if len(settled) == 0:
        return state
    keep = np.ones(len(state["outbox"]), dtype=bool)
    keep[own] = False
    channels = state["channels"]
    at = channel_rows(channels, settled["source"], settled["destination"], channel_of(settled["substream"]))
    counts = channels["count"].copy()
    np.subtract.at(counts, at, np.uint64(1))
    changed = {"count": counts}
    opened = (settled["asked"] == Asked.CHANNEL_OPEN) & (bodies.error == OK)  # type: ignore[attr-defined]
    if opened.any():
        states = channels["state"].copy()
        rows_opened = at[opened]
        states[rows_opened[states[rows_opened] == ChannelState.INITIATED]] = ChannelState.OPEN
        changed["state"] = states
    return state.with_tables(
        outbox=state["outbox"].filter(keep), channels=channels.with_columns(**changed).select(CHANNELS_SCHEMA.names)
    )


def _with_open_calls(state: State, settled: Frame) -> State:
    if len(settled) == 0:
        return state
    added = settled.with_columns(chain=settled["source"]).select(OPEN_CALLS_SCHEMA.names)
    calls = concat([state["open_calls"], added])
    return state.with_tables(open_calls=calls.take(stable_order(*(calls[name] for name in _OPEN_CALL))))
