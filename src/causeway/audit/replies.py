"""What came of requests in their own lanes: of each its reply there, or for how long there was none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from causeway.audit.arrays import Array, Ints
from causeway.audit.bucket import Bucket
from causeway.audit.columns import NO_TIME, REQUEST, Bools
from causeway.audit.delays import microseconds
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.ledger.schema import Event
from causeway.model.order import groups_of


class Replies(NamedTuple):
    """What came of each message as a request: whether its lane promises an answer (``asked``), the row of its own lane
    that is its ``reply`` (-1: none), one of ``OUTCOMES`` with the ``row`` that it names and its ``magnitude``."""

    asked: Bools
    reply: Array
    outcome: Array
    row: Array
    magnitude: Array


NO_FINDING, LATE, WITHOUT_TIME, UNANSWERED, OPEN, PENDING = range(6)
OUTCOMES = {
    LATE: (VIOLATED, "late"),
    WITHOUT_TIME: (UNKNOWN, "time_unseen"),
    UNANSWERED: (VIOLATED, "unanswered"),
    OPEN: (UNKNOWN, "open"),
    PENDING: (NOTED, "pending"),
}
"""What may be found of a request: verdict and reason."""


NO_LIMIT = -1


def own_replies(bucket: Bucket, over_lanes: Bools | None = None) -> Replies:
    """Return what came of requests in their own lanes. ``over_lanes``: to which messages responses may come over other
    lanes; None: to none."""
    from causeway.audit.reply_loops import judge_replies

    columns = bucket.columns
    sent = bucket.first(Event.SENT)
    asked = bucket.promised("answered")[bucket.lane] & (sent >= 0) & ~bucket.forged
    asked &= columns.kind[np.maximum(sent, 0)] == REQUEST
    has_limit, limits = bucket.numbers("answered")
    limits = np.where(has_limit, limits, NO_LIMIT)
    acknowledged, timed_out = bucket.first(Event.ACKNOWLEDGED), bucket.first(Event.TIMED_OUT)
    reply = np.where(acknowledged >= 0, acknowledged, timed_out)
    outcome = np.full(len(sent), NO_FINDING, np.uint8)
    row, magnitude = np.where(reply >= 0, reply, sent), np.full(len(sent), np.nan)
    judge_replies(
        asked.view(np.uint8), bucket.lane, limits, sent, reply, columns.time, outcome, magnitude, LATE, WITHOUT_TIME
    )
    waiting = np.flatnonzero(asked & (reply < 0))
    age, declared = _age(bucket, sent[waiting], None if over_lanes is None else over_lanes[waiting])
    outcome[waiting] = waiting_outcome(age, limits[bucket.lane[waiting]], declared)
    magnitude[waiting] = np.where(age < 0, np.nan, age)
    return Replies(asked, reply, outcome, row, magnitude)


def waiting_outcome(age: Ints, limit: Ints, declared: Bools) -> Array:
    """Return what is found of requests without reply.

    Args:
        age: of each, in microseconds; -1: not known.
        limit: within which each is answered, in microseconds; ``NO_LIMIT``.
        declared: whether declared windows show that each waits at their end.
    """
    return np.where((limit != NO_LIMIT) & (age > limit), UNANSWERED, np.where(declared & (age >= 0), PENDING, OPEN))


def _age(bucket: Bucket, rows: Array, over_lanes: Bools | None) -> tuple[Ints, Bools]:
    """Return how old requests without reply are, at the end of what the input would show of replies to them
    (microseconds, -1 for one whose reply may have been missed), and whether declared windows show each until then."""
    columns = bucket.columns
    times, ends = columns.time[rows], np.full(len(rows), NO_TIME)
    declared = np.zeros(len(rows), bool)
    over = np.zeros(len(rows), bool) if over_lanes is None else over_lanes
    lanes, chains = columns.lane[rows], columns.chain[rows]
    order = np.lexsort((over, chains, lanes))
    groups = groups_of(lanes[order], chains[order], over[order])
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        own = order[begin : begin + count]
        lane, chain = columns.lanes[lanes[own[0]]], chains[own[0]]
        name = columns.chains[chain] if chain >= 0 else None
        until = bucket.known.windows.replies_until(name, lane, times[own], bool(over[own[0]]))
        ends[own], declared[own] = until.end, until.to_the_end & until.declared
    return age_until(times, ends), declared


def age_until(times: Ints, ends: Ints) -> Ints:
    """Return how old requests of some times are at the ends of windows: microseconds, -1 where that is not known."""
    return np.where((times == NO_TIME) | (ends < times), -1, microseconds(times, ends)[0])
