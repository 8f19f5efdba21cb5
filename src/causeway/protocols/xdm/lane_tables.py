"""Tables of messages that wait, with an index: a block costs what it changes in them, not what waits.

``outbox`` and ``responses`` may hold many times what one block sends or settles. A ``LaneTable`` is such a table that
remembers where each lane's rows lie and what came and went since the block before; it is made into columns when someone
reads one. It is derived: a plain frame of the same rows (as the lake has it) is indexed again when it is first asked.
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
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import INDEXED

LEAST_RECENT = 4096
RECENT_SHARE = 2
"""Rows that came lately are kept beside the others, until they are so many more than one of so many of these: then all
are put in order, which costs as much as there are."""


@dataclass(frozen=True)
class _Level:
    """Rows by lane and ``index``, some of which are gone. ``starts``, ``ends``: of each lane; ``heads``: the first that
    is there, ``ends`` where none is; ``alive``: of each row, None where nothing has gone."""

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
        """Return in which lanes a number is missing between rows."""
        found = np.zeros(len(self.starts), dtype=bool)
        some = np.flatnonzero(self.ends > self.starts)
        index, first, last = self.rows["index"], self.starts[some], self.ends[some] - 1
        found[some] = index[last] - index[first] != (last - first).astype(np.uint64)
        return found

    def at(self, lanes: Rows, index: U64) -> Rows:
        """Return the first row of each lane from an index on, gone or not; the lane's end where there is none."""
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
        """Return which rows have not gone."""
        return np.ones(len(rows), dtype=bool) if self.alive is None else self.alive[rows]

    def first_from(self, lanes: Rows, index: U64) -> Rows:
        """Return the first row of each lane from an index on that is there, -1 where there is none."""
        found = np.maximum(self.at(lanes, index), self.heads[lanes])
        inside = np.flatnonzero(found < self.ends[lanes])
        for row in inside[~self.is_there(found[inside])].tolist():
            assert self.alive is not None
            end = int(self.ends[lanes[row]])
            rest = self.alive[found[row] : end]
            found[row] = found[row] + int(rest.argmax()) if rest.any() else end
        return np.where(found < self.ends[lanes], found, -1)

    def without(self, rows: Rows) -> _Level:
        """Return the level without rows, which are there."""
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
        """Return the starts of lanes that have rows, ascending, and the numbers of these lanes."""
        some = np.flatnonzero(self.ends > self.starts)
        return self.starts[some], some

    def remaining(self) -> Frame:
        """Return the rows that are there."""
        return self.rows if self.alive is None else self.rows.filter(self.alive)


@dataclass(frozen=True)
class TableDelta:
    """What came and what went since the table ``since``."""

    since: Frame
    added: Sequence[Frame] = ()
    gone: Sequence[Frame] = ()


class _Step:
    """What came and went in one change of a table, and the change before it, as far as someone may ask for it.

    ``rows``: of this change and all before it that are known. ``origin``: the frame that a table was made of, which
    changed nothing.
    """

    __slots__ = ("added", "before", "gone", "origin", "rows")

    def __init__(
        self, before: _Step | None, added: Frame | None = None, gone: Frame | None = None, origin: Frame | None = None
    ) -> None:
        self.added, self.gone, self.origin = added, gone, origin
        self.rows = sum(len(frame) for frame in (added, gone) if frame is not None)
        self.before = before
        if before is not None:
            self.rows += before.rows

    def bounded(self, length: int) -> _Step:
        """Return the step; where it has more rows than a table of ``length`` rows is worth, one that knows nothing."""
        return self if self.rows <= LEAST_REMEMBERED + REMEMBERED * length else _Step(None)


LEAST_REMEMBERED = 8192
REMEMBERED = 2
"""A table remembers the last so many rows that came and went, and so many times as many as it has."""


class LaneTable(Frame):
    """A table of messages by lane and ``index``, two of which agree in no row, with an index over its lanes.

    ``lanes``: every lane that has rows, and some that had; they are named by their numbers in it. A row is named by a
    number of this object, which ``first_from``, ``find`` and ``window`` give. A lane's rows lie in the order in which
    they were added. ``delta``: what this table changed.
    """

    __slots__ = ("_levels", "_made", "_step", "delta", "lanes")

    def __init__(
        self, lanes: Frame, levels: tuple[_Level, _Level], length: int, delta: TableDelta | None, step: _Step
    ) -> None:
        self.lanes = lanes
        self.delta = delta
        self._step = step
        self._levels = levels
        self._length = length
        self._made: dict[str, Column] | None = None

    @classmethod
    def of(cls, rows: Frame) -> LaneTable:
        """Return a table with an index: itself, if it has one."""
        return rows if isinstance(rows, LaneTable) else cls._of(rows, None, _Step(None, origin=rows))

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
            there = np.concatenate([level.is_there(np.arange(len(level.rows))) for level in self._levels])
            rows = there.nonzero()[0]
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
        """Return rows ``start`` to ``stop``; no rows at all without making columns for it."""
        return super().slice(start, stop) if start < stop else self._levels[0].rows.slice(0, 0)

    def settled(self) -> LaneTable:
        """Return the same table as one that has changed nothing yet."""
        if self.delta is None:
            return self
        found = LaneTable(self.lanes, self._levels, self._length, None, self._step)
        found._made = self._made
        return found

    def number_of(self, lanes: Frame) -> Rows:
        """Return the number of each lane, -1 of one without rows."""
        return lookup_rows(self.lanes, lanes, LANE)

    def first_from(self, lanes: Rows, index: U64) -> Rows:
        """Return the first row of each lane (-1: no lane) from an index on, -1 where there is none."""
        known = np.flatnonzero(lanes >= 0)
        old, recent = (level.first_from(lanes[known], index[known]) for level in self._levels)
        found = np.full(len(lanes), -1, dtype=np.int64)
        found[known] = np.where(old >= 0, old, np.where(recent >= 0, recent + self._split, -1))
        return found

    def find(self, asked: Frame) -> Rows:
        """Return the row of each message (lane, ``index``), -1 where there is none."""
        found = self.first_from(self.number_of(asked), asked["index"])
        there = np.flatnonzero(found >= 0)
        wrong = self.column_at("index", found[there]) != asked["index"][there]
        found[there[wrong]] = -1
        return found

    def window(self, lanes: Rows, first: U64, stop: U64) -> tuple[Rows, Rows]:
        """Return the rows of lanes from one index to another, exclusive, lane by lane in the order of their indices:
        the place of each in ``lanes``, and the row."""
        places, rows = [], []
        for level, base in zip(self._levels, (0, self._split), strict=True):
            begin = np.maximum(level.at(lanes, first), level.heads[lanes])
            place, row = expand_ranges(begin, level.at(lanes, np.maximum(first, stop)))
            there = level.is_there(row)
            places.append(place[there])
            rows.append(row[there] + base)
        place, row = np.concatenate(places), np.concatenate(rows)
        order = np.argsort(place, kind="stable")
        return place[order], row[order]

    def column_at(self, name: str, rows: Rows) -> Any:
        """Return a column of numbers of rows."""
        old, recent = (level.rows[name] for level in self._levels)
        if len(recent) == 0:
            return old[rows]
        of_old = rows < self._split
        found = np.empty(len(rows), dtype=old.dtype)
        found[of_old], found[~of_old] = old[rows[of_old]], recent[rows[~of_old] - self._split]
        return found

    def rows_at(self, rows: Rows) -> Frame:
        """Return rows, in that order."""
        of_old = rows < self._split
        if of_old.all():
            return self._levels[0].rows.take(rows)
        parts = self._levels[0].rows.take(rows[of_old]), self._levels[1].rows.take(rows[~of_old] - self._split)
        order = np.concatenate([np.flatnonzero(of_old), np.flatnonzero(~of_old)])
        return concat(parts).take(np.argsort(order))

    def without(self, rows: Rows) -> LaneTable:
        """Return the table without rows."""
        if len(rows) == 0:
            return self
        rows = np.sort(rows)
        split = int(np.searchsorted(rows, self._split))
        levels = self._levels[0].without(rows[:split]), self._levels[1].without(rows[split:] - self._split)
        delta, gone, length = self._delta, self.rows_at(rows), len(self) - len(rows)
        keys = Frame({name: gone[name] for name in INDEXED})
        step = _Step(self._step, gone=keys).bounded(length)
        return LaneTable(self.lanes, levels, length, TableDelta(delta.since, delta.added, (*delta.gone, gone)), step)

    def with_rows(self, rows: Frame) -> LaneTable:
        """Return the table with more rows; none of them has the lane and index of another, be it one that has gone."""
        if len(rows) == 0:
            return self
        rows = rows.take(stable_order(*(rows[name] for name in INDEXED)))
        delta = TableDelta(self._delta.since, (*self._delta.added, rows), self._delta.gone)
        step = _Step(self._step, added=rows).bounded(len(self) + len(rows))
        old, recent = self._levels
        changed = old.alive is not None or len(recent.rows) > 0
        many = len(recent.rows) + len(rows) > LEAST_RECENT + len(old.rows) // RECENT_SHARE
        if changed and (many or self._made is not None):
            return LaneTable._of(_frame_of(self), None, step)._joined(rows, delta, step)
        return self._joined(rows, delta, step)

    def changed_since(self, before: Frame) -> FrameChanges | None:
        """Return how this table came from an earlier one, and forget how that one came to be; None where it is not
        known."""
        if len(self) == 0:
            return None
        asked = before._step if isinstance(before, LaneTable) else None
        added, gone = [], []
        step = self._step
        while step is not asked and (asked is not None or step.origin is not before):
            if step.added is not None:
                added.append(step.added)
            if step.gone is not None:
                gone.append(step.gone)
            if step.before is None:
                return None
            step = step.before
        if step is not self._step:
            self._step.rows -= step.rows
        step.before, step.rows = None, 0
        first = self.rows_at(_NO_ROWS)
        came, went = concat([first, *reversed(added)]), concat([first.select(INDEXED), *reversed(gone)])
        if len(came) and len(went):
            ours, theirs = encode_keys(INDEXED, came, went)
            came, went = came.filter(~np.isin(ours, theirs)), went.filter(~np.isin(theirs, ours))
        return FrameChanges(came, went)

    def _joined(self, rows: Frame, delta: TableDelta, step: _Step) -> LaneTable:
        """Return the table with more rows, in order, among those that came lately."""
        groups = group_rows(*(rows[name] for name in LANE))
        coming = rows.select(LANE).take(groups.starts)
        known = self.number_of(coming)
        first = rows["index"][groups.starts[known >= 0]]
        if any((level.at(known[known >= 0], first) < level.ends[known[known >= 0]]).any() for level in self._levels):
            every = concat([_frame_of(self), rows])
            return LaneTable._of(every.take(stable_order(*(every[name] for name in INDEXED))), delta, step)
        lanes, (old, recent), length = self.lanes, self._levels, len(self) + len(rows)
        if (known < 0).any():
            lanes = concat([lanes, coming.filter(known < 0)])
            lanes = lanes.take(stable_order(*(lanes[name] for name in LANE)))
            # The same where there are `count` lanes, and `numbers` has those of these.
            numbers = lookup_rows(lanes, self.lanes, LANE)
            count = len(lanes)
            starts, ends, heads = (np.zeros(count, dtype=np.int64) for _ in range(3))
            starts[numbers], ends[numbers], heads[numbers] = old.starts, old.ends, old.heads
            old = _Level(old.rows, starts, ends, heads, old.alive)
        if len(left := recent.remaining()):
            rows = concat([left, rows])
            rows = rows.take(stable_order(*(rows[name] for name in INDEXED)))
        return LaneTable(lanes, (old, _Level.of(rows, lanes)), length, delta, step)

    @property
    def _split(self) -> int:
        """The number of the first row of those that came lately."""
        return len(self._levels[0].rows)

    @property
    def _delta(self) -> TableDelta:
        return self.delta if self.delta is not None else TableDelta(self)


_NO_ROWS: Rows = np.empty(0, dtype=np.int64)


def _frame_of(table: LaneTable) -> Frame:
    return Frame({name: table.column(name) for name in table.names}, len(table))


MESSAGES = ("outbox", "responses")
"""The tables that are indexed."""


def index_state(state: State) -> State:
    """Return the state with an index over the messages that wait."""
    return state.with_tables(**{name: LaneTable.of(state[name]) for name in MESSAGES})
