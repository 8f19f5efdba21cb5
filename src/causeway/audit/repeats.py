"""Rows that repeat an event of a message and do no harm: redundant relays, and receipts in parts.

A relayer that is late delivers a message once more, and nothing is executed again; a bridge may pay a message out in
several receipts whose amounts add up to what was sent. Neither is a double delivery.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from causeway.audit.arrays import Ints
from causeway.audit.bucket import Bucket
from causeway.audit.columns import code_of
from causeway.ledger.codes import Names
from causeway.ledger.schema import Event

EXECUTIONS = (Event.EXECUTED, Event.FAILED, Event.ANSWERED)
"""With what a destination shows that it executed a message."""

RELAYED = (Event.RECEIVED, Event.ACKNOWLEDGED)
"""What a relayer may bring again."""


class Repeats(NamedTuple):
    """Rows that repeat an event. ``redundant``: relays of what happened once at its destination; ``partial``: receipts
    whose amounts add up to no more than what was sent; ``again``: all others."""

    redundant: Ints
    partial: Ints
    again: Ints


def repeats(bucket: Bucket) -> Repeats:
    """Return the rows of a run that repeat an event of their message."""
    columns, messages = bucket.columns, bucket.messages
    again = np.flatnonzero(messages.again)
    if not len(again):
        return Repeats(again, again, again)
    redundant = _redundant(bucket, again)
    partial = _partial(bucket, again) & ~redundant
    received_again = columns.event[again] == code_of(Event.RECEIVED)
    return Repeats(again[redundant], again[partial & received_again], again[~redundant & ~(partial & received_again)])


def _redundant(bucket: Bucket, again: Ints) -> np.ndarray:
    """Return which repeated rows are relays, in a transaction of their own, of messages that were executed once, or of
    which only the acknowledgement was repeated."""
    columns, messages = bucket.columns, bucket.messages
    event, message = columns.event[again], columns.message[again]
    executed_again, taken_again = np.zeros(len(bucket.lane), bool), np.zeros(len(bucket.lane), bool)
    executed_again[message[np.isin(event, [code_of(each) for each in EXECUTIONS])]] = True
    taken_again[message[event == code_of(Event.RECEIVED)]] = True
    executed_once = bucket.has(*EXECUTIONS) & ~executed_again
    received_once = bucket.has(Event.RECEIVED) & ~taken_again & ~executed_again
    found = np.zeros(len(again), bool)
    for each in RELAYED:
        once = executed_once if each is Event.RECEIVED else executed_once | received_once
        own = np.flatnonzero(once[message] & (event == code_of(each)) & (messages.status[again] != _OTHER_CONTENT))
        if not len(own):
            continue
        first = bucket.first(each)[message[own]]
        names = Names()
        one, other = (
            names.codes(columns.rows.take(("transaction",), rows)["transaction"]) for rows in (again[own], first)
        )
        found[own] = (one >= 0) & (other >= 0) & (one != other)
    return found


_OTHER_CONTENT = 3
"""The status of a received row whose content no sending has (``message_loops.DIFFERS``)."""


def _partial(bucket: Bucket, again: Ints) -> np.ndarray:
    """Return which repeated rows are of messages whose receipts, none of them of nothing, add up to what was sent or
    less."""
    columns, messages = bucket.columns, bucket.messages
    message = columns.message[again]
    found = np.isin(messages.value[message], (_EVEN, _LESS)) & bucket.has(Event.SENT)[message]
    found &= messages.undone[message] == 0
    if not found.any():
        return found
    received = np.flatnonzero((columns.event == code_of(Event.RECEIVED)) & (columns.alive > 0))
    nothing = np.ones(len(received), bool)
    for limb in columns.limbs:
        nothing &= limb[received] == 0
    empty = np.zeros(len(bucket.lane), bool)
    empty[columns.message[received[nothing | (columns.has_amount[received] == 0)]]] = True
    return found & ~empty[message]


_LESS, _EVEN = 4, 7
"""What the value of a message comes to (``message_loops``)."""


__all__ = ["Repeats", "repeats"]
