"""Channels: who may ask for what, and what a session opens and closes (ICMP reference X-6).

A channel is asked for by its sender, accepted by its recipient, and opens with the next session; each of them leaves a
deposit, and has it back when the channel closes. Every change of an account is a row of the value log.

Parachains that come and go, and what becomes of their channels (ICMP reference D-3, X-6).

Who is deregistered leaves with a session, as channels close; then its channels and requests are gone with all that is
in them, and deposits go back to those who left them.

Upward messages: what parachains ask the relay chain for, as bytes (ICMP reference X-4, X-6).

Each is a call of the relay chain's pallet ``Hrmp``, in SCALE:

```
3c 00  u32 recipient, u32 max_capacity, u32 max_message_size       open
3c 01  u32 sender                                                  accept
3c 02  u32 sender, u32 recipient                                   close
3c 06  u32 sender, u32 recipient, u32 open_requests                cancel
```
The number of the pallet is that of the deployed relay chains; ``open_requests`` is how many requests there are at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN, NO_INDEX, VALUE_SCHEMA, Asset, ValueHolder, ValueReason
from causeway.protocols.contract import Chains
from causeway.protocols.hrmp.errors import UpwardCallError
from causeway.protocols.hrmp.state import CHANNELS_SCHEMA, PAIR, REQUESTS_SCHEMA
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.options import NOTICE, HrmpOptions
from causeway.protocols.relay_chain.runtime import ParachainCall, ParachainCallKind
from causeway.protocols.shared.state_tables import TableState


def present_parachains(paras: Frame) -> Chains:
    """Return the parachains (``PARAS_SCHEMA``) that are registered and stay so, ascending."""
    return np.asarray(paras["para"][(paras["active"] == 1) & (paras["leaving"] == 0)])


def involves_parachains(rows: Frame, chains: Chains) -> npt.NDArray[np.bool_]:
    """Return which channels or requests have one of some parachains at an end."""
    return np.isin(rows["sender"], chains) | np.isin(rows["recipient"], chains)


def usable_channels(channels: Frame, paras: Frame) -> Frame:
    """Return the channels; those to whom or from whom a parachain leaves are to be closed, too."""
    out = paras["para"][paras["leaving"] > 0]
    if len(out) == 0:
        return channels
    return channels.with_columns(
        closing=np.maximum(channels["closing"], involves_parachains(channels, out).astype(np.uint64))
    )


def remove_parachains(state: TableState, gone: Chains) -> dict[str, Frame]:
    """Return the tables without parachains that leave: they are not registered, and no messages wait for them."""
    paras, digests = state["paras"], state["digests"]
    columns = {name: paras[name].copy() for name in ("active", "leaving")}
    for column in columns.values():
        column[np.isin(paras["para"], gone)] = 0
    return {
        "paras": paras.with_columns(**columns),
        "digests": digests.filter(~np.isin(digests["recipient"], gone)),
    }


def apply_membership_calls(state: TableState, calls: Sequence[ParachainCall], number: int) -> TableState:
    """Return the state after the registrations and deregistrations of the relay block ``number``, in their order; who
    is registered cannot be registered, and who is not, or leaves already, cannot be deregistered.

    Who is registered begins with the watermark number - 1: nothing waits for it (D-3).
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
    """What a parachain asks the relay chain for; the numbers are those of the pallet's calls."""

    OPEN = 0
    ACCEPT = 1
    CLOSE = 2
    CANCEL = 6


class ChannelRequest(NamedTuple):
    """A call: the ends of the channel that it is about, and of an OPEN its limits, of a CANCEL how many requests there
    are at most."""

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
"""What a call's bytes have, u32 each; the other end of an OPEN and of an ACCEPT is whoever sends it."""


def encode_call(asked: ChannelRequest) -> bytes:
    """Return the bytes of a call."""
    fields = [getattr(asked, name) for name in _FIELDS[asked.call]]
    return bytes([PALLET, asked.call]) + b"".join([int(field).to_bytes(4, "little") for field in fields])


def decode_call(data: bytes, origin: int) -> ChannelRequest | None:
    """Return the call that bytes of the parachain ``origin`` are, None where they are none."""
    if len(data) < 2 or data[0] != PALLET or data[1] not in _FIELDS or len(data) % 4 != 2:
        return None
    call = UpwardCall(data[1])
    fields = [int.from_bytes(data[at : at + 4], "little") for at in range(2, len(data), 4)]
    if len(fields) != len(_FIELDS[call]):
        return None
    given = dict(zip(_FIELDS[call], fields, strict=True))
    return ChannelRequest(call, **{"sender": origin, "recipient": origin, **given})


Pair = tuple[int, int]


class SessionResult(NamedTuple):
    """What a session's beginning leaves: the state, the contents of the channels that it closed (``CONTENTS_SCHEMA``),
    and what moved on accounts (``VALUE_SCHEMA``)."""

    state: TableState
    dropped: Frame
    value: Frame


def new_session(state: TableState, number: int) -> SessionResult:
    """Open the channels that are accepted and close those that are to be closed, in the relay block ``number``; before
    that, parachains leave that were deregistered."""
    requests, channels, contents = state["requests"], state["channels"], state["contents"]
    closing = (channels["closing"] > 0) & (channels["closing"] + np.uint64(NOTICE) <= np.uint64(number))
    # The parachains that leave with the session that begins in the relay block `number`.
    paras = state["paras"]
    due = (paras["leaving"] > 0) & (paras["leaving"] + np.uint64(NOTICE) <= np.uint64(number))
    out = np.asarray(paras["para"][due])
    changed = remove_parachains(state, out) if len(out) else {}
    withdrawn = involves_parachains(requests, out)
    closing |= involves_parachains(channels, out)
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
        inside = lookup_rows(gone, contents, PAIR) >= 0
        dropped = contents.filter(inside)
        changed["contents"] = contents.filter(~inside)
    for rows in (requests.filter(withdrawn), gone):
        deposits = zip(*(rows[name].tolist() for name in (*PAIR, "sender_deposit", "recipient_deposit")), strict=True)
        for sender, recipient, of_sender, of_recipient in deposits:
            books.release(sender, of_sender, (sender, recipient))
            books.release(recipient, of_recipient, (sender, recipient))
    if books.moved:
        changed["sovereign"] = books.frame()
    return SessionResult(state.with_tables(**changed), dropped, books.log())


def _opened(requests: Frame) -> Frame:
    count = len(requests)
    return requests.with_columns(
        msg_count=np.zeros(count, dtype=np.uint32),
        total_size=np.zeros(count, dtype=np.uint32),
        mqc_head=np.zeros((count, 32), dtype=np.uint8),
        closing=np.zeros(count, dtype=np.uint64),
    ).select(CHANNELS_SCHEMA.names)


class CallResults(NamedTuple):
    """What calls leave: the state, what is wrong with each of them (``CallError``), and what moved on accounts."""

    state: TableState
    codes: npt.NDArray[np.int64]
    value: Frame


def execute_calls(state: TableState, calls: Frame, number: int, options: HrmpOptions) -> CallResults:
    """Execute calls (``CALLS_SCHEMA``), each in the state that those before it left; one that is refused changes
    nothing. ``number``: the relay block that has them."""
    origins = calls["source"].tolist()
    read = [decode_call(data, p) for data, p in zip(calls["data"].to_pylist(), origins, strict=True)]
    pairs = [(one.sender, one.recipient) for one in read if one is not None]
    asked, books = _Known(state, pairs), _Books(state["sovereign"])
    codes = np.full(len(calls), UpwardCallError.InvalidFormat, dtype=np.int64)
    for at, (one, origin) in enumerate(zip(read, origins, strict=True)):
        if one is not None:
            codes[at] = _execute(asked, books, origin, one, options)
    changed = asked.tables(state, number)
    if books.moved:
        changed["sovereign"] = books.frame()
    return CallResults(state.with_tables(**changed), codes, books.log())


def _execute(asked: _Known, books: _Books, origin: int, one: ChannelRequest, options: HrmpOptions) -> UpwardCallError:
    """Execute one call, its checks in written order."""
    sender, recipient = pair = one.sender, one.recipient
    request, channel = asked.requests.get(pair), asked.channels.get(pair)
    accepted = request is not None and request.confirmed == 1
    if one.call == UpwardCall.OPEN:
        capacity, size = one.max_capacity, one.max_message_size
        error = _first(
            (recipient == origin, UpwardCallError.OpenHrmpChannelToSelf),
            (recipient not in asked.present, UpwardCallError.OpenHrmpChannelInvalidRecipient),
            (capacity == 0, UpwardCallError.OpenHrmpChannelZeroCapacity),
            (capacity > options.max_capacity, UpwardCallError.OpenHrmpChannelCapacityExceedsLimit),
            (size == 0, UpwardCallError.OpenHrmpChannelZeroMessageSize),
            (size > options.max_message_size, UpwardCallError.OpenHrmpChannelMessageSizeExceedsLimit),
            (request is not None, UpwardCallError.OpenHrmpChannelAlreadyRequested),
            (channel is not None, UpwardCallError.OpenHrmpChannelAlreadyExists),
            (asked.outbound[origin] >= options.max_outbound_channels, UpwardCallError.OpenHrmpChannelLimitExceeded),
            (books.free(origin) < options.sender_deposit, UpwardCallError.InsufficientBalance),
        )
        if error == UpwardCallError.OK:
            books.hold(origin, options.sender_deposit, pair)
            asked.outbound[origin] += 1
            asked.waiting += 1
            asked.requests[pair] = _Request(capacity, options.max_total_size, size, options.sender_deposit)
    elif one.call == UpwardCall.ACCEPT:
        error = _first(
            (request is None or recipient != origin, UpwardCallError.AcceptHrmpChannelDoesntExist),
            (accepted, UpwardCallError.AcceptHrmpChannelAlreadyConfirmed),
            (asked.inbound[origin] >= options.max_inbound_channels, UpwardCallError.AcceptHrmpChannelLimitExceeded),
            (books.free(origin) < options.recipient_deposit, UpwardCallError.InsufficientBalance),
        )
        if error == UpwardCallError.OK and request is not None:
            books.hold(origin, options.recipient_deposit, pair)
            asked.inbound[origin] += 1
            asked.requests[pair] = request._replace(confirmed=1, recipient_deposit=options.recipient_deposit)
    elif one.call == UpwardCall.CANCEL:
        error = _first(
            (asked.waiting > one.open_requests, UpwardCallError.WrongWitness),
            (origin not in pair, UpwardCallError.CancelHrmpOpenChannelUnauthorized),
            (request is None, UpwardCallError.OpenHrmpChannelDoesntExist),
            (accepted, UpwardCallError.OpenHrmpChannelAlreadyConfirmed),
        )
        if error == UpwardCallError.OK and request is not None:
            books.release(sender, request.sender_deposit, pair)
            asked.outbound[sender] -= 1
            asked.waiting -= 1
            asked.requests[pair] = None
    else:
        error = _first(
            (origin not in pair, UpwardCallError.CloseHrmpChannelUnauthorized),
            (channel is None, UpwardCallError.CloseHrmpChannelDoesntExist),
            (channel is True, UpwardCallError.CloseHrmpChannelAlreadyUnderway),
        )
        if error == UpwardCallError.OK:
            asked.channels[pair] = True
    return error


def _first(*checks: tuple[bool, UpwardCallError]) -> UpwardCallError:
    return next((error for wrong, error in checks if wrong), UpwardCallError.OK)


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
        """Return the tables that the calls of the relay block ``number`` changed."""
        requests, channels = self._before
        changed = {}
        if self.requests != requests:
            table = state["requests"]
            kept = table.filter(lookup_rows(self._named(), table, PAIR) < 0)
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
            closing[lookup_rows(table, Frame({"sender": ends[:, 0], "recipient": ends[:, 1]}, len(ending)), PAIR)] = (
                number
            )
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
        self._moves: list[tuple[ValueReason, int, int, Pair]] = []

    @property
    def moved(self) -> bool:
        """Return whether anything moved."""
        return bool(self._moves)

    def free(self, para: int) -> int:
        """Return what an account has that is not held."""
        return int(self._free[self._at[para]])

    def hold(self, para: int, amount: int, pair: Pair) -> None:
        """Hold an amount, which is there, for a channel."""
        self._move(ValueReason.DEPOSIT_HELD, para, amount, pair)

    def release(self, para: int, amount: int, pair: Pair) -> None:
        """Give back what was held for a channel."""
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
        """Return all that moved (``VALUE_SCHEMA``)."""
        holders = {ValueReason.DEPOSIT_HELD: (ValueHolder.SOVEREIGN, ValueHolder.RESERVED)}
        rows = [
            (why, *holders.get(why, (ValueHolder.RESERVED, ValueHolder.SOVEREIGN)), para, amount, *pair)
            for why, para, amount, pair in self._moves
        ]
        return value_rows(np.array(rows, dtype=np.uint64).reshape(-1, 7))


def genesis_value_rows(accounts: Frame) -> Frame:
    """Return what accounts (``SOVEREIGN_SCHEMA``) have at genesis as rows of the value log."""
    rows = [
        (ValueReason.ISSUED, ValueHolder.NOWHERE, ValueHolder.SOVEREIGN, para, free, NO_CHAIN, NO_CHAIN)
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
