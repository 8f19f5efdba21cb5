"""Build the figures of a ledger as tables from its merged partial figures."""

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
"""Reads the messages (``MESSAGES_SCHEMA``) named by rows of ``WORST_KEYS_SCHEMA``, possibly with others."""

_ENDS = ("first_tick", "last_tick", "first_time", "last_time")
"""Columns of the row span that ages depend on."""


@dataclass(frozen=True)
class LedgerFigures:
    """The figures of a ledger, as tables.

    Attributes:
        lanes: one row a lane (``LANES_SCHEMA``).
        latency: delays of each lane and of all lanes (``LATENCY_SCHEMA``).
        latency_over_time: delays by bins (``PACE_SCHEMA``).
        backlog: backlog over time (``BACKLOG_SCHEMA``).
        lane_backlog: backlog of each lane, if requested (``LANE_BACKLOG_SCHEMA``).
        worst: the slowest and the oldest pending messages (``WORST_SCHEMA``).
        fees: value by lane, asset and reason (``FEES_SCHEMA``).
        codes: outcomes by code and reason (``CODES_SCHEMA``).
        chains: one row a chain (``CHAINS_SCHEMA``).
        totals: the counts of lanes over all lanes, and ``lanes``, ``rows``, ``first_tick``, ``last_tick``,
            ``first_time``, ``last_time``, ``unit`` (of delays) and ``unplaced`` (sent or pending messages without a
            position on the axis of ``backlog``).
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
    merged: PartialFigures, messages_of: MessagesOf, observed: pa.Table | None = None, promises: pa.Table | None = None
) -> LedgerFigures:
    """Build the figures of a ledger from the merged partial figures of all its parts.

    Args:
        merged: the merged partial figures.
        messages_of: reads the messages of given keys.
        observed: the observed windows; they bound the ages of pending messages (``PendingAges``).
        promises: the guarantees of lanes.

    Returns:
        The figures.
    """
    names = lane_columns(merged.lanes)
    nobody = {name: pa.nulls(1, pa.string()) for name in LANE}
    of_lanes = delays.latency_table(merged.delays, merged.extents, names, "lane")
    of_all = delays.latency_table(*delays.merge_lanes(merged.delays, merged.extents), nobody, "all")
    unit = delays.choose_unit(merged.extents)
    axis = over_time.choose_axis(merged.flow)
    if unit is None and axis is not None:
        unit = TICKS if axis == over_time.TICK else SECONDS
    [span] = merged.span.to_pylist() or [dict.fromkeys(merged.span.schema.names)]
    fees = merge_fees([merged.fees])
    ages = PendingAges({name: span[name] for name in _ENDS}, observed, promises)
    totals = {name: pc.sum(merged.lanes[name]).as_py() or 0 for name in COUNTED}
    totals |= {"lanes": _real_lanes(merged.lanes), "rows": span["rows"] or 0}
    totals["unplaced"] = (span["without_tick"] if axis == over_time.TICK else span["without_time"]) or 0
    totals |= {name: span[name] for name in ("first_tick", "last_tick")} | _times(span)
    worst = select_unit(merged.worst, unit)
    return LedgerFigures(
        lanes=_lanes(merged, of_lanes, fees, unit, ages),
        latency=pa.concat_tables([of_all, of_lanes]),
        latency_over_time=latency_over_time(merged.pace, axis),
        backlog=over_time.backlog_over_time(merged.flow, axis),
        lane_backlog=over_time.lane_backlog_over_time(merged.flow, names, axis),
        worst=worst_messages(worst, messages_of(worst), unit, ages),
        fees=fees,
        codes=merged.codes,
        chains=chain_table(merged.chains, merged.lanes),
        totals={**totals, "unit": unit},
    )


def _times(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first and last time of the ledger; None outside of Python's range of years."""
    names = ("first_time", "last_time")
    [found] = to_python_rows(pa.table([pa.array([span[name]], pa.timestamp("us", "UTC")) for name in names], names))
    return found


def _real_lanes(lanes: pa.Table) -> int:
    """Return the number of lanes, without rows of messages that entered no lane."""
    named = [np.asarray(lanes[name].is_valid()) for name in ("source", "destination", "lane")]
    return int(np.logical_or.reduce(named).sum())


def _lanes(merged: PartialFigures, latency: pa.Table, fees: pa.Table, unit: str | None, ages: PendingAges) -> pa.Table:
    lanes = merged.lanes
    content: dict[str, Any] = {name: lanes[name] for name in lanes.column_names}
    tick, time = lanes["oldest_pending_tick"], lanes["oldest_pending_time"].cast(pa.int64())
    content["oldest_pending_ticks"] = _aged(lanes, tick, ages.age_in_ticks)
    content["oldest_pending_seconds"] = pc.divide(
        _aged(lanes, time, ages.age_in_microseconds).cast(pa.float64(), safe=False), delays.MICROSECONDS
    )
    content["unit"] = pa.array([unit] * lanes.num_rows, pa.string())
    numbers = merged.extents["lane"].to_numpy()  # of each row of latency, too
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
