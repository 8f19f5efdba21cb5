"""The check ``delivery``: every message that was sent arrives, comes back, or is pending within its deadline.

Messages are judged by their state (``ledger.outcomes``). An open one is lost where nothing more will happen
(``settled``), and overdue where the input shows its destination for longer than the lane's deadline (``received``, or
the default ``expected``).
"""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import Array, Ints, among
from causeway.audit.bucket import Bucket
from causeway.audit.carrying import is_carried
from causeway.audit.columns import CONTROL, code_of
from causeway.audit.delays import MICROSECONDS, NEVER, NO_TIME, microseconds
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED, Checked, Finding
from causeway.audit.known import OVERDUE_UNDECIDED
from causeway.ledger.codes import Names
from causeway.ledger.outcomes import State
from causeway.ledger.schema import SETTLED, Event

ARRIVAL = (Event.EXECUTED, Event.FAILED, Event.ANSWERED, Event.REJECTED, Event.ACKNOWLEDGED)
"""With what a message is known to have arrived where no receipt was seen, the first that there is."""

_ARRIVED = (State.DELIVERED, State.EXECUTED, State.FAILED, State.ANSWERED, State.REJECTED, State.REFUNDED)


def delivery(bucket: Bucket) -> Checked:
    """Every message that a program sent is executed, answered, refunded, or pending within its deadline."""
    state = bucket.messages.state
    dropped = among(state, (State.DROPPED, State.DISCARDED))
    # What was dropped is lost, whether or not the input has its sending.
    row = bucket.first(Event.SENT)
    if dropped.any():
        row = np.where((row < 0) & dropped, bucket.first(Event.DROPPED), row)
    judged = (row >= 0) & ~bucket.forged
    judged &= bucket.columns.kind[np.maximum(row, 0)] != CONTROL
    sent = judged & bucket.has(Event.SENT)
    found = [
        *_lost(bucket, np.flatnonzero(judged & dropped)),
        *_open(bucket, np.flatnonzero(bucket.is_open & sent)),
        *_late(bucket, np.flatnonzero(sent & among(state, _ARRIVED))),
        Finding("delivery", NOTED, "failed", _failures(bucket, np.flatnonzero(sent & (state == State.FAILED)))),
        Finding("delivery", VIOLATED, "chain_stopped", bucket.columns.stopped),
    ]
    return Checked("delivery", bucket.count(judged), found)


def _lost(bucket: Bucket, messages: Ints) -> list[Finding]:
    """Return the messages that were dropped: as their protocol declares, or not."""
    rows = bucket.first(Event.DROPPED)[messages].astype(np.int64)
    if not len(rows):
        return []
    columns = bucket.columns
    names = Names()
    cause = names.codes(columns.rows.take(("detail",), rows)["detail"])
    declared = np.zeros(len(rows), bool)
    for lane, own in bucket.by_lane(rows):
        causes = [names.code(name) for name in bucket.known.promises.causes(lane)]
        declared[own] = np.isin(cause[own], causes)
    return [
        Finding("delivery", VIOLATED, "dropped", rows[~declared]),
        Finding("delivery", NOTED, "dropped_as_declared", rows[declared]),
    ]


def _open(bucket: Bucket, messages: Ints) -> list[Finding]:
    """Return the messages of which nothing says that they came or will not come."""
    rows = bucket.first(Event.SENT)[messages].astype(np.int64)
    if not len(rows):
        return []
    columns = bucket.columns
    lane = columns.lane[rows]
    carried, told = is_carried(bucket, rows)
    settled = bucket.promised(SETTLED)[lane] & ~columns.expired[rows] & ~carried
    limit = np.where(carried, -1, bucket.deadlines[0][lane])
    end, decided, whole = np.full(len(rows), NEVER), np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    last = bucket.known.windows.last
    for each, own in bucket.by_lane(rows):
        within, _ = bucket.known.promises.deadline(each)
        until = bucket.known.windows.arrivals_until(each, columns.time[rows[own]], within or 0)
        end[own], decided[own], whole[own] = until.end, until.recorded, until.to_the_end
        # That nothing more happens says nothing of arrivals that the input does not show.
        if until.declared and last is not None:
            whole[own] &= ~settled[own] | (until.end >= last)
    age, timed = microseconds(columns.time[rows], end)
    timed &= end != NEVER
    unseen = ~settled & (limit >= 0) & (columns.time[rows] == NO_TIME)
    overdue = ~settled & (limit >= 0) & timed & (age > limit)
    lost = settled & whole
    uncovered = ~unseen & ~overdue & ~whole & ~carried
    pending = ~(lost | unseen | overdue | uncovered)
    undecided = (lost | overdue) & (not told)
    lost, overdue = lost & told, overdue & told
    return [
        Finding("delivery", UNKNOWN, "not_compared", rows[undecided]),
        Finding("delivery", VIOLATED, "lost", rows[lost]),
        Finding("delivery", VIOLATED, "overdue", rows[overdue & decided], age[overdue & decided], MICROSECONDS),
        Finding(
            "delivery", UNKNOWN, OVERDUE_UNDECIDED, rows[overdue & ~decided], age[overdue & ~decided], MICROSECONDS
        ),
        Finding("delivery", UNKNOWN, "time_unseen", rows[unseen]),
        Finding("delivery", UNKNOWN, "arrival_not_covered", rows[uncovered]),
        Finding("delivery", NOTED, "pending", rows[pending & ~carried]),
        Finding("delivery", NOTED, "carried_on", rows[pending & carried]),
    ]


def _late(bucket: Bucket, messages: Ints) -> list[Finding]:
    """Return the messages that arrived after their deadline: violations where it is promised."""
    limits, promised = bucket.deadlines
    lane = bucket.lane[messages]
    messages, lane = messages[limits[lane] >= 0], lane[limits[lane] >= 0]
    if not len(messages):
        return []
    columns = bucket.columns
    arrived = arrivals(bucket)[messages].astype(np.int64)
    delay, seen = bucket.microseconds_between(bucket.first(Event.SENT)[messages], arrived)
    late = seen & (delay > limits[lane])
    found = []
    for verdict, chosen in ((VIOLATED, late & promised[lane]), (NOTED, late & ~promised[lane])):
        found.append(Finding("delivery", verdict, "late", arrived[chosen], delay[chosen], MICROSECONDS))
    unseen = ~seen & promised[lane] & (columns.time[arrived] == NO_TIME)
    return [*found, Finding("delivery", UNKNOWN, "time_unseen", arrived[unseen])]


def arrivals(bucket: Bucket) -> Array:
    """Return the row of each message with which it is known to have arrived, -1: none."""
    found = bucket.first(Event.RECEIVED)
    for event in ARRIVAL:
        if code_of(event) in bucket.columns.events:
            found = np.where(found >= 0, found, bucket.first(event))
    return found


def _failures(bucket: Bucket, messages: Ints) -> Ints:
    """Return the row of each of some messages with which it failed."""
    failed = bucket.first(Event.FAILED)[messages]
    return np.where(failed >= 0, failed, bucket.first(Event.EXECUTED)[messages]).astype(np.int64)


__all__ = ["arrivals", "delivery"]
