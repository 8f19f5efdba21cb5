"""The queue algebra: numbered queues as columns (IC reference 2.3; shared by all protocols).

A queue is a partial map from indices to elements, with a rolling ``next_index`` above all of them. ``Queues`` holds
many, each named by key columns (sender and receiver of an input queue, source and destination of a lane, ...).
``push``, ``delete``, ``clear``, ``advance`` and ``slice`` work on whole columns. So do ``extend``, ``trim`` and
``forget``, for queues whose tail, head or segments move independently of their elements.
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
"""Maximum index of a queue."""


@dataclass(frozen=True)
class Queues:
    """Many queues.

    Invariants: every index is at least its queue's ``begin`` and below its ``next_index``; (keys, index) is unique.

    Attributes:
        keys: Columns that name a queue.
        counters: One row a queue, ascending by ``keys``: the keys, ``next_index`` (the tail, index of the next
            element), optionally ``begin`` (index of the head), and further counters of a protocol.
        elements: One row an element, ascending by keys and index: the keys, ``index``, and further columns.
        segments: For elements stored elsewhere, ranges of them, ascending by keys and first: the keys, ``first``,
            ``count``, and their location.
        base: Index of the first element of a new queue (``index_base``, IC reference D-1).
        indices: Counters that are indices, which start at ``base``.
        limit: Maximum of a tail.
    """

    keys: tuple[str, ...]
    counters: Frame
    elements: Frame
    segments: Frame | None = None
    base: int = 1
    indices: tuple[str, ...] = ("begin", "next_index")
    limit: int = MAX_INDEX

    def positions(self, asked: Frame) -> Rows:
        """Return the row of each requested queue in ``counters``, -1 for a new one.

        Args:
            asked: Key columns of the queues.
        """
        return lookup_rows(self.counters, asked, self.keys)

    def read_counters(self, name: str, asked: Frame) -> U64:
        """Return a counter of each requested queue, the base for a new one."""
        if len(self.counters) == 0:
            return np.full(len(asked), self.base, dtype=np.uint64)
        rows = self.positions(asked)
        found: U64 = np.where(rows >= 0, self.counters[name][rows], np.uint64(self.base))
        return found

    def ensure(self, asked: Frame) -> Queues:
        """Return the queues with an empty one added for each missing one.

        Counters in ``indices`` start at the base, others at 0.

        Args:
            asked: Key columns of the queues; repeats are allowed.
        """
        return self._ensure_rows(asked)[0] if len(asked) else self

    def _ensure_rows(self, asked: Frame) -> tuple[Queues, Rows]:
        """Return ``ensure``, and the row of each requested queue in the result."""
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
        """Assign the next index of its queue to every row of ``values``, in row order.

        Args:
            values: Rows with the key columns.

        Returns:
            uint64 array of indices, and the queues with advanced tails.

        Raises:
            IndexOverflow: A tail would exceed ``limit``.
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
        """Do as ``number`` for rows grouped by queue, in any order of the queues."""
        if len(values) == 0:
            return np.empty(0, dtype=np.uint64), self
        groups = group_rows(*(values[key] for key in self.keys))
        own, keys = encode_keys(self.keys, self.counters, values.select(self.keys).take(groups.starts))
        counts = groups.counts.astype(np.uint64)
        rows = find_positions(own, keys)
        known = rows >= 0
        begin = np.full(len(groups), self.base, dtype=np.uint64)
        begin[known] = self.counters["next_index"][rows[known]]
        if int(begin.max()) > self.limit - len(values):  # otherwise all rows would fit into any queue
            self._require_room(values, groups, begin)
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

    def _require_room(self, values: Frame, groups: Groups, begin: U64) -> None:
        """Raise ``IndexOverflow`` if a queue would exceed the limit. ``begin``: its next index."""
        counts, limit = groups.counts.astype(np.uint64), np.uint64(self.limit)
        full = (counts > limit) | (begin > limit - np.minimum(counts, limit))
        if not full.any():
            return
        row = int(groups.starts[int(np.argmax(full))])
        named = ", ".join(str(values[key][row]) for key in self.keys)
        named_all = {key: values[key][groups.starts[full]] for key in self.keys}
        raise IndexOverflow(f"queue ({named}) would pass index {self.limit}", named_all)

    def push(self, values: Frame) -> Queues:
        """Append elements.

        Args:
            values: Columns of the elements without ``index``, in the order of pushing.

        Raises:
            IndexOverflow: A tail would exceed ``limit``.
        """
        if len(values) == 0:
            return self
        order = stable_order(*(values[key] for key in self.keys))
        rows = values if bool((order[1:] > order[:-1]).all()) else values.take(order)
        index, queues = self.number_grouped(rows)
        numbered = rows.with_columns(index=index)
        if len(self.elements) == 0:
            return replace(queues, elements=numbered.select(self.elements.names))  # already sorted
        return queues.merge(numbered)

    def merge(self, numbered: Frame) -> Queues:
        """Add elements with an ``index`` from ``number``."""
        if len(numbered) == 0:
            return self
        return replace(self, elements=self._merge_sorted(self.elements, numbered, "index"))

    def add_segments(self, added: Frame) -> Queues:
        """Add segments of elements numbered by ``number``."""
        assert self.segments is not None
        return replace(self, segments=self._merge_sorted(self.segments, added, "first")) if len(added) else self

    def _merge_sorted(self, rows: Frame, added: Frame, last: str) -> Frame:
        joined = concat([rows, added.select(rows.names)])
        order = stable_order(*(joined[key] for key in self.keys), joined[last])
        return joined if bool((order[1:] > order[:-1]).all()) else joined.take(order)

    def rows_of(self, values: Frame) -> Rows:
        """Return the row of each element given by keys and ``index``. Raises ``NotInQueue``."""
        names = (*self.keys, "index")
        rows = lookup_rows(self.elements, values, names)
        if bool((rows < 0).any()):
            row = int(np.argmax(rows < 0))
            named = ", ".join(f"{name} {values[name][row]}" for name in names)
            raise NotInQueue(f"no element with {named}")
        return rows

    def delete(self, values: Frame) -> Queues:
        """Remove elements given by keys and ``index``; tails stay. Raises ``NotInQueue``."""
        if len(values) == 0:
            return self
        keep = np.ones(len(self.elements), dtype=bool)
        keep[self.rows_of(values)] = False
        return self.keep(keep)

    def keep(self, mask: npt.NDArray[np.bool_]) -> Queues:
        """Remove the elements where ``mask`` is false; tails stay."""
        kept = self.elements.filter(mask)
        return self if kept is self.elements else replace(self, elements=kept)

    def without(self, mask: npt.NDArray[np.bool_]) -> Queues:
        """Remove empty queues, with their tails, where ``mask`` over the counters is true."""
        kept = self.counters.filter(~mask)
        return self if kept is self.counters else replace(self, counters=kept)

    def clear(self) -> Queues:
        """Remove all elements; tails stay."""
        return replace(self, elements=self.elements.slice(0, 0)) if len(self.elements) else self

    def advance(self, asked: Frame, to: U64) -> Queues:
        """Remove all elements below an index from queues.

        Heads move up to the index, and tails below it follow. Segments entirely below it are removed.

        Args:
            asked: Key columns of the queues, each at most once.
            to: Index for each queue.
        """
        if len(asked) == 0:
            return self
        ensured, rows = self._ensure_rows(asked)
        queues = ensured._raise_counters(rows, to, "begin", "next_index")
        limits = asked.select(self.keys).with_columns(to=to)
        if len(queues.elements):
            queues = queues.keep(queues.elements["index"] >= self._limit(queues.elements, limits))
        if queues.segments is not None and len(queues.segments):
            ends = queues.segments["first"] + queues.segments["count"]
            queues = replace(queues, segments=queues.segments.filter(ends > self._limit(queues.segments, limits)))
        return queues

    def extend(self, asked: Frame, to: U64) -> Queues:
        """Raise the tails of queues; the elements below them are added later.

        Args:
            asked: Key columns of the queues, each at most once.
            to: New tail for each queue.
        """
        if len(asked) == 0:
            return self
        ensured, rows = self._ensure_rows(asked)
        return ensured._raise_counters(rows, to, "next_index")

    def _raise_counters(self, rows: Rows, to: U64, *names: str) -> Queues:
        moved = {}
        for name in names:
            if name in self.counters:
                moved[name] = self.counters[name].copy()
                moved[name][rows] = np.maximum(moved[name][rows], to)
        return self.with_counters(**moved)

    def trim(self, asked: Frame) -> Queues:
        """Move heads to the first element, or to the tail of an empty queue.

        Args:
            asked: Key columns of existing queues; repeats are allowed.
        """
        if len(asked) == 0:
            return self
        own, wanted, element_keys = encode_keys(self.keys, self.counters, asked, self.elements)
        queues = np.unique(wanted)
        rows, first = find_positions(own, queues), np.searchsorted(element_keys, queues)
        nonempty = np.searchsorted(element_keys, queues, side="right") > first
        heads = self.counters["begin"].copy()
        heads[rows] = self.counters["next_index"][rows]
        heads[rows[nonempty]] = self.elements["index"][first[nonempty]]
        return self.with_counters(begin=heads)

    def forget(self, below: U64) -> Queues:
        """Remove segments entirely below an index.

        ``below``: an index for each queue, in the order of ``counters``.
        """
        segments = self.segments
        if segments is None or len(segments) == 0:
            return self
        kept = segments.filter(segments["first"] + segments["count"] > below[self.positions(segments)])
        return self if kept is segments else replace(self, segments=kept)

    def _limit(self, rows: Frame, limits: Frame) -> U64:
        """Return the limit of each row's queue, 0 for none."""
        found = lookup_rows(limits, rows, self.keys, ordered=False)
        limit: U64 = np.where(found >= 0, limits["to"][found], np.uint64(0))
        return limit

    def slice(self, queue: Mapping[str, int], begin: int, end: int) -> Frame:
        """Return the elements of one queue with ``begin <= index < end``, ascending."""
        elements = self.elements
        mask: npt.NDArray[np.bool_] = elements["index"] >= np.uint64(begin)
        mask &= elements["index"] < np.uint64(end)
        for key in self.keys:
            mask &= elements[key] == queue[key]
        return elements.take(np.flatnonzero(mask))

    def set_counters(self, asked: Frame, **values: U64) -> Queues:
        """Set counters of existing queues, each given at most once."""
        rows = self.positions(asked)
        changed = {}
        for name, column in values.items():
            changed[name] = self.counters[name].copy()
            changed[name][rows] = column
        return self.with_counters(**changed)

    def with_values(self, **columns: Any) -> Queues:
        """Return the queues with element columns replaced that are neither keys nor ``index``."""
        return replace(self, elements=self.elements.with_columns(**columns))

    def with_counters(self, **columns: Any) -> Queues:
        """Return the queues with counters replaced."""
        return replace(self, counters=self.counters.with_columns(**columns))
