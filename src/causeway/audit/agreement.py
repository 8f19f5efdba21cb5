"""The check ``agreement``: the source and the destination of a message report one end of it.

A message ends once: it is acknowledged because its destination took it, or it times out because its destination did
not, and never before the limit that it was sent with; a refund follows a failure or a time-out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Array, Ints, numbers, whole
from causeway.audit.bucket import Bucket
from causeway.audit.columns import NO_HEIGHT, Bools, code_of, placed_heights
from causeway.audit.delays import MICROSECONDS, NO_TIME, microseconds
from causeway.audit.findings import UNKNOWN, VIOLATED, Checked, Finding
from causeway.ledger.outcomes import State
from causeway.ledger.schema import REFUNDS_RECORDED, Event

ENDS = (Event.ACKNOWLEDGED, Event.TIMED_OUT, Event.REFUNDED)
"""With what the source of a message is told its end."""

TAKEN = (Event.RECEIVED, Event.EXECUTED, Event.FAILED, Event.ANSWERED, Event.REJECTED, Event.REDUNDANT)
"""With what a destination shows that it took a message."""

LIMITS = ("timeout_revision", "timeout_height", "timeout_time")


def agreement(bucket: Bucket) -> Checked:
    """The two chains of a message report one end of it, and none that its limits forbid."""
    sent = bucket.has(Event.SENT)
    height, time = _limits(bucket)
    limited = sent & ((height != NO_HEIGHT) | (time != NO_TIME))
    ended = sent & bucket.has(*ENDS)
    acknowledged, timed_out = bucket.has(Event.ACKNOWLEDGED), bucket.has(Event.TIMED_OUT)
    both = bucket.first(Event.TIMED_OUT)[ended & acknowledged & timed_out].astype(np.int64)
    found = [
        Finding("agreement", VIOLATED, "acknowledged_and_timed_out", both),
        *_unsupported(bucket, np.flatnonzero(ended & acknowledged & ~bucket.has(*TAKEN))),
        _too_early(bucket, np.flatnonzero(limited & timed_out), height, time),
        _too_late(bucket, np.flatnonzero(limited & bucket.has(Event.RECEIVED)), height, time),
        *_not_refunded(bucket, ended),
    ]
    return Checked("agreement", bucket.count(ended | limited), found)


def _unsupported(bucket: Bucket, messages: Ints) -> list[Finding]:
    """Return the acknowledgements of messages that another chain, their destination, did not take, where the input
    would show it."""
    columns, windows = bucket.columns, bucket.known.windows
    rows = bucket.first(Event.ACKNOWLEDGED)[messages].astype(np.int64)
    sent = bucket.first(Event.SENT)[messages]
    shown, covered = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for lane, own in bucket.by_lane(rows):
        if lane[1] == lane[2]:
            continue
        spans = windows.arrivals(lane[2], lane)
        shown[own] = spans.count > 0
        times = columns.time[sent[own]], columns.time[rows[own]]
        seen = (times[0] != NO_TIME) & (times[1] != NO_TIME)
        covered[own] = seen & spans.together_in_times(*times)
    return [
        Finding("agreement", VIOLATED, "acknowledged_not_received", rows[covered]),
        Finding("agreement", UNKNOWN, "receipt_not_covered", rows[shown & ~covered]),
    ]


def _limits(bucket: Bucket) -> tuple[Array, Array]:
    """Return the height and the time from which on each message may no longer be received; the greatest number where
    it has no such limit."""
    rows = bucket.columns.rows.read(LIMITS)
    nothing = [rows[name].null_count == rows.num_rows for name in LIMITS[1:]]
    count = len(bucket.lane)
    height, time = np.full(count, NO_HEIGHT), np.full(count, NO_TIME)
    if not nothing[0]:
        heights = placed_heights(numbers(whole(rows[LIMITS[1]]), NO_HEIGHT), whole(rows[LIMITS[0]]))
        height = _first_limit(bucket, heights, NO_HEIGHT)
    if not nothing[1]:
        times = whole(rows[LIMITS[2]]).cast(pa.timestamp("us", "UTC")).view(pa.int64())
        time = _first_limit(bucket, numbers(times, NO_TIME), NO_TIME)
    return height, time


def _first_limit(bucket: Bucket, values: Array, unseen: Any) -> Array:
    """Return the least value of the rows of each message, ``unseen`` where none has one."""
    columns = bucket.columns
    counts = (columns.alive > 0) & (columns.event != code_of(Event.REVERTED))
    found: Array = np.minimum.reduceat(np.where(counts, values, unseen), columns.starts[:-1])
    return found


def _too_early(bucket: Bucket, messages: Ints, height: Array, time: Array) -> Finding:
    """Return the time-outs of messages whose limits, as far as they are known, were not reached."""
    columns = bucket.columns
    rows = bucket.first(Event.TIMED_OUT)[messages].astype(np.int64)
    at, limit = columns.time[rows], time[messages]
    slack = _slack(bucket, rows)
    # One limit that was reached is enough.
    before_time = (limit == NO_TIME) | (microseconds(at, limit)[0] > slack)
    before_height = (height[messages] == NO_HEIGHT) | (_height_at(bucket, rows) < height[messages])
    early = (at != NO_TIME) & before_time & before_height
    by = np.where(limit == NO_TIME, np.nan, limit.astype(np.float64) - at)
    return Finding("agreement", VIOLATED, "timed_out_too_early", rows[early], by[early], MICROSECONDS)


def _too_late(bucket: Bucket, messages: Ints, height: Array, time: Array) -> Finding:
    """Return the receipts of messages that had timed out on their destination."""
    columns = bucket.columns
    rows = bucket.first(Event.RECEIVED)[messages].astype(np.int64)
    limit = time[messages]
    by_time = (columns.time[rows] != NO_TIME) & (limit != NO_TIME) & (columns.time[rows] >= limit)
    over = height[messages] != NO_HEIGHT
    by_height = over & (columns.height[rows] != NO_HEIGHT) & (columns.height[rows] >= height[messages])
    late = by_time | by_height
    by, seen = microseconds(limit, columns.time[rows])
    size = np.where(seen, np.maximum(by, 0).astype(np.float64), np.nan)
    return Finding("agreement", VIOLATED, "received_after_timeout", rows[late], size[late], MICROSECONDS)


def _height_at(bucket: Bucket, rows: Ints) -> Array:
    """Return a height that the destination of each row's lane had not passed at the time of the row, as far as receipts
    of the run show it; the greatest number where they do not."""
    columns = bucket.columns
    found = np.full(len(rows), NO_HEIGHT)
    received = np.flatnonzero((columns.event == code_of(Event.RECEIVED)) & (columns.alive > 0))
    placed = (columns.height[received] != NO_HEIGHT) & (columns.time[received] != NO_TIME)
    received = received[placed]
    of_lanes = {lane: received[own] for lane, own in bucket.by_lane(received)}
    for lane, own in bucket.by_lane(rows):
        shown = of_lanes.get(lane)
        if shown is None:
            continue
        order = np.argsort(columns.time[shown], kind="stable")
        times = columns.time[shown][order]
        # The least height of the receipts from a time on.
        heights = np.minimum.accumulate(columns.height[shown][order][::-1])[::-1]
        at = np.searchsorted(times, columns.time[rows[own]], side="left")
        found[own] = np.where(at < len(times), np.append(heights, NO_HEIGHT)[at], NO_HEIGHT)
    return found


def _slack(bucket: Bucket, rows: Ints) -> Ints:
    """Return by how many microseconds the clocks of the two chains of each row's lane may differ."""
    promises, columns = bucket.known.promises, bucket.columns
    of_lane = np.array([promises.tolerance(lane[1]) + promises.tolerance(lane[2]) for lane in columns.lanes], np.int64)
    return of_lane[columns.lane[rows]] if len(of_lane) else np.zeros(0, np.int64)


def _not_refunded(bucket: Bucket, ended: Bools) -> list[Finding]:
    """Return the messages that failed or timed out without a refund, in lanes that record refunds and carry value."""
    promised = bucket.promised(REFUNDS_RECORDED)[bucket.lane]
    failed = (bucket.messages.undone > 0) & bucket.has(Event.ACKNOWLEDGED)
    failed |= np.isin(bucket.messages.state, (State.TIMED_OUT, State.CONTRADICTED)) & bucket.has(Event.TIMED_OUT)
    sent = bucket.first(Event.SENT)
    carries = (sent >= 0) & (bucket.columns.has_amount[np.maximum(sent, 0)] > 0)
    messages = np.flatnonzero(ended & promised & failed & carries & ~bucket.has(Event.REFUNDED))
    timed_out = bucket.first(Event.TIMED_OUT)[messages]
    rows = np.where(timed_out >= 0, timed_out, bucket.first(Event.ACKNOWLEDGED)[messages]).astype(np.int64)
    return [Finding("agreement", VIOLATED, "not_refunded", rows)]


__all__ = ["agreement"]
