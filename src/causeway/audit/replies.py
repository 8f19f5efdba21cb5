"""What came of requests in their own lanes: of each its reply there, or for how long there was none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from causeway.audit.arrays import Array, Ints
from causeway.audit.bucket import Bucket
from causeway.audit.columns import NO_TIME, REQUEST, Bools
from causeway.audit.delays import microseconds
from causeway.ledger.schema import Event


class Replies(NamedTuple):
    """What came of each message as a request: whether its lane promises an answer (``asked``), the row of its own lane
    that is its ``reply`` (-1: none), one of ``OUTCOMES`` with the ``row`` that it names and its ``magnitude``."""

    asked: Bools
    reply: Array
    outcome: Array
    row: Array
    magnitude: Array


NO_FINDING, LATE, WITHOUT_TIME, UNANSWERED, OPEN = range(5)
OUTCOMES = {LATE: "late", WITHOUT_TIME: "time_unseen", UNANSWERED: "unanswered", OPEN: "open"}
"""What may be found of a request."""


def own_replies(bucket: Bucket, over_lanes: Bools | None = None) -> Replies:
    """Return what came of requests in their own lanes. ``over_lanes``: to which messages responses may come over other
    lanes; None: to none."""
    columns = bucket.columns
    sent = bucket.first(Event.SENT)
    asked = bucket.promised("answered")[bucket.lane] & (sent >= 0)
    asked &= columns.kind[np.maximum(sent, 0)] == REQUEST
    has_limit, limits = bucket.numbers("answered")
    limited, limit = asked & has_limit[bucket.lane], limits[bucket.lane]
    acknowledged, timed_out = bucket.first(Event.ACKNOWLEDGED), bucket.first(Event.TIMED_OUT)
    reply = np.where(acknowledged >= 0, acknowledged, timed_out)
    outcome = np.where(asked & (reply < 0), OPEN, NO_FINDING)
    row, magnitude = np.where(reply >= 0, reply, sent), np.full(len(sent), np.nan)
    came = np.flatnonzero(limited & (reply >= 0))
    delay, seen = bucket.microseconds_between(sent[came], reply[came])
    outcome[came[seen & (delay > limit[came])]] = LATE
    outcome[came[~seen]] = WITHOUT_TIME
    magnitude[came] = np.where(seen, delay, np.nan)
    waiting = np.flatnonzero(limited & (reply < 0))
    age = _age(bucket, sent[waiting], None if over_lanes is None else over_lanes[waiting])
    over = waiting[age > limit[waiting]]
    outcome[over] = UNANSWERED
    magnitude[waiting] = np.where(age < 0, np.nan, age)
    return Replies(asked, reply, outcome, row, magnitude)


def _age(bucket: Bucket, rows: Array, over_lanes: Bools | None) -> Ints:
    """Return how old requests without reply are, at the end of the windows that have their sending and would show a
    reply: microseconds, -1 for one whose reply may have been missed."""
    columns = bucket.columns
    times = columns.time[rows]
    ends = np.full(len(rows), NO_TIME)
    shown_by = [(Event.ACKNOWLEDGED, np.arange(len(rows))), (Event.TIMED_OUT, np.arange(len(rows)))]
    if over_lanes is not None:
        shown_by.append((Event.RECEIVED, np.flatnonzero(over_lanes)))
    for event, which in shown_by:
        every = event is Event.RECEIVED
        for places, spans, _ in bucket.spans(rows[which], columns.chain[rows[which]], event, every=every):
            own = which[places]
            ends[own] = np.minimum(ends[own], spans.ends_of(times[own]))
    return age_until(times, ends)


def age_until(times: Ints, ends: Ints) -> Ints:
    """Return how old requests of some times are at the ends of windows: microseconds, -1 where that is not known."""
    return np.where((times == NO_TIME) | (ends < times), -1, microseconds(times, ends)[0])
