"""HRMP channels: upward calls, sessions, and parachains that join or leave.

The sender requests a channel, the recipient accepts it, and the next session opens it. Both leave a deposit until the
close. Every change of an account is a row of the value log. A deregistered parachain leaves with a session. Its
channels and requests are removed with their contents, and all deposits are returned.

Upward calls are calls of the relay chain's pallet ``Hrmp``, in SCALE:

```
3c 00  u32 recipient, u32 max_capacity, u32 max_message_size       open
3c 01  u32 sender                                                  accept
3c 02  u32 sender, u32 recipient                                   close
3c 06  u32 sender, u32 recipient, u32 open_requests                cancel
```

The pallet number is the deployed one; ``open_requests`` is the maximum number of requests.

Reference: ICMP, D-3, X-4, X-6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN, NO_INDEX, VALUE_SCHEMA, Asset, ValueHolder, ValueReason
from causeway.protocols.contract import Chains
from causeway.protocols.hrmp.errors import UpwardCallError
from causeway.protocols.hrmp.state import CHANNELS_SCHEMA, HRMP_TABLES, PAIR, REQUESTS_SCHEMA
from causeway.protocols.relay_chain.options import NOTICE, RELAY_POSITION, HrmpOptions
from causeway.protocols.relay_chain.runtime import ParachainCall, ParachainCallKind
from causeway.protocols.shared.state_tables import TableState, blank_rows, sort_table


def present_parachains(paras: Frame) -> Chains:
    """Return the registered parachains that do not leave, ascending.

    Args:
        paras: ``PARAS_SCHEMA``.
    """
    return np.asarray(paras["para"][(paras["active"] == 1) & (paras["leaving"] == 0)])


def involves_parachains(rows: Frame, chains: Chains) -> npt.NDArray[np.bool_]:
    """Return a mask of channels or requests with an end among ``chains``."""
    return np.isin(rows["sender"], chains) | np.isin(rows["recipient"], chains)


def usable_channels(channels: Frame, paras: Frame) -> Frame:
    """Return the channels, with those of leaving parachains marked as closing."""
    leaving = paras["para"][paras["leaving"] > 0]
    if len(leaving) == 0:
        return channels
    return channels.with_columns(
        closing=np.maximum(channels["closing"], involves_parachains(channels, leaving).astype(np.uint64))
    )


def remove_parachains(state: TableState, leaving: Chains) -> dict[str, Frame]:
    """Return the tables without leaving parachains: unregistered, without pending digests."""
    paras, digests = state["paras"], state["digests"]
    columns = {name: paras[name].copy() for name in ("active", "leaving")}
    for column in columns.values():
        column[np.isin(paras["para"], leaving)] = 0
    return {"paras": paras.with_columns(**columns), "digests": digests.filter(~np.isin(digests["recipient"], leaving))}


def apply_membership_calls(state: TableState, calls: Sequence[ParachainCall], number: int) -> TableState:
    """Apply registrations and deregistrations in relay block ``number``.

    Inadmissible calls have no effect. A registered parachain starts with watermark number - 1, since it has no pending
    messages (D-3).

    Args:
        state: State of the relay chain.
        calls: Calls in order.
        number: Number of the relay block.
    """
    paras = state["paras"]
    columns = {name: paras[name].copy() for name in ("active", "leaving", "watermark")}
    moved = False
    for call in calls:
        (row,) = np.flatnonzero(paras["para"] == np.uint32(call.para))
        comes = call.kind is ParachainCallKind.REGISTER
        if comes == bool(columns["active"][row]) or columns["leaving"][row] > 0:
            continue
        moved = True
        if comes:
            columns["active"][row], columns["watermark"][row] = 1, number - 1
        else:
            columns["leaving"][row] = number
    return state.with_tables(paras=paras.with_columns(**columns)) if moved else state


PALLET = 60

MOST_REQUESTS = 2**32 - 1


class UpwardCall(IntEnum):
    """Kind of an upward call, numbered as in the pallet."""

    OPEN = 0
    ACCEPT = 1
    CLOSE = 2
    CANCEL = 6


class ChannelRequest(NamedTuple):
    """An upward call on a channel.

    An OPEN has the limits of the channel, a CANCEL the maximum number of open requests.
    """

    call: UpwardCall
    sender: int
    recipient: int
    max_capacity: int = 0
    max_message_size: int = 0
    open_requests: int = MOST_REQUESTS


_FIELDS = {
    UpwardCall.OPEN: ("recipient", "max_capacity", "max_message_size"),
    UpwardCall.ACCEPT: ("sender",),
    UpwardCall.CLOSE: ("sender", "recipient"),
    UpwardCall.CANCEL: ("sender", "recipient", "open_requests"),
}
"""Fields of each call, u32; the caller is the other end of an OPEN and of an ACCEPT."""


def encode_call(call: ChannelRequest) -> bytes:
    """Encode a call."""
    fields = [getattr(call, name) for name in _FIELDS[call.call]]
    return bytes([PALLET, call.call]) + b"".join([int(field).to_bytes(4, "little") for field in fields])


def decode_call(data: bytes, origin: int) -> ChannelRequest | None:
    """Decode a call of the parachain ``origin``; None if it is malformed."""
    if len(data) < 2 or data[0] != PALLET or data[1] not in _FIELDS or len(data) % 4 != 2:
        return None
    call = UpwardCall(data[1])
    fields = [int.from_bytes(data[at : at + 4], "little") for at in range(2, len(data), 4)]
    if len(fields) != len(_FIELDS[call]):
        return None
    values = dict(zip(_FIELDS[call], fields, strict=True))
    return ChannelRequest(call, **{"sender": origin, "recipient": origin, **values})


Pair = tuple[int, int]


class SessionResult(NamedTuple):
    """Result of a session change.

    Attributes:
        state: State after.
        dropped: Contents of closed channels (``CONTENTS_SCHEMA``).
        value: Movements on accounts (``VALUE_SCHEMA``).
    """

    state: TableState
    dropped: Frame
    value: Frame


def new_session(state: TableState, number: int) -> SessionResult:
    """Start a session in relay block ``number``: remove parachains, open and close channels.

    Args:
        state: State of the relay chain.
        number: Number of the relay block.
    """
    requests, channels, contents = state["requests"], state["channels"], state["contents"]
    closing = (channels["closing"] > 0) & (channels["closing"] + np.uint64(NOTICE) <= np.uint64(number))
    paras = state["paras"]
    due = (paras["leaving"] > 0) & (paras["leaving"] + np.uint64(NOTICE) <= np.uint64(number))
    leaving = np.asarray(paras["para"][due])
    changed = remove_parachains(state, leaving) if len(leaving) else {}
    withdrawn = involves_parachains(requests, leaving)
    closing |= involves_parachains(channels, leaving)
    accepted = (requests["confirmed"] == 1) & ~withdrawn
    closed = channels.filter(closing)
    dropped = contents.slice(0, 0)
    if accepted.any() or len(closed):
        new = requests.filter(accepted)
        known = {name: new[name] for name in new.names if name in CHANNELS_SCHEMA.names}
        joined = concat([channels.filter(~closing), blank_rows(CHANNELS_SCHEMA, len(new), **known)])
        changed["channels"] = sort_table(HRMP_TABLES["channels"], joined)
    if accepted.any() or withdrawn.any():
        changed["requests"] = requests.filter(~accepted & ~withdrawn)
    books = _Accounts(state["sovereign"])
    if len(closed):
        inside = lookup_rows(closed, contents, PAIR) >= 0
        dropped = contents.filter(inside)
        changed["contents"] = contents.filter(~inside)
    for rows in (requests.filter(withdrawn), closed):
        deposits = zip(*(rows[name].tolist() for name in (*PAIR, "sender_deposit", "recipient_deposit")), strict=True)
        for sender, recipient, of_sender, of_recipient in deposits:
            books.release(sender, of_sender, (sender, recipient))
            books.release(recipient, of_recipient, (sender, recipient))
    if books.moved:
        changed["sovereign"] = books.frame()
    return SessionResult(state.with_tables(**changed), dropped, books.log())


class CallResults(NamedTuple):
    """Result of upward calls: state, ``UpwardCallError`` of each, movements on accounts."""

    state: TableState
    codes: npt.NDArray[np.int64]
    value: Frame


def execute_calls(state: TableState, calls: Frame, number: int, options: HrmpOptions) -> CallResults:
    """Execute upward calls in order; a refused call changes nothing.

    Args:
        state: State of the relay chain.
        calls: ``CALLS_SCHEMA``.
        number: Number of the relay block.
        options: Options of the protocol.
    """
    origins = calls["source"].tolist()
    decoded = [decode_call(data, p) for data, p in zip(calls["data"].to_pylist(), origins, strict=True)]
    pairs = [(call.sender, call.recipient) for call in decoded if call is not None]
    channel_state, books = _ChannelState(state, pairs), _Accounts(state["sovereign"])
    codes = np.full(len(calls), UpwardCallError.InvalidFormat, dtype=np.int64)
    for at, (call, origin) in enumerate(zip(decoded, origins, strict=True)):
        if call is not None:
            codes[at] = _execute(channel_state, books, origin, call, options)
    changed = channel_state.tables(state, number)
    if books.moved:
        changed["sovereign"] = books.frame()
    return CallResults(state.with_tables(**changed), codes, books.log())


def _execute(
    known: _ChannelState, books: _Accounts, origin: int, call: ChannelRequest, options: HrmpOptions
) -> UpwardCallError:
    """Execute one call, with its checks in order."""
    sender, recipient = pair = call.sender, call.recipient
    request, channel = known.requests.get(pair), known.channels.get(pair)
    accepted = request is not None and request.confirmed == 1
    if call.call == UpwardCall.OPEN:
        capacity, size = call.max_capacity, call.max_message_size
        error = _first_error(
            (recipient == origin, UpwardCallError.OpenHrmpChannelToSelf),
            (recipient not in known.present, UpwardCallError.OpenHrmpChannelInvalidRecipient),
            (capacity == 0, UpwardCallError.OpenHrmpChannelZeroCapacity),
            (capacity > options.max_capacity, UpwardCallError.OpenHrmpChannelCapacityExceedsLimit),
            (size == 0, UpwardCallError.OpenHrmpChannelZeroMessageSize),
            (size > options.max_message_size, UpwardCallError.OpenHrmpChannelMessageSizeExceedsLimit),
            (request is not None, UpwardCallError.OpenHrmpChannelAlreadyRequested),
            (channel is not None, UpwardCallError.OpenHrmpChannelAlreadyExists),
            (known.outbound[origin] >= options.max_outbound_channels, UpwardCallError.OpenHrmpChannelLimitExceeded),
            (books.free(origin) < options.sender_deposit, UpwardCallError.InsufficientBalance),
        )
        if error == UpwardCallError.OK:
            books.hold(origin, options.sender_deposit, pair)
            known.outbound[origin] += 1
            known.waiting += 1
            known.requests[pair] = _Request(capacity, options.max_total_size, size, options.sender_deposit)
    elif call.call == UpwardCall.ACCEPT:
        error = _first_error(
            (request is None or recipient != origin, UpwardCallError.AcceptHrmpChannelDoesntExist),
            (accepted, UpwardCallError.AcceptHrmpChannelAlreadyConfirmed),
            (known.inbound[origin] >= options.max_inbound_channels, UpwardCallError.AcceptHrmpChannelLimitExceeded),
            (books.free(origin) < options.recipient_deposit, UpwardCallError.InsufficientBalance),
        )
        if error == UpwardCallError.OK and request is not None:
            books.hold(origin, options.recipient_deposit, pair)
            known.inbound[origin] += 1
            known.requests[pair] = request._replace(confirmed=1, recipient_deposit=options.recipient_deposit)
    elif call.call == UpwardCall.CANCEL:
        error = _first_error(
            (known.waiting > call.open_requests, UpwardCallError.WrongWitness),
            (origin not in pair, UpwardCallError.CancelHrmpOpenChannelUnauthorized),
            (request is None, UpwardCallError.OpenHrmpChannelDoesntExist),
            (accepted, UpwardCallError.OpenHrmpChannelAlreadyConfirmed),
        )
        if error == UpwardCallError.OK and request is not None:
            books.release(sender, request.sender_deposit, pair)
            known.outbound[sender] -= 1
            known.waiting -= 1
            known.requests[pair] = None
    else:
        error = _first_error(
            (origin not in pair, UpwardCallError.CloseHrmpChannelUnauthorized),
            (channel is None, UpwardCallError.CloseHrmpChannelDoesntExist),
            (channel is True, UpwardCallError.CloseHrmpChannelAlreadyUnderway),
        )
        if error == UpwardCallError.OK:
            known.channels[pair] = True
    return error


def _first_error(*checks: tuple[bool, UpwardCallError]) -> UpwardCallError:
    return next((error for wrong, error in checks if wrong), UpwardCallError.OK)


class _Request(NamedTuple):
    max_capacity: int
    max_total_size: int
    max_message_size: int
    sender_deposit: int
    recipient_deposit: int = 0
    confirmed: int = 0


class _ChannelState:
    """Requests and channels of a block's calls.

    Attributes:
        requests: Request of each pair, or None.
        channels: Closing flag of each open channel.
        outbound: Number of channels and requests from each parachain.
        inbound: Number of channels and accepted requests to each parachain.
        waiting: Number of requests.
        present: Registered parachains that do not leave.
    """

    def __init__(self, state: TableState, pairs: list[Pair]) -> None:
        self._pairs = np.array(sorted(set(pairs)), dtype=np.uint32).reshape(-1, 2)
        named = self._named()
        self.requests: dict[Pair, _Request | None] = {}
        self.channels: dict[Pair, bool] = {}
        for name, table in (("requests", state["requests"]), ("channels", state["channels"])):
            at = lookup_rows(table, named, PAIR)
            rows = table.take(at[at >= 0])
            found = zip(rows["sender"].tolist(), rows["recipient"].tolist(), strict=True)
            if name == "channels":
                self.channels |= dict(zip(found, (rows["closing"] > 0).tolist(), strict=True))
            else:
                fields = zip(*(rows[field].tolist() for field in _Request._fields), strict=True)
                self.requests |= {pair: _Request(*values) for pair, values in zip(found, fields, strict=True)}
        self.waiting = len(state["requests"])
        self.present = {*present_parachains(state["paras"]).tolist()}
        self.outbound, self.inbound = channel_counts(state["requests"], state["channels"])
        self._before = dict(self.requests), dict(self.channels)

    def _named(self) -> Frame:
        return Frame({"sender": self._pairs[:, 0], "recipient": self._pairs[:, 1]}, len(self._pairs))

    def tables(self, state: TableState, number: int) -> dict[str, Frame]:
        """Return the tables changed by the calls of relay block ``number``."""
        requests, channels = self._before
        changed = {}
        if self.requests != requests:
            table = state["requests"]
            others = table.filter(lookup_rows(self._named(), table, PAIR) < 0)
            present = sorted((pair, request) for pair, request in self.requests.items() if request is not None)
            names = (*PAIR, *_Request._fields)
            rows = np.array([(*pair, *request) for pair, request in present], dtype=np.uint64).reshape(-1, len(names))
            columns = dict(zip(names, rows.T, strict=True))
            added = blank_rows(REQUESTS_SCHEMA, len(present), chain=RELAY_POSITION, **columns)
            changed["requests"] = sort_table(HRMP_TABLES["requests"], concat([others, added]))
        if self.channels != channels:
            table = state["channels"]
            closing = table["closing"].copy()
            ending = [pair for pair, ends in self.channels.items() if ends and not channels[pair]]
            ends = np.array(ending, dtype=np.uint32).reshape(-1, 2)
            closing[lookup_rows(table, Frame({"sender": ends[:, 0], "recipient": ends[:, 1]}, len(ending)), PAIR)] = (
                number
            )
            changed["channels"] = table.with_columns(closing=closing)
        return changed


def channel_counts(requests: Frame, channels: Frame) -> tuple[Counter[int], Counter[int]]:
    """Return the number of channels per sender and per recipient.

    The first includes requests, the second accepted requests; the limits apply to these numbers.

    Args:
        requests: ``REQUESTS_SCHEMA``.
        channels: ``CHANNELS_SCHEMA``.
    """
    accepted = requests["recipient"][requests["confirmed"] == 1]
    ends = [requests["sender"], channels["sender"]], [accepted, channels["recipient"]]
    outbound, inbound = (Counter(np.concatenate(columns).tolist()) for columns in ends)
    return outbound, inbound


class _Accounts:
    """The accounts of parachains on the relay chain, and their movements."""

    def __init__(self, rows: Frame) -> None:
        self._rows = rows
        self._at = {para: at for at, para in enumerate(rows["para"].tolist())}
        self._free, self._held = rows["free"].tolist(), rows["held"].tolist()
        self._moves: list[tuple[ValueReason, int, int, Pair]] = []

    @property
    def moved(self) -> bool:
        """Return True if any amount moved."""
        return bool(self._moves)

    def free(self, para: int) -> int:
        """Return the free balance of an account."""
        return int(self._free[self._at[para]])

    def hold(self, para: int, amount: int, pair: Pair) -> None:
        """Hold an available amount for a channel."""
        self._move(ValueReason.DEPOSIT_HELD, para, amount, pair)

    def release(self, para: int, amount: int, pair: Pair) -> None:
        """Release a held amount of a channel."""
        self._move(ValueReason.DEPOSIT_RELEASED, para, amount, pair)

    def _move(self, why: ValueReason, para: int, amount: int, pair: Pair) -> None:
        if amount == 0:
            return
        at, sign = self._at[para], 1 if why == ValueReason.DEPOSIT_HELD else -1
        self._free[at] -= sign * amount
        self._held[at] += sign * amount
        self._moves.append((why, para, amount, pair))

    def frame(self) -> Frame:
        """Return the accounts (``SOVEREIGN_SCHEMA``)."""
        columns = {"free": np.array(self._free, dtype=np.uint64), "held": np.array(self._held, dtype=np.uint64)}
        return self._rows.with_columns(**columns)

    def log(self) -> Frame:
        """Return all movements (``VALUE_SCHEMA``)."""
        holders = {ValueReason.DEPOSIT_HELD: (ValueHolder.SOVEREIGN, ValueHolder.RESERVED)}
        rows = [
            (why, *holders.get(why, (ValueHolder.RESERVED, ValueHolder.SOVEREIGN)), para, amount, *pair)
            for why, para, amount, pair in self._moves
        ]
        return value_rows(np.array(rows, dtype=np.uint64).reshape(-1, 7))


def genesis_value_rows(accounts: Frame) -> Frame:
    """Return the genesis balances of accounts (``SOVEREIGN_SCHEMA``) as rows of the value log."""
    rows = [
        (ValueReason.ISSUED, ValueHolder.NOWHERE, ValueHolder.SOVEREIGN, para, free, NO_CHAIN, NO_CHAIN)
        for para, free in zip(accounts["para"].tolist(), accounts["free"].tolist(), strict=True)
        if free
    ]
    found = value_rows(np.array(rows, dtype=np.uint64).reshape(-1, 7))
    return found.with_columns(from_number=np.zeros(len(rows), dtype=np.uint64))


def value_rows(rows: npt.NDArray[np.uint64]) -> Frame:
    """Create rows of the value log on the relay chain.

    Args:
        rows: Columns, uint64, shape (n, 7): reason, giving holder, taking holder, parachain, amount, ends of the
            channel.
    """
    count = len(rows)
    why, giver, taker, para, amount, sender, recipient = rows.T
    columns = {
        "chain": repeat_value(np.uint32(RELAY_POSITION), count),
        "asset": repeat_value(np.uint8(Asset.UNITS), count),
        "why": why,
        "from_holder": giver,
        "from_number": para,
        "to_holder": taker,
        "to_number": para,
        "amount_high": repeat_value(np.uint64(0), count),
        "amount_low": amount,
        "source": sender,
        "destination": recipient,
        "substream": repeat_value(np.uint64(0), count),
        "index": repeat_value(np.uint64(NO_INDEX), count),
    }
    kinds = {item.name: item.type.to_pandas_dtype() for item in VALUE_SCHEMA}
    return Frame({name: column.astype(kinds[name], copy=False) for name, column in columns.items()}, count)
