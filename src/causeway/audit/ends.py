"""Ends of one message that exclude each other, and refunds that exceed what was sent."""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import Array, Ints, numbers, whole
from causeway.audit.bucket import EXECUTIONS, Bucket
from causeway.audit.columns import REQUEST, Bools, code_of
from causeway.audit.findings import VIOLATED, Finding
from causeway.ledger.schema import REFUND_MESSAGES, Event

_UNDOING = (Event.FAILED, Event.REJECTED, Event.TIMED_OUT, Event.REFUNDED)


def contradictions(bucket: Bucket) -> list[Finding]:
    """Return what says that a message ended in two ways of which one excludes the other."""
    columns = bucket.columns
    if not len(columns.errors) and not columns.events.intersection(map(code_of, _UNDOING)):
        return []
    sent = bucket.has(Event.SENT)
    sent[sent] = columns.kind[bucket.first(Event.SENT)[sent]] == REQUEST
    erred, succeeded = _coded(bucket)
    executed = _has(bucket, Event.EXECUTED, ~erred)
    failed = bucket.has(Event.FAILED) | _has(bucket, Event.EXECUTED, erred)
    good, bad = (_has(bucket, Event.ANSWERED, own) for own in (succeeded, erred))
    known_good, known_bad = (_has(bucket, Event.ACKNOWLEDGED, own) for own in (succeeded, erred))
    run = bucket.has(*EXECUTIONS)
    over = bucket.has(Event.TIMED_OUT)
    timed_out = over & ~bucket.has(Event.RECEIVED)
    returned = bucket.has(Event.REFUNDED) & ~over & ~bucket.promised(REFUND_MESSAGES)[bucket.lane] & ~_is_part(bucket)
    failure = np.where(bucket.has(Event.FAILED), bucket.first(Event.FAILED), bucket.first(Event.EXECUTED))
    return [
        _found(sent & executed & failed, "executed_and_failed", failure),
        _found(sent & run & _rejected_there(bucket), "executed_and_rejected", bucket.first(Event.REJECTED)),
        _found(sent & run & timed_out, "executed_and_timed_out", bucket.first(Event.TIMED_OUT)),
        _found(sent & executed & ~failed & ~bad & returned, "executed_and_refunded", bucket.first(Event.REFUNDED)),
        _found(sent & failed & ~executed & known_good, "failed_and_acknowledged", bucket.first(Event.ACKNOWLEDGED)),
        _found(
            sent & ((good & ~bad & known_bad) | (bad & ~good & known_good)),
            "acknowledged_another_answer",
            bucket.first(Event.ACKNOWLEDGED),
        ),
    ]


def excessive_refunds(bucket: Bucket) -> Finding:
    """Return the refunds of more than was sent, of the same asset."""
    rows = bucket.first(Event.REFUNDED).astype(np.int64)
    sent = bucket.first(Event.SENT).astype(np.int64)
    messages = np.flatnonzero((rows >= 0) & (sent >= 0))
    more = messages[_compared(bucket, rows[messages], sent[messages]) > 0]
    return Finding("agreement", VIOLATED, "refund_exceeds_amount", rows[more])


def _found(messages: Bools, reason: str, rows: Array) -> Finding:
    return Finding("agreement", VIOLATED, reason, rows[messages].astype(np.int64))


def _coded(bucket: Bucket) -> tuple[Bools, Bools]:
    """Return which rows have an error code, and which have the code 0."""
    columns = bucket.columns
    erred = columns.errors.view(bool) if len(columns.errors) else np.zeros(len(columns), bool)
    code = whole(columns.rows.read(("code",))["code"])
    return erred, np.asarray(code.is_valid()) & (numbers(code, 0) == 0)


def _has(bucket: Bucket, event: Event, rows: Bools) -> Bools:
    """Return which messages have an event among some rows."""
    columns, found = bucket.columns, np.zeros(len(bucket.lane), bool)
    if code_of(event) in columns.events:
        found[columns.message[(columns.event == code_of(event)) & (columns.alive > 0) & rows]] = True
    return found


def _rejected_there(bucket: Bucket) -> Bools:
    """Return which messages were rejected on the chain that executed them."""
    columns = bucket.columns
    rejected = bucket.first(Event.REJECTED)
    found = np.zeros(len(rejected), bool)
    for event in EXECUTIONS:
        executed = bucket.first(event)
        both = (rejected >= 0) & (executed >= 0)
        chains = columns.chain[rejected[both]], columns.chain[executed[both]]
        found[both] |= (chains[0] >= 0) & (chains[0] == chains[1])
    return found


def _is_part(bucket: Bucket) -> Bools:
    """Return the messages of which less was refunded than was sent."""
    rows, sent = bucket.first(Event.REFUNDED).astype(np.int64), bucket.first(Event.SENT).astype(np.int64)
    both = (rows >= 0) & (sent >= 0)
    found = np.zeros(len(rows), bool)
    found[both] = _compared(bucket, rows[both], sent[both]) < 0
    return found


def _compared(bucket: Bucket, one: Ints, other: Ints) -> Ints:
    """Return -1, 0 or 1: whether the amounts of rows are less than, equal to, or more than those of others; 0 where
    one was not seen, or they are of different assets."""
    columns = bucket.columns
    found = np.zeros(len(one), np.int64)
    for limb in columns.limbs:  # the lowest first: what a higher one says counts more
        differ = limb[one] != limb[other]
        found[differ] = np.where(limb[one] > limb[other], 1, -1)[differ]
    seen = (
        (columns.has_amount[one] > 0) & (columns.has_amount[other] > 0) & (columns.asset[one] == columns.asset[other])
    )
    return np.where(seen, found, 0)


__all__ = ["contradictions", "excessive_refunds"]
