"""The queue algebra: numbered queues as columns (IC reference 2.3; the other protocols' queues are the same algebra).

A queue is a partial map from indices to elements, with a rolling ``next_index`` above all of them. ``Queues`` holds
many of them, each named by key columns (sender and receiver of an input queue, source and destination of a lane, ...).
``push``, ``delete``, ``clear``, ``advance`` and ``slice`` take and give whole columns; so do ``extend``, ``trim`` and
``forget`` for queues whose tail, head or segments move apart from their elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import IndexOverflow, NotInQueue
from causeway_proofs.order import U64, Groups, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows

MAX_INDEX = 2**64 - 1
"""The largest index of a queue."""


@dataclass(frozen=True)
class Queues:
    """Many queues.

    ``keys``: the columns that name a queue. ``counters``: one row a queue, ascending by ``keys``: the keys,
    ``next_index`` (the tail: the index of the next element), where the queues have a head ``begin`` (its index), and
    whatever else a protocol counts for a queue. ``elements``: what is in the queues, one row an element: the keys,
    ``index`` and whatever elements carry, ascending by keys and index. ``segments``: for queues whose elements lie
    elsewhere, runs of them: the keys, ``first``, ``count`` and whatever tells where they lie, ascending by keys and
    first. ``base``: the index of the first element of a new queue (``index_base``, IC reference D-1); ``indices``: the
    counters that are indices, which a new queue has at the base. ``limit``: the greatest that a tail may be.

    Invariants: every index is at or above its queue's ``begin`` and below its ``next_index``; (keys, index) is unique.
    """

    keys: tuple[str, ...]
    counters: Frame
    elements: Frame
    segments: Frame | None = None
    base: int = 1
    indices: tuple[str, ...] = ("begin", "next_index")
    limit: int = MAX_INDEX

    def positions(self, asked: Frame) -> Rows:
        """Return the row of each queue asked for (by the key columns) in ``counters``, -1 where there is none yet."""
        return lookup_rows(self.counters, asked, self.keys)

    def read_counters(self, name: str, asked: Frame) -> U64:
        """Return a counter of each queue asked for; the base where there is none yet."""
        if len(self.counters) == 0:
            return np.full(len(asked), self.base, dtype=np.uint64)
        rows = self.positions(asked)
        found: U64 = np.where(rows >= 0, self.counters[name][rows], np.uint64(self.base))
        return found

    def ensure(self, asked: Frame) -> Queues:
        """Return the queues with a new, empty one for each asked for (any number of times) that is not there yet.

        Counters of a new queue that are ``indices`` are the base, the others 0.
        """
        return self._ensured(asked)[0] if len(asked) else self

    def _ensured(self, asked: Frame) -> tuple[Queues, Rows]:
        """Return what ``ensure`` does, and the row of each queue asked for in it."""
        own, wanted = encode_keys(self.keys, self.counters, asked)
        rows = find_positions(own, wanted)
        missing = np.flatnonzero(rows < 0)
        if len(missing) == 0:
            return self, rows
        new, first = np.unique(wanted[missing], return_index=True)
        queues = self._with_new(asked.select(self.keys).take(missing[first]), np.searchsorted(own, new))
        return queues, queues.positions(asked)

    def _with_new(self, added: Frame, places: npt.NDArray[np.intp], **given: Any) -> Queues:
        columns: dict[str, Any] = {}
        for name in self.counters.names:
            column = self.counters[name]
            start = self.base if name in self.indices else 0
            values = added[name] if name in added else given.get(name, np.full(len(added), start, dtype=column.dtype))
            columns[name] = np.insert(column, places, values.astype(column.dtype, copy=False))
        return replace(self, counters=Frame(columns))

    def number(self, values: Frame) -> tuple[U64, Queues]:
        """Give the next index of its queue to every row of ``values``, rows of one queue in row order.

        Returns the indices and the queues with advanced tails; raises ``IndexOverflow`` when a tail would pass
        ``limit``.
        """
        if len(values) == 0:
            return np.empty(0, dtype=np.uint64), self
        (code,) = encode_keys(self.keys, values)
        if bool((code[1:] >= code[:-1]).all()):
            return self.number_grouped(values)
        order = stable_order(code)
        grouped, queues = self.number_grouped(values.select(self.keys).take(order))
        indices = np.empty(len(values), dtype=np.uint64)
        indices[order] = grouped
        return indices, queues

    def number_grouped(self, values: Frame) -> tuple[U64, Queues]:
        """As ``number``, for rows of which those of one queue are neighbours, in whatever order the queues come."""
        if len(values) == 0:
            return np.empty(0, dtype=np.uint64), self
        groups = group_rows(*(values[key] for key in self.keys))
        own, keys = encode_keys(self.keys, self.counters, values.select(self.keys).take(groups.starts))
        counts = groups.counts.astype(np.uint64)
        rows = find_positions(own, keys)
        known = rows >= 0
        begin = np.full(len(groups), self.base, dtype=np.uint64)
        begin[known] = self.counters["next_index"][rows[known]]
        if int(begin.max()) > self.limit - len(values):  # else all of them fit, whichever queue they are for
            self._ensure_room(values, groups, begin)
        indices = groups.spread(begin) + groups.ranks().astype(np.uint64)
        next_index = self.counters["next_index"].copy()
        next_index[rows[known]] += counts[known]
        queues = self.with_counters(next_index=next_index)
        if np.count_nonzero(known) == len(known):
            return indices, queues
        new = np.flatnonzero(~known)
        new = new[np.argsort(keys[new], kind="stable")]
        added = values.select(self.keys).take(groups.starts[new])
        return indices, queues._with_new(added, np.searchsorted(own, keys[new]), next_index=begin[new] + counts[new])

    def _ensure_room(self, values: Frame, groups: Groups, begin: U64) -> None:
        """Raise ``IndexOverflow`` where a queue would pass the limit; ``begin``: the next index of each group's."""
        counts, limit = groups.counts.astype(np.uint64), np.uint64(self.limit)
        full = (counts > limit) | (begin > limit - np.minimum(counts, limit))
        if not full.any():
            return
        row = int(groups.starts[int(np.argmax(full))])
        named = ", ".join(str(values[key][row]) for key in self.keys)
        named_all = {key: values[key][groups.starts[full]] for key in self.keys}
        raise IndexOverflow(f"queue ({named}) would pass index {self.limit}", named_all)

    def push(self, values: Frame) -> Queues:
        """Append ``values`` (the elements' columns without ``index``; row order is the order of pushing)."""
        if len(values) == 0:
            return self
        order = stable_order(*(values[key] for key in self.keys))
        rows = values if bool((order[1:] > order[:-1]).all()) else values.take(order)
        index, queues = self.number_grouped(rows)
        numbered = rows.with_columns(index=index)
        if len(self.elements) == 0:
            # They are in their order already.
            return replace(queues, elements=numbered.select(self.elements.names))
        return queues.merge(numbered)

    def merge(self, numbered: Frame) -> Queues:
        """Add elements that ``number`` has given an ``index``."""
        if len(numbered) == 0:
            return self
        return replace(self, elements=self._ordered(self.elements, numbered, "index"))

    def add_segments(self, added: Frame) -> Queues:
        """Add segments of elements that ``number`` has given their indices."""
        assert self.segments is not None
        return replace(self, segments=self._ordered(self.segments, added, "first")) if len(added) else self

    def _ordered(self, rows: Frame, added: Frame, last: str) -> Frame:
        joined = concat([rows, added.select(rows.names)])
        order = stable_order(*(joined[key] for key in self.keys), joined[last])
        return joined if bool((order[1:] > order[:-1]).all()) else joined.take(order)

    def rows_of(self, values: Frame) -> Rows:
        """Return the row of the element with each (keys, ``index``) of ``values``; raise ``NotInQueue`` for none."""
        names = (*self.keys, "index")
        rows = lookup_rows(self.elements, values, names)
        if bool((rows < 0).any()):
            row = int(np.argmax(rows < 0))
            named = ", ".join(f"{name} {values[name][row]}" for name in names)
            raise NotInQueue(f"no element with {named}")
        return rows

    def delete(self, values: Frame) -> Queues:
        """Remove the elements that ``values`` names by keys and index; the tails stay. Raises ``NotInQueue``."""
        if len(values) == 0:
            return self
        keep = np.ones(len(self.elements), dtype=bool)
        keep[self.rows_of(values)] = False
        return self.keep(keep)

    def keep(self, mask: npt.NDArray[np.bool_]) -> Queues:
        """Remove the elements where ``mask`` is false; the tails stay."""
        kept = self.elements.filter(mask)
        return self if kept is self.elements else replace(self, elements=kept)

    def without(self, mask: npt.NDArray[np.bool_]) -> Queues:
        """Forget the queues where ``mask`` over the counters is true, empty ones, their tails too."""
        kept = self.counters.filter(~mask)
        return self if kept is self.counters else replace(self, counters=kept)

    def clear(self) -> Queues:
        """Remove all elements of every queue; the tails stay."""
        return replace(self, elements=self.elements.slice(0, 0)) if len(self.elements) else self

    def advance(self, asked: Frame, to: U64) -> Queues:
        """Remove all below index ``to`` from each queue asked for (each at most once).

        Where there is a head it moves up to ``to``; a tail below it follows. Segments that lie below it as a whole go.
        """
        if len(asked) == 0:
            return self
        ensured, rows = self._ensured(asked)
        queues = ensured._raised(rows, to, "begin", "next_index")
        limits = asked.select(self.keys).with_columns(to=to)
        if len(queues.elements):
            queues = queues.keep(queues.elements["index"] >= self._limit(queues.elements, limits))
        if queues.segments is not None and len(queues.segments):
            ends = queues.segments["first"] + queues.segments["count"]
            queues = replace(queues, segments=queues.segments.filter(ends > self._limit(queues.segments, limits)))
        return queues

    def extend(self, asked: Frame, to: U64) -> Queues:
        """Move the tail of each queue asked for (each at most once) up to ``to``: the elements below it come later."""
        if len(asked) == 0:
            return self
        ensured, rows = self._ensured(asked)
        return ensured._raised(rows, to, "next_index")

    def _raised(self, rows: Rows, to: U64, *names: str) -> Queues:
        moved = {}
        for name in names:
            if name in self.counters:
                moved[name] = self.counters[name].copy()
                moved[name][rows] = np.maximum(moved[name][rows], to)
        return self.with_counters(**moved)

    def trim(self, asked: Frame) -> Queues:
        """Move the head of each queue asked for (there already, any number of times) to its first element, to its tail
        without any."""
        if len(asked) == 0:
            return self
        own, wanted, held = encode_keys(self.keys, self.counters, asked, self.elements)
        queues = np.unique(wanted)
        rows, first = find_positions(own, queues), np.searchsorted(held, queues)
        some = np.searchsorted(held, queues, side="right") > first
        heads = self.counters["begin"].copy()
        heads[rows] = self.counters["next_index"][rows]
        heads[rows[some]] = self.elements["index"][first[some]]
        return self.with_counters(begin=heads)

    def forget(self, below: U64) -> Queues:
        """Drop the segments that lie as a whole below an index, one a queue in the order of ``counters``."""
        segments = self.segments
        if segments is None or len(segments) == 0:
            return self
        kept = segments.filter(segments["first"] + segments["count"] > below[self.positions(segments)])
        return self if kept is segments else replace(self, segments=kept)

    def _limit(self, rows: Frame, limits: Frame) -> U64:
        """Return the limit of the queue that each row is in, 0 where there is none."""
        found = lookup_rows(limits, rows, self.keys, ordered=False)
        limit: U64 = np.where(found >= 0, limits["to"][found], np.uint64(0))
        return limit

    def slice(self, queue: Mapping[str, int], begin: int, end: int) -> Frame:
        """Return the elements of one queue (its keys) with ``begin <= index < end``, ascending."""
        elements = self.elements
        mask: npt.NDArray[np.bool_] = elements["index"] >= np.uint64(begin)
        mask &= elements["index"] < np.uint64(end)
        for key in self.keys:
            mask &= elements[key] == queue[key]
        return elements.take(np.flatnonzero(mask))

    def set_counters(self, asked: Frame, **values: U64) -> Queues:
        """Set counters of each queue asked for (there already, each once) to other values."""
        rows = self.positions(asked)
        changed = {}
        for name, column in values.items():
            changed[name] = self.counters[name].copy()
            changed[name][rows] = column
        return self.with_counters(**changed)

    def with_values(self, **columns: Any) -> Queues:
        """Return the queues with columns of their elements replaced that are neither keys nor ``index``."""
        return replace(self, elements=self.elements.with_columns(**columns))

    def with_counters(self, **columns: Any) -> Queues:
        """Return the queues with some of their counters replaced."""
        return replace(self, counters=self.counters.with_columns(**columns))
