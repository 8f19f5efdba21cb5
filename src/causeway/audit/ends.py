"""Ends of one message that exclude each other, and refunds of more than was sent."""

from __future__ import annotations

import numpy as np

from causeway.audit.arrays import Array, Ints, numbers
from causeway.audit.bucket import EXECUTIONS, Bucket
from causeway.audit.columns import REQUEST, Bools, code_of
from causeway.audit.findings import VIOLATED, Finding
from causeway.ledger.schema import REFUND_MESSAGES, Event

_UNDOING = (Event.FAILED, Event.REJECTED, Event.TIMED_OUT, Event.REFUNDED)


def contradictions(bucket: Bucket) -> list[Finding]:
    """Return the messages with two ends that exclude each other, and those of which more was refunded than sent."""
    columns = bucket.columns
    if not len(columns.errors) and not columns.events.intersection(map(code_of, _UNDOING)):
        return []
    sent = bucket.has(Event.SENT)
    sent[sent] = columns.kind[bucket.first(Event.SENT)[sent]] == REQUEST
    erred = columns.errors.view(bool) if len(columns.errors) else np.zeros(len(columns), bool)
    succeeded = np.asarray(columns.code.is_valid()) & (numbers(columns.code, 0) == 0)
    executed = _has(bucket, Event.EXECUTED, ~erred)
    failed = bucket.has(Event.FAILED) | _has(bucket, Event.EXECUTED, erred)
    good, bad = (_has(bucket, Event.ANSWERED, own) for own in (succeeded, erred))
    known_good, known_bad = (_has(bucket, Event.ACKNOWLEDGED, own) for own in (succeeded, erred))
    run = bucket.has(*EXECUTIONS)
    over = bucket.has(Event.TIMED_OUT)
    timed_out = over & ~bucket.has(Event.RECEIVED)
    refund, amount = bucket.first(Event.REFUNDED), _refund_beside_amount(bucket)
    returned = (refund >= 0) & (amount >= 0) & ~over & ~bucket.promised(REFUND_MESSAGES)[bucket.lane]
    well = (executed | (known_good & ~known_bad)) & ~failed & ~bad
    failure = np.where(bucket.has(Event.FAILED), bucket.first(Event.FAILED), bucket.first(Event.EXECUTED))
    reply = bucket.first(Event.ACKNOWLEDGED)
    return [
        _found(sent & executed & failed, "executed_and_failed", failure),
        _found(sent & run & _rejected_there(bucket), "executed_and_rejected", bucket.first(Event.REJECTED)),
        _found(sent & run & timed_out, "executed_and_timed_out", bucket.first(Event.TIMED_OUT)),
        _found(sent & well & returned, "executed_and_refunded", refund),
        _found(sent & failed & ~executed & known_good, "failed_and_acknowledged", reply),
        _found(sent & ((good & ~bad & known_bad) | (bad & ~good & known_good)), "acknowledged_another_answer", reply),
        _found(amount > 0, "refund_exceeds_amount", refund),
    ]


def _found(messages: Bools, reason: str, rows: Array) -> Finding:
    return Finding("agreement", VIOLATED, reason, rows[messages].astype(np.int64))


def _has(bucket: Bucket, event: Event, rows: Bools) -> Bools:
    """Return a mask of the messages with an event in the given rows (a mask)."""
    columns, found = bucket.columns, np.zeros(len(bucket.lane), bool)
    if code_of(event) in columns.events:
        found[columns.message[(columns.event == code_of(event)) & (columns.alive > 0) & rows]] = True
    return found


def _rejected_there(bucket: Bucket) -> Bools:
    """Return a mask of the messages that one chain both executed and rejected."""
    columns = bucket.columns
    rejected = bucket.first(Event.REJECTED)
    found = np.zeros(len(rejected), bool)
    for event in EXECUTIONS:
        executed = bucket.first(event)
        both = (rejected >= 0) & (executed >= 0)
        chains = columns.chain[rejected[both]], columns.chain[executed[both]]
        found[both] |= (chains[0] >= 0) & (chains[0] == chains[1])
    return found


def _refund_beside_amount(bucket: Bucket) -> Ints:
    """Return of each message -1, 0 or 1: whether its refund is of less, as much, or more than was sent.

    0 where one of the two was not seen, or they are of different assets.
    """
    columns, refunds, sends = bucket.columns, bucket.first(Event.REFUNDED), bucket.first(Event.SENT)
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


__all__ = ["contradictions"]
