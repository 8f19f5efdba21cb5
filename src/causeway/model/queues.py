"""The queue algebra: numbered queues as columns (IC reference 2.3; the other protocols' queues are the same algebra).

A queue has a rolling ``next_index`` and elements under indices below it. The map form holds many queues, one for each
pair of 64-bit identifiers (sender and receiver of an input queue, chain and remote of a lane, ...); the plain form is
the map form with one key. ``push``, ``delete``, ``clear``, ``advance`` and ``slice`` take and give whole columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from causeway.model.errors import IndexOverflow, NotInQueue
from causeway.model.frame import Frame, concat
from causeway.model.index import MAX_INDEX
from causeway.model.order import U64, Rows, groups_of, pair_codes, positions_in, stable_order

PLAIN_KEY = np.zeros(1, dtype=np.uint64)


@dataclass(frozen=True)
class Counters:
    """The rolling indices of many queues: ``(first, second) -> next_index``, ascending by key, keys unique.

    ``base`` is the index of the first element of a new queue (``index_base``, IC reference D-1).
    """

    first: U64
    second: U64
    next_index: U64
    base: int

    @classmethod
    def empty(cls, base: int) -> Counters:
        """Return counters of no queue."""
        none = np.empty(0, dtype=np.uint64)
        return cls(none, none, none, base)

    def __len__(self) -> int:
        return len(self.first)

    def of(self, first: U64, second: U64) -> U64:
        """Return ``next_index`` of each queue asked for; ``base`` where there is none yet."""
        own, asked = pair_codes((self.first, self.second), (first, second))
        positions = positions_in(own, asked)
        found = np.full(len(first), self.base, dtype=np.uint64)
        found[positions >= 0] = self.next_index[positions[positions >= 0]]
        return found

    def push(self, first: U64, second: U64) -> tuple[U64, Counters]:
        """Give the next index of its queue to every row, rows of one queue in row order.

        Returns the index of every row and the advanced counters; raises ``IndexOverflow`` when a queue would pass
        2**64 - 1.
        """
        if len(first) == 0:
            return np.empty(0, dtype=np.uint64), self
        if bool(((first[1:] > first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] >= second[:-1]))).all()):
            return self.push_grouped(first, second)
        order = stable_order(first, second)
        grouped, counters = self.push_grouped(first[order], second[order])
        indices = np.empty(len(first), dtype=np.uint64)
        indices[order] = grouped
        return indices, counters

    def push_grouped(self, first: U64, second: U64) -> tuple[U64, Counters]:
        """As ``push`` for rows of which those of one queue are neighbours, in whatever order the queues come."""
        if len(first) == 0:
            return np.empty(0, dtype=np.uint64), self
        own, codes = pair_codes((self.first, self.second), (first, second))
        groups = groups_of(codes)
        keys = codes[groups.starts]
        counts = groups.counts.astype(np.uint64)
        positions = positions_in(own, keys)
        known = positions >= 0
        begin = np.full(len(groups), self.base, dtype=np.uint64)
        begin[known] = self.next_index[positions[known]]
        if bool((begin > np.uint64(MAX_INDEX) - counts).any()):
            row = int(groups.starts[int(np.argmax(begin > np.uint64(MAX_INDEX) - counts))])
            raise IndexOverflow(f"queue ({first[row]}, {second[row]}) would pass index {MAX_INDEX}")
        indices = groups.spread(begin) + groups.ranks().astype(np.uint64)
        next_index = self.next_index.copy()
        next_index[positions[known]] += counts[known]
        if bool(known.all()):
            return indices, replace(self, next_index=next_index)
        new = np.flatnonzero(~known)
        new = new[np.argsort(keys[new], kind="stable")]
        places = np.searchsorted(own, keys[new])
        return indices, Counters(
            np.insert(self.first, places, first[groups.starts[new]]),
            np.insert(self.second, places, second[groups.starts[new]]),
            np.insert(next_index, places, begin[new] + counts[new]),
            self.base,
        )

    def advance(self, first: U64, second: U64, to: U64) -> Counters:
        """Return the counters with ``next_index <- max(next_index, to)`` for each named queue (each at most once)."""
        own, asked = pair_codes((self.first, self.second), (first, second))
        positions = positions_in(own, asked)
        known = positions >= 0
        next_index = self.next_index.copy()
        next_index[positions[known]] = np.maximum(next_index[positions[known]], to[known])
        new = np.flatnonzero(~known)
        new = new[np.argsort(asked[new], kind="stable")]
        places = np.searchsorted(own, asked[new])
        return Counters(
            np.insert(self.first, places, first[new]),
            np.insert(self.second, places, second[new]),
            np.insert(next_index, places, np.maximum(to[new], np.uint64(self.base))),
            self.base,
        )

    def select(self, mask: np.ndarray) -> Counters:
        """Return the counters of the queues where ``mask`` is true."""
        return Counters(self.first[mask], self.second[mask], self.next_index[mask], self.base)

    def union(self, other: Counters) -> Counters:
        """Return the counters of both; no queue may be in both."""
        first = np.concatenate([self.first, other.first])
        second = np.concatenate([self.second, other.second])
        order = stable_order(first, second)
        next_index = np.concatenate([self.next_index, other.next_index])
        return Counters(first[order], second[order], next_index[order], self.base)


@dataclass(frozen=True)
class QueueMap:
    """Many queues with their elements.

    ``elements`` is a frame with the key columns ``keys``, the column ``index`` and whatever the elements carry, sorted
    by key and index. Invariants: every index is below its queue's ``next_index``; (key, index) is unique.
    """

    counters: Counters
    elements: Frame
    keys: tuple[str, str]

    def push(self, values: Frame) -> QueueMap:
        """Append ``values`` (the elements' columns without ``index``; row order is the order of pushing)."""
        if len(values) == 0:
            return self
        first, second = (values[key] for key in self.keys)
        index, counters = self.counters.push(first, second)
        return replace(self, counters=counters).merge(values.with_columns(index=index))

    def merge(self, numbered: Frame) -> QueueMap:
        """Add elements that ``counters`` has numbered already (column ``index``)."""
        joined = concat([self.elements, numbered.select(self.elements.names)])
        order = stable_order(joined[self.keys[0]], joined[self.keys[1]], joined["index"])
        if not bool((order[1:] > order[:-1]).all()):
            joined = joined.take(order)
        return replace(self, elements=joined)

    def rows_of(self, values: Frame) -> Rows:
        """Return the row of each (key, index) in ``values``; raise ``NotInQueue`` for one that is absent."""
        columns = [*self.keys, "index"]
        if len(values) == 0:
            return np.empty(0, dtype=np.int64)
        both = concat([self.elements.select(columns), values.select(columns)])
        order = stable_order(*(both[name] for name in columns))
        groups = groups_of(*(both[name][order] for name in columns))
        # An element precedes the values that name it, because the order is stable and elements come first.
        leader = groups.spread(order[groups.starts])
        found = np.empty(len(both), dtype=np.int64)
        found[order] = leader
        rows = found[len(self.elements) :]
        missing = rows >= len(self.elements)
        if bool(missing.any()):
            row = int(np.argmax(missing))
            named = ", ".join(f"{name} {values[name][row]}" for name in columns)
            raise NotInQueue(f"no element with {named}")
        return rows

    def delete(self, values: Frame) -> QueueMap:
        """Remove the elements that ``values`` names by key and index; ``next_index`` stays. Raises ``NotInQueue``."""
        keep = np.ones(len(self.elements), dtype=bool)
        keep[self.rows_of(values)] = False
        return self.keep(keep)

    def keep(self, mask: np.ndarray) -> QueueMap:
        """Remove the elements where ``mask`` is false."""
        return replace(self, elements=self.elements.filter(mask))

    def clear(self) -> QueueMap:
        """Remove all elements of every queue; ``next_index`` stays."""
        return replace(self, elements=self.elements.slice(0, 0))

    def advance(self, first: U64, second: U64, to: U64) -> QueueMap:
        """Remove the elements below ``to`` of each named queue, and move its ``next_index`` at least up to it."""
        own, asked = pair_codes(
            (self.elements[self.keys[0]], self.elements[self.keys[1]]),
            (first, second),
        )
        order = np.argsort(asked, kind="stable")
        positions = positions_in(asked[order], own)
        limit = np.zeros(len(own), dtype=np.uint64)
        limit[positions >= 0] = to[order][positions[positions >= 0]]
        kept = self.keep(self.elements["index"] >= limit)
        return replace(kept, counters=self.counters.advance(first, second, to))

    def slice(self, first: int, second: int, begin: int, end: int) -> Frame:
        """Return the elements of one queue with ``begin <= index < end``, ascending."""
        elements = self.elements
        mask = (elements[self.keys[0]] == np.uint64(first)) & (elements[self.keys[1]] == np.uint64(second))
        mask &= (elements["index"] >= np.uint64(begin)) & (elements["index"] < np.uint64(end))
        return elements.take(np.flatnonzero(mask))


@dataclass(frozen=True)
class Queue:
    """The plain form: one queue with its elements (columns ``index`` and whatever they carry)."""

    next_index: int
    elements: Frame

    def _as_map(self) -> QueueMap:
        counters = Counters(PLAIN_KEY, PLAIN_KEY, np.array([self.next_index], dtype=np.uint64), self.next_index)
        return QueueMap(counters, self.elements.with_columns(one=np.uint64(0), two=np.uint64(0)), ("one", "two"))

    def _of_map(self, queues: QueueMap) -> Queue:
        return Queue(int(queues.counters.next_index[0]), queues.elements.select(self.elements.names))

    def push(self, values: Frame) -> Queue:
        """Append ``values`` in row order under ``next_index``, ``next_index + 1``, ..."""
        return self._of_map(self._as_map().push(values.with_columns(one=np.uint64(0), two=np.uint64(0))))

    def delete(self, values: Frame) -> Queue:
        """Remove the elements under the indices of ``values``; raises ``NotInQueue``."""
        return self._of_map(self._as_map().delete(values.with_columns(one=np.uint64(0), two=np.uint64(0))))

    def clear(self) -> Queue:
        """Remove all elements; ``next_index`` stays."""
        return self._of_map(self._as_map().clear())

    def advance(self, to: int) -> Queue:
        """Remove the elements below ``to`` and move ``next_index`` up to ``to`` if it is below."""
        return self._of_map(self._as_map().advance(PLAIN_KEY, PLAIN_KEY, np.array([to], dtype=np.uint64)))

    def slice(self, begin: int, end: int) -> Frame:
        """Return the elements with ``begin <= index < end``."""
        return self._as_map().slice(0, 0, begin, end).select(self.elements.names)


def new_queue(elements: Frame, base: int = 1) -> Queue:
    """Return ``{ next_index: base, elements: {} }``; ``elements`` is an empty frame with the columns to carry."""
    return Queue(base, elements)
