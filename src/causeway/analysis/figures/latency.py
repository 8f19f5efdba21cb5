"""Delays of messages: how they are distributed, of each lane and of all, whatever pieces a ledger is looked at in.

Of a lane and measure the distribution is the different delays and how many messages have each: exact up to ``EXACT``
different ones, else each rounded toward zero to ``BITS`` binary digits. Which of the two it is depends on the whole
distribution alone, and rounding twice is rounding once, so the pieces may come in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import group_rows, stable_order

from causeway.analysis.figures.outcomes import REFUNDED, MessageOutcomes
from causeway.analysis.figures.positions import EventPositions
from causeway.audit.arrays import Array, Ints, Words, time_differences
from causeway.audit.columns import NO_HEIGHT, Bools
from causeway.ledger.schema import LANE

EXACT_BITS = 1 << 16
"""Up to so many different delays of a lane and measure are all kept."""

BITS = 12
"""Of more each is rounded to so many binary digits, and shown by the middle: within 1 / 2**BITS of what it is."""

TICKS, SECONDS, HEIGHTS = "ticks", "seconds", "heights"

MEASURES = (
    *(("delivery", TICKS), ("delivery", SECONDS), ("service", TICKS), ("service", SECONDS)),
    *(("round_trip", TICKS), ("round_trip", SECONDS), ("round_trip", HEIGHTS)),
)
"""From sending to receipt, from receipt to execution, from sending to when its source has the answer; and in what."""

MICROSECONDS = 1_000_000
QUANTILES = (50, 90, 99)
"""In percent."""

_LARGEST = np.int64(2**63 - 1)

DELAYS_SCHEMA = pa.schema(
    [
        *(("lane", pa.int32()), ("measure", pa.int8()), ("rounded", pa.bool_())),
        *(("delay", pa.int64()), ("count", pa.int64())),
    ]
)
"""So many messages of a lane (a number) have this delay, in microseconds, ticks or heights; sorted."""

EXTENTS_SCHEMA = pa.schema(
    [
        *(("lane", pa.int32()), ("measure", pa.int8()), ("count", pa.int64())),
        *(
            ("high", pa.int64()),
            ("low", pa.int64()),
            ("min", pa.int64()),
            ("max", pa.int64()),
            ("negative", pa.int64()),
        ),
    ]
)
"""How many delays there are of a lane and measure, their sum (``high`` * 2**32 + ``low``), the least, the largest, and
how many are below 0."""

LATENCY_SCHEMA = pa.schema(
    [
        pa.field("scope", pa.string(), nullable=False),
        *(pa.field(name, pa.string()) for name in LANE),
        *(pa.field(name, pa.string(), nullable=False) for name in ("measure", "unit")),
        pa.field("count", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in ("min", "mean", "p50", "p90", "p99", "max")),
        pa.field("negative", pa.int64(), nullable=False),
        pa.field("exact", pa.bool_(), nullable=False),
    ]
)
"""Delays of a lane (``scope`` = ``lane``) or of all (``all``): quantiles by nearest rank."""


class MessageDelays(NamedTuple):
    """The delay of each of some messages; ``seen``: of which it was seen."""

    seen: Bools
    number: Ints


def measure_delays(outcomes: MessageOutcomes) -> list[MessageDelays]:
    """Return the delays of messages, one a measure (``MEASURES``)."""
    sent, received, executed = outcomes.sent, outcomes.received, outcomes.executed
    answer = outcomes.reply_positions.of(outcomes.outcome <= REFUNDED)
    found = []
    for one, other in ((sent, received), (received, executed), (sent, answer)):
        found += [_words_between(one, other, "tick"), _time_between(one, other)]
    on_one = (sent.chain == answer.chain) & (sent.chain >= 0)
    seen, number = _words_between(sent, answer, "height")
    return [*found, MessageDelays(seen & on_one, number)]


def _time_between(one: EventPositions, other: EventPositions) -> MessageDelays:
    number, seen = time_differences(one.time, other.time)
    return MessageDelays(seen, np.maximum(number, -_LARGEST))


def _words_between(one: EventPositions, other: EventPositions, name: str) -> MessageDelays:
    first: Words = getattr(one, name)
    last: Words = getattr(other, name)
    seen = (first != NO_HEIGHT) & (last != NO_HEIGHT)
    more, less = last - first, first - last
    large = np.uint64(_LARGEST)
    number = np.where(last >= first, np.minimum(more, large).view(np.int64), -np.minimum(less, large).view(np.int64))
    return MessageDelays(seen, number)


def delay_distribution(outcomes: MessageOutcomes, delays: Sequence[MessageDelays]) -> tuple[pa.Table, pa.Table]:
    """Return how the delays of messages are distributed (``DELAYS_SCHEMA``, ``EXTENTS_SCHEMA``); lanes by their number
    in the run."""
    entries, extents = [DELAYS_SCHEMA.empty_table()], [EXTENTS_SCHEMA.empty_table()]
    for measure, (seen, number) in enumerate(delays):
        chosen = np.flatnonzero(seen)
        if not len(chosen):
            continue
        lane, delay = outcomes.lane[chosen].astype(np.int32), number[chosen]
        code = np.full(len(chosen), measure, np.int8)
        extents.append(_extent(lane, code, delay))
        entries.append(_entries(lane, code, np.zeros(len(chosen), bool), delay, np.ones(len(chosen), np.int64)))
    return pa.concat_tables(entries), pa.concat_tables(extents)


def _extent(lane: Array, measure: Array, delay: Ints) -> pa.Table:
    groups = group_rows(lane)
    starts = groups.starts
    content = [
        *(lane[starts], measure[starts], groups.counts),
        *(np.add.reduceat(delay >> 32, starts), np.add.reduceat(delay & 0xFFFFFFFF, starts)),
        *(np.minimum.reduceat(delay, starts), np.maximum.reduceat(delay, starts)),
        np.add.reduceat((delay < 0).astype(np.int64), starts),
    ]
    return pa.table([pa.array(column) for column in content], EXTENTS_SCHEMA)


def _entries(lane: Array, measure: Array, rounded: Bools, delay: Ints, count: Ints) -> pa.Table:
    """Return a distribution in order, each delay once, rounded where there are too many of a lane and measure."""
    lane, measure, rounded, delay, count = _added_up(lane, measure, rounded, delay, count)
    groups = group_rows(lane, measure)
    if len(groups):
        large = (groups.counts > EXACT_BITS) | np.logical_or.reduceat(rounded, groups.starts)
        rows = groups.spread(large)
        if rows.any():
            delay, rounded = np.where(rows, round_down(delay), delay), rows
            lane, measure, rounded, delay, count = _added_up(lane, measure, rounded, delay, count)
    return pa.table([pa.array(column) for column in (lane, measure, rounded, delay, count)], DELAYS_SCHEMA)


_Entries = tuple[Array, Array, Bools, Ints, Ints]


def _added_up(lane: Array, measure: Array, rounded: Bools, delay: Ints, count: Ints) -> _Entries:
    if not len(lane):
        return lane, measure, rounded, delay, count
    least = delay.min()
    place = delay.view(np.uint64) - np.uint64(int(least) & (2**64 - 1))
    order = stable_order(lane.astype(np.uint64), measure.astype(np.uint64), place)
    lane, measure, rounded = lane[order], measure[order], rounded[order]
    delay, count = delay[order], count[order]
    groups = group_rows(lane, measure, delay)
    at = groups.starts
    return lane[at], measure[at], np.logical_or.reduceat(rounded, at), delay[at], np.add.reduceat(count, at)


def round_down(delay: Ints, bits: int = BITS) -> Ints:
    """Return delays rounded toward zero to so many binary digits."""
    size = np.abs(delay)
    spare = _spare(size, bits)
    below = size >> spare << spare
    return np.where(delay < 0, -below, below)


def _spare(size: Ints, bits: int) -> Ints:
    """Return by how many binary digits numbers are longer than ``bits``."""
    length = np.zeros(len(size), np.int64)
    rest = size.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= (np.int64(1) << step)
        length += np.where(large, step, 0)
        rest = np.where(large, rest >> step, rest)
    return np.maximum(length + 1 - bits, 0)


def merge_distributions(entries: Sequence[pa.Table], extents: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Return several distributions as one; lanes by the same numbers in all."""
    every = pa.concat_tables([DELAYS_SCHEMA.empty_table(), *entries])
    columns = [np.asarray(every[name].combine_chunks().to_numpy(zero_copy_only=False)) for name in DELAYS_SCHEMA.names]
    lane, measure, rounded, delay, count = columns
    return _entries(lane, measure, rounded.astype(bool), delay, count), _extents(pa.concat_tables(extents))


def _extents(every: pa.Table) -> pa.Table:
    columns = {name: np.asarray(every[name].to_numpy()) for name in EXTENTS_SCHEMA.names}
    if not every.num_rows:
        return EXTENTS_SCHEMA.empty_table()
    order = stable_order(columns["lane"].astype(np.uint64), columns["measure"].astype(np.uint64))
    columns = {name: column[order] for name, column in columns.items()}
    starts = group_rows(columns["lane"], columns["measure"]).starts
    found = []
    for name, column in columns.items():
        how = {"lane": None, "measure": None, "min": np.minimum, "max": np.maximum}.get(name, np.add)
        found.append(pa.array(column[starts] if how is None else how.reduceat(column, starts)))
    return pa.table(found, EXTENTS_SCHEMA)


def merge_lanes(entries: pa.Table, extents: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the distribution over all lanes, as that of a lane 0."""
    zero = [
        table.set_column(0, DELAYS_SCHEMA.field("lane"), pa.array(np.zeros(table.num_rows, np.int32)))
        for table in (entries, extents)
    ]
    return merge_distributions([zero[0]], [zero[1]])


def latency_table(entries: pa.Table, extents: pa.Table, lanes: dict[str, pa.Array], scope: str) -> pa.Table:
    """Return delays as people look at them (``LATENCY_SCHEMA``). ``lanes``: the names of lanes by number; ``scope``:
    of what each is."""
    if not extents.num_rows:
        return LATENCY_SCHEMA.empty_table()
    columns = {name: np.asarray(extents[name].to_numpy()) for name in EXTENTS_SCHEMA.names}
    measure, count = columns["measure"], columns["count"]
    delay, many = (np.asarray(entries[name].to_numpy()) for name in ("delay", "count"))
    rounded = entries["rounded"].to_numpy()
    groups = group_rows(entries["lane"].to_numpy(), entries["measure"].to_numpy())
    scale = np.array([MICROSECONDS if unit == SECONDS else 1 for _, unit in MEASURES], np.float64)[measure]
    upto = np.cumsum(many)
    before = upto[groups.starts] - many[groups.starts]
    mean = [(int(h) * 2**32 + int(s)) / int(c) for h, s, c in zip(columns["high"], columns["low"], count, strict=True)]
    content: dict[str, npt.NDArray[np.float64]] = {
        "min": columns["min"] / scale,
        "mean": np.array(mean, np.float64) / scale,
        "max": columns["max"] / scale,
    }
    for quantile in QUANTILES:
        rank = (count * quantile + 99) // 100
        row = np.searchsorted(upto, before + rank, side="left")
        number = np.where(rounded[row], bin_middle(delay[row]), delay[row])
        number = np.minimum(np.maximum(number, columns["min"]), columns["max"])
        content[f"p{quantile}"] = number / scale
    names = {name: column.take(pa.array(columns["lane"])) for name, column in lanes.items()}
    found = {
        "scope": pa.array([scope] * len(measure), pa.string()),
        **names,
        "measure": pa.array([MEASURES[code][0] for code in measure.tolist()], pa.string()),
        "unit": pa.array([MEASURES[code][1] for code in measure.tolist()], pa.string()),
        "count": pa.array(count),
        **{name: pa.array(column) for name, column in content.items()},
        "negative": pa.array(columns["negative"]),
        "exact": pa.array(~rounded[groups.starts]),
    }
    return pa.table([found[name] for name in LATENCY_SCHEMA.names], LATENCY_SCHEMA)


def bin_middle(delay: Ints, bits: int = BITS) -> Ints:
    """Return the middle of what is rounded to each delay."""
    half = (np.int64(1) << _spare(np.abs(delay), bits)) >> 1
    return delay + np.where(delay < 0, -half, half)


def choose_unit(extents: pa.Table) -> str | None:
    """Return in which unit delays are shown: in ticks where there are as many as in seconds; None: there are none."""
    measure, count = extents["measure"].to_numpy(), extents["count"].to_numpy()
    many = {
        unit: int(count[np.isin(measure, [n for n, (_, each) in enumerate(MEASURES) if each == unit])].sum())
        for unit in (TICKS, SECONDS)
    }
    if not any(many.values()):
        return None
    return TICKS if many[TICKS] >= many[SECONDS] else SECONDS


__all__ = [
    "BITS",
    "DELAYS_SCHEMA",
    "EXACT_BITS",
    "EXTENTS_SCHEMA",
    "HEIGHTS",
    "LATENCY_SCHEMA",
    "MEASURES",
    "SECONDS",
    "TICKS",
    "bin_middle",
    "choose_unit",
    "delay_distribution",
    "latency_table",
    "measure_delays",
    "merge_distributions",
    "merge_lanes",
    "round_down",
]  # fmt: skip
