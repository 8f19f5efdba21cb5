"""The checks of single messages: exactly once, authenticity, causality, finality, answers.

``docs/reference/audit`` has a page for each. Facts beyond one bucket come from ``LaneContext``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from causeway.audit.arrays import MICROSECONDS, Array, Ints, time_differences
from causeway.audit.bucket import BucketMessages
from causeway.audit.checks.delivery import continued_mask
from causeway.audit.checks.replies import OUTCOMES, find_lane_replies
from causeway.audit.columns import Bools, event_code
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED, CheckResult, Finding
from causeway.ledger.schema import LedgerEvent

__all__ = ["find_partial_receipts"]


def find_partial_receipts(bucket: BucketMessages, again: Ints) -> Bools:
    """Return a mask of repeated rows that are partial receipts.

    The receipts of their message, all nonzero, add up to at most the sent amount of one asset.

    Args:
        bucket: Rows of a run and the outcome of its messages.
        again: Row numbers of repeated rows, int64.

    Returns:
        Mask, shape of ``again``.
    """
    columns, messages = bucket.columns, bucket.messages
    message, receipt = columns.message_of(again), columns.event[again] == event_code(LedgerEvent.RECEIVED)
    candidates = np.zeros(len(bucket.lane), bool)
    candidates[message[receipt]] = True
    candidates &= bucket.has(LedgerEvent.SENT) & (messages.undone == 0)
    chosen = np.flatnonzero(candidates)
    if not len(chosen):
        return np.zeros(len(again), bool)
    first = bucket.first(LedgerEvent.SENT)
    every, fits, totals = columns.rows_of(chosen), np.ones(len(chosen), bool), []
    every = every[columns.alive[every] > 0]
    for event in (LedgerEvent.SENT, LedgerEvent.RECEIVED):
        rows = every[columns.event[every] == event_code(event)]
        if event is LedgerEvent.SENT:
            rows = rows[messages.again[rows] == 0]  # once for each sent content
        own = np.searchsorted(chosen, columns.message_of(rows))
        amounts = sum(limb[rows].astype(object) << 64 * at for at, limb in enumerate(columns.limbs))
        asset = columns.asset[rows]
        unfit = (columns.has_amount[rows] == 0) | (asset < 0) | (asset != columns.asset[first[chosen[own]]])
        if event is LedgerEvent.RECEIVED:
            unfit |= amounts == 0
        fits[own[unfit]] = False
        total = np.zeros(len(chosen), object)
        np.add.at(total, own, amounts)
        totals.append(total)
    sent, received = totals
    refunded = bucket.refunds[chosen] >= 0
    candidates[chosen] = fits & (received <= sent).astype(bool) & ~(refunded & (received == sent).astype(bool))
    found: Bools = candidates[message] & receipt
    return found


ONCE = (
    LedgerEvent.SENT,
    LedgerEvent.RECEIVED,
    LedgerEvent.EXECUTED,
    LedgerEvent.FAILED,
    LedgerEvent.ANSWERED,
    LedgerEvent.ACKNOWLEDGED,
    LedgerEvent.TIMED_OUT,
    LedgerEvent.REFUNDED,
)
"""Events that happen to a message at most once."""

BEFORE = (
    (LedgerEvent.SENT, LedgerEvent.COMMITTED),
    (LedgerEvent.SENT, LedgerEvent.RECEIVED),
    (LedgerEvent.SENT, LedgerEvent.ACKNOWLEDGED),
    (LedgerEvent.SENT, LedgerEvent.TIMED_OUT),
    (LedgerEvent.SENT, LedgerEvent.REFUNDED),
    (LedgerEvent.RECEIVED, LedgerEvent.EXECUTED),
    (LedgerEvent.RECEIVED, LedgerEvent.FAILED),
    (LedgerEvent.RECEIVED, LedgerEvent.ANSWERED),
    (LedgerEvent.RECEIVED, LedgerEvent.ACKNOWLEDGED),
)
"""Pairs of cause and effect."""


def check_exactly_once(bucket: BucketMessages) -> CheckResult:
    """Check "exactly_once": a message is received once, and no event happens twice."""
    columns, messages = bucket.columns, bucket.messages
    found = []
    again = np.flatnonzero(messages.again)
    in_parts = find_partial_receipts(bucket, again)
    for event in ONCE:
        rows = again[~in_parts & (columns.event[again] == event_code(event))]
        found.append(Finding("exactly_once", VIOLATED, f"{event.value}_again", rows))
    relays = np.flatnonzero((columns.event == event_code(LedgerEvent.REDUNDANT)) & (columns.alive > 0))
    found.append(Finding("exactly_once", NOTED, "redundant_relay", relays))
    found.append(Finding("exactly_once", NOTED, "partial_receipt", again[in_parts]))
    received, timed_out = bucket.has(LedgerEvent.RECEIVED), bucket.has(LedgerEvent.TIMED_OUT)
    both = bucket.first(LedgerEvent.TIMED_OUT)[received & timed_out]
    found.append(Finding("exactly_once", VIOLATED, "timed_out_and_received", both))
    observed = (messages.flags & 2) > 0
    late = bucket.first(LedgerEvent.RECEIVED)[received & observed]
    found.append(Finding("exactly_once", UNKNOWN, "timeout_observed_and_received", late))
    pending = bucket.first(LedgerEvent.SENT)[bucket.is_open]
    seen, _ = continued_mask(bucket, pending)
    for lane, own in bucket.by_lane(pending):
        until = bucket.known.windows.arrivals_until(lane, columns.time[pending[own]])
        seen[own] |= until.to_the_end & until.declared
    found.append(Finding("exactly_once", UNKNOWN, "not_received", pending[~seen]))
    found.append(Finding("exactly_once", NOTED, "not_arrived", pending[seen]))
    happened = bucket.has(*ONCE)
    given_up = bucket.first(LedgerEvent.OBSERVED)[observed & ~happened]
    found.append(Finding("exactly_once", UNKNOWN, "timeout_observed", given_up))
    return CheckResult("exactly_once", bucket.count(happened | observed), found)


def check_authenticity(bucket: BucketMessages) -> CheckResult:
    """Check "authenticity": received messages were sent, with this content, to this chain."""
    status = bucket.messages.status
    reused = (bucket.messages.flags & 1) > 0
    sent, received = bucket.first(LedgerEvent.SENT), bucket.first(LedgerEvent.RECEIVED)
    named, too_many = np.where(sent >= 0, sent, received), bucket.messages.contents.astype(np.float64) - 1
    elsewhere = bucket.columns.elsewhere
    is_sent = bucket.columns.event[elsewhere] == event_code(LedgerEvent.SENT)
    found = [
        Finding("authenticity", VIOLATED, "content_differs", np.flatnonzero(status == 3)),
        Finding("authenticity", UNKNOWN, "content_unseen", np.flatnonzero(status == 2)),
        *bucket.unsent("authenticity", np.flatnonzero(status == 4)),
        Finding("authenticity", VIOLATED, "number_reused", named[reused], too_many[reused], "messages", placed=False),
        Finding("authenticity", VIOLATED, "wrong_chain", _without_moved(bucket, elsewhere[~is_sent])),
        Finding("authenticity", VIOLATED, "wrong_source", elsewhere[is_sent]),
    ]
    return CheckResult("authenticity", bucket.total(bucket.messages.receives), found)


def _without_moved(bucket: BucketMessages, rows: Array) -> Array:
    """Exclude rows of moved programs from rows outside of their lane's destination.

    A program takes its inputs along: messages received at the destination may be executed, fail or be answered on
    another chain.
    """
    if len(rows) == 0:
        return rows
    columns = bucket.columns
    receipt = bucket.first(LedgerEvent.RECEIVED)[columns.message[rows]]
    received = (receipt >= 0) & (columns.is_elsewhere[receipt] == 0)
    left: Array = rows[~received | (columns.event[rows] == event_code(LedgerEvent.RECEIVED))]
    return left


def check_causality(bucket: BucketMessages) -> CheckResult:
    """Check "causality": no effect precedes its cause, by height on one chain, else by time."""
    from causeway.audit.message_loops import NO_PLACE, TOO_SOON, compare_pairs

    columns = bucket.columns
    examined = np.zeros(len(columns.lanes), dtype=np.int64)
    pairs = np.zeros(len(bucket.lane), dtype=np.uint8)
    found = []
    for cause, effect in BEFORE:
        if event_code(effect) not in bucket.messages.firsts or event_code(cause) not in bucket.messages.firsts:
            continue
        rows: list[Array] = [
            bucket.messages.earliest if event is LedgerEvent.RECEIVED else bucket.first(event)
            for event in (cause, effect)
        ]
        one, other = rows
        clocks = bucket.messages.restarts, bucket.messages.tolerance
        compare_pairs(one, other, columns.chain, columns.height, columns.time, *clocks, pairs)
        examined += bucket.count(pairs > 0)
        wrong, unseen = np.flatnonzero(pairs == TOO_SOON), np.flatnonzero(pairs == NO_PLACE)
        between, seen = bucket.microseconds_between(other[wrong], one[wrong])
        by = np.where(seen, np.maximum(between, 0).astype(np.float64), np.nan)
        name = f"{effect.value}_before_{cause.value}"
        found.append(Finding("causality", VIOLATED, name, other[wrong], by, MICROSECONDS))
        found.append(Finding("causality", UNKNOWN, "place_unseen", other[unseen]))
    return CheckResult("causality", examined, found)


def check_finality(bucket: BucketMessages) -> CheckResult:
    """Check "finality": no message is received sooner after its sending than guaranteed."""
    has_number, least = bucket.numbers("final_after")
    both = has_number[bucket.lane] & bucket.has(LedgerEvent.SENT) & bucket.has(LedgerEvent.RECEIVED)
    one, other = bucket.first(LedgerEvent.SENT)[both], bucket.first(LedgerEvent.RECEIVED)[both]
    delay, seen = bucket.microseconds_between(one, other)
    promised = least[bucket.lane[both]]
    early = seen & (delay < promised)
    missing = time_differences(delay[early], promised[early])[0].astype(np.float64)
    # Add the part of the guarantee beyond the exact range.
    missing += (bucket.floats("final_after") - least.astype(np.float64))[bucket.lane[both]][early]
    found = [
        Finding("finality", VIOLATED, "too_early", other[early], missing, MICROSECONDS),
        Finding("finality", UNKNOWN, "time_unseen", other[~seen]),
    ]
    return CheckResult("finality", bucket.count(both), found)


def check_answers(bucket: BucketMessages) -> CheckResult:
    """Check "answers": each request of a lane with guaranteed answers gets one in time."""
    own = find_lane_replies(bucket)
    found = []
    for code, (verdict, reason) in OUTCOMES.items():
        chosen = own.outcome == code
        size = (own.magnitude[chosen], MICROSECONDS) if verdict == VIOLATED else (None, None)
        found.append(Finding("answers", verdict, reason, own.row[chosen], *size))
    return CheckResult("answers", bucket.count(own.asked), found)


def check_unrequested_answers(bucket: BucketMessages) -> CheckResult:
    """Check "answers_without_request": replies belong to sent messages."""
    replies = (LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT, LedgerEvent.ANSWERED)
    has = bucket.has(*replies)
    rows = bucket.first(replies[2])
    for event in replies[1::-1]:
        rows = np.where(bucket.first(event) >= 0, bucket.first(event), rows)
    found = bucket.unsent("answers_without_request", rows[has & ~bucket.has(LedgerEvent.SENT)].astype(np.int64))
    return CheckResult("answers_without_request", bucket.count(has), found)


MESSAGE_CHECKS: tuple[Callable[[BucketMessages], CheckResult], ...] = (
    check_exactly_once,
    check_authenticity,
    check_causality,
    check_finality,
    check_answers,
    check_unrequested_answers,
)
"""Checks of single messages; order, gaps and conservation are in their own modules."""
