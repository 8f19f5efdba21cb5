"""The check ``watermarks``: a number of a lane that never falls does not."""

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
    """Compare the watermarks of a bucket (``WATERMARKS_SCHEMA``, in their order) with those before them.

    ``limit``: how many findings of a lane and reason are named.
    """
    rows = _in_order(watermarks)
    series = _series(rows)
    placed = np.asarray(rows["height"].is_valid())
    timed = ~placed & np.asarray(rows["time"].is_valid())
    found = [AssertionFindings(UNKNOWN, "place_unseen", np.flatnonzero(~placed & ~timed))]
    by_height = _by_height(rows, series, np.flatnonzero(placed))
    segment = height_segments(rows["height"])
    found.append(_fallen(rows, series, by_height, segment))
    found.append(_fallen(rows, series, _by_time(rows, series, np.flatnonzero(timed)), np.zeros_like(segment)))
    found.append(_two_values(rows, series, np.flatnonzero(placed & np.asarray(rows["position"].is_valid()))))
    groups = group_rows(series[by_height], segment[by_height])
    edges = np.stack((by_height[groups.starts], by_height[groups.starts + groups.counts - 1]), axis=1).reshape(-1)
    side = pa.array(np.tile(np.arange(2, dtype=np.uint8), len(groups)))
    ends = rows.select(WATERMARKS_SCHEMA.names).take(pa.array(edges)).append_column("side", side)
    return to_partial_check(CHECK, _named(rows), found, ends, limit)


def compare_segment_ends(ends: pa.Table, limit: int) -> PartialCheck:
    """Compare the last watermark of each segment (``ends`` of all buckets) with the first of the one after it."""
    segment, side = height_segments(ends["height"]), ends["side"].to_numpy()
    series = _series(ends)
    order = stable_order(series.astype(np.uint64), segment, side)
    rows, series, segment, side = ends.take(pa.array(order)), series[order], segment[order], side[order]
    first = np.flatnonzero((side[1:] == 0) & (series[1:] == series[:-1])) + 1
    found = _found_fallen(rows, first - 1, first)
    return to_partial_check(CHECK, _named(rows), [found], ends.slice(0, 0), limit)


def _in_order(watermarks: pa.Table) -> pa.Table:
    """Return the watermarks that count, by lane, chain and name, else as they stand."""
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
    """Return a number for the lane, chain and name of each row; lanes ascend."""
    keys: list[Array] = [number_lanes(rows)[1].astype(np.uint64), rank_names(rows["chain"]), rank_names(rows["name"])]
    order = stable_order(*keys)
    groups = group_rows(*(key[order] for key in keys))
    series = np.empty(rows.num_rows, dtype=np.int64)
    series[order] = groups.spread(np.arange(len(groups)))
    return series


def _by_height(rows: pa.Table, series: Array, chosen: Array) -> Array:
    """Return ``chosen`` rows, which have a height, in order: of each height by position, or by value where a position
    was not seen of one of them."""
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


def _by_time(rows: pa.Table, series: Array, chosen: Array) -> Array:
    time = rows["time"].cast(pa.int64()).fill_null(0).to_numpy()[chosen]
    return chosen[
        stable_order(series[chosen].astype(np.uint64), order_preserving_times(time), rows["value"].to_numpy()[chosen])
    ]


def _fallen(rows: pa.Table, series: Array, order: Array, segment: U64) -> AssertionFindings:
    one, other = order[:-1], order[1:]
    same: Bools = (series[one] == series[other]) & (segment[one] == segment[other])
    return _found_fallen(rows, one[same], other[same])


def _found_fallen(rows: pa.Table, one: Array, other: Array) -> AssertionFindings:
    """Return of which rows the value is lower than that of the row before them."""
    values = rows["value"].to_numpy()
    fell = values[other] < values[one]
    by = (values[one] - values[other])[fell]
    return AssertionFindings(VIOLATED, "fell", other[fell], by, "messages")


def _two_values(rows: pa.Table, series: Array, chosen: Array) -> AssertionFindings:
    """Return which rows say another value of one place than the row before them, in the order of values."""
    keys = [series[chosen].astype(np.uint64)]
    keys += [rows[name].fill_null(0).to_numpy()[chosen] for name in ("height", "position", "value")]
    order = stable_order(*keys)
    place = group_rows(*(key[order] for key in keys[:-1])).ranks() > 0
    values = keys[-1][order]
    differs = place.copy()
    differs[1:] &= values[1:] != values[:-1]
    return AssertionFindings(VIOLATED, "two_values", chosen[order[differs]])


def _named(rows: pa.Table) -> pa.Table:
    """Return rows with the columns of findings: a watermark's value is their index, its name their event."""
    return rows.append_column("index", rows["value"]).append_column("event", rows["name"])


WATERMARK_ENDS = WATERMARKS_SCHEMA.append(pa.field("side", pa.uint8()))
"""Columns of the watermarks at the ends of segments: of each the first (``side`` 0) and the last."""
