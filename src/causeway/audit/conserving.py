"""The check ``conservation`` of messages: what is received of an asset, and paid out on the way, is what was sent."""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import Ints
from causeway.audit.bucket import Bucket
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools, code_of
from causeway.audit.findings import UNKNOWN, VIOLATED, Checked, Finding
from causeway.ledger.schema import VALUE, Event


def conservation(bucket: Bucket) -> Checked:
    """What is received of an asset is what was sent of it, message by message."""
    value = np.where(bucket.promised("conserved")[bucket.lane], bucket.messages.value, 0)
    rows, by = bucket.messages.value_row.astype(np.int64), bucket.messages.value_by
    found = [Finding("conservation", UNKNOWN, "amount_unseen", rows[value == 1])]
    found.append(Finding("conservation", VIOLATED, "asset_differs", rows[value == 2]))
    mixed = _partly_without_content(bucket, np.flatnonzero(np.isin(value, (3, 4, 8, 9))), len(value))
    found.append(Finding("conservation", UNKNOWN, "content_unseen", rows[mixed], by[mixed], "units"))
    value, examined = np.where(mixed, 0, value), bucket.count(value > 0)
    covered = _payments_covered(bucket, np.flatnonzero(value == 4), len(value))
    for verdict, reason, chosen in (
        (VIOLATED, "more_received", value == 3),
        (VIOLATED, "less_received", (value == 4) & covered),
        (UNKNOWN, "payments_not_covered", ((value == 4) & ~covered) | (value == 9)),
        (VIOLATED, "received_and_refunded", value == 5),
        (VIOLATED, "more_paid", value == 8),
    ):
        found.append(Finding("conservation", verdict, reason, rows[chosen], by[chosen], "units"))
    found += bucket.unsent("conservation", rows[value == 6])
    return Checked("conservation", examined, found)


def _partly_without_content(bucket: Bucket, messages: Ints, count: int) -> Bools:
    """Return which messages, of ``count``, have sent or received rows both with and without content: of some of them it
    is not known whether they say again what another one says. ``messages``: those to look at."""
    columns, found = bucket.columns, np.zeros(count, dtype=bool)
    if not len(messages):
        return found
    sizes = columns.starts[messages + 1] - columns.starts[messages]
    which = np.repeat(np.arange(len(messages)), sizes)
    rows = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + columns.starts[messages][which]
    for event in (Event.SENT, Event.RECEIVED):
        own = (columns.event[rows] == code_of(event)) & (columns.alive[rows] > 0)
        has = columns.has_content[rows] > 0
        with_it, without = (np.bincount(which[own & side], minlength=len(messages)) for side in (has, ~has))
        found[messages] |= (with_it > 0) & (without > 0)
    return found


def _payments_covered(bucket: Bucket, messages: Ints, count: int) -> Bools:
    """Return which messages have their sending and their receipt in the last window of value of the chain, and that of
    the sending, which has it in times too, goes on until the receipt, where there are such windows: what was paid out
    of them is in the input. ``messages``: those to look at, of ``count``."""
    columns, covered = bucket.columns, np.ones(count, dtype=bool)
    receipt = bucket.first(Event.RECEIVED)[messages]
    for event in (Event.SENT, Event.RECEIVED) if len(messages) else ():
        rows = bucket.first(event)[messages]
        for places, spans, _ in bucket.spans(rows, columns.chain[rows], VALUE):
            if spans.count:
                height, time = columns.height[rows[places]], columns.time[rows[places]]
                by_height = (height != NO_HEIGHT) & bool(len(spans.heights[0]))
                by_time = (time != NO_TIME) & spans.in_last_time(time)
                covered[messages[places]] &= np.where(by_height, spans.in_last_height(height), by_time)
                if event is Event.SENT:
                    came, lasts = columns.time[receipt[places]], spans.times[1]
                    reaches = by_time & (came <= lasts[-1]) & (came != NO_TIME) if len(lasts) else False
                    covered[messages[places]] &= reaches
    return covered


__all__ = ["conservation"]
