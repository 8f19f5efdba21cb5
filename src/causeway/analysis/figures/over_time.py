"""Messages and delays over time, in bins.

Backlog: number of messages sent, received and completed in each bin, and number open at its end. Latency: delays of
the messages received, or answered, in each bin.

Bins are aligned at 0. Their widths form a ladder in which each step is a multiple of the one before. So counts of
narrow bins add up to those of wide bins, and the width depends on the whole span alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows, stable_order

from causeway.analysis.figures.latency import (
    MEASURES,
    MICROSECONDS,
    QUANTILES,
    SECONDS,
    TICKS,
    MessageDelays,
    bin_middle,
    round_down,
)
from causeway.analysis.figures.outcomes import PENDING, REFUNDED, MessageOutcomes
from causeway.analysis.figures.positions import NO_TICK, EventPositions
from causeway.audit.arrays import Array, Ints
from causeway.audit.columns import NO_TIME, Bools
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.schema import LANE

__all__ = [
    "AXES",
    "BACKLOG_SCHEMA",
    "CELLS_SCHEMA",
    "ENDING_COLUMNS",
    "FLOW_SCHEMA",
    "LANE_BACKLOG_SCHEMA",
    "MAX_BINS",
    "PACE_BITS",
    "PACE_COLUMNS",
    "PACE_SCHEMA",
    "TICK",
    "TIME",
    "WIDTHS",
    "axis_levels",
    "axis_positions",
    "backlog_over_time",
    "choose_axis",
    "choose_level",
    "count_flow",
    "count_latency",
    "lane_backlog_over_time",
    "latency_over_time",
    "merge_flows",
    "merge_latency",
    "name_bins",
]

MAX_BINS = 256

TICK, TIME = 0, 1
AXES = ("tick", "time")

_SECOND = 1_000_000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3600 * _SECOND, 86400 * _SECOND
_MAXIMUM = (1 << 63) - 1


def _ladder(widths: Sequence[int], steps: Sequence[int]) -> list[int]:
    found = [*widths]
    while found[-1] <= _MAXIMUM // 64:
        found.append(found[-1] * steps[len(found) % len(steps)])
    return found


WIDTHS = (
    _ladder([1], (5, 2)),
    _ladder(
        [
            *(10**power for power in range(7)),
            *(5 * _SECOND, 10 * _SECOND, 30 * _SECOND, _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
            *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY),
        ],
        (2, 5),
    ),
)
"""Bin widths: of ticks 1, 2, 10, 20, 100 and so on; of time in microseconds, up to 364 days and more."""

SENT, RECEIVED, LANDED, COMPLETED = 0, 1, 2, 3
FIRST_OUTCOME = 4
"""Counted events: sent, received, out of transit, completed, and from ``FIRST_OUTCOME`` on one a final outcome."""

ENDING_COLUMNS = OUTCOMES[:PENDING]

FLOW_SCHEMA = pa.schema(
    [
        *(("axis", pa.int8()), ("level", pa.int16()), ("lane", pa.int32())),
        *(("bin", pa.int64()), ("what", pa.int8()), ("count", pa.int64())),
    ]
)
"""Number of messages of a lane (by number; -1: all lanes) in a bin of a width (``level``, index in ``WIDTHS``)."""

_COUNTS = ("sent", "received", *ENDING_COLUMNS, "in_flight", "pending")

BACKLOG_SCHEMA = pa.schema(
    [
        pa.field("axis", pa.string(), nullable=False),
        *(("tick", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("ticks", pa.int64()), ("seconds", pa.float64())),
        *(pa.field(name, pa.int64(), nullable=False) for name in _COUNTS),
    ]
)
"""One row a bin.

``tick``, ``time``: its start; ``ticks``, ``seconds``: its width. ``sent``, ``received`` and the outcomes: messages in
the bin. ``in_flight`` (neither received nor completed) and ``pending``: messages open at its end.
"""

LANE_BACKLOG_SCHEMA = pa.schema([*(pa.field(name, pa.string()) for name in LANE), *BACKLOG_SCHEMA])


def count_flow(outcomes: MessageOutcomes, by_lane: bool) -> tuple[pa.Table, int, int]:
    """Count messages over time.

    Args:
        outcomes: the messages of a run.
        by_lane: count each lane, too.

    Returns:
        Rows of ``FLOW_SCHEMA``, and the numbers of sent or pending messages without a tick and without a time.
    """
    tables, unplaced = [FLOW_SCHEMA.empty_table()], []
    for axis in (TICK, TIME):
        sent = axis_positions(outcomes.sent, axis)
        unplaced.append(int(((outcomes.is_sent | (outcomes.outcome == PENDING)) & ~sent[0]).sum()))
        tables.append(_count_bins(outcomes, axis, sent, by_lane))
    return pa.concat_tables(tables), unplaced[TICK], unplaced[TIME]


def axis_positions(places: EventPositions, axis: int) -> tuple[Bools, Ints]:
    """Return a mask of the positions known on an axis, and their values.

    Args:
        places: the positions.
        axis: ``TICK`` or ``TIME``.

    Returns:
        Mask and values (ticks, or microseconds).
    """
    if axis == TIME:
        return places.time != NO_TIME, places.time
    return places.tick != NO_TICK, np.minimum(places.tick, np.uint64(_MAXIMUM)).view(np.int64)


def _count_bins(outcomes: MessageOutcomes, axis: int, sent: tuple[Bools, Ints], by_lane: bool) -> pa.Table:
    placed, begin = sent
    over, landed, received = (
        axis_positions(each, axis) for each in (outcomes.over, outcomes.landed, outcomes.received)
    )
    is_over = outcomes.outcome < PENDING
    found: list[tuple[Ints, Array, Array]] = []  # messages, positions, event

    def add(messages: Bools, where: Ints, what: Array | int) -> None:
        chosen = np.flatnonzero(messages)
        codes = np.full(len(chosen), what, np.int8) if isinstance(what, int) else what[chosen]
        found.append((chosen, where[chosen], codes))

    add(placed, begin, SENT)
    add(received[0], received[1], RECEIVED)
    # A sent message ends no earlier than its sending; one with an unknown end was never open.
    end = np.where(placed, np.where(over[0], np.maximum(over[1], begin), begin), over[1])
    add(is_over & (placed | over[0]), end, (outcomes.outcome + FIRST_OUTCOME).astype(np.int8))
    add(placed & is_over, end, COMPLETED)
    left = outcomes.landed.happened
    add(placed & left, np.where(landed[0], np.maximum(landed[1], begin), begin), LANDED)
    messages, where, what = (np.concatenate(columns) for columns in zip(*found, strict=True))
    if not len(messages):
        return FLOW_SCHEMA.empty_table()
    level = choose_level(axis, int(where.min()), int(where.max()))
    lane = outcomes.lane[messages].astype(np.int32) if by_lane else np.full(len(messages), -1, np.int32)
    return _sum_flow(axis, level, lane, where // WIDTHS[axis][level], what, np.ones(len(messages), np.int64))


def choose_level(axis: int, first: int, last: int) -> int:
    """Return the index in ``WIDTHS`` of the least width with at most ``MAX_BINS`` bins.

    Args:
        axis: ``TICK`` or ``TIME``.
        first: first position of the span.
        last: last position of the span.

    Returns:
        The index.
    """
    widths = WIDTHS[axis]
    return next(
        (level for level, width in enumerate(widths) if last // width - first // width < MAX_BINS), len(widths) - 1
    )


def _sum_flow(axis: int, level: int, lane: Array, place: Ints, what: Array, count: Ints) -> pa.Table:
    least = int(place.min())
    keys = (lane.astype(np.int64) + 1, place - least, what.astype(np.int64))
    order = stable_order(*(np.ascontiguousarray(key).view(np.uint64) for key in keys))
    lane, place, what, count = lane[order], place[order], what[order], count[order]
    at = group_rows(lane, place, what).starts
    content = [
        *(np.full(len(at), axis, np.int8), np.full(len(at), level, np.int16), lane[at], place[at], what[at]),
        np.add.reduceat(count, at),
    ]
    return pa.table([pa.array(column) for column in content], FLOW_SCHEMA)


def merge_flows(flows: Sequence[pa.Table]) -> pa.Table:
    """Merge flows into bins of the width of their common span.

    Args:
        flows: tables of ``FLOW_SCHEMA``.

    Returns:
        Rows of ``FLOW_SCHEMA``.
    """
    every = pa.concat_tables([FLOW_SCHEMA.empty_table(), *flows])
    columns = {name: np.asarray(every[name].to_numpy()) for name in FLOW_SCHEMA.names}
    tables = [FLOW_SCHEMA.empty_table()]
    for axis in (TICK, TIME):
        rows = np.flatnonzero(columns["axis"] == axis)
        if len(rows):
            tables.append(_widen_bins(axis, {name: column[rows] for name, column in columns.items()}))
    return pa.concat_tables(tables)


def _widen_bins(axis: int, columns: dict[str, Array]) -> pa.Table:
    widths = np.array(WIDTHS[axis], np.int64)
    level = int(columns["level"].max())
    place = columns["bin"] // (widths[level] // widths[columns["level"]])
    # From the least common width on, the span in bins equals that of the positions.
    first, last = int(place.min()), int(place.max())
    wider = next(
        number
        for number in range(level, len(widths))
        if last // int(widths[number] // widths[level]) - first // int(widths[number] // widths[level]) < MAX_BINS
    )
    place = place // (widths[wider] // widths[level])
    return _sum_flow(axis, wider, columns["lane"], place, columns["what"], columns["count"])


def choose_axis(flows: pa.Table) -> int | None:
    """Choose the axis of a ledger; None without ticks and times.

    Ticks are chosen if as many events have ticks as times.

    Args:
        flows: rows of ``FLOW_SCHEMA``.

    Returns:
        ``TICK``, ``TIME`` or None.
    """
    axis, count = flows["axis"].to_numpy(), flows["count"].to_numpy()
    many = [int(count[axis == each].sum()) for each in (TICK, TIME)]
    if not any(many):
        return None
    return TICK if many[TICK] >= many[TIME] else TIME


def backlog_over_time(flows: pa.Table, axis: int | None = None) -> pa.Table:
    """Build the backlog of all lanes over time, with every bin from the first to the last.

    Args:
        flows: rows of ``FLOW_SCHEMA``.
        axis: ``TICK`` or ``TIME``; None: as of ``choose_axis``.

    Returns:
        Rows of ``BACKLOG_SCHEMA``.
    """
    axis = choose_axis(flows) if axis is None else axis
    chosen, level = _chosen(flows, axis)
    if not chosen["bin"].size or axis is None:
        return BACKLOG_SCHEMA.empty_table()
    first = int(chosen["bin"].min())
    counts = np.zeros((int(chosen["bin"].max()) - first + 1, FIRST_OUTCOME + len(ENDING_COLUMNS)), np.int64)
    np.add.at(counts, (chosen["bin"] - first, chosen["what"].astype(np.int64)), chosen["count"])
    open_ = np.cumsum(counts[:, SENT : COMPLETED + 1], axis=0)
    place = first + np.arange(len(counts))
    return pa.table(_content(axis, level, place, counts, open_), BACKLOG_SCHEMA)


def lane_backlog_over_time(flows: pa.Table, lanes: dict[str, pa.Array], axis: int | None = None) -> pa.Table:
    """Build the backlog of each lane over time, without bins that have no events.

    Args:
        flows: rows of ``FLOW_SCHEMA``.
        lanes: the names of lanes, by number.
        axis: ``TICK`` or ``TIME``; None: as of ``choose_axis``.

    Returns:
        Rows of ``LANE_BACKLOG_SCHEMA``.
    """
    axis = choose_axis(flows) if axis is None else axis
    chosen, level = _chosen(flows, axis)
    rows = np.flatnonzero(chosen["lane"] >= 0)
    if axis is None or not len(rows):
        return LANE_BACKLOG_SCHEMA.empty_table()
    lane, place, what, count = (chosen[name][rows] for name in ("lane", "bin", "what", "count"))
    groups = group_rows(lane, place)
    counts = np.zeros((len(groups), FIRST_OUTCOME + len(ENDING_COLUMNS)), np.int64)
    np.add.at(counts, (groups.spread(np.arange(len(groups))), what.astype(np.int64)), count)
    at = groups.starts
    of_lane = group_rows(lane[at])
    sums = np.cumsum(counts[:, SENT : COMPLETED + 1], axis=0)
    before = (sums - counts[:, SENT : COMPLETED + 1])[of_lane.starts]
    open_ = sums - np.repeat(before, of_lane.counts, axis=0)
    names = {name: column.take(pa.array(lane[at])) for name, column in lanes.items()}
    content = names | dict(zip(BACKLOG_SCHEMA.names, _content(axis, level, place[at], counts, open_), strict=True))
    return pa.table([content[name] for name in LANE_BACKLOG_SCHEMA.names], LANE_BACKLOG_SCHEMA)


def _chosen(flows: pa.Table, axis: int | None) -> tuple[dict[str, Array], int]:
    columns = {name: np.asarray(flows[name].to_numpy()) for name in FLOW_SCHEMA.names}
    rows = np.flatnonzero(columns["axis"] == (-1 if axis is None else axis))
    chosen = {name: column[rows] for name, column in columns.items()}
    return chosen, int(chosen["level"][0]) if len(rows) else 0


def name_bins(axis: int, columns: dict[str, Array], rows: Ints) -> list[pa.Array]:
    """Return the columns that describe bins, ``axis`` to ``seconds``.

    Args:
        axis: ``TICK`` or ``TIME``.
        columns: columns with ``level`` and ``bin``.
        rows: the rows to describe.

    Returns:
        The columns.
    """
    return _bins(axis, int(columns["level"][0]), columns["bin"][rows])


def axis_levels(flows: pa.Table) -> list[int]:
    """Return the bin width of each axis, as indices in ``WIDTHS``.

    Args:
        flows: rows of ``FLOW_SCHEMA``.

    Returns:
        One index an axis.
    """
    axis, level = flows["axis"].to_numpy(), flows["level"].to_numpy()
    return [int(level[axis == each].max(initial=0)) for each in (TICK, TIME)]


def _bins(axis: int, level: int, place: Ints) -> list[pa.Array]:
    width, many = WIDTHS[axis][level], len(place)
    lowest = -(1 << 63) // width  # this bin may begin before the first number there is
    begin = np.where(place > lowest, np.maximum(place, lowest + 1) * width, np.int64(-(1 << 63)))
    nothing = pa.nulls(many, pa.int64())
    by_tick = axis == TICK
    return [
        pa.array([AXES[axis]] * many, pa.string()),
        pa.array(begin) if by_tick else nothing,
        nothing.cast(pa.timestamp("us", "UTC")) if by_tick else pa.array(begin).cast(pa.timestamp("us", "UTC")),
        pa.array(np.full(many, width)) if by_tick else nothing,
        pa.nulls(many, pa.float64()) if by_tick else pa.array(np.full(many, width / _SECOND)),
    ]


def _content(axis: int, level: int, place: Ints, counts: Ints, open_: Ints) -> list[pa.Array]:
    return [
        *_bins(axis, level, place),
        *(pa.array(counts[:, what].copy()) for what in (SENT, RECEIVED)),
        *(pa.array(counts[:, FIRST_OUTCOME + what].copy()) for what in range(len(ENDING_COLUMNS))),
        pa.array(open_[:, SENT] - open_[:, LANDED]),
        pa.array(open_[:, SENT] - open_[:, COMPLETED]),
    ]


PACE_BITS = 8
"""Significant binary digits of rounded delays; the error of quantiles is at most 1 / 2**BITS."""

PACE_COLUMNS = ("delivery", "round_trip")
"""Measures shown over time."""

CELLS_SCHEMA = pa.schema(
    [
        *(("axis", pa.int8()), ("level", pa.int16()), ("bin", pa.int64()), ("measure", pa.int8())),
        *(("delay", pa.int64()), ("count", pa.int64()), ("longest", pa.int64())),
    ]
)
"""Number of messages of a bin (as in the flow) with a rounded delay, and their longest exact delay."""

PACE_SCHEMA = pa.schema(
    [
        *(BACKLOG_SCHEMA.field(name) for name in ("axis", "tick", "time", "ticks", "seconds")),
        *(pa.field(name, pa.string(), nullable=False) for name in ("measure", "unit")),
        pa.field("count", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("p50", "p90", "p99", "max")),
    ]
)
"""One row a bin (as in the backlog, without empty bins) and measure; quantiles by nearest rank, within 1 / 2**8.

``delivery``: delays of messages received in the bin. ``round_trip``: delays of messages answered in it.
"""


def count_latency(outcomes: MessageOutcomes, delays: Sequence[MessageDelays]) -> pa.Table:
    """Count the delays of messages over time.

    Args:
        outcomes: the messages of a run.
        delays: their delays, one entry a measure.

    Returns:
        Rows of ``CELLS_SCHEMA``.
    """
    tables = [CELLS_SCHEMA.empty_table()]
    answer = outcomes.reply_positions.of(outcomes.outcome <= REFUNDED)
    for axis, unit in ((TICK, TICKS), (TIME, SECONDS)):
        begun, begin = axis_positions(outcomes.sent, axis)
        for number, (measure, where) in enumerate(zip(PACE_COLUMNS, (outcomes.received, answer), strict=True)):
            seen, delay = delays[MEASURES.index((measure, unit))]
            ended, end = axis_positions(where, axis)
            chosen = np.flatnonzero(seen & begun & ended)
            if not len(chosen):
                continue
            # As in the backlog, no message is answered before its sending.
            place = end[chosen] if measure == PACE_COLUMNS[0] else np.maximum(end, begin)[chosen]
            level = choose_level(axis, int(place.min()), int(place.max()))
            own = delay[chosen]
            columns = (place // WIDTHS[axis][level], np.full(len(chosen), number, np.int8), round_down(own, PACE_BITS))
            tables.append(_sum_cells(axis, level, *columns, np.ones(len(chosen), np.int64), own))
    return pa.concat_tables(tables)


def _sum_cells(axis: int, level: int, place: Ints, measure: Array, delay: Ints, count: Ints, longest: Ints) -> pa.Table:
    keys = (place - place.min(), measure.astype(np.int64), delay)
    words = [np.ascontiguousarray(key).view(np.uint64) for key in keys]
    words[2] = words[2] ^ np.uint64(1 << 63)
    order = stable_order(*words)
    place, measure, delay, count, longest = (each[order] for each in (place, measure, delay, count, longest))
    at = group_rows(place, measure, delay).starts
    content: list[Array] = [np.full(len(at), axis, np.int8), np.full(len(at), level, np.int16)]
    content += [place[at], measure[at], delay[at], np.add.reduceat(count, at), np.maximum.reduceat(longest, at)]
    return pa.table([pa.array(column) for column in content], CELLS_SCHEMA)


def merge_latency(parts: Sequence[pa.Table], levels: Sequence[int]) -> pa.Table:
    """Merge delay counts into the bins of the backlog.

    Args:
        parts: tables of ``CELLS_SCHEMA``.
        levels: the bin width of each axis, as indices in ``WIDTHS``.

    Returns:
        Rows of ``CELLS_SCHEMA``.
    """
    every = pa.concat_tables([CELLS_SCHEMA.empty_table(), *parts])
    columns = {name: np.asarray(every[name].to_numpy()) for name in CELLS_SCHEMA.names}
    tables = [CELLS_SCHEMA.empty_table()]
    for axis in (TICK, TIME):
        rows = np.flatnonzero(columns["axis"] == axis)
        if len(rows):
            own = {name: column[rows] for name, column in columns.items()}
            widths = np.array(WIDTHS[axis], np.int64)
            place = own["bin"] // (widths[levels[axis]] // widths[own["level"]])
            rest = (own[name] for name in ("measure", "delay", "count", "longest"))
            tables.append(_sum_cells(axis, levels[axis], place, *rest))
    return pa.concat_tables(tables)


def latency_over_time(cells: pa.Table, axis: int | None) -> pa.Table:
    """Build the table of delays by bins.

    Args:
        cells: rows of ``CELLS_SCHEMA``.
        axis: the axis of the backlog.

    Returns:
        Rows of ``PACE_SCHEMA``.
    """
    columns = {name: np.asarray(cells[name].to_numpy()) for name in CELLS_SCHEMA.names}
    rows = np.flatnonzero(columns["axis"] == (-1 if axis is None else axis))
    if axis is None or not len(rows):
        return PACE_SCHEMA.empty_table()
    own = {name: column[rows] for name, column in columns.items()}
    groups = group_rows(own["bin"], own["measure"])
    at = groups.starts
    count, longest = np.add.reduceat(own["count"], at), np.maximum.reduceat(own["longest"], at)
    upto = np.cumsum(own["count"])
    before = upto[at] - own["count"][at]
    scale = MICROSECONDS if axis == TIME else 1
    content = dict(zip(("axis", "tick", "time", "ticks", "seconds"), name_bins(axis, own, at), strict=True))
    content["measure"] = pa.array([PACE_COLUMNS[measure] for measure in own["measure"][at].tolist()], pa.string())
    content["unit"] = pa.array([SECONDS if axis == TIME else TICKS] * len(at), pa.string())
    content["count"] = pa.array(count)
    for quantile in QUANTILES:
        row = np.searchsorted(upto, before + (count * quantile + 99) // 100, side="left")
        number = np.minimum(bin_middle(own["delay"][row], PACE_BITS), longest)
        content[f"p{quantile}"] = pa.array(number / scale)
    content["max"] = pa.array(longest / scale)
    return pa.table([content[name] for name in PACE_SCHEMA.names], PACE_SCHEMA)
