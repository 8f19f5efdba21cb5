"""Channels: who may ask for what, and what a session opens and closes (ICMP reference X-6).

A channel is asked for by its sender, accepted by its recipient, and opens with the next session; each of them leaves a
deposit, and has it back when the channel closes. Every change of an account is a row of the value log.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat, repeated
from causeway.model.joins import lookup
from causeway.model.ledger import NO_CHAIN
from causeway.model.order import stable_order
from causeway.model.value import NO_INDEX, VALUE_SCHEMA, Asset, Holder, Why
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.channel_options import NOTICE, HrmpOptions
from causeway.protocols.icmp.hrmp.errors import CallError
from causeway.protocols.icmp.hrmp.membership import left, named, present
from causeway.protocols.icmp.hrmp.tables import CHANNELS_SCHEMA, PAIR, REQUESTS_SCHEMA
from causeway.protocols.icmp.hrmp.upward import Asked, Call, decode_call
from causeway.protocols.tabled_state import TabledState

Pair = tuple[int, int]


class Session(NamedTuple):
    """What a session's beginning leaves: the state, the contents of the channels that it closed (``CONTENTS_SCHEMA``),
    and what moved on accounts (``VALUE_SCHEMA``)."""

    state: TabledState
    dropped: Frame
    value: Frame


def new_session(state: TabledState, number: int) -> Session:
    """Open the channels that are accepted and close those that are to be closed, in the relay block ``number``; before
    that, parachains leave that were deregistered."""
    requests, channels, contents = state["requests"], state["channels"], state["contents"]
    closing = (channels["closing"] > 0) & (channels["closing"] + np.uint64(NOTICE) <= np.uint64(number))
    # The parachains that leave with the session that begins in the relay block `number`.
    paras = state["paras"]
    due = (paras["leaving"] > 0) & (paras["leaving"] + np.uint64(NOTICE) <= np.uint64(number))
    out = np.asarray(paras["para"][due])
    changed = left(state, out) if len(out) else {}
    withdrawn = named(requests, out)
    closing |= named(channels, out)
    accepted = (requests["confirmed"] == 1) & ~withdrawn
    gone = channels.filter(closing)
    dropped = contents.slice(0, 0)
    if accepted.any() or len(gone):
        opened = _opened(requests.filter(accepted))
        joined = concat([channels.filter(~closing), opened])
        changed["channels"] = joined.take(stable_order(*(joined[name] for name in PAIR)))
    if accepted.any() or withdrawn.any():
        changed["requests"] = requests.filter(~accepted & ~withdrawn)
    books = _Books(state["sovereign"])
    if len(gone):
        inside = lookup(gone, contents, PAIR) >= 0
        dropped = contents.filter(inside)
        changed["contents"] = contents.filter(~inside)
    for rows in (requests.filter(withdrawn), gone):
        deposits = zip(*(rows[name].tolist() for name in (*PAIR, "sender_deposit", "recipient_deposit")), strict=True)
        for sender, recipient, of_sender, of_recipient in deposits:
            books.release(sender, of_sender, (sender, recipient))
            books.release(recipient, of_recipient, (sender, recipient))
    if books.moved:
        changed["sovereign"] = books.frame()
    return Session(state.with_tables(**changed), dropped, books.log())


def _opened(requests: Frame) -> Frame:
    count = len(requests)
    return requests.with_columns(
        msg_count=np.zeros(count, dtype=np.uint32),
        total_size=np.zeros(count, dtype=np.uint32),
        mqc_head=np.zeros((count, 32), dtype=np.uint8),
        closing=np.zeros(count, dtype=np.uint64),
    ).select(CHANNELS_SCHEMA.names)


class Executed(NamedTuple):
    """What calls leave: the state, what is wrong with each of them (``CallError``), and what moved on accounts."""

    state: TabledState
    codes: npt.NDArray[np.int64]
    value: Frame


def execute_calls(state: TabledState, calls: Frame, number: int, options: HrmpOptions) -> Executed:
    """Execute calls (``CALLS_SCHEMA``), each in the state that those before it left; one that is refused changes
    nothing. ``number``: the relay block that has them."""
    origins = calls["source"].tolist()
    read = [decode_call(data, p) for data, p in zip(calls["data"].to_pylist(), origins, strict=True)]
    pairs = [(one.sender, one.recipient) for one in read if one is not None]
    asked, books = _Known(state, pairs), _Books(state["sovereign"])
    codes = np.full(len(calls), CallError.InvalidFormat, dtype=np.int64)
    for at, (one, origin) in enumerate(zip(read, origins, strict=True)):
        if one is not None:
            codes[at] = _execute(asked, books, origin, one, options)
    changed = asked.tables(state, number)
    if books.moved:
        changed["sovereign"] = books.frame()
    return Executed(state.with_tables(**changed), codes, books.log())


def _execute(asked: _Known, books: _Books, origin: int, one: Asked, options: HrmpOptions) -> CallError:
    """Execute one call, its checks in written order."""
    sender, recipient = pair = one.sender, one.recipient
    request, channel = asked.requests.get(pair), asked.channels.get(pair)
    accepted = request is not None and request.confirmed == 1
    if one.call == Call.OPEN:
        capacity, size = one.max_capacity, one.max_message_size
        error = _first(
            (recipient == origin, CallError.OpenHrmpChannelToSelf),
            (recipient not in asked.present, CallError.OpenHrmpChannelInvalidRecipient),
            (capacity == 0, CallError.OpenHrmpChannelZeroCapacity),
            (capacity > options.max_capacity, CallError.OpenHrmpChannelCapacityExceedsLimit),
            (size == 0, CallError.OpenHrmpChannelZeroMessageSize),
            (size > options.max_message_size, CallError.OpenHrmpChannelMessageSizeExceedsLimit),
            (request is not None, CallError.OpenHrmpChannelAlreadyRequested),
            (channel is not None, CallError.OpenHrmpChannelAlreadyExists),
            (asked.outbound[origin] >= options.max_outbound_channels, CallError.OpenHrmpChannelLimitExceeded),
            (books.free(origin) < options.sender_deposit, CallError.InsufficientBalance),
        )
        if error == CallError.OK:
            books.hold(origin, options.sender_deposit, pair)
            asked.outbound[origin] += 1
            asked.waiting += 1
            asked.requests[pair] = _Request(capacity, options.max_total_size, size, options.sender_deposit)
    elif one.call == Call.ACCEPT:
        error = _first(
            (request is None or recipient != origin, CallError.AcceptHrmpChannelDoesntExist),
            (accepted, CallError.AcceptHrmpChannelAlreadyConfirmed),
            (asked.inbound[origin] >= options.max_inbound_channels, CallError.AcceptHrmpChannelLimitExceeded),
            (books.free(origin) < options.recipient_deposit, CallError.InsufficientBalance),
        )
        if error == CallError.OK and request is not None:
            books.hold(origin, options.recipient_deposit, pair)
            asked.inbound[origin] += 1
            asked.requests[pair] = request._replace(confirmed=1, recipient_deposit=options.recipient_deposit)
    elif one.call == Call.CANCEL:
        error = _first(
            (asked.waiting > one.open_requests, CallError.WrongWitness),
            (origin not in pair, CallError.CancelHrmpOpenChannelUnauthorized),
            (request is None, CallError.OpenHrmpChannelDoesntExist),
            (accepted, CallError.OpenHrmpChannelAlreadyConfirmed),
        )
        if error == CallError.OK and request is not None:
            books.release(sender, request.sender_deposit, pair)
            asked.outbound[sender] -= 1
            asked.waiting -= 1
            asked.requests[pair] = None
    else:
        error = _first(
            (origin not in pair, CallError.CloseHrmpChannelUnauthorized),
            (channel is None, CallError.CloseHrmpChannelDoesntExist),
            (channel is True, CallError.CloseHrmpChannelAlreadyUnderway),
        )
        if error == CallError.OK:
            asked.channels[pair] = True
    return error


def _first(*checks: tuple[bool, CallError]) -> CallError:
    return next((error for wrong, error in checks if wrong), CallError.OK)


class _Request(NamedTuple):
    max_capacity: int
    max_total_size: int
    max_message_size: int
    sender_deposit: int
    recipient_deposit: int = 0
    confirmed: int = 0


class _Known:
    """The requests and channels that calls are about: a request, or None; whether a channel that is open is to be
    closed; and how many channels parachains have, asked for (``outbound``) or accepted (``inbound``) ones included;
    how many requests there are (``waiting``); who is
    registered and stays so (``present``)."""

    def __init__(self, state: TabledState, pairs: list[Pair]) -> None:
        self._pairs = np.array(sorted(set(pairs)), dtype=np.uint32).reshape(-1, 2)
        named = self._named()
        self.requests: dict[Pair, _Request | None] = {}
        self.channels: dict[Pair, bool] = {}
        for name, table in (("requests", state["requests"]), ("channels", state["channels"])):
            at = lookup(table, named, PAIR)
            rows = table.take(at[at >= 0])
            found = zip(rows["sender"].tolist(), rows["recipient"].tolist(), strict=True)
            if name == "channels":
                self.channels |= dict(zip(found, (rows["closing"] > 0).tolist(), strict=True))
            else:
                fields = zip(*(rows[field].tolist() for field in _Request._fields), strict=True)
                self.requests |= {pair: _Request(*values) for pair, values in zip(found, fields, strict=True)}
        self.waiting = len(state["requests"])
        self.present = {*present(state["paras"]).tolist()}
        self.outbound, self.inbound = channel_counts(state["requests"], state["channels"])
        self._before = dict(self.requests), dict(self.channels)

    def _named(self) -> Frame:
        return Frame({"sender": self._pairs[:, 0], "recipient": self._pairs[:, 1]}, len(self._pairs))

    def tables(self, state: TabledState, number: int) -> dict[str, Frame]:
        """Return the tables that the calls of the relay block ``number`` changed."""
        requests, channels = self._before
        changed = {}
        if self.requests != requests:
            table = state["requests"]
            kept = table.filter(lookup(self._named(), table, PAIR) < 0)
            there = sorted((pair, request) for pair, request in self.requests.items() if request is not None)
            names = (*PAIR, *_Request._fields)
            rows = np.array([(*pair, *request) for pair, request in there], dtype=np.uint64).reshape(-1, len(names))
            columns = {
                name: rows[:, at].astype(REQUESTS_SCHEMA.field(name).type.to_pandas_dtype())
                for at, name in enumerate(names)
            }
            added = Frame({"chain": np.full(len(there), RELAY_POSITION, dtype=np.uint32), **columns}, len(there))
            joined = concat([kept, added.select(REQUESTS_SCHEMA.names)])
            changed["requests"] = joined.take(stable_order(*(joined[name] for name in PAIR)))
        if self.channels != channels:
            table = state["channels"]
            closing = table["closing"].copy()
            ending = [pair for pair, ends in self.channels.items() if ends and not channels[pair]]
            ends = np.array(ending, dtype=np.uint32).reshape(-1, 2)
            closing[lookup(table, Frame({"sender": ends[:, 0], "recipient": ends[:, 1]}, len(ending)), PAIR)] = number
            changed["channels"] = table.with_columns(closing=closing)
        return changed


def channel_counts(requests: Frame, channels: Frame) -> tuple[Counter[int], Counter[int]]:
    """Return how many channels each parachain has from it, those that it asked for included, and how many to it, those
    that it accepted included: what their limits are of."""
    accepted = requests["recipient"][requests["confirmed"] == 1]
    ends = [requests["sender"], channels["sender"]], [accepted, channels["recipient"]]
    outbound, inbound = (Counter(np.concatenate(columns).tolist()) for columns in ends)
    return outbound, inbound


class _Books:
    """The accounts of parachains on the relay chain, and what moved on them."""

    def __init__(self, rows: Frame) -> None:
        self._rows = rows
        self._at = {para: at for at, para in enumerate(rows["para"].tolist())}
        self._free, self._held = rows["free"].tolist(), rows["held"].tolist()
        self._moves: list[tuple[Why, int, int, Pair]] = []

    @property
    def moved(self) -> bool:
        """Return whether anything moved."""
        return bool(self._moves)

    def free(self, para: int) -> int:
        """Return what an account has that is not held."""
        return int(self._free[self._at[para]])

    def hold(self, para: int, amount: int, pair: Pair) -> None:
        """Hold an amount, which is there, for a channel."""
        self._move(Why.DEPOSIT_HELD, para, amount, pair)

    def release(self, para: int, amount: int, pair: Pair) -> None:
        """Give back what was held for a channel."""
        self._move(Why.DEPOSIT_RELEASED, para, amount, pair)

    def _move(self, why: Why, para: int, amount: int, pair: Pair) -> None:
        if amount == 0:
            return
        at, sign = self._at[para], 1 if why == Why.DEPOSIT_HELD else -1
        self._free[at] -= sign * amount
        self._held[at] += sign * amount
        self._moves.append((why, para, amount, pair))

    def frame(self) -> Frame:
        """Return the accounts (``SOVEREIGN_SCHEMA``)."""
        columns = {"free": np.array(self._free, dtype=np.uint64), "held": np.array(self._held, dtype=np.uint64)}
        return self._rows.with_columns(**columns)

    def log(self) -> Frame:
        """Return all that moved (``VALUE_SCHEMA``)."""
        holders = {Why.DEPOSIT_HELD: (Holder.SOVEREIGN, Holder.RESERVED)}
        rows = [
            (why, *holders.get(why, (Holder.RESERVED, Holder.SOVEREIGN)), para, amount, *pair)
            for why, para, amount, pair in self._moves
        ]
        return value_rows(np.array(rows, dtype=np.uint64).reshape(-1, 7))


def issued(accounts: Frame) -> Frame:
    """Return what accounts (``SOVEREIGN_SCHEMA``) have at genesis as rows of the value log."""
    rows = [
        (Why.ISSUED, Holder.NOWHERE, Holder.SOVEREIGN, para, free, NO_CHAIN, NO_CHAIN)
        for para, free in zip(accounts["para"].tolist(), accounts["free"].tolist(), strict=True)
        if free
    ]
    found = value_rows(np.array(rows, dtype=np.uint64).reshape(-1, 7))
    return found.with_columns(from_number=np.zeros(len(rows), dtype=np.uint64))


def value_rows(rows: npt.NDArray[np.uint64]) -> Frame:
    """Return rows of the value log on the relay chain; ``rows``: why, from holder, to holder, the parachain whose both
    are, amount, and the ends of the channel that it is about."""
    count = len(rows)
    why, giver, taker, para, amount, sender, recipient = rows.T
    columns = {
        "chain": repeated(np.uint32(RELAY_POSITION), count),
        "asset": repeated(np.uint8(Asset.UNITS), count),
        "why": why,
        "from_holder": giver,
        "from_number": para,
        "to_holder": taker,
        "to_number": para,
        "amount_high": repeated(np.uint64(0), count),
        "amount_low": amount,
        "source": sender,
        "destination": recipient,
        "substream": repeated(np.uint64(0), count),
        "index": repeated(np.uint64(NO_INDEX), count),
    }
    kinds = {item.name: item.type.to_pandas_dtype() for item in VALUE_SCHEMA}
    return Frame({name: column.astype(kinds[name], copy=False) for name, column in columns.items()}, count)
