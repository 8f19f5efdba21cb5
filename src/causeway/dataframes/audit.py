"""Audit Spark DataFrames.

Their rows are written to a temporary ledger, then ``audit_ledger`` checks it on Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.audit.engine import REMARKED_COUNTS, AuditResult, CheckVerdict
from causeway.audit.passes.bucket_pass import LIMIT
from causeway.audit.stored import audit_ledger
from causeway.cluster.tasks import convert_spark_errors, result_of, run_pickled
from causeway.core.arrow_types import OPTIONAL, require_columns, to_schema
from causeway.ledger.bucket_scan import prepare_worker
from causeway.ledger.commits import table_schema
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.tasks import IngestJob, SparkRunner
from causeway.ledger.row_order import MAX_BUCKETS
from causeway.ledger.schema import OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.sorted_runs import RunWriter, SpooledRun
from causeway.ledger.store import LedgerWriter, create_ledger
from causeway.ledger.windows import HeightBounds, mark_restarts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BUCKETS_A_CORE = 2


@dataclass(frozen=True)
class FrameAudit:
    """The audit of a DataFrame, and its tables as DataFrames of the same session.

    Unsigned numbers become decimals.
    """

    audit: AuditResult
    session: SparkSession

    @property
    def checks(self) -> dict[str, CheckVerdict]:
        """Return the verdict of each check, by name."""
        return self.audit.checks

    @property
    def holds(self) -> bool:
        """Return True unless a check is violated."""
        return self.audit.holds

    @property
    def violations(self) -> DataFrame:
        """Return the findings."""
        return self._frame(self.audit.violations)

    @property
    def completeness(self) -> DataFrame:
        """Return the coverage of the input."""
        return self._frame(self.audit.completeness)

    @property
    def lanes(self) -> DataFrame:
        """Return the figures of each lane."""
        return self._frame(self.audit.lanes)

    @property
    def sums(self) -> DataFrame:
        """Return the sums of each lane and asset."""
        return self._frame(self.audit.sums)

    @property
    def abroad(self) -> DataFrame:
        """Return the balance of each asset that left its chain: the amounts sent out and returned."""
        return self._frame(self.audit.abroad)

    def _frame(self, table: pa.Table) -> DataFrame:
        kinds = [pa.decimal128(20, 0) if kind == pa.uint64() else kind for kind in table.schema.types]
        fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
        return self.session.createDataFrame(table.cast(pa.schema(fields)))


def audit_frame(
    ledger: DataFrame,
    observed: DataFrame | pa.Table | None = None,
    promises: DataFrame | pa.Table | None = None,
    *,
    headers: DataFrame | None = None,
    watermarks: DataFrame | None = None,
    value: DataFrame | None = None,
    buckets: int | None = None,
    folder: str | None = None,
    limit: int = LIMIT,
) -> FrameAudit:
    """Audit a ledger given as a DataFrame of any origin, in its own Spark session.

    Each event counts once, however often it was recorded. Chains that restarted at a lower height are detected.

    Args:
        ledger: the columns of ``LEDGER_SCHEMA`` by name, in any order; nullable columns may be missing. Names are
            strings, numbers any integers (or decimals without fraction), ``time`` a timestamp (UTC if it has no time
            zone), ``payload_hash`` 32 bytes. Other columns are ignored.
        observed: the windows that the input covers (``OBSERVED_SCHEMA``); None: unknown.
        promises: the guarantees of lanes (``PROMISES_SCHEMA``); None: no guarantees.
        headers: the headers of chains (``HEADERS_SCHEMA``).
        watermarks: the watermarks of chains (``WATERMARKS_SCHEMA``).
        value: movements of value (``VALUE_SCHEMA``).
        buckets: number of buckets, and so of Spark tasks; default: two a core. The result does not depend on it.
        folder: the folder of the temporary ledger, by default in the system's temporary folder. On a cluster it must be
            writable by the driver and by all workers.
        limit: number of findings listed for each lane, check and reason; all findings are counted.

    Returns:
        The verdicts and tables of the audit.

    Raises:
        InvalidInput: a column is missing, or has a wrong type or value; the session runs on a cluster and no ``folder``
            is given.
        TaskFailed: a Spark task failed.
    """
    session = ledger.sparkSession
    if buckets is None:
        buckets = min(MAX_BUCKETS, _BUCKETS_A_CORE * session.sparkContext.defaultParallelism)
    if folder is None and not (session.sparkContext.master or "").startswith("local"):
        raise InvalidInput("folder: on a cluster, name one that the driver and all workers can write")
    windows = _read_table(observed, OBSERVED_SCHEMA, "observed")
    promised = _read_table(promises, PROMISES_SCHEMA, "promises")
    frames = {"ledger": ledger, "headers": headers, "watermarks": watermarks, "value": value}
    given = {
        table: _select_columns(frame, table_schema(table), table)
        for table, frame in frames.items()
        if frame is not None
    }
    with tempfile.TemporaryDirectory(prefix="causeway-", dir=folder) as place:
        stored = create_ledger(f"{place}/ledger", buckets)
        writer = LedgerWriter(stored)
        job = IngestJob(stored.storage, MappingDocument.model_construct(), buckets, writer.prefix)
        bounds = HeightBounds()
        for table, frame in given.items():
            runs = _spool_rows(frame, job, table, bounds)
            present = sorted({bucket for run in runs for bucket in run.buckets})
            for file in SparkRunner(session).sorted(job, present, runs):
                writer.add(file)
        writer.write("observed", _fill_stated_by(windows))
        writer.write("promises", _fill_stated_by(mark_restarts(promised, bounds.restarted(), REMARKED_COUNTS)))
        committed = stored.after(writer.commit([], {}))
        return FrameAudit(audit_ledger(committed, executor="spark", session=session, limit=limit), session)


def _spool_rows(frame: DataFrame, job: IngestJob, table: str, bounds: HeightBounds) -> list[SpooledRun]:
    """Spool the rows of a table by bucket, and extend ``bounds`` by their blocks."""
    with convert_spark_errors():
        rows = frame.mapInArrow(_BucketSpooler(job, table), "result binary").toArrow()
    found = [result_of(row) for row in rows["result"].to_pylist()]
    for _, own in found:
        bounds.merge(own)
    return [run for runs, _ in found for run in runs]


@dataclass(frozen=True)
class _BucketSpooler:
    """A Spark task that spools its rows by bucket."""

    job: IngestJob
    table: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        result = run_pickled(partial(self._runs, batches))
        yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])

    def _runs(self, batches: Iterator[pa.RecordBatch]) -> tuple[list[SpooledRun], HeightBounds]:
        bounds = HeightBounds()
        writer = RunWriter(self.job.lake, self.job.folder, self.job.buckets, self.job.run_bytes, self.table)
        for batch in batches:
            rows = to_schema(pa.Table.from_batches([batch]), table_schema(self.table), self.table)
            if self.table == "ledger":
                bounds.add(rows)
            writer.add(_fill_stated_by(rows))
        return writer.end(keep=False), bounds


def _select_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Select the columns of a ledger table; ``what`` names the table in errors.

    Raises:
        InvalidInput: a column is missing, duplicated or of a wrong type.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    require_columns(names, schema, what)
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    for field in schema:
        if field.name in names and kinds[field.name] not in _allowed_types(field.type):
            allowed = " or ".join(_allowed_types(field.type))
            raise InvalidInput(f"{what}: {field.name}: is of type {kinds[field.name]}: must be {allowed}")
    # Select by position: Spark treats names that differ only in case as equal.
    whole = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return whole.select(
        *(F.col(f"c{names.index(field.name)}").alias(field.name) for field in schema if field.name in names)
    )


_WHOLE = ("decimal", "byte", "short", "integer", "long")


def _allowed_types(kind: pa.DataType) -> tuple[str, ...]:
    """Return the Spark types allowed for a column."""
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_timestamp(kind):
        return "timestamp", "timestamp_ntz"
    if pa.types.is_list(kind):
        return ("array",)
    return ("binary",) if pa.types.is_fixed_size_binary(kind) else ("string", "varchar", "char")


def _fill_stated_by(rows: pa.Table) -> pa.Table:
    """Replace a null ``stated_by`` by an empty text, as files require."""
    for place, field in enumerate(rows.schema):
        if field.name in OPTIONAL and rows[place].null_count:
            rows = rows.set_column(place, field, rows[place].cast(pa.string()).fill_null("").cast(field.type))
    return rows


def _read_table(given: DataFrame | pa.Table | None, schema: pa.Schema, what: str) -> pa.Table:
    """Read a small ledger table from a DataFrame or an Arrow table; None gives an empty table.

    Raises:
        InvalidInput: a column is missing, duplicated or of a wrong type.
    """
    if given is None:
        return schema.empty_table()
    table = given if isinstance(given, pa.Table) else _select_columns(given, schema, what).toArrow()
    return to_schema(table, schema, what)


__all__ = ["FrameAudit", "audit_frame"]
