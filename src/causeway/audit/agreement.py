"""The check ``agreement``: the source and the destination of a message report one end of it.

A message ends once: it is acknowledged because its destination took it, or it times out because its destination did
not, and never before the limit that it was sent with; a refund follows a failure or a time-out.
"""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import Ints, Words, among
from causeway.audit.bucket import Bucket
from causeway.audit.columns import NO_HEIGHT, Bools
from causeway.audit.delays import MICROSECONDS, NO_TIME, microseconds
from causeway.audit.ends import contradictions
from causeway.audit.findings import UNKNOWN, VIOLATED, Checked, Finding
from causeway.audit.known import RECEIPT_NOT_COVERED, RECEIPT_UNDECIDED
from causeway.ledger.outcomes import State
from causeway.ledger.schema import REFUNDS_RECORDED, Event

ENDS = (Event.ACKNOWLEDGED, Event.TIMED_OUT, Event.REFUNDED)
"""With what the source of a message is told its end."""

TAKEN = (Event.RECEIVED, Event.EXECUTED, Event.FAILED, Event.ANSWERED, Event.REJECTED, Event.REDUNDANT)
"""With what a destination shows that it took a message."""


def agreement(bucket: Bucket) -> Checked:
    """The two chains of a message report one end of it, and none that its limits forbid."""
    sent = bucket.has(Event.SENT)
    limited = sent & ((bucket.timeouts.height != NO_HEIGHT) | (bucket.timeouts.time != NO_TIME))
    ended = sent & bucket.has(*ENDS)
    acknowledged, timed_out = bucket.has(Event.ACKNOWLEDGED), bucket.has(Event.TIMED_OUT)
    both = bucket.first(Event.TIMED_OUT)[ended & acknowledged & timed_out].astype(np.int64)
    found = [
        Finding("agreement", VIOLATED, "acknowledged_and_timed_out", both),
        *_unsupported(bucket, np.flatnonzero(ended & acknowledged & ~bucket.has(*TAKEN))),
        *_too_early(bucket, np.flatnonzero(limited & timed_out)),
        _too_late(bucket, np.flatnonzero(limited & bucket.has(Event.RECEIVED))),
        *_not_refunded(bucket, ended),
        *contradictions(bucket),
    ]
    return Checked("agreement", bucket.count(ended | limited), found)


def _unsupported(bucket: Bucket, messages: Ints) -> list[Finding]:
    """Return the acknowledgements of messages that another chain, their destination, did not take, where the input
    would show it."""
    columns, windows = bucket.columns, bucket.known.windows
    rows = bucket.first(Event.ACKNOWLEDGED)[messages].astype(np.int64)
    sent = bucket.first(Event.SENT)[messages]
    abroad, shown, covered = (np.zeros(len(rows), bool) for _ in range(3))
    for lane, own in bucket.by_lane(rows):
        if lane[1] == lane[2]:
            continue
        spans = windows.arrivals(lane[2], lane)
        abroad[own], shown[own] = True, spans.count > 0
        times = columns.time[sent[own]], columns.time[rows[own]]
        seen = (times[0] != NO_TIME) & (times[1] != NO_TIME)
        covered[own] = seen & spans.together_in_times(*times)
    return [
        Finding("agreement", VIOLATED, "acknowledged_not_received", rows[covered]),
        Finding("agreement", UNKNOWN, RECEIPT_NOT_COVERED, rows[shown & ~covered]),
        Finding("agreement", UNKNOWN, RECEIPT_UNDECIDED, rows[abroad & ~shown]),
    ]


def _too_early(bucket: Bucket, messages: Ints) -> list[Finding]:
    """Return the time-outs of messages whose limits, as far as they are known, were not reached."""
    columns, limits = bucket.columns, bucket.timeouts
    rows = bucket.first(Event.TIMED_OUT)[messages].astype(np.int64)
    at, height, time = columns.time[rows], limits.height[messages], limits.time[messages]
    # One limit that was reached is enough.
    before_time = (at != NO_TIME) & ((time == NO_TIME) | (microseconds(at, time)[0] > bucket.slack(rows)))
    by_height = height != NO_HEIGHT
    early = before_time & ~by_height
    asked = np.flatnonzero(before_time & by_height)
    early[asked] = _height_after(bucket, rows[asked]) < height[asked]
    undecided = asked if bucket.known.reached is None else asked[:0]
    by = np.where(time == NO_TIME, np.nan, time.astype(np.float64) - at)
    return [
        Finding("agreement", VIOLATED, "timed_out_too_early", rows[early], by[early], MICROSECONDS),
        Finding("agreement", UNKNOWN, "not_compared", rows[undecided]),
    ]


def _height_after(bucket: Bucket, rows: Ints) -> Words:
    """Return the least height at which the destination of each row's lane received anything after the row's time.

    ``NO_HEIGHT`` where nothing shows one. Times are compared with the tolerance of the chains' clocks.
    """
    found = np.full(len(rows), NO_HEIGHT)
    times = bucket.columns.time[rows] + bucket.slack(rows)
    for lane, own in bucket.by_lane(rows):
        reached = (bucket.known.reached or {}).get(lane[2] or "")
        if reached is not None:
            found[own] = reached.after(times[own])
    return found


def waits_for_heights(bucket: Bucket) -> bool:
    """Return whether any message of a run with a timeout height timed out; other runs may show lower heights."""
    return bool((bucket.has(Event.SENT) & bucket.has(Event.TIMED_OUT) & (bucket.timeouts.height != NO_HEIGHT)).any())


def _too_late(bucket: Bucket, messages: Ints) -> Finding:
    """Return the receipts of messages that had timed out on their destination."""
    columns, limits = bucket.columns, bucket.timeouts
    rows = bucket.first(Event.RECEIVED)[messages].astype(np.int64)
    height, time = limits.height[messages], limits.time[messages]
    by_time = (columns.time[rows] != NO_TIME) & (time != NO_TIME) & (columns.time[rows] >= time)
    over = height != NO_HEIGHT
    by_height = over & (columns.height[rows] != NO_HEIGHT) & (columns.height[rows] >= height)
    late = by_time | by_height
    by, seen = microseconds(time, columns.time[rows])
    size = np.where(seen, np.maximum(by, 0).astype(np.float64), np.nan)
    return Finding("agreement", VIOLATED, "received_after_timeout", rows[late], size[late], MICROSECONDS)


def _not_refunded(bucket: Bucket, ended: Bools) -> list[Finding]:
    """Return the messages that failed or timed out without a refund, in lanes that record refunds and carry value."""
    promised = bucket.promised(REFUNDS_RECORDED)
    if not promised.any():
        return []
    failed = (bucket.messages.undone > 0) & bucket.has(Event.ACKNOWLEDGED)
    ended_by_time = among(bucket.messages.state, (State.TIMED_OUT, State.CONTRADICTED))
    failed |= ended_by_time & bucket.has(Event.TIMED_OUT)
    sent = bucket.first(Event.SENT)
    carries = (sent >= 0) & (bucket.columns.has_amount[np.maximum(sent, 0)] > 0)
    messages = np.flatnonzero(ended & promised[bucket.lane] & failed & carries & ~bucket.has(Event.REFUNDED))
    timed_out = bucket.first(Event.TIMED_OUT)[messages]
    rows = np.where(timed_out >= 0, timed_out, bucket.first(Event.ACKNOWLEDGED)[messages]).astype(np.int64)
    return [Finding("agreement", VIOLATED, "not_refunded", rows)]


__all__ = ["agreement", "waits_for_heights"]
