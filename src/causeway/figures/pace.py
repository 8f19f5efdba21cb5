"""Delays over time: how long what came, or was answered, in each bin of the backlog had taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Array, Ints
from causeway.figures import flow
from causeway.figures.delays import MEASURES, MICROSECONDS, QUANTILES, SECONDS, TICKS, Delay, middle, rounded_down
from causeway.figures.flow import TICK, TIME, WIDTHS
from causeway.figures.outcomes import REFUNDED, Outcomes
from causeway.model.order import groups_of, stable_order

BITS = 8
"""Delays are rounded to so many binary digits: quantiles are within 1 / 2**BITS of what they are."""

OVER = ("delivery", "round_trip")
"""Measures that are shown over time."""

CELLS_SCHEMA = pa.schema(
    [
        *(("axis", pa.int8()), ("level", pa.int16()), ("bin", pa.int64()), ("measure", pa.int8())),
        *(("delay", pa.int64()), ("count", pa.int64()), ("longest", pa.int64())),
    ]
)
"""So many messages in a bin (``flow``) had about this delay (rounded), and the longest of them that one."""

PACE_SCHEMA = pa.schema(
    [
        *(flow.BACKLOG_SCHEMA.field(name) for name in ("axis", "tick", "time", "ticks", "seconds")),
        *(pa.field(name, pa.string(), nullable=False) for name in ("measure", "unit")),
        pa.field("count", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("p50", "p90", "p99", "max")),
    ]
)
"""A row a bin and measure: the delays of the messages that were received in the bin (``delivery``), or whose answer
came in it to where they were sent (``round_trip``); bins as of the backlog, those with any. Quantiles by nearest rank,
within 1 / 2**8."""


def pace(outcomes: Outcomes, delays: Sequence[Delay]) -> pa.Table:
    """Return the delays of messages over time (``CELLS_SCHEMA``)."""
    tables = [CELLS_SCHEMA.empty_table()]
    answer = outcomes.replied.of(outcomes.outcome <= REFUNDED)
    for axis, unit in ((TICK, TICKS), (TIME, SECONDS)):
        begun, begin = flow.at(outcomes.sent, axis)
        for number, (measure, where) in enumerate(zip(OVER, (outcomes.received, answer), strict=True)):
            seen, delay = delays[MEASURES.index((measure, unit))]
            ended, end = flow.at(where, axis)
            chosen = np.flatnonzero(seen & begun & ended)
            if not len(chosen):
                continue
            # In the bins of the backlog nothing is answered before it was sent.
            place = end[chosen] if measure == OVER[0] else np.maximum(end, begin)[chosen]
            level = flow.level_of(axis, int(place.min()), int(place.max()))
            own = delay[chosen]
            columns = (place // WIDTHS[axis][level], np.full(len(chosen), number, np.int8), rounded_down(own, BITS))
            tables.append(_added_up(axis, level, *columns, np.ones(len(chosen), np.int64), own))
    return pa.concat_tables(tables)


def _added_up(axis: int, level: int, place: Ints, measure: Array, delay: Ints, count: Ints, longest: Ints) -> pa.Table:
    keys = (place - place.min(), measure.astype(np.int64), delay)
    words = [np.ascontiguousarray(key).view(np.uint64) for key in keys]
    words[2] = words[2] ^ np.uint64(1 << 63)
    order = stable_order(*words)
    place, measure, delay, count, longest = (each[order] for each in (place, measure, delay, count, longest))
    at = groups_of(place, measure, delay).starts
    content: list[Array] = [np.full(len(at), axis, np.int8), np.full(len(at), level, np.int16)]
    content += [place[at], measure[at], delay[at], np.add.reduceat(count, at), np.maximum.reduceat(longest, at)]
    return pa.table([pa.array(column) for column in content], CELLS_SCHEMA)


def together(parts: Sequence[pa.Table], levels: Sequence[int]) -> pa.Table:
    """Return several of them as one, in bins of the widths that the backlog has on each axis."""
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
            tables.append(_added_up(axis, levels[axis], place, *rest))
    return pa.concat_tables(tables)


def latency_over_time(cells: pa.Table, axis: int | None) -> pa.Table:
    """Return delays by bins (``PACE_SCHEMA``). ``axis``: that of the backlog."""
    columns = {name: np.asarray(cells[name].to_numpy()) for name in CELLS_SCHEMA.names}
    rows = np.flatnonzero(columns["axis"] == (-1 if axis is None else axis))
    if axis is None or not len(rows):
        return PACE_SCHEMA.empty_table()
    own = {name: column[rows] for name, column in columns.items()}
    groups = groups_of(own["bin"], own["measure"])
    at = groups.starts
    count, longest = np.add.reduceat(own["count"], at), np.maximum.reduceat(own["longest"], at)
    upto = np.cumsum(own["count"])
    before = upto[at] - own["count"][at]
    scale = MICROSECONDS if axis == TIME else 1
    content = dict(zip(("axis", "tick", "time", "ticks", "seconds"), flow.bins(axis, own, at), strict=True))
    content["measure"] = pa.array([OVER[measure] for measure in own["measure"][at].tolist()], pa.string())
    content["unit"] = pa.array([SECONDS if axis == TIME else TICKS] * len(at), pa.string())
    content["count"] = pa.array(count)
    for quantile in QUANTILES:
        row = np.searchsorted(upto, before + (count * quantile + 99) // 100, side="left")
        number = np.minimum(middle(own["delay"][row], BITS), longest)
        content[f"p{quantile}"] = pa.array(number / scale)
    content["max"] = pa.array(longest / scale)
    return pa.table([content[name] for name in PACE_SCHEMA.names], PACE_SCHEMA)


__all__ = ["BITS", "CELLS_SCHEMA", "OVER", "PACE_SCHEMA", "latency_over_time", "pace", "together"]
