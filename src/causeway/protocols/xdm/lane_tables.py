"""Indexed message tables: the cost of a block depends on its changes, not on the table size.

``outbox`` and ``responses`` can be much larger than the changes of one block. A ``LaneTable`` stores the position of
each lane's rows and the changes since the previous block. It builds columns on demand. The index is derived data:
``LaneTable.of`` rebuilds it from a plain frame.

A table has two levels: a large sorted one with deletion marks, and a small one with recent rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, Rows, distinct, group_rows, stable_order

from causeway.core.frame import Column, Frame, FrameChanges, concat
from causeway.core.joins import encode_keys, expand_ranges, lookup_rows
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.tables import INDEXED

LEAST_RECENT = 4096
RECENT_SHARE = 2
"""Thresholds for merging the levels.

They allow ``LEAST_RECENT`` rows plus one in ``RECENT_SHARE`` of the others. A merge sorts all rows.
"""


@dataclass(frozen=True)
class _Level:
    """Rows by lane and ``index`` with deletion marks.

    ``starts`` and ``ends`` delimit each lane; ``heads`` is its first remaining row, or ``ends``. ``alive`` is a mask of
    remaining rows, None if all remain.
    """

    rows: Frame
    starts: Rows
    ends: Rows
    heads: Rows
    alive: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, rows: Frame, lanes: Frame) -> _Level:
        groups = group_rows(*(rows[name] for name in LANE))
        starts, ends = (np.zeros(len(lanes), dtype=np.int64) for _ in range(2))
        number = lookup_rows(lanes, rows.select(LANE).take(groups.starts), LANE)
        starts[number], ends[number] = groups.starts, groups.starts + groups.counts
        return cls(rows, starts, ends, starts)

    @cached_property
    def has_gaps(self) -> npt.NDArray[np.bool_]:
        """Return a mask of lanes with a gap between indices."""
        found = np.zeros(len(self.starts), dtype=bool)
        nonempty = np.flatnonzero(self.ends > self.starts)
        index, first, last = self.rows["index"], self.starts[nonempty], self.ends[nonempty] - 1
        found[nonempty] = index[last] - index[first] != (last - first).astype(np.uint64)
        return found

    def at(self, lanes: Rows, index: U64) -> Rows:
        """Return the first row of each lane from an index on, else the lane's end.

        The row may be deleted.
        """
        starts, ends = self.starts[lanes], self.ends[lanes]
        if len(self.rows) == 0:
            return starts
        column = self.rows["index"]
        first = column[np.minimum(starts, len(column) - 1)]
        ahead = np.where(index > first, index - np.minimum(first, index), np.uint64(0))
        found = starts + np.minimum(ahead, (ends - starts).astype(np.uint64)).astype(np.int64)
        for row in np.flatnonzero(self.has_gaps[lanes]).tolist():
            start, end = int(starts[row]), int(ends[row])
            found[row] = start + int(np.searchsorted(column[start:end], index[row]))
        return found

    def is_there(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of remaining rows."""
        return np.ones(len(rows), dtype=bool) if self.alive is None else self.alive[rows]

    def first_from(self, lanes: Rows, index: U64) -> Rows:
        """Return the first remaining row of each lane from an index on, -1 without one."""
        found = np.maximum(self.at(lanes, index), self.heads[lanes])
        inside = np.flatnonzero(found < self.ends[lanes])
        for row in inside[~self.is_there(found[inside])].tolist():
            assert self.alive is not None
            end = int(self.ends[lanes[row]])
            rest = self.alive[found[row] : end]
            found[row] = found[row] + int(rest.argmax()) if rest.any() else end
        return np.where(found < self.ends[lanes], found, -1)

    def without(self, rows: Rows) -> _Level:
        """Return the level without some remaining rows."""
        if len(rows) == 0:
            return self
        alive = np.ones(len(self.rows), dtype=bool) if self.alive is None else self.alive.copy()
        alive[rows] = False
        heads = self.heads.copy()
        touched = distinct(np.searchsorted(self._order[0], rows, side="right") - 1)
        lanes = self._order[1][touched]
        left = _Level(self.rows, self.starts, self.ends, heads, alive)
        found = left.first_from(lanes, np.zeros(len(lanes), dtype=np.uint64))
        heads[lanes] = np.where(found >= 0, found, self.ends[lanes])
        return left

    @cached_property
    def _order(self) -> tuple[Rows, Rows]:
        """Return the starts of non-empty lanes, ascending, and their numbers."""
        nonempty = np.flatnonzero(self.ends > self.starts)
        return self.starts[nonempty], nonempty


@dataclass(frozen=True)
class TableDelta:
    """Added and removed rows since the table ``since``."""

    since: Frame
    added: Sequence[Frame] = ()
    gone: Sequence[Frame] = ()


@dataclass(slots=True, eq=False)
class _Step:
    """One change of a table, linked to the change before it.

    ``rows`` counts the rows of all linked changes. ``origin`` is the frame that a table was created from, without a
    change.
    """

    before: _Step | None = None
    added: Frame | None = None
    gone: Frame | None = None
    origin: Frame | None = None
    rows: int = 0

    def follow(self, length: int, added: Frame | None = None, gone: Frame | None = None) -> _Step:
        """Return the next step, or an empty one with too long a history for ``length`` rows."""
        rows = self.rows + sum(len(frame) for frame in (added, gone) if frame is not None)
        bounded = rows <= LEAST_REMEMBERED + REMEMBERED * length
        return _Step(self, added, gone, rows=rows) if bounded else _Step()


LEAST_REMEMBERED = 8192
REMEMBERED = 2
"""Bound of the history in rows: ``LEAST_REMEMBERED`` plus this multiple of the table length."""


class LaneTable(Frame):
    """A message table with unique (lane, ``index``) and an index over its lanes.

    ``lanes`` has every lane with rows, and some former ones; lane numbers are positions in it. Row numbers are valid
    for one object: ``first_from``, ``find`` and ``window`` return them. The rows of a lane are in order of insertion.
    ``delta`` has the changes of this table.
    """

    __slots__ = ("_levels", "_made", "_split", "_step", "delta", "lanes")

    def __init__(
        self, lanes: Frame, levels: tuple[_Level, _Level], length: int, delta: TableDelta | None, step: _Step
    ) -> None:
        self.lanes = lanes
        self.delta = delta
        self._step = step
        self._levels = levels
        self._length = length
        self._made: dict[str, Column] | None = None
        self._split = len(levels[0].rows)  # number of the first recent row

    @classmethod
    def of(cls, rows: Frame) -> LaneTable:
        """Return ``rows`` with an index; an indexed table is returned as it is."""
        return rows if isinstance(rows, LaneTable) else cls._of(rows, None, _Step(origin=rows))

    @classmethod
    def _of(cls, rows: Frame, delta: TableDelta | None, step: _Step) -> LaneTable:
        groups = group_rows(*(rows[name] for name in LANE))
        lanes = rows.select(LANE).take(groups.starts)
        found = cls(lanes, (_Level.of(rows, lanes), _Level.of(rows.slice(0, 0), lanes)), len(rows), delta, step)
        found._made = {name: rows.column(name) for name in rows.names}
        return found

    @property
    def _columns(self) -> dict[str, Column]:  # type: ignore[override]
        if self._made is None:
            every = concat([level.rows for level in self._levels])
            alive = np.concatenate([level.is_there(np.arange(len(level.rows))) for level in self._levels])
            rows = alive.nonzero()[0]
            if 0 < self._split < len(every):
                rows = rows[stable_order(*(every[name][rows] for name in INDEXED))]
            every = every.take(rows)
            self._made = {name: every.column(name) for name in every.names}
        return self._made

    @property
    def names(self) -> list[str]:
        """Return the names of the columns in order."""
        return self._levels[0].rows.names

    def slice(self, start: int, stop: int) -> Frame:
        """Return rows ``start`` to ``stop``; an empty range builds no columns."""
        return super().slice(start, stop) if start < stop else self._levels[0].rows.slice(0, 0)

    def settled(self) -> LaneTable:
        """Return the table with an empty delta."""
        if self.delta is None:
            return self
        found = LaneTable(self.lanes, self._levels, self._length, None, self._step)
        found._made = self._made
        return found

    def first_from(self, lanes: Rows, index: U64) -> Rows:
        """Return the first row of each lane (-1: no lane) from an index on, -1 without one."""
        known = np.flatnonzero(lanes >= 0)
        old, recent = (level.first_from(lanes[known], index[known]) for level in self._levels)
        found = np.full(len(lanes), -1, dtype=np.int64)
        found[known] = np.where(old >= 0, old, np.where(recent >= 0, recent + self._split, -1))
        return found

    def find(self, messages: Frame) -> Rows:
        """Return the row of each message (lane, ``index``), -1 without one."""
        found = self.first_from(lookup_rows(self.lanes, messages, LANE), messages["index"])
        matched = np.flatnonzero(found >= 0)
        wrong = self.column_at("index", found[matched]) != messages["index"][matched]
        found[matched[wrong]] = -1
        return found

    def window(self, lanes: Rows, first: U64, stop: U64) -> tuple[Rows, Rows]:
        """Return the rows of lanes in an index range, lane by lane in order of index.

        Args:
            lanes: Numbers of lanes.
            first: First index of each lane.
            stop: Index after the last of each lane.

        Returns:
            The position in ``lanes`` of each row, and the row.
        """
        places, rows = [], []
        for level, base in zip(self._levels, (0, self._split), strict=True):
            begin = np.maximum(level.at(lanes, first), level.heads[lanes])
            position, row = expand_ranges(begin, level.at(lanes, np.maximum(first, stop)))
            alive = level.is_there(row)
            places.append(position[alive])
            rows.append(row[alive] + base)
        position, row = np.concatenate(places), np.concatenate(rows)
        order = np.argsort(position, kind="stable")
        return position[order], row[order]

    def column_at(self, name: str, rows: Rows) -> Any:
        """Return a numeric column of rows."""
        old, recent = (level.rows[name] for level in self._levels)
        if len(recent) == 0:
            return old[rows]
        of_old = rows < self._split
        found = np.empty(len(rows), dtype=old.dtype)
        found[of_old], found[~of_old] = old[rows[of_old]], recent[rows[~of_old] - self._split]
        return found

    def rows_at(self, rows: Rows) -> Frame:
        """Return rows in the given order."""
        of_old = rows < self._split
        if of_old.all():
            return self._levels[0].rows.take(rows)
        parts = self._levels[0].rows.take(rows[of_old]), self._levels[1].rows.take(rows[~of_old] - self._split)
        order = np.concatenate([np.flatnonzero(of_old), np.flatnonzero(~of_old)])
        return concat(parts).take(np.argsort(order))

    def without(self, rows: Rows) -> LaneTable:
        """Return the table without some rows."""
        if len(rows) == 0:
            return self
        rows = np.sort(rows)
        split = int(np.searchsorted(rows, self._split))
        levels = self._levels[0].without(rows[:split]), self._levels[1].without(rows[split:] - self._split)
        delta, removed, length = self.delta or TableDelta(self), self.rows_at(rows), len(self) - len(rows)
        step = self._step.follow(length, gone=Frame({name: removed[name] for name in INDEXED}))
        return LaneTable(self.lanes, levels, length, TableDelta(delta.since, delta.added, (*delta.gone, removed)), step)

    def with_rows(self, rows: Frame) -> LaneTable:
        """Return the table with new rows; their lanes and indices must never have been in the table."""
        if len(rows) == 0:
            return self
        rows = rows.take(stable_order(*(rows[name] for name in INDEXED)))
        delta = self.delta or TableDelta(self)
        delta = TableDelta(delta.since, (*delta.added, rows), delta.gone)
        step = self._step.follow(len(self) + len(rows), added=rows)
        table, (old, recent) = self, self._levels
        changed = old.alive is not None or len(recent.rows) > 0
        many = len(recent.rows) + len(rows) > LEAST_RECENT + len(old.rows) // RECENT_SHARE
        if changed and (many or self._made is not None):
            table = LaneTable._of(_frame_of(self), None, step)
        # Add the rows to the recent level, unless they precede rows of their lanes.
        groups = group_rows(*(rows[name] for name in LANE))
        coming = rows.select(LANE).take(groups.starts)
        known = lookup_rows(table.lanes, coming, LANE)
        first = rows["index"][groups.starts[known >= 0]]
        if any((level.at(known[known >= 0], first) < level.ends[known[known >= 0]]).any() for level in table._levels):
            every = concat([_frame_of(table), rows])
            return LaneTable._of(every.take(stable_order(*(every[name] for name in INDEXED))), delta, step)
        lanes, (old, recent), length = table.lanes, table._levels, len(table) + len(rows)
        if (known < 0).any():
            lanes = concat([lanes, coming.filter(known < 0)])
            lanes = lanes.take(stable_order(*(lanes[name] for name in LANE)))
            numbers = lookup_rows(lanes, table.lanes, LANE)
            count = len(lanes)
            starts, ends, heads = (np.zeros(count, dtype=np.int64) for _ in range(3))
            starts[numbers], ends[numbers], heads[numbers] = old.starts, old.ends, old.heads
            old = _Level(old.rows, starts, ends, heads, old.alive)
        left = recent.rows if recent.alive is None else recent.rows.filter(recent.alive)
        if len(left):
            rows = concat([left, rows])
            rows = rows.take(stable_order(*(rows[name] for name in INDEXED)))
        return LaneTable(lanes, (old, _Level.of(rows, lanes)), length, delta, step)

    def changed_since(self, before: Frame) -> FrameChanges | None:
        """Return the changes since an earlier table, or None if they are unknown.

        Older history is forgotten.
        """
        if len(self) == 0:
            return None
        target = before._step if isinstance(before, LaneTable) else None
        added, removed = [], []
        step = self._step
        while step is not target and (target is not None or step.origin is not before):
            if step.added is not None:
                added.append(step.added)
            if step.gone is not None:
                removed.append(step.gone)
            if step.before is None:
                return None
            step = step.before
        if step is not self._step:
            self._step.rows -= step.rows
        step.before, step.rows = None, 0
        first = self.rows_at(_NO_ROWS)
        added_rows, removed_rows = (
            concat([first, *reversed(added)]),
            concat([first.select(INDEXED), *reversed(removed)]),
        )
        if len(added_rows) and len(removed_rows):
            added_keys, removed_keys = encode_keys(INDEXED, added_rows, removed_rows)
            added_rows, removed_rows = (
                added_rows.filter(~np.isin(added_keys, removed_keys)),
                removed_rows.filter(~np.isin(removed_keys, added_keys)),
            )
        return FrameChanges(added_rows, removed_rows)


_NO_ROWS: Rows = np.empty(0, dtype=np.int64)


def _frame_of(table: LaneTable) -> Frame:
    return Frame({name: table.column(name) for name in table.names}, len(table))


MESSAGES = ("outbox", "responses")
"""The indexed tables."""
