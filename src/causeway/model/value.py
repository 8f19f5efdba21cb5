"""The log of value: every movement of value on a chain is one row, from who had it to who has it then.

Who has something is a holder and a number: ``Holder.ACCOUNT`` and a program, ``Holder.ABROAD`` and the chain at the
other end. A sum of a chain is what came to its holder less what left it, so that the log alone gives every balance.
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa


class Holder(IntEnum):
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
    *(Holder.ACCOUNT, Holder.REQUESTS, Holder.MESSAGES, Holder.OUTBOX_FEES, Holder.INBOX_FEES, Holder.DEPOSITS),
    *(Holder.REWARDS, Holder.OPERATOR, Holder.ROOT, Holder.SOVEREIGN, Holder.RESERVED),
)
"""Holders of what a chain has issued."""

OF_PROGRAMS = (Holder.ACCOUNT, Holder.REQUESTS, Holder.DEPOSITS)
OF_CHAINS = (Holder.ABROAD, Holder.BALANCE, Holder.SOVEREIGN, Holder.RESERVED)
OF_PAIRS = (Holder.UNCONFIRMED, Holder.CANCELLED)
"""Holders whose numbers are programs, positions of chains, and two positions."""


class Asset(IntEnum):
    """What moves: units of the protocol's asset, or what one chain has in its books about the units of others."""

    UNITS = 0
    BOOKED = 1


class Why(IntEnum):
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


COSTS = (Why.FEE_HELD, Why.FEE_BURNED, Why.DEPOSIT_HELD, Why.DEPOSIT_RELEASED)
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
