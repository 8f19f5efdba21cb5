"""Counts of each lane and chain: messages, first and last, and the oldest pending message."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows, stable_order

from causeway.analysis.figures.outcomes import PENDING, REJECTED, MessageOutcomes
from causeway.analysis.figures.positions import NO_TICK
from causeway.audit.arrays import Array, Ints
from causeway.audit.columns import NO_HEIGHT, NO_TIME, REQUEST, Bools
from causeway.ledger.encodings import rank_names
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.schema import LANE

_TIME = pa.timestamp("us", "UTC")

_OF_MESSAGES = ("messages", "requests", "between_chains", "sent", "received", *OUTCOMES, "in_flight")
NO_LANE = ("from_users", "refused_from_users", "control", "forged")
"""Messages counted separately from messages between programs of chains.

These are messages from users to a chain (accepted and refused), protocol messages, and forged messages.
"""

COUNTED = (*_OF_MESSAGES, *NO_LANE)

_FIRSTS = ("first_index", "first_sent_tick", "first_sent_time")
_LASTS = ("last_index", "last_sent_tick", "last_sent_time")
_OLDEST = ("oldest_pending_tick", "oldest_pending_time", "oldest_pending_index", "oldest_pending_id")


def _type_of(name: str) -> pa.DataType:
    if name.endswith("_time"):
        return _TIME
    return pa.string() if name.endswith("_id") else pa.uint64()


LANE_COUNTS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(pa.field(name, pa.int64(), nullable=False) for name in COUNTED),
        *(pa.field(name, _type_of(name)) for name in (*_FIRSTS, *_LASTS, *_OLDEST)),
    ]
)
"""Counts of a lane in one part of a ledger; the counts of several parts add up."""

LANES_SCHEMA = pa.schema(
    [
        *(LANE_COUNTS_SCHEMA.field(name) for name in (*LANE, *COUNTED)),
        *(pa.field(name, pa.uint64()) for name in ("first_index", "last_index", "first_sent_tick", "last_sent_tick")),
        *(pa.field(name, _TIME) for name in ("first_sent_time", "last_sent_time")),
        *(("oldest_pending_index", pa.uint64()), ("oldest_pending_id", pa.string())),
        *(("oldest_pending_tick", pa.uint64()), ("oldest_pending_time", _TIME)),
        *(("oldest_pending_ticks", pa.int64()), ("oldest_pending_seconds", pa.float64()), ("unit", pa.string())),
        *(
            pa.field(f"{measure}_{what}", pa.float64())
            for measure in ("delivery", "round_trip")
            for what in ("p50", "p99", "max")
        ),
        *(("fee_asset", pa.string()), ("fees", pa.string())),
    ]
)
"""One row a lane.

``messages``: all messages; ``requests``: the calls among them; ``between_chains``: those in a lane between two chains.
Messages of ``NO_LANE`` are counted separately. ``in_flight``: sent, neither received nor completed.
``oldest_pending_ticks``, ``oldest_pending_seconds``: age of the oldest pending message (``PendingAges``). Delays are in
``unit``. ``fees``: decimal digits; null for none, or for fees in several assets.
"""

CHAINS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.string(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("sent", "received", "executed", "ended")),
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in ("pending_out", "pending_in", "lanes_out", "lanes_in")
        ),
        *(pa.field(name, pa.uint64()) for name in ("first_height", "last_height", "first_tick", "last_tick")),
        *(pa.field(name, _TIME) for name in ("first_time", "last_time")),
    ]
)
"""One row a chain: messages sent, received, executed and completed there, pending messages, and the observed extent."""

_THERE = ("sent", "received", "executed", "ended")
_EXTENTS = ("first_height", "last_height", "first_tick", "last_tick", "first_time", "last_time")
CHAIN_COUNTS_SCHEMA = pa.schema(
    [CHAINS_SCHEMA.field(name) for name in ("chain", *_THERE, *_EXTENTS)],
)


def count_lanes(outcomes: MessageOutcomes, others: MessageOutcomes) -> pa.Table:
    """Count the messages of a run by lane.

    Args:
        outcomes: its messages between programs.
        others: all its messages, those of ``NO_LANE`` included.

    Returns:
        Rows of ``LANE_COUNTS_SCHEMA``.
    """
    columns, lanes = outcomes.columns, len(outcomes.columns.lanes)
    requests, sent = outcomes.kind == REQUEST, outcomes.sent.happened
    counted: list[Bools] = [np.ones(len(outcomes), bool), requests, outcomes.is_between_chains, sent]
    counted += [outcomes.received.happened, *(outcomes.outcome == code for code in range(len(OUTCOMES)))]
    counted.append(outcomes.is_sent & ~outcomes.landed.happened)
    refused = others.of_users & (others.outcome == REJECTED)
    apart = [others.of_users, refused, others.is_control, others.forged & ~others.is_control]
    content: dict[str, Any] = dict(columns.lane_names)
    content |= {name: pa.array(outcomes.of_lanes(each)) for name, each in zip(_OF_MESSAGES, counted, strict=True)}
    content |= {name: pa.array(others.of_lanes(each)) for name, each in zip(NO_LANE, apart, strict=True)}
    indexed = columns.indexed[outcomes.base] == 1
    index = columns.index[outcomes.base]
    for name, chosen, values in (
        ("index", indexed, index),
        ("sent_tick", outcomes.sent.tick != NO_TICK, outcomes.sent.tick),
        ("sent_time", outcomes.sent.time != NO_TIME, outcomes.sent.time),
    ):
        for first in ("first", "last"):
            column = f"{first}_{name}"
            content[column] = _extent(outcomes.lane[chosen], values[chosen], lanes, first == "first", _type_of(column))
    content |= _oldest(outcomes, indexed, index)
    return pa.table([content[name] for name in LANE_COUNTS_SCHEMA.names], LANE_COUNTS_SCHEMA)


def _extent(group: Array, values: Array, count: int, least: bool, kind: pa.DataType) -> pa.Array:
    """Return the least or largest value of each group; null for empty groups."""
    edge = np.iinfo(values.dtype)
    found = np.full(count, edge.max if least else edge.min, values.dtype)
    (np.minimum if least else np.maximum).at(found, group, values)
    missing = np.bincount(group, minlength=count) == 0
    return pa.array(found, mask=missing).cast(kind)


def _oldest(outcomes: MessageOutcomes, indexed: Bools, index: Array) -> dict[str, pa.Array]:
    pending = np.flatnonzero(outcomes.outcome == PENDING)
    tick, time = outcomes.sent.tick[pending], outcomes.sent.time[pending]
    # Messages are ordered by index and name, so the first of equally old ones comes first.
    order = pending[np.lexsort((time, tick, outcomes.lane[pending]))]
    first = order[group_rows(outcomes.lane[order]).starts]
    at = np.full(len(outcomes.columns.lanes), -1, np.int64)
    at[outcomes.lane[first]] = np.arange(len(first))
    tick, time = outcomes.sent.tick[first], outcomes.sent.time[first]
    idents = outcomes.columns.rows.take(("message_id",), outcomes.base[first])["message_id"].combine_chunks()
    found = (
        pa.array(tick, mask=tick == NO_TICK),
        pa.array(time, mask=time == NO_TIME).cast(_TIME),
        pa.array(index[first], mask=~indexed[first]),
        idents.cast(pa.string()),
    )
    which = pa.array(at, mask=at < 0)
    return {name: column.take(which) for name, column in zip(_OLDEST, found, strict=True)}


def merge_lane_counts(parts: Sequence[pa.Table]) -> tuple[pa.Table, list[Ints]]:
    """Merge the lane counts of several parts.

    Args:
        parts: tables of ``LANE_COUNTS_SCHEMA``.

    Returns:
        One row a lane in the order of their names, and the new row number of each row of each part.
    """
    every = pa.concat_tables([LANE_COUNTS_SCHEMA.empty_table(), *parts]).combine_chunks()
    ranks = [rank_names(every[name]).astype(np.uint64) for name in LANE]
    order = stable_order(*ranks)
    groups = group_rows(*(rank[order] for rank in ranks))
    number = np.empty(every.num_rows, np.int64)
    number[order] = groups.spread(np.arange(len(groups)))
    rows = every.take(pa.array(order))
    content: dict[str, Any] = {name: rows[name].take(pa.array(groups.starts)) for name in LANE}
    if len(groups):
        for name in COUNTED:
            content[name] = pa.array(np.add.reduceat(rows[name].to_numpy(), groups.starts))
        group = groups.spread(np.arange(len(groups)))
        for name in (*_FIRSTS, *_LASTS):
            seen, values = _seen(rows[name])
            content[name] = _extent(group[seen], values[seen], len(groups), name in _FIRSTS, _type_of(name))
        oldest = _oldest_of(rows, group, len(groups))
        content |= {name: rows[name].take(oldest) for name in _OLDEST}
    else:
        content |= {name: pa.array([], LANE_COUNTS_SCHEMA.field(name).type) for name in (*COUNTED, *_FIRSTS)}
        content |= {name: pa.array([], LANE_COUNTS_SCHEMA.field(name).type) for name in (*_LASTS, *_OLDEST)}
    bounds = np.cumsum([0, *(part.num_rows for part in parts)])
    numbers = [number[first:last] for first, last in itertools.pairwise(bounds)]
    return pa.table([content[name] for name in LANE_COUNTS_SCHEMA.names], LANE_COUNTS_SCHEMA), numbers


def _oldest_of(rows: pa.Table, group: Ints, groups: int) -> pa.Array:
    """Return the row with the oldest pending message of each lane; null without one."""
    pending = np.flatnonzero(rows["pending"].to_numpy() > 0)
    own = rows.take(pa.array(pending))
    keys = [group[pending].astype(np.uint64)]
    for name in _OLDEST[:3]:
        seen, values = _seen(own[name])
        keys += [(~seen).astype(np.uint64), np.where(seen, values.view(np.uint64) ^ _flip(values), np.uint64(0))]
    keys.append(rank_names(own["oldest_pending_id"]).astype(np.uint64))
    order = stable_order(*keys)
    first = order[group_rows(keys[0][order]).starts] if len(order) else order
    found = np.full(groups, -1, np.int64)
    found[group[pending[first]]] = pending[first]
    return pa.array(found, mask=found < 0)


def _flip(values: Array) -> np.uint64:
    return np.uint64(1 << 63) if values.dtype == np.int64 else np.uint64(0)


def _seen(column: pa.ChunkedArray) -> tuple[Bools, Array]:
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return np.asarray(plain.is_valid()), plain.fill_null(0).to_numpy()


def lane_columns(table: pa.Table) -> dict[str, pa.Array]:
    """Return the lane columns of a table by name.

    Args:
        table: a table with the columns ``LANE``.

    Returns:
        The columns.
    """
    return {name: table[name].combine_chunks() for name in LANE}


def count_chains(outcomes: MessageOutcomes) -> pa.Table:
    """Count the messages of a run by chain.

    Args:
        outcomes: the messages of the run.

    Returns:
        Rows of ``CHAIN_COUNTS_SCHEMA``.
    """
    columns, count = outcomes.columns, len(outcomes.chains)
    content: dict[str, Any] = {"chain": pa.array(outcomes.chains, pa.string())}
    for name in _THERE:
        chain = getattr(outcomes, name).chain
        content[name] = pa.array(np.bincount(chain[chain >= 0], minlength=count).astype(np.int64))
    rows = (columns.chain >= 0) & (columns.alive == 1)
    for name, values, nothing in (
        ("height", columns.height, NO_HEIGHT),
        ("tick", outcomes.tick, NO_TICK),
        ("time", columns.time, NO_TIME),
    ):
        chosen = np.flatnonzero(rows & (values != nothing))
        for first in ("first", "last"):
            column = f"{first}_{name}"
            content[column] = _extent(columns.chain[chosen], values[chosen], count, first == "first", _type_of(column))
    return pa.table([content[name] for name in CHAIN_COUNTS_SCHEMA.names], CHAIN_COUNTS_SCHEMA)


def merge_chain_counts(parts: Sequence[pa.Table]) -> pa.Table:
    """Merge the chain counts of several parts.

    Args:
        parts: tables of ``CHAIN_COUNTS_SCHEMA``.

    Returns:
        One row a chain, in the order of their names.
    """
    every = pa.concat_tables([CHAIN_COUNTS_SCHEMA.empty_table(), *parts]).combine_chunks()
    ranks = rank_names(every["chain"])
    order = stable_order(ranks)
    groups = group_rows(ranks[order])
    rows = every.take(pa.array(order))
    content: dict[str, Any] = {"chain": rows["chain"].take(pa.array(groups.starts))}
    group = groups.spread(np.arange(len(groups)))
    for name in _THERE:
        values = rows[name].to_numpy()
        content[name] = pa.array(np.bincount(group, values, len(groups)).astype(np.int64))
    for name in _EXTENTS:
        seen, values = _seen(rows[name])
        content[name] = _extent(group[seen], values[seen], len(groups), name.startswith("first"), _type_of(name))
    return pa.table([content[name] for name in CHAIN_COUNTS_SCHEMA.names], CHAIN_COUNTS_SCHEMA)


def chain_table(counts: pa.Table, lanes: pa.Table) -> pa.Table:
    """Build the table of chains, with the chains that only lanes name.

    Args:
        counts: of ``merge_chain_counts``.
        lanes: of ``merge_lane_counts``.

    Returns:
        Rows of ``CHAINS_SCHEMA``.
    """
    sides: dict[str, dict[str, list[int]]] = {"out": {}, "in": {}}
    pending = lanes["pending"].to_pylist()
    for side, column in (("out", "source"), ("in", "destination")):
        for chain, many in zip(lanes[column].to_pylist(), pending, strict=True):
            if chain is not None:
                own = sides[side].setdefault(chain, [0, 0])
                own[0] += many
                own[1] += 1
    known = set(counts["chain"].to_pylist())
    others = sorted({*sides["out"], *sides["in"]} - known)
    empty = pa.table(
        [
            pa.array(others, pa.string()) if field.name == "chain" else _filler(field, len(others))
            for field in CHAIN_COUNTS_SCHEMA
        ],
        CHAIN_COUNTS_SCHEMA,
    )
    every = merge_chain_counts([counts, empty])
    content: Mapping[str, Any] = {name: every[name] for name in CHAIN_COUNTS_SCHEMA.names} | {
        f"{what}_{side}": pa.array([sides[side].get(chain, [0, 0])[place] for chain in every["chain"].to_pylist()])
        for place, what in enumerate(("pending", "lanes"))
        for side in ("out", "in")
    }
    return pa.table([content[name] for name in CHAINS_SCHEMA.names], CHAINS_SCHEMA)


def _filler(field: pa.Field, count: int) -> pa.Array:
    return pa.nulls(count, field.type) if field.nullable else pa.array(np.zeros(count, np.int64))


__all__ = [
    "CHAINS_SCHEMA",
    "CHAIN_COUNTS_SCHEMA",
    "COUNTED",
    "LANES_SCHEMA",
    "LANE_COUNTS_SCHEMA",
    "NO_LANE",
    "chain_table",
    "count_chains",
    "count_lanes",
    "lane_columns",
    "merge_chain_counts",
    "merge_lane_counts",
]  # fmt: skip
