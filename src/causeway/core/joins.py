"""Joins of frames by key columns, ranges of numbers, and sets of indices as intervals.

Key columns are packed into 64-bit codes that compare like the keys, so joins are binary searches. ``Intervals`` stores
the seen indices of a queue in memory that grows with the gaps, not the queue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, WORD_BITS, Rows, bit_width, find_positions, group_rows

from causeway.core.frame import Frame

SMALL_INPUT = 60
"""Total rows of a ``lookup_rows`` up to which a dictionary is faster than codes."""


def encode_keys(keys: Sequence[str], *frames: Frame) -> list[U64]:
    """Encode key columns as one 64-bit code a row; codes compare like the keys.

    Codes are comparable within one call only.

    Args:
        keys: Names of unsigned columns, most significant first.
        frames: Frames with these columns.

    Returns:
        uint64 array for each frame.
    """
    joined = _column(keys[0], frames)
    width = bit_width(joined)
    for key in keys[1:]:
        following = _column(key, frames)
        more = bit_width(following)
        if more == 0:
            continue
        if width + more > WORD_BITS:
            joined, width = _rank(joined)
        if width + more > WORD_BITS:
            following, more = _rank(following)
        joined <<= np.uint64(more)
        joined |= following
        width += more
    found: list[U64] = []
    stop = 0
    for frame in frames:
        start, stop = stop, stop + len(frame)
        found.append(joined[start:stop])
    return found


def _column(key: str, frames: Sequence[Frame]) -> U64:
    """Concatenate a column of all frames."""
    return np.concatenate([frame[key] for frame in frames], dtype=np.uint64, casting="unsafe")


def _rank(column: U64) -> tuple[U64, int]:
    """Replace values by their ranks; return them and the bits that ranks need."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks.astype(np.uint64), max(len(values) - 1, 0).bit_length()


def lookup_rows(table: Frame, asked: Frame, keys: Sequence[str], *, ordered: bool = True) -> Rows:
    """Find rows by key.

    Args:
        table: Frame with unique keys.
        asked: Frame with the keys to find.
        keys: Names of the key columns.
        ordered: ``table`` ascends by the keys.

    Returns:
        int64 array: the row of ``table`` for each row of ``asked``, -1 for none.
    """
    if len(table) == 0 or len(asked) == 0:
        return np.full(len(asked), -1, dtype=np.int64)
    if len(table) + len(asked) <= SMALL_INPUT:
        rows = {key: row for row, key in enumerate(_tuples(table, keys))}
        return np.array([rows.get(key, -1) for key in _tuples(asked, keys)], dtype=np.int64)
    own, wanted = encode_keys(keys, table, asked)
    if ordered:
        return find_positions(own, wanted)
    order = np.argsort(own, kind="stable")
    found = find_positions(own[order], wanted)
    return np.where(found >= 0, order[found], -1)


def _tuples(frame: Frame, keys: Sequence[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(frame[key].tolist() for key in keys), strict=True)


def expand_ranges(begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> tuple[Rows, npt.NDArray[Any]]:
    """Expand ranges ``begin`` to ``end`` - 1 to single numbers, in order.

    Args:
        begin: First number of each range.
        end: End of each range.

    Returns:
        Row of the range and number, for each number.
    """
    counts = np.where(end > begin, end - begin, 0).astype(np.int64)
    rows = np.repeat(np.arange(len(begin), dtype=np.int64), counts)
    offset = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, begin[rows] + offset.astype(begin.dtype)


def merge_ranges(numbers: U64, *keys: npt.NDArray[Any]) -> tuple[Rows, U64, U64]:
    """Merge consecutive numbers into ranges, the inverse of ``expand_ranges``.

    A range continues while each row has the next number and equal keys.

    Args:
        numbers: Numbers, ordered so that consecutive ones are adjacent.
        keys: Further columns.

    Returns:
        First row, first number and end of each range.
    """
    groups = group_rows(numbers - np.arange(len(numbers), dtype=np.uint64), *keys)
    begin = numbers[groups.starts]
    return groups.starts, begin, begin + groups.counts.astype(np.uint64)


class Intervals:
    """A set of indices: ``starts`` and ``stops`` of its disjoint ranges, ascending."""

    def __init__(self, starts: list[int] | None = None, stops: list[int] | None = None) -> None:
        self.starts = starts or []
        self.stops = stops or []

    @classmethod
    def of(cls, indices: U64) -> Intervals:
        """Create the set of distinct ascending indices."""
        _, begin, end = merge_ranges(indices)
        return cls(begin.tolist(), end.tolist())

    def add(self, begin: int, end: int) -> None:
        """Add the indices ``begin`` to ``end`` - 1, merging adjacent ranges."""
        if end <= begin:
            return
        first = bisect_left(self.stops, begin)
        last = bisect_right(self.starts, end)
        if first < last:
            begin, end = min(begin, self.starts[first]), max(end, self.stops[last - 1])
        self.starts[first:last] = [begin]
        self.stops[first:last] = [end]

    def without(self, begin: int, end: int) -> Intervals:
        """Return the indices ``begin`` to ``end`` - 1 that are not in the set."""
        rest = [(start, stop) for start, stop, inside in self.cut(begin, end) if not inside]
        return Intervals([start for start, _ in rest], [stop for _, stop in rest])

    def cut(self, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Partition ``begin`` to ``end`` - 1 into ranges, each with True if it is in the set."""
        index = bisect_right(self.stops, begin)
        while begin < end:
            start = self.starts[index] if index < len(self.starts) else end
            if begin < start:
                stop = min(start, end)
                yield begin, stop, False
            else:
                stop = min(self.stops[index], end)
                yield begin, stop, True
                index += 1
            begin = stop
