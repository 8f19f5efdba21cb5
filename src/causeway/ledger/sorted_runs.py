"""Sort rows into buckets in two passes over files, with memory bounded by a batch.

The first pass orders rows by bucket and spools them, one run at a time. The second pass reads the rows of a bucket from
all runs, sorts them and writes files of the ledger. Tasks of both passes may run anywhere.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.ledger.commits import make_table_folder, table_schema
from causeway.ledger.row_order import LAYOUTS, drop_repeats, message_buckets, take_rows, unify_columns
from causeway.ledger.schema import LANE
from causeway.ledger.store import StoredFile, write_file
from causeway.storage.files import Storage
from causeway.storage.object_store import LocalPlace

RUN_BYTES = 160 << 20
"""Size of the rows spooled together, in bytes."""

PLAIN_BYTES = 1 << 30
"""Maximum size of uncompressed spooled data, in bytes: it should stay in the page cache."""

SORTED_BYTES = 512 << 20
"""Size of a bucket's rows sorted together, in bytes; larger buckets get several files."""


BucketSpread = tuple[tuple[int, ...], tuple[int, ...]]
"""Buckets, ascending, and their row counts."""

_NEEDED = {*LANE, "index", "message_id", "chain", "height"}
"""Columns that determine the bucket of a row; other columns are omitted from a run if all null."""


@dataclass(frozen=True)
class SpooledRun:
    """Rows in bucket order.

    Attributes:
        buckets: Bucket numbers, ascending.
        counts: Number of rows of each.
        bytes: Size of the rows.
        path: Path of an Arrow file with a batch a bucket; None: in memory.
        rows: The rows in memory, or None.
        table: Name of their table.
    """

    buckets: tuple[int, ...]
    counts: tuple[int, ...]
    bytes: int
    path: str | None = None
    rows: pa.Table | None = None
    table: str = "ledger"


class RunWriter:
    """Spools rows.

    Args:
        storage: Storage of the ledger.
        folder: Folder of the spooled runs.
        buckets: Number of buckets.
        run_bytes: Size of the rows spooled together, in bytes.
        table: Name of the table.

    Attributes:
        taken: Number of rows.
    """

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
        """Add rows of the table.

        Args:
            rows: The rows.
            buckets: As of ``spread_rows``, for rows in bucket order.
        """
        if rows.num_rows:
            seen = _without_nulls(rows)
            if buckets is None:
                self._parts.append(rows)
            else:
                self._spread.append(SpooledRun(*buckets, seen.nbytes, None, seen, self._table))
            self._bytes += seen.nbytes
            self.taken += rows.num_rows
            if self._bytes >= self._most:
                self._runs.append(self._spool(self._whole()))

    def end(self, *, keep: bool) -> list[SpooledRun]:
        """Return all runs. ``keep``: the last one may stay in memory."""
        if keep and not self._parts:
            return [*self._runs, *self._spread]
        if self._parts or self._spread:
            run = self._whole()
            self._runs.append(run if keep else self._spool(run))
        return self._runs

    def _whole(self) -> SpooledRun:
        """Return all unspooled rows as one run."""
        rows, spread = self._parts, self._spread
        self._parts, self._spread, self._bytes = [], [], 0
        runs = [] if not rows else [self._run(pa.concat_tables(rows))]
        return _merge_runs([*spread, *runs]) if spread else runs[0]

    def _run(self, rows: pa.Table) -> SpooledRun:
        rows, (buckets, counts) = spread_rows(unify_columns(_without_nulls(rows)), self._buckets, self._table)
        return SpooledRun(buckets, counts, rows.nbytes, None, rows, self._table)

    def _spool(self, run: SpooledRun) -> SpooledRun:
        assert run.rows is not None
        storage = self._storage
        make_table_folder(storage, self._folder)
        path = f"{self._folder}/{uuid.uuid4().hex}.arrow"
        self._aside_bytes += run.bytes
        compression = "lz4" if self._aside_bytes > PLAIN_BYTES else None
        options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
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
    """Order rows by bucket; return them, the buckets and their row counts.

    Args:
        rows: Rows of the table.
        buckets: Number of buckets.
        table: Name of the table.

    Returns:
        The rows in bucket order; and the bucket numbers, ascending, with the number of rows of each.
    """
    if buckets == 1:
        return rows, ((0,), (rows.num_rows,))
    row_buckets = (LAYOUTS[table].buckets_of if table in LAYOUTS else message_buckets)(rows, buckets)
    counts = np.bincount(row_buckets, minlength=buckets)
    present = np.flatnonzero(counts)
    rows = take_rows(rows, np.argsort(row_buckets, kind="stable"))
    return rows, (tuple(present.tolist()), tuple(counts[present].tolist()))


def _without_nulls(rows: pa.Table) -> pa.Table:
    """Return rows without columns that are all null."""
    names = rows.schema.names
    return rows.select([name for name in names if name in _NEEDED or rows[name].null_count < rows.num_rows])


def _merge_runs(runs: Sequence[SpooledRun]) -> SpooledRun:
    """Merge runs in memory to one, keeping row order in each bucket."""
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
    """Write the rows of a bucket as sorted files without duplicates, mostly one.

    Args:
        storage: Storage of the ledger.
        name: Begin of the file names, as of ``write_file``.
        bucket: Bucket number.
        runs: Runs of one table.

    Returns:
        The files.
    """
    files = []
    for number, parts in enumerate(_batches(storage, bucket, runs)):
        table = runs[0].table
        rows = sort_bucket_rows(fill_columns(pa.concat_tables(parts, promote_options="default"), table), table)
        files.append(write_file(storage, f"{name}-{number:03}", table, rows, bucket))
    return files


def sort_bucket_rows(rows: pa.Table, table: str) -> pa.Table:
    """Sort the rows of a bucket; events are deduplicated here, movements only when read.

    Args:
        rows: Rows of a bucket, with all columns of the table.
        table: Name of the table.

    Returns:
        The sorted rows.
    """
    if table in LAYOUTS:
        return LAYOUTS[table].in_order(rows.unify_dictionaries().combine_chunks())
    return drop_repeats(rows)


def _batches(storage: Storage, bucket: int, runs: Sequence[SpooledRun]) -> Iterator[list[pa.Table]]:
    """Yield the rows of a bucket in batches that are sorted together."""
    pending: list[pa.Table] = []
    size = 0
    for run in runs:
        if bucket not in run.buckets:
            continue
        part = read_run_bucket(storage, run, bucket)
        if pending and size + part.nbytes > SORTED_BYTES:
            yield pending
            pending, size = [], 0
        pending.append(part)
        size += part.nbytes
    if pending:
        yield pending


def read_run_bucket(storage: Storage, run: SpooledRun, bucket: int) -> pa.Table:
    """Return the rows of a bucket in a run.

    Args:
        storage: Storage of the ledger.
        run: The run, in memory or in a file.
        bucket: Bucket number, one of ``run.buckets``.

    Returns:
        The rows; columns that are null in the whole run may be missing.
    """
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
    """Return rows with all columns of their table.

    Args:
        rows: Rows with some columns of the table.
        table: Name of the table.

    Returns:
        The rows; missing columns are null.
    """
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
