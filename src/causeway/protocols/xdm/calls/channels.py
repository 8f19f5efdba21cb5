"""Channels: initiation and closing by root or by programs.

The initiator leaves a deposit until the close. It gets the whole deposit back from an open channel, and the deposit
less the protocol's share from a channel that never opened.

Reference: XDM, sections 3.1 and 3.7, X-2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import find_positions, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import Kind, ValueHolder, ValueReason
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.execution import ACCOUNTS_SCHEMA
from causeway.protocols.shared.messages import MESSAGE_COLUMNS, OUTBOUND_SCHEMA, blank_messages
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import CallFailed, MessengerError
from causeway.protocols.xdm.events import ChainEvent, log_chain_events
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.planned_calls import ChannelPlan, due_calls
from causeway.protocols.xdm.state import (
    MAX_CHANNEL,
    NOBODY,
    ROOT_ACCOUNT,
    ChannelState,
    RequestKind,
    State,
    channel_rows,
)
from causeway.protocols.xdm.tables import CHANNEL, CHANNELS_SCHEMA, NEXT_CHANNELS_SCHEMA, OUTBOX_SCHEMA
from causeway.protocols.xdm.value.balances import BURNED, ChainSums, Purse, join_words, split_words

INITIATED, OPENED, CLOSED = "ChannelInitiated", "ChannelOpen", "ChannelClosed"
"""Names of channel events."""

_METHODS = {RequestKind.CHANNEL_OPEN: "ChannelOpen", RequestKind.CHANNEL_CLOSE: "ChannelClose"}

Key = tuple[int, int, int]
"""Chain, peer chain, channel number."""

Request = tuple[int, int, int, int]
"""Lane and index of a request."""


@dataclass
class _Channel:
    """A row of ``CHANNELS_SCHEMA`` under change."""

    state: int
    next_inbox: int
    next_outbox: int
    next_response: int
    max_outgoing: int
    count: int
    has_owner: int
    owner: int
    reserve: int
    fee_model: int
    relay_fee: int


_FIELDS = tuple(_Channel.__dataclass_fields__)


def call_channels(state: State, money: ChainSums, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Execute the calls on channels planned for this block.

    A failed call changes nothing and logs the name of its error.

    Args:
        state: State before the calls.
        money: Sums of the chains, changed in place.
        context: Context of the block.
        log: Event log.

    Returns:
        The state after, and the outbound requests (``OUTBOUND_SCHEMA``).
    """
    calls = due_calls(context.planned.channels_by_tick, context.tick, context.chains.tolist(), context.again)
    if not calls:
        return state, empty_frame(OUTBOUND_SCHEMA)
    block = _Calls(state, money, context, calls)
    for call in calls:
        try:
            (block.initiate if call.initiate else block.close)(call)
        except CallFailed as error:
            number = 0 if call.initiate else call.channel
            block.notices.append(ChainEvent(call.chain, call.foreign, error.name, number, by=call.by, refused=True))
    log_chain_events(block.notices, len(context.network.names), log)
    return block.state_after(), block.outbound()


def close_exhausted_channels(state: State, money: ChainSums, context: Context, log: EventLog) -> tuple[State, Frame]:
    """Close open channels with one nonce left, as root would; the close request is the last.

    A channel with a full outbox closes after its next response (3.2 step 3).

    Returns:
        The state after, and the close requests (``OUTBOUND_SCHEMA``).
    """
    channels = state["channels"]
    exhausted = channels["next_outbox"] >= np.uint64(context.options.max_messages - 1)
    exhausted &= (channels["state"] == ChannelState.OPEN) & (channels["count"] < channels["max_outgoing"])
    if not exhausted.any():
        return state, empty_frame(OUTBOUND_SCHEMA)
    keys = zip(*(channels[name][exhausted].tolist() for name in CHANNEL), strict=True)
    calls = [ChannelPlan.close(context.tick, *key) for key in keys]
    block = _Calls(state, money, context, calls)
    for call in calls:
        block.close(call)
    log_chain_events(block.notices, len(context.network.names), log)
    return block.state_after(), block.outbound()


class _Calls:
    """The channels and accounts under change by the calls of a block."""

    def __init__(self, state: State, money: ChainSums, context: Context, calls: Iterable[ChannelPlan]) -> None:
        self._state, self._money, self._context = state, money, context
        calls = list(calls)
        keys = sorted({(call.chain, call.foreign, call.channel) for call in calls if not call.initiate})
        columns = np.array(keys, dtype=np.int64).reshape(-1, 3)
        channels = state["channels"]
        chain, foreign = (columns[:, column].astype(np.uint32) for column in (0, 1))
        rows = channel_rows(channels, chain, foreign, columns[:, 2].astype(np.uint64))
        self._channels: dict[Key, _Channel] = {
            key: _Channel(*(int(channels[name][row]) for name in _FIELDS))
            for key, row in zip(keys, rows.tolist(), strict=True)
            if row >= 0
        }
        following = state["next_channels"]
        pairs = zip(following["chain"].tolist(), following["foreign"].tolist(), strict=True)
        self._next = dict(zip(pairs, following["next_channel"].tolist(), strict=True))
        lists = state["allowlist"]
        self._allowed = set(zip(lists["chain"].tolist(), lists["foreign"].tolist(), strict=True))
        self._balances = AccountBalances(state["accounts"])
        self._requests: list[tuple[Key, int, RequestKind, int, int]] = []
        self.notices: list[ChainEvent] = []

    def initiate(self, call: ChannelPlan) -> None:
        """Execute ``initiate_channel`` (3.1).

        Raises:
            CallFailed: The call is refused.
        """
        options, money = self._context.options, self._money
        if (call.by is None) != (options.initiate_by == "root"):
            raise CallFailed("BadOrigin")
        reserve = options.channel_reserve_fee
        # The payer keeps a positive balance; a program of another chain has none here.
        if self._free(call.chain, call.by) < reserve:
            raise CallFailed(MessengerError.InsufficientBalance.name)
        if call.foreign == call.chain:
            raise CallFailed(MessengerError.InvalidChain.name)
        if call.max_outgoing < 1:
            raise CallFailed(MessengerError.InvalidMaxOutgoingMessages.name)
        if reserve == 0:
            raise CallFailed(MessengerError.InvalidChannelReserveFee.name)
        if options.allowlist == "on" and (call.chain, call.foreign) not in self._allowed:
            raise CallFailed(MessengerError.ChainNotAllowed.name)
        number = self._next.get((call.chain, call.foreign), 0)
        if number > MAX_CHANNEL - 1:
            raise CallFailed(MessengerError.Overflow.name)
        owner = ROOT_ACCOUNT if call.by is None else call.by
        request = call.chain, call.foreign, number << 1, 0
        self._balances.add(owner, -reserve)
        money.move_amount(
            ValueReason.DEPOSIT_HELD, call.chain, _account(owner), Purse(ValueHolder.DEPOSITS, owner), reserve, request
        )
        key = call.chain, call.foreign, number
        self._next[call.chain, call.foreign] = number + 1
        fees = call.fee_model, call.relay_fee
        self._channels[key] = _Channel(ChannelState.INITIATED, 0, 0, 0, call.max_outgoing, 0, 1, owner, reserve, *fees)
        self.notices.append(ChainEvent(call.chain, call.foreign, INITIATED, number, by=call.by, amount=reserve))
        self._request(key, RequestKind.CHANNEL_OPEN)

    def close(self, call: ChannelPlan) -> None:
        """Execute ``close_channel`` (3.7).

        Raises:
            CallFailed: The call is refused.
        """
        options = self._context.options
        key = call.chain, call.foreign, call.channel
        channel = self._channels.get(key)
        if call.by is not None:
            if options.close_by == "root":
                raise CallFailed("BadOrigin")
            if channel is None or not channel.has_owner or channel.owner != call.by:
                raise CallFailed(MessengerError.ChannelOwner.name)
        if channel is None:
            raise CallFailed(MessengerError.MissingChannel.name)
        if channel.state == ChannelState.CLOSED:
            raise CallFailed(MessengerError.InvalidChannelState.name)
        full = channel.count >= channel.max_outgoing
        if full and not (call.by is None and options.force_close == "on"):
            raise CallFailed(MessengerError.OutboxFull.name)
        if channel.next_outbox >= options.max_messages:
            raise CallFailed(MessengerError.Overflow.name)
        refund = 0
        if channel.has_owner:
            request = call.chain, call.foreign, call.channel << 1, channel.next_outbox
            owned = channel.owner, channel.reserve, channel.state
            refund = _release_deposit(*owned, call.chain, request, self._money, self._context)
            self._balances.add(channel.owner, refund)
        channel.state = ChannelState.CLOSED
        self.notices.append(
            ChainEvent(call.chain, call.foreign, CLOSED, call.channel, channel.next_outbox, call.by, amount=refund)
        )
        if not full:
            self._request(key, RequestKind.CHANNEL_CLOSE)

    def _free(self, chain: int, program: int | None) -> int:
        if program is None:
            return self._money.of(chain, "root") - 1
        host = self._context.network.host_of(np.array([program], dtype=np.uint64))[0]
        return self._balances[program] - 1 if int(host) == chain else -1

    def _request(self, key: Key, kind: RequestKind) -> None:
        """Add a request to a channel with capacity: ``new_outbox_message`` (3.2)."""
        channel = self._channels[key]
        self._requests.append((key, channel.next_outbox, kind, channel.max_outgoing, channel.next_response))
        channel.next_outbox += 1
        channel.count += 1

    def state_after(self) -> State:
        """Return the state after the calls."""
        tables = {"channels": self._channels_after(), "accounts": self._balances.frame()}
        pairs = sorted(self._next)
        columns = np.array(pairs, dtype=np.uint32).reshape(-1, 2)
        following = {"chain": columns[:, 0], "foreign": columns[:, 1]}
        numbers = np.array([self._next[pair] for pair in pairs], dtype=np.uint64)
        tables["next_channels"] = Frame({**following, "next_channel": numbers}, len(pairs)).select(
            NEXT_CHANNELS_SCHEMA.names
        )
        if self._requests:
            tables["outbox"] = LaneTable.of(self._state["outbox"]).with_rows(self._outbox())
        return self._state.with_tables(**tables)

    def _channels_after(self) -> Frame:
        before = self._state["channels"]
        keys = sorted(self._channels)
        if not keys:
            return before
        columns = {name: [key[position] for key in keys] for position, name in enumerate(CHANNEL)}
        columns |= {name: [getattr(self._channels[key], name) for key in keys] for name in _FIELDS}
        rows = Frame(
            {
                field.name: np.array(columns[field.name], dtype=field.type.to_pandas_dtype())
                for field in CHANNELS_SCHEMA
            },
            len(keys),
        )
        known = channel_rows(before, rows["chain"], rows["foreign"], rows["channel"])
        rest = np.ones(len(before), dtype=bool)
        rest[known[known >= 0]] = False
        joined_rows = concat([before.filter(rest), rows])
        return joined_rows.take(stable_order(*(joined_rows[name] for name in CHANNEL)))

    def _lanes(self) -> dict[str, npt.NDArray[np.uint64] | npt.NDArray[np.uint32]]:
        keys = np.array([key for key, *_ in self._requests], dtype=np.uint64).reshape(-1, 3)
        return {
            "source": keys[:, 0].astype(np.uint32),
            "destination": keys[:, 1].astype(np.uint32),
            "substream": keys[:, 2] << np.uint64(1),
            "index": np.array([index for _, index, *_ in self._requests], dtype=np.uint64),
        }

    def _outbox(self) -> Frame:
        _, _, kinds, most, following = zip(*self._requests, strict=True)
        return blank_rows(
            OUTBOX_SCHEMA,
            len(self._requests),
            **self._lanes(),
            sent=self._context.number,
            asked=np.array(kinds, dtype=np.uint8),
            max_outgoing=np.array(most, dtype=np.uint32),
            next_response=np.array(following, dtype=np.uint64),
            sender=NOBODY,
            receiver=NOBODY,
        )

    def outbound(self) -> Frame:
        """Return the requests of the block (``OUTBOUND_SCHEMA``)."""
        count = len(self._requests)
        if count == 0:
            return empty_frame(OUTBOUND_SCHEMA)
        lanes = self._lanes()
        method = pa.array([_METHODS[kind] for _, _, kind, *_ in self._requests], pa.string()).dictionary_encode()
        ends = {"sender": np.uint64(NOBODY), "receiver": np.uint64(NOBODY)}
        rows = blank_messages(count, kind=np.full(count, Kind.CONTROL, dtype=np.uint8), method=method, **ends)
        assert set(MESSAGE_COLUMNS) <= set(rows.names)
        tick = np.full(count, self._context.tick, dtype=np.uint64)
        return rows.with_columns(**lanes, queue_index=lanes["index"], sent_tick=tick).select(OUTBOUND_SCHEMA.names)


class AccountBalances:
    """Balances of accounts (``ACCOUNTS_SCHEMA``) as integers, for a few changes."""

    def __init__(self, accounts: Frame) -> None:
        self._accounts = accounts
        self._changed: dict[int, int] = {}

    def _row(self, program: int) -> int:
        return int(find_positions(self._accounts["program"], np.array([program], dtype=np.uint64))[0])

    def __getitem__(self, program: int) -> int:
        row = self._row(program)
        if row < 0:
            return 0
        if row in self._changed:
            return self._changed[row]
        return join_words(self._accounts.slice(row, row + 1), "balance")[0]

    def add(self, program: int, amount: int) -> None:
        """Change a program's balance; root's balance is a sum of its chain."""
        if amount and program != ROOT_ACCOUNT:
            self._changed[self._row(program)] = self[program] + amount

    def frame(self) -> Frame:
        """Return the accounts after the changes."""
        if not self._changed:
            return self._accounts
        rows = np.array(sorted(self._changed), dtype=np.int64)
        high, low = self._accounts["balance_high"].copy(), self._accounts["balance_low"].copy()
        high[rows], low[rows] = split_words(self._changed[row] for row in rows.tolist())
        return self._accounts.with_columns(balance_high=high, balance_low=low).select(ACCOUNTS_SCHEMA.names)


def _account(owner: int) -> Purse:
    """Return the purse of a channel's owner."""
    return Purse(ValueHolder.ROOT) if owner == ROOT_ACCOUNT else Purse(ValueHolder.ACCOUNT, owner)


def _release_deposit(
    owner: int, reserve: int, state: int, chain: int, request: Request, money: ChainSums, context: Context
) -> int:
    """Return a closed channel's deposit to its owner, except for the burnt part."""
    burnt = 0 if state == ChannelState.OPEN else ((reserve * context.options.reserve_portion_percent + 49) // 100)
    deposits = Purse(ValueHolder.DEPOSITS, owner)
    money.move_amount(ValueReason.DEPOSIT_RELEASED, chain, deposits, _account(owner), reserve - burnt, request)
    money.move_amount(ValueReason.DEPOSIT_BURNED, chain, deposits, BURNED, burnt, request)
    return reserve - burnt


def close_for_peer(
    state: State, closing: npt.NDArray[np.int64], states: npt.NDArray[np.int64], money: ChainSums, context: Context
) -> tuple[State, list[ChainEvent]]:
    """Close channels on request of their peers (3.7, 2 to 4).

    Args:
        state: State before the closing.
        closing: Rows of open or initiated channels.
        states: ``ChannelState`` of each at its request.
        money: Sums of the chains, changed in place.
        context: Context of the block.

    Returns:
        The state after, and an event a channel.
    """
    channels, balances, notices = state["channels"], AccountBalances(state["accounts"]), list[ChainEvent]()
    columns = (channels[name][closing].tolist() for name in (*CHANNEL, "next_inbox", "has_owner", "owner", "reserve"))
    for row in zip(states.tolist(), *columns, strict=True):
        state_before, chain, foreign, number, index, has_owner, owner, reserve = row
        refund = 0
        if has_owner:
            request = foreign, chain, number << 1, index - 1
            refund = _release_deposit(owner, reserve, state_before, chain, request, money, context)
            balances.add(owner, refund)
        notices.append(ChainEvent(chain, foreign, CLOSED, number, index - 1, amount=refund))
    after = channels["state"].copy()
    after[closing] = ChannelState.CLOSED
    closed = channels.with_columns(state=after).select(CHANNELS_SCHEMA.names)
    return state.with_tables(channels=closed, accounts=balances.frame()), notices
