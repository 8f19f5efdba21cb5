"""``relay_message_response``: execute accepted responses.

A response opens a channel, or brings an answer or a reject to the calling program. The request leaves the outbox, and
its fee becomes due.

Reference: XDM, sections 3.5 and 3.6.
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
from causeway.protocols.xdm.errors import ERROR_NAMES, ERROR_TEXTS, OK, MessengerError
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
    """Settle requests with their responses.

    Args:
        state: State before the responses.
        now: Messages in turn.
        at: Rows of ``now`` with responses.
        money: Sums of the chains, changed in place.
        context: Context of the block.

    Returns:
        The answers for programs, the settled requests, the state after, and the channel events.
    """
    rows, bodies = now.rows.take(at), take_bodies(now.bodies, at)
    keys = Frame(
        {
            "source": rows["destination"],
            "destination": rows["source"],
            "substream": rows["substream"] & ~np.uint64(1),
            "index": rows["index"],
        },
        len(rows),
    )
    outbox = LaneTable.of(state["outbox"])
    own = outbox.find(keys)
    # An honest chain never proves a response without a request, or of another kind. It only consumes its nonce.
    known = own >= 0
    failures = [(rows, ~known, MessengerError.MissingMessage)]
    rows, bodies, own = rows.filter(known), take_bodies(bodies, np.flatnonzero(known)), own[known]
    settled = outbox.rows_at(own)
    due = response_tags(bodies.layer, bodies.error, settled["asked"], settled["dst_endpoint"])
    other = (bodies.layer == ENDPOINT) != (settled["asked"] == RequestKind.ENDPOINT)
    failures.append((rows, other, MessengerError.InvalidMessagePayload))
    mistagged = (rows["tag"] != due) & (due != Tag.NONE) & (context.options.trust_tag == "on") & ~other
    wrong = other | mistagged
    state, notices = _count_settled(state.with_tables(outbox=outbox.without(own)), settled, bodies.error, wrong)
    paid = settled.filter(~other)
    money.pay(paid["source"], OUTBOX_FEES, paid["src_fee"], paid["sent"], paid)
    of_endpoint = (settled["asked"] == RequestKind.ENDPOINT) & (settled["dst_endpoint"] == PROGRAMS_ENDPOINT)
    variant, messages = decode_contents(
        pa.compute.if_else(pa.array(of_endpoint), bodies.payload, pa.scalar(b"", pa.large_binary()))
    )
    failed = bodies.error != OK
    # A response under a wrong tag has no effect; its refund is lost.
    transfer = (settled["asked"] == RequestKind.ENDPOINT) & (settled["src_endpoint"] == TRANSPORTER_ENDPOINT)
    # The answer of a call may precede its response. An honest response then says Accepted and only ends the call.
    calls = state["open_calls"]
    if not calls["answered"].any():
        before = np.zeros(len(settled), dtype=bool)
    else:
        found = lookup_rows(calls, settled.with_columns(chain=settled["source"]), OPEN_CALL)
        keep = np.ones(len(calls), dtype=bool)
        keep[found[found >= 0]] = False
        state, before = state.with_tables(open_calls=calls.filter(keep)), found >= 0
    contradicted = before & ~wrong & (failed | (variant != ACCEPTED))
    failures += [
        (rows, contradicted, MessengerError.InvalidMessagePayload),
        (rows, mistagged, MessengerError.WeightTagNotMatch),
    ]
    is_call = (of_endpoint | transfer) & (settled["sender"] != NOBODY) & ~wrong & ~before
    answered = is_call & ~failed & (transfer | (variant == ANSWER))
    unreadable = ~failed & ~transfer & ((variant == CALL) | (variant < 0))
    # An answer must not refund more than the attached value.
    high, low = messages["amount_high"], messages["amount_low"]
    is_covered = np.asarray(
        (high < settled["amount_high"]) | ((high == settled["amount_high"]) & (low <= settled["amount_low"]))
    )
    refused = is_call & (failed | unreadable | (answered & ~is_covered))
    answered &= ~refused
    waits = is_call & ~refused & ~answered
    if waits.any():
        state = add_open_calls(state, settled.filter(waits))
    delivered = np.flatnonzero(answered | refused)
    refunds = refused[delivered]
    texts = ERROR_TEXTS.take(pa.array(bodies.error[delivered]))
    arrivals = messages.take(delivered).with_columns(
        kind=repeat_value(np.uint8(Kind.RESPONSE), len(delivered)),
        sender=settled["receiver"][delivered],
        receiver=settled["sender"][delivered],
        callback=settled["callback"][delivered],
        code=np.where(refunds, np.uint8(REJECTED), messages["code"][delivered]).astype(np.uint8),
        payload=pa.compute.if_else(pa.array(refunds), texts, messages["payload"].take(pa.array(delivered))),
        amount_high=np.where(refunds, settled["amount_high"][delivered], messages["amount_high"][delivered]),
        amount_low=np.where(refunds, settled["amount_low"][delivered], messages["amount_low"][delivered]),
        **{name: rows[name][delivered] for name in (*LANE, "index")},
        via=repeat_value(np.uint8(Via.LANE), len(delivered)),
    )
    arrivals, more = _limit_refunds(arrivals, refunds, money)
    issue_arriving_value(arrivals.filter(~refunds), money)
    claimed = arrivals.filter(refunds)
    giver, taker = Purse(ValueHolder.ABROAD, claimed["source"]), Purse(ValueHolder.ACCOUNT, claimed["receiver"])
    amounts = claimed["amount_low"], claimed["amount_high"]
    money.move(ValueReason.CLAIMED, claimed["destination"], giver, taker, *amounts, claimed)
    # A late answer has no waiting program; a refused one refunds its sender.
    unheard = failed & ~wrong & of_endpoint & (settled["sender"] == NOBODY)
    returned = list[ChainEvent]()
    if unheard.any():
        state, returned = _refund_answers(state, settled.filter(unheard), bodies.error[unheard], money)
    unsettled = [
        event
        for responses, chosen, failure in failures
        if chosen.any()
        for event in message_events(responses.filter(chosen), failure.name, at="destination", refused=True)
    ]
    events = [*unsettled, *notices, *more, *returned]
    return arrivals.select(ARRIVALS), settled.with_columns(error=bodies.error), state, events


def _limit_refunds(arrivals: Frame, refunds: npt.NDArray[np.bool_], money: ChainSums) -> tuple[Frame, list[ChainEvent]]:
    """Return answers with the refunds that the books cover, and events of the others.

    A program gets its answer in any case. ``refunds`` marks answers that refund the request.
    """
    ends = arrivals["destination"], arrivals["source"]
    short = np.zeros(len(arrivals), dtype=bool)
    for record, selected in ((TransferRecord.IN, ~refunds), (TransferRecord.CLAIMED, refunds)):
        amounts = [np.where(selected, arrivals[name], np.uint64(0)) for name in ("amount_low", "amount_high")]
        short |= money.unnoted(record, *ends, [(amounts[0], amounts[1])], whole=True) >= 0
    if not short.any():
        return arrivals, []
    lost = arrivals.filter(short)
    whose = {"by": lost["receiver"].tolist(), "amounts": join_words(lost, "amount")}
    notices = message_events(lost, MessengerError.BalanceUnderflow.name, at="destination", **whose, refused=True)
    amounts_after = {name: np.where(short, np.uint64(0), arrivals[name]) for name in ("amount_high", "amount_low")}
    return arrivals.with_columns(**amounts_after), notices


def _refund_answers(
    state: State, settled: Frame, error: npt.NDArray[np.uint8], money: ChainSums
) -> tuple[State, list[ChainEvent]]:
    """Refund late answers with an error response to their programs (X-3).

    An error response claims the rejected value for its sender. ``settled`` has these answers (``OUTBOX_SCHEMA``).
    """
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
        ERROR_NAMES[code] if has else MessengerError.BalanceUnderflow.name
        for code, has in zip(error.tolist(), booked.tolist(), strict=True)
    ]
    notices = message_events(settled, names, by=programs.tolist(), amounts=join_words(settled, "amount"), refused=True)
    return state.with_tables(accounts=after), notices


def _count_settled(
    state: State,
    settled: Frame,
    error: npt.NDArray[np.uint8],
    wrong: npt.NDArray[np.bool_],
) -> tuple[State, list[ChainEvent]]:
    """Decrease channel counts by settled requests, and open accepted channels.

    ``wrong`` marks responses without effect.
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
    with_event = opened | ((settled["asked"] != RequestKind.ENDPOINT) & (error != OK) & ~wrong)
    late = (settled["asked"] == RequestKind.CHANNEL_OPEN) & (error == OK) & ~wrong & ~opened
    codes = error[with_event].tolist()
    names = [ERROR_NAMES[code] or OPENED for code in codes]
    results = message_events(settled.filter(with_event), names, refused=[code != OK for code in codes])
    closed = message_events(settled.filter(late), MessengerError.InvalidChannelState.name, refused=True)
    return state, [*results, *closed]
