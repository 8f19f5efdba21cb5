"""The checks of messages: what the messages of one bucket show, as rows that are named and counts.

docs/audit has a page for each; what needs to know more of a lane than one bucket has is asked of ``Known``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from causeway.audit.arrays import Array
from causeway.audit.bucket import Bucket
from causeway.audit.carrying import is_carried
from causeway.audit.columns import code_of
from causeway.audit.delays import MICROSECONDS, microseconds
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED, Checked, Finding
from causeway.audit.repeats import receipts_in_parts
from causeway.audit.replies import OUTCOMES, own_replies
from causeway.ledger.schema import Event

ONCE = (
    *(Event.SENT, Event.RECEIVED, Event.EXECUTED, Event.FAILED, Event.ANSWERED, Event.ACKNOWLEDGED, Event.TIMED_OUT),
    Event.REFUNDED,
)
"""What happens to a message at most once."""

BEFORE = (
    (Event.SENT, Event.COMMITTED), (Event.SENT, Event.RECEIVED), (Event.SENT, Event.ACKNOWLEDGED),
    (Event.SENT, Event.TIMED_OUT), (Event.SENT, Event.REFUNDED), (Event.RECEIVED, Event.EXECUTED),
    (Event.RECEIVED, Event.FAILED), (Event.RECEIVED, Event.ANSWERED), (Event.RECEIVED, Event.ACKNOWLEDGED),
)  # fmt: skip
"""What cannot happen before what."""


def exactly_once(bucket: Bucket) -> Checked:
    """Every message is received once, and nothing happens to it twice."""
    columns, messages = bucket.columns, bucket.messages
    found = []
    again = np.flatnonzero(messages.again)
    in_parts = receipts_in_parts(bucket, again)
    for event in ONCE:
        rows = again[~in_parts & (columns.event[again] == code_of(event))]
        found.append(Finding("exactly_once", VIOLATED, f"{event.value}_again", rows))
    relays = np.flatnonzero((columns.event == code_of(Event.REDUNDANT)) & (columns.alive > 0))
    found.append(Finding("exactly_once", NOTED, "redundant_relay", relays))
    found.append(Finding("exactly_once", NOTED, "partial_receipt", again[in_parts]))
    received, timed_out = bucket.has(Event.RECEIVED), bucket.has(Event.TIMED_OUT)
    both = bucket.first(Event.TIMED_OUT)[received & timed_out]
    found.append(Finding("exactly_once", VIOLATED, "timed_out_and_received", both))
    observed = (messages.flags & 2) > 0
    late = bucket.first(Event.RECEIVED)[received & observed]
    found.append(Finding("exactly_once", UNKNOWN, "timeout_observed_and_received", late))
    waiting = bucket.first(Event.SENT)[bucket.is_open]
    seen, _ = is_carried(bucket, waiting)
    for lane, own in bucket.by_lane(waiting):
        until = bucket.known.windows.arrivals_until(lane, columns.time[waiting[own]])
        seen[own] |= until.to_the_end & until.declared
    found.append(Finding("exactly_once", UNKNOWN, "not_received", waiting[~seen]))
    found.append(Finding("exactly_once", NOTED, "not_arrived", waiting[seen]))
    happened = bucket.has(*ONCE)
    given_up = bucket.first(Event.OBSERVED)[observed & ~happened]
    found.append(Finding("exactly_once", UNKNOWN, "timeout_observed", given_up))
    return Checked("exactly_once", bucket.count(happened | observed), found)


def authenticity(bucket: Bucket) -> Checked:
    """What is received was sent, with this content, to this chain, and no number stands for two contents."""
    status = bucket.messages.status
    reused = (bucket.messages.flags & 1) > 0
    sent, received = bucket.first(Event.SENT), bucket.first(Event.RECEIVED)
    named, too_many = np.where(sent >= 0, sent, received), bucket.messages.contents.astype(np.float64) - 1
    elsewhere = bucket.columns.elsewhere
    is_sent = bucket.columns.event[elsewhere] == code_of(Event.SENT)
    found = [
        Finding("authenticity", VIOLATED, "content_differs", np.flatnonzero(status == 3)),
        Finding("authenticity", UNKNOWN, "content_unseen", np.flatnonzero(status == 2)),
        *bucket.unsent("authenticity", np.flatnonzero(status == 4)),
        Finding("authenticity", VIOLATED, "number_reused", named[reused], too_many[reused], "messages", placed=False),
        Finding("authenticity", VIOLATED, "wrong_chain", _without_moved(bucket, elsewhere[~is_sent])),
        Finding("authenticity", VIOLATED, "wrong_source", elsewhere[is_sent]),
    ]
    return Checked("authenticity", bucket.total(bucket.messages.receives), found)


def _without_moved(bucket: Bucket, rows: Array) -> Array:
    """Return rows on another chain than their lane's destination, without those of programs that moved.

    A program takes its inputs along when it moves: what its lane's destination received may be executed, fail or be
    answered on another chain.
    """
    if len(rows) == 0:
        return rows
    columns = bucket.columns
    receipt = bucket.first(Event.RECEIVED)[columns.message[rows]]
    received = (receipt >= 0) & (columns.is_elsewhere[receipt] == 0)
    left: Array = rows[~received | (columns.event[rows] == code_of(Event.RECEIVED))]
    return left


def causality(bucket: Bucket) -> Checked:
    """Nothing happens before what it needs: by height on one chain, else by time."""
    from causeway.audit.message_loops import NO_PLACE, TOO_SOON, compare_pairs

    columns = bucket.columns
    examined = np.zeros(len(columns.lanes), dtype=np.int64)
    pairs = np.zeros(len(bucket.lane), dtype=np.uint8)
    found = []
    for cause, effect in BEFORE:
        if code_of(effect) not in bucket.messages.firsts or code_of(cause) not in bucket.messages.firsts:
            continue
        rows: list[Array] = [
            bucket.messages.earliest if event is Event.RECEIVED else bucket.first(event) for event in (cause, effect)
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
    return Checked("causality", examined, found)


def finality(bucket: Bucket) -> Checked:
    """A message is received no sooner after it was sent than its lane promises."""
    has_number, least = bucket.numbers("final_after")
    both = has_number[bucket.lane] & bucket.has(Event.SENT) & bucket.has(Event.RECEIVED)
    one, other = bucket.first(Event.SENT)[both], bucket.first(Event.RECEIVED)[both]
    delay, seen = bucket.microseconds_between(one, other)
    promised = least[bucket.lane[both]]
    early = seen & (delay < promised)
    missing = microseconds(delay[early], promised[early])[0].astype(np.float64)
    # Of numbers that are more than can be told apart.
    missing += (bucket.floats("final_after") - least.astype(np.float64))[bucket.lane[both]][early]
    found = [
        Finding("finality", VIOLATED, "too_early", other[early], missing, MICROSECONDS),
        Finding("finality", UNKNOWN, "time_unseen", other[~seen]),
    ]
    return Checked("finality", bucket.count(both), found)


def answers(bucket: Bucket) -> Checked:
    """Every request of a lane that promises it gets its answer, within the time promised."""
    own = own_replies(bucket)
    found = []
    for code, (verdict, reason) in OUTCOMES.items():
        chosen = own.outcome == code
        size = (own.magnitude[chosen], MICROSECONDS) if verdict == VIOLATED else (None, None)
        found.append(Finding("answers", verdict, reason, own.row[chosen], *size))
    return Checked("answers", bucket.count(own.asked), found)


def answers_without_request(bucket: Bucket) -> Checked:
    """What is answered, acknowledged or timed out was sent."""
    replies = (Event.ACKNOWLEDGED, Event.TIMED_OUT, Event.ANSWERED)
    has = bucket.has(*replies)
    rows = bucket.first(replies[2])
    for event in replies[1::-1]:
        rows = np.where(bucket.first(event) >= 0, bucket.first(event), rows)
    found = bucket.unsent("answers_without_request", rows[has & ~bucket.has(Event.SENT)].astype(np.int64))
    return Checked("answers_without_request", bucket.count(has), found)


CHECKS: tuple[Callable[[Bucket], Checked], ...] = (
    exactly_once,
    authenticity,
    causality,
    finality,
    answers,
    answers_without_request,
)
"""Checks of messages by themselves; order and gaps are in ``along``, conservation has its own file."""
