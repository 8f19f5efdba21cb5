"""Ledgers of DataFrames: Spark tasks write their rows once, to a temporary ledger in a folder."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.audit.engine import REMARKED_COUNTS
from causeway.cluster.connectivity import require_shared
from causeway.cluster.jobs import default_parallelism, spark_context, spark_jobs
from causeway.cluster.progress import show_progress
from causeway.cluster.tasks import convert_spark_errors, convert_storage_errors, result_of, run_pickled
from causeway.cluster.workers import require_workers
from causeway.core.arrow_types import conform_table, fill_optional, require_columns, require_utf8, to_schema
from causeway.core.text import format_value, to_one_line
from causeway.ledger.bucket_scan import prepare_worker
from causeway.ledger.commits import table_schema
from causeway.ledger.encodings import DigitsStatus, limb_columns, parse_numbers, valid_mask
from causeway.ledger.ingest.columns import match_names
from causeway.ledger.ingest.commit import commit_files
from causeway.ledger.ingest.ingest import mapping_digest
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.parquet import READABLE, to_plain_column
from causeway.ledger.ingest.records import plan_reading
from causeway.ledger.ingest.row_sections import FILE, iterate_fields
from causeway.ledger.ingest.sources import PendingInput, inspect_file
from causeway.ledger.ingest.tasks import IngestJob, SparkRunner
from causeway.ledger.maintenance import remove_garbage
from causeway.ledger.row_order import MAX_BUCKETS
from causeway.ledger.row_rules import require_amount_columns, require_valid_rows
from causeway.ledger.schema import LIMBS, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.sorted_runs import RunWriter, SpooledRun
from causeway.ledger.store import TEMPORARY_PREFIX, Ledger, LedgerWriter, create_ledger
from causeway.ledger.windows import HeightBounds, mark_restarts
from causeway.network.opened_ledger import OpenedLedger
from causeway.storage.files import Storage
from causeway.storage.object_store import LocalPlace, open_place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["FRAME_TABLES", "FrameLedger", "LedgerTables", "store", "store_records"]

_BUCKETS_A_CORE = 2


class LedgerTables(TypedDict, total=False):
    """Tables given beside the events of a ledger, and the place of the temporary ledger.

    Attributes:
        observed: The windows that the input covers (``OBSERVED_SCHEMA``); None: unknown.
        promises: The guarantees of lanes (``PROMISES_SCHEMA``); None: no guarantees.
        headers: The headers of chains (``HEADERS_SCHEMA``).
        watermarks: The watermarks of chains (``WATERMARKS_SCHEMA``).
        value: Movements of value (``VALUE_SCHEMA``).
        buckets: Number of buckets, and so of Spark tasks; default: two a core. No result depends on it.
        folder: Folder or URI for the temporary ledger, which this process and all workers can write; default: the
            system's temporary folder.
    """

    observed: DataFrame | pa.Table | None
    promises: DataFrame | pa.Table | None
    headers: DataFrame | None
    watermarks: DataFrame | None
    value: DataFrame | None
    buckets: int | None
    folder: str | os.PathLike[str] | None


@dataclass(frozen=True)
class _TemporaryPlace:
    """A folder of its own in ``parent``, for a ledger and for records that are read into it."""

    parent: Storage
    name: str

    def storage(self, part: str) -> Storage:
        return Storage(f"{self.parent.uri}/{self.name}/{part}")

    def remove(self, part: str = "") -> None:
        """Remove a part, by default the folder."""
        self.parent.remove_folder(f"{self.name}/{part}" if part else self.name)


class FrameLedger(OpenedLedger):
    """A temporary ledger with the rows of DataFrames, which is read like one of ``cw.open``.

    DataFrames of its tables read its files. ``close``, the end of a ``with`` statement, or else the end of this process
    removes them.

    Attributes:
        session: The session of the DataFrames.
    """

    def __init__(self, session: SparkSession, temporary: _TemporaryPlace) -> None:
        self._temporary: _TemporaryPlace | None = temporary
        super().__init__(temporary.storage(_LEDGER).uri, session=session)
        remove_garbage(self.stored)  # of tasks that Spark ran twice
        self.session = session
        atexit.register(self.close)

    def _current(self) -> Ledger:
        if self._temporary is None:
            raise InvalidInput(f"{self.place}: was closed; store the DataFrames again")
        return super()._current()

    def close(self) -> None:
        """Remove the temporary ledger."""
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            atexit.unregister(self.close)
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                temporary.remove()


FRAME_TABLES = ("ledger", "observed", "promises", "headers", "watermarks", "value")
"""Tables of a ledger that DataFrames may have."""

_AMOUNT = "amount"
"""A column of DataFrames in place of the four words of an amount (``LIMBS``)."""
_LEDGER, _RECORDS = "ledger", "records"
_RESULT = "result binary"


@show_progress("store")
def store(ledger: DataFrame, **tables: Unpack[LedgerTables]) -> FrameLedger:
    """Write the rows of DataFrames of any origin to a temporary ledger, once for several functions.

    Tasks of their session write them. Each event counts once, however often it was recorded. Chains that restarted at a
    lower height are detected.

    Args:
        ledger: The columns of ``LEDGER_SCHEMA`` by name, in any order; nullable columns may be missing. Names are
            strings, numbers any integers (or decimals without fraction), ``time`` a timestamp (UTC if it has no time
            zone), ``payload_hash`` 32 bytes. A column ``amount`` of whole numbers, or of their digits, may stand for
            the four columns ``LIMBS``. Other columns are ignored.
        tables: As in ``LedgerTables``.

    Raises:
        InvalidInput: An argument is invalid; a column is missing, or has a wrong type or value; a table cannot be read;
            workers do not see the folder; or the session was stopped.
        TaskFailed: A Spark task failed.
    """
    unknown = sorted(set(tables) - set(LedgerTables.__annotations__))
    if unknown:
        raise InvalidInput(f"{unknown[0]}: unknown: allowed are {', '.join(LedgerTables.__annotations__)}")
    session = _require_frame(ledger, "ledger").sparkSession
    frames = {
        "ledger": ledger,
        "headers": tables.get("headers"),
        "watermarks": tables.get("watermarks"),
        "value": tables.get("value"),
    }
    given = {
        name: _select_columns(_require_frame(frame, name), table_schema(name), name)
        for name, frame in frames.items()
        if frame is not None
    }
    observed = _read_table(tables.get("observed"), OBSERVED_SCHEMA, "observed")
    promises = _read_table(tables.get("promises"), PROMISES_SCHEMA, "promises")
    with _temporary_place(session, tables.get("folder")) as temporary:
        stored = _create_ledger(session, temporary, tables.get("buckets"))
        with LedgerWriter(stored) as writer:
            job = IngestJob(stored.storage, MappingDocument.model_construct(), stored.buckets, writer.prefix)
            bounds = HeightBounds()
            for table, frame in given.items():
                runs = _spool_rows(frame, job, table, bounds)
                present = sorted({bucket for run in runs for bucket in run.buckets})
                for file in SparkRunner(session).sorted(job, present, runs):
                    writer.add(file)
            writer.write("observed", fill_optional(observed))
            writer.write("promises", fill_optional(mark_restarts(promises, bounds.restarted(), REMARKED_COUNTS)))
            writer.commit([], {})
        return FrameLedger(session, temporary)


def store_records(
    records: DataFrame,
    mapping: MappingDocument,
    *,
    buckets: int | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> FrameLedger:
    """Ingest recorded traffic of a DataFrame into a temporary ledger, each partition like a Parquet file.

    Args:
        records: The records, with the columns that the mapping names.
        mapping: Meaning of the records; its ``format`` is ignored.
        buckets: As in ``LedgerTables``.
        folder: As in ``LedgerTables``.

    Raises:
        InvalidInput: The columns or records do not fit the mapping, or workers do not see the folder.
        TaskFailed: A Spark task failed.
    """
    session = _require_frame(records, _RECORDS).sparkSession
    mapping = mapping.model_copy(update={"format": ["parquet"]})
    selected, names = _select_records(records, mapping)
    if mapping.value:  # equal movements of one file are several, those of several files are one
        selected = selected.coalesce(1)
    with _temporary_place(session, folder) as temporary:
        stored = _create_ledger(session, temporary, buckets)
        place = temporary.storage(_RECORDS)
        place.make_folder("")
        with spark_jobs(session, "write records", _RECORDS) as counts:
            results = selected.mapInArrow(_PartitionWriter(place, names), _RESULT).toArrow()["result"].to_pylist()
            written = sorted(part for result in results for part in result_of(result))
            counts["rows"] = sum(rows for _, _, rows in written)
        takes = []
        for number, path, _ in written:
            source = inspect_file(place, path)
            assert source is not None
            takes.append(PendingInput(replace(source, name=f"partition-{number:05d}")))
        if not takes:
            raise InvalidInput("records: no rows")
        commit_files(stored, takes, mapping, mapping_digest(mapping), SparkRunner(session), strict=True)
        temporary.remove(_RECORDS)
        return FrameLedger(session, temporary)


def _select_records(records: DataFrame, mapping: MappingDocument) -> tuple[DataFrame, list[str]]:
    """Select the columns that a mapping reads, and return their names: paths within structs, as of a Parquet file.

    Raises:
        InvalidInput: a column is missing, repeated or of a type that no mapping reads, or the mapping needs the names
            of files.
    """
    from pyspark.sql import functions as F

    # By position: Spark treats names that differ only in case as equal.
    whole = records.toDF(*(f"c{place}" for place in range(len(records.columns))))
    leaves = [
        leaf
        for place, field in enumerate(records.schema.fields)
        for leaf in _leaves(field.name, F.col(f"c{place}"), field.dataType)
    ]
    names = [name for name, _, _ in leaves]
    known = match_names(names, mapping, _RECORDS)
    wanted = _require_records(known, mapping)
    chosen = [leaf for name, leaf in zip(known, leaves, strict=True) if name in wanted]
    for name, _, kind in chosen:
        if names.count(name) > 1:
            raise InvalidInput(f"{_RECORDS}: {format_value(name)}: there are two columns of this name")
        if kind.typeName() not in _OF_RECORDS:
            raise InvalidInput(
                f"{_RECORDS}: column {format_value(name)} is {kind.simpleString()}; a mapping reads {READABLE}"
            )
    # A table needs a column to have rows. ``mapInArrow`` does not resolve names with points.
    columns = [column for _, column, _ in chosen] or [F.lit(0)]
    selected = whole.select(*(column.alias(f"c{place}") for place, column in enumerate(columns)))
    return selected, [name for name, _, _ in chosen] or [""]


def _leaves(name: str, column: Column, kind: DataType) -> Iterator[tuple[str, Column, DataType]]:
    """Yield the path, the column and the type of each field within structs; of another type, of the column itself."""
    from pyspark.sql.types import StructType

    if not isinstance(kind, StructType):
        yield name, column, kind
        return
    for field in kind.fields:
        yield from _leaves(f"{name}.{field.name}", column.getField(field.name), field.dataType)


def _require_records(names: Sequence[str], mapping: MappingDocument) -> frozenset[str]:
    """Refuse records without the columns of a mapping, or a mapping that needs names of files; return the columns.

    Raises:
        InvalidInput: a column is missing.
    """
    plan = plan_reading(mapping, _RECORDS, names)
    by_file = {
        field for event in mapping.rows for field, part in iterate_fields(mapping.of(event)) if part.otherwise == FILE
    }
    for event in plan.events:
        for field, part in iterate_fields(event):
            if field in by_file and part.otherwise == _RECORDS:
                raise InvalidInput(
                    f"{_RECORDS}: there is no column {part.column[0]} for {field}: the mapping takes the name of the "
                    "file in its place, and a DataFrame has none"
                )
    return plan.columns


@dataclass(frozen=True)
class _PartitionWriter:
    """A Spark task that writes its partition, with names of its columns, as a file; a repeated task writes another."""

    storage: Storage
    names: Sequence[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _result_batch(run_pickled(partial(self._write, batches)))

    def _write(self, batches: Iterator[pa.RecordBatch]) -> list[tuple[int, str, int]]:
        """Return the partition, its file and its number of rows; nothing without rows."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first = next(batches, None)
        if first is None:
            return []
        path, rows = f"{uuid.uuid4().hex}.parquet", 0
        schema = pa.schema([*zip(self.names, map(_in_utc, first.schema.types), strict=True)])
        with self.storage.parquet_writer(path, schema) as sink:
            for batch in itertools.chain([first], batches):
                sink.write_table(pa.Table.from_batches([batch]).rename_columns(self.names).cast(schema))
                rows += batch.num_rows
        return [(context.partitionId(), path, rows)]


def _result_batch(content: bytes) -> pa.RecordBatch:
    """Return the pickled result of a task as a row of type ``_RESULT``."""
    return pa.RecordBatch.from_arrays([pa.array([content], pa.binary())], ["result"])


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same times in UTC: Arrow does not know all time zones of Spark, such as GMT+8."""
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


@contextlib.contextmanager
def _temporary_place(session: SparkSession, folder: str | os.PathLike[str] | None) -> Iterator[_TemporaryPlace]:
    """Yield a new folder that tasks see; remove it if the body fails."""
    require_workers(session)
    where: object = tempfile.gettempdir() if folder is None else folder
    if not isinstance(where, str | os.PathLike) or not isinstance(os.fspath(where), str):
        raise InvalidInput(f"folder: {format_value(where)}: must be the path or URI of a folder")
    if not os.fspath(where):
        raise InvalidInput("folder: is empty: must be a folder or URI")
    place = open_place(os.fspath(where), "folder")
    # An absolute path: the ledger is read and removed in any later working directory.
    parent = Storage(place.root if isinstance(place, LocalPlace) else place.uri)
    require_shared(session, parent, "folder")
    temporary = _TemporaryPlace(parent, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
    try:
        with convert_storage_errors():
            yield temporary
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # nothing was written
            temporary.remove()
        raise


def _create_ledger(session: SparkSession, temporary: _TemporaryPlace, buckets: int | None) -> Ledger:
    if buckets is None:
        buckets = min(MAX_BUCKETS, _BUCKETS_A_CORE * default_parallelism(session))
    return create_ledger(temporary.storage(_LEDGER).uri, buckets)


def _spool_rows(frame: DataFrame, job: IngestJob, table: str, bounds: HeightBounds) -> list[SpooledRun]:
    """Spool the rows of a table by bucket, and extend ``bounds`` by their blocks."""
    with spark_jobs(frame.sparkSession, f"write {table}", table) as counts:
        rows = frame.mapInArrow(_BucketSpooler(job, table), _RESULT).toArrow()
        found = [result_of(row) for row in rows["result"].to_pylist()]
        spooled = [run for runs, _ in found for run in runs]
        for run in spooled:
            counts.update(rows=sum(run.counts), bytes=run.bytes)
    for _, own in found:
        bounds.merge(own)
    return spooled


@dataclass(frozen=True)
class _BucketSpooler:
    """A Spark task that spools its rows by bucket."""

    job: IngestJob
    table: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        yield _result_batch(run_pickled(partial(self._runs, batches)))

    def _runs(self, batches: Iterator[pa.RecordBatch]) -> tuple[list[SpooledRun], HeightBounds]:
        bounds = HeightBounds()
        writer = RunWriter(self.job.lake, self.job.folder, self.job.buckets, self.job.run_bytes, self.table)
        for batch in batches:
            given = _split_amounts(pa.Table.from_batches([batch]), self.table)
            rows = require_valid_rows(to_schema(given, table_schema(self.table), self.table), self.table)
            if self.table == "ledger":
                bounds.add(rows)
            writer.add(fill_optional(rows))
        return writer.end(keep=False), bounds


def _require_frame(given: object, what: str, allowed: str = "a Spark DataFrame") -> DataFrame:
    """Return a DataFrame that jobs can read; ``what`` names it in errors, with what is allowed.

    Raises:
        InvalidInput: it is something else, a stream, of a stopped session, or no valid query.
    """
    from pyspark.sql import DataFrame

    if not isinstance(given, DataFrame):
        kind = type(given).__name__
        if kind == DataFrame.__name__:  # of pandas, or another package
            kind = f"{type(given).__module__.partition('.')[0]}.{kind}"
        raise InvalidInput(f"{what}: is of type {kind}: must be {allowed}")
    spark_context(given.sparkSession)  # raises once it was stopped
    with convert_spark_errors(what):  # Spark Connect analyzes a query only here
        is_stream, _ = given.isStreaming, given.schema
    if is_stream:
        raise InvalidInput(f"{what}: is a stream: must be a DataFrame of spark.read or of a table")
    return given


def _select_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Select the columns of a ledger table; ``what`` names the table in errors.

    Raises:
        InvalidInput: a column is missing, duplicated or of a wrong type.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    if _AMOUNT in map(str.lower, names) and set(LIMBS) <= set(schema.names):
        schema = _with_amount(names, schema, what)
    require_columns(names, schema, what)
    require_amount_columns(names, schema, what)
    kinds = {field.name: _type_name(field.dataType) for field in frame.schema.fields}
    for field in schema:
        if field.name in names and kinds[field.name] not in _allowed_types(field.type):
            allowed = " or ".join(_allowed_types(field.type))
            raise InvalidInput(f"{what}: {field.name}: is of type {kinds[field.name]}: must be {allowed}")
    # Select by position: Spark treats names that differ only in case as equal.
    whole = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return whole.select(
        *(F.col(f"c{names.index(field.name)}").alias(field.name) for field in schema if field.name in names)
    )


def _with_amount(names: Sequence[str], schema: pa.Schema, what: str) -> pa.Schema:
    """Return the schema with one column ``amount`` in place of its four words.

    Raises:
        InvalidInput: columns of words are there, too.
    """
    for name in LIMBS:
        if name in names:
            raise InvalidInput(f"{what}: {_AMOUNT}: stands beside {name}: one of them is allowed")
    return pa.schema([*(field for field in schema if field.name not in LIMBS), pa.field(_AMOUNT, pa.decimal256(76, 0))])


def _split_amounts(rows: pa.Table, what: str) -> pa.Table:
    """Replace a column ``amount`` by its four words.

    Raises:
        InvalidInput: an amount is no whole number of 256 bits.
    """
    if _AMOUNT not in rows.column_names:
        return rows
    column = rows[_AMOUNT].combine_chunks()
    require_utf8(column, f"{what}: {_AMOUNT}")
    numbers = parse_numbers(to_plain_column(column).cast(pa.string()))
    wrong = (numbers.found != DigitsStatus.GOOD) & valid_mask(column)
    if wrong.any():
        text = to_one_line(str(column[int(wrong.argmax())].as_py()))
        raise InvalidInput(f"{what}: {_AMOUNT}: {text}: must be a whole number from 0 to 2**256 - 1")
    rows = rows.drop_columns([_AMOUNT])
    for name, words in zip(LIMBS, limb_columns(numbers), strict=True):
        rows = rows.append_column(name, words)
    return rows


_WHOLE = ("decimal", "byte", "short", "integer", "long")
_TEXT = ("string", "varchar", "char")
_OF_RECORDS = (
    *(*_WHOLE, *_TEXT, "float", "double", "boolean", "binary"),
    *("timestamp", "timestamp_ntz", "date", "void"),
)
"""Spark types of the columns that a mapping reads (``READABLE``)."""


def _allowed_types(kind: pa.DataType) -> tuple[str, ...]:
    """Return the Spark types allowed for a column."""
    if pa.types.is_decimal(kind):  # the column amount: whole numbers, or their digits
        return *_WHOLE, *_TEXT
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_timestamp(kind):
        return "timestamp", "timestamp_ntz"
    if pa.types.is_list(kind):
        return ("array<string>",)
    return ("binary",) if pa.types.is_fixed_size_binary(kind) else _TEXT


def _type_name(kind: DataType) -> str:
    """Return the name of a Spark type without its length or scale, that of an array with its elements."""
    from pyspark.sql.types import ArrayType

    return f"array<{_type_name(kind.elementType)}>" if isinstance(kind, ArrayType) else kind.typeName()


def _read_table(given: DataFrame | pa.Table | None, schema: pa.Schema, what: str) -> pa.Table:
    """Read a small ledger table from a DataFrame or an Arrow table; None gives an empty table.

    Raises:
        InvalidInput: a column is missing, duplicated or of a wrong type.
    """
    if given is None:
        return schema.empty_table()
    if isinstance(given, pa.Table):
        return require_valid_rows(conform_table(given, schema, what), what)
    frame = _select_columns(_require_frame(given, what, "a Spark DataFrame or an Arrow table"), schema, what)
    with spark_jobs(frame.sparkSession, f"read {what}", what) as counts:
        table = frame.toArrow()
        counts["rows"] = table.num_rows
    return require_valid_rows(to_schema(table, schema, what), what)
