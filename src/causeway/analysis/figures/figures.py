"""The figures of a ledger as tables, from what its pieces show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.analysis.figures import latency as delays
from causeway.analysis.figures import over_time
from causeway.analysis.figures.fees import fees_by_lane, merge_fees
from causeway.analysis.figures.lanes import COUNTED, LANES_SCHEMA, chain_table, lane_columns
from causeway.analysis.figures.latency import SECONDS, TICKS
from causeway.analysis.figures.message_rows import PendingAges, select_unit, worst_messages
from causeway.analysis.figures.over_time import latency_over_time
from causeway.analysis.figures.partial_figures import PartialFigures
from causeway.core.arrow_types import to_python_rows
from causeway.ledger.schema import LANE
from causeway.ledger.windows import Lane, table_lanes

MessagesOf = Callable[[pa.Table], pa.Table]
"""Returns the messages (``MESSAGES_SCHEMA``) that rows of ``WORST_KEYS_SCHEMA`` name, and perhaps others."""

_ENDS = ("first_tick", "last_tick", "first_time", "last_time")
"""Columns of the span of the rows that ages are counted by."""


@dataclass(frozen=True)
class LedgerFigures:
    """The figures of a ledger, as tables (each module has the schema of its own).

    ``lanes``: a row a lane (``LANES_SCHEMA``); ``latency``: delays of each lane and of all (``LATENCY_SCHEMA``);
    ``latency_over_time``: delays by bins (``PACE_SCHEMA``); ``backlog``: over time (``BACKLOG_SCHEMA``),
    ``lane_backlog``: of each lane, where it was asked for (``LANE_BACKLOG_SCHEMA``); ``worst``: the slowest and the
    oldest pending messages (``WORST_SCHEMA``); ``fees``: value by lane, asset and reason (``FEES_SCHEMA``); ``codes``:
    outcomes by code and reason (``CODES_SCHEMA``); ``chains``: a row a chain (``CHAINS_SCHEMA``).

    ``totals``: what is counted of lanes, of all of them, and ``lanes``, ``rows``, ``unplaced`` (messages that are sent
    or pending, but not in ``backlog``: their place on its axis was not seen), ``first_tick``, ``last_tick``,
    ``first_time``, ``last_time``, and ``unit``: in what delays are shown.
    """

    lanes: pa.Table
    latency: pa.Table
    latency_over_time: pa.Table
    backlog: pa.Table
    lane_backlog: pa.Table
    worst: pa.Table
    fees: pa.Table
    codes: pa.Table
    chains: pa.Table
    totals: Mapping[str, Any]


def build_figures(
    shown: PartialFigures, messages_of: MessagesOf, observed: pa.Table | None = None, promises: pa.Table | None = None
) -> LedgerFigures:
    """Return the figures of a ledger. ``shown``: what all of its pieces show together; ``observed``, ``promises``: the
    tables of the ledger by which ages of pending messages are counted (``ages.Ages``)."""
    names = lane_columns(shown.lanes)
    nobody = {name: pa.nulls(1, pa.string()) for name in LANE}
    of_lanes = delays.latency_table(shown.delays, shown.extents, names, "lane")
    of_all = delays.latency_table(*delays.merge_lanes(shown.delays, shown.extents), nobody, "all")
    unit = delays.choose_unit(shown.extents)
    axis = over_time.choose_axis(shown.flow)
    if unit is None and axis is not None:
        unit = TICKS if axis == over_time.TICK else SECONDS
    [span] = shown.span.to_pylist() or [dict.fromkeys(shown.span.schema.names)]
    fees = merge_fees([shown.fees])
    ages = PendingAges({name: span[name] for name in _ENDS}, observed, promises)
    totals = {name: pc.sum(shown.lanes[name]).as_py() or 0 for name in COUNTED}
    totals |= {"lanes": _real_lanes(shown.lanes), "rows": span["rows"] or 0}
    totals["unplaced"] = (span["without_tick"] if axis == over_time.TICK else span["without_time"]) or 0
    totals |= {name: span[name] for name in ("first_tick", "last_tick")} | _times(span)
    worst = select_unit(shown.worst, unit)
    return LedgerFigures(
        lanes=_lanes(shown, of_lanes, fees, unit, ages),
        latency=pa.concat_tables([of_all, of_lanes]),
        latency_over_time=latency_over_time(shown.pace, axis),
        backlog=over_time.backlog_over_time(shown.flow, axis),
        lane_backlog=over_time.lane_backlog_over_time(shown.flow, names, axis),
        worst=worst_messages(worst, messages_of(worst), unit, ages),
        fees=fees,
        codes=shown.codes,
        chains=chain_table(shown.chains, shown.lanes),
        totals={**totals, "unit": unit},
    )


def _times(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ends of the ledger in time; None as well where they are in none of Python's years."""
    names = ("first_time", "last_time")
    [found] = to_python_rows(pa.table([pa.array([span[name]], pa.timestamp("us", "UTC")) for name in names], names))
    return found


def _real_lanes(lanes: pa.Table) -> int:
    """Return how many lanes there are: what never came into one is in none."""
    named = [np.asarray(lanes[name].is_valid()) for name in ("source", "destination", "lane")]
    return int(np.logical_or.reduce(named).sum())


def _lanes(shown: PartialFigures, latency: pa.Table, fees: pa.Table, unit: str | None, ages: PendingAges) -> pa.Table:
    lanes = shown.lanes
    content: dict[str, Any] = {name: lanes[name] for name in lanes.column_names}
    tick, time = lanes["oldest_pending_tick"], lanes["oldest_pending_time"].cast(pa.int64())
    content["oldest_pending_ticks"] = _aged(lanes, tick, ages.age_in_ticks)
    content["oldest_pending_seconds"] = pc.divide(
        _aged(lanes, time, ages.age_in_microseconds).cast(pa.float64(), safe=False), delays.MICROSECONDS
    )
    content["unit"] = pa.array([unit] * lanes.num_rows, pa.string())
    numbers = shown.extents["lane"].to_numpy()  # of each row of latency, too
    for measure in ("delivery", "round_trip"):
        own = pc.and_(pc.equal(latency["measure"], measure), pc.equal(latency["unit"], unit or ""))
        rows = np.flatnonzero(np.asarray(own))
        row = np.full(lanes.num_rows, -1, np.int64)
        row[numbers[rows]] = rows
        which = pa.array(row, mask=row < 0)
        for what in ("p50", "p99", "max"):
            content[f"{measure}_{what}"] = latency[what].take(which)
    paid = fees_by_lane(fees)
    found = [paid.get(lane, (None, None)) for lane in table_lanes(lanes)] if paid else [(None, None)] * lanes.num_rows
    content["fee_asset"] = pa.array([asset for asset, _ in found], pa.string())
    content["fees"] = pa.array([amount for _, amount in found], pa.string())
    return pa.table([content[name] for name in LANES_SCHEMA.names], LANES_SCHEMA)


def _aged(lanes: pa.Table, sent: pa.ChunkedArray, age: Callable[[Lane, int], int | None]) -> pa.Array:
    each = zip(table_lanes(lanes), sent.to_pylist(), strict=True)
    return pa.array([None if at is None else age(lane, at) for lane, at in each], pa.int64())


__all__ = ["LedgerFigures", "MessagesOf", "build_figures"]
