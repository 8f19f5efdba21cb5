"""Programs' messages: requests into channels, local messages, rejects.

A call of a program goes into the outbox of the newest open channel with capacity, or waits while channels are full or
about to open. A message to the same chain goes into the local lane. A refused call returns a reject to its program in
the next block. Without any usable channel, a late answer returns its value to its program, and an open call a reject.

Fees can exceed a sender's balance. Then the messages of its chain are assigned one by one, each after its predecessors
to the same chain and from the same sender. A refused call leaves its place in the channel to the next.

Reference: XDM, sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Groups, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame, repeat_value
from causeway.core.joins import merge_ranges
from causeway.core.vocabulary import Event, Kind, ValueHolder, ValueReason
from causeway.protocols.contract import NO_HOST
from causeway.protocols.shared.contents import encode_contents, is_within_limit, truncate_answers
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.execution import ACCOUNTS_SCHEMA, credit_accounts
from causeway.protocols.shared.messages import LANE, MESSAGE_COLUMNS, NO_QUEUE, OUTBOUND_SCHEMA, blank_messages
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.calls.allowlists import is_allowed
from causeway.protocols.xdm.calls.arrivals import REJECTED
from causeway.protocols.xdm.calls.open_calls import Openings, open_calls_to, pairs_calling
from causeway.protocols.xdm.chains import PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.events import ChainEvent, log_chain_events
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import NOBODY, RequestKind, State, substream
from causeway.protocols.xdm.tables import CHANNELS_SCHEMA, INDEXED, OUTBOX_SCHEMA, RUNS_SCHEMA, WAITING_SCHEMA
from causeway.protocols.xdm.value.balances import (
    MESSAGES,
    OUTBOX_FEES,
    ChainSums,
    Purse,
    join_words,
    pair_sums,
    split_words,
)
from causeway.protocols.xdm.value.books import WORD, TransferRecord
from causeway.protocols.xdm.value.transporter import REFUSALS, encode_transfers, is_transfer, transfer_refusals


def assign_channels(
    queued: Frame,
    groups: Groups,
    offers: Sequence[Sequence[tuple[int, int]]],
    able: npt.NDArray[np.bool_],
    fees: Mapping[int, int | None],
    balances: Mapping[int, int],
) -> tuple[Rows, Rows, Rows]:
    """Assign a channel to each message, in turn.

    Args:
        queued: Messages by source and destination, in order.
        groups: Groups of equal source and destination.
        offers: Channels of each group in order of use, each with its capacity.
        able: Mask of messages that may use a channel.
        fees: Fee of a call on each channel, or None above the maximum. The sender keeps a positive balance (3.3 step
            4).
        balances: Balances of the senders.

    Returns:
        The row of each message's channel, -1 for none; the calls above the maximum fee; the calls without funds.
    """
    group = groups.spread(np.arange(len(groups))).tolist()
    capacities = [[[channel, room] for channel, room in offer if room > 0][::-1] for offer in offers]
    available = dict(balances)
    row_of, costly, unfunded = np.full(len(queued), -1, dtype=np.int64), [], []
    senders, is_call = queued["sender"].tolist(), (queued["kind"] == Kind.REQUEST).tolist()
    for row in _turns(queued, groups):
        channels = capacities[group[row]]
        if not channels or not able[row]:
            continue
        fee = fees[channels[-1][0]] if is_call[row] else 0
        if fee is None:
            costly.append(row)
            continue
        if fee:
            if available[senders[row]] - fee < 1:
                unfunded.append(row)
                continue
            available[senders[row]] -= fee
        row_of[row] = channels[-1][0]
        channels[-1][1] -= 1
        if not channels[-1][1]:
            channels.pop()
    return row_of, np.array(costly, dtype=np.int64), np.array(unfunded, dtype=np.int64)


def _turns(queued: Frame, groups: Groups) -> list[int]:
    """Return the rows in an order that respects their group and their sender.

    ``callback`` numbers a program's calls; its answers are free and wait for none.
    """
    count = len(queued)
    before = np.arange(-1, count - 1)
    before[groups.starts] = -1
    calls = np.flatnonzero(queued["kind"] == Kind.REQUEST)
    calls = calls[stable_order(queued["sender"][calls], queued["callback"][calls])]
    previous_call = np.full(count, -1, dtype=np.int64)
    same = queued["sender"][calls][1:] == queued["sender"][calls][:-1]
    previous_call[calls[1:][same]] = calls[:-1][same]
    predecessors = list(zip(before.tolist(), previous_call.tolist(), strict=True))
    order, done = list[int](), [False] * count
    for first in range(count):
        stack = [first]
        while stack:
            row = stack[-1]
            pending = [] if done[row] else [other for other in predecessors[row] if other >= 0 and not done[other]]
            if pending:
                stack += pending
                continue
            stack.pop()
            if not done[row]:
                done[row] = True
                order.append(row)
    return order


NO_OPEN_CHANNEL = "NoOpenChannel"
NO_FUNDS = "FundsUnavailable"
NO_DESTINATION = "InvalidMessageDestination"
FEES_OVERFLOW = "BalanceOverflow"
NO_HANDLER = "NoMessageHandler"
TOO_LARGE = "InvalidMessagePayload"
NOT_ALLOWED = "ChainNotAllowed"
NOT_NOTED = "FailedToNoteTransferOut"
"""Reasons for refusing a program's call."""

_REASONS = ["", NO_OPEN_CHANNEL, NO_FUNDS, NO_DESTINATION, FEES_OVERFLOW, TOO_LARGE, NOT_ALLOWED]
_REASONS += [NO_HANDLER, NOT_NOTED]
_REASONS += [error.name for error in REFUSALS]


def send_messages(
    state: State, produced: Frame, published: Frame, money: ChainSums, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Send the messages of programs.

    Args:
        state: State after program execution.
        produced: Requests, and answers that are not responses of this block, in order of production.
        published: Channels of the other chains at the previous height (``CHANNELS_SCHEMA``).
        money: Sums of the chains, changed in place.
        context: Context of the block.
        log: Event log.

    Returns:
        The state after, and the outbound messages (``OUTBOUND_SCHEMA``).
    """
    network, waiting, calls = context.network, state["waiting"], state["open_calls"]
    if not (len(produced) or len(waiting) or len(calls)):
        return state, empty_frame(OUTBOUND_SCHEMA)
    source = network.host_of(produced["sender"]).view(np.uint32)
    host = network.host_of(produced["receiver"])
    no_destination = (host == NO_HOST) & (produced["kind"] == Kind.REQUEST)
    destination = np.where(host == NO_HOST, source.view(np.int32), host).view(np.uint32)
    local = source == destination
    rows = produced.select(MESSAGE_COLUMNS).with_columns(source=source, destination=destination)
    transfer = is_transfer(rows)
    transfer_error = np.full(len(rows), -1, dtype=np.int64)
    if transfer.any():
        transfer_error = transfer_refusals(rows, transfer, state["accounts"], context.options.minimum_transfer)
    # A transfer needs another chain.
    no_destination = (no_destination | (transfer & local)) & (transfer_error < 0)
    missing = local & ~no_destination & (transfer_error < 0) & (produced["kind"] == Kind.REQUEST)
    missing &= find_positions(state["accounts"]["program"], produced["receiver"]) < 0
    too_large = ~local & (produced["kind"] == Kind.REQUEST) & ~is_within_limit(produced) & (transfer_error < 0)
    away = rows.filter(~local & ~too_large & (transfer_error < 0))
    away = truncate_answers(away, REJECTED)
    queued = concat([waiting.select(away.names), away])
    before = len(waiting)
    openings = Openings(state, published, context)
    state, sent, waiting_after, returned, refused = _fill_channels(state, queued, openings, money, context)
    # Late answers without a channel return their value to their programs.
    if len(returned):
        accounts, chain, programs = state["accounts"], returned["source"], returned["sender"]
        high, low = returned["amount_high"], returned["amount_low"]
        after = credit_accounts(accounts, find_positions(accounts["program"], programs), high, low)
        money.move(ValueReason.CLAIMED, chain, MESSAGES, Purse(ValueHolder.ACCOUNT, programs), low, high)
        columns = (returned[name].tolist() for name in ("source", "destination", "sender"))
        notices = [
            ChainEvent(
                chain_of_answer, foreign, NO_OPEN_CHANNEL, by=program, amount=min(amount, WORD - 1), refused=True
            )
            for chain_of_answer, foreign, program, amount in zip(*columns, join_words(returned, "amount"), strict=True)
        ]
        log_chain_events(notices, len(context.network.names), log)
        state = state.with_tables(accounts=after)
    if len(waiting_after) or before:
        groups = group_rows(waiting_after["source"], waiting_after["destination"])
        waiting_after = waiting_after.with_columns(index=groups.ranks().astype(np.uint64)).select(WAITING_SCHEMA.names)
        state = state.with_tables(waiting=waiting_after)
    failed, reasons = refused
    failures = [(no_destination, NO_DESTINATION), (missing, NO_HANDLER), (too_large, TOO_LARGE)]
    for mask, reason in [*failures, *((transfer_error == error, error.name) for error in REFUSALS)]:
        if mask.any():
            failed = concat([failed, rows.filter(mask).select(failed.names)])
            reasons = np.concatenate([reasons, np.full(int(mask.sum()), _REASONS.index(reason))])
    produced_here = rows.filter(local & ~no_destination & ~missing & (transfer_error < 0))
    parts = [produced_here]
    if len(failed):
        parts.append(_rejects(failed, reasons, Event.SENT | Event.REJECTED, log))
    # Open calls without a way for an answer get a reject.
    if len(calls):
        pairs = [pair for pair in pairs_calling(calls, context) if openings.cut_off(*pair)]
        if cut_off := [open_calls_to(calls, *pair, context) for pair in pairs]:
            keep = np.ones(len(calls), dtype=bool)
            keep[np.concatenate(cut_off)] = False
            state, calls = state.with_tables(open_calls=calls.filter(keep)), calls.take(np.concatenate(cut_off))
            named = {name: calls[name] for name in ("sender", "receiver", "callback")}
            ends = {"source": calls["chain"], "destination": network.host_of(calls["receiver"]).view(np.uint32)}
            given_up = blank_messages(len(calls), kind=int(Kind.REQUEST), **named, **ends)
            no_channel = np.full(len(given_up), _REASONS.index(NO_OPEN_CHANNEL))
            parts.append(_rejects(given_up, no_channel, Event.REJECTED, log))
    rows = concat([part.select(rows.names) for part in parts])
    of_program = np.arange(len(rows)) < len(produced_here)
    outbound = [sent]
    if len(rows):
        answer = rows["kind"] == Kind.RESPONSE
        rows = rows.with_columns(substream=answer.astype(np.uint64))
        index, queues = state.local().number(rows)
        rows = rows.with_columns(index=index, queue_index=np.where(of_program, index, np.uint64(NO_QUEUE)))
        rows = rows.take(stable_order(*(rows[name] for name in INDEXED)))
        at, first, end = merge_ranges(rows["index"], *(rows[name] for name in LANE))
        runs = (
            rows.select(LANE)
            .take(at)
            .with_columns(height=np.full(len(at), context.height, dtype=np.uint64), first=first, count=end - first)
        )
        queues = queues.add_segments(runs.select(RUNS_SCHEMA.names))
        state = state.replace_local(queues)
        outbound.append(_outbound(rows, context))
    return state, concat(outbound)


def _rejects(failed: Frame, reasons: npt.NDArray[np.int64], events: Event, log: EventLog) -> Frame:
    """Return the rejects of failed calls, and log ``events`` for each."""
    names = names_column(_REASONS, reasons)
    log.add(event_rows(failed, events, chain=failed["source"], code=REJECTED, reason=names))
    return failed.with_columns(
        destination=failed["source"],
        kind=repeat_value(np.uint8(Kind.RESPONSE), len(failed)),
        sender=failed["receiver"],
        receiver=failed["sender"],
        code=repeat_value(np.uint8(REJECTED), len(failed)),
        payload=names.dictionary_decode().cast(pa.binary()),
    )


def _fill_channels(
    state: State, queued: Frame, openings: Openings, money: ChainSums, context: Context
) -> tuple[State, Frame, Frame, Frame, tuple[Frame, npt.NDArray[np.int64]]]:
    """Put requests into the outbox of their channels.

    Returns the state, the outbound messages, the waiting ones, the returned answers, and the failed calls with reasons.
    """
    none = (queued.slice(0, 0), np.empty(0, dtype=np.int64))
    if len(queued) == 0:
        return state, empty_frame(OUTBOUND_SCHEMA), queued, queued, none
    order = stable_order(queued["source"], queued["destination"])
    queued = queued.take(order)
    groups = group_rows(queued["source"], queued["destination"])
    channels, options = state["channels"], context.options
    row_of = np.full(len(queued), -1, dtype=np.int64)
    unreachable = np.zeros(len(queued), dtype=bool)
    offers = list[list[tuple[int, int]]]()
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        chain, foreign = int(queued["source"][start]), int(queued["destination"][start])
        is_open = openings.open(chain, foreign)
        if len(is_open) == 0:
            unreachable[start : start + count] = not openings.can_be_opened(chain, foreign)
        room = np.clip(_capacities(channels, is_open, options.max_messages), 0, count)
        offers.append(list(zip(is_open.tolist(), room.tolist(), strict=True)))
        assigned = np.repeat(is_open, room)[:count]
        row_of[start : start + len(assigned)] = assigned
    refused = np.zeros(len(queued), dtype=bool)
    if options.allowlist == "on":
        refused = ~is_allowed(state["allowlist"], queued["source"], queued["destination"])
    # Without a usable channel a call is refused and an answer returned.
    of_call = queued["kind"] == Kind.REQUEST
    is_final = of_call & (unreachable | (options.calls_wait == "off"))
    row_of[refused] = -1
    fees = _Fees(channels, row_of, of_call, context)
    mixed, overflowing, unfunded = fees.differ(row_of, groups), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    charges = _Charges.of(state["accounts"], queued, fees.total)
    # Decide per chain: the outcome must not depend on the other chains of the same task.
    one_by_one = np.isin(
        queued["source"],
        np.concatenate(
            [
                queued["source"][groups.starts[mixed]],
                queued["source"][fees.over],
                queued["source"][charges.rows[charges.short]],
            ]
        ),
    )
    if one_by_one.any():
        rows = np.flatnonzero(one_by_one)
        part = queued.take(rows)
        within = [offer for offer, selected in zip(offers, one_by_one[groups.starts].tolist(), strict=True) if selected]
        senders = np.unique(part["sender"][part["kind"] == Kind.REQUEST])
        payers = state["accounts"].take(find_positions(state["accounts"]["program"], senders))
        balances = dict(zip(senders.tolist(), join_words(payers, "balance"), strict=True))
        able, costs = ~refused[rows], fees.of_channels(within)
        of_part = assign_channels(part, group_rows(part["source"], part["destination"]), within, able, costs, balances)
        row_of[rows], overflowing, unfunded = of_part[0], rows[of_part[1]], rows[of_part[2]]
        fees = _Fees(channels, row_of, of_call, context)
        charges = _Charges.of(state["accounts"], queued, fees.total)
    state, placed = charges.burned(state), row_of >= 0
    reasons = np.where(is_final & ~placed, _REASONS.index(NO_OPEN_CHANNEL), 0)
    reasons[refused & of_call] = _REASONS.index(NOT_ALLOWED)
    reasons[overflowing] = _REASONS.index(FEES_OVERFLOW)
    reasons[unfunded] = _REASONS.index(NO_FUNDS)
    state, failed_part = _refund_unrecorded(state, queued, placed, fees, money)
    reasons[of_call & (failed_part == 0)] = _REASONS.index(NOT_NOTED)
    reasons[of_call & (failed_part > 0)] = _REASONS.index(FEES_OVERFLOW)
    placed &= failed_part < 0
    # Messages behind a refused one move up, except in groups with different fees.
    may = ~mixed
    if not placed[row_of >= 0].all():
        after = row_of.copy()
        for start, count in zip(groups.starts[may].tolist(), groups.counts[may].tolist(), strict=True):
            group = slice(start, start + count)
            rows_left = row_of[group][row_of[group] >= 0]
            moved = np.flatnonzero(placed[group]) + start
            after[moved] = rows_left[: len(moved)]
        row_of = after
    sent = queued.with_columns(row=row_of, src_fee=fees.src, dst_fee=fees.dst).filter(placed)
    state, outbound = _fill_outbox(state, sent, money, context)
    # The plans of other lakes' chains are unknown, so an answer to them waits.
    returned = unreachable & ~of_call & ~np.isin(queued["destination"], context.network.external)
    waits = ~placed & (reasons == 0) & ~returned
    failed = reasons > 0
    return state, outbound, queued.filter(waits), queued.filter(returned), (queued.filter(failed), reasons[failed])


def _capacities(channels: Frame, rows: Rows, most: int) -> npt.NDArray[np.int64]:
    """Return the capacity of each channel (3.2 step 3).

    The last nonce is reserved for the close request.
    """
    full = channels["max_outgoing"][rows].astype(np.int64) - channels["count"][rows].astype(np.int64)
    sent = np.minimum(channels["next_outbox"][rows], np.uint64(most - 1))
    nonces: npt.NDArray[np.int64] = np.minimum(np.uint64(most - 1) - sent, np.uint64(2**62)).astype(np.int64)
    room: npt.NDArray[np.int64] = np.minimum(full, nonces)
    return room


class _Fees:
    """Fees of queued messages (3.3 step 4); only calls with a channel have any.

    ``src``, ``dst`` and ``total`` are uint64; ``over`` marks calls above the maximum, with fee 0.
    """

    def __init__(self, channels: Frame, row_of: Rows, of_call: npt.NDArray[np.bool_], context: Context) -> None:
        self._channels, self._context = channels, context
        calls = np.flatnonzero((row_of >= 0) & of_call)
        self.src, self.dst = (np.zeros(len(row_of), dtype=np.uint64) for _ in range(2))
        self.over = np.zeros(len(row_of), dtype=bool)
        self.src[calls], self.dst[calls], self.over[calls] = context.fees.of_requests(channels, row_of[calls])
        self.total = self.src + self.dst

    def differ(self, row_of: Rows, groups: Groups) -> npt.NDArray[np.bool_]:
        """Return a mask of groups with different fees among their channels."""
        found = np.zeros(len(groups), dtype=bool)
        with_channel = np.flatnonzero(row_of >= 0)
        if len(with_channel) == 0:
            return found
        group = groups.spread(np.arange(len(groups)))[with_channel]
        before = np.maximum(np.arange(len(with_channel)) - 1, 0)
        model, relay = (self._channels[name][row_of[with_channel]] for name in ("fee_model", "relay_fee"))
        other = (model != model[before]) | (relay != relay[before])
        found[group[other & (group == group[before])]] = True
        return found

    def of_channels(self, offers: Sequence[Sequence[tuple[int, int]]]) -> dict[int, int | None]:
        """Return the fee of a call on each offered channel by row, or None above the maximum."""
        rows = np.array([row for offer in offers for row, _ in offer], dtype=np.int64)
        src, dst, over = self._context.fees.of_requests(self._channels, rows)
        fees = [None if much else fee for fee, much in zip((src + dst).tolist(), over.tolist(), strict=True)]
        return dict(zip(rows.tolist(), fees, strict=True))


@dataclass(frozen=True)
class _Charges:
    """Balances of senders after payment of all fees (3.3 step 4).

    Per paying sender: ``rows`` its first message, ``at`` its account, ``left`` its balance after.
    """

    rows: Rows
    at: Rows
    left: list[int]

    @classmethod
    def of(cls, accounts: Frame, queued: Frame, fees: U64) -> _Charges:
        rows = np.flatnonzero(fees)
        senders, first, sender_of = np.unique(queued["sender"][rows], return_index=True, return_inverse=True)
        at = np.searchsorted(accounts["program"], senders)
        totals = pair_sums(sender_of.astype(np.uint32), np.zeros(len(rows), dtype=np.uint32), fees[rows])
        balances = join_words(accounts.take(at), "balance")
        return cls(rows[first], at, [has - total for has, (*_, total) in zip(balances, totals, strict=True)])

    @property
    def short(self) -> Rows:
        return np.array([position for position, balance in enumerate(self.left) if balance < 1], dtype=np.int64)

    def burned(self, state: State) -> State:
        """Return the state with the fees deducted from the senders' accounts."""
        if len(self.rows) == 0:
            return state
        accounts = state["accounts"]
        high, low = accounts["balance_high"].copy(), accounts["balance_low"].copy()
        high[self.at], low[self.at] = split_words(self.left)
        after = accounts.with_columns(balance_high=high, balance_low=low).select(ACCOUNTS_SCHEMA.names)
        return state.with_tables(accounts=after)


def _refund_unrecorded(
    state: State, queued: Frame, placed: npt.NDArray[np.bool_], fees: _Fees, money: ChainSums
) -> tuple[State, npt.NDArray[np.int64]]:
    """Refund calls that the books cannot record.

    Returns the state and the failing part of each ``placed`` message: 0 for the fee, 1 for the amount, -1 for none
    (3.3, 6; X-3).
    """
    zero = np.zeros(len(queued), dtype=np.uint64)
    amounts = tuple(np.where(placed, queued[name], np.uint64(0)) for name in ("amount_low", "amount_high"))
    parts = [(np.where(placed, fees.dst, zero), zero), (amounts[0], amounts[1])]
    found = money.unnoted(TransferRecord.OUT, queued["source"], queued["destination"], parts, whole=True)
    rows = np.flatnonzero((found >= 0) & (queued["kind"] == Kind.REQUEST))
    if len(rows):
        accounts = state["accounts"]
        at = find_positions(accounts["program"], queued["sender"][rows])
        after = credit_accounts(accounts, at, np.zeros(len(rows), dtype=np.uint64), fees.total[rows])
        state = state.with_tables(accounts=after)
    return state, found


def _fill_outbox(state: State, sent: Frame, money: ChainSums, context: Context) -> tuple[State, Frame]:
    """Put requests into the outbox (``new_outbox_message``).

    Returns the state and the outbound messages.
    """
    if len(sent) == 0:
        return state, empty_frame(OUTBOUND_SCHEMA)
    channels = state["channels"]
    order = np.argsort(sent["row"], kind="stable")
    sent = sent.take(order)
    groups = group_rows(sent["row"])
    rows = sent["row"][groups.starts]
    index = groups.spread(channels["next_outbox"][rows]) + groups.ranks().astype(np.uint64)
    added = groups.counts.astype(np.uint64)
    following, counts = channels["next_outbox"].copy(), channels["count"].copy()
    following[rows] += added
    counts[rows] += added
    of_call = sent["kind"] == Kind.REQUEST
    row = sent["row"]
    lanes = {
        "source": channels["chain"][row],
        "destination": channels["foreign"][row],
        "substream": substream(channels["channel"][row], 0),
        "index": index,
    }
    transfer = is_transfer(sent)
    endpoint = np.where(transfer, np.uint64(TRANSPORTER_ENDPOINT), np.uint64(PROGRAMS_ENDPOINT))
    payload = encode_contents(sent)
    if transfer.any():
        transfers = sent.with_columns(**lanes).filter(transfer)
        payload = pa.compute.replace_with_mask(payload, pa.array(transfer), encode_transfers(transfers))
    outbox = blank_rows(
        OUTBOX_SCHEMA,
        len(sent),
        **lanes,
        sent=context.number,
        asked=RequestKind.ENDPOINT,
        src_endpoint=endpoint,
        dst_endpoint=endpoint,
        payload=payload.cast(pa.binary()),
        next_response=channels["next_response"][row],
        sender=np.where(of_call, sent["sender"], np.uint64(NOBODY)),
        **{name: sent[name] for name in ("src_fee", "dst_fee", "receiver", "callback", "amount_high", "amount_low")},
    )
    chain, away = outbox["source"], Purse(ValueHolder.ABROAD, outbox["destination"])
    payer = Purse(ValueHolder.ACCOUNT, sent["sender"])
    money.move(ValueReason.FEE_HELD, chain, payer, OUTBOX_FEES, outbox["src_fee"], message=outbox)
    money.move(ValueReason.FEE_BURNED, chain, payer, away, outbox["dst_fee"], message=outbox)
    money.move(ValueReason.SENT, chain, MESSAGES, away, outbox["amount_low"], outbox["amount_high"], outbox)
    state = state.with_tables(
        outbox=LaneTable.of(state["outbox"]).with_rows(outbox),
        channels=channels.with_columns(next_outbox=following, count=counts).select(CHANNELS_SCHEMA.names),
    )
    return state, _outbound(sent.with_columns(**lanes, queue_index=index), context)


def _outbound(rows: Frame, context: Context) -> Frame:
    tick = np.full(len(rows), context.tick, dtype=np.uint64)
    return rows.with_columns(sent_tick=tick).select(OUTBOUND_SCHEMA.names)
