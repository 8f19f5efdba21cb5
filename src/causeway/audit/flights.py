"""The records of ``back_pressure``: messages of the ranges of lanes that are looked at closely, in their ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.arrays import Array, Ints, Words, time_places
from causeway.audit.back_pressure import CHECK, ENDS, NOWHERE, UNPLACED, Flights, orders_of
from causeway.audit.bucket import Bucket
from causeway.audit.candidates import CANDIDATES_SCHEMA, TALLY_SCHEMA, number_of
from causeway.audit.columns import Bools
from causeway.audit.naming import first_words
from causeway.audit.windows import Lane
from causeway.model.order import groups_of

LAST = np.uint64(2**64 - 1)
"""The order of what comes after everything that is sent at its place."""

_KEYS = [("lane", pa.int32()), ("bucket", pa.int32()), ("row", pa.int64()), ("index", pa.uint64())]
FLIGHTS_SCHEMA = pa.schema(
    [
        *(("group", pa.int32()), *_KEYS, ("indexed", pa.uint8()), ("message_id", pa.string())),
        *(("own_0", pa.uint64()), ("own_1", pa.uint64())),
        *(("place", pa.uint64()), ("end", pa.uint64()), ("until", pa.uint64()), ("state", pa.uint8())),
    ]
)
"""A message in the range that is ``group``. ``lane``: its number; ``row``: of its bucket, the first sending, at
``place``; ``message_id``: of one without index; ``state``: ``FLYING`` to its ``end``, ``UNENDED``, or ``COVERED``:
without end, though up to ``until`` the input would show one."""

FLYING, UNENDED, COVERED = 1, 2, 4

STOPS_SCHEMA = pa.schema([("group", pa.int32()), ("place", pa.uint64()), ("state", pa.uint8())])
"""Where a message that was sent before a range ends in it (``FLYING``), or until where the input would show it
(``COVERED``)."""

SUMS_SCHEMA = pa.schema(
    [("group", pa.int32()), ("flying", pa.int64()), ("unended", pa.int64()), ("covered", pa.int64())]
)
"""How many messages that were sent before a range are in flight where it begins."""

RECORDS = {
    "flights": FLIGHTS_SCHEMA,
    "stops": STOPS_SCHEMA,
    "sums": SUMS_SCHEMA,
    "unplaced": CANDIDATES_SCHEMA,
    "unplaced_many": TALLY_SCHEMA,
}
"""Kinds of records, and their columns. ``unplaced``: messages that may be named, of so many."""


class Cut(NamedTuple):
    """The ranges of a lane. ``number``: of the lane; ``by_height``: whether places are heights, else times; ``places``,
    ``orders``: where the ranges but the first begin; ``groups``: the number of each, -1: nothing can be over there;
    ``unplaced``: the part in which messages come whose places were not seen."""

    number: int
    by_height: bool
    places: Words
    orders: Words
    groups: Ints
    unplaced: int


@dataclass(frozen=True)
class Pressure:
    """What is looked at closely. ``cuts``: lanes; ``parts``: of each group the part in which it comes; ``capacities``:
    of each group what its lane promises; ``count``: of parts; ``limit``: how many findings of a lane and reason are
    named."""

    cuts: Mapping[Lane, Cut]
    parts: Ints
    capacities: Ints
    count: int
    limit: int


def flights_of(bucket: Bucket, places: Ints, number: int, state: Pressure) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield what a run's messages are in the ranges that are looked at closely: part, kind of record, records.

    Args:
        bucket: the run.
        places: where each of its rows stands in its bucket.
        number: of the bucket.
        state: what is looked at.
    """
    cuts = [state.cuts.get(lane) for lane in bucket.columns.lanes]
    own = Flights.of(bucket, np.array([cut is not None for cut in cuts], bool))
    if not len(own.rows):
        return
    by_height = np.array([cut is not None and cut.by_height for cut in cuts], bool)[own.lane]
    place = np.where(by_height, own.heights[0], own.times[0])
    end = np.where(by_height, own.heights[1], own.times[1])
    yield from _unplaced(bucket, own.taken(np.flatnonzero(place == NOWHERE)), cuts, places, number, state)
    which = np.flatnonzero(place != NOWHERE)
    own, place, end = own.taken(which), place[which], end[which]
    until = _until(bucket, own, place, end, cuts)
    flying, unended = (end != NOWHERE) & (end > place), end == NOWHERE
    # Of one that ended nobody knows where, nothing is sure.
    covered = unended & ~own.ended & (until != NOWHERE)
    group = np.array([cut.groups[0] if cut and len(cut.groups) == 1 else -1 for cut in cuts], np.int64)[own.lane]
    stops, sums = [STOPS_SCHEMA.empty_table()], [SUMS_SCHEMA.empty_table()]
    orders = None
    bounds = np.searchsorted(own.lane, np.arange(len(cuts) + 1))
    for code, cut in enumerate(cuts):
        begin, stop = bounds[code], bounds[code + 1]
        if cut is None or len(cut.groups) < 2 or begin == stop:
            continue
        orders = orders_of(bucket, own.rows) if orders is None else orders
        some = slice(begin, stop)
        ranges = [
            _range_of(place[some], orders[some], cut),
            _range_of(end[some], np.zeros(stop - begin, np.uint64), cut),
            _range_of(until[some], np.full(stop - begin, LAST), cut),
        ]
        group[some] = cut.groups[ranges[0]]
        stops += _stops(cut, ranges, (end[some], until[some]), (flying[some], covered[some]))
        sums.append(_sums(cut, ranges, flying[some], unended[some], covered[some]))
    kept = np.flatnonzero(group >= 0)
    rows = own.rows[kept]
    columns = bucket.columns
    texts = columns.rows.take(("message_id",), rows)["message_id"] if len(columns.ident) else None
    indexed = columns.indexed[rows]
    words = first_words(columns, rows)
    content = {
        "group": group[kept],
        "lane": np.array([-1 if cut is None else cut.number for cut in cuts], np.int32)[own.lane[kept]],
        "bucket": np.full(len(rows), number, np.int32),
        "row": places[rows],
        "index": columns.index[rows],
        "indexed": indexed,
        "message_id": pa.nulls(len(rows), pa.string())
        if texts is None
        else pc.if_else(pa.array(indexed == 1), pa.scalar(None, pa.string()), texts),
        "own_0": words[0],
        "own_1": words[1],
        "place": place[kept],
        "end": end[kept],
        "until": until[kept],
        "state": (flying * FLYING + unended * UNENDED + covered * COVERED)[kept].astype(np.uint8),
    }
    flights = pa.table({name: content[name] for name in FLIGHTS_SCHEMA.names}).cast(FLIGHTS_SCHEMA)
    for kind, records in (("flights", flights), ("stops", pa.concat_tables(stops)), ("sums", pa.concat_tables(sums))):
        yield from by_part(kind, records.combine_chunks(), state.parts[records["group"].to_numpy()])


def by_part(kind: str, records: pa.Table, part: Ints) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield records by the part in which each comes."""
    order = np.argsort(part, kind="stable")
    groups = groups_of(part[order])
    records = records.take(pa.array(order))
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        yield int(part[order[begin]]), kind, records.slice(begin, count)


def _unplaced(
    bucket: Bucket, own: Flights, cuts: list[Cut | None], places: Ints, number: int, state: Pressure
) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield messages of which nobody saw when they were sent: of each lane the first ones, and how many there are."""
    columns, reason = bucket.columns, number_of(CHECK, UNPLACED)
    for code, begin, count in _runs(own.lane):
        cut = cuts[code]
        assert cut is not None, "only lanes with ranges have flights"
        rows = own.rows[begin : begin + min(count, state.limit)]
        words = first_words(columns, rows)
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


def _runs(codes: Ints) -> Iterator[tuple[int, int, int]]:
    groups = groups_of(codes)
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        yield int(codes[begin]), begin, count


def _until(bucket: Bucket, own: Flights, place: Words, end: Words, cuts: list[Cut | None]) -> Words:
    """Return until which place the windows that have the sending of messages would show an end of them, ``NOWHERE``
    where no such window has it, and where an end was seen."""
    found = np.full(len(place), NOWHERE)
    open_ones = np.flatnonzero(end == NOWHERE)
    for code, begin, count in _runs(own.lane[open_ones]):
        which = open_ones[begin : begin + count]
        lane, cut = bucket.columns.lanes[code], cuts[code]
        last, sure = np.full(count, NOWHERE), np.ones(count, bool)
        for event in ENDS:
            spans = bucket.known.windows.of(lane[1], lane, event.value)
            firsts, lasts = spans.heights
            if cut is not None and not cut.by_height:
                firsts, lasts = (time_places(each) for each in spans.times)
            if not len(firsts):
                sure[:] = False
                break
            at = np.searchsorted(firsts, place[which], side="right") - 1
            ends = lasts[np.maximum(at, 0)]
            sure &= (at >= 0) & (place[which] <= ends)
            last = np.minimum(last, ends)
        found[which] = np.where(sure, np.minimum(last, NOWHERE - np.uint64(1)), NOWHERE)
    return found


def _range_of(place: Words, order: Words, cut: Cut) -> Ints:
    """Return in which range of a lane each place and order is."""
    from causeway.audit.back_pressure_loops import ranges

    found = np.empty(len(place), np.int64)
    ranges(place, order, cut.places, cut.orders, found)
    return found


def _stops(cut: Cut, ranges: list[Ints], places: tuple[Words, Words], which: tuple[Bools, Bools]) -> Iterator[pa.Table]:
    for state, at, place, chosen in zip((FLYING, COVERED), ranges[1:], places, which, strict=True):
        rows = np.flatnonzero(chosen & (at > ranges[0]))
        rows = rows[cut.groups[at[rows]] >= 0]
        content = {"group": cut.groups[at[rows]], "place": place[rows], "state": np.full(len(rows), state)}
        yield _table(STOPS_SCHEMA, content)


def _sums(cut: Cut, ranges: list[Ints], flying: Bools, unended: Bools, covered: Bools) -> pa.Table:
    count = len(cut.groups)
    content: dict[str, Array] = {"group": cut.groups}
    for name, which, stop in (
        ("flying", flying, ranges[1]),
        ("unended", unended, None),
        ("covered", covered, ranges[2]),
    ):
        begun = np.bincount(ranges[0][which] + 1, minlength=count + 1)
        over = 0 if stop is None else np.bincount(stop[which] + 1, minlength=count + 1)
        content[name] = np.cumsum(begun - over)[:count]
    some = (cut.groups >= 0) & ((content["flying"] != 0) | (content["unended"] != 0))
    return _table(SUMS_SCHEMA, {name: values[some] for name, values in content.items()})


def _table(schema: pa.Schema, content: Mapping[str, Array]) -> pa.Table:
    return pa.table([pa.array(content[field.name]).cast(field.type) for field in schema], schema)


__all__ = ["RECORDS", "Cut", "Pressure", "flights_of"]
