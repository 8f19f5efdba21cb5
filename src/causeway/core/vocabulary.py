"""Vocabulary of the ledger: message events, reject codes and value movements.

An event row lists the events of a message on a chain at a height as a bit set, because a message is mostly received and
executed in the same round. The ledger view has one row an event.

``RejectCode`` names why a call was not served in terms of all protocols; each protocol maps its own codes to it
(``protocols.registry``).

The value log has one row for every movement of value on a chain, from one holder to another. A holder is a kind and a
number: ``ValueHolder.ACCOUNT`` and a program, ``ValueHolder.ABROAD`` and the chain at the other end. The balance of a
holder is the sum of its incoming less its outgoing rows, so the log alone gives every balance.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum, IntFlag

import pyarrow as pa
from causeway_proofs.kinds import Kind as Kind


class Event(IntFlag):
    """Lifecycle events of a message."""

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
    """How a message entered its receiver's queue."""

    NONE = 0
    LANE = 1
    LOOPBACK = 2
    SYNTHETIC = 3
    INGRESS = 4
    TIMEOUT = 5


NO_CHAIN = 2**32 - 1
"""Placeholder in columns of chains for events without a lane."""

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
"""Rows of the log table ``events``.

``chain``: chain of the event. ``events``: a set of ``Event``. ``source``, ``destination``: ends of the message's lane
(``NO_CHAIN``: none); ``substream``, ``index``: its position there. ``sender``, ``receiver``, ``callback``: with
``kind`` the message's identity. Refused ingress has its position in the chain's payload of that tick, from 1, as both
``index`` and ``callback``. ``amount_high``, ``amount_low``: value attached to the request or refunded by the response,
so that the log alone shows transfers and losses; for the end of a program (control, DROPPED) its balance, in several
rows beyond 128 bits. ``queue_index``: position in the queue of the event (input queue for received and executed, output
queue for sent). ``code``: reject code or 0. ``reason``: stable name of a reason, cause or error, or empty.
"""

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
"""One row a handler call that raised.

``program`` on ``chain`` handled the message named by ``kind``, ``sender`` and ``callback``. ``handler``: the method;
``error``: its exception; ``file`` and ``line``: place in the program. A deliberate reject is not a failure. No root
depends on these rows.
"""

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
"""One row a range of indices that ``chain`` collected: ``begin`` to ``end`` - 1.

``what`` 0: messages of a lane, acknowledged and removed from it, by their source. ``what`` 1: signals about messages of
a lane, by their destination.
"""

REVERTED_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("first", pa.uint64(), nullable=False),
        pa.field("last", pa.uint64(), nullable=False),
    ]
)
"""One row a fork of ``chain``, at the height of the row, that reverted blocks.

The blocks are those of heights ``first`` to ``last``, inclusive. What the chain logged there, and in lanes that it is
the source of, is void.
"""

REVERTED = "reverted"
"""The log table of these rows; also the name of a reverted event in the ledger."""

COLLECTED_MESSAGES = 0
COLLECTED_SIGNALS = 1


class RejectCode(Enum):
    """Why a call was not served, in terms of all protocols."""

    NOT_FOUND = "not_found"
    """No program has the called name or number, or none is installed under it."""
    REFUSED = "refused"
    """The program refused: it raised ``Reject``, or answered with one."""
    FAILED = "failed"
    """The program's handler raised an error, or omitted a required answer."""
    TIMED_OUT = "timed_out"
    """The call expired before its delivery."""
    NO_FUNDS = "no_funds"
    """The caller cannot pay the call's cost or amount."""
    UNREACHABLE = "unreachable"
    """No route to the chain: no open channel or connection, or it is not allowed."""
    BUSY = "busy"
    """A temporary state: a full queue, a program being moved. A retry may succeed."""
    TOO_LARGE = "too_large"
    """The call or its answer exceeds the protocol's size limit."""
    INVALID = "invalid"
    """The receiver cannot process the call: malformed, of unknown type, or from a false sender."""
    OTHER = "other"
    """Anything else: see the protocol's own code and text."""


PortableCode = Callable[[int, bytes], RejectCode]
"""Maps a protocol's reject code and text to a ``RejectCode``.

With code 0 the text alone states why a user message entered no queue.
"""


class ValueHolder(IntEnum):
    """Holders of value, and the meaning of the number beside each.

    For the asset ``UNITS``: ``NOWHERE``: value not issued. ``ABROAD`` (position of a chain): value sent to that chain
    less value received from it. ``BURNED``: value burned for good. All others hold issued value: ``ACCOUNT`` (a
    program). ``REQUESTS`` (a program): attached to requests that it has not answered. ``MESSAGES``: attached to
    messages that have not left the chain. ``OUTBOX_FEES``, ``INBOX_FEES``: held until a response, until an
    acknowledgement. ``DEPOSITS`` (a program, or ``ROOT_OWNER``): held for its channels. ``REWARDS``: due to operators,
    who share it in the same block. ``OPERATOR`` (its number). ``ROOT``: account of the chain's governance.
    ``SOVEREIGN`` (position of a chain): its account on the chain that routes its messages. ``RESERVED`` (the same): the
    part of it held for channels.

    For the asset ``BOOKED``: ``BALANCE`` (position of a chain). ``UNCONFIRMED`` and ``CANCELLED``: transfers from one
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
"""Holders of issued value."""

PROGRAM_HOLDERS = (ValueHolder.ACCOUNT, ValueHolder.REQUESTS, ValueHolder.DEPOSITS)
"""Holders numbered by program."""
CHAIN_HOLDERS = (ValueHolder.ABROAD, ValueHolder.BALANCE, ValueHolder.SOVEREIGN, ValueHolder.RESERVED)
"""Holders numbered by chain position."""
PAIR_HOLDERS = (ValueHolder.UNCONFIRMED, ValueHolder.CANCELLED)
"""Holders numbered by two chain positions."""


class Asset(IntEnum):
    """The asset moved: units of the protocol, or one chain's books about units of others."""

    UNITS = 0
    BOOKED = 1


class ValueReason(IntEnum):
    """Reasons of value movements.

    ``ISSUED``: at genesis. ``ATTACHED``: a program attaches it to a call. ``RECEIVED``: it arrives with a message.
    ``ACCEPTED``: a program accepts it from a request. ``RETURNED``: refunded with the answer. ``SENT``: it leaves with
    a message. ``CLAIMED``: it returns, since the message was refused. ``FEE_HELD``, ``FEE_BURNED``, ``FEE_MINTED``,
    ``FEE_PAID``, ``FEE_SHARED``: the fee for the response, the fee for the request, that fee at the destination, the
    fee due to operators, the share of each. ``DEPOSIT_HELD``, ``DEPOSIT_RELEASED``, ``DEPOSIT_BURNED``: for a channel.

    In books: ``NOTED``: a transfer left. ``CONFIRMED``: it arrived. ``REFUSED``: it was refused. ``RECLAIMED``: it was
    returned. ``WRITTEN_OFF``: a chain burned it.
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
"""Reasons that move value from or to a program's account without a message."""

ROOT_OWNER = 2**64 - 1
"""Number beside ``DEPOSITS`` for deposits of the chain's root."""

NO_INDEX = 2**64 - 1
"""Value of ``index`` in rows that concern no single message."""


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
"""One row a movement of a nonzero amount on ``chain``, from one holder to another.

A holder is a ``ValueHolder`` and a number. ``asset``: ``Asset``; ``why``: ``ValueReason``. ``source``, ``destination``,
``substream``, ``index``: the message that moves the amount. Without a message ``index`` is ``NO_INDEX``, and the ends
are ``NO_CHAIN``, or those of the booked transfers.
"""
