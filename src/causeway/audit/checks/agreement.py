"""The check ``agreement``: the source and the destination of a message report one end of it.

A message ends once: it is acknowledged because its destination took it, or it times out because its destination did
not, and never before the limit that it was sent with; a refund follows a failure or a time-out.

Ends of one message that exclude each other, and refunds of more than was sent.
"""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import (
    MICROSECONDS,
    NO_TIME,
    Array,
    Ints,
    Words,
    is_one_of_codes,
    time_differences,
    to_numbers,
)
from causeway.audit.bucket import EXECUTIONS, BucketMessages
from causeway.audit.columns import NO_HEIGHT, REQUEST, Bools, event_code
from causeway.audit.findings import UNKNOWN, VIOLATED, CheckResult, Finding
from causeway.audit.lane_context import RECEIPT_NOT_COVERED, RECEIPT_UNDECIDED
from causeway.ledger.outcomes import MessageState
from causeway.ledger.schema import REFUND_MESSAGES, REFUNDS_RECORDED, LedgerEvent

__all__ = ["check_agreement", "find_contradictions", "needs_destination_heights"]

_UNDOING = (LedgerEvent.FAILED, LedgerEvent.REJECTED, LedgerEvent.TIMED_OUT, LedgerEvent.REFUNDED)


def find_contradictions(bucket: BucketMessages) -> list[Finding]:
    """Return the messages with two ends that exclude each other, and those of which more was refunded than sent."""
    columns = bucket.columns
    if not len(columns.errors) and not columns.events.intersection(map(event_code, _UNDOING)):
        return []
    sent = bucket.has(LedgerEvent.SENT)
    sent[sent] = columns.kind[bucket.first(LedgerEvent.SENT)[sent]] == REQUEST
    erred = columns.errors.view(bool) if len(columns.errors) else np.zeros(len(columns), bool)
    succeeded = np.asarray(columns.code.is_valid()) & (to_numbers(columns.code, 0) == 0)
    executed = _has(bucket, LedgerEvent.EXECUTED, ~erred)
    failed = bucket.has(LedgerEvent.FAILED) | _has(bucket, LedgerEvent.EXECUTED, erred)
    good, bad = (_has(bucket, LedgerEvent.ANSWERED, own) for own in (succeeded, erred))
    known_good, known_bad = (_has(bucket, LedgerEvent.ACKNOWLEDGED, own) for own in (succeeded, erred))
    run = bucket.has(*EXECUTIONS)
    over = bucket.has(LedgerEvent.TIMED_OUT)
    timed_out = over & ~bucket.has(LedgerEvent.RECEIVED)
    refund, amount = bucket.first(LedgerEvent.REFUNDED), _refund_beside_amount(bucket)
    returned = (refund >= 0) & (amount >= 0) & ~over & ~bucket.promised(REFUND_MESSAGES)[bucket.lane]
    well = (executed | (known_good & ~known_bad)) & ~failed & ~bad
    failure = np.where(
        bucket.has(LedgerEvent.FAILED), bucket.first(LedgerEvent.FAILED), bucket.first(LedgerEvent.EXECUTED)
    )
    reply = bucket.first(LedgerEvent.ACKNOWLEDGED)
    return [
        _found(sent & executed & failed, "executed_and_failed", failure),
        _found(sent & run & _rejected_there(bucket), "executed_and_rejected", bucket.first(LedgerEvent.REJECTED)),
        _found(sent & run & timed_out, "executed_and_timed_out", bucket.first(LedgerEvent.TIMED_OUT)),
        _found(sent & well & returned, "executed_and_refunded", refund),
        _found(sent & failed & ~executed & known_good, "failed_and_acknowledged", reply),
        _found(sent & ((good & ~bad & known_bad) | (bad & ~good & known_good)), "acknowledged_another_answer", reply),
        _found(amount > 0, "refund_exceeds_amount", refund),
    ]


def _found(messages: Bools, reason: str, rows: Array) -> Finding:
    return Finding("agreement", VIOLATED, reason, rows[messages].astype(np.int64))


def _has(bucket: BucketMessages, event: LedgerEvent, rows: Bools) -> Bools:
    """Return a mask of the messages with an event in the given rows (a mask)."""
    columns, found = bucket.columns, np.zeros(len(bucket.lane), bool)
    if event_code(event) in columns.events:
        found[columns.message[(columns.event == event_code(event)) & (columns.alive > 0) & rows]] = True
    return found


def _rejected_there(bucket: BucketMessages) -> Bools:
    """Return a mask of the messages that one chain both executed and rejected."""
    columns = bucket.columns
    rejected = bucket.first(LedgerEvent.REJECTED)
    found = np.zeros(len(rejected), bool)
    for event in EXECUTIONS:
        executed = bucket.first(event)
        both = (rejected >= 0) & (executed >= 0)
        chains = columns.chain[rejected[both]], columns.chain[executed[both]]
        found[both] |= (chains[0] >= 0) & (chains[0] == chains[1])
    return found


def _refund_beside_amount(bucket: BucketMessages) -> Ints:
    """Return of each message -1, 0 or 1: whether its refund is of less, as much, or more than was sent.

    0 where one of the two was not seen, or they are of different assets.
    """
    columns, refunds, sends = bucket.columns, bucket.first(LedgerEvent.REFUNDED), bucket.first(LedgerEvent.SENT)
    found = np.zeros(len(refunds), np.int64)
    messages = np.flatnonzero((refunds >= 0) & (sends >= 0))
    refund, sent = refunds[messages], sends[messages]
    seen = (columns.has_amount[refund] > 0) & (columns.has_amount[sent] > 0)
    seen &= columns.asset[refund] == columns.asset[sent]
    messages, refund, sent = messages[seen], refund[seen], sent[seen]
    for limb in columns.limbs:  # the lowest first: what a higher one says counts more
        differ = limb[refund] != limb[sent]
        found[messages[differ]] = np.where(limb[refund] > limb[sent], 1, -1)[differ]
    return found


ENDS = (LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT, LedgerEvent.REFUNDED)
"""With what the source of a message is told its end."""

RECEIPT_EVENTS = (
    LedgerEvent.RECEIVED,
    LedgerEvent.EXECUTED,
    LedgerEvent.FAILED,
    LedgerEvent.ANSWERED,
    LedgerEvent.REJECTED,
    LedgerEvent.REDUNDANT,
)
"""With what a destination shows that it took a message."""


def check_agreement(bucket: BucketMessages) -> CheckResult:
    """The two chains of a message report one end of it, and none that its limits forbid."""
    sent = bucket.has(LedgerEvent.SENT)
    limited = sent & ((bucket.timeouts.height != NO_HEIGHT) | (bucket.timeouts.time != NO_TIME))
    ended = sent & bucket.has(*ENDS)
    acknowledged, timed_out = bucket.has(LedgerEvent.ACKNOWLEDGED), bucket.has(LedgerEvent.TIMED_OUT)
    both = bucket.first(LedgerEvent.TIMED_OUT)[ended & acknowledged & timed_out].astype(np.int64)
    found = [
        Finding("agreement", VIOLATED, "acknowledged_and_timed_out", both),
        *_unsupported(bucket, np.flatnonzero(ended & acknowledged & ~bucket.has(*RECEIPT_EVENTS))),
        *_too_early(bucket, np.flatnonzero(limited & timed_out)),
        _too_late(bucket, np.flatnonzero(limited & bucket.has(LedgerEvent.RECEIVED))),
        *_not_refunded(bucket, ended),
        *find_contradictions(bucket),
    ]
    return CheckResult("agreement", bucket.count(ended | limited), found)


def _unsupported(bucket: BucketMessages, messages: Ints) -> list[Finding]:
    """Return the acknowledgements of messages that another chain, their destination, did not take, where the input
    would show it."""
    columns, windows = bucket.columns, bucket.known.windows
    rows = bucket.first(LedgerEvent.ACKNOWLEDGED)[messages].astype(np.int64)
    sent = bucket.first(LedgerEvent.SENT)[messages]
    abroad, shown, covered = (np.zeros(len(rows), bool) for _ in range(3))
    for lane, own in bucket.by_lane(rows):
        if lane[1] == lane[2]:
            continue
        spans = windows.arrivals(lane[2], lane)
        abroad[own], shown[own] = True, spans.count > 0
        times = columns.time[sent[own]], columns.time[rows[own]]
        seen = (times[0] != NO_TIME) & (times[1] != NO_TIME)
        covered[own] = seen & spans.share_time_window(*times)
    return [
        Finding("agreement", VIOLATED, "acknowledged_not_received", rows[covered]),
        Finding("agreement", UNKNOWN, RECEIPT_NOT_COVERED, rows[shown & ~covered]),
        Finding("agreement", UNKNOWN, RECEIPT_UNDECIDED, rows[abroad & ~shown]),
    ]


def _too_early(bucket: BucketMessages, messages: Ints) -> list[Finding]:
    """Return the time-outs of messages whose limits, as far as they are known, were not reached."""
    columns, limits = bucket.columns, bucket.timeouts
    rows = bucket.first(LedgerEvent.TIMED_OUT)[messages].astype(np.int64)
    at, height, time = columns.time[rows], limits.height[messages], limits.time[messages]
    # One limit that was reached is enough.
    before_time = (at != NO_TIME) & ((time == NO_TIME) | (time_differences(at, time)[0] > bucket.slack(rows)))
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


def _height_after(bucket: BucketMessages, rows: Ints) -> Words:
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


def needs_destination_heights(bucket: BucketMessages) -> bool:
    """Return whether any message of a run with a timeout height timed out; other runs may show lower heights."""
    return bool(
        (bucket.has(LedgerEvent.SENT) & bucket.has(LedgerEvent.TIMED_OUT) & (bucket.timeouts.height != NO_HEIGHT)).any()
    )


def _too_late(bucket: BucketMessages, messages: Ints) -> Finding:
    """Return the receipts of messages that had timed out on their destination."""
    columns, limits = bucket.columns, bucket.timeouts
    rows = bucket.first(LedgerEvent.RECEIVED)[messages].astype(np.int64)
    height, time = limits.height[messages], limits.time[messages]
    by_time = (columns.time[rows] != NO_TIME) & (time != NO_TIME) & (columns.time[rows] >= time)
    over = height != NO_HEIGHT
    by_height = over & (columns.height[rows] != NO_HEIGHT) & (columns.height[rows] >= height)
    late = by_time | by_height
    by, seen = time_differences(time, columns.time[rows])
    size = np.where(seen, np.maximum(by, 0).astype(np.float64), np.nan)
    return Finding("agreement", VIOLATED, "received_after_timeout", rows[late], size[late], MICROSECONDS)


def _not_refunded(bucket: BucketMessages, ended: Bools) -> list[Finding]:
    """Return the messages that failed or timed out without a refund, in lanes that record refunds and carry value."""
    promised = bucket.promised(REFUNDS_RECORDED)
    if not promised.any():
        return []
    failed = (bucket.messages.undone > 0) & bucket.has(LedgerEvent.ACKNOWLEDGED)
    ended_by_time = is_one_of_codes(bucket.messages.state, (MessageState.TIMED_OUT, MessageState.CONTRADICTED))
    failed |= ended_by_time & bucket.has(LedgerEvent.TIMED_OUT)
    sent = bucket.first(LedgerEvent.SENT)
    carries = (sent >= 0) & (bucket.columns.has_amount[np.maximum(sent, 0)] > 0)
    messages = np.flatnonzero(ended & promised[bucket.lane] & failed & carries & ~bucket.has(LedgerEvent.REFUNDED))
    timed_out = bucket.first(LedgerEvent.TIMED_OUT)[messages]
    rows = np.where(timed_out >= 0, timed_out, bucket.first(LedgerEvent.ACKNOWLEDGED)[messages]).astype(np.int64)
    return [Finding("agreement", VIOLATED, "not_refunded", rows)]
