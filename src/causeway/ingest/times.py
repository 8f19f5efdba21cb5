"""Times of recorded traffic in UTC: numbers since 1970, of a unit or of the one that their size tells, texts as ISO
8601 writes them, and what Parquet has. What lies outside the years 1 to 9999 is no time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.ingest.row_sections import TimeSection
from causeway.ledger.limbs import Digits, read_numbers, slices_of, valid_rows

Mask = npt.NDArray[np.bool_]
Refuse = Callable[[Mask, str], None]
"""Says of which rows the time cannot be read, and the reason."""

UTC_MICROS = pa.timestamp("us", "UTC")
_UNITS = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}
_FIRST = -62_135_596_800 * 1_000_000
"""0001-01-01."""

_LAST = 253_402_300_800 * 1_000_000 - 1
"""The last microsecond of the year 9999."""

_FRACTION = r"^[ \t]*\+?(?P<whole>[0-9]{1,20})\.(?P<part>[0-9]{1,30})[ \t]*$"

SIZES = ((0, 10**10, 1_000_000), (10**12, 10**13, 1000), (10**15, 10**16, 1), (10**18, 1 << 63, 0))
"""Numbers of which unit: from, to (excluded), microseconds of one (0: a thousandth). Up to 10 digits are seconds, 13
milliseconds, 16 microseconds, 19 nanoseconds, all of them after 2001 but the seconds; others are ambiguous."""


def times_of(column: pa.Array, field: TimeSection, refuse: Refuse) -> pa.Array:
    """Return a column as times in UTC, null where there is none. ``column``: texts, whole numbers or times."""
    if pa.types.is_timestamp(column.type):
        times = _of_parquet(column, field, refuse)
    elif field.unit == "iso":
        times = _written(_texts(column), field, refuse)
    else:
        times = _numbers(column, field, refuse)
    micros = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    beyond = (micros < _FIRST) | (micros > _LAST)
    if beyond.any():
        refuse(beyond, "not_a_time")
        times = pc.if_else(pa.array(beyond), pa.scalar(None, UTC_MICROS), times)
    return times


def _texts(column: pa.Array) -> pa.Array:
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _of_parquet(column: pa.Array, field: TimeSection, refuse: Refuse) -> pa.Array:
    valid = valid_rows(column)
    values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    factor = _UNITS[column.type.unit]
    if factor:
        beyond = (values > _LAST // factor) | (values < _FIRST // factor)
        if beyond.any():
            refuse(beyond & valid, "not_a_time")
            valid, values = valid & ~beyond, np.where(beyond, 0, values)
    micros = values * factor if factor else values // 1000
    times = pa.array(micros, pa.timestamp("us"), mask=None if valid.all() else ~valid)
    return _in_utc(times, valid, field, refuse) if column.type.tz is None else times.cast(pa.int64()).cast(UTC_MICROS)


def _numbers(column: pa.Array, field: TimeSection, refuse: Refuse) -> pa.Array:
    """Return times that are numbers; of any unit, they may also be written."""
    whole = pa.types.is_integer(column.type)
    texts = pa.nulls(len(column), pa.string()) if whole else _texts(column)
    if whole:
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        good, below = valid_rows(column) & (values >= 0), valid_rows(column) & (values < 0)
        words, others = np.where(values < 0, 0, values).astype(np.uint64), np.zeros(len(column), dtype=bool)
        refuse(below, "not_a_time")
    else:
        words, found = read_numbers(texts).u64()
        good = found == Digits.GOOD
        others = ~good & (found != Digits.EMPTY)
    parts = np.zeros(len(column), dtype=np.uint64)
    if others.any():
        split = pc.extract_regex(pc.if_else(pa.array(others), texts, pa.scalar(None, pa.string())), _FRACTION)
        begun, kind = read_numbers(split.field(0)).u64()
        broken = valid_rows(split) & (kind == Digits.GOOD)
        six = pc.utf8_slice_codeunits(pc.utf8_rpad(split.field(1), 6, "0"), 0, 6)
        parts[broken] = read_numbers(six).u64()[0][broken]
        words, good, others = np.where(broken, begun, words), good | broken, others & ~broken
    micros, fits = _scaled(words, parts, field.unit)
    refuse(good & ~fits, "ambiguous_time" if field.unit == "any" else "not_a_time")
    good &= fits
    times = pa.array(np.where(good, micros, 0), pa.int64(), mask=~good).cast(UTC_MICROS)
    if not others.any():
        return times
    if field.unit != "any":
        refuse(others, "not_a_time")
        return times
    rest = pc.if_else(pa.array(others), texts, pa.scalar(None, pa.string()))
    return pc.coalesce(times, _written(rest, field, refuse))


def _scaled(
    words: npt.NDArray[np.uint64], parts: npt.NDArray[np.uint64], unit: str
) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return numbers of a unit, and millionths of one, in microseconds, and which of them are times."""
    micros, fits = np.zeros(len(words), dtype=np.int64), np.zeros(len(words), dtype=bool)
    sizes = (
        SIZES if unit == "any" else ((0, _LAST // (_UNITS[unit] or 1) + 1 if unit != "ns" else 1 << 63, _UNITS[unit]),)
    )
    for begin, end, factor in sizes:
        mine = (words >= np.uint64(begin)) & (words < np.uint64(end))
        if not mine.any():
            continue
        whole, part = words[mine].astype(np.int64), parts[mine].astype(np.int64)
        micros[mine] = whole * factor + part * factor // 1_000_000 if factor else whole // 1000
        fits |= mine
    return micros, fits


def _written(column: pa.Array, field: TimeSection, refuse: Refuse) -> pa.Array:
    from causeway.ingest.time_loops import read_times

    data, offsets = slices_of(column)
    micros, found = np.empty(len(column), dtype=np.int64), np.empty(len(column), dtype=np.uint8)
    read_times(data, offsets[:-1], offsets[1:], micros, found)
    found[~valid_rows(column)] = 3
    refuse(found == 0, "not_a_time")
    local = found == 1
    times = pa.array(micros, pa.timestamp("us"), mask=(found != 1) & (found != 2))
    if not local.any():
        return times.cast(UTC_MICROS)
    in_utc = _in_utc(times, local, field, refuse)
    return pc.if_else(pa.array(local), in_utc, times.cast(UTC_MICROS))


def _in_utc(times: pa.Array, local: Mask, field: TimeSection, refuse: Refuse) -> pa.Array:
    """Return times by the clock of the mapping's zone in UTC. What that clock shows twice or never is refused."""
    if field.timezone == "UTC":
        return times.cast(UTC_MICROS)
    one, other = (
        pc.assume_timezone(times, field.timezone, ambiguous=which, nonexistent=which).cast(UTC_MICROS)
        for which in ("earliest", "latest")
    )
    differ = pc.not_equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    refuse(np.asarray(differ, dtype=bool) & local, "ambiguous_time")
    return one


__all__ = ["times_of"]
