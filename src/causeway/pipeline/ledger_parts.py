"""The rows of a stored ledger's buckets as the audit reads them: in parts, of which it asks for columns."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.audit.parts import Part, TablePart
from causeway.audit.windows import Lane
from causeway.ledger.order import sorted_rows, without_repeats
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, SPARSE
from causeway.ledger.typed import with_columns_of
from causeway.pipeline.ledger_commits import schema_of
from causeway.pipeline.ledger_store import Ledger, LedgerDamaged, StoredFile
from causeway.pipeline.sealed import FileDamaged
from causeway.pipeline.stored_parquet import StoredParquet, readable

GROUPS = 2
"""Row groups of which a part consists."""


def bucket_parts(ledger: Ledger, bucket: int) -> Iterator[Part]:
    """Yield the rows of a bucket of the table ``ledger``, as ``Ledger.rows`` gives them, in parts: what is in memory is
    what was asked for of one part; of a bucket in several files, a row group of each and what they have together.

    Raises as ``Ledger.rows``, also when columns are read.
    """
    found = [file for file in ledger.files("ledger", bucket) if file.bucket == bucket]
    loose = ledger.loose(bucket)
    with contextlib.ExitStack() as files:
        if len(found) == 1 and loose is None:
            file = files.enter_context(ledger.parquet(found[0]))
            counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
            for first in range(0, len(counts), GROUPS):
                yield StoredPart(file, first, tuple(counts[first : first + GROUPS]))
            return
        sources = [_groups_of(files.enter_context(ledger.parquet(file))) for file in found]
        if loose is not None:
            sources.append(iter([sorted_rows(loose)]))
        yield from map(TablePart, merged(sources))


def ledger_end(ledger: Ledger, known: dict[str, int | None] | None = None) -> int | None:
    """Return the last time of any row of the table ``ledger``, in microseconds, by what its files state; None: none.

    Args:
        ledger: as of a commit.
        known: of files that were asked before, by path; becomes what is known of those that count now, but for those
            that are damaged, which have no last time then.

    Raises:
        LedgerDamaged: a file is damaged, and ``known`` is None.
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


def value_of(ledger: Ledger, bucket: int) -> pa.Table | None:
    """Return the movements of value of a bucket; None: the ledger has none there. Raises as ``Ledger.rows``."""
    return ledger.rows(bucket, table="value") if ledger.files("value", bucket) else None


def merged(sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows of several sorted sources in order, each event once (``order.without_repeats``), a run of whole
    messages at a time. ``sources``: each its rows, a table after the other."""
    cursors = [cursor for cursor in map(_Cursor, sources) if cursor.more()]
    while cursors:
        # Of the messages before the end that comes first, all rows are at hand.
        bound = min(cursor.last for cursor in cursors)
        taken = [cursor.before(bound) for cursor in cursors]
        rows = [part for part in taken if part.num_rows]
        if rows:
            yield without_repeats(pa.concat_tables(rows))
        for cursor in cursors:
            if cursor.last == bound:
                cursor.more()
        if all(cursor.ended for cursor in cursors):
            rest = [cursor.rest for cursor in cursors if cursor.rest.num_rows]
            if rest:
                yield without_repeats(pa.concat_tables(rest))
            return


class _Cursor:
    """A sorted source, read so far that ``rest`` is at hand. ``last``: what names the last message of it."""

    def __init__(self, source: Iterator[pa.Table]) -> None:
        self._source = source
        self.rest: pa.Table = LEDGER_SCHEMA.empty_table()
        self.ended = False
        self.last: Key = ()

    def more(self) -> bool:
        """Read on; return whether there is any row at hand."""
        following = next((table for table in self._source if table.num_rows), None)
        if following is None:
            self.ended, self.last = True, END
        else:
            self.rest = pa.concat_tables([self.rest, following])
            self.last = _key(self.rest, self.rest.num_rows - 1)
        return bool(self.rest.num_rows)

    def before(self, bound: Key) -> pa.Table:
        """Take the messages before a key."""
        count = bisect.bisect_left(range(self.rest.num_rows), bound, key=lambda row: _key(self.rest, row))
        taken, self.rest = self.rest.slice(0, count), self.rest.slice(count)
        return taken


Key = tuple[tuple[int, Any], ...]
END: Key = ((2, None),)
"""After all messages."""


def _key(rows: pa.Table, row: int) -> Key:
    """Return what orders the message of a row among others."""
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
    """Neighbouring row groups of an open file: from number ``first`` on, ``counts`` rows each."""

    file: StoredParquet
    first: int
    counts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Return how many rows there are."""
        return sum(self.counts)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows. Raises ``LedgerDamaged``."""
        return _read(self.file, names, range(self.first, self.first + len(self.counts)))

    def has(self, names: Sequence[str]) -> bool:
        """Return whether one of the given columns may have a value, by the statistics of the file."""
        return bool(_with_values(self.file, names, range(self.first, self.first + len(self.counts))))

    def take(self, names: Sequence[str], rows: npt.NDArray[Any]) -> pa.Table:
        """Return some columns of some rows, of whose row groups alone they are read. Raises ``LedgerDamaged``."""
        counts = np.array(self.counts, dtype=np.int64)
        ends = np.cumsum(counts)
        groups = np.searchsorted(ends, rows, side="right")
        used = np.unique(groups)
        read = _read(self.file, names, [self.first + group for group in used.tolist()])
        begins = np.zeros(len(counts), dtype=np.int64)
        begins[used] = np.cumsum(counts[used]) - counts[used]
        return read.take(pa.array(begins[groups] + rows - (ends - counts)[groups]))


def _read(
    file: StoredParquet, names: Sequence[str], groups: Sequence[int], schema: pa.Schema = LEDGER_SCHEMA
) -> pa.Table:
    wanted = pa.schema([schema.field(name) for name in names])
    filled = _with_values(file, names, groups)
    if not filled:
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        return pa.table([pa.nulls(rows, field.type) for field in wanted], schema=wanted)
    try:
        with readable(file.path):
            return with_columns_of(file.read_row_groups([*groups], columns=filled, use_threads=False), wanted)
    except (FileDamaged, FileNotFoundError) as error:
        raise LedgerDamaged(str(error)) from None


def _with_values(file: StoredParquet, names: Sequence[str], groups: Sequence[int]) -> list[str]:
    """Return those columns that have a value in some row groups, by what the file says of them: others need not be
    read, and a file of an earlier format lacks some."""
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


Ranges = tuple[dict[Lane, list[tuple[int, int]]], set[Lane]]
"""Lanes of a run with ranges of indices, first and last, and lanes with messages without index."""


def rows_in_runs(ledger: Ledger, file: StoredFile, runs: Sequence[Ranges], every: bool = False) -> Iterator[pa.Table]:
    """Yield the row groups of a file in which rows of some runs may be, by what the file says of them; ``every``: all
    of them. Raises ``LedgerDamaged``."""
    schema = schema_of(file.table)
    lanes = {lane for ranges, named in runs for lane in (*ranges, *named)}
    with ledger.parquet(file) as opened:
        for group in range(opened.num_row_groups):
            bounds = _bounds(opened, group)
            if every or any(_may_have(bounds, lane, runs) for lane in lanes):
                yield _read(opened, schema.names, [group], schema)


Bounds = Mapping[str, tuple[Any, Any] | None]


def _bounds(file: StoredParquet, group: int, names: Collection[str] = (*LANE, "index")) -> Bounds:
    """Return the least and the largest value of columns of a row group; None: not said, or null in some row."""
    metadata = file.metadata.row_group(group)
    found: dict[str, tuple[Any, Any] | None] = {}
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        if column.path_in_schema in names:
            stated = column.statistics
            whole = stated is not None and stated.has_min_max and stated.has_null_count and not stated.null_count
            found[column.path_in_schema] = (stated.min, stated.max) if whole else None
    return found


def _may_have(bounds: Bounds, lane: Lane, runs: Sequence[Ranges]) -> bool:
    for name, own in zip(LANE, lane, strict=True):
        extent = bounds.get(name)
        # Bytes of a name in files of others may be cut off.
        if extent is not None and (own is None or not _text(extent[0]) <= own.encode() <= _text(extent[1]) + b"\xff"):
            return False
    index = bounds.get("index")
    alone = all(extent is not None and extent[0] == extent[1] for extent in (bounds.get(name) for name in LANE))
    if index is None or not alone:
        return True
    return any(first <= index[1] and index[0] <= last for ranges, _ in runs for first, last in ranges.get(lane, ()))


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def groups_with_heights(ledger: Ledger, file: StoredFile, spans: Sequence[tuple[int, int]]) -> Iterator[pa.Table]:
    """Yield the row groups of a file in which heights of some spans (first and last) may be, or of which some are not
    seen. Raises ``LedgerDamaged``."""
    schema = schema_of(file.table)
    with ledger.parquet(file) as opened:
        for group in range(opened.num_row_groups):
            extent = _bounds(opened, group, ("height",)).get("height")
            if extent is None or any(first <= extent[1] and extent[0] <= last for first, last in spans):
                yield _read(opened, schema.names, [group], schema)
