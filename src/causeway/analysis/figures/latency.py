"""Distributions of message delays, of each lane and of all lanes.

The distribution of a lane and measure counts messages by delay. It is exact up to ``EXACT_BITS`` different delays,
else delays are rounded toward zero to ``BITS`` significant binary digits. The choice depends on the whole distribution
alone, and rounding is idempotent, so the result does not depend on the partition of the ledger.
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
"""Limit of different delays of a lane and measure that are counted exactly."""

BITS = 12
"""Significant binary digits of rounded delays; shown as the middle of the interval (error at most 1 / 2**BITS)."""

TICKS, SECONDS, HEIGHTS = "ticks", "seconds", "heights"

MEASURES = (
    *(("delivery", TICKS), ("delivery", SECONDS), ("service", TICKS), ("service", SECONDS)),
    *(("round_trip", TICKS), ("round_trip", SECONDS), ("round_trip", HEIGHTS)),
)
"""The measures with their units: sending to receipt, receipt to execution, sending to the answer at the source."""

MICROSECONDS = 1_000_000
QUANTILES = (50, 90, 99)
"""Quantiles in percent."""

_LARGEST = np.int64(2**63 - 1)

DELAYS_SCHEMA = pa.schema(
    [
        *(("lane", pa.int32()), ("measure", pa.int8()), ("rounded", pa.bool_())),
        *(("delay", pa.int64()), ("count", pa.int64())),
    ]
)
"""Number of messages of a lane (by number) with a delay in microseconds, ticks or heights; sorted."""

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
"""Count, sum (``high`` * 2**32 + ``low``), least, largest, and number of negative delays, by lane and measure."""

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
"""Delays of a lane (``scope`` = ``lane``) or of all lanes (``all``): quantiles by nearest rank."""


class MessageDelays(NamedTuple):
    """The delay of each message; ``seen`` masks the known ones."""

    seen: Bools
    number: Ints


def measure_delays(outcomes: MessageOutcomes) -> list[MessageDelays]:
    """Compute the delays of messages.

    Args:
        outcomes: the messages.

    Returns:
        One entry a measure (``MEASURES``).
    """
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
    """Compute the delay distributions of a run, with lanes by their number in the run.

    Args:
        outcomes: the messages.
        delays: their delays, one entry a measure.

    Returns:
        Rows of ``DELAYS_SCHEMA`` and of ``EXTENTS_SCHEMA``.
    """
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
    """Return a sorted distribution, each delay once, rounded above the exact limit."""
    lane, measure, rounded, delay, count = _sum_counts(lane, measure, rounded, delay, count)
    groups = group_rows(lane, measure)
    if len(groups):
        large = (groups.counts > EXACT_BITS) | np.logical_or.reduceat(rounded, groups.starts)
        rows = groups.spread(large)
        if rows.any():
            delay, rounded = np.where(rows, round_down(delay), delay), rows
            lane, measure, rounded, delay, count = _sum_counts(lane, measure, rounded, delay, count)
    return pa.table([pa.array(column) for column in (lane, measure, rounded, delay, count)], DELAYS_SCHEMA)


_Entries = tuple[Array, Array, Bools, Ints, Ints]


def _sum_counts(lane: Array, measure: Array, rounded: Bools, delay: Ints, count: Ints) -> _Entries:
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
    """Round delays toward zero to a number of significant binary digits.

    Args:
        delay: the delays, int64.
        bits: the number of digits.

    Returns:
        The rounded delays.
    """
    size = np.abs(delay)
    spare = _spare(size, bits)
    below = size >> spare << spare
    return np.where(delay < 0, -below, below)


def _spare(size: Ints, bits: int) -> Ints:
    """Return the excess of binary digits of numbers over ``bits``."""
    length = np.zeros(len(size), np.int64)
    rest = size.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= (np.int64(1) << step)
        length += np.where(large, step, 0)
        rest = np.where(large, rest >> step, rest)
    return np.maximum(length + 1 - bits, 0)


def merge_distributions(entries: Sequence[pa.Table], extents: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Merge distributions with common lane numbers.

    Args:
        entries: tables of ``DELAYS_SCHEMA``.
        extents: tables of ``EXTENTS_SCHEMA``.

    Returns:
        One table of each schema.
    """
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
    """Merge the distributions of all lanes into that of a single lane 0.

    Args:
        entries: rows of ``DELAYS_SCHEMA``.
        extents: rows of ``EXTENTS_SCHEMA``.

    Returns:
        One table of each schema.
    """
    zero = [
        table.set_column(0, DELAYS_SCHEMA.field("lane"), pa.array(np.zeros(table.num_rows, np.int32)))
        for table in (entries, extents)
    ]
    return merge_distributions([zero[0]], [zero[1]])


def latency_table(entries: pa.Table, extents: pa.Table, lanes: dict[str, pa.Array], scope: str) -> pa.Table:
    """Build the table of delay quantiles.

    Args:
        entries: rows of ``DELAYS_SCHEMA``.
        extents: rows of ``EXTENTS_SCHEMA``.
        lanes: the names of lanes, by number.
        scope: ``lane`` or ``all``.

    Returns:
        Rows of ``LATENCY_SCHEMA``.
    """
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
    """Return the middle of the interval of delays that round to each delay.

    Args:
        delay: rounded delays.
        bits: the number of significant binary digits.

    Returns:
        The middles.
    """
    half = (np.int64(1) << _spare(np.abs(delay), bits)) >> 1
    return delay + np.where(delay < 0, -half, half)


def choose_unit(extents: pa.Table) -> str | None:
    """Choose the unit of delays; None without delays.

    Ticks are chosen if as many delays have ticks as seconds.

    Args:
        extents: rows of ``EXTENTS_SCHEMA``.

    Returns:
        The unit, or None.
    """
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
