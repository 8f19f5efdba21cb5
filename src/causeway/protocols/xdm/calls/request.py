"""Which channel each message of a block takes where some of their senders cannot pay (XDM reference 3.3): each call is
made or refused in its turn, and what one that is refused does not take, the next may.

The turn of a message comes when those before it to the same chain, and those before it of the same sender, had theirs.

What programs send: requests into channels, messages of their own chain (XDM reference 3.2, 3.3).

Outcomes for a program's call: into the outbox of the newest open channel with room; kept until there is room, where
channels are full or not open yet; into the local lane; refused, and then its program gets a reject in the next block.
What no channel is left for is given up: a late answer, whose program has back what it gave; an open call, whose program
gets a reject.
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
    """Return the row of the channel that each message takes, -1 for none, and which calls would take one and cost too
    much, or cannot be paid.

    Args:
        queued: messages by source and destination, of each in their order.
        groups: those of one source and destination.
        offers: of each group the channels, in the order in which they are taken, and how many messages each takes.
        able: messages that may take a channel at all.
        fees: what a call costs its sender, who stays alive (3.3 step 4), on each channel; None where it is too much.
        balances: of senders.
    """
    group = groups.spread(np.arange(len(groups))).tolist()
    left = [[[channel, room] for channel, room in offer if room > 0][::-1] for offer in offers]
    has = dict(balances)
    row_of, costly, poor = np.full(len(queued), -1, dtype=np.int64), [], []
    senders, is_call = queued["sender"].tolist(), (queued["kind"] == Kind.REQUEST).tolist()
    for row in _turns(queued, groups):
        places = left[group[row]]
        if not places or not able[row]:
            continue
        fee = fees[places[-1][0]] if is_call[row] else 0
        if fee is None:
            costly.append(row)
            continue
        if fee:
            if has[senders[row]] - fee < 1:
                poor.append(row)
                continue
            has[senders[row]] -= fee
        row_of[row] = places[-1][0]
        places[-1][1] -= 1
        if not places[-1][1]:
            places.pop()
    return row_of, np.array(costly, dtype=np.int64), np.array(poor, dtype=np.int64)


def _turns(queued: Frame, groups: Groups) -> list[int]:
    """Return the rows in an order in which each comes behind those of its group and of its sender that are before it.

    A program's calls are numbered in their order (``callback``); its answers cost nothing, and wait for none.
    """
    count = len(queued)
    before = np.arange(-1, count - 1)
    before[groups.starts] = -1
    calls = np.flatnonzero(queued["kind"] == Kind.REQUEST)
    calls = calls[stable_order(queued["sender"][calls], queued["callback"][calls])]
    earlier = np.full(count, -1, dtype=np.int64)
    same = queued["sender"][calls][1:] == queued["sender"][calls][:-1]
    earlier[calls[1:][same]] = calls[:-1][same]
    waits = list(zip(before.tolist(), earlier.tolist(), strict=True))
    found, done = list[int](), [False] * count
    for first in range(count):
        stack = [first]
        while stack:
            row = stack[-1]
            open_ones = [] if done[row] else [one for one in waits[row] if one >= 0 and not done[one]]
            if open_ones:
                stack += open_ones
                continue
            stack.pop()
            if not done[row]:
                done[row] = True
                found.append(row)
    return found


NO_OPEN_CHANNEL = "NoOpenChannel"
NO_FUNDS = "FundsUnavailable"
NO_DESTINATION = "InvalidMessageDestination"
FEES_OVERFLOW = "BalanceOverflow"
NO_HANDLER = "NoMessageHandler"
TOO_LARGE = "InvalidMessagePayload"
NOT_ALLOWED = "ChainNotAllowed"
NOT_NOTED = "FailedToNoteTransferOut"
"""Why a call of a program is refused."""

_REASONS = ["", NO_OPEN_CHANNEL, NO_FUNDS, NO_DESTINATION, FEES_OVERFLOW, TOO_LARGE, NOT_ALLOWED]
_REASONS += [NO_HANDLER, NOT_NOTED]
_REASONS += [error.name for error in REFUSALS]


def send_messages(
    state: State, produced: Frame, shown: Frame, money: ChainSums, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state after programs' messages, in the order of production, and what is outbound.

    ``produced``: requests, and answers that are none of this block's responses; ``shown``: the channels
    (``CHANNELS_SCHEMA``) that others showed at the height before.
    """
    network = context.network
    waiting = state["waiting"]
    source = network.host_of(produced["sender"]).view(np.uint32)
    host = network.host_of(produced["receiver"])
    nowhere = (host == NO_HOST) & (produced["kind"] == Kind.REQUEST)
    destination = np.where(host == NO_HOST, source.view(np.int32), host).view(np.uint32)
    local = source == destination
    rows = produced.select(MESSAGE_COLUMNS).with_columns(source=source, destination=destination)
    transfer = is_transfer(rows)
    unfit = transfer_refusals(rows, transfer, state["accounts"], context.options.minimum_transfer)
    # A transfer to the chain itself is none.
    nowhere = (nowhere | (transfer & local)) & (unfit < 0)
    # Nothing is installed under the number of some programs of the chain.
    missing = local & ~nowhere & (unfit < 0) & (produced["kind"] == Kind.REQUEST)
    missing &= find_positions(state["accounts"]["program"], produced["receiver"]) < 0
    large = ~local & (produced["kind"] == Kind.REQUEST) & ~is_within_limit(produced) & (unfit < 0)
    away = rows.filter(~local & ~large & (unfit < 0))
    away = truncate_answers(away, REJECTED)
    queued = concat([waiting.select(away.names), away])
    before = len(waiting)
    openings = Openings(state, shown, context)
    state, sent, kept, back, refused = _into_channels(state, queued, openings, money, context)
    # The state in which programs have back what they gave with late answers (`MESSAGE_COLUMNS`, with the chains)
    # that no channel will take; each leaves a notice.
    if len(back):
        accounts, chain, programs = state["accounts"], back["source"], back["sender"]
        high, low = back["amount_high"], back["amount_low"]
        after = credit_accounts(accounts, find_positions(accounts["program"], programs), high, low)
        money.move(ValueReason.CLAIMED, chain, MESSAGES, Purse(ValueHolder.ACCOUNT, programs), low, high)
        columns = (back[name].tolist() for name in ("source", "destination", "sender"))
        notices = [
            ChainEvent(one, foreign, NO_OPEN_CHANNEL, by=program, amount=min(amount, WORD - 1), refused=True)
            for one, foreign, program, amount in zip(*columns, join_words(back, "amount"), strict=True)
        ]
        log_chain_events(notices, len(context.network.names), log)
        state = state.with_tables(accounts=after)
    if len(kept) or before:
        groups = group_rows(kept["source"], kept["destination"])
        kept = kept.with_columns(index=groups.ranks().astype(np.uint64)).select(WAITING_SCHEMA.names)
        state = state.with_tables(waiting=kept)
    failed, reasons = refused
    lost = [(nowhere, NO_DESTINATION), (missing, NO_HANDLER), (large, TOO_LARGE)]
    for mask, reason in [*lost, *((unfit == error, error.name) for error in REFUSALS)]:
        failed = concat([failed, rows.filter(mask).select(failed.names)])
        reasons = np.concatenate([reasons, np.full(int(mask.sum()), _REASONS.index(reason))])
    rejects = _rejects(failed, reasons, Event.SENT | Event.REJECTED, log)
    # The state without the open calls to which no answer can come any more, and these as requests.
    pairs = [pair for pair in pairs_calling(state["open_calls"], context) if openings.cut_off(*pair)]
    # The state without the calls that wait for answers between `pairs` of chains (the caller's first), and these
    # calls.
    calls = state["open_calls"]
    found = [open_calls_to(calls, chain, foreign, context) for chain, foreign in pairs]
    gone = np.concatenate([np.empty(0, dtype=np.int64), *found])
    if len(gone) == 0:
        calls = calls.slice(0, 0)
    else:
        keep = np.ones(len(calls), dtype=bool)
        keep[gone] = False
        state, calls = state.with_tables(open_calls=calls.filter(keep)), calls.take(gone)
    named = {name: calls[name] for name in ("sender", "receiver", "callback")}
    ends = {"source": calls["chain"], "destination": context.network.host_of(calls["receiver"]).view(np.uint32)}
    state, given_up = (
        state,
        blank_messages(len(calls), kind=repeat_value(np.uint8(Kind.REQUEST), len(calls)), **named, **ends),
    )
    no_way = np.full(len(given_up), _REASONS.index(NO_OPEN_CHANNEL))
    rejects = concat([rejects.select(rows.names), _rejects(given_up, no_way, Event.REJECTED, log).select(rows.names)])
    inside = concat([rows.filter(local & ~nowhere & ~missing & (unfit < 0)), rejects])
    # The state with messages in the local lanes, and what is outbound.
    rows = inside
    of_program = np.arange(len(inside)) < len(inside) - len(rejects)
    if len(rows) == 0:
        own = _outbound(rows, context)
    else:
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
        state, own = state.replace_local(queues), _outbound(rows, context)
    return state, concat([sent.select(OUTBOUND_SCHEMA.names), own.select(OUTBOUND_SCHEMA.names)])


def _rejects(failed: Frame, reasons: npt.NDArray[np.int64], events: Event, log: EventLog) -> Frame:
    """Return the answers that programs get for calls that were refused or given up; each leaves ``events``."""
    if len(failed) == 0:
        return failed
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


def _into_channels(
    state: State, queued: Frame, openings: Openings, money: ChainSums, context: Context
) -> tuple[State, Frame, Frame, Frame, tuple[Frame, npt.NDArray[np.int64]]]:
    """Return the state with requests in the outbox, what is outbound of them, what is kept for later, the answers that
    go back, and the calls that are refused with why."""
    none = (queued.slice(0, 0), np.empty(0, dtype=np.int64))
    if len(queued) == 0:
        return state, _outbound(queued, context), queued, queued, none
    order = stable_order(queued["source"], queued["destination"])
    queued = queued.take(order)
    groups = group_rows(queued["source"], queued["destination"])
    channels, options = state["channels"], context.options
    row_of = np.full(len(queued), -1, dtype=np.int64)
    no_way = np.zeros(len(queued), dtype=bool)
    offers = list[list[tuple[int, int]]]()
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        chain, foreign = int(queued["source"][start]), int(queued["destination"][start])
        is_open = openings.open(chain, foreign)
        if len(is_open) == 0:
            no_way[start : start + count] = not openings.can_be_opened(chain, foreign)
        room = np.clip(_room(channels, is_open, options.max_messages), 0, count)
        offers.append(list(zip(is_open.tolist(), room.tolist(), strict=True)))
        place = np.repeat(is_open, room)[:count]
        row_of[start : start + len(place)] = place
    refused = np.zeros(len(queued), dtype=bool)
    if options.allowlist == "on":
        refused = ~is_allowed(state["allowlist"], queued["source"], queued["destination"])
    # What waits no longer for any channel, because none is left: a call is refused, an answer goes back.
    of_call = queued["kind"] == Kind.REQUEST
    hopeless = of_call & (no_way | (options.calls_wait == "off"))
    row_of[refused] = -1
    fees = _Fees(channels, row_of, of_call, context)
    mixed, costly, poor = fees.differ(row_of, groups), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    charges = _Charges.of(state["accounts"], queued, fees.total)
    # Chain by chain, or what one chain sends would depend on which others share its task.
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
        within = [offer for offer, mine in zip(offers, one_by_one[groups.starts].tolist(), strict=True) if mine]
        has = _balances(state["accounts"], part["sender"][part["kind"] == Kind.REQUEST])
        able, costs = ~refused[rows], fees.of_channels(within)
        of_part = assign_channels(part, group_rows(part["source"], part["destination"]), within, able, costs, has)
        row_of[rows], costly, poor = of_part[0], rows[of_part[1]], rows[of_part[2]]
        fees = _Fees(channels, row_of, of_call, context)
        charges = _Charges.of(state["accounts"], queued, fees.total)
    state, placed = charges.burned(state), row_of >= 0
    reasons = np.where(hopeless & ~placed, _REASONS.index(NO_OPEN_CHANNEL), 0)
    reasons[refused & of_call] = _REASONS.index(NOT_ALLOWED)
    reasons[costly] = _REASONS.index(FEES_OVERFLOW)
    reasons[poor] = _REASONS.index(NO_FUNDS)
    state, unnoted = _unnoted(state, queued, placed, fees, money)
    reasons[of_call & (unnoted == 0)] = _REASONS.index(NOT_NOTED)
    reasons[of_call & (unnoted > 0)] = _REASONS.index(FEES_OVERFLOW)
    placed &= unnoted < 0
    # Those behind one that could not be noted move up, unless they would pay another fee there.
    # The channel of each message when, in groups that `may`, those that are not placed leave no gaps in the order
    # of channels.
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
    state, outbound = _stored(state, sent, money, context)
    # What a chain of another lake plans nobody knows here: an answer to it waits.
    back = no_way & ~of_call & ~np.isin(queued["destination"], context.network.external)
    kept = ~placed & (reasons == 0) & ~back
    failed = reasons > 0
    return state, outbound, queued.filter(kept), queued.filter(back), (queued.filter(failed), reasons[failed])


def _room(channels: Frame, rows: Rows, most: int) -> npt.NDArray[np.int64]:
    """Return how many messages each channel takes (3.2 step 3): its last nonce is that of its close request."""
    full = channels["max_outgoing"][rows].astype(np.int64) - channels["count"][rows].astype(np.int64)
    sent = np.minimum(channels["next_outbox"][rows], np.uint64(most - 1))
    nonces: npt.NDArray[np.int64] = np.minimum(np.uint64(most - 1) - sent, np.uint64(2**62)).astype(np.int64)
    room: npt.NDArray[np.int64] = np.minimum(full, nonces)
    return room


class _Fees:
    """What queued messages cost their senders (3.3 step 4): nothing unless they are calls with a channel.

    ``src``, ``dst``, ``total``: 64 bits each; ``over``: calls that cost too much, whose fees are 0.
    """

    def __init__(self, channels: Frame, row_of: Rows, of_call: npt.NDArray[np.bool_], context: Context) -> None:
        self._channels, self._context = channels, context
        calls = np.flatnonzero((row_of >= 0) & of_call)
        self.src, self.dst = (np.zeros(len(row_of), dtype=np.uint64) for _ in range(2))
        self.over = np.zeros(len(row_of), dtype=bool)
        self.src[calls], self.dst[calls], self.over[calls] = context.fees.of_requests(channels, row_of[calls])
        self.total = self.src + self.dst

    def differ(self, row_of: Rows, groups: Groups) -> npt.NDArray[np.bool_]:
        """Return between which two chains, by group, messages were given channels with different fees."""
        found = np.zeros(len(groups), dtype=bool)
        some = np.flatnonzero(row_of >= 0)
        if len(some) == 0:
            return found
        group = groups.spread(np.arange(len(groups)))[some]
        before = np.maximum(np.arange(len(some)) - 1, 0)
        model, relay = (self._channels[name][row_of[some]] for name in ("fee_model", "relay_fee"))
        other = (model != model[before]) | (relay != relay[before])
        found[group[other & (group == group[before])]] = True
        return found

    def of_channels(self, offers: Sequence[Sequence[tuple[int, int]]]) -> dict[int, int | None]:
        """Return the fee of a call on each offered channel, by its row; None where it is too much."""
        rows = np.array([row for offer in offers for row, _ in offer], dtype=np.int64)
        src, dst, over = self._context.fees.of_requests(self._channels, rows)
        fees = [None if much else fee for fee, much in zip((src + dst).tolist(), over.tolist(), strict=True)]
        return dict(zip(rows.tolist(), fees, strict=True))


@dataclass(frozen=True)
class _Charges:
    """Balances of the senders of queued messages after all of their fees are paid (3.3 step 4).

    By sender with fees: ``rows``, its first message; ``at``, its account; ``left``, its balance after; ``short``, which
    cannot pay and stay alive.
    """

    rows: Rows
    at: Rows
    left: list[int]

    @classmethod
    def of(cls, accounts: Frame, queued: Frame, fees: U64) -> _Charges:
        rows = np.flatnonzero(fees)
        senders, first, which = np.unique(queued["sender"][rows], return_index=True, return_inverse=True)
        at = np.searchsorted(accounts["program"], senders)
        totals = pair_sums(which.astype(np.uint32), np.zeros(len(rows), dtype=np.uint32), fees[rows])
        balances = join_words(accounts.take(at), "balance")
        return cls(rows[first], at, [has - total for has, (*_, total) in zip(balances, totals, strict=True)])

    @property
    def short(self) -> Rows:
        return np.array([place for place, balance in enumerate(self.left) if balance < 1], dtype=np.int64)

    def burned(self, state: State) -> State:
        """Return the state with the fees taken from the accounts of senders, who can pay them."""
        if len(self.rows) == 0:
            return state
        accounts = state["accounts"]
        high, low = accounts["balance_high"].copy(), accounts["balance_low"].copy()
        high[self.at], low[self.at] = split_words(self.left)
        after = accounts.with_columns(balance_high=high, balance_low=low).select(ACCOUNTS_SCHEMA.names)
        return state.with_tables(accounts=after)


def _unnoted(
    state: State, queued: Frame, placed: npt.NDArray[np.bool_], fees: _Fees, money: ChainSums
) -> tuple[State, npt.NDArray[np.int64]]:
    """Return the state in which who could not send has the fees back, and what cannot be noted of each message that is
    ``placed`` (3.3, 6; X-3): 0 its fee, 1 its amount, -1 nothing."""
    zero = np.zeros(len(queued), dtype=np.uint64)
    amounts = tuple(np.where(placed, queued[name], np.uint64(0)) for name in ("amount_low", "amount_high"))
    parts = [(np.where(placed, fees.dst, zero), zero), (amounts[0], amounts[1])]
    found = money.unnoted(TransferRecord.OUT, queued["source"], queued["destination"], parts, whole=True)
    back = (found >= 0) & (queued["kind"] == Kind.REQUEST)
    return _uncharged(state, queued, back, fees.total), found


def _balances(accounts: Frame, programs: U64) -> dict[int, int]:
    """Return what programs have."""
    senders = np.unique(programs)
    rows = accounts.take(find_positions(accounts["program"], senders))
    return dict(zip(senders.tolist(), join_words(rows, "balance"), strict=True))


def _uncharged(state: State, queued: Frame, back: npt.NDArray[np.bool_], fees: U64) -> State:
    """Return the state in which senders have the fees of some calls back."""
    rows = np.flatnonzero(back)
    if len(rows) == 0:
        return state
    accounts = state["accounts"]
    at = find_positions(accounts["program"], queued["sender"][rows])
    after = credit_accounts(accounts, at, np.zeros(len(rows), dtype=np.uint64), fees[rows])
    return state.with_tables(accounts=after)


def _stored(state: State, sent: Frame, money: ChainSums, context: Context) -> tuple[State, Frame]:
    """Return the state with requests in the outbox (``new_outbox_message``), and what is outbound."""
    if len(sent) == 0:
        return state, _outbound(sent, context)
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
    zero = np.zeros(len(sent), dtype=np.uint64)
    transfer = is_transfer(sent)
    endpoint = np.where(transfer, np.uint64(TRANSPORTER_ENDPOINT), np.uint64(PROGRAMS_ENDPOINT))
    payload = encode_contents(sent)
    if transfer.any():
        asked = sent.with_columns(**lanes).filter(transfer)
        payload = pa.compute.replace_with_mask(payload, pa.array(transfer), encode_transfers(asked))
    outbox = Frame(
        {
            **lanes,
            "sent": np.full(len(sent), context.number, dtype=np.uint64),
            "asked": np.full(len(sent), RequestKind.ENDPOINT, dtype=np.uint8),
            "max_outgoing": zero.astype(np.uint32),
            "src_endpoint": endpoint,
            "dst_endpoint": endpoint,
            "payload": payload.cast(pa.binary()),
            "src_fee": sent["src_fee"],
            "dst_fee": sent["dst_fee"],
            "next_response": channels["next_response"][row],
            "sender": np.where(of_call, sent["sender"], np.uint64(NOBODY)),
            "receiver": sent["receiver"],
            "callback": sent["callback"],
            "amount_high": sent["amount_high"],
            "amount_low": sent["amount_low"],
        },
        len(sent),
    )
    chain, away = outbox["source"], Purse(ValueHolder.ABROAD, outbox["destination"])
    payer = Purse(ValueHolder.ACCOUNT, sent["sender"])
    money.move(ValueReason.FEE_HELD, chain, payer, OUTBOX_FEES, outbox["src_fee"], message=outbox)
    money.move(ValueReason.FEE_BURNED, chain, payer, away, outbox["dst_fee"], message=outbox)
    money.move(ValueReason.SENT, chain, MESSAGES, away, outbox["amount_low"], outbox["amount_high"], outbox)
    state = state.with_tables(
        outbox=LaneTable.of(state["outbox"]).with_rows(outbox.select(OUTBOX_SCHEMA.names)),
        channels=channels.with_columns(next_outbox=following, count=counts).select(CHANNELS_SCHEMA.names),
    )
    return state, _outbound(sent.with_columns(**lanes, queue_index=index), context)


def _outbound(rows: Frame, context: Context) -> Frame:
    if "index" not in rows:
        return empty_frame(OUTBOUND_SCHEMA)
    tick = np.full(len(rows), context.tick, dtype=np.uint64)
    return rows.with_columns(sent_tick=tick).select(OUTBOUND_SCHEMA.names)
