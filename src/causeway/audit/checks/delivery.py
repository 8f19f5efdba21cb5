"""The check ``delivery``: every sent message arrives, returns, or is pending in time.

Messages are checked by their state (``ledger.outcomes``). An open one is lost where nothing more will happen
(``settled``). It is overdue where the input covers its destination for longer than the lane's deadline (``received``,
or the default ``expected``).

A message may continue under a new id (``continues``), and shares the fate of the new message, possibly in another
bucket. So the first pass collects the names, and the second one re-checks runs with open messages. In the same way,
receipts show the heights of destinations over time; they decide time-outs by height in the second pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows

from causeway.audit.arrays import (
    MICROSECONDS,
    MIN_DELAY,
    NO_TIME,
    Array,
    Ints,
    Words,
    is_one_of_codes,
    time_differences,
)
from causeway.audit.bucket import BucketMessages, text_digests
from causeway.audit.columns import CONTROL, NO_HEIGHT, Bools, event_code
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED, CheckResult, Finding
from causeway.audit.lane_context import OVERDUE_UNDECIDED, ContinuedNames, ReachedHeights
from causeway.ledger.encodings import NameCodes
from causeway.ledger.outcomes import MessageState
from causeway.ledger.schema import SETTLED, LedgerEvent

__all__ = [
    "CONTINUATIONS_SCHEMA",
    "REACHED_SCHEMA",
    "are_too_many_heights",
    "are_too_many_names",
    "check_delivery",
    "continued_mask",
    "find_arrivals",
    "find_continuations",
    "find_reached_heights",
    "merge_reached_heights",
    "resolve_continuations",
]

CONTINUATIONS_SCHEMA = pa.schema([("name", pa.uint64()), ("by", pa.uint64()), ("time", pa.int64())])
"""One row for each pair of a continued and a continuing message. ``name``, ``by``: digests of protocol and id,
``by`` null without id; ``time``: send time of the continuing message in microseconds, ``NO_TIME``: unknown. A row
without name stands for more than ``MAX_NAMES`` rows."""

MAX_NAMES = 1 << 24
"""Maximum number of names of a ledger. Above it, continuations are unknown."""


def find_continuations(bucket: BucketMessages) -> pa.Table:
    """Return the messages that sendings of a run continue (``CONTINUATIONS_SCHEMA``).

    Forged messages and protocol messages continue nothing: no check covers their arrival.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        One row a pair (``CONTINUATIONS_SCHEMA``).
    """
    columns = bucket.columns
    if not columns.rows.has("continues"):
        return CONTINUATIONS_SCHEMA.empty_table()
    column = columns.rows.read(("continues",))["continues"]
    sent = (
        (columns.event == event_code(LedgerEvent.SENT))
        & (columns.alive > 0)
        & (columns.kind != CONTROL)
        & ~columns.forged
    )
    rows = np.flatnonzero(sent & np.asarray(column.is_valid()))
    names, _ = _names(bucket, rows, "continues")
    by, named = _names(bucket, rows, "message_id")
    other = ~named | (by != names)  # a message cannot continue itself
    content = [names[other], pa.array(by[other], mask=~named[other]), columns.time[rows[other]]]
    return pa.table(content, CONTINUATIONS_SCHEMA)


def are_too_many_names(names: int) -> bool:
    """Return True if the number of names exceeds the maximum.

    Args:
        names: Number of names of a ledger.

    Returns:
        True above ``MAX_NAMES``.
    """
    return names > MAX_NAMES


def resolve_continuations(tables: Iterable[pa.Table]) -> ContinuedNames | None:
    """Return the continued messages, or None if there are too many.

    Of several continuations of a message the last one counts. Cycles are excluded: none of their messages arrives.

    Args:
        tables: Continuations of each run (``CONTINUATIONS_SCHEMA``).

    Returns:
        Names and last send times of continued messages.
    """
    every = pa.concat_tables([CONTINUATIONS_SCHEMA.empty_table(), *tables])
    if every["name"].null_count or are_too_many_names(every.num_rows):
        return None
    every = every.sort_by([("name", "ascending"), ("time", "ascending"), ("by", "ascending")])
    names, times = every["name"].to_numpy(), every["time"].to_numpy()
    last = np.append(names[1:] != names[:-1], np.ones(min(len(names), 1), bool))
    by, ends = every["by"].fill_null(0).to_numpy()[last], np.asarray(every["by"].is_null())[last]
    names, times = names[last], times[last]
    at = np.minimum(np.searchsorted(names, by), max(len(names) - 1, 0))
    # Each step doubles the followed distance; the last position stands for an end.
    following = np.append(np.where(~ends & (names[at] == by), at, len(names)), len(names))
    for _ in range(len(names).bit_length()):
        following = following[following]
    ending = following[:-1] == len(names)
    return ContinuedNames(names[ending], times[ending])


def continued_mask(bucket: BucketMessages, rows: Ints) -> tuple[Bools, bool]:
    """Return a mask of messages that a later message continues, and True if all names are known.

    Args:
        bucket: The run.
        rows: Row of the sending of each message. Times are compared within the clock tolerances.
    """
    carried, found = bucket.known.carried, np.zeros(len(rows), bool)
    if carried is None or not len(carried.names) or not len(rows):
        return found, carried is not None
    names, named = _names(bucket, rows, "message_id")
    at = np.minimum(np.searchsorted(carried.names, names), len(carried.names) - 1)
    sent, continued_at = bucket.columns.time[rows], carried.times[at]
    seen = (sent != NO_TIME) & (continued_at != NO_TIME)
    before = seen & (time_differences(continued_at, sent)[0] > bucket.slack(rows))
    found[:] = named & (carried.names[at] == names) & ~before
    return found, True


def _names(bucket: BucketMessages, rows: Ints, column: str) -> tuple[Words, Bools]:
    """Return the names of messages in a column of rows, and a mask of rows with a name."""
    digests, named = text_digests(bucket.columns, rows, column)
    words = [np.frombuffer(sha256((lane[0] or "").encode()).digest()[:8], "<u8")[0] for lane in bucket.columns.lanes]
    names: Words = digests[:, 0] ^ np.array(words, np.uint64)[bucket.columns.lane[rows]]
    return names, named


ARRIVAL = (
    LedgerEvent.EXECUTED,
    LedgerEvent.FAILED,
    LedgerEvent.ANSWERED,
    LedgerEvent.REJECTED,
    LedgerEvent.ACKNOWLEDGED,
)
"""Events that prove an arrival without a receipt, in order of preference."""

_ARRIVED = (
    MessageState.DELIVERED,
    MessageState.EXECUTED,
    MessageState.FAILED,
    MessageState.ANSWERED,
    MessageState.REJECTED,
    MessageState.REFUNDED,
)


def check_delivery(bucket: BucketMessages) -> CheckResult:
    """Check "delivery": every message is executed, answered, refunded, or pending in time.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        Findings, and the number of checked messages by lane.
    """
    state = bucket.messages.state
    dropped = is_one_of_codes(state, (MessageState.DROPPED, MessageState.DISCARDED))
    # A dropped message is lost, even if the input lacks its sending.
    row = bucket.first(LedgerEvent.SENT)
    if dropped.any():
        row = np.where((row < 0) & dropped, bucket.first(LedgerEvent.DROPPED), row)
    checked = (row >= 0) & ~bucket.forged
    checked &= bucket.columns.kind[np.maximum(row, 0)] != CONTROL
    sent = checked & bucket.has(LedgerEvent.SENT)
    found = [
        *_lost(bucket, np.flatnonzero(checked & dropped)),
        *_open(bucket, np.flatnonzero(bucket.is_open & sent)),
        *_late(bucket, np.flatnonzero(sent & is_one_of_codes(state, _ARRIVED))),
        Finding("delivery", NOTED, "failed", _failures(bucket, np.flatnonzero(sent & (state == MessageState.FAILED)))),
        Finding("delivery", VIOLATED, "chain_stopped", bucket.columns.stopped),
    ]
    return CheckResult("delivery", bucket.count(checked), found)


def _lost(bucket: BucketMessages, messages: Ints) -> list[Finding]:
    """Return findings about dropped messages, by declared and other causes."""
    rows = bucket.first(LedgerEvent.DROPPED)[messages].astype(np.int64)
    if not len(rows):
        return []
    columns = bucket.columns
    names = NameCodes()
    cause = names.codes(columns.rows.take(("detail",), rows)["detail"])
    declared = np.zeros(len(rows), bool)
    for lane, own in bucket.by_lane(rows):
        causes = [names.code(name) for name in bucket.known.promises.causes(lane)]
        declared[own] = np.isin(cause[own], causes)
    return [
        Finding("delivery", VIOLATED, "dropped", rows[~declared]),
        Finding("delivery", NOTED, "dropped_as_declared", rows[declared]),
    ]


def _open(bucket: BucketMessages, messages: Ints) -> list[Finding]:
    """Return findings about messages without any final event."""
    rows = bucket.first(LedgerEvent.SENT)[messages].astype(np.int64)
    if not len(rows):
        return []
    columns = bucket.columns
    lane = columns.lane[rows]
    carried, known = continued_mask(bucket, rows)
    settled = bucket.promised(SETTLED)[lane] & ~columns.expired[rows] & ~carried
    limit = np.where(carried, -1, bucket.deadlines[0][lane])
    end, decided, whole = np.full(len(rows), MIN_DELAY), np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    last = bucket.known.windows.last
    for each, own in bucket.by_lane(rows):
        limit_micros, _ = bucket.known.promises.deadline(each)
        until = bucket.known.windows.arrivals_until(each, columns.time[rows[own]], limit_micros or 0)
        end[own], decided[own], whole[own] = until.end, until.recorded, until.to_the_end
        # Settlement says nothing about arrivals outside of the covered windows.
        if until.declared and last is not None:
            whole[own] &= ~settled[own] | (until.end >= last)
    age, timed = time_differences(columns.time[rows], end)
    timed &= end != MIN_DELAY
    unseen = ~settled & (limit >= 0) & (columns.time[rows] == NO_TIME)
    overdue = ~settled & (limit >= 0) & timed & (age > limit)
    lost = settled & whole
    uncovered = ~unseen & ~overdue & ~whole & ~carried
    pending = ~(lost | unseen | overdue | uncovered)
    undecided = (lost | overdue) & (not known)
    lost, overdue = lost & known, overdue & known
    return [
        Finding("delivery", UNKNOWN, "not_compared", rows[undecided]),
        Finding("delivery", VIOLATED, "lost", rows[lost]),
        Finding("delivery", VIOLATED, "overdue", rows[overdue & decided], age[overdue & decided], MICROSECONDS),
        Finding(
            "delivery", UNKNOWN, OVERDUE_UNDECIDED, rows[overdue & ~decided], age[overdue & ~decided], MICROSECONDS
        ),
        Finding("delivery", UNKNOWN, "time_unseen", rows[unseen]),
        Finding("delivery", UNKNOWN, "arrival_not_covered", rows[uncovered]),
        Finding("delivery", NOTED, "pending", rows[pending & ~carried]),
        Finding("delivery", NOTED, "carried_on", rows[pending & carried]),
    ]


def _late(bucket: BucketMessages, messages: Ints) -> list[Finding]:
    """Return findings about messages that arrived late: violations of guaranteed deadlines."""
    limits, promised = bucket.deadlines
    lane = bucket.lane[messages]
    messages, lane = messages[limits[lane] >= 0], lane[limits[lane] >= 0]
    if not len(messages):
        return []
    columns = bucket.columns
    arrived = find_arrivals(bucket)[messages].astype(np.int64)
    delay, seen = bucket.microseconds_between(bucket.first(LedgerEvent.SENT)[messages], arrived)
    late = seen & (delay > limits[lane])
    found = []
    for verdict, chosen in ((VIOLATED, late & promised[lane]), (NOTED, late & ~promised[lane])):
        found.append(Finding("delivery", verdict, "late", arrived[chosen], delay[chosen], MICROSECONDS))
    unseen = ~seen & promised[lane] & (columns.time[arrived] == NO_TIME)
    return [*found, Finding("delivery", UNKNOWN, "time_unseen", arrived[unseen])]


def find_arrivals(bucket: BucketMessages) -> Array:
    """Return the row that proves the arrival of each message, or -1.

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        Row numbers in the run, one for each message, int32.
    """
    found = bucket.first(LedgerEvent.RECEIVED)
    for event in ARRIVAL:
        if event_code(event) in bucket.columns.events:
            found = np.where(found >= 0, found, bucket.first(event))
    return found


def _failures(bucket: BucketMessages, messages: Ints) -> Ints:
    """Return the row of the failure of each message."""
    failed = bucket.first(LedgerEvent.FAILED)[messages]
    return np.where(failed >= 0, failed, bucket.first(LedgerEvent.EXECUTED)[messages]).astype(np.int64)


REACHED_SCHEMA = pa.schema([("chain", pa.string()), ("height", pa.uint64()), ("time", pa.int64())])
"""Last time of a receipt at a height of a chain, in microseconds. A row of nulls stands for more than ``MAX_HEIGHTS``
rows."""

MAX_HEIGHTS = 1 << 22
"""Maximum number of heights of a ledger. Above it, no time-out is compared with them."""


def find_reached_heights(bucket: BucketMessages) -> pa.Table:
    """Return the heights of receipts of messages with a height limit (``REACHED_SCHEMA``).

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        Rows of ``REACHED_SCHEMA``, one for each chain and height, with the latest time.
    """
    columns = bucket.columns
    rows = bucket.first(LedgerEvent.RECEIVED)[bucket.timeouts.height != NO_HEIGHT].astype(np.int64)
    rows = rows[rows >= 0]
    rows = rows[(columns.height[rows] != NO_HEIGHT) & (columns.time[rows] != NO_TIME)]
    rows = np.setdiff1d(rows, columns.elsewhere)
    if not len(rows):
        return REACHED_SCHEMA.empty_table()
    names = [lane[2] for lane in columns.lanes]
    chains = sorted({name for name in names if name is not None and not bucket.known.promises.restarts(name)})
    numbers = {name: number for number, name in enumerate(chains)}
    chain = np.array([-1 if name is None else numbers.get(name, -1) for name in names], np.int64)[columns.lane[rows]]
    rows, chain = rows[chain >= 0], chain[chain >= 0]
    height, time = columns.height[rows], columns.time[rows]
    order = np.lexsort((time, height, chain))
    groups = group_rows(chain[order], height[order])
    last = order[groups.starts + groups.counts - 1]
    shown = [pa.array(chains, pa.string()).take(pa.array(chain[last])), pa.array(height[last]), pa.array(time[last])]
    return pa.table(shown, REACHED_SCHEMA)


def are_too_many_heights(heights: int) -> bool:
    """Return True if the number of heights exceeds the maximum.

    Args:
        heights: Number of heights of a ledger.

    Returns:
        True above ``MAX_HEIGHTS``.
    """
    return heights > MAX_HEIGHTS


def merge_reached_heights(tables: Iterable[pa.Table]) -> Mapping[str, ReachedHeights] | None:
    """Return the heights of each chain by time, or None if there are too many.

    Args:
        tables: Reached heights of each run (``REACHED_SCHEMA``).

    Returns:
        Times and least heights by chain.
    """
    every = pa.concat_tables([REACHED_SCHEMA.empty_table(), *tables])
    if every["chain"].null_count or are_too_many_heights(every.num_rows):
        return None
    every = every.sort_by([("chain", "ascending"), ("time", "ascending")])
    chains = np.asarray(every["chain"].to_numpy(zero_copy_only=False))
    times, heights = every["time"].to_numpy(), every["height"].to_numpy()
    found, groups = {}, group_rows(chains)
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        own = slice(begin, begin + count)
        found[str(chains[begin])] = ReachedHeights(times[own], np.minimum.accumulate(heights[own][::-1])[::-1])
    return found
