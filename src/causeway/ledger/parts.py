"""A bucket in parts and runs of whole messages, so that memory is bounded by a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.ledger.schema import LANE

READ_COLUMNS = (
    *(*LANE, "index", "kind", "event", "chain", "revision", "height", "position", "time", "payload_hash", "asset"),
    *("amount_0", "amount_1", "amount_2", "amount_3"),
)
"""Columns that a pass reads of every row; others are read on demand, and for named rows."""

PART_ROWS = 1 << 19
"""Number of rows of a part of a table in memory."""

PartRows = npt.NDArray[Any]
PartKey = tuple[Any, ...]


class BucketPart(Protocol):
    """Consecutive rows of a bucket with lazily read columns."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        ...

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows.

        Args:
            names: Names of columns.
        """
        ...

    def take(self, names: Sequence[str], rows: PartRows) -> pa.Table:
        """Return some columns of some rows.

        Args:
            names: Names of columns.
            rows: Row numbers.
        """
        ...

    def has(self, names: Sequence[str]) -> bool:
        """Return True if one of some columns may have a value in any row."""
        ...


@dataclass(frozen=True)
class TablePart:
    """A table in memory, or a slice of one."""

    table: pa.Table

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        return self.table.select(list(names))

    def take(self, names: Sequence[str], rows: PartRows) -> pa.Table:
        """Return some columns of some rows."""
        return self.table.select(list(names)).take(pa.array(rows))

    def has(self, names: Sequence[str]) -> bool:
        """Return True if one of some columns has a value in any row."""
        return any(self.table[name].null_count < self.num_rows for name in names)


def split_table(table: pa.Table) -> Iterator[BucketPart]:
    """Split a table into parts.

    Args:
        table: Rows of a bucket.
    """
    for first in range(0, max(table.num_rows, 1), PART_ROWS):
        yield TablePart(table.slice(first, PART_ROWS))


@dataclass(frozen=True)
class MessageRun:
    """Whole messages of a bucket.

    Attributes:
        table: Their columns ``READ_COLUMNS``.
        of: Their rows in parts: part, first row, number of rows.
        scattered: The messages need not be consecutive.
    """

    table: pa.Table
    of: tuple[tuple[BucketPart, int, int], ...]
    scattered: bool = False

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        return pa.concat_tables([part.read(names).slice(first, count) for part, first, count in self.of])

    def has(self, *names: str) -> bool:
        """Return True if one of some columns may have a value in any row."""
        return any(part.has(names) for part, _, _ in self.of)

    def take(self, names: Sequence[str], rows: PartRows) -> pa.Table:
        """Return some columns of some rows."""
        known, others = (
            [name for name in names if name in READ_COLUMNS],
            [name for name in names if name not in READ_COLUMNS],
        )
        if not known:
            return self._take(others, rows)
        found = self.table.select(known).take(pa.array(rows))
        if others:
            rest = self._take(others, rows)
            for name in others:
                found = found.append_column(name, rest[name])
        return found

    def _take(self, names: Sequence[str], rows: PartRows) -> pa.Table:
        ends = np.cumsum([count for _, _, count in self.of])
        at = np.searchsorted(ends, rows, side="right")
        order = np.argsort(at, kind="stable")
        bounds = np.searchsorted(at[order], np.arange(len(self.of) + 1))
        found = []
        for number, (part, first, count) in enumerate(self.of):
            own = order[bounds[number] : bounds[number + 1]]
            if len(own) or not len(rows):
                found.append(part.take(names, rows[own] - (ends[number] - count) + first))
        back = np.empty(len(rows), dtype=np.int64)
        back[order] = np.arange(len(rows))
        return pa.concat_tables(found).unify_dictionaries().take(pa.array(back))


def split_runs(parts: Iterable[BucketPart]) -> Iterator[MessageRun]:
    """Split parts into runs of whole messages.

    Messages at part boundaries may continue in the next part. They form the last run, a scattered one.

    Args:
        parts: Parts of a bucket, in order.
    """
    ends: list[pa.Table] = []
    of: list[tuple[BucketPart, int, int]] = []
    last: PartKey | None = None
    nonempty = (part for part in parts if part.num_rows)
    part = next(nonempty, None)
    while part is not None:
        following, count = next(nonempty, None), part.num_rows
        table = part.read(READ_COLUMNS)
        head = _reach(part, table, 0) if last is not None and _key(part, table, 0) == last else 0
        tail = count if following is None else max(count - _reach(part, table, count - 1), head)
        for begin, end in ((0, head), (tail, count)):
            if begin < end:
                # Copy them to release the rows of the whole part.
                ends.append(_copy(table, begin, end))
                if isinstance(part, TablePart):
                    of.append((TablePart(_copy(part.table, begin, end)), 0, end - begin))
                else:
                    of.append((part, begin, end - begin))
        last = _key(part, table, count - 1) if following is not None else None
        if head < tail:
            yield MessageRun(table.slice(head, tail - head), ((part, head, tail - head),))
        part = following
    if ends:
        yield MessageRun(pa.concat_tables(ends), tuple(of), scattered=True)


def _copy(table: pa.Table, begin: int, end: int) -> pa.Table:
    return table.take(pa.array(np.arange(begin, end)))


def _key(part: BucketPart, table: pa.Table, row: int) -> PartKey:
    """Return the identity of the message of a row."""
    index = table["index"][row].as_py()
    ident = part.take(("message_id",), np.array([row]))["message_id"][0].as_py() if index is None else None
    return (*(table[name][row].as_py() for name in LANE), index, ident)


def _reach(part: BucketPart, table: pa.Table, row: int) -> int:
    """Return the number of rows of the part's first message, or of its last one."""
    key, step, away = _key(part, table, row), 1 if row == 0 else -1, 0
    while 0 <= row + away * step < table.num_rows and _key(part, table, row + away * step) == key:
        away += 1
    return away
