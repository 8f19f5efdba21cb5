"""The check ``headers``: a chain has one header at each height, linked to the previous one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from causeway_proofs.order import Groups, group_rows, stable_order

from causeway.audit.arrays import Array, time_differences
from causeway.audit.columns import Bools
from causeway.audit.findings import (
    UNKNOWN,
    VIOLATED,
    AssertionFindings,
    PartialCheck,
    is_counted,
    is_reverted,
    number_texts,
    to_partial_check,
)
from causeway.ledger.encodings import NameCodes
from causeway.ledger.row_order import height_segments
from causeway.ledger.schema import HEADER, HEADERS_SCHEMA, LANE
from causeway.ledger.windows import EVERY_CHAIN_OR_LANE, ObservedWindowTable

CHECK = "headers"

_NONE = np.iinfo(np.int64).max
"""Unknown time, and in a minimum an unknown hash."""


def headers_as_lanes(headers: pa.Table) -> pa.Table:
    """Add lane columns to headers, with the chain as source."""
    chain = headers["chain"]
    for name in LANE:
        headers = headers.append_column(name, chain if name == "source" else pa.nulls(headers.num_rows, pa.string()))
    return headers


def check_headers(
    headers: pa.Table, windows: ObservedWindowTable, limit: int, *, over_cuts: bool = False
) -> PartialCheck:
    """Compare headers with their predecessors.

    Args:
        headers: Sorted headers of a bucket (``HEADERS_SCHEMA``), or with ``over_cuts`` those at all segment ends.
        windows: Windows that the input covers.
        limit: Maximum number of named findings of a chain and reason.
        over_cuts: Compare only headers of different segments.

    Returns:
        The result, with the headers at segment ends.
    """
    rows = _in_order(headers)
    blocks = _Blocks.of(rows)
    pairs = _Pairs.of(rows, blocks, over_cuts)
    found = [] if over_cuts else [AssertionFindings(VIOLATED, "two_headers", blocks.rows[blocks.two])]
    found.append(AssertionFindings(VIOLATED, "parent_differs", blocks.rows[1:][pairs.other_parent]))
    found += [_fallen(blocks, over_cuts), _missing(rows, blocks, pairs, windows)]
    heights = rows["height"]
    rows = headers_as_lanes(rows).append_column("index", heights)
    ends = headers.slice(0, 0) if over_cuts else _ends(rows.select(HEADERS_SCHEMA.names), blocks)
    return to_partial_check(CHECK, rows, found, ends, limit)


def has_gaps(headers: pa.Table) -> bool:
    """Return True if headers are missing within a segment, so that windows matter."""
    seen = headers.filter(headers["height"].is_valid())
    chain, height = NameCodes().codes(seen["chain"]), seen["height"].to_numpy()
    order = np.lexsort((height, chain))
    chain, height, segment = chain[order], height[order], height_segments(seen["height"])[order]
    same = (chain[1:] == chain[:-1]) & (segment[1:] == segment[:-1])
    return bool((same & (np.diff(height) > 1)).any())


def _in_order(headers: pa.Table) -> pa.Table:
    """Return the counted headers by chain and height, stably."""
    seen = np.asarray(headers["height"].is_valid()) & np.asarray(headers["chain"].is_valid())
    if not seen.all():
        headers = headers.filter(pa.array(seen))
    chain, height = NameCodes().codes(headers["chain"]), headers["height"].to_numpy()
    block, root = number_texts(headers["hash"], headers["root"])
    names = np.where(block >= 0, 2 * block, 2 * root + 1)
    tick = headers["tick"]
    turns = [np.asarray(tick.is_valid()).astype(np.uint64), tick.fill_null(0).to_numpy()]
    counts = is_counted(is_reverted(headers), [chain, height, names], turns)
    order = stable_order(chain.astype(np.uint32), height)
    order = order[counts[order]]
    return (
        headers if len(order) == headers.num_rows and (order[1:] > order[:-1]).all() else headers.take(pa.array(order))
    )


@dataclass(frozen=True)
class _Blocks:
    """Blocks of chains, one entry for each chain and height.

    Attributes:
        groups: Headers of each block.
        rows: First header of each block.
        chain: Chain of each block.
        height: Height of each block.
        segment: Segment of each block.
        hash: Hash of each block, -1: unknown.
        several: Mask of blocks with several hashes.
        two: Mask of blocks with two different headers.
        time: Earliest time of each block.
        own: Hash of each header.
        parent: Parent of each header.
    """

    groups: Groups
    rows: Array
    chain: Array
    height: Array
    segment: Array
    hash: Array
    several: Bools
    two: Bools
    time: Array
    own: Array
    parent: Array

    @classmethod
    def of(cls, rows: pa.Table) -> _Blocks:
        """Build the blocks of sorted headers."""
        chain, height = NameCodes().codes(rows["chain"]), rows["height"].to_numpy()
        groups = group_rows(chain, height)
        own, parent = number_texts(rows["hash"], rows["parent"])
        (root,) = number_texts(rows["root"])
        times = rows["time"].cast(pa.int64()).fill_null(_NONE).to_numpy()
        most, least = _extent(own, groups)
        root_most, root_least = _extent(root, groups)
        starts = groups.starts
        time = np.minimum.reduceat(times, starts) if len(groups) else np.zeros(0, np.int64)
        two = (most > least) | ((most < 0) & (root_most > root_least))
        segment = height_segments(rows["height"])
        return cls(
            *(groups, starts, chain[starts], height[starts], segment[starts]),
            *(most, most > least, two, time, own, parent),
        )


def _extent(numbers: Array, groups: Groups) -> tuple[Array, Array]:
    """Return the maximum of each group, -1: none, and the minimum."""
    if not len(groups):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    least = np.minimum.reduceat(np.where(numbers < 0, _NONE, numbers), groups.starts)
    most = np.maximum.reduceat(numbers, groups.starts)
    return most, np.where(most < 0, most, least)


@dataclass(frozen=True)
class _Pairs:
    """Pairs of consecutive blocks of a chain, i and i + 1.

    Attributes:
        compared: Mask of pairs to compare.
        gap: Number of heights between the two.
        linked: The second block names the first as parent.
        other_parent: The second block is at the next height and names another parent.
    """

    compared: Bools
    gap: Array
    linked: Bools
    other_parent: Bools

    @classmethod
    def of(cls, rows: pa.Table, blocks: _Blocks, over_cuts: bool) -> _Pairs:
        """Return the pairs within segments, or with ``over_cuts`` those across segments."""
        compared = blocks.chain[1:] == blocks.chain[:-1]
        compared &= (blocks.segment[1:] == blocks.segment[:-1]) ^ over_cuts
        gap = blocks.height[1:] - blocks.height[:-1] - np.uint64(1)
        known, unknown = _parents(blocks)
        adjacent = compared & (gap == 0) & (blocks.hash[:-1] >= 0)
        return cls(compared, gap, known[1:], adjacent & unknown[1:])


def _parents(blocks: _Blocks) -> tuple[Bools, Bools]:
    """Return masks of blocks with a parent that matches the previous block, or another one."""
    count = len(blocks.groups)
    of_row = blocks.groups.spread(np.arange(count))
    before = np.maximum(of_row - 1, 0)
    known = (blocks.parent >= 0) & (of_row > 0)
    same = known & (blocks.parent == blocks.hash[before])
    unsure = np.flatnonzero(known & ~same & blocks.several[before])
    if len(unsure):
        bound = int(max(blocks.own.max(initial=0), blocks.parent.max(initial=0))) + 1
        pairs = of_row[blocks.own >= 0] * bound + blocks.own[blocks.own >= 0]
        same[unsure] = np.isin(before[unsure] * bound + blocks.parent[unsure], pairs)
    if not count:
        return np.zeros(0, bool), np.zeros(0, bool)
    starts = blocks.groups.starts
    return np.logical_or.reduceat(same, starts), np.logical_or.reduceat(known & ~same, starts)


def _fallen(blocks: _Blocks, over_cuts: bool) -> AssertionFindings:
    """Return findings about blocks with a time before that of the previous timed block."""
    timed = np.flatnonzero(blocks.time != _NONE)
    one, other = timed[:-1], timed[1:]
    compared = blocks.chain[one] == blocks.chain[other]
    compared &= (blocks.segment[one] == blocks.segment[other]) ^ over_cuts
    fell = compared & (blocks.time[other] < blocks.time[one])
    one, other = one[fell], other[fell]
    by = time_differences(blocks.time[other], blocks.time[one])[0].astype(np.float64)
    return AssertionFindings(VIOLATED, "time_fell", blocks.rows[other], by, "microseconds")


def _missing(rows: pa.Table, blocks: _Blocks, pairs: _Pairs, windows: ObservedWindowTable) -> AssertionFindings:
    """Return findings about gaps within one window of their chain."""
    gaps = np.flatnonzero(pairs.compared & (pairs.gap > 0) & ~pairs.linked)
    inside = np.zeros(len(gaps), dtype=bool)
    chains = blocks.chain[gaps]
    for chain in np.unique(chains).tolist():
        own = np.flatnonzero(chains == chain)
        name = rows["chain"][int(blocks.rows[gaps[own[0]]])].as_py()
        spans = windows.of(name, EVERY_CHAIN_OR_LANE, HEADER)
        inside[own] = spans.share_height_window(blocks.height[gaps[own]], blocks.height[gaps[own] + 1])
    gaps = gaps[inside]
    first = pa.array(blocks.height[gaps] + np.uint64(1), pa.uint64())
    return AssertionFindings(
        UNKNOWN,
        "missing_inside_window",
        blocks.rows[gaps],
        pairs.gap[gaps],
        "headers",
        {"index": first, "height": first, "time": pa.nulls(len(gaps), pa.timestamp("us", "UTC"))},
        placed=False,
    )


def _ends(rows: pa.Table, blocks: _Blocks) -> pa.Table:
    """Return the headers of the first and last blocks of each segment, and of those with a time."""
    segments = group_rows(blocks.chain, blocks.segment)
    with_time = np.flatnonzero(blocks.time != _NONE)
    timed = group_rows(blocks.chain[with_time], blocks.segment[with_time])
    chosen = np.zeros(len(blocks.groups), dtype=bool)
    for groups, places in ((segments, np.arange(len(blocks.groups))), (timed, with_time)):
        chosen[places[groups.starts]] = True
        chosen[places[groups.starts + groups.counts - 1]] = True
    return rows.filter(pa.array(blocks.groups.spread(chosen)))


HEADER_ENDS = HEADERS_SCHEMA
"""Columns of the headers at segment ends."""
