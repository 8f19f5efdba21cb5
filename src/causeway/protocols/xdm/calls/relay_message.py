"""``relay_message``: what accepted messages do, and what requests are answered with (XDM reference 3.4, 3.6).

Outcomes for a request: a channel opened or closed; a call or a late answer for a program; an error that its response
carries. What responses do is in ``settling``. Whatever comes of a message, its nonce is used up, and a request has its
response in the same block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import find_positions, group_rows, stable_order
from causeway_proofs.substrate import to_limbs

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import ValueHolder, ValueReason, Via
from causeway.protocols.shared.contents import ANSWER, CALL, acceptance_content, decode_contents
from causeway.protocols.shared.execution import ARRIVALS
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.calls.arrivals import REJECTED, issue_arriving_value
from causeway.protocols.xdm.calls.channels import INITIATED, OPENED, close_for_peer
from causeway.protocols.xdm.calls.open_calls import take_late_answers
from causeway.protocols.xdm.calls.prepare import AcceptedMessages, request_errors, take_bodies
from causeway.protocols.xdm.calls.relay_message_response import settle_responses
from causeway.protocols.xdm.chains import PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, MessengerError, error_texts, messenger_error_number
from causeway.protocols.xdm.events import ChainEvent, message_events
from causeway.protocols.xdm.state import (
    ChannelState,
    FeeModel,
    RequestKind,
    State,
    channel_rows,
    is_response,
    lane_channels,
)
from causeway.protocols.xdm.tables import CHANNELS_SCHEMA, NEXT_CHANNELS_SCHEMA
from causeway.protocols.xdm.value.balances import INBOX_FEES, ChainSums, Purse
from causeway.protocols.xdm.value.books import TransferRecord
from causeway.protocols.xdm.value.transporter import TRANSFERS, ProvenTransfers, receive_transfers
from causeway.protocols.xdm.wire import DecodedBodies


@dataclass(frozen=True)
class DueRequests:
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
class ProcessedMessages:
    """What came of a block's messages: the state and ``requests``, and for programs ``arrivals`` (``ARRIVALS``), calls
    and late answers before answers. ``settled``: requests of our own (``OUTBOX_SCHEMA``) whose responses came, with
    the ``error`` of each; ``notices``: what became of channels."""

    state: State
    requests: DueRequests
    arrivals: Frame
    settled: Frame
    notices: list[ChainEvent]


def process_messages(
    state: State, accepted_now: AcceptedMessages, money: ChainSums, context: Context
) -> ProcessedMessages:
    """Return what accepted messages do to channels and balances, and what programs are given of them."""
    of_response = is_response(accepted_now.rows["substream"])
    asking, answering = np.flatnonzero(~of_response), np.flatnonzero(of_response)
    state = replace(state, tables={**state.tables, "early": accepted_now.early})
    now = accepted_now
    errors = request_errors(now.rows, now.bodies, now.state, state["allowlist"], context)
    # The state with nonces used up, and channels created, opened and closed by the requests of others; and what
    # happened to them.
    rows, notices = now.rows, list[ChainEvent]()
    if len(rows):
        opening = (now.bodies.asked == RequestKind.CHANNEL_OPEN) & ~is_response(rows["substream"])
        if opening.any():
            state = _created(state, rows.filter(opening), now.bodies, np.flatnonzero(opening), errors[opening])
            for row in np.flatnonzero(opening).tolist():
                both = (INITIATED, OPENED)[: 1 + bool(errors[row] == OK)]
                notices += [
                    one for what in both for one in message_events(rows.slice(row, row + 1), what, at="destination")
                ]
        channels = state["channels"]
        last = group_rows(*(rows[name] for name in LANE))
        ends = rows.take(last.starts + last.counts - 1)
        at = channel_rows(channels, ends["destination"], ends["source"], lane_channels(ends["substream"]))
        after = ends["index"] + np.uint64(1)
        response = is_response(ends["substream"])
        inbox, responses = channels["next_inbox"].copy(), channels["next_response"].copy()
        inbox[at[~response]] = after[~response]
        responses[at[response]] = after[response]
        changed = {"next_inbox": inbox, "next_response": responses}
        state = state.with_tables(channels=channels.with_columns(**changed).select(CHANNELS_SCHEMA.names))
        closing = (now.bodies.asked == RequestKind.CHANNEL_CLOSE) & ~is_response(rows["substream"]) & (errors == OK)
        if closing.any():
            closed = rows.filter(closing)
            found = channel_rows(channels, closed["destination"], closed["source"], lane_channels(closed["substream"]))
            state, more = close_for_peer(state, found, now.state[closing], money, context)
            notices += more
    requests, arrivals, state, failed = _requests(state, now, asking, errors[asking], money, context)
    answers, settled, state, opened = settle_responses(state, now, answering, money, context)
    return ProcessedMessages(state, requests, concat([arrivals, answers]), settled, notices + failed + opened)


def _created(
    state: State, rows: Frame, bodies: DecodedBodies, at: npt.NDArray[np.int64], errors: npt.NDArray[np.uint8]
) -> State:
    """Return the state with the channels that others asked for; without an owner and a reserve (3.4, 11 and 14)."""
    count = len(rows)
    zero = np.zeros(count, dtype=np.uint64)
    channel = lane_channels(rows["substream"])
    added = Frame(
        {
            "chain": rows["destination"],
            "foreign": rows["source"],
            "channel": channel,
            "state": np.where(errors == OK, ChannelState.OPEN, ChannelState.INITIATED).astype(np.uint8),
            "next_inbox": zero,
            "next_outbox": zero,
            "next_response": zero,
            "max_outgoing": bodies.max_outgoing[at],
            "count": zero,
            "has_owner": zero.astype(np.uint8),
            "owner": zero,
            "reserve": zero,
            "fee_model": bodies.fee_model[at],
            "relay_fee": bodies.relay_fee[at],
        },
        count,
    )
    channels = concat([state["channels"], added])
    order = stable_order(*(channels[name] for name in ("chain", "foreign", "channel")))
    following = state["next_channels"]
    seen = lookup_rows(following, added, ("chain", "foreign"))
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
    state: State,
    now: AcceptedMessages,
    at: npt.NDArray[np.int64],
    error: npt.NDArray[np.uint8],
    money: ChainSums,
    context: Context,
) -> tuple[DueRequests, Frame, State, list[ChainEvent]]:
    """Return the requests that are answered, what programs are given, the state, and of which requests the call failed
    (FailedToNoteTransferIn): nothing comes of these but that their nonces are used up, so that nobody ever answers
    them (hazard 20)."""
    rows, bodies = now.rows.take(at), take_bodies(now.bodies, at)
    count = len(rows)
    of_endpoint = bodies.asked == RequestKind.ENDPOINT
    transfer = of_endpoint & (bodies.dst_endpoint == TRANSPORTER_ENDPOINT)
    variant, messages = decode_contents(bodies.payload)
    # What is minted for each request (D-4): what was collected, or what the destination's own weights say, for
    # relaying alone where nothing handles it.
    if context.options.v0_mint == "collected" or len(rows) == 0:
        minted = bodies.dst_fee
    else:
        channels = state["channels"]
        found = channel_rows(channels, rows["destination"], rows["source"], lane_channels(rows["substream"]))
        of_programs = bodies.dst_endpoint == PROGRAMS_ENDPOINT
        handled = of_programs | (bodies.dst_endpoint == TRANSPORTER_ENDPOINT)
        own = context.fees.of_messages(channels, found, handled)
        own = np.where((variant == ANSWER) & of_programs, np.uint64(0), own)
        minted = np.where(channels["fee_model"][found] == FeeModel.V0, own, bodies.dst_fee)
    held = np.where(of_endpoint, minted, np.uint64(0))
    moving = np.flatnonzero(transfer)
    # The transfers that requests ask for; the amount of one that is none is 0.
    transfers_bodies = take_bodies(bodies, moving)
    decoded = TRANSFERS.decode(transfers_bodies.payload)
    amounts = to_limbs(decoded.columns["amount"].fill_null(bytes(16)))
    transfers = ProvenTransfers(
        decoded.verdicts.codes == 0, decoded.columns, amounts[:, 0].copy(), amounts[:, 1].copy()
    )
    valued = of_endpoint & ~transfer & ((variant == CALL) | (variant == ANSWER))
    low, high = (np.where(valued, messages[name], np.uint64(0)) for name in ("amount_low", "amount_high"))
    low[moving], high[moving] = transfers.low, transfers.high
    ends = rows["destination"], rows["source"]
    parts = [(held, np.zeros(count, dtype=np.uint64)), (low, high)]
    unnoted = money.unnoted(TransferRecord.IN, *ends, parts, whole=False)
    if (unnoted == 0).any():
        good = unnoted != 0
        answered, arrivals, state, _ = _requests(state, now, at[good], error[good], money, context)
        name, fees = MessengerError.FailedToNoteTransferIn.name, held[~good].tolist()
        told = message_events(rows.filter(~good), name, at="destination", amounts=fees, refused=True)
        return answered, arrivals, state, told
    short = unnoted > 0
    money.move(ValueReason.FEE_MINTED, ends[0], Purse(ValueHolder.ABROAD, ends[1]), INBOX_FEES, held, message=rows)
    if len(moving):
        bodies_of, before = take_bodies(bodies, moving), error[moving]
        received = receive_transfers(
            state, rows.take(moving), bodies_of, transfers, before, short[moving], money, context
        )
        state, error[moving] = received.state, received.error
    here = context.network.host_of(messages["receiver"]) == rows["destination"].view(np.int32)
    theirs = context.network.host_of(messages["sender"]) == rows["source"].view(np.int32)
    good = of_endpoint & ~transfer & (error == OK)
    formed = ((variant == CALL) | (variant == ANSWER)) & theirs & here
    error[good & ~formed] = messenger_error_number(MessengerError.InvalidMessagePayload)
    good &= formed
    installed = find_positions(state["accounts"]["program"], messages["receiver"]) >= 0
    error[good & (variant == CALL) & ~installed] = messenger_error_number(MessengerError.NoMessageHandler)
    good &= installed | (variant != CALL)
    error[good & short] = messenger_error_number(MessengerError.BalanceUnderflow)
    good &= ~short
    # Who waits for an answer that is refused is told why: it never comes again.
    answers = np.flatnonzero(of_endpoint & ~transfer & formed & (variant == ANSWER))
    late, state, unknown = take_late_answers(state, messages, rows, answers)
    error[unknown[good[unknown]]] = messenger_error_number(MessengerError.InvalidMessagePayload)
    good[unknown] = False
    calls = np.flatnonzero(good & (variant == CALL))
    given = np.sort(np.concatenate([calls, late]))
    back = ~good[given]
    payload = messages["payload"].take(pa.array(given))
    zero = np.uint64(0)
    arrivals = messages.take(given).with_columns(
        **{name: rows[name][given] for name in (*LANE, "index")},
        via=repeat_value(np.uint8(Via.LANE), len(given)),
        code=np.where(back, np.uint8(REJECTED), messages["code"][given]).astype(np.uint8),
        payload=pa.compute.if_else(pa.array(back), error_texts(error[given]), payload),
        **{name: np.where(back, zero, messages[name][given]) for name in ("amount_high", "amount_low")},
    )
    issue_arriving_value(arrivals, money)
    refused = valued & (error != OK) & ~short
    money.note_rejected(ends[0][refused], ends[1][refused], low[refused], high[refused])
    content = pa.compute.if_else(pa.array(transfer), pa.scalar(b"", pa.large_binary()), acceptance_content(count))
    return (
        DueRequests(
            rows, bodies.asked, bodies.dst_endpoint, error, content, held, bodies.next_response,
            messages.take(calls), calls,
        ),
        arrivals.select(ARRIVALS),
        state,
        [],
    )  # fmt: skip
