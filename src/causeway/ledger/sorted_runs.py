"""Rows into the buckets of a ledger: sorted in two passes over files, so that what is in memory is a batch, however
many rows there are.

In the first pass rows are put in the order of their buckets and set aside, a run at a time; in the second the rows of a
bucket are read from all runs, sorted and written as a file of the ledger. The tasks of either pass may run anywhere.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.ledger.commits import table_schema
from causeway.ledger.row_order import LAYOUTS, drop_repeats, message_buckets, take_rows, unify_columns
from causeway.ledger.schema import LANE
from causeway.ledger.store import StoredFile, write_file
from causeway.storage.files import Storage
from causeway.storage.object_store import LocalPlace

RUN_BYTES = 160 << 20
"""Bytes of rows that are set aside together."""

PLAIN_BYTES = 1 << 30
"""So many bytes are set aside as they are: the system keeps them in memory. What is more is packed."""

SORTED_BYTES = 512 << 20
"""Bytes of rows of a bucket that are sorted together: with more of them it gets several files."""


BucketSpread = tuple[tuple[int, ...], tuple[int, ...]]
"""Buckets, ascending, and how many rows each has."""

_NEEDED = {*LANE, "index", "message_id", "chain", "height"}
"""Columns that say in which bucket a row is. Others are left out of a run where nobody saw them."""


@dataclass(frozen=True)
class SpooledRun:
    """Rows in the order of their buckets: of ``buckets`` (ascending) ``counts`` rows each, which take ``bytes``.

    ``path``: of the Arrow file that has them, a batch a bucket; None: they are in memory, ``rows``. ``table``: of which
    they are, ``ledger`` or ``value``.
    """

    buckets: tuple[int, ...]
    counts: tuple[int, ...]
    bytes: int
    path: str | None = None
    rows: pa.Table | None = None
    table: str = "ledger"


class RunWriter:
    """Sets rows aside. ``folder``: where, in a storage; ``table``: of which they are."""

    def __init__(
        self, storage: Storage, folder: str, buckets: int, run_bytes: int = RUN_BYTES, table: str = "ledger"
    ) -> None:
        self._storage, self._folder, self._buckets, self._most = storage, folder, buckets, run_bytes
        self._table = table
        self._parts: list[pa.Table] = []
        self._spread: list[SpooledRun] = []
        self._bytes = self.taken = 0
        self._runs: list[SpooledRun] = []
        self._aside_bytes = 0

    def add(self, rows: pa.Table, buckets: BucketSpread | None = None) -> None:
        """Take rows of the table. ``buckets``: as of ``spread``, of rows that are in that order."""
        if rows.num_rows:
            seen = _without_nulls(rows)
            if buckets is None:
                self._parts.append(rows)
            else:
                self._spread.append(SpooledRun(*buckets, seen.nbytes, None, seen, self._table))
            self._bytes += seen.nbytes
            self.taken += rows.num_rows
            if self._bytes >= self._most:
                self._runs.append(self._aside(self._whole()))

    def end(self, *, keep: bool) -> list[SpooledRun]:
        """Return all runs. ``keep``: the last one may stay in memory."""
        if keep and not self._parts:
            return [*self._runs, *self._spread]
        if self._parts or self._spread:
            run = self._whole()
            self._runs.append(run if keep else self._aside(run))
        return self._runs

    def _whole(self) -> SpooledRun:
        """Return all rows that were not set aside, as one run."""
        rows, spread = self._parts, self._spread
        self._parts, self._spread, self._bytes = [], [], 0
        made = [] if not rows else [self._run(pa.concat_tables(rows))]
        return _joined([*spread, *made]) if spread else made[0]

    def _run(self, rows: pa.Table) -> SpooledRun:
        rows, (buckets, counts) = spread_rows(unify_columns(_without_nulls(rows)), self._buckets, self._table)
        return SpooledRun(buckets, counts, rows.nbytes, None, rows, self._table)

    def _aside(self, run: SpooledRun) -> SpooledRun:
        assert run.rows is not None
        storage = self._storage
        storage.make_folder(self._folder)
        path = f"{self._folder}/{uuid.uuid4().hex}.arrow"
        self._aside_bytes += run.bytes
        packed = "lz4" if self._aside_bytes > PLAIN_BYTES else None
        options = pa.ipc.IpcWriteOptions(compression=packed, use_threads=False)
        with (
            storage.place.writer(path) as file,
            pa.ipc.new_file(pa.PythonFile(file, mode="w"), run.rows.schema, options=options) as sink,
        ):
            start = 0
            for count in run.counts:
                sink.write_batch(run.rows.slice(start, count).combine_chunks().to_batches()[0])
                start += count
        return SpooledRun(run.buckets, run.counts, run.bytes, path, None, self._table)


def spread_rows(rows: pa.Table, buckets: int, table: str = "ledger") -> tuple[pa.Table, BucketSpread]:
    """Return rows of a table in the order of their buckets, which those are, ascending, and how many rows each has."""
    if buckets == 1:
        return rows, ((0,), (rows.num_rows,))
    of_rows = (LAYOUTS[table].buckets_of if table in LAYOUTS else message_buckets)(rows, buckets)
    counts = np.bincount(of_rows, minlength=buckets)
    present = np.flatnonzero(counts)
    rows = take_rows(rows, np.argsort(of_rows, kind="stable"))
    return rows, (tuple(present.tolist()), tuple(counts[present].tolist()))


def _without_nulls(rows: pa.Table) -> pa.Table:
    """Return rows without the columns of which nobody saw anything."""
    names = rows.schema.names
    return rows.select([name for name in names if name in _NEEDED or rows[name].null_count < rows.num_rows])


def _joined(runs: Sequence[SpooledRun]) -> SpooledRun:
    """Return runs that are in memory as one, the rows of each bucket in their order."""
    counts: Counter[int] = Counter()
    for run in runs:
        counts.update(dict(zip(run.buckets, run.counts, strict=True)))
    buckets = sorted(counts)
    parts = []
    for bucket in buckets:
        for run in runs:
            if bucket in run.buckets:
                place = run.buckets.index(bucket)
                assert run.rows is not None
                parts.append(run.rows.slice(sum(run.counts[:place]), run.counts[place]))
    rows = unify_columns(pa.concat_tables(parts, promote_options="default"))
    return SpooledRun(tuple(buckets), tuple(counts[each] for each in buckets), rows.nbytes, None, rows, runs[0].table)


def write_bucket(storage: Storage, name: str, bucket: int, runs: Sequence[SpooledRun]) -> list[StoredFile]:
    """Write the rows of a bucket as files of the ledger, each sorted and without repeats: one, if they are not too
    many. ``name``: what the files are called, as of ``write_file``."""
    files = []
    for number, parts in enumerate(_batches(storage, bucket, runs)):
        table = runs[0].table
        rows = sort_bucket_rows(fill_columns(pa.concat_tables(parts, promote_options="default"), table), table)
        files.append(write_file(storage, f"{name}-{number:03}", table, rows, bucket))
    return files


def sort_bucket_rows(rows: pa.Table, table: str) -> pa.Table:
    """Return rows of a bucket of a table in its order, events without repeats. Which movements of value are one is seen
    when all of them are read."""
    if table in LAYOUTS:
        return LAYOUTS[table].in_order(rows.unify_dictionaries().combine_chunks())
    return drop_repeats(rows)


def _batches(storage: Storage, bucket: int, runs: Sequence[SpooledRun]) -> Iterator[list[pa.Table]]:
    """Yield the rows of a bucket, as much as is sorted together at a time."""
    held: list[pa.Table] = []
    size = 0
    for run in runs:
        if bucket not in run.buckets:
            continue
        part = read_run_bucket(storage, run, bucket)
        if held and size + part.nbytes > SORTED_BYTES:
            yield held
            held, size = [], 0
        held.append(part)
        size += part.nbytes
    if held:
        yield held


def read_run_bucket(storage: Storage, run: SpooledRun, bucket: int) -> pa.Table:
    """Return the rows of a bucket in a run."""
    place = run.buckets.index(bucket)
    if run.rows is not None:
        return run.rows.slice(sum(run.counts[:place]), run.counts[place])
    assert run.path is not None
    if isinstance(storage.place, LocalPlace):
        with pa.OSFile(storage.place.full(run.path)) as file:
            return pa.Table.from_batches([pa.ipc.open_file(file).get_batch(place)])
    with storage.remote(run.path, storage.size(run.path) or 0) as remote:
        return pa.Table.from_batches([pa.ipc.open_file(pa.PythonFile(remote, mode="r")).get_batch(place)])


def fill_columns(rows: pa.Table, table: str = "ledger") -> pa.Table:
    """Return rows with all columns of their table."""
    schema = table_schema(table)
    columns = [
        rows[field.name] if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


__all__ = [
    "BucketSpread",
    "RunWriter",
    "SpooledRun",
    "fill_columns",
    "read_run_bucket",
    "sort_bucket_rows",
    "spread_rows",
    "write_bucket",
]
