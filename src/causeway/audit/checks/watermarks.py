"""The check ``watermarks``: monotonic numbers of lanes never fall."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.audit.arrays import Array, order_preserving_times
from causeway.audit.columns import Bools
from causeway.audit.findings import (
    UNKNOWN,
    VIOLATED,
    AssertionFindings,
    PartialCheck,
    is_counted,
    is_reverted,
    to_partial_check,
)
from causeway.ledger.encodings import rank_names
from causeway.ledger.row_order import height_segments, number_lanes
from causeway.ledger.schema import WATERMARKS_SCHEMA

CHECK = "watermarks"


def check_watermarks(watermarks: pa.Table, limit: int) -> PartialCheck:
    """Compare the sorted watermarks of a bucket (``WATERMARKS_SCHEMA``) with their predecessors.

    Args:
        watermarks: The watermarks.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        The result, with the watermarks at segment ends.
    """
    rows = _in_order(watermarks)
    series = _series(rows)
    placed = np.asarray(rows["height"].is_valid())
    timed = ~placed & np.asarray(rows["time"].is_valid())
    found = [AssertionFindings(UNKNOWN, "place_unseen", np.flatnonzero(~placed & ~timed))]
    by_height = _sort_by_height(rows, series, np.flatnonzero(placed))
    segment = height_segments(rows["height"])
    found.append(_fallen(rows, series, by_height, segment))
    found.append(_fallen(rows, series, _sort_by_time(rows, series, np.flatnonzero(timed)), np.zeros_like(segment)))
    found.append(_two_values(rows, series, np.flatnonzero(placed & np.asarray(rows["position"].is_valid()))))
    groups = group_rows(series[by_height], segment[by_height])
    edges = np.stack((by_height[groups.starts], by_height[groups.starts + groups.counts - 1]), axis=1).reshape(-1)
    side = pa.array(np.tile(np.arange(2, dtype=np.uint8), len(groups)))
    ends = rows.select(WATERMARKS_SCHEMA.names).take(pa.array(edges)).append_column("side", side)
    return to_partial_check(CHECK, _named(rows), found, ends, limit)


def compare_segment_ends(ends: pa.Table, limit: int) -> PartialCheck:
    """Compare the last watermark of each segment with the first of the next one."""
    segment, side = height_segments(ends["height"]), ends["side"].to_numpy()
    series = _series(ends)
    order = stable_order(series.astype(np.uint64), segment, side)
    rows, series, segment, side = ends.take(pa.array(order)), series[order], segment[order], side[order]
    first = np.flatnonzero((side[1:] == 0) & (series[1:] == series[:-1])) + 1
    found = _found_fallen(rows, first - 1, first)
    return to_partial_check(CHECK, _named(rows), [found], ends.slice(0, 0), limit)


def _in_order(watermarks: pa.Table) -> pa.Table:
    """Return the counted watermarks by lane, chain and name, stably."""
    series = _series(watermarks)
    about = [series, watermarks["value"].to_numpy()]
    seen = np.asarray(watermarks["height"].is_valid())
    for name in ("height", "position", "time"):
        column = watermarks[name].cast(pa.int64()) if name == "time" else watermarks[name]
        own = np.asarray(column.is_valid()) & (~seen if name == "time" else True)
        about += [own, np.where(own, column.fill_null(0).to_numpy().view(np.uint64), np.uint64(0))]
    counts = is_counted(is_reverted(watermarks), about, [])
    order = stable_order(series.astype(np.uint64))
    order = order[counts[order]]
    return watermarks.take(pa.array(order))


def _series(rows: pa.Table) -> Array:
    """Assign numbers to the lane, chain and name of each row; lanes ascend."""
    keys: list[Array] = [number_lanes(rows)[1].astype(np.uint64), rank_names(rows["chain"]), rank_names(rows["name"])]
    order = stable_order(*keys)
    groups = group_rows(*(key[order] for key in keys))
    series = np.empty(rows.num_rows, dtype=np.int64)
    series[order] = groups.spread(np.arange(len(groups)))
    return series


def _sort_by_height(rows: pa.Table, series: Array, chosen: Array) -> Array:
    """Sort rows by height and position, or by value if a position at the height is unknown."""
    own = series[chosen].astype(np.uint64)
    height, position = (rows[name].fill_null(0).to_numpy()[chosen] for name in ("height", "position"))
    unseen = ~np.asarray(rows["position"].is_valid())[chosen]
    order = stable_order(own, height)
    groups = group_rows(own[order], height[order])
    if unseen.any() and len(groups):
        by_value = groups.spread(np.logical_or.reduceat(unseen[order], groups.starts))
        position = position.copy()
        position[order[by_value]] = 0
    return chosen[stable_order(own, height, position, rows["value"].to_numpy()[chosen])]


def _sort_by_time(rows: pa.Table, series: Array, chosen: Array) -> Array:
    time = rows["time"].cast(pa.int64()).fill_null(0).to_numpy()[chosen]
    return chosen[
        stable_order(series[chosen].astype(np.uint64), order_preserving_times(time), rows["value"].to_numpy()[chosen])
    ]


def _fallen(rows: pa.Table, series: Array, order: Array, segment: U64) -> AssertionFindings:
    one, other = order[:-1], order[1:]
    same: Bools = (series[one] == series[other]) & (segment[one] == segment[other])
    return _found_fallen(rows, one[same], other[same])


def _found_fallen(rows: pa.Table, one: Array, other: Array) -> AssertionFindings:
    """Return findings about values below that of the preceding row."""
    values = rows["value"].to_numpy()
    fell = values[other] < values[one]
    by = (values[one] - values[other])[fell]
    return AssertionFindings(VIOLATED, "fell", other[fell], by, "messages")


def _two_values(rows: pa.Table, series: Array, chosen: Array) -> AssertionFindings:
    """Return findings about different values at one position."""
    keys = [series[chosen].astype(np.uint64)]
    keys += [rows[name].fill_null(0).to_numpy()[chosen] for name in ("height", "position", "value")]
    order = stable_order(*keys)
    place = group_rows(*(key[order] for key in keys[:-1])).ranks() > 0
    values = keys[-1][order]
    differs = place.copy()
    differs[1:] &= values[1:] != values[:-1]
    return AssertionFindings(VIOLATED, "two_values", chosen[order[differs]])


def _named(rows: pa.Table) -> pa.Table:
    """Return rows with columns of findings: the value as index, the name as event."""
    return rows.append_column("index", rows["value"]).append_column("event", rows["name"])


WATERMARK_ENDS = WATERMARKS_SCHEMA.append(pa.field("side", pa.uint8()))
"""Columns of watermarks at segment ends: the first (``side`` 0) and the last (1) of each."""
