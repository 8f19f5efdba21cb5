"""Order and gaps: what is seen along the indices of a lane, a segment at a time, and what a segment leaves open.

A lane may lie in many buckets. What a bucket cannot know of a lane is left to ``joining``: gaps between two segments,
open messages at a segment's ends, and the places before a segment, which a second look is given as ``Before``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.audit.checks import ORDERED, UNKNOWN, VIOLATED, Bucket, Checked, Finding
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Array, Bools, Columns
from causeway.audit.windows import Lane
from causeway.ledger.schema import Event

SegmentKey = tuple[Lane, int]
"""A lane and the number of a segment in it (``index >> 18``)."""


@dataclass(frozen=True)
class Before:
    """The last places before a segment, of sent, received and acknowledged each: the greatest height with its position,
    and the latest time of rows without height. ``NO_HEIGHT`` as a position: not seen; ``has_height``: whether any."""

    height: tuple[int, int, int]
    position: tuple[int, int, int]
    has_height: tuple[int, int, int]
    time: tuple[int, int, int]


ROW = ("index", "chain", "height", "time")
"""What is kept of a row at an end of a segment."""

ENDS = ("first_sent", "last_sent", "first_received", "last_received", "lead", "tail")
"""Rows that are kept of a segment: the ends of what was sent and received, the first open message at each end."""


class Along:
    """One bucket's segments, walked along. ``before``: what is known of places before each."""

    def __init__(self, bucket: Bucket, before: dict[SegmentKey, Before]) -> None:
        from causeway.audit.lane_loops import NOTHING_BEFORE, walk

        self.bucket = bucket
        columns = bucket.columns
        all_starts = columns.segment_starts
        first_rows = columns.starts[all_starts[:-1]]
        numbered = columns.indexed[first_rows] == 1
        starts, stops = all_starts[:-1][numbered], all_starts[1:][numbered]
        first_rows = first_rows[numbered]
        self.lane, self.segment = columns.lane[first_rows], columns.segment_of(first_rows)
        count, messages = len(starts), len(columns.starts) - 1
        self.top = np.zeros((count, 3), np.uint64)
        self.top_position = np.full((count, 3), NO_HEIGHT, np.uint64)
        self.has_top = np.zeros((count, 3), np.uint8)
        self.top_time = np.full((count, 3), NOTHING_BEFORE, np.int64)
        if before:
            for number, (lane, segment) in enumerate(zip(self.lane.tolist(), self.segment.tolist(), strict=True)):
                known = before.get((columns.lanes[lane], segment))
                if known is not None:
                    self.top[number], self.top_position[number] = known.height, known.position
                    self.has_top[number], self.top_time[number] = known.has_height, known.time
        self.least = np.full((count, 3), NO_HEIGHT, np.uint64)
        self.least_time = np.full((count, 3), NO_TIME, np.int64)
        self.below = np.zeros((messages, 3), np.uint8)
        self.ends = np.full((count, 2), -1, np.int64)
        gaps, skips = np.empty((messages, 2), np.int64), np.empty((messages, 4), np.int64)
        self.lead, self.tail = np.empty((count, 3), np.int64), np.empty((count, 3), np.int64)
        sizes = np.zeros(2, np.int64)
        walk(
            *(starts, stops, columns.index[columns.starts[:-1]], bucket.messages.firsts),
            *(columns.height, columns.position, columns.time, bucket.is_open.astype(np.uint8)),
            *(self.top, self.top_position, self.has_top, self.top_time, self.least, self.least_time, self.below),
            *(self.ends, gaps, skips, self.lead, self.tail, sizes),
        )
        self.gaps, self.skips = gaps[: sizes[0]], skips[: sizes[1]]

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
            no_place = (columns.height[rows] == NO_HEIGHT) & (columns.time[rows] == NO_TIME)
            wrong = asked & numbered & (self.below[:, number] == 1)
            found.append(Finding("order", VIOLATED, f"{event.value}_out_of_order", rows[wrong]))
            found.append(Finding("order", UNKNOWN, "place_unseen", rows[asked & numbered & no_place]))
            found.append(Finding("order", UNKNOWN, "index_unseen", rows[asked & ~numbered]))
        return Checked("order", examined, found)

    def out_of_order(self, number: int) -> Bools:
        """Return which messages' event (by its place in ``ORDERED``) is before that of one with a lower index."""
        columns = self.bucket.columns
        return np.asarray((self.below[:, number] == 1) & (columns.indexed[columns.starts[:-1]] == 1))

    def gap_rows(self) -> tuple[Array, Array, Array]:
        """Return, of gaps between sent messages of one segment in numbered lanes: the rows before and after, and how
        many are missing."""
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
        covered = bucket.together(received[skips[:, 0]], received[skips[:, 1]], Event.RECEIVED)
        rows, many = sent[skips[:, 2]], skips[:, 3].astype(np.float64)
        found = []
        for reason, chosen in (("missing_inside_window", inside), ("missing_outside_windows", ~inside)):
            how_many = missing[chosen].astype(np.float64)
            found.append(Finding("gaps", UNKNOWN, reason, other[chosen], how_many, "messages", index[chosen], False))
        for verdict, reason, chosen in ((VIOLATED, "skipped", covered), (UNKNOWN, "skipped_not_covered", ~covered)):
            first = columns.index[rows[chosen]]
            found.append(Finding("gaps", verdict, reason, rows[chosen], many[chosen], "messages", first, False))
        asked = bucket.promised("numbered") | ordered
        return Checked("gaps", np.where(asked, bucket.count(bucket.has(Event.SENT, Event.RECEIVED)), 0), found)

    def summary(self) -> pa.Table:
        """Return one row a segment: what the other segments of its lane need to know of it."""
        columns, bucket = self.bucket.columns, self.bucket
        sent, received = bucket.first(Event.SENT), bucket.first(Event.RECEIVED)
        table = lane_columns(columns, self.lane)
        table["segment"] = pa.array(self.segment)
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
        table["lead_count"], table["tail_count"] = pa.array(self.lead[:, 1]), pa.array(self.tail[:, 1])
        for number, promise in enumerate(ORDERED):
            for name in ("top", "top_position", "has_top", "top_time", "least", "least_time"):
                table[f"{name}_{promise}"] = pa.array(np.ascontiguousarray(getattr(self, name)[:, number]))
        return pa.table(table)


def lane_columns(columns: Columns, codes: Array) -> dict[str, pa.Array]:
    """Return the four names of lanes as columns."""
    found = {}
    for place, name in enumerate(("protocol", "source", "destination", "lane")):
        names = pa.array([lane[place] for lane in columns.lanes], pa.string())
        found[name] = names.take(pa.array(codes))
    return found


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
