"""``relay_message``: execute accepted messages and create responses to requests.

A request opens or closes a channel, brings a call or late answer to a program, or fails with the error in its response.
``relay_message_response`` executes responses. Every message consumes its nonce, and every request has its response in
the same block.

Reference: XDM, sections 3.4 and 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import find_positions, group_rows, stable_order
from causeway_proofs.substrate import to_limbs

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows, merge_ranges
from causeway.core.vocabulary import COLLECTED_MESSAGES, Event, ValueHolder, ValueReason, Via
from causeway.protocols.shared.contents import ANSWER, CALL, acceptance_content, decode_contents
from causeway.protocols.shared.events import EventLog, names_column
from causeway.protocols.shared.execution import ARRIVALS
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.calls.arrivals import REJECTED, issue_arriving_value
from causeway.protocols.xdm.calls.channels import INITIATED, OPENED, close_for_peer
from causeway.protocols.xdm.calls.open_calls import take_late_answers
from causeway.protocols.xdm.calls.prepare import AcceptedMessages, request_errors, take_bodies
from causeway.protocols.xdm.calls.relay_message_response import settle_responses
from causeway.protocols.xdm.chains import PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import ERROR_NAMES, ERROR_TEXTS, MESSENGER_ERRORS, OK, MessengerError
from causeway.protocols.xdm.events import ChainEvent, log_messages, message_events
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
    """Requests in turn, with their responses so far.

    Attributes:
        rows: Lane and ``index`` of each.
        asked: ``RequestKind`` of each.
        endpoint: Destination endpoint of each.
        error: Error of each response (``errors``), or ``OK``.
        content: Content of each immediate endpoint response.
        held: Minted fee of each, in units.
        acknowledges: Nonce after the acknowledged response of each, 0 for none.
        calls: Calls of programs (``MESSAGE_COLUMNS``).
        call_rows: Row of each call in ``rows``.
    """

    rows: Frame
    asked: npt.NDArray[np.uint8]
    endpoint: npt.NDArray[np.uint64]
    error: npt.NDArray[np.uint8]
    content: pa.LargeBinaryArray
    held: npt.NDArray[np.uint64]
    acknowledges: npt.NDArray[np.uint64]
    calls: Frame
    call_rows: npt.NDArray[np.int64]


def process_messages(
    state: State, now: AcceptedMessages, money: ChainSums, context: Context, log: EventLog
) -> tuple[State, DueRequests, Frame, list[ChainEvent]]:
    """Apply accepted messages to channels and balances.

    Args:
        state: State before the messages.
        now: Messages in turn.
        money: Sums of the chains, changed in place.
        context: Context of the block.
        log: Event log.

    Returns:
        The state, the requests with their responses, the messages for programs (``ARRIVALS``, calls and late answers
        before answers), and the changes of channels.
    """
    of_response = is_response(now.rows["substream"])
    asking, answering = np.flatnonzero(~of_response), np.flatnonzero(of_response)
    state = replace(state, tables={**state.tables, "early": now.early})
    errors = request_errors(now.rows, now.bodies, now.state, state["allowlist"], context)
    rows, notices = now.rows, list[ChainEvent]()
    if len(rows):
        opening = (now.bodies.asked == RequestKind.CHANNEL_OPEN) & ~of_response
        if opening.any():
            state = _create_channels(state, rows.filter(opening), now.bodies, np.flatnonzero(opening), errors[opening])
            for row in np.flatnonzero(opening).tolist():
                both = (INITIATED, OPENED)[: 1 + bool(errors[row] == OK)]
                notices += [
                    event
                    for event_name in both
                    for event in message_events(rows.slice(row, row + 1), event_name, at="destination")
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
        closing = (now.bodies.asked == RequestKind.CHANNEL_CLOSE) & ~of_response & (errors == OK)
        if closing.any():
            closed = rows.filter(closing)
            closed_rows = channel_rows(
                channels, closed["destination"], closed["source"], lane_channels(closed["substream"])
            )
            state, more = close_for_peer(state, closed_rows, now.state[closing], money, context)
            notices += more
    requests, calls, state, failed = _process_requests(state, now, asking, errors[asking], money, context)
    answers, settled, state, opened = settle_responses(state, now, answering, money, context)
    # Log failed requests, executed transfers and settled requests.
    transfer = (requests.endpoint == TRANSPORTER_ENDPOINT) & (requests.asked == RequestKind.ENDPOINT)
    refused = requests.error != OK
    for chosen, outcome in ((refused, Event.REJECTED), (transfer & ~refused, Event.EXECUTED)):
        if chosen.any():
            rows = requests.rows.filter(chosen)
            codes, positions = np.unique(requests.error[chosen], return_inverse=True)
            names = names_column([ERROR_NAMES[code] for code in codes.tolist()], positions)
            log_messages(rows, Event.RECEIVED | outcome, names, log)
    if len(settled):
        rows = settled.take(stable_order(*(settled[name] for name in LANE_COLUMNS)))
        first_rows, first, end = merge_ranges(rows["index"], *(rows[name] for name in LANE))
        log.collected(rows.select(LANE).take(first_rows), COLLECTED_MESSAGES, first, end)
    return state, requests, concat([calls, answers]), notices + failed + opened


def _create_channels(
    state: State, rows: Frame, bodies: DecodedBodies, at: npt.NDArray[np.int64], errors: npt.NDArray[np.uint8]
) -> State:
    """Create the channels opened by peers, without owner and reserve (3.4, 11 and 14)."""
    count = len(rows)
    channel = lane_channels(rows["substream"])
    added = blank_rows(
        CHANNELS_SCHEMA,
        count,
        chain=rows["destination"],
        foreign=rows["source"],
        channel=channel,
        state=np.where(errors == OK, ChannelState.OPEN, ChannelState.INITIATED).astype(np.uint8),
        max_outgoing=bodies.max_outgoing[at],
        fee_model=bodies.fee_model[at],
        relay_fee=bodies.relay_fee[at],
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


def _process_requests(
    state: State,
    now: AcceptedMessages,
    at: npt.NDArray[np.int64],
    error: npt.NDArray[np.uint8],
    money: ChainSums,
    context: Context,
) -> tuple[DueRequests, Frame, State, list[ChainEvent]]:
    """Process requests; return them, the messages for programs, the state and failed calls.

    A failed call (FailedToNoteTransferIn) only consumes its nonce and never gets a response (hazard 20).
    """
    rows, bodies = now.rows.take(at), take_bodies(now.bodies, at)
    count = len(rows)
    of_endpoint = bodies.asked == RequestKind.ENDPOINT
    transfer = of_endpoint & (bodies.dst_endpoint == TRANSPORTER_ENDPOINT)
    variant, messages = decode_contents(bodies.payload)
    # D-4: mint the collected fee, or recompute it from the destination's weights (without a handler: relay fee only).
    if context.options.v0_mint == "collected" or len(rows) == 0:
        minted = bodies.dst_fee
    else:
        channels = state["channels"]
        channel_of = channel_rows(channels, rows["destination"], rows["source"], lane_channels(rows["substream"]))
        of_programs = bodies.dst_endpoint == PROGRAMS_ENDPOINT
        handled = of_programs | (bodies.dst_endpoint == TRANSPORTER_ENDPOINT)
        recomputed = context.fees.of_messages(channels, channel_of, handled)
        recomputed = np.where((variant == ANSWER) & of_programs, np.uint64(0), recomputed)
        minted = np.where(channels["fee_model"][channel_of] == FeeModel.V0, recomputed, bodies.dst_fee)
    minted_fees = np.where(of_endpoint, minted, np.uint64(0))
    moving = np.flatnonzero(transfer)
    # A malformed transfer has amount 0.
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
    parts = [(minted_fees, np.zeros(count, dtype=np.uint64)), (low, high)]
    failed_part = money.unnoted(TransferRecord.IN, *ends, parts, whole=False)
    if (failed_part == 0).any():
        good = failed_part != 0
        answered, arrivals, state, _ = _process_requests(state, now, at[good], error[good], money, context)
        name, fees = MessengerError.FailedToNoteTransferIn.name, minted_fees[~good].tolist()
        notices = message_events(rows.filter(~good), name, at="destination", amounts=fees, refused=True)
        return answered, arrivals, state, notices
    short = failed_part > 0
    money.move(
        ValueReason.FEE_MINTED, ends[0], Purse(ValueHolder.ABROAD, ends[1]), INBOX_FEES, minted_fees, message=rows
    )
    if len(moving):
        bodies_of, before = take_bodies(bodies, moving), error[moving]
        state, error[moving] = receive_transfers(
            state, rows.take(moving), bodies_of, transfers, before, short[moving], money, context
        )
    at_receiver = context.network.host_of(messages["receiver"]) == rows["destination"].view(np.int32)
    from_sender = context.network.host_of(messages["sender"]) == rows["source"].view(np.int32)
    good = of_endpoint & ~transfer & (error == OK)
    formed = ((variant == CALL) | (variant == ANSWER)) & from_sender & at_receiver
    error[good & ~formed] = MESSENGER_ERRORS + MessengerError.InvalidMessagePayload
    good &= formed
    installed = find_positions(state["accounts"]["program"], messages["receiver"]) >= 0
    error[good & (variant == CALL) & ~installed] = MESSENGER_ERRORS + MessengerError.NoMessageHandler
    good &= installed | (variant != CALL)
    error[good & short] = MESSENGER_ERRORS + MessengerError.BalanceUnderflow
    good &= ~short
    # The waiting program of a refused answer gets the error, since no other answer follows.
    answers = np.flatnonzero(of_endpoint & ~transfer & formed & (variant == ANSWER))
    calls = delivered = np.flatnonzero(good & (variant == CALL))
    if len(answers):
        late, state, unknown = take_late_answers(state, messages, rows, answers)
        error[unknown[good[unknown]]] = MESSENGER_ERRORS + MessengerError.InvalidMessagePayload
        good[unknown] = False
        delivered = np.sort(np.concatenate([calls, late]))
    refused_answer = ~good[delivered]
    payload = messages["payload"].take(pa.array(delivered))
    zero = np.uint64(0)
    arrivals = messages.take(delivered).with_columns(
        **{name: rows[name][delivered] for name in (*LANE, "index")},
        via=repeat_value(np.uint8(Via.LANE), len(delivered)),
        code=np.where(refused_answer, np.uint8(REJECTED), messages["code"][delivered]).astype(np.uint8),
        payload=pa.compute.if_else(pa.array(refused_answer), ERROR_TEXTS.take(pa.array(error[delivered])), payload),
        **{name: np.where(refused_answer, zero, messages[name][delivered]) for name in ("amount_high", "amount_low")},
    )
    issue_arriving_value(arrivals, money)
    refused = valued & (error != OK) & ~short
    money.note_rejected(ends[0][refused], ends[1][refused], low[refused], high[refused])
    content = pa.compute.if_else(pa.array(transfer), pa.scalar(b"", pa.large_binary()), acceptance_content(count))
    return (
        DueRequests(
            rows, bodies.asked, bodies.dst_endpoint, error, content, minted_fees, bodies.next_response,
            messages.take(calls), calls,
        ),
        arrivals.select(ARRIVALS),
        state,
        [],
    )  # fmt: skip
