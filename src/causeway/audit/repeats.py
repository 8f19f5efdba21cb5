"""Rows that repeat an event of a message and do no harm: redundant relays, and receipts in parts.

A relayer that is late delivers a message once more, and nothing is executed again; a bridge may pay a message out in
several receipts whose amounts add up to what was sent. Neither is a double delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causeway.audit.arrays import Ints
from causeway.audit.columns import Bools, code_of
from causeway.ledger.codes import Names
from causeway.ledger.schema import Event

if TYPE_CHECKING:
    from causeway.audit.bucket import Bucket

EXECUTIONS = (Event.EXECUTED, Event.FAILED, Event.ANSWERED)
"""With what a destination shows that it executed a message."""

RELAYED = (Event.RECEIVED, Event.ACKNOWLEDGED)
"""What a relayer may bring again."""


def redundant_relays(bucket: Bucket) -> Ints:
    """Return the rows of a run that repeat a receipt or an acknowledgement, in a transaction of their own, of messages
    that were executed once; acknowledgements also of messages that were received once."""
    columns, messages = bucket.columns, bucket.messages
    again = np.flatnonzero(messages.again)
    event, message = columns.event[again], columns.message[again]
    if not np.isin(event, [code_of(each) for each in RELAYED]).any():
        return again[:0]
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
    return again[found]


_OTHER_CONTENT = 3
"""The status of a received row whose content no sending has (``message_loops.DIFFERS``)."""


def receipts_in_parts(bucket: Bucket, again: Ints) -> Bools:
    """Return which repeated rows are receipts of parts: of messages whose receipts, none of them of nothing, add up to
    the sent amount of one asset, or to less."""
    columns, messages = bucket.columns, bucket.messages
    message, receipt = columns.message[again], columns.event[again] == code_of(Event.RECEIVED)
    asked = np.zeros(len(bucket.lane), bool)
    asked[message[receipt]] = True
    asked &= bucket.has(Event.SENT) & (messages.undone == 0)
    if not asked.any():
        return np.zeros(len(again), bool)
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
    found: Bools = asked[message] & receipt
    return found


__all__ = ["receipts_in_parts", "redundant_relays"]
