"""The check ``back_pressure``: no lane has more messages in flight than it promises.

In the first look a run says how many of its messages are in flight at most, piece by piece of the order in which they
are sent and end (``crowds_in``). Where what all runs say together is not more than the lane promises, nothing can be
over (``crowds``). The messages of the other ranges of lanes give records (``flights``), and those of one range come
together (``flights_met``): what began before it is told in sums, and what ends in it as stops.

A message stands in its lane at a place, the height or time at which it was sent, and of those sent at one place in the
order of the lane (``orders_of``). Ends of flights come before all that is sent at their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Array, Ints, Words, order_preserving_times
from causeway.audit.bucket import BucketMessages, id_prefixes
from causeway.audit.checks.lane_order import lane_columns
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools
from causeway.ledger.row_order import EVENTS
from causeway.ledger.schema import LANE, LedgerEvent
from causeway.ledger.windows import LanePromises, table_lanes

CHECK, CAPACITY = "back_pressure", "capacity"

FLIGHT_ENDS = (
    LedgerEvent.ACKNOWLEDGED,
    LedgerEvent.TIMED_OUT,
    LedgerEvent.COLLECTED,
    LedgerEvent.DROPPED,
    LedgerEvent.REJECTED,
)
"""What ends the flight of a message, on the chain that sent it."""

OVER, UNCOVERED, UNPLACED = "over_capacity", "ends_not_covered", "place_unseen"
"""Reasons: too many surely are in flight; too many may be; nobody saw when the message was sent."""

NO_POSITION = np.uint64(2**64 - 1)
"""The place of what was not seen, as a number: ``NO_HEIGHT``, or ``NO_TIME``."""

POINTS, STEP = 64, 64
"""A run says of a lane at most at so many points how many are in flight, of so many sendings and ends at least."""

DENSE_RANGES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("by_height", pa.bool_()), ("sent", pa.int64()), ("unplaced", pa.int64())),
        *(("places", pa.list_(pa.uint64())), ("orders", pa.list_(pa.uint64()))),
        *(("most", pa.list_(pa.int64())), ("begun", pa.list_(pa.int64()))),
    ]
)
"""What a run has of a lane that promises a capacity: how many messages were ``sent``, ``unplaced`` of them nobody knows
where; from each point (``places``, ``orders``) up to the next one ``begun`` are sent, and ``most`` are in flight at
most. There is one row whose places are times and, where all sendings and ends have a height, one in heights."""

_IS_END = np.array([event in {end.value for end in FLIGHT_ENDS} for event in EVENTS])


@dataclass(frozen=True)
class InflightMessages:
    """Sent messages of some lanes: of each its number, first sending, lane code and, in heights and in times, its place
    and that of its end (``NOWHERE``: not seen); ``ended``: whether any end was seen, ``ends_placed``: whether all that
    were have a height."""

    messages: Ints
    rows: Ints
    lane: Ints
    heights: tuple[Words, Words]
    times: tuple[Words, Words]
    ended: Bools
    has_end_position: Bools

    @classmethod
    def of(cls, bucket: BucketMessages, lanes: Bools) -> InflightMessages:
        """Return those of some lanes."""
        columns, sent = bucket.columns, bucket.first(LedgerEvent.SENT)
        messages = np.flatnonzero(lanes[bucket.lane] & (sent >= 0)) if lanes.any() else np.zeros(0, np.int64)
        rows = sent[messages].astype(np.int64)
        end_height, end_time = np.full(len(messages), NO_HEIGHT), np.full(len(messages), NO_TIME)
        ended, placed = np.zeros(len(messages), bool), np.ones(len(messages), bool)
        at, ends = _ends(bucket, messages)
        if len(at) and (at[1:] == at[:-1]).any():
            np.minimum.at(end_height, at, columns.height[ends])
            np.minimum.at(end_time, at, columns.time[ends])
        else:
            end_height[at], end_time[at] = columns.height[ends], columns.time[ends]
        ended[at] = True
        placed[at[columns.height[ends] == NO_HEIGHT]] = False
        return cls(
            *(messages, rows, bucket.lane[messages].astype(np.int64)),
            *(
                (columns.height[rows], end_height),
                (order_preserving_times(columns.time[rows]), order_preserving_times(end_time)),
            ),
            *(ended, placed),
        )

    def taken(self, which: Array) -> InflightMessages:
        """Return some of them."""
        heights, times = ((own[0][which], own[1][which]) for own in (self.heights, self.times))
        messages, rows, lane = (each[which] for each in (self.messages, self.rows, self.lane))
        return InflightMessages(messages, rows, lane, heights, times, self.ended[which], self.has_end_position[which])


def _ends(bucket: BucketMessages, messages: Ints) -> tuple[Ints, Ints]:
    """Return the rows that end flights of some messages, as which of these and row."""
    columns = bucket.columns
    if not len(messages):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.flatnonzero(_IS_END[columns.event] & (columns.alive > 0))
    which = np.full(len(bucket.lane), -1, np.int64)
    which[messages] = np.arange(len(messages))
    at = which[columns.message[rows]]
    codes = {name: code for code, name in enumerate(columns.chains)}
    source = np.array([-2 if lane[1] is None else codes.get(lane[1], -2) for lane in columns.lanes], np.int64)
    own = (columns.chain[rows] < 0) | (columns.chain[rows] == source[columns.lane[rows]])
    kept = (at >= 0) & own
    return at[kept], rows[kept]


def message_orders(bucket: BucketMessages, rows: Ints) -> Words:
    """Return the order of messages of a lane, of rows of them, roughly: by index, those without one last, by what their
    ``message_id`` begins with. Messages that it makes alike lie in one range."""
    columns = bucket.columns
    found: Words = columns.index[rows] >> np.uint64(1)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        words = id_prefixes(columns, rows[unindexed])[0]
        found[unindexed] = np.uint64(1 << 63) | (words >> np.uint64(1))
    return found


def find_dense_ranges(bucket: BucketMessages) -> pa.Table:
    """Return what a run has of lanes that promise a capacity (``CROWDS_SCHEMA``)."""
    lanes = bucket.numbers(CAPACITY)[0]
    own = InflightMessages.of(bucket, lanes)
    if not len(own.rows):
        return DENSE_RANGES_SCHEMA.empty_table()
    count = len(lanes)
    sent = np.bincount(own.lane, minlength=count)
    orders = message_orders(bucket, own.rows)
    placed = (own.heights[0] != NO_POSITION) & own.has_end_position
    in_heights = (np.bincount(own.lane, placed, count) == sent) & (sent > 0)
    tables = []
    for by_height, chosen in ((True, in_heights), (False, sent > 0)):
        places, ends = own.heights if by_height else own.times
        seen = places != NO_POSITION
        which = np.flatnonzero(seen & chosen[own.lane])
        rough = np.zeros(count, bool) if by_height else in_heights
        points = _points(own.lane[which], places[which], orders[which], ends[which], rough, count)
        codes = np.flatnonzero(chosen)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(points[0], minlength=count)[codes]))).astype(np.int32)
        content: dict[str, Any] = lane_columns(bucket.columns, codes)
        content["by_height"] = pa.array(np.full(len(codes), by_height))
        content["sent"] = pa.array(sent[codes])
        content["unplaced"] = pa.array(np.bincount(own.lane, ~seen, count).astype(np.int64)[codes])
        for name, values in zip(("places", "orders", "most", "begun"), points[1:], strict=True):
            content[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
        tables.append(pa.table(content).cast(DENSE_RANGES_SCHEMA))
    return pa.concat_tables(tables)


def _points(
    lane: Ints, place: Words, order: Words, end: Words, rough: Bools, lanes: int
) -> tuple[Ints, Words, Words, Ints, Ints]:
    """Return points of lanes: lane, place, order, how many are in flight at most, how many begin up to the next one.

    Args:
        lane, place, order, end: of messages; lanes ascend.
        rough: lanes in which ends do not count.
        lanes: how many there are.
    """
    from causeway.audit.checks.lane_loops import write_range_points

    sends = _ascending(lane, place, order)
    lane_sent, place, order = lane[sends], place[sends], order[sends]
    closed = np.flatnonzero((end[sends] != NO_POSITION) & (end[sends] > place))
    # One that ended at the place where it was sent, or before, never flew; of the others all may.
    flies = (end[sends] == NO_POSITION) | (end[sends] > place)
    closed = closed[~rough[lane_sent[closed]]]
    ends = _ascending(lane_sent[closed], end[sends][closed])
    end, end_lane = end[sends][closed][ends], lane_sent[closed][ends]
    bounds = np.searchsorted(lane_sent, np.arange(lanes + 1)), np.searchsorted(end_lane, np.arange(lanes + 1))
    events = np.diff(bounds[0]) + np.diff(bounds[1])
    steps = np.maximum(STEP, -(-events // POINTS))
    room = int((-(-events // steps) + 1).sum())
    lanes_out, most, begun = (np.empty(room, np.int64) for _ in range(3))
    places_out, orders_out = np.empty(room, np.uint64), np.empty(room, np.uint64)
    found = lanes_out, places_out, orders_out, most, begun
    count = write_range_points(*bounds, steps, place, order, flies.view(np.uint8), end, *found)
    return lanes_out[:count], places_out[:count], orders_out[:count], most[:count], begun[:count]


def _ascending(*keys: Array) -> Ints:
    """Return the order of rows by some keys, the first one first; mostly they ascend already."""
    ascends = keys[-1][1:] >= keys[-1][:-1]
    for key in keys[-2::-1]:
        ascends = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & ascends)
    return np.arange(len(keys[0])) if ascends.all() else np.lexsort(keys[::-1])


def count_examined(lanes: pa.Table, promises: LanePromises) -> pa.Table:
    """Return how many messages of each lane are examined, as the counts of a run. ``lanes``: ``Passed.lanes``."""
    sums = lanes.group_by(list(LANE)).aggregate([("sent", "sum")])
    promised = np.array([promises.of(lane).get(CAPACITY) is not None for lane in table_lanes(sums)], bool)
    kept = sums.filter(pa.array(promised & (sums["sent_sum"].to_numpy() > 0)))
    texts = {"check": CHECK, "verdict": "", "reason": ""}
    content = {name: pa.array([text] * len(kept), pa.string()) for name, text in texts.items()}
    return pa.table(content | {name: kept[name] for name in LANE} | {"count": kept["sent_sum"]})


__all__ = ["CHECK", "FLIGHT_ENDS", "InflightMessages", "count_examined", "find_dense_ranges"]
