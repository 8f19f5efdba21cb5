"""Sets of indices as disjoint runs: what of a queue was seen, in memory that grows with the gaps, not the queue."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from causeway.model.joins import stretches
from causeway.model.order import U64


class Intervals:
    """A set of indices. ``starts`` and ``stops`` are the ends of its runs, ascending and apart from each other."""

    def __init__(self, starts: list[int] | None = None, stops: list[int] | None = None) -> None:
        self.starts = starts or []
        self.stops = stops or []

    @classmethod
    def of(cls, indices: U64) -> Intervals:
        """Return the set of a column of distinct ascending indices."""
        _, begin, end = stretches(indices)
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
