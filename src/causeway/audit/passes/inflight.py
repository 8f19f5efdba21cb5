"""Count in-flight messages exactly in ranges of lanes that may exceed their capacity.

Strategy: dense ranges reported by the runs of all buckets are merged to suspect ranges (``find_suspect_ranges``). The
runs then give records of the messages in these ranges (``inflight_records``). The records of one range come together in
one part, and are counted there in order (``join_inflight``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import group_rows

from causeway.audit.arrays import Array, Ints, Words, order_preserving_times
from causeway.audit.bucket import BucketMessages, id_prefixes
from causeway.audit.checks.back_pressure import (
    CAPACITY,
    CHECK,
    FLIGHT_ENDS,
    NO_POSITION,
    OVER,
    UNCOVERED,
    UNPLACED,
    InflightMessages,
    message_orders,
)
from causeway.audit.columns import Bools
from causeway.audit.passes.finding_candidates import (
    CANDIDATES_SCHEMA,
    TALLY_SCHEMA,
    FindingGroup,
    JoinResult,
    reason_number,
    to_tables,
    top_findings,
)
from causeway.ledger.row_order import number_lanes
from causeway.ledger.windows import Lane, LanePromises

__all__ = ["RECORDS", "LaneRanges", "SuspectRanges", "inflight_records"]

LAST_RANGE = np.uint64(2**64 - 1)
"""Order after all messages sent at the same position."""

_KEYS = [("lane", pa.int32()), ("bucket", pa.int32()), ("row", pa.int64()), ("index", pa.uint64())]
INFLIGHT_SCHEMA = pa.schema(
    [
        *(("group", pa.int32()), *_KEYS, ("indexed", pa.uint8()), ("message_id", pa.string())),
        *(("own_0", pa.uint64()), ("own_1", pa.uint64())),
        *(("place", pa.uint64()), ("end", pa.uint64()), ("until", pa.uint64()), ("state", pa.uint8())),
    ]
)
"""A message in the range ``group``. ``lane``: number of its lane; ``row``: its first sending in the bucket, at
``place``; ``message_id``: of a message without index; ``state``: ``FLYING`` until its ``end``, ``UNENDED``, or
``COVERED``: without end, though the input would show one up to ``until``."""

FLYING, UNENDED, COVERED = 1, 2, 4

STOPS_SCHEMA = pa.schema([("group", pa.int32()), ("place", pa.uint64()), ("state", pa.uint8())])
"""End in a range of a message sent before it (``FLYING``), or the end of its coverage (``COVERED``)."""

SUMS_SCHEMA = pa.schema(
    [("group", pa.int32()), ("flying", pa.int64()), ("unended", pa.int64()), ("covered", pa.int64())]
)
"""Number of messages in flight at the begin of a range."""

RECORDS = {
    "flights": INFLIGHT_SCHEMA,
    "stops": STOPS_SCHEMA,
    "sums": SUMS_SCHEMA,
    "unplaced": CANDIDATES_SCHEMA,
    "unplaced_many": TALLY_SCHEMA,
}
"""Schemas by kind of record. ``unplaced``: findings that may be named; ``unplaced_many``: their number."""


class LaneRanges(NamedTuple):
    """The ranges of a lane.

    Attributes:
        number: Number of the lane.
        by_height: Positions are heights, else times.
        places: Begin of each range but the first.
        orders: Order at the begin of each range but the first.
        groups: Number of each range, -1: it cannot exceed the capacity.
        unplaced: Part for messages with an unknown position.
    """

    number: int
    by_height: bool
    places: Words
    orders: Words
    groups: Ints
    unplaced: int


@dataclass(frozen=True)
class SuspectRanges:
    """Ranges to count exactly.

    Attributes:
        cuts: Ranges by lane.
        parts: Part of each group.
        capacities: Capacity of each group.
        count: Number of parts.
        limit: Maximum number of named findings of a lane and reason.
    """

    cuts: Mapping[Lane, LaneRanges]
    parts: Ints
    capacities: Ints
    count: int
    limit: int


def inflight_records(
    bucket: BucketMessages, places: Ints, number: int, state: SuspectRanges
) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield the records of a run's messages in suspect ranges: part, kind, records.

    Args:
        bucket: The run.
        places: Position of each of its rows in the bucket.
        number: Number of the bucket.
        state: The suspect ranges.
    """
    cuts = [state.cuts.get(lane) for lane in bucket.columns.lanes]
    own = InflightMessages.of(bucket, np.array([cut is not None for cut in cuts], bool))
    if not len(own.rows):
        return
    by_height = np.array([cut is not None and cut.by_height for cut in cuts], bool)[own.lane]
    place = np.where(by_height, own.heights[0], own.times[0])
    end = np.where(by_height, own.heights[1], own.times[1])
    yield from _unplaced(bucket, own.take(np.flatnonzero(place == NO_POSITION)), cuts, places, number, state)
    placed = np.flatnonzero(place != NO_POSITION)
    own, place, end = own.take(placed), place[placed], end[placed]
    until = _until(bucket, own, place, end, cuts)
    flying, unended = (end != NO_POSITION) & (end > place), end == NO_POSITION
    # An end at an unknown position allows no certain count.
    covered = unended & ~own.ended & (until != NO_POSITION)
    group = np.array([cut.groups[0] if cut and len(cut.groups) == 1 else -1 for cut in cuts], np.int64)[own.lane]
    stops, sums = [STOPS_SCHEMA.empty_table()], [SUMS_SCHEMA.empty_table()]
    orders = None
    bounds = np.searchsorted(own.lane, np.arange(len(cuts) + 1))
    for code, cut in enumerate(cuts):
        begin, stop = bounds[code], bounds[code + 1]
        if cut is None or len(cut.groups) < 2 or begin == stop:
            continue
        orders = message_orders(bucket, own.rows) if orders is None else orders
        segment = slice(begin, stop)
        ranges = [
            _range_of(place[segment], orders[segment], cut),
            _range_of(end[segment], np.zeros(stop - begin, np.uint64), cut),
            _range_of(until[segment], np.full(stop - begin, LAST_RANGE), cut),
        ]
        group[segment] = cut.groups[ranges[0]]
        stops += _stops(cut, ranges, (end[segment], until[segment]), (flying[segment], covered[segment]))
        sums.append(_sums(cut, ranges, flying[segment], unended[segment], covered[segment]))
    chosen = np.flatnonzero(group >= 0)
    rows = own.rows[chosen]
    columns = bucket.columns
    texts = columns.rows.take(("message_id",), rows)["message_id"] if len(columns.ident) else None
    indexed = columns.indexed[rows]
    words = id_prefixes(columns, rows)
    content = {
        "group": group[chosen],
        "lane": np.array([-1 if cut is None else cut.number for cut in cuts], np.int32)[own.lane[chosen]],
        "bucket": np.full(len(rows), number, np.int32),
        "row": places[rows],
        "index": columns.index[rows],
        "indexed": indexed,
        "message_id": pa.nulls(len(rows), pa.string())
        if texts is None
        else pc.if_else(pa.array(indexed == 1), pa.scalar(None, pa.string()), texts),
        "own_0": words[0],
        "own_1": words[1],
        "place": place[chosen],
        "end": end[chosen],
        "until": until[chosen],
        "state": (flying * FLYING + unended * UNENDED + covered * COVERED)[chosen].astype(np.uint8),
    }
    flights = pa.table({name: content[name] for name in INFLIGHT_SCHEMA.names}).cast(INFLIGHT_SCHEMA)
    for kind, records in (("flights", flights), ("stops", pa.concat_tables(stops)), ("sums", pa.concat_tables(sums))):
        yield from split_by_part(kind, records.combine_chunks(), state.parts[records["group"].to_numpy()])


def split_by_part(kind: str, records: pa.Table, part: Ints) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield records grouped by part."""
    order = np.argsort(part, kind="stable")
    groups = group_rows(part[order])
    records = records.take(pa.array(order))
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        yield int(part[order[begin]]), kind, records.slice(begin, count)


def _unplaced(
    bucket: BucketMessages,
    own: InflightMessages,
    cuts: list[LaneRanges | None],
    places: Ints,
    number: int,
    state: SuspectRanges,
) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield the first messages of each lane with an unknown send position, and their number."""
    columns, reason = bucket.columns, reason_number(CHECK, UNPLACED)
    for code, begin, count in _lane_runs(own.lane):
        cut = cuts[code]
        assert cut is not None, "only lanes with ranges have flights"
        rows = own.rows[begin : begin + min(count, state.limit)]
        words = id_prefixes(columns, rows)
        content = {
            "reason": np.full(len(rows), reason),
            "lane": np.full(len(rows), cut.number),
            "bucket": np.full(len(rows), number),
            "row": places[rows],
            "index": columns.index[rows],
            "indexed": columns.indexed[rows],
            "own_0": words[0],
            "own_1": words[1],
            "magnitude": np.full(len(rows), np.nan),
        }
        yield cut.unplaced, "unplaced", _table(CANDIDATES_SCHEMA, content)
        tally = {"reason": np.array([reason]), "lane": np.array([cut.number]), "count": np.array([count])}
        yield cut.unplaced, "unplaced_many", _table(TALLY_SCHEMA, tally)


def _lane_runs(codes: Ints) -> Iterator[tuple[int, int, int]]:
    groups = group_rows(codes)
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        yield int(codes[begin]), begin, count


def _until(
    bucket: BucketMessages, own: InflightMessages, place: Words, end: Words, cuts: list[LaneRanges | None]
) -> Words:
    """Return the end of the windows around each open message's sending that would show its end.

    ``NO_POSITION`` stands for no such window, and for messages with an end.
    """
    found = np.full(len(place), NO_POSITION)
    open_ones = np.flatnonzero(end == NO_POSITION)
    for code, begin, count in _lane_runs(own.lane[open_ones]):
        chosen = open_ones[begin : begin + count]
        lane, cut = bucket.columns.lanes[code], cuts[code]
        last, covered = np.full(count, NO_POSITION), np.ones(count, bool)
        for event in FLIGHT_ENDS:
            spans = bucket.known.windows.of(lane[1], lane, event.value)
            firsts, lasts = spans.heights
            if cut is not None and not cut.by_height:
                firsts, lasts = (order_preserving_times(each) for each in spans.times)
            if not len(firsts):
                covered[:] = False
                break
            at = np.searchsorted(firsts, place[chosen], side="right") - 1
            ends = lasts[np.maximum(at, 0)]
            covered &= (at >= 0) & (place[chosen] <= ends)
            last = np.minimum(last, ends)
        found[chosen] = np.where(covered, np.minimum(last, NO_POSITION - np.uint64(1)), NO_POSITION)
    return found


def _range_of(place: Words, order: Words, cut: LaneRanges) -> Ints:
    """Return the range of each position and order in a lane."""
    from causeway.audit.checks.lane_loops import count_range_pairs

    found = np.empty(len(place), np.int64)
    count_range_pairs(place, order, cut.places, cut.orders, found)
    return found


def _stops(
    cut: LaneRanges, ranges: list[Ints], places: tuple[Words, Words], masks: tuple[Bools, Bools]
) -> Iterator[pa.Table]:
    for state, at, place, chosen in zip((FLYING, COVERED), ranges[1:], places, masks, strict=True):
        rows = np.flatnonzero(chosen & (at > ranges[0]))
        rows = rows[cut.groups[at[rows]] >= 0]
        content = {"group": cut.groups[at[rows]], "place": place[rows], "state": np.full(len(rows), state)}
        yield _table(STOPS_SCHEMA, content)


def _sums(cut: LaneRanges, ranges: list[Ints], flying: Bools, unended: Bools, covered: Bools) -> pa.Table:
    count = len(cut.groups)
    content: dict[str, Array] = {"group": cut.groups}
    for name, mask, stop in (
        ("flying", flying, ranges[1]),
        ("unended", unended, None),
        ("covered", covered, ranges[2]),
    ):
        begun = np.bincount(ranges[0][mask] + 1, minlength=count + 1)
        over = 0 if stop is None else np.bincount(stop[mask] + 1, minlength=count + 1)
        content[name] = np.cumsum(begun - over)[:count]
    suspect = (cut.groups >= 0) & ((content["flying"] != 0) | (content["unended"] != 0))
    return _table(SUMS_SCHEMA, {name: values[suspect] for name, values in content.items()})


def _table(schema: pa.Schema, content: Mapping[str, Array]) -> pa.Table:
    return pa.table([pa.array(content[field.name]).cast(field.type) for field in schema], schema)


def join_inflight(records: Mapping[str, pa.Table], state: SuspectRanges) -> JoinResult:
    """Count the in-flight messages of one part.

    Args:
        records: Records by kind (``RECORDS``), complete for each of their ranges.
        state: The suspect ranges.

    Returns:
        Findings of the part.
    """
    every = _in_order(records["flights"])
    groups, number = np.unique(every["group"], return_inverse=True)
    number = number.reshape(-1).astype(np.int64)
    own_state = every["state"]
    stops = records["stops"]
    closings = []
    for kind, name in ((FLYING, "end"), (COVERED, "until")):
        chosen = (own_state & kind) > 0
        others = stops.filter(pc.equal(stops["state"], kind))
        closings.append(
            _closings(
                groups,
                np.concatenate((every["group"][chosen], others["group"].to_numpy())),
                np.concatenate((every[name][chosen], others["place"].to_numpy())),
            )
        )
    certain, possible = _count_groups(groups, number, every, closings, _initial_counts(records["sums"], groups))
    capacity = state.capacities[every["group"]]
    over = certain > capacity
    unsure = ~over & (possible > capacity)
    found = [
        FindingGroup(CHECK, OVER, every, np.flatnonzero(over), (certain - capacity)[over].astype(np.float64)),
        FindingGroup(CHECK, UNCOVERED, every, np.flatnonzero(unsure), (possible - capacity)[unsure].astype(np.float64)),
    ]
    tables = to_tables(found, {}, state.limit)
    unplaced = records["unplaced_many"].group_by(["reason", "lane"]).aggregate([("count", "sum")])
    tally = unplaced.rename_columns({"count_sum": "count"}).select(TALLY_SCHEMA.names).cast(TALLY_SCHEMA)
    return JoinResult(
        pa.concat_tables([tables.candidates, top_findings(records["unplaced"].combine_chunks(), state.limit)]),
        pa.concat_tables([tables.tally, tally]),
        tables.examined,
    )


def _in_order(flights: pa.Table) -> dict[str, Array]:
    """Return messages sorted by range and position, then in lane order."""
    names = [name for name in INFLIGHT_SCHEMA.names if name != "message_id"]
    own = {name: flights[name].to_numpy() for name in names}
    keys: list[Array] = [own["index"], 1 - own["indexed"].astype(np.int8), own["place"], own["group"]]
    if flights["message_id"].null_count < flights.num_rows:
        order = pc.sort_indices(flights["message_id"]).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        # Messages with an index sort by it alone.
        rank[own["indexed"] == 1] = -1
        keys.insert(0, np.where(own["indexed"] == 1, 0, rank))
    order = np.lexsort(keys)
    return {name: column[order] for name, column in own.items()}


def _closings(groups: Ints, group: Ints, place: Words) -> tuple[Ints, Words]:
    """Return the begin of each range's positions, and the positions, ascending in each range."""
    own = np.isin(group, groups)
    group, place = group[own], place[own]
    order = np.lexsort((place, group))
    starts = np.searchsorted(group[order], groups)
    return np.append(starts, len(order)).astype(np.int64), np.ascontiguousarray(place[order])


def _initial_counts(sums: pa.Table, groups: Ints) -> Ints:
    """Return the number of messages in flight by state at the begin of each range."""
    found = np.zeros((len(groups), 3), np.int64)
    at = np.searchsorted(groups, sums["group"].to_numpy())
    inside = at < len(groups)
    inside[inside] = groups[at[inside]] == sums["group"].to_numpy()[inside]
    for place, name in enumerate(SUMS_SCHEMA.names[1:]):
        np.add.at(found[:, place], at[inside], sums[name].to_numpy()[inside])
    return found


def _count_groups(
    groups: Ints, number: Ints, every: Mapping[str, Array], closings: list[tuple[Ints, Words]], sums: Ints
) -> tuple[Ints, Ints]:
    from causeway.audit.checks.lane_loops import count_inflight

    certain, possible = np.empty(len(number), np.int64), np.empty(len(number), np.int64)
    starts = np.searchsorted(number, np.arange(len(groups) + 1)).astype(np.int64)
    (end_starts, end), (until_starts, until) = closings
    count_inflight(
        *(starts, every["place"], every["state"], end_starts, end, until_starts, until, sums, certain, possible)
    )
    return certain, possible


RANGE_COLUMNS = 1 << 17
"""Approximate number of messages in a range of a large lane."""

_MAXIMUM = 2**63 - 1
"""More than any lane can have in flight."""


def find_suspect_ranges(
    dense_ranges: pa.Table, promises: LanePromises, begin: int, most: int, limit: int
) -> SuspectRanges | None:
    """Merge the dense ranges of all runs, and return those that may exceed a capacity, or None.

    Args:
        dense_ranges: Dense ranges of all runs (``DENSE_RANGES_SCHEMA``).
        promises: Guarantees of lanes.
        begin: First free part.
        most: Approximate number of messages a part.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        The suspect ranges, or None.
    """
    names, code = number_lanes(dense_ranges)
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in names]
    if not lanes:
        return None
    capacity = np.array([min(promises.of(lane).get(CAPACITY) or 0, _MAXIMUM) for lane in lanes], np.int64)
    high = np.asarray(dense_ranges["by_height"].to_numpy(zero_copy_only=False), bool)
    in_heights = np.bincount(code[high], minlength=len(lanes)) == np.bincount(code[~high], minlength=len(lanes))
    rows = np.flatnonzero(high == in_heights[code])
    own, lane_of_row = dense_ranges.take(pa.array(rows)).combine_chunks(), code[rows]
    unplaced = np.bincount(lane_of_row, own["unplaced"].to_numpy(), len(lanes)) > 0
    large = np.bincount(lane_of_row, own["sent"].to_numpy(), len(lanes)) > most
    lengths = np.diff(own["places"].combine_chunks().offsets.to_numpy()) if own.num_rows else np.zeros(0, np.int64)
    row = np.repeat(np.arange(len(rows)), lengths)
    place, order, level, begun = (
        np.asarray(own[name].combine_chunks().flatten().to_numpy()) for name in ("places", "orders", "most", "begun")
    )
    lane = lane_of_row[row]
    # Convert levels to changes since the previous point.
    change = level.astype(np.int64).copy()
    change[1:] -= np.where(row[1:] == row[:-1], level[:-1], 0)
    by = np.lexsort((order, place, lane))
    lane, place, order, change, begun = lane[by], place[by], order[by], change[by], begun[by]
    level, before = _since_lane(lane, change), _since_lane(lane, begun) - begun
    starts = _range_starts(lane, place, order, np.where(large[lane], before // RANGE_COLUMNS, 0))
    range_lane = lane[starts]
    full = np.maximum.reduceat(level, starts) > capacity[range_lane] if len(starts) else np.zeros(0, bool)
    sizes = np.add.reduceat(begun, starts)[full] if len(starts) else np.zeros(0, np.int64)
    groups = np.where(full, np.cumsum(full) - 1, -1)
    parts = begin + (np.cumsum(sizes) - sizes) // most
    count = 1 + int(parts[-1]) - begin if len(parts) else 1
    bounds = np.searchsorted(range_lane, np.arange(len(lanes) + 1))
    cuts = {}
    wanted = unplaced.copy()
    wanted[range_lane[full]] = True
    for number in np.flatnonzero(wanted).tolist():
        segment = slice(bounds[number], bounds[number + 1])
        firsts, own_groups = (
            starts[segment][1:],
            groups[segment] if bounds[number] < bounds[number + 1] else np.array([-1]),
        )
        cuts[lanes[number]] = LaneRanges(
            *(number, bool(in_heights[number]), place[firsts], order[firsts], own_groups, begin + number % count)
        )
    return SuspectRanges(cuts, parts, capacity[range_lane[full]], count, limit) if cuts else None


def _since_lane(lane: Ints, numbers: Ints) -> Ints:
    """Return the cumulative sum in each lane."""
    sums = np.cumsum(numbers)
    first = group_rows(lane)
    return sums - first.spread((sums - numbers)[first.starts])


def _range_starts(lane: Ints, place: Ints, order: Ints, number: Ints) -> Ints:
    """Return the first point of each range.

    A range starts where the number changes, and never between points at the same position.
    """
    alike = group_rows(lane, place, order)
    number = alike.spread(number[alike.starts])
    new = np.ones(len(lane), bool)
    new[1:] = (lane[1:] != lane[:-1]) | (number[1:] != number[:-1])
    return np.flatnonzero(new)
