"""Receipts of a message in parts: several receipts whose amounts add up to what was sent are no double delivery."""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import Ints
from causeway.audit.bucket import Bucket
from causeway.audit.columns import Bools, code_of
from causeway.ledger.schema import Event


def receipts_in_parts(bucket: Bucket, again: Ints) -> Bools:
    """Return which repeated rows are receipts of parts: of messages whose receipts, none of them of nothing, add up to
    the sent amount of one asset, or to less."""
    columns, messages = bucket.columns, bucket.messages
    message, receipt = columns.message_of(again), columns.event[again] == code_of(Event.RECEIVED)
    asked = np.zeros(len(bucket.lane), bool)
    asked[message[receipt]] = True
    asked &= bucket.has(Event.SENT) & (messages.undone == 0)
    chosen = np.flatnonzero(asked)
    if not len(chosen):
        return np.zeros(len(again), bool)
    first = bucket.first(Event.SENT)
    every, fits, totals = columns.rows_of(chosen), np.ones(len(chosen), bool), []
    every = every[columns.alive[every] > 0]
    for event in (Event.SENT, Event.RECEIVED):
        rows = every[columns.event[every] == code_of(event)]
        if event is Event.SENT:
            rows = rows[messages.again[rows] == 0]  # each content that it was sent with, once
        own = np.searchsorted(chosen, columns.message_of(rows))
        amounts = sum(limb[rows].astype(object) << 64 * at for at, limb in enumerate(columns.limbs))
        asset = columns.asset[rows]
        unfit = (columns.has_amount[rows] == 0) | (asset < 0) | (asset != columns.asset[first[chosen[own]]])
        if event is Event.RECEIVED:
            unfit |= amounts == 0
        fits[own[unfit]] = False
        total = np.zeros(len(chosen), object)
        np.add.at(total, own, amounts)
        totals.append(total)
    sent, received = totals
    refunded = bucket.refunds[chosen] >= 0
    asked[chosen] = fits & (received <= sent).astype(bool) & ~(refunded & (received == sent).astype(bool))
    found: Bools = asked[message] & receipt
    return found


__all__ = ["receipts_in_parts"]
