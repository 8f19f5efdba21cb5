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
    """Return which repeated rows are of messages whose receipts, none of them of nothing, add up to the sent amount of
    one asset, or to less."""
    columns, messages = bucket.columns, bucket.messages
    message = columns.message[again]
    asked = np.zeros(len(bucket.lane), bool)
    asked[message[columns.event[again] == code_of(Event.RECEIVED)]] = True
    asked &= bucket.has(Event.SENT) & (messages.undone == 0)
    if not asked.any():
        return asked[message]
    first = bucket.first(Event.SENT)
    totals = []
    for event in (Event.SENT, Event.RECEIVED):
        rows = np.flatnonzero((columns.event == code_of(event)) & (columns.alive > 0) & asked[columns.message])
        if event is Event.SENT:
            rows = rows[messages.again[rows] == 0]  # each content that it was sent with, once
        own = columns.message[rows]
        amounts = sum(limb[rows].astype(object) << 64 * at for at, limb in enumerate(columns.limbs))
        asset = columns.asset[rows]
        unfit = (columns.has_amount[rows] == 0) | (asset < 0) | (asset != columns.asset[first[own]])
        if event is Event.RECEIVED:
            unfit |= amounts == 0
        asked[own[unfit]] = False
        total = np.zeros(len(bucket.lane), object)
        np.add.at(total, own, amounts)
        totals.append(total)
    sent, received = totals
    refunded = bucket.refunds >= 0
    asked &= (received <= sent).astype(bool) & ~(refunded & (received == sent).astype(bool))
    return asked[message]


__all__ = ["Repeats", "repeats"]
