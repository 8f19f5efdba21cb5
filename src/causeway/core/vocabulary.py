"""The ledger's vocabulary: kinds of messages, lifecycle events, and how they are stored.

A stored event row says what happened to one message on one chain at one height as a set of events (a bit each), because
a message is mostly received and executed in the same round. The ledger view gives one row an event.

Why a call was not served, in words that all protocols share.

Every protocol has codes of its own; its entry in ``protocols.registry`` says which of these each of them means.

The log of value: every movement of value on a chain is one row, from who had it to who has it then.

Who has something is a holder and a number: ``Holder.ACCOUNT`` and a program, ``Holder.ABROAD`` and the chain at the
other end. A sum of a chain is what came to its holder less what left it, so that the log alone gives every balance.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum, IntFlag

import pyarrow as pa
from causeway_proofs.kinds import Kind as Kind


class Event(IntFlag):
    """What happened to a message."""

    SENT = 1
    COMMITTED = 2
    RELAYED = 4
    RECEIVED = 8
    EXECUTED = 16
    ANSWERED = 32
    ACKNOWLEDGED = 64
    REJECTED = 128
    TIMED_OUT = 256
    DROPPED = 512
    COLLECTED = 1024
    STOPPED = 2048


class Via(IntEnum):
    """By which way a message came to its receiver's queue."""

    NONE = 0
    LANE = 1
    LOOPBACK = 2
    SYNTHETIC = 3
    INGRESS = 4
    TIMEOUT = 5


NO_CHAIN = 2**32 - 1
"""In a column of chains: none, for events that belong to no lane."""

EVENTS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("events", pa.uint16(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("via", pa.uint8(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("index", pa.uint64(), nullable=False),
        pa.field("sender", pa.uint64(), nullable=False),
        pa.field("receiver", pa.uint64(), nullable=False),
        pa.field("callback", pa.uint64(), nullable=False),
        pa.field("amount_high", pa.uint64(), nullable=False),
        pa.field("amount_low", pa.uint64(), nullable=False),
        pa.field("queue_index", pa.uint64(), nullable=False),
        pa.field("code", pa.uint8(), nullable=False),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    ]
)
"""``chain``: where it happened. ``events``: a set of ``Event``. ``source``, ``destination``: the ends of the lane that
the message travels in (``NO_CHAIN``: none); ``substream``, ``index``: its position there. ``sender``, ``receiver``,
``callback``: the message's identity with ``kind``. Ingress that was refused has its position in the chain's payload of
that tick, from 1, as both ``index`` and ``callback``. ``amount_high``, ``amount_low``: the value attached to the
request or refunded by the response, so that the log alone tells where value goes and what is lost; of the end of a
program (control, DROPPED) its balance, in several rows where it is past 128 bits. ``queue_index``: the position in the
queue named by the event (input queue for received and executed, output queue for sent). ``code``: the reject code or 0.
``reason``: the stable name of a reason, cause or error, or empty."""

FAILURES_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("sender", pa.uint64(), nullable=False),
        pa.field("callback", pa.uint64(), nullable=False),
        pa.field("handler", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("error", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("line", pa.uint32(), nullable=False),
    ]
)
"""One row a handler call that raised: ``program`` on ``chain``, on the message named by ``kind``, ``sender`` and
``callback``. ``handler``: the method; ``error``: what it raised; ``file`` and ``line``: where in the program. A program
that rejects a request on purpose has not failed. No root depends on these rows."""

COLLECTED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("source", pa.uint32(), nullable=False),
        pa.field("destination", pa.uint32(), nullable=False),
        pa.field("substream", pa.uint64(), nullable=False),
        pa.field("what", pa.uint8(), nullable=False),
        pa.field("begin", pa.uint64(), nullable=False),
        pa.field("end", pa.uint64(), nullable=False),
    ]
)
"""One row a run of indices that ``chain`` collected: ``what`` 0 = messages of a lane (acknowledged and removed from it,
by their source), 1 = signals about messages of a lane (by their destination); indices ``begin`` to ``end`` - 1."""

REVERTED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("first", pa.uint64(), nullable=False),
        pa.field("last", pa.uint64(), nullable=False),
    ]
)
"""One row a fork of ``chain`` that took blocks back, at the height of the row: those that it made at heights ``first``
to ``last``, both included. What it logged there, and in the lanes that it is the source of, counts for nothing."""

REVERTED = "reverted"
"""The log table with these rows, of protocols whose chains have forks; and what the ledger calls an event that was
taken back."""

COLLECTED_MESSAGES = 0
COLLECTED_SIGNALS = 1


class RejectCode(Enum):
    """Why a call was not served, whatever the protocol."""

    NOT_FOUND = "not_found"
    """Nobody has the name or number that was called, or no program is installed under it."""
    REFUSED = "refused"
    """The program said no: it raised ``Reject``, or answered with one."""
    FAILED = "failed"
    """The program's handler raised an error, or gave no answer where it must."""
    TIMED_OUT = "timed_out"
    """The call expired before it was taken."""
    NO_FUNDS = "no_funds"
    """The caller cannot pay what the call costs or carries."""
    UNREACHABLE = "unreachable"
    """There is no way to the chain: no open channel or connection, or it is not allowed."""
    BUSY = "busy"
    """A passing state: a full queue, a program that moves. The same call may be served later."""
    TOO_LARGE = "too_large"
    """The call or its answer is longer than the protocol carries."""
    INVALID = "invalid"
    """The call is none that its receiver reads: malformed, of a type that it does not handle, from a false sender."""
    OTHER = "other"
    """Anything else: the protocol's own code and the text say what."""


PortableCode = Callable[[int, bytes], RejectCode]
"""Returns what a protocol's reject code and the text of the reject mean; with the code 0 the text alone says why a
message from a user came into no queue."""


class ValueHolder(IntEnum):
    """Who has value, and what the number beside it is.

    Of the asset ``UNITS``: ``NOWHERE`` has what is not issued; ``ABROAD`` (position of a chain) what has left for that
    chain, less what has come from it; ``BURNED`` what was burned for good. All others have what is issued: ``ACCOUNT``
    (a program); ``REQUESTS`` (a program): attached to requests that it has not answered; ``MESSAGES``: attached to
    messages that have not left the chain; ``OUTBOX_FEES``, ``INBOX_FEES``: held until a response, until an
    acknowledgement; ``DEPOSITS`` (a program, or ``ROOT_OWNER``): held for its channels; ``REWARDS``: due to operators,
    who share it in the same block; ``OPERATOR`` (its number); ``ROOT``: the account of who governs the chain;
    ``SOVEREIGN`` (position of a chain): its account on the chain that routes its messages; ``RESERVED`` (the same):
    what of it is held for channels.

    Of the asset ``BOOKED``: ``BALANCE`` (position of a chain); ``UNCONFIRMED`` and ``CANCELLED``: transfers from a
    chain to another, whose positions are the upper and the lower 32 bits of the number.
    """

    NOWHERE = 0
    ABROAD = 1
    BURNED = 2
    ACCOUNT = 3
    REQUESTS = 4
    MESSAGES = 5
    OUTBOX_FEES = 6
    INBOX_FEES = 7
    DEPOSITS = 8
    REWARDS = 9
    OPERATOR = 10
    ROOT = 11
    BALANCE = 12
    UNCONFIRMED = 13
    CANCELLED = 14
    SOVEREIGN = 15
    RESERVED = 16


ISSUED = (
    *(
        ValueHolder.ACCOUNT,
        ValueHolder.REQUESTS,
        ValueHolder.MESSAGES,
        ValueHolder.OUTBOX_FEES,
        ValueHolder.INBOX_FEES,
        ValueHolder.DEPOSITS,
    ),
    *(ValueHolder.REWARDS, ValueHolder.OPERATOR, ValueHolder.ROOT, ValueHolder.SOVEREIGN, ValueHolder.RESERVED),
)
"""Holders of what a chain has issued."""

PROGRAM_HOLDERS = (ValueHolder.ACCOUNT, ValueHolder.REQUESTS, ValueHolder.DEPOSITS)
CHAIN_HOLDERS = (ValueHolder.ABROAD, ValueHolder.BALANCE, ValueHolder.SOVEREIGN, ValueHolder.RESERVED)
PAIR_HOLDERS = (ValueHolder.UNCONFIRMED, ValueHolder.CANCELLED)
"""Holders whose numbers are programs, positions of chains, and two positions."""


class Asset(IntEnum):
    """What moves: units of the protocol's asset, or what one chain has in its books about the units of others."""

    UNITS = 0
    BOOKED = 1


class ValueReason(IntEnum):
    """Why value moves.

    ``ISSUED``: at genesis. ``ATTACHED``: a program sends it with a call; ``RECEIVED``: a message brings it;
    ``ACCEPTED``: a program keeps it of a request; ``RETURNED``: it goes back with the answer; ``SENT``: it leaves with
    a message; ``CLAIMED``: it comes back, since the message was refused. ``FEE_HELD``, ``FEE_BURNED``, ``FEE_MINTED``,
    ``FEE_PAID``, ``FEE_SHARED``: the fee for the response, that for the request, the same at the destination, due to
    operators, to each of them. ``DEPOSIT_HELD``, ``DEPOSIT_RELEASED``, ``DEPOSIT_BURNED``: of a channel.

    In books: ``NOTED``: a transfer left; ``CONFIRMED``: it came; ``REFUSED``: it was refused; ``RECLAIMED``: it went
    back; ``WRITTEN_OFF``: a chain burned it.
    """

    ISSUED = 0
    ATTACHED = 1
    RECEIVED = 2
    ACCEPTED = 3
    RETURNED = 4
    SENT = 5
    CLAIMED = 6
    FEE_HELD = 7
    FEE_BURNED = 8
    FEE_MINTED = 9
    FEE_PAID = 10
    FEE_SHARED = 11
    DEPOSIT_HELD = 12
    DEPOSIT_RELEASED = 13
    DEPOSIT_BURNED = 14
    NOTED = 15
    CONFIRMED = 16
    REFUSED = 17
    RECLAIMED = 18
    WRITTEN_OFF = 19


COSTS = (ValueReason.FEE_HELD, ValueReason.FEE_BURNED, ValueReason.DEPOSIT_HELD, ValueReason.DEPOSIT_RELEASED)
"""Why value leaves the account of a program, or comes back to it, other than with messages."""

ROOT_OWNER = 2**64 - 1
"""The number beside ``DEPOSITS`` of those that root has left."""

NO_INDEX = 2**64 - 1
"""In ``index``: the row is about no single message."""


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


VALUE_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("asset", pa.uint8()),
        _field("why", pa.uint8()),
        _field("from_holder", pa.uint8()),
        _field("from_number", pa.uint64()),
        _field("to_holder", pa.uint8()),
        _field("to_number", pa.uint64()),
        _field("amount_high", pa.uint64()),
        _field("amount_low", pa.uint64()),
        _field("source", pa.uint32()),
        _field("destination", pa.uint32()),
        _field("substream", pa.uint64()),
        _field("index", pa.uint64()),
    ]
)
"""One row a movement on ``chain``: of an amount that is not 0, from a holder to another (``Holder``, and a number).
``asset``: ``Asset``; ``why``: ``Why``. ``source``, ``destination``, ``substream``, ``index``: the message that moves
it. Without a message ``index`` is ``NO_INDEX``, and the ends are ``NO_CHAIN``, or those of the transfers booked."""
