"""The audit of Spark DataFrames: their rows become a temporary ledger, which ``audit_ledger`` checks on Spark."""

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
from causeway.spark.tasks import convert_spark_errors, result_of, run_pickled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BUCKETS_A_CORE = 2


@dataclass(frozen=True)
class FrameAudit:
    """What came of an audit of DataFrames: ``audit``, and its tables as DataFrames of the same session, in which
    unsigned numbers are decimals."""

    audit: AuditResult
    session: SparkSession

    @property
    def checks(self) -> dict[str, CheckVerdict]:
        """Return the checks by name."""
        return self.audit.checks

    @property
    def holds(self) -> bool:
        """Return whether no check is violated."""
        return self.audit.holds

    @property
    def violations(self) -> DataFrame:
        """Return the findings."""
        return self._frame(self.audit.violations)

    @property
    def completeness(self) -> DataFrame:
        """Return what the input covers."""
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
        """Return what of each asset left chains for others, and came back."""
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
    """Check a ledger that is a DataFrame, wherever it came from, in its own session.

    Each event counts once, however often it was recorded. Chains whose heights began anew are noticed.

    Args:
        ledger: the columns of ``LEDGER_SCHEMA`` by their names, in any order; those that can be null may be missing.
            Names are strings, numbers any whole ones (decimals without fraction too), ``time`` a timestamp (one without
            time zone is UTC), ``payload_hash`` 32 bytes. Other columns are ignored.
        observed: windows that the input covers (``OBSERVED_SCHEMA``), in the same way; None: none is known.
        promises: what lanes promise (``PROMISES_SCHEMA``); None: nothing.
        headers, watermarks: what chains state of themselves (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).
        value: movements of value (``VALUE_SCHEMA``).
        buckets: into how many tasks the rows are dealt out; default: two a core. The result does not depend on it.
        folder: where the temporary ledger is; by default the system's folder for temporary files. On a cluster, a
            folder that the driver and all workers can write.
        limit: how many findings of one lane, check and reason are named; all are counted.

    Raises:
        InvalidInput: a column is missing, has another type or a value that does not fit; the session is that of a
            cluster, and there is no ``folder``.
        TaskFailed: a Spark task failed.
    """
    session = ledger.sparkSession
    if buckets is None:
        buckets = min(MAX_BUCKETS, _BUCKETS_A_CORE * session.sparkContext.defaultParallelism)
    if folder is None and not (session.sparkContext.master or "").startswith("local"):
        raise InvalidInput("folder: on a cluster, name one that the driver and all workers can write")
    windows = _given_table(observed, OBSERVED_SCHEMA, "observed")
    promised = _given_table(promises, PROMISES_SCHEMA, "promises")
    frames = {"ledger": ledger, "headers": headers, "watermarks": watermarks, "value": value}
    given = {
        table: _chosen_columns(frame, table_schema(table), table)
        for table, frame in frames.items()
        if frame is not None
    }
    with tempfile.TemporaryDirectory(prefix="causeway-", dir=folder) as place:
        stored = create_ledger(f"{place}/ledger", buckets)
        writer = LedgerWriter(stored)
        job = IngestJob(stored.storage, MappingDocument.model_construct(), buckets, writer.prefix)
        bounds = HeightBounds()
        for table, frame in given.items():
            runs = _spread(frame, job, table, bounds)
            present = sorted({bucket for run in runs for bucket in run.buckets})
            for file in SparkRunner(session).sorted(job, present, runs):
                writer.add(file)
        writer.write("observed", _named(windows))
        writer.write("promises", _named(mark_restarts(promised, bounds.restarted(), REMARKED_COUNTS)))
        committed = stored.after(writer.commit([], {}))
        return FrameAudit(audit_ledger(committed, executor="spark", session=session, limit=limit), session)


def _spread(frame: DataFrame, job: IngestJob, table: str, bounds: HeightBounds) -> list[SpooledRun]:
    """Write the rows of a table aside by bucket; add the first and last blocks of chains to ``bounds``."""
    with convert_spark_errors():
        rows = frame.mapInArrow(_Spread(job, table), "result binary").toArrow()
    found = [result_of(row) for row in rows["result"].to_pylist()]
    for _, own in found:
        bounds.merge(own)
    return [run for runs, _ in found for run in runs]


@dataclass(frozen=True)
class _Spread:
    """Writes the rows of a task aside by bucket."""

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
            writer.add(_named(rows))
        return writer.end(keep=False), bounds


def _chosen_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Return the columns of a table of the ledger that a DataFrame has; ``what`` is what errors call it.

    Raises ``InvalidInput`` for a column that is missing, there twice or of a type that does not fit.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    require_columns(names, schema, what)
    kinds = {field.name: field.dataType.typeName() for field in frame.schema.fields}
    for field in schema:
        if field.name in names and kinds[field.name] not in _allowed(field.type):
            allowed = " or ".join(_allowed(field.type))
            raise InvalidInput(f"{what}: {field.name}: is of type {kinds[field.name]}: must be {allowed}")
    # By their places: Spark does not tell names apart that differ in case.
    whole = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return whole.select(
        *(F.col(f"c{names.index(field.name)}").alias(field.name) for field in schema if field.name in names)
    )


_WHOLE = ("decimal", "byte", "short", "integer", "long")


def _allowed(kind: pa.DataType) -> tuple[str, ...]:
    """Return the Spark types of which a column can be."""
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_timestamp(kind):
        return "timestamp", "timestamp_ntz"
    if pa.types.is_list(kind):
        return ("array",)
    return ("binary",) if pa.types.is_fixed_size_binary(kind) else ("string", "varchar", "char")


def _named(rows: pa.Table) -> pa.Table:
    """Return rows with an empty text where a DataFrame does not name who stated them; files have no nulls there."""
    for place, field in enumerate(rows.schema):
        if field.name in OPTIONAL and rows[place].null_count:
            rows = rows.set_column(place, field, rows[place].cast(pa.string()).fill_null("").cast(field.type))
    return rows


def _given_table(given: DataFrame | pa.Table | None, schema: pa.Schema, what: str) -> pa.Table:
    """Return a small table of a ledger that is a DataFrame or a table; None: without rows. Raises ``InvalidInput``."""
    if given is None:
        return schema.empty_table()
    table = given if isinstance(given, pa.Table) else _chosen_columns(given, schema, what).toArrow()
    return to_schema(table, schema, what)


__all__ = ["FrameAudit", "audit_frame"]
