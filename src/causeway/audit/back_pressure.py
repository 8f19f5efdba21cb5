"""The check ``back_pressure``: no lane has more messages in flight than it promises.

A run says when its messages were sent and when their flights ended; what is in flight at once is seen when the runs of
a lane are together. Only lanes with the promise ``capacity`` have rows here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.audit.along import lane_columns
from causeway.audit.arrays import Array, Ints, chosen
from causeway.audit.checks import UNKNOWN, VIOLATED, Bucket, Finding, Known, Over
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools, code_of
from causeway.audit.windows import Lane
from causeway.ledger.order import lane_numbers
from causeway.ledger.schema import LANE, Event

CHECK = "back_pressure"

ENDS = (Event.ACKNOWLEDGED, Event.TIMED_OUT, Event.COLLECTED, Event.DROPPED, Event.REJECTED)
"""What ends the flight of a message, on the chain that sent it."""

OVER, UNCOVERED, UNPLACED = "over_capacity", "ends_not_covered", "place_unseen"
"""Reasons: too many surely are in flight; too many may be; nobody saw when the message was sent."""

FLIGHTS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        pa.field("index", pa.uint64()),
        pa.field("message_id", pa.string()),
        pa.field("height", pa.uint64()),
        pa.field("time", pa.int64()),
        pa.field("end_height", pa.uint64()),
        pa.field("end_time", pa.int64()),
        pa.field("ended", pa.bool_()),
        pa.field("ends_placed", pa.bool_()),
    ]
)
"""One row a sent message; ``NO_HEIGHT``, ``NO_TIME``: not seen."""

_NEVER = np.iinfo(np.int64).max


@dataclass
class Flights:
    """What came of the flights of all runs. ``counts``: of findings (lane, verdict, reason); ``examined``: messages a
    lane; ``over``: the findings that are named, by lane; ``rows``: rows of ``flights`` that have them."""

    counts: list[tuple[Lane, str, str, int]] = field(default_factory=list)
    examined: list[tuple[Lane, int]] = field(default_factory=list)
    over: dict[Lane, Over] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)


def flights_of(bucket: Bucket) -> pa.Table:
    """Return a row a sent message of lanes with the promise: its lane, index and ``message_id``, when it was sent
    (``height``, ``time``), when its flight ended in heights and in times (``end_height``, ``end_time``), whether any
    end was seen (``ended``), and whether all that were seen have a height (``ends_placed``)."""
    columns = bucket.columns
    promised = bucket.numbers("capacity")[0]
    sent = bucket.first(Event.SENT)
    messages = np.flatnonzero(promised[bucket.lane] & (sent >= 0)) if promised.any() else np.zeros(0, np.int64)
    if not len(messages):
        return FLIGHTS_SCHEMA.empty_table()
    rows = sent[messages].astype(np.int64)
    end_height = np.full(len(messages), NO_HEIGHT, np.uint64)
    end_time = np.full(len(messages), NO_TIME, np.int64)
    ended, placed = np.zeros(len(messages), bool), np.ones(len(messages), bool)
    at, ends = _ends(bucket, messages)
    np.minimum.at(end_height, at, columns.height[ends])
    np.minimum.at(end_time, at, columns.time[ends])
    ended[at] = True
    placed[at[columns.height[ends] == NO_HEIGHT]] = False
    names = columns.rows.take(("message_id",), rows)["message_id"]
    no_index = columns.indexed[rows] == 0
    content = {
        **lane_columns(columns, columns.lane[rows]),
        "index": pa.array(columns.index[rows], mask=no_index),
        "message_id": names,
        "height": pa.array(columns.height[rows]),
        "time": pa.array(columns.time[rows]),
        "end_height": pa.array(end_height),
        "end_time": pa.array(end_time),
        "ended": pa.array(ended),
        "ends_placed": pa.array(placed),
    }
    return pa.table(content).cast(FLIGHTS_SCHEMA)


def _ends(bucket: Bucket, messages: Ints) -> tuple[Ints, Ints]:
    """Return the rows that end flights of some messages, as which of these and row."""
    columns = bucket.columns
    wanted = np.isin(columns.event, [code_of(event) for event in ENDS]) & (columns.alive > 0)
    rows = np.flatnonzero(wanted)
    which = np.full(len(bucket.lane), -1, np.int64)
    which[messages] = np.arange(len(messages))
    at = which[columns.message[rows]]
    codes = {name: code for code, name in enumerate(columns.chains)}
    source = np.array([codes.get(lane[1] or "", -2) for lane in columns.lanes], np.int64)
    own = (columns.chain[rows] < 0) | (columns.chain[rows] == source[columns.lane[rows]])
    kept = (at >= 0) & own
    return at[kept], rows[kept]


def together(flights: pa.Table, known: Known, limit: int) -> Flights:
    """Return what the flights of all runs come to.

    Args:
        flights: of all runs (``flights_of``).
        known: windows and promises.
        limit: how many findings of a lane and reason are named.
    """
    found = Flights()
    if not flights.num_rows:
        return found
    lanes, number = lane_numbers(flights)
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(len(lanes) + 1))
    columns = {name: flights[name].to_numpy() for name in _PLACES}
    for code, names in enumerate(lanes):
        a, b, c, d = names
        _lane(flights, columns, order[bounds[code] : bounds[code + 1]], (a, b, c, d), known, limit, found)
    return found


_PLACES = ("height", "time", "end_height", "end_time", "ended", "ends_placed")


def _lane(
    flights: pa.Table,
    columns: Mapping[str, Array],
    rows: Ints,
    lane: Lane,
    known: Known,
    limit: int,
    found: Flights,
) -> None:
    capacity = known.promises.of(lane)["capacity"] or 0
    keys = flights.select(["index", "message_id"]).take(pa.array(rows))
    own = {name: column[rows] for name, column in columns.items()}
    by_height = bool((own["height"] != NO_HEIGHT).all() and own["ends_placed"].all())
    sent, ends, covered = _in_order(own, lane, known, by_height=by_height)
    rank = _ranks(keys)
    certain, possible = _in_flight(sent, ends, covered, rank)
    unplaced = sent == _NEVER
    over = ~unplaced & (certain > capacity)
    unsure = ~unplaced & ~over & (possible > capacity)
    found.examined.append((lane, len(rows)))
    named: dict[int | str, tuple[str, str, float | None]] = {}
    for reason, verdict, which, sizes in (
        (OVER, VIOLATED, over, certain),
        (UNCOVERED, UNKNOWN, unsure, possible),
        (UNPLACED, UNKNOWN, unplaced, None),
    ):
        if not which.any():
            continue
        found.counts.append((lane, verdict, reason, int(which.sum())))
        places = np.flatnonzero(which)
        places = places[np.argsort(rank[places])]
        magnitude = None if sizes is None else (sizes[places] - capacity).astype(np.float64)
        first, worst = chosen(np.zeros(len(places), np.int64), magnitude, limit)
        for place in np.flatnonzero(first | worst).tolist():
            at = int(places[place])
            index, name = keys["index"][at].as_py(), keys["message_id"][at].as_py()
            named[name if index is None else index] = (
                verdict,
                reason,
                None if magnitude is None else float(magnitude[place]),
            )
            found.rows.append(int(rows[at]))
    if named:
        found.over[lane] = named


def _in_order(own: Mapping[str, Array], lane: Lane, known: Known, *, by_height: bool) -> tuple[Ints, Ints, Ints]:
    """Return of each message when it was sent, when its flight ended (``_NEVER``: not seen), and until when it surely
    goes on where no end was seen (-1: nothing is sure): as ranks among all of them, ascending as they happened."""
    sent = own["height"] if by_height else own["time"].astype(np.int64)
    ends = own["end_height"] if by_height else own["end_time"].astype(np.int64)
    none: Any = NO_HEIGHT if by_height else NO_TIME
    until = np.full(len(sent), none, sent.dtype)
    sure = np.ones(len(sent), dtype=bool)
    for event in ENDS:
        spans = known.windows.of(lane[1], lane, event.value)
        firsts, lasts = spans.heights if by_height else spans.times
        if not len(firsts):
            sure[:] = False
            break
        at = np.searchsorted(firsts, sent, side="right") - 1
        sure &= (at >= 0) & (sent <= lasts[np.maximum(at, 0)])
        until = np.minimum(until, lasts[np.maximum(at, 0)])
    every = np.concatenate((sent, ends, until))
    ranks = np.unique(every, return_inverse=True)[1].reshape(-1).astype(np.int64)
    count = len(sent)
    ranked_sent = np.where(sent == none, _NEVER, ranks[:count])
    ranked_ends = np.where(ends == none, _NEVER, ranks[count : 2 * count])
    return ranked_sent, ranked_ends, np.where(sure, ranks[2 * count :], -1)


def _ranks(keys: pa.Table) -> Ints:
    """Return where each message stands in its lane: by index, those without one last, by ``message_id``."""
    table = keys.append_column("row", pa.array(np.arange(keys.num_rows)))
    order = table.sort_by([("index", "ascending"), ("message_id", "ascending"), ("row", "ascending")])["row"].to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _in_flight(sent: Ints, ends: Ints, covered: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Return how many messages surely are in flight, and how many may be, when each is sent; it is one of them.

    What is sent at one time counts in the order of the lane, and after what ended then.
    """
    placed = sent != _NEVER
    closed = placed & (ends != _NEVER)
    flying = closed & (ends > sent)
    unended = placed & ~closed
    sure = unended & (covered >= sent)
    order = np.lexsort((rank, sent))

    def begun(which: Bools) -> Ints:
        counts = np.empty(len(sent), np.int64)
        counts[order] = np.cumsum(which[order])
        return counts

    def over(places: npt.NDArray[np.int64], *, at: str) -> Ints:
        counts: Ints = np.searchsorted(np.sort(places), sent, side="right" if at == "then" else "left").astype(np.int64)
        return counts

    in_flight = begun(flying) - over(ends[flying], at="then")
    certain = in_flight + begun(sure) - over(covered[sure], at="before")
    return certain, in_flight + begun(unended)


def named_in(bucket: Bucket) -> list[Finding]:
    """Return the findings of a run's messages, in a second look, in which they are known."""
    columns, found = bucket.columns, []
    sent = bucket.first(Event.SENT)
    for code, lane in enumerate(columns.lanes):
        over = bucket.known.over.get(lane)
        if over is None:
            continue
        rows = sent[(bucket.lane == code) & (sent >= 0)].astype(np.int64)
        indices = columns.index[rows].tolist()
        names = columns.rows.take(("message_id",), rows)["message_id"].to_pylist()
        indexed = (columns.indexed[rows] == 1).tolist()
        keys = [index if has else name for index, name, has in zip(indices, names, indexed, strict=True)]
        by_reason: dict[tuple[str, str], list[tuple[int, float | None]]] = {}
        for row, key in zip(rows.tolist(), keys, strict=True):
            if key in over:
                verdict, reason, magnitude = over[key]
                by_reason.setdefault((verdict, reason), []).append((row, magnitude))
        for (verdict, reason), each in sorted(by_reason.items()):
            sizes = None if each[0][1] is None else np.array([size for _, size in each], np.float64)
            unit = None if sizes is None else "messages"
            found.append(Finding(CHECK, verdict, reason, np.array([row for row, _ in each], np.int64), sizes, unit))
    return found


def counted(flights: Flights) -> tuple[pa.Table, pa.Table]:
    """Return the counts of findings and of messages examined, as those of a run."""
    lanes = [lane for lane, *_ in flights.counts], [lane for lane, _ in flights.examined]
    tables = []
    for own, verdicts, reasons, numbers in (
        (
            lanes[0],
            [each[1] for each in flights.counts],
            [each[2] for each in flights.counts],
            [each[3] for each in flights.counts],
        ),
        (lanes[1], [""] * len(lanes[1]), [""] * len(lanes[1]), [each[1] for each in flights.examined]),
    ):
        names = {name: pa.array([lane[place] for lane in own], pa.string()) for place, name in enumerate(LANE)}
        said = {"check": [CHECK] * len(own), "verdict": verdicts, "reason": reasons}
        tables.append(
            pa.table(
                {name: pa.array(values, pa.string()) for name, values in said.items()}
                | names
                | {"count": pa.array(numbers, pa.int64())}
            )
        )
    return tables[0], tables[1]


__all__ = ["CHECK", "ENDS", "Flights", "counted", "flights_of", "named_in", "together"]
