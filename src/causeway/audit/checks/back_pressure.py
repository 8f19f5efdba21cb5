"""The check ``back_pressure``: no lane exceeds its capacity of messages in flight.

In the first pass a run bounds the number of its messages in flight by ranges of a lane (``find_dense_ranges``). A lane
whose summed bounds stay within the capacity is fine. The messages of the other ranges are counted exactly
(``passes.inflight``).

The position of a message is the height or time of its sending; messages at one position follow in lane order
(``message_orders``). Ends of flights precede the sendings at their position.
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
"""Events on the source that end the flight of a message."""

OVER, UNCOVERED, UNPLACED = "over_capacity", "ends_not_covered", "place_unseen"
"""Reasons: certainly over the capacity; possibly over it; unknown send position."""

NO_POSITION = np.uint64(2**64 - 1)
"""Unknown position as a number: ``NO_HEIGHT``, or ``NO_TIME``."""

POINTS, STEP = 64, 64
"""Maximum number of points of a lane in a run, and minimum number of sendings and ends a point."""

DENSE_RANGES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("by_height", pa.bool_()), ("sent", pa.int64()), ("unplaced", pa.int64())),
        *(("places", pa.list_(pa.uint64())), ("orders", pa.list_(pa.uint64()))),
        *(("most", pa.list_(pa.int64())), ("begun", pa.list_(pa.int64()))),
    ]
)
"""Bounds of a run for a lane with a capacity: number of messages ``sent``, ``unplaced`` of them without a position;
from each point (``places``, ``orders``) to the next one ``begun`` are sent, and at most ``most`` are in flight.
There is one row with times as positions and, if all sendings and ends have a height, one with heights."""

_IS_END = np.array([event in {end.value for end in FLIGHT_ENDS} for event in EVENTS])


@dataclass(frozen=True)
class InflightMessages:
    """Sent messages of some lanes.

    Attributes:
        messages: Message numbers.
        rows: First sending of each.
        lane: Lane code of each.
        heights: Height of each sending and end; ``NO_POSITION``: unknown.
        times: Time of each sending and end, order-preserving; ``NO_POSITION``: unknown.
        ended: Mask of messages with an end.
        has_end_position: Mask of messages whose known ends all have a height.
    """

    messages: Ints
    rows: Ints
    lane: Ints
    heights: tuple[Words, Words]
    times: tuple[Words, Words]
    ended: Bools
    has_end_position: Bools

    @classmethod
    def of(cls, bucket: BucketMessages, lanes: Bools) -> InflightMessages:
        """Return the sent messages of a mask of lanes."""
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

    def take(self, chosen: Array) -> InflightMessages:
        """Return chosen messages."""
        heights, times = ((own[0][chosen], own[1][chosen]) for own in (self.heights, self.times))
        messages, rows, lane = (each[chosen] for each in (self.messages, self.rows, self.lane))
        return InflightMessages(messages, rows, lane, heights, times, self.ended[chosen], self.has_end_position[chosen])


def _ends(bucket: BucketMessages, messages: Ints) -> tuple[Ints, Ints]:
    """Return the flight ends of some messages: their positions among these, and rows."""
    columns = bucket.columns
    if not len(messages):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = np.flatnonzero(_IS_END[columns.event] & (columns.alive > 0))
    position_of = np.full(len(bucket.lane), -1, np.int64)
    position_of[messages] = np.arange(len(messages))
    at = position_of[columns.message[rows]]
    codes = {name: code for code, name in enumerate(columns.chains)}
    source = np.array([-2 if lane[1] is None else codes.get(lane[1], -2) for lane in columns.lanes], np.int64)
    own = (columns.chain[rows] < 0) | (columns.chain[rows] == source[columns.lane[rows]])
    mask = (at >= 0) & own
    return at[mask], rows[mask]


def message_orders(bucket: BucketMessages, rows: Ints) -> Words:
    """Return a coarse order of messages in their lanes.

    The key is the index; messages without one follow by the begin of their ``message_id``. Messages with equal keys
    share a range.
    """
    columns = bucket.columns
    found: Words = columns.index[rows] >> np.uint64(1)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        words = id_prefixes(columns, rows[unindexed])[0]
        found[unindexed] = np.uint64(1 << 63) | (words >> np.uint64(1))
    return found


def find_dense_ranges(bucket: BucketMessages) -> pa.Table:
    """Bound the messages in flight of a run by ranges (``DENSE_RANGES_SCHEMA``).

    Args:
        bucket: Rows of a run and the outcome of its messages.

    Returns:
        Rows of ``DENSE_RANGES_SCHEMA`` for the lanes with a capacity; empty without any.
    """
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
        chosen_rows = np.flatnonzero(seen & chosen[own.lane])
        rough = np.zeros(count, bool) if by_height else in_heights
        points = _points(
            own.lane[chosen_rows], places[chosen_rows], orders[chosen_rows], ends[chosen_rows], rough, count
        )
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
    """Return the points of lanes.

    They are lane, position, order, maximum in flight, and sendings up to the next point.

    Args:
        lane: Lane of each message, ascending.
        place: Position of each message.
        order: Order of each message.
        end: End of each message.
        rough: Mask of lanes without counted ends.
        lanes: Number of lanes.
    """
    from causeway.audit.checks.lane_loops import write_range_points

    sends = _ascending(lane, place, order)
    lane_sent, place, order = lane[sends], place[sends], order[sends]
    closed = np.flatnonzero((end[sends] != NO_POSITION) & (end[sends] > place))
    # A message that ended at its send position or before never flew; all others may.
    flies = (end[sends] == NO_POSITION) | (end[sends] > place)
    closed = closed[~rough[lane_sent[closed]]]
    ends = _ascending(lane_sent[closed], end[sends][closed])
    end, end_lane = end[sends][closed][ends], lane_sent[closed][ends]
    bounds = np.searchsorted(lane_sent, np.arange(lanes + 1)), np.searchsorted(end_lane, np.arange(lanes + 1))
    events = np.diff(bounds[0]) + np.diff(bounds[1])
    steps = np.maximum(STEP, -(-events // POINTS))
    max_points = int((-(-events // steps) + 1).sum())
    lanes_out, most, begun = (np.empty(max_points, np.int64) for _ in range(3))
    places_out, orders_out = np.empty(max_points, np.uint64), np.empty(max_points, np.uint64)
    found = lanes_out, places_out, orders_out, most, begun
    count = write_range_points(*bounds, steps, place, order, flies.view(np.uint8), end, *found)
    return lanes_out[:count], places_out[:count], orders_out[:count], most[:count], begun[:count]


def _ascending(*keys: Array) -> Ints:
    """Return the order of rows by some keys, most significant first; mostly they ascend already."""
    ascends = keys[-1][1:] >= keys[-1][:-1]
    for key in keys[-2::-1]:
        ascends = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & ascends)
    return np.arange(len(keys[0])) if ascends.all() else np.lexsort(keys[::-1])


def count_examined(lanes: pa.Table, promises: LanePromises) -> pa.Table:
    """Count the examined messages of each lane. ``lanes``: ``RunResult.lanes``.

    Args:
        lanes: Number of messages ``sent`` by lane (``RunResult.lanes``).
        promises: Guarantees of lanes.

    Returns:
        Rows of ``COUNTS_SCHEMA`` with empty ``verdict`` and ``reason``, for lanes with a capacity and messages.
    """
    sums = lanes.group_by(list(LANE)).aggregate([("sent", "sum")])
    promised = np.array([promises.of(lane).get(CAPACITY) is not None for lane in table_lanes(sums)], bool)
    examined = sums.filter(pa.array(promised & (sums["sent_sum"].to_numpy() > 0)))
    texts = {"check": CHECK, "verdict": "", "reason": ""}
    content = {name: pa.array([text] * len(examined), pa.string()) for name, text in texts.items()}
    return pa.table(content | {name: examined[name] for name in LANE} | {"count": examined["sent_sum"]})


__all__ = ["CHECK", "FLIGHT_ENDS", "InflightMessages", "count_examined", "find_dense_ranges"]
