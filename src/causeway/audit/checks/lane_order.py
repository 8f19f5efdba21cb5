"""Order and gaps: what is seen along the indices of a lane, a piece at a time, and what a piece leaves open.

A lane may lie in many buckets, and in many runs of a bucket. What one run cannot know of a lane is left to ``joining``:
gaps between two pieces, open messages at a piece's ends, and the places before a piece, which a second look is given as
``Before``.

Numbers that a source counts over all its destinations: what one lane does not have, another one may.

A bridge may number what leaves a chain whatever chain it goes to. Then the lanes of one source and name have no index
in common, and together they have fewer holes than each by itself. Where that is so, an index is missing if none of them
has it.

Strategy: how many indices each lane sent and how many it lacks is known after the first look. It leaves few candidates;
the runs that have these lanes are asked for their indices in the second look.
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
"""A lane and the index of the first message of a piece of it."""


def overdue_mask(known: LaneContext, lane: Lane, times: Ints) -> Bools:
    """Return which messages of a lane, sent at some times, are missing beyond its deadline."""
    limit, _ = known.promises.deadline(lane)
    if limit is None:
        return np.zeros(len(times), bool)
    end = known.windows.arrivals_until(lane, times, limit).end
    age, seen = time_differences(times, end)
    return np.asarray(seen & (end != MIN_DELAY) & (age > limit))


@dataclass(frozen=True)
class PrecedingPositions:
    """The last places before a piece, of sent, received and acknowledged each.

    ``height`` with ``position`` and the time ``height_at``: the greatest height (``has_height``: whether there is any);
    ``last_at`` with the height ``last``: the latest time of a row with a height (``NEVER``: none has a time); ``time``:
    the latest time of rows without height. ``NO_HEIGHT`` as a position, ``NO_TIME`` as a time: not seen.
    """

    height: EventTriple
    position: EventTriple
    height_at: EventTriple
    has_height: EventTriple
    last_at: EventTriple
    last: EventTriple
    time: EventTriple


ROW = ("index", "chain", "height", "time")
"""What is kept of a row at an end of a piece."""

SEGMENT_ENDS = ("first_sent", "last_sent", "first_received", "last_received", "lead", "tail")
"""Rows that are kept of a piece: the ends of what was sent and received, the first open message at each end."""

PLACES = ("top", "top_position", "top_at", "has_top", "last_at", "last", "top_time", "least", "least_time")
"""The first and the last places of a piece."""

RAISING = 128
"""So many rows are kept of a piece that may have others before it: the first that nothing in it is behind. Which of
them are behind what came before the piece is mostly decided without looking at the piece again."""


class LaneScan:
    """The pieces of one run, walked along. ``before``: what is known of places before each."""

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
        # A piece of the first segment begins its lane, unless the run begins with it.
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
        """Lanes keep the order that they promise: no message's event is before that of one with a lower index."""
        bucket, columns = self.bucket, self.bucket.columns
        numbered = columns.indexed[columns.starts[:-1]] == 1
        examined = np.zeros(len(columns.lanes), np.int64)
        found = []
        for number, (promise, event) in enumerate(ORDERED.items()):
            rows = bucket.first(event)
            asked = bucket.promised(promise)[bucket.lane] & (rows >= 0)
            examined += bucket.count(asked)
            found.append(Finding("order", UNKNOWN, "index_unseen", rows[asked & ~numbered]))
            asked &= numbered
            found.append(
                Finding("order", VIOLATED, f"{event.value}_out_of_order", rows[asked & (self.below[number] == 1)])
            )
            if not columns.all_have_position:
                placed = rows[asked]
                unseen = (columns.height[placed] == NO_HEIGHT) & (columns.time[placed] == NO_TIME)
                found.append(Finding("order", UNKNOWN, "place_unseen", placed[unseen]))
        return CheckResult("order", examined, found)

    def out_of_order(self, number: int) -> Bools:
        """Return which messages' event (by its place in ``ORDERED``) is before that of one with a lower index."""
        columns = self.bucket.columns
        return np.asarray((self.below[number] == 1) & (columns.indexed[columns.starts[:-1]] == 1))

    def gap_rows(self) -> tuple[Array, Array, Array]:
        """Return, of gaps between sent messages of one piece in numbered lanes: the rows before and after, and how many
        are missing."""
        sent = self.bucket.first(LedgerEvent.SENT)
        gaps = self.gaps[self.bucket.promised("numbered")[self.bucket.lane[self.gaps[:, 0]]]]
        one, other = sent[gaps[:, 0]], sent[gaps[:, 1]]
        return one, other, self.bucket.columns.index[other] - self.bucket.columns.index[one] - np.uint64(1)

    def gap_check(self) -> CheckResult:
        """Numbered lanes show every index between the first and the last, and ordered ones skip no message."""
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
        asked = bucket.promised("numbered") | ordered
        return CheckResult(
            "gaps", np.where(asked, bucket.count(bucket.has(LedgerEvent.SENT, LedgerEvent.RECEIVED)), 0), found
        )

    def _overdue(self, rows: Ints) -> Bools:
        """Return which sent messages are missing beyond the deadline of their lane."""
        columns, known, found = self.bucket.columns, self.bucket.known, np.zeros(len(rows), bool)
        for lane, own in self.bucket.by_lane(rows):
            found[own] = overdue_mask(known, lane, columns.time[rows[own]])
        return found

    def summary(self) -> pa.Table:
        """Return one row a piece: what the other pieces of its lane need to know of it."""
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
            kept, offsets = self._raising(number)
            for name in ("height", "position", "time"):
                values = pa.array(getattr(columns, name)[kept])
                table[f"raising_{name}_{promise}"] = pa.ListArray.from_arrays(offsets, values)
        return pa.table(table)

    def _raising(self, number: int) -> tuple[Array, pa.Array]:
        """Return the rows of an event (by its place in ``ORDERED``) that nothing in their piece is behind, as far as
        they are kept, and where those of each piece begin."""
        many = np.where(self._slots >= 0, self.raised[:, number][self._slots] if len(self.raised) else 0, 0)
        offsets = np.concatenate(([0], np.cumsum(many))).astype(np.int32)
        kept = np.arange(RAISING) < self.raised[:, number, None]
        return self.raising[:, number][kept], pa.array(offsets)


def _latest(columns: RowColumns, rows: Array, starts: Array, stops: Array) -> Array:
    """Return the latest time of the rows of each piece's messages (-1: none)."""
    seen = (rows >= 0) & (columns.time[rows] != NO_TIME)
    times = np.append(np.where(seen, columns.time[rows], MIN_DELAY), MIN_DELAY)
    bounds = np.stack((starts, stops), axis=1).reshape(-1)
    return np.maximum.reduceat(times, bounds)[::2] if len(bounds) else np.zeros(0, np.int64)


def lane_columns(columns: RowColumns, codes: Array) -> dict[str, pa.Array]:
    """Return the four names of lanes as columns."""
    at = pa.array(codes)
    return {name: names.take(at) for name, names in columns.lane_names.items()}


def _row_columns(columns: RowColumns, name: str, rows: Array) -> dict[str, pa.Array]:
    """Return ``ROW`` of rows as columns, null for row -1 and what was not seen."""
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
"""Lanes of one protocol, source and name, whatever their destination."""

MAX_INDICES = 1 << 24
"""Of more messages in one group every lane is looked at by itself."""

REASON = "missing_on_all_lanes"
REPLACED_REASONS = ("missing_inside_window", "missing_outside_windows")
"""Reasons of what is missing on one lane, which say nothing where a number is shared."""

NUMBERS_SCHEMA = pa.schema(
    [*(pa.field(name, pa.string()) for name in LANE if name != "destination"), ("indices", pa.list_(pa.uint64()))]
)
"""One row a lane of a run: its group, and which indices were sent."""


class MissingIndices(NamedTuple):
    """Runs of indices that a group lacks: the first index of each, and how many it has."""

    first: Words
    size: Words


@dataclass(frozen=True)
class SharedNumbers:
    """What is missing in groups of lanes that share their numbers. ``lanes``: all lanes of these groups."""

    missing: Mapping[LaneGroup, MissingIndices]
    lanes: frozenset[Lane]

    def findings(self) -> pa.Table:
        """Return what is missing as findings of a lane without a destination."""
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
    """Return the group of a lane."""
    return lane[0], lane[1], lane[3]


def candidate_groups(
    sent: Mapping[Lane, SentEnds], missing: Mapping[Lane, int], promises: LanePromises
) -> dict[LaneGroup, set[Lane]]:
    """Return the groups that may share their numbers: together they lack fewer indices than each lane by itself.

    Args:
        sent: The first and last index that each lane sent.
        missing: How many indices each lane lacks in between.
        promises: Only lanes that are numbered count.
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
    """Return which indices the lanes of a run sent, of groups that are asked for (``NUMBERS_SCHEMA``)."""
    asked = bucket.known.shared
    if not asked:
        return NUMBERS_SCHEMA.empty_table()
    columns, sent = bucket.columns, bucket.first(LedgerEvent.SENT)
    numbered = (sent >= 0) & (columns.indexed[columns.starts[:-1]] == 1)
    bounds = np.append(columns.lane_starts, len(sent))
    rows = []
    for code, lane in enumerate(columns.lanes):
        if lane_group(lane) in asked:
            own = np.flatnonzero(numbered[bounds[code] : bounds[code + 1]]) + bounds[code]
            protocol, source, name = lane_group(lane)
            indices = columns.index[columns.starts[own]]
            rows.append({"protocol": protocol, "source": source, "lane": name, "indices": indices})
    return pa.Table.from_pylist(rows, NUMBERS_SCHEMA)


def find_shared_numbers(asked: Mapping[LaneGroup, set[Lane]], numbers: Iterable[pa.Table]) -> SharedNumbers:
    """Return which groups share their numbers, and what they lack.

    Args:
        asked: The candidates.
        numbers: What runs show of them (``numbers_in``).
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
