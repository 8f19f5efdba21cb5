"""``relay_message_response``: what accepted responses do (XDM reference 3.5, 3.6).

Outcomes: a channel opened; an answer, or a reject, for the program that asked. The request leaves the outbox, and its
fee is paid.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import find_positions

from causeway.core.frame import Frame, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import Kind, ValueHolder, ValueReason, Via
from causeway.protocols.shared.contents import ACCEPTED, ANSWER, CALL, decode_contents
from causeway.protocols.shared.execution import ARRIVALS, credit_accounts
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.calls.arrivals import REJECTED, issue_arriving_value
from causeway.protocols.xdm.calls.channels import OPENED
from causeway.protocols.xdm.calls.open_calls import OPEN_CALL, add_open_calls
from causeway.protocols.xdm.calls.prepare import AcceptedMessages, take_bodies
from causeway.protocols.xdm.chains import PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, MessengerError, error_name, error_texts
from causeway.protocols.xdm.events import ChainEvent, message_events
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import NOBODY, ChannelState, RequestKind, State, channel_rows, lane_channels
from causeway.protocols.xdm.tables import CHANNELS_SCHEMA
from causeway.protocols.xdm.value.balances import OUTBOX_FEES, ChainSums, Purse, join_words
from causeway.protocols.xdm.value.books import TransferRecord
from causeway.protocols.xdm.wire import ENDPOINT, Tag, response_tags


def settle_responses(
    state: State, now: AcceptedMessages, at: npt.NDArray[np.int64], money: ChainSums, context: Context
) -> tuple[Frame, Frame, State, list[ChainEvent]]:
    """Return the answers for programs, what is settled, the state without the requests that have theirs, and what
    became of the channels that they asked for."""
    rows, bodies = now.rows.take(at), take_bodies(now.bodies, at)
    asked = Frame(
        {
            "source": rows["destination"],
            "destination": rows["source"],
            "substream": rows["substream"] & ~np.uint64(1),
            "index": rows["index"],
        },
        len(rows),
    )
    outbox = LaneTable.of(state["outbox"])
    own = outbox.find(asked)
    # Neither a response to what is not in the outbox nor one of another kind can be proved by a chain that keeps the
    # rules. It uses up its nonce, and does nothing.
    there = own >= 0
    missing = _unsettled(rows, ~there, MessengerError.MissingMessage)
    rows, bodies, own = rows.filter(there), take_bodies(bodies, np.flatnonzero(there)), own[there]
    settled = outbox.rows_at(own)
    due = response_tags(bodies.layer, bodies.error, settled["asked"], settled["dst_endpoint"])
    other = (bodies.layer == ENDPOINT) != (settled["asked"] == RequestKind.ENDPOINT)
    unfit = _unsettled(rows, other, MessengerError.InvalidMessagePayload)
    mistagged = (rows["tag"] != due) & (due != Tag.NONE) & (context.options.trust_tag == "on") & ~other
    tags = _unsettled(rows, mistagged, MessengerError.WeightTagNotMatch)
    wrong = other | mistagged
    state, notices = _counted_off(state.with_tables(outbox=outbox.without(own)), settled, bodies.error, wrong)
    paid = settled.filter(~other)
    money.pay(paid["source"], OUTBOX_FEES, paid["src_fee"], paid["sent"], paid)
    of_endpoint = (settled["asked"] == RequestKind.ENDPOINT) & (settled["dst_endpoint"] == PROGRAMS_ENDPOINT)
    variant, messages = decode_contents(
        pa.compute.if_else(pa.array(of_endpoint), bodies.payload, pa.scalar(b"", pa.large_binary()))
    )
    failed = bodies.error != OK
    # Under a tag that does not match nobody is told of the response, and what would come back is lost.
    transfer = (settled["asked"] == RequestKind.ENDPOINT) & (settled["src_endpoint"] == TRANSPORTER_ENDPOINT)
    # Of a call that was answered before, a chain that keeps the rules says that it is accepted: it does nothing more.
    # The state without the calls that were answered before their responses came, and which of the requests
    # `settled` (`OUTBOX_SCHEMA`), whose responses came now, are of these.
    calls = state["open_calls"]
    if not calls["answered"].any():
        before = np.zeros(len(settled), dtype=bool)
    else:
        found = lookup_rows(calls, settled.with_columns(chain=settled["source"]), OPEN_CALL)
        keep = np.ones(len(calls), dtype=bool)
        keep[found[found >= 0]] = False
        state, before = state.with_tables(open_calls=calls.filter(keep)), found >= 0
    belied = before & ~wrong & (failed | (variant != ACCEPTED))
    unfit += _unsettled(rows, belied, MessengerError.InvalidMessagePayload)
    is_call = (of_endpoint | transfer) & (settled["sender"] != NOBODY) & ~wrong & ~before
    answered = is_call & ~failed & (transfer | (variant == ANSWER))
    unreadable = ~failed & ~transfer & ((variant == CALL) | (variant < 0))
    # Which answers give back no more than was attached.
    high, low = messages["amount_high"], messages["amount_low"]
    within = np.asarray(
        (high < settled["amount_high"]) | ((high == settled["amount_high"]) & (low <= settled["amount_low"]))
    )
    refused = is_call & (failed | unreadable | (answered & ~within))
    answered &= ~refused
    waits = is_call & ~refused & ~answered
    state = add_open_calls(state, settled.filter(waits))
    given = np.flatnonzero(answered | refused)
    back = refused[given]
    texts = error_texts(bodies.error[given])
    arrivals = messages.take(given).with_columns(
        kind=repeat_value(np.uint8(Kind.RESPONSE), len(given)),
        sender=settled["receiver"][given],
        receiver=settled["sender"][given],
        callback=settled["callback"][given],
        code=np.where(back, np.uint8(REJECTED), messages["code"][given]).astype(np.uint8),
        payload=pa.compute.if_else(pa.array(back), texts, messages["payload"].take(pa.array(given))),
        amount_high=np.where(back, settled["amount_high"][given], messages["amount_high"][given]),
        amount_low=np.where(back, settled["amount_low"][given], messages["amount_low"][given]),
        **{name: rows[name][given] for name in (*LANE, "index")},
        via=repeat_value(np.uint8(Via.LANE), len(given)),
    )
    arrivals, more = _booked(arrivals, back, money)
    issue_arriving_value(arrivals.filter(~back), money)
    claimed = arrivals.filter(back)
    giver, taker = Purse(ValueHolder.ABROAD, claimed["source"]), Purse(ValueHolder.ACCOUNT, claimed["receiver"])
    amounts = claimed["amount_low"], claimed["amount_high"]
    money.move(ValueReason.CLAIMED, claimed["destination"], giver, taker, *amounts, claimed)
    # Nobody waits for what becomes of an answer that came late: who gave it has back what was refused.
    unheard = failed & ~wrong & of_endpoint & (settled["sender"] == NOBODY)
    state, returned = _returned(state, settled.filter(unheard), bodies.error[unheard], money)
    told = [*missing, *unfit, *tags, *notices, *more, *returned]
    return arrivals.select(ARRIVALS), settled.with_columns(error=bodies.error), state, told


def _booked(arrivals: Frame, back: npt.NDArray[np.bool_], money: ChainSums) -> tuple[Frame, list[ChainEvent]]:
    """Return answers with what they give back as far as the books have it: a program gets its answer in any case. And
    what is not given back. ``back``: of which answers it is what the request took along."""
    ends = arrivals["destination"], arrivals["source"]
    short = np.zeros(len(arrivals), dtype=bool)
    for what, some in ((TransferRecord.IN, ~back), (TransferRecord.CLAIMED, back)):
        amounts = [np.where(some, arrivals[name], np.uint64(0)) for name in ("amount_low", "amount_high")]
        short |= money.unnoted(what, *ends, [(amounts[0], amounts[1])], whole=True) >= 0
    if not short.any():
        return arrivals, []
    lost = arrivals.filter(short)
    whose = {"by": lost["receiver"].tolist(), "amounts": join_words(lost, "amount")}
    notices = message_events(lost, MessengerError.BalanceUnderflow.name, at="destination", **whose, refused=True)
    kept = {name: np.where(short, np.uint64(0), arrivals[name]) for name in ("amount_high", "amount_low")}
    return arrivals.with_columns(**kept), notices


def _returned(
    state: State, settled: Frame, error: npt.NDArray[np.uint8], money: ChainSums
) -> tuple[State, list[ChainEvent]]:
    """Return the state in which programs have back what they gave with late answers that were refused (X-3: a response
    that is Err claims what was rejected, for who sent it), and what they were refused for. ``settled``: these answers
    (``OUTBOX_SCHEMA``)."""
    if len(settled) == 0:
        return state, []
    _, messages = decode_contents(settled["payload"].cast(pa.large_binary()))
    programs = messages["sender"]
    chains = settled["source"], settled["destination"]
    low, high = settled["amount_low"], settled["amount_high"]
    booked = money.unnoted(TransferRecord.CLAIMED, *chains, [(low, high)], whole=True) < 0
    low, high = np.where(booked, low, np.uint64(0)), np.where(booked, high, np.uint64(0))
    accounts = state["accounts"]
    after = credit_accounts(accounts, find_positions(accounts["program"], programs), high, low)
    giver, taker = Purse(ValueHolder.ABROAD, chains[1]), Purse(ValueHolder.ACCOUNT, programs)
    money.move(ValueReason.CLAIMED, chains[0], giver, taker, low, high, settled)
    names = [
        error_name(code) if has else MessengerError.BalanceUnderflow.name
        for code, has in zip(error.tolist(), booked.tolist(), strict=True)
    ]
    notices = message_events(settled, names, by=programs.tolist(), amounts=join_words(settled, "amount"), refused=True)
    return state.with_tables(accounts=after), notices


def _counted_off(
    state: State,
    settled: Frame,
    error: npt.NDArray[np.uint8],
    wrong: npt.NDArray[np.bool_],
) -> tuple[State, list[ChainEvent]]:
    """Return the state after requests have their responses; a channel that the other side has opened is open.

    ``error``: of each response; ``wrong``: those that do nothing.
    """
    if len(settled) == 0:
        return state, []
    channels = state["channels"]
    at = channel_rows(channels, settled["source"], settled["destination"], lane_channels(settled["substream"]))
    counts = channels["count"].copy()
    np.subtract.at(counts, at, np.uint64(1))
    states = channels["state"].copy()
    opened = (settled["asked"] == RequestKind.CHANNEL_OPEN) & (error == OK) & ~wrong
    opened &= states[at] == ChannelState.INITIATED
    states[at[opened]] = ChannelState.OPEN
    changed = channels.with_columns(count=counts, state=states).select(CHANNELS_SCHEMA.names)
    state = state.with_tables(channels=changed)
    told = opened | ((settled["asked"] != RequestKind.ENDPOINT) & (error != OK) & ~wrong)
    late = (settled["asked"] == RequestKind.CHANNEL_OPEN) & (error == OK) & ~wrong & ~opened
    codes = error[told].tolist()
    names = [error_name(code) or OPENED for code in codes]
    results = message_events(settled.filter(told), names, refused=[code != OK for code in codes])
    closed = message_events(settled.filter(late), MessengerError.InvalidChannelState.name, refused=True)
    return state, [*results, *closed]


def _unsettled(rows: Frame, chosen: npt.NDArray[np.bool_], error: MessengerError) -> list[ChainEvent]:
    """Return the notices of responses (``LANE_COLUMNS``) that are not looked at, and of why (3.5)."""
    return message_events(rows.filter(chosen), error.name, at="destination", refused=True)
