"""Rows of a stored ledger's buckets in parts with lazily read columns."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.core.arrow_types import align_columns
from causeway.ledger.parts import PART_ROWS, BucketPart, TablePart
from causeway.ledger.row_order import drop_repeats
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, SPARSE
from causeway.ledger.store import Ledger, LedgerDamaged, StoredFile
from causeway.storage.parquet_files import StoredParquet, convert_arrow_errors
from causeway.storage.seals import FileDamaged

GROUPS_AT_ONCE = 2
"""Number of row groups of a part."""


def bucket_parts(ledger: Ledger, bucket: int) -> Iterator[BucketPart]:
    """Yield the rows of a bucket of the table ``ledger`` in parts.

    The rows are those of ``Ledger.rows``. Memory is bounded by the requested columns of one part; for several files, by
    a row group of each and their overlap.

    Args:
        ledger: The ledger.
        bucket: Bucket number.

    Raises:
        InvalidInput: The files were merged meanwhile, also while columns are read.
        LedgerDamaged: A file is damaged, also while columns are read.
    """
    bucket_files = [file for file in ledger.files("ledger", bucket) if file.bucket == bucket]
    loose = ledger.loose(bucket)
    with contextlib.ExitStack() as files:
        if len(bucket_files) == 1 and loose is None:
            file = files.enter_context(ledger.parquet(bucket_files[0]))
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            for first in range(0, len(counts), GROUPS_AT_ONCE):
                yield StoredPart(file, first, tuple(counts[first : first + GROUPS_AT_ONCE]))
            return
        sources = [_groups_of(files.enter_context(ledger.parquet(file))) for file in bucket_files]
        if loose is not None:
            sources.append(iter([drop_repeats(loose)]))
        pending: list[pa.Table] = []
        for table in merge_sorted(sources):
            if pending and sum(part.num_rows for part in pending) + table.num_rows > PART_ROWS:
                yield TablePart(pa.concat_tables(pending))
                pending = []
            pending.append(table)
        if pending:
            yield TablePart(pa.concat_tables(pending))


def ledger_end(ledger: Ledger, known: dict[str, int | None] | None = None) -> int | None:
    """Return the last time of any row of the table ``ledger``, by file statistics.

    Args:
        ledger: The ledger as of a commit.
        known: Cache by file path. It is updated to the live files; damaged files have no last time then.

    Returns:
        Microseconds, or None if no row has a time.

    Raises:
        LedgerDamaged: A file is damaged, and ``known`` is None.
    """
    ends: dict[str, int | None] = {}
    for file in ledger.files("ledger"):
        try:
            ends[file.path] = known[file.path] if known and file.path in known else _last_time(ledger, file)
        except LedgerDamaged:
            if known is None:
                raise
    if known is not None:
        known.clear()
        known.update(ends)
    return max((end for end in ends.values() if end is not None), default=None)


def _last_time(ledger: Ledger, file: StoredFile) -> int | None:
    with ledger.parquet(file) as opened:
        stated = [each for each in opened.statistics("time") if each is not None and each.has_min_max]
        ends = [pa.scalar(each.max_raw, pa.int64()).as_py() for each in stated]
    return max(ends, default=None)


def bucket_value(ledger: Ledger, bucket: int) -> pa.Table | None:
    """Return the movements of value of a bucket, or None.

    Args:
        ledger: The ledger.
        bucket: Bucket number.

    Raises:
        InvalidInput: The files were merged meanwhile.
        LedgerDamaged: A file is damaged.
    """
    return ledger.rows(bucket, table="value") if ledger.files("value", bucket) else None


def merge_sorted(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merge sorted sources without duplicates (``drop_repeats``), whole messages at a time.

    Args:
        sources: Sorted tables of each source.
    """
    cursors = [cursor for cursor in map(_Cursor, sources) if cursor.more()]
    while cursors:
        # All rows of messages before the smallest last key are available.
        bound = min(cursor.last for cursor in cursors)
        yield from _merge_rows([cursor.before(bound) for cursor in cursors])
        for cursor in cursors:
            if cursor.last == bound:
                cursor.more()
        if all(cursor.ended for cursor in cursors):
            yield from _merge_rows([cursor.rest for cursor in cursors])
            return


def _merge_rows(sources: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Merge the rows of sorted sources; rows outside of the overlap pass unchanged."""
    rows = sorted((part for part in sources if part.num_rows), key=lambda part: part.num_rows)
    if len(rows) > 1:
        most = rows.pop()
        first, last = min(_key(part, 0) for part in rows), max(_key(part, part.num_rows - 1) for part in rows)
        begin, end = _place(most, first), _place(most, last, bisect.bisect_right)
        inside = pa.concat_tables([most.slice(begin, end - begin), *rows])
        rows = [part for part in (most.slice(0, begin), drop_repeats(inside), most.slice(end)) if part.num_rows]
    yield from rows


class _Cursor:
    """Read position in a sorted source; ``rest``: unmerged rows; ``last``: their last key."""

    def __init__(self, source: Iterator[pa.Table]) -> None:
        self._source = source
        self.rest: pa.Table = LEDGER_SCHEMA.empty_table()
        self.ended = False
        self.last: MergeKey = ()

    def more(self) -> bool:
        """Read on; return True if there are unmerged rows."""
        following = next((table for table in self._source if table.num_rows), None)
        if following is None:
            self.ended, self.last = True, END_KEY
        else:
            self.rest = pa.concat_tables([self.rest, following])
            self.last = _key(self.rest, self.rest.num_rows - 1)
        return bool(self.rest.num_rows)

    def before(self, bound: MergeKey) -> pa.Table:
        """Remove and return the messages before a key."""
        count = _place(self.rest, bound)
        removed, self.rest = self.rest.slice(0, count), self.rest.slice(count)
        return removed


MergeKey = tuple[tuple[int, Any], ...]
END_KEY: MergeKey = ((2, None),)
"""Key after all messages."""


def _place(rows: pa.Table, key: MergeKey, bisected: Callable[..., int] = bisect.bisect_left) -> int:
    """Return the position of a key in sorted rows."""
    return bisected(range(rows.num_rows), key, key=lambda row: _key(rows, row))


def _key(rows: pa.Table, row: int) -> MergeKey:
    """Return the sort key of the message of a row."""
    names = [rows[name][row].as_py() for name in LANE]
    index = rows["index"][row].as_py()
    lane = [(0, b"") if name is None else (1, name.encode()) for name in names]
    if index is not None:
        return *lane, (0, index)
    ident = rows["message_id"][row].as_py()
    return *lane, (1, (0, b"") if ident is None else (1, ident.encode()))


def _groups_of(file: StoredParquet) -> Iterator[pa.Table]:
    for group in range(file.num_row_groups):
        yield _read(file, LEDGER_SCHEMA.names, [group])


@dataclass(frozen=True)
class StoredPart:
    """Consecutive row groups of an open file.

    Attributes:
        file: The file.
        first: First row group.
        counts: Number of rows of each.
    """

    file: StoredParquet
    first: int
    counts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(self.counts)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows. Raises ``LedgerDamaged``."""
        return _read(self.file, names, range(self.first, self.first + len(self.counts)))

    def has(self, names: Sequence[str]) -> bool:
        """Return True if one of some columns may have a value, by file statistics."""
        return bool(_with_values(self.file, names, range(self.first, self.first + len(self.counts))))

    def take(self, names: Sequence[str], rows: npt.NDArray[Any]) -> pa.Table:
        """Return some columns of some rows, reading only their row groups. Raises ``LedgerDamaged``."""
        counts = np.array(self.counts, dtype=np.int64)
        ends = np.cumsum(counts)
        groups = np.searchsorted(ends, rows, side="right")
        used = np.unique(groups)
        read = _read(self.file, names, [self.first + group for group in used.tolist()])
        begins = np.zeros(len(counts), dtype=np.int64)
        begins[used] = np.cumsum(counts[used]) - counts[used]
        return read.take(pa.array(begins[groups] + rows - (ends - counts)[groups]))


def _read(file: StoredParquet, names: Sequence[str], groups: Sequence[int]) -> pa.Table:
    wanted = pa.schema([LEDGER_SCHEMA.field(name) for name in names])
    filled = _with_values(file, names, groups)
    if not filled:
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        return pa.table([pa.nulls(rows, field.type) for field in wanted], schema=wanted)
    try:
        with convert_arrow_errors(file.path):
            return align_columns(file.read_row_groups([*groups], columns=filled, use_threads=False), wanted)
    except (FileDamaged, FileNotFoundError) as error:
        raise LedgerDamaged(str(error)) from None


def _with_values(file: StoredParquet, names: Sequence[str], groups: Sequence[int]) -> list[str]:
    """Return the columns that have a value in some row groups, by file statistics.

    Other columns need no read, and files of an earlier format lack some.
    """
    metadata = file.metadata
    places = {metadata.row_group(0).column(number).path_in_schema: number for number in range(metadata.num_columns)}
    found = []
    for name in names:
        if name in places and name in SPARSE:
            stated = [metadata.row_group(group).column(places[name]) for group in groups]
            if all(
                each.statistics is not None
                and each.statistics.has_null_count
                and each.statistics.null_count == each.num_values
                for each in stated
            ):
                continue
        if name in places:
            found.append(name)
    return found
