"""Joins of frames by key columns: what a row of one frame is in another; ranges spread out into rows, and back.

Sets of indices as disjoint runs: what of a queue was seen, in memory that grows with the gaps, not the queue.
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
"""Rows of both frames of a ``lookup`` up to which they are faster found one by one than by codes."""


def encode_keys(keys: Sequence[str], *frames: Frame) -> list[U64]:
    """Return one 64-bit code a row for each frame: codes are equal where all ``keys`` are, and order like them.

    The first key is the most significant. Keys are columns of unsigned numbers; codes may be compared over the frames
    of one call only.
    """
    joined = _column(keys[0], frames)
    width = bit_width(joined)
    for key in keys[1:]:
        following = _column(key, frames)
        more = bit_width(following)
        if more == 0:
            continue
        if width + more > WORD_BITS:
            joined, width = _ranked(joined)
        if width + more > WORD_BITS:
            following, more = _ranked(following)
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
    """Return a column of all frames, joined."""
    return np.concatenate([frame[key] for frame in frames], dtype=np.uint64, casting="unsafe")


def _ranked(column: U64) -> tuple[U64, int]:
    """Return the column with each value replaced by its rank among all of them, and the bits that ranks take."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks.astype(np.uint64), max(len(values) - 1, 0).bit_length()


def lookup_rows(table: Frame, asked: Frame, keys: Sequence[str], *, ordered: bool = True) -> Rows:
    """Return, for each row of ``asked``, the row of ``table`` with the same ``keys``, -1 where there is none.

    No two rows of ``table`` agree in all keys. ``ordered``: they ascend by them.
    """
    if len(table) == 0 or len(asked) == 0:
        return np.full(len(asked), -1, dtype=np.int64)
    if len(table) + len(asked) <= SMALL_INPUT:
        rows = {named: row for row, named in enumerate(_tuples(table, keys))}
        return np.array([rows.get(named, -1) for named in _tuples(asked, keys)], dtype=np.int64)
    own, wanted = encode_keys(keys, table, asked)
    if ordered:
        return find_positions(own, wanted)
    order = np.argsort(own, kind="stable")
    found = find_positions(own[order], wanted)
    return np.where(found >= 0, order[found], -1)


def _tuples(frame: Frame, keys: Sequence[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(frame[key].tolist() for key in keys), strict=True)


def expand_ranges(begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> tuple[Rows, npt.NDArray[Any]]:
    """Return every number of every range ``begin`` to ``end`` - 1, in order: the row of its range, and the number."""
    counts = np.where(end > begin, end - begin, 0).astype(np.int64)
    rows = np.repeat(np.arange(len(begin), dtype=np.int64), counts)
    offset = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, begin[rows] + offset.astype(begin.dtype)


def merge_ranges(numbers: U64, *keys: npt.NDArray[Any]) -> tuple[Rows, U64, U64]:
    """Return the ranges that rows of ``numbers`` make up, the inverse of ``over``: the first row of each, and its ends.

    A range goes on as long as each row has the next number and equal ``keys``; the rows are in such an order that
    neighbours are next to each other. Of a range, ``begin`` to ``end`` - 1 are in it.
    """
    groups = group_rows(numbers - np.arange(len(numbers), dtype=np.uint64), *keys)
    begin = numbers[groups.starts]
    return groups.starts, begin, begin + groups.counts.astype(np.uint64)


class Intervals:
    """A set of indices. ``starts`` and ``stops`` are the ends of its runs, ascending and apart from each other."""

    def __init__(self, starts: list[int] | None = None, stops: list[int] | None = None) -> None:
        self.starts = starts or []
        self.stops = stops or []

    @classmethod
    def of(cls, indices: U64) -> Intervals:
        """Return the set of a column of distinct ascending indices."""
        _, begin, end = merge_ranges(indices)
        return cls(begin.tolist(), end.tolist())

    def add(self, begin: int, end: int) -> None:
        """Add the indices from ``begin`` to ``end`` - 1; runs that touch become one."""
        if end <= begin:
            return
        first = bisect_left(self.stops, begin)
        last = bisect_right(self.starts, end)
        if first < last:
            begin, end = min(begin, self.starts[first]), max(end, self.stops[last - 1])
        self.starts[first:last] = [begin]
        self.stops[first:last] = [end]

    def without(self, begin: int, end: int) -> Intervals:
        """Return the indices from ``begin`` to ``end`` - 1 that are not in this set."""
        rest = [(start, stop) for start, stop, inside in self.cut(begin, end) if not inside]
        return Intervals([start for start, _ in rest], [stop for _, stop in rest])

    def cut(self, begin: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the parts of ``begin`` to ``end`` - 1, ascending, each with whether it is in this set."""
        place = bisect_right(self.stops, begin)
        while begin < end:
            start = self.starts[place] if place < len(self.starts) else end
            if begin < start:
                stop = min(start, end)
                yield begin, stop, False
            else:
                stop = min(self.stops[place], end)
                yield begin, stop, True
                place += 1
            begin = stop
