"""Order and gaps: what is seen along the indices of a lane, a piece at a time, and what a piece leaves open.

A lane may lie in many buckets, and in many runs of a bucket. What one run cannot know of a lane is left to ``joining``:
gaps between two pieces, open messages at a piece's ends, and the places before a piece, which a second look is given as
``Before``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Array, Ints
from causeway.audit.bucket import ENDED_AT_DESTINATION, ORDERED, Bucket
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools, Columns
from causeway.audit.delays import MOST, NEVER, microseconds
from causeway.audit.findings import UNKNOWN, VIOLATED, Checked, Finding
from causeway.audit.known import Known
from causeway.audit.windows import Lane
from causeway.ledger.schema import Event

Three = tuple[int, int, int]
PieceKey = tuple[Lane, int]
"""A lane and the index of the first message of a piece of it."""


def is_overdue(known: Known, lane: Lane, times: Ints) -> Bools:
    """Return which messages of a lane, sent at some times, are missing beyond its deadline."""
    limit, _ = known.promises.deadline(lane)
    if limit is None:
        return np.zeros(len(times), bool)
    end = known.windows.arrivals_until(lane, times, limit).end
    age, seen = microseconds(times, end)
    return np.asarray(seen & (end != NEVER) & (age > limit))


@dataclass(frozen=True)
class Before:
    """The last places before a piece, of sent, received and acknowledged each.

    ``height`` with ``position`` and the time ``height_at``: the greatest height (``has_height``: whether there is any);
    ``last_at`` with the height ``last``: the latest time of a row with a height (``NEVER``: none has a time); ``time``:
    the latest time of rows without height. ``NO_HEIGHT`` as a position, ``NO_TIME`` as a time: not seen.
    """

    height: Three
    position: Three
    height_at: Three
    has_height: Three
    last_at: Three
    last: Three
    time: Three


ROW = ("index", "chain", "height", "time")
"""What is kept of a row at an end of a piece."""

ENDS = ("first_sent", "last_sent", "first_received", "last_received", "lead", "tail")
"""Rows that are kept of a piece: the ends of what was sent and received, the first open message at each end."""

PLACES = ("top", "top_position", "top_at", "has_top", "last_at", "last", "top_time", "least", "least_time")
"""The first and the last places of a piece."""

RAISING = 128
"""So many rows are kept of a piece that may have others before it: the first that nothing in it is behind. Which of
them are behind what came before the piece is mostly decided without looking at the piece again."""


class Along:
    """The pieces of one run, walked along. ``before``: what is known of places before each."""

    def __init__(self, bucket: Bucket, before: dict[PieceKey, Before]) -> None:
        from causeway.audit.lane_loops import NOTHING_BEFORE, walk

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
        inside = (columns.segment_of(first_rows) > 0) | columns.rows.scattered
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
        walk(
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

    def order(self) -> Checked:
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
            if not columns.all_placed:
                placed = rows[asked]
                unseen = (columns.height[placed] == NO_HEIGHT) & (columns.time[placed] == NO_TIME)
                found.append(Finding("order", UNKNOWN, "place_unseen", placed[unseen]))
        return Checked("order", examined, found)

    def out_of_order(self, number: int) -> Bools:
        """Return which messages' event (by its place in ``ORDERED``) is before that of one with a lower index."""
        columns = self.bucket.columns
        return np.asarray((self.below[number] == 1) & (columns.indexed[columns.starts[:-1]] == 1))

    def gap_rows(self) -> tuple[Array, Array, Array]:
        """Return, of gaps between sent messages of one piece in numbered lanes: the rows before and after, and how many
        are missing."""
        sent = self.bucket.first(Event.SENT)
        gaps = self.gaps[self.bucket.promised("numbered")[self.bucket.lane[self.gaps[:, 0]]]]
        one, other = sent[gaps[:, 0]], sent[gaps[:, 1]]
        return one, other, self.bucket.columns.index[other] - self.bucket.columns.index[one] - np.uint64(1)

    def gap_check(self) -> Checked:
        """Numbered lanes show every index between the first and the last, and ordered ones skip no message."""
        bucket, columns = self.bucket, self.bucket.columns
        sent, received = bucket.first(Event.SENT), bucket.first(Event.RECEIVED)
        one, other, missing = self.gap_rows()
        inside = bucket.together(one, other, Event.SENT)
        index = columns.index[one] + np.uint64(1)
        ordered = bucket.promised("ordered_receives")
        skips = self.skips[ordered[bucket.lane[self.skips[:, 0]]]]
        came = columns.time[received[skips[:, 1]]]
        covered = (skips[:, 4] == MOST) | ((came != NO_TIME) & (skips[:, 4] > NEVER) & (skips[:, 4] >= came))
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
        return Checked("gaps", np.where(asked, bucket.count(bucket.has(Event.SENT, Event.RECEIVED)), 0), found)

    def _overdue(self, rows: Ints) -> Bools:
        """Return which sent messages are missing beyond the deadline of their lane."""
        columns, known, found = self.bucket.columns, self.bucket.known, np.zeros(len(rows), bool)
        for lane, own in self.bucket.by_lane(rows):
            found[own] = is_overdue(known, lane, columns.time[rows[own]])
        return found

    def summary(self) -> pa.Table:
        """Return one row a piece: what the other pieces of its lane need to know of it."""
        columns, bucket = self.bucket.columns, self.bucket
        sent, received = bucket.first(Event.SENT), bucket.first(Event.RECEIVED)
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
        for name, (of, message) in zip(ENDS, rows, strict=True):
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


def _latest(columns: Columns, rows: Array, starts: Array, stops: Array) -> Array:
    """Return the latest time of the rows of each piece's messages (-1: none)."""
    seen = (rows >= 0) & (columns.time[rows] != NO_TIME)
    times = np.append(np.where(seen, columns.time[rows], NEVER), NEVER)
    bounds = np.stack((starts, stops), axis=1).reshape(-1)
    return np.maximum.reduceat(times, bounds)[::2] if len(bounds) else np.zeros(0, np.int64)


def lane_columns(columns: Columns, codes: Array) -> dict[str, pa.Array]:
    """Return the four names of lanes as columns."""
    at = pa.array(codes)
    return {name: names.take(at) for name, names in columns.lane_names.items()}


def _row_columns(columns: Columns, name: str, rows: Array) -> dict[str, pa.Array]:
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
