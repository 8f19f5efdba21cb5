"""Checks "order" and "gaps": scan each lane in index order, one piece at a time.

A lane may span many buckets and runs. Results that need other pieces are left to ``lane_merge``: gaps between pieces,
open messages at their ends, and the positions before a piece. A second pass gets the latter as
``PrecedingPositions``.

A bridge may number all messages that leave a chain with one sequence, whatever their destination. Then the lanes of one
source and name have disjoint indices, and an index is missing only if no lane has it. Candidate groups are found by the
counts of sent and missing indices after the first pass; the second pass returns the indices of their lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import MAX_DELAY, MIN_DELAY, Array, Ints, Words, time_differences
from causeway.audit.bucket import ENDED_AT_DESTINATION, ORDERED, BucketMessages
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools, RowColumns
from causeway.audit.findings import UNKNOWN, VIOLATED, VIOLATIONS_SCHEMA, CheckResult, Finding, to_findings_table
from causeway.audit.lane_context import LaneContext, SentEnds
from causeway.ledger.schema import LANE, LedgerEvent
from causeway.ledger.windows import Lane, LanePromises

__all__ = [
    "NUMBERS_SCHEMA",
    "REASON",
    "REPLACED_REASONS",
    "LaneGroup",
    "SharedNumbers",
    "candidate_groups",
    "find_shared_numbers",
    "lane_group",
    "sent_indices",
]

EventTriple = tuple[int, int, int]
PieceKey = tuple[Lane, int]
"""A lane, and the index of the first message of a piece."""


def overdue_mask(known: LaneContext, lane: Lane, times: Ints) -> Bools:
    """Return a mask of messages that are missing beyond the deadline of their lane.

    Args:
        known: Windows and guarantees.
        lane: The lane.
        times: Send times, int64 microseconds.
    """
    limit, _ = known.promises.deadline(lane)
    if limit is None:
        return np.zeros(len(times), bool)
    end = known.windows.arrivals_until(lane, times, limit).end
    age, seen = time_differences(times, end)
    return np.asarray(seen & (end != MIN_DELAY) & (age > limit))


@dataclass(frozen=True)
class PrecedingPositions:
    """Last positions before a piece, each for sent, received and acknowledged.

    ``NO_HEIGHT`` as a position and ``NO_TIME`` as a time mean unknown.

    Attributes:
        height: Greatest height.
        position: Position at that height.
        height_at: Time at that height, microseconds.
        has_height: 1 if there is any height.
        last_at: Latest time of a row with a height; ``NOTHING_BEFORE``: none.
        last: Height at that time.
        time: Latest time of rows without height.
    """

    height: EventTriple
    position: EventTriple
    height_at: EventTriple
    has_height: EventTriple
    last_at: EventTriple
    last: EventTriple
    time: EventTriple


ROW = ("index", "chain", "height", "time")
"""Fields of a row at an end of a piece."""

SEGMENT_ENDS = ("first_sent", "last_sent", "first_received", "last_received", "lead", "tail")
"""Rows of a piece's summary: first and last sent and received, first open message at each end."""

PLACES = ("top", "top_position", "top_at", "has_top", "last_at", "last", "top_time", "least", "least_time")
"""First and last positions of a piece."""

RAISING = 128
"""Maximum number of rows in the summary of a piece that nothing in it is behind. With them the order check against
preceding pieces mostly needs no second pass."""


class LaneScan:
    """Scan of the pieces of one run in index order.

    Args:
        bucket: The run.
        before: Positions before each piece, in a second pass.
    """

    def __init__(self, bucket: BucketMessages, before: dict[PieceKey, PrecedingPositions]) -> None:
        from causeway.audit.checks.lane_loops import NOTHING_BEFORE, scan_lanes

        self.bucket = bucket
        columns = bucket.columns
        pieces = columns.pieces
        first_rows = columns.starts[pieces[:-1]]
        numbered = columns.indexed[first_rows] == 1
        starts, stops = pieces[:-1][numbered], pieces[1:][numbered]
        first_rows = first_rows[numbered]
        self.lane, self.first = columns.lane[first_rows], columns.index[first_rows]
        count, messages = len(starts), len(columns.starts) - 1
        self.top = np.zeros((count, 3), np.uint64)
        self.top_position = np.full((count, 3), NO_HEIGHT, np.uint64)
        self.top_at = np.full((count, 3), NO_TIME, np.int64)
        self.has_top = np.zeros((count, 3), np.uint8)
        self.last_at = np.full((count, 3), NOTHING_BEFORE, np.int64)
        self.last = np.zeros((count, 3), np.uint64)
        self.top_time = np.full((count, 3), NOTHING_BEFORE, np.int64)
        if before:
            for number, (lane, first) in enumerate(zip(self.lane.tolist(), self.first.tolist(), strict=True)):
                known = before.get((columns.lanes[lane], first))
                if known is not None:
                    self.top[number], self.top_position[number] = known.height, known.position
                    self.top_at[number], self.has_top[number] = known.height_at, known.has_height
                    self.last_at[number], self.last[number] = known.last_at, known.last
                    self.top_time[number] = known.time
        self.least = np.full((count, 3), NO_HEIGHT, np.uint64)
        self.least_time = np.full((count, 3), NO_TIME, np.int64)
        self.below = np.zeros((3, messages), np.uint8)
        self.ends = np.full((count, 2), -1, np.int64)
        # A piece of the first segment begins its lane, unless it begins the run.
        inside = (columns.row_segments(first_rows) > 0) | columns.rows.scattered
        inside[:1] = True
        slots = np.where(inside, np.cumsum(inside) - 1, -1)
        self.raised = np.zeros((int(inside.sum()), 3), np.int32)
        self.raising = np.zeros((*self.raised.shape, RAISING), np.int32)
        self._slots = slots
        anew = np.array([bucket.known.promises.is_anew(lane) for lane in columns.lanes], np.uint8)
        gaps, skips = np.empty((messages, 2), np.int64), np.empty((messages, 5), np.int64)
        self.lead, self.tail = np.empty((count, 4), np.int64), np.empty((count, 4), np.int64)
        sizes = np.zeros(2, np.int64)
        sent, received, acknowledged = (bucket.first(event) for event in ORDERED.values())
        scan_lanes(
            *(starts, stops, columns.index[columns.starts[:-1]], sent, received, acknowledged),
            *(columns.height, columns.position, columns.time),
            *(bucket.is_open.view(np.uint8), bucket.open_until),
            *(self.top, self.top_position, self.top_at, self.has_top, self.last_at, self.last, self.top_time),
            *(self.least, self.least_time, self.below),
            *(self.ends, gaps, skips, self.lead, self.tail, sizes),
            *(anew[self.lane] if len(anew) else anew, slots, self.raised, self.raising),
        )
        self.latest_sent = _latest(columns, sent, starts, stops)
        self.gaps, self.skips = gaps[: sizes[0]].copy(), skips[: sizes[1]].copy()

    def order(self) -> CheckResult:
        """Check "order": no event precedes that of a lower index in its lane."""
        bucket, columns = self.bucket, self.bucket.columns
        numbered = columns.indexed[columns.starts[:-1]] == 1
        examined = np.zeros(len(columns.lanes), np.int64)
        found = []
        for number, (promise, event) in enumerate(ORDERED.items()):
            rows = bucket.first(event)
            examined_mask = bucket.promised(promise)[bucket.lane] & (rows >= 0)
            examined += bucket.count(examined_mask)
            found.append(Finding("order", UNKNOWN, "index_unseen", rows[examined_mask & ~numbered]))
            examined_mask &= numbered
            found.append(
                Finding(
                    "order", VIOLATED, f"{event.value}_out_of_order", rows[examined_mask & (self.below[number] == 1)]
                )
            )
            if not columns.all_have_position:
                placed = rows[examined_mask]
                unseen = (columns.height[placed] == NO_HEIGHT) & (columns.time[placed] == NO_TIME)
                found.append(Finding("order", UNKNOWN, "place_unseen", placed[unseen]))
        return CheckResult("order", examined, found)

    def out_of_order(self, number: int) -> Bools:
        """Return a mask of messages out of order, for an event by its index in ``ORDERED``."""
        columns = self.bucket.columns
        return np.asarray((self.below[number] == 1) & (columns.indexed[columns.starts[:-1]] == 1))

    def gap_rows(self) -> tuple[Array, Array, Array]:
        """Return the gaps between sent messages of one piece in numbered lanes.

        Returns:
            Rows before and after each gap, and the number of missing indices.
        """
        sent = self.bucket.first(LedgerEvent.SENT)
        gaps = self.gaps[self.bucket.promised("numbered")[self.bucket.lane[self.gaps[:, 0]]]]
        one, other = sent[gaps[:, 0]], sent[gaps[:, 1]]
        return one, other, self.bucket.columns.index[other] - self.bucket.columns.index[one] - np.uint64(1)

    def gap_check(self) -> CheckResult:
        """Check "gaps": numbered lanes show every index, and ordered ones skip no message."""
        bucket, columns = self.bucket, self.bucket.columns
        sent, received = bucket.first(LedgerEvent.SENT), bucket.first(LedgerEvent.RECEIVED)
        one, other, missing = self.gap_rows()
        inside = bucket.together(one, other, LedgerEvent.SENT)
        index = columns.index[one] + np.uint64(1)
        ordered = bucket.promised("ordered_receives")
        skips = self.skips[ordered[bucket.lane[self.skips[:, 0]]]]
        came = columns.time[received[skips[:, 1]]]
        covered = (skips[:, 4] == MAX_DELAY) | ((came != NO_TIME) & (skips[:, 4] > MIN_DELAY) & (skips[:, 4] >= came))
        for event in ENDED_AT_DESTINATION:
            covered &= bucket.together(received[skips[:, 0]], received[skips[:, 1]], event, closing=True)
        rows, many = sent[skips[:, 2]].astype(np.int64), skips[:, 3]
        covered |= self._overdue(rows)
        found = []
        for reason, chosen in (("missing_inside_window", inside), ("missing_outside_windows", ~inside)):
            run = missing[chosen]
            found.append(Finding("gaps", UNKNOWN, reason, other[chosen], run, "messages", index[chosen], False))
        for verdict, reason, chosen in ((VIOLATED, "skipped", covered), (UNKNOWN, "skipped_not_covered", ~covered)):
            first = columns.index[rows[chosen]]
            found.append(Finding("gaps", verdict, reason, rows[chosen], many[chosen], "messages", first, False))
        checked = bucket.promised("numbered") | ordered
        return CheckResult(
            "gaps", np.where(checked, bucket.count(bucket.has(LedgerEvent.SENT, LedgerEvent.RECEIVED)), 0), found
        )

    def _overdue(self, rows: Ints) -> Bools:
        """Return a mask of sent messages that are missing beyond the deadline of their lane."""
        columns, known, found = self.bucket.columns, self.bucket.known, np.zeros(len(rows), bool)
        for lane, own in self.bucket.by_lane(rows):
            found[own] = overdue_mask(known, lane, columns.time[rows[own]])
        return found

    def summary(self) -> pa.Table:
        """Return the summary of each piece for the merge with other pieces of its lane."""
        columns, bucket = self.bucket.columns, self.bucket
        sent, received = bucket.first(LedgerEvent.SENT), bucket.first(LedgerEvent.RECEIVED)
        table = lane_columns(columns, self.lane)
        table["first"] = pa.array(self.first)
        rows = (
            (sent, self.ends[:, 0]),
            (sent, self.ends[:, 1]),
            (received, self.lead[:, 2]),
            (received, self.tail[:, 2]),
            (sent, self.lead[:, 0]),
            (sent, self.tail[:, 0]),
        )
        for name, (of, message) in zip(SEGMENT_ENDS, rows, strict=True):
            table |= _row_columns(columns, name, np.where(message >= 0, of[message], -1))
        table["latest_sent"] = pa.array(self.latest_sent)
        for name, of in (("lead", self.lead), ("tail", self.tail)):
            table[f"{name}_count"], table[f"{name}_until"] = pa.array(of[:, 1]), pa.array(of[:, 3])
        for number, promise in enumerate(ORDERED):
            for name in PLACES:
                table[f"{name}_{promise}"] = pa.array(np.ascontiguousarray(getattr(self, name)[:, number]))
            raising, offsets = self._raising(number)
            for name in ("height", "position", "time"):
                values = pa.array(getattr(columns, name)[raising])
                table[f"raising_{name}_{promise}"] = pa.ListArray.from_arrays(offsets, values)
        return pa.table(table)

    def _raising(self, number: int) -> tuple[Array, pa.Array]:
        """Return the stored rows of an event that nothing in their piece is behind, with offsets."""
        many = np.where(self._slots >= 0, self.raised[:, number][self._slots] if len(self.raised) else 0, 0)
        offsets = np.concatenate(([0], np.cumsum(many))).astype(np.int32)
        stored = np.arange(RAISING) < self.raised[:, number, None]
        return self.raising[:, number][stored], pa.array(offsets)


def _latest(columns: RowColumns, rows: Array, starts: Array, stops: Array) -> Array:
    """Return the latest time of the rows of each piece, or ``MIN_DELAY``."""
    seen = (rows >= 0) & (columns.time[rows] != NO_TIME)
    times = np.append(np.where(seen, columns.time[rows], MIN_DELAY), MIN_DELAY)
    bounds = np.stack((starts, stops), axis=1).reshape(-1)
    return np.maximum.reduceat(times, bounds)[::2] if len(bounds) else np.zeros(0, np.int64)


def lane_columns(columns: RowColumns, codes: Array) -> dict[str, pa.Array]:
    """Return the four names of lanes as columns."""
    at = pa.array(codes)
    return {name: names.take(at) for name, names in columns.lane_names.items()}


def _row_columns(columns: RowColumns, name: str, rows: Array) -> dict[str, pa.Array]:
    """Return the fields ``ROW`` of rows as columns, null for row -1 and unknown values."""
    none = rows < 0
    at = np.where(none, 0, rows)
    chain = columns.chain[at]
    names = pa.array([*columns.chains, None], pa.string())
    return {
        f"{name}_index": pa.array(columns.index[at], mask=none),
        f"{name}_chain": names.take(pa.array(np.where(none | (chain < 0), len(columns.chains), chain))),
        f"{name}_height": pa.array(columns.height[at], mask=none | (columns.height[at] == NO_HEIGHT)),
        f"{name}_time": pa.array(columns.time[at], mask=none | (columns.time[at] == NO_TIME)),
    }


LaneGroup = tuple[str | None, str | None, str | None]
"""Lanes of one protocol, source and name, regardless of their destination."""

MAX_INDICES = 1 << 24
"""Maximum number of messages of a group; lanes of larger groups are checked separately."""

REASON = "missing_on_all_lanes"
REPLACED_REASONS = ("missing_inside_window", "missing_outside_windows")
"""Reasons of gaps on one lane; they are invalid for shared numbers."""

NUMBERS_SCHEMA = pa.schema(
    [*(pa.field(name, pa.string()) for name in LANE if name != "destination"), ("indices", pa.list_(pa.uint64()))]
)
"""One row for each lane of a run: its group, and the sent indices."""


class MissingIndices(NamedTuple):
    """Missing indices of a group.

    Attributes:
        first: First index of each range.
        size: Length of each range.
    """

    first: Words
    size: Words


@dataclass(frozen=True)
class SharedNumbers:
    """Missing indices of groups of lanes with shared numbers.

    Attributes:
        missing: Missing indices by group.
        lanes: All lanes of these groups.
    """

    missing: Mapping[LaneGroup, MissingIndices]
    lanes: frozenset[Lane]

    def findings(self) -> pa.Table:
        """Return missing indices as findings of a lane without destination."""
        content: dict[str, list[object]] = {name: [] for name in VIOLATIONS_SCHEMA.names[:-1]}
        for (protocol, source, lane), missing in self.missing.items():
            for first, size in zip(missing.first.tolist(), missing.size.tolist(), strict=True):
                row: dict[str, object] = {"check": "gaps", "verdict": UNKNOWN, "reason": REASON, "index": first}
                row |= {"protocol": protocol, "source": source, "lane": lane}
                row |= {"magnitude": float(size), "size": str(size), "unit": "messages"}
                for name, values in content.items():
                    values.append(row.get(name))
        return to_findings_table(
            {name: pa.array(own, VIOLATIONS_SCHEMA.field(name).type) for name, own in content.items()}
        )


def lane_group(lane: Lane) -> LaneGroup:
    """Return the group of a lane.

    Args:
        lane: Protocol, source, destination and name.

    Returns:
        Protocol, source and name.
    """
    return lane[0], lane[1], lane[3]


def candidate_groups(
    sent: Mapping[Lane, SentEnds], missing: Mapping[Lane, int], promises: LanePromises
) -> dict[LaneGroup, set[Lane]]:
    """Return groups that may share numbers: together they lack fewer indices than separately.

    Args:
        sent: First and last sent index of each lane.
        missing: Number of missing indices of each lane.
        promises: Guarantees; only numbered lanes count.
    """
    groups: dict[LaneGroup, set[Lane]] = {}
    for lane in sent:
        if lane[1] is not None and "numbered" in promises.of(lane):
            groups.setdefault(lane_group(lane), set()).add(lane)
    found = {}
    for group, lanes in groups.items():
        lacking = sum(missing.get(lane, 0) for lane in lanes)
        count = sum(sent[lane].last - sent[lane].first + 1 for lane in lanes) - lacking
        span = max(sent[lane].last for lane in lanes) - min(sent[lane].first for lane in lanes) + 1
        if len(lanes) > 1 and count <= MAX_INDICES and 0 <= span - count < lacking:
            found[group] = lanes
    return found


def sent_indices(bucket: BucketMessages) -> pa.Table:
    """Return the sent indices of the lanes of candidate groups in a run (``NUMBERS_SCHEMA``).

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        One row a lane (``NUMBERS_SCHEMA``); indices are ascending, uint64.
    """
    groups = bucket.known.shared
    if not groups:
        return NUMBERS_SCHEMA.empty_table()
    columns, sent = bucket.columns, bucket.first(LedgerEvent.SENT)
    numbered = (sent >= 0) & (columns.indexed[columns.starts[:-1]] == 1)
    bounds = np.append(columns.lane_starts, len(sent))
    rows = []
    for code, lane in enumerate(columns.lanes):
        if lane_group(lane) in groups:
            own = np.flatnonzero(numbered[bounds[code] : bounds[code + 1]]) + bounds[code]
            protocol, source, name = lane_group(lane)
            indices = columns.index[columns.starts[own]]
            rows.append({"protocol": protocol, "source": source, "lane": name, "indices": indices})
    return pa.Table.from_pylist(rows, NUMBERS_SCHEMA)


def find_shared_numbers(asked: Mapping[LaneGroup, set[Lane]], numbers: Iterable[pa.Table]) -> SharedNumbers:
    """Return the groups that share their numbers, and their missing indices.

    Args:
        asked: The candidate groups.
        numbers: Sent indices of runs (``sent_indices``).
    """
    indices: dict[LaneGroup, list[Words]] = {group: [] for group in asked}
    for table in numbers:
        groups = zip(*(table[name].to_pylist() for name in table.column_names[:-1]), strict=True)
        for group, own in zip(groups, table["indices"].combine_chunks(), strict=True):
            if group in indices:
                indices[group].append(own.values.to_numpy())
    found, lanes = {}, set[Lane]()
    for group, parts in indices.items():
        every = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
        steps = np.diff(every)
        if (steps == 0).any():
            continue
        gaps = np.flatnonzero(steps > 1)
        found[group] = MissingIndices(every[gaps] + np.uint64(1), steps[gaps] - np.uint64(1))
        lanes |= asked[group]
    return SharedNumbers(found, frozenset(lanes))
