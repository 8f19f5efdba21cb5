"""The check ``agreement``: source and destination of a message report the same end.

A message ends once. It is acknowledged because its destination received it, or times out because its destination did
not, and never before its limit. A refund follows a failure or a time-out, and does not exceed the sent amount.
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
    """Return findings about exclusive ends of a message, and about excessive refunds.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        One finding for each reason, with empty ``rows`` where there is none; an empty list for a run without errors,
        failures, rejections, time-outs and refunds.
    """
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
    refund, amount = bucket.first(LedgerEvent.REFUNDED), _compare_refunds(bucket)
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
    """Return a mask of messages with an event in the rows of a mask."""
    columns, found = bucket.columns, np.zeros(len(bucket.lane), bool)
    if event_code(event) in columns.events:
        found[columns.message[(columns.event == event_code(event)) & (columns.alive > 0) & rows]] = True
    return found


def _rejected_there(bucket: BucketMessages) -> Bools:
    """Return a mask of messages both executed and rejected on one chain."""
    columns = bucket.columns
    rejected = bucket.first(LedgerEvent.REJECTED)
    found = np.zeros(len(rejected), bool)
    for event in EXECUTIONS:
        executed = bucket.first(event)
        both = (rejected >= 0) & (executed >= 0)
        chains = columns.chain[rejected[both]], columns.chain[executed[both]]
        found[both] |= (chains[0] >= 0) & (chains[0] == chains[1])
    return found


def _compare_refunds(bucket: BucketMessages) -> Ints:
    """Compare the refund of each message with the sent amount: -1, 0 or 1.

    0 also stands for unknown amounts and different assets.
    """
    columns, refunds, sends = bucket.columns, bucket.first(LedgerEvent.REFUNDED), bucket.first(LedgerEvent.SENT)
    found = np.zeros(len(refunds), np.int64)
    messages = np.flatnonzero((refunds >= 0) & (sends >= 0))
    refund, sent = refunds[messages], sends[messages]
    seen = (columns.has_amount[refund] > 0) & (columns.has_amount[sent] > 0)
    seen &= columns.asset[refund] == columns.asset[sent]
    messages, refund, sent = messages[seen], refund[seen], sent[seen]
    for limb in columns.limbs:  # least significant first, so that later limbs override
        differ = limb[refund] != limb[sent]
        found[messages[differ]] = np.where(limb[refund] > limb[sent], 1, -1)[differ]
    return found


ENDS = (LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT, LedgerEvent.REFUNDED)
"""Events that report the end of a message to its source."""

RECEIPT_EVENTS = (
    LedgerEvent.RECEIVED,
    LedgerEvent.EXECUTED,
    LedgerEvent.FAILED,
    LedgerEvent.ANSWERED,
    LedgerEvent.REJECTED,
    LedgerEvent.REDUNDANT,
)
"""Events that show the reception of a message at its destination."""


def check_agreement(bucket: BucketMessages) -> CheckResult:
    """Check "agreement": both chains report the same end, within the message's limits.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        Findings, and the number of sent messages with an end or a limit by lane.
    """
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
    """Return findings about acknowledgements without reception on another chain."""
    columns, windows = bucket.columns, bucket.known.windows
    rows = bucket.first(LedgerEvent.ACKNOWLEDGED)[messages].astype(np.int64)
    sent = bucket.first(LedgerEvent.SENT)[messages]
    remote, covered_chain, covered = (np.zeros(len(rows), bool) for _ in range(3))
    for lane, own in bucket.by_lane(rows):
        if lane[1] == lane[2]:
            continue
        spans = windows.arrivals(lane[2], lane)
        remote[own], covered_chain[own] = True, spans.count > 0
        times = columns.time[sent[own]], columns.time[rows[own]]
        seen = (times[0] != NO_TIME) & (times[1] != NO_TIME)
        covered[own] = seen & spans.share_time_window(*times)
    return [
        Finding("agreement", VIOLATED, "acknowledged_not_received", rows[covered]),
        Finding("agreement", UNKNOWN, RECEIPT_NOT_COVERED, rows[covered_chain & ~covered]),
        Finding("agreement", UNKNOWN, RECEIPT_UNDECIDED, rows[remote & ~covered_chain]),
    ]


def _too_early(bucket: BucketMessages, messages: Ints) -> list[Finding]:
    """Return findings about time-outs before the known limits."""
    columns, limits = bucket.columns, bucket.timeouts
    rows = bucket.first(LedgerEvent.TIMED_OUT)[messages].astype(np.int64)
    at, height, time = columns.time[rows], limits.height[messages], limits.time[messages]
    # Reaching one of two limits suffices.
    before_time = (at != NO_TIME) & ((time == NO_TIME) | (time_differences(at, time)[0] > bucket.slack(rows)))
    by_height = height != NO_HEIGHT
    early = before_time & ~by_height
    by_both = np.flatnonzero(before_time & by_height)
    early[by_both] = _height_after(bucket, rows[by_both]) < height[by_both]
    undecided = by_both if bucket.known.reached is None else by_both[:0]
    by = np.where(time == NO_TIME, np.nan, time.astype(np.float64) - at)
    return [
        Finding("agreement", VIOLATED, "timed_out_too_early", rows[early], by[early], MICROSECONDS),
        Finding("agreement", UNKNOWN, "not_compared", rows[undecided]),
    ]


def _height_after(bucket: BucketMessages, rows: Ints) -> Words:
    """Return the least height of a receipt on the destination after the time of each row.

    ``NO_HEIGHT`` stands for none. Times are compared within the clock tolerances.
    """
    found = np.full(len(rows), NO_HEIGHT)
    times = bucket.columns.time[rows] + bucket.slack(rows)
    for lane, own in bucket.by_lane(rows):
        reached = (bucket.known.reached or {}).get(lane[2] or "")
        if reached is not None:
            found[own] = reached.after(times[own])
    return found


def needs_destination_heights(bucket: BucketMessages) -> bool:
    """Return True if a message with a height limit timed out; other runs may show lower heights.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        True if the check of the time-outs needs heights of the destination.
    """
    return bool(
        (bucket.has(LedgerEvent.SENT) & bucket.has(LedgerEvent.TIMED_OUT) & (bucket.timeouts.height != NO_HEIGHT)).any()
    )


def _too_late(bucket: BucketMessages, messages: Ints) -> Finding:
    """Return findings about receipts after the time-out on the destination."""
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
    """Return findings about missing refunds of failed messages, in lanes that record refunds."""
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
