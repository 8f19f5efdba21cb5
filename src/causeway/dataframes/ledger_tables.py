"""Arrow tables and stored ledgers as DataFrames of any Spark session, one task a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from causeway.cluster.jobs import spark_context
from causeway.cluster.tasks import convert_spark_errors
from causeway.cluster.workers import require_workers
from causeway.core.arrow_types import plain_type
from causeway.ledger.commits import table_schema
from causeway.ledger.store import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_to_dataframe(session: SparkSession, table: pa.Table) -> DataFrame:
    """Convert an Arrow table to a DataFrame; names become strings, unsigned numbers decimals.

    Args:
        session: the Spark session.
        table: the Arrow table.

    Returns:
        The rows as a DataFrame.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    spark_context(session)  # raises once it was stopped
    with convert_spark_errors():
        limit = int(session.conf.get(_BATCH_ROWS) or 0)
    if limit <= 0:  # without a limit, for which PySpark has no batches
        return task_dataframe(session, table.schema, 1, lambda _: [table])
    plain = to_spark_schema(table.schema)
    if not table.num_rows:  # Spark Connect refuses an Arrow table without rows
        return session.createDataFrame([], from_arrow_schema(plain))
    return session.createDataFrame(table.cast(plain))


def ledger_dataframe(session: SparkSession, ledger: Ledger, table: str) -> DataFrame:
    """Read a bucketed table of a stored ledger, each event once.

    A task reads a bucket and compares it with its seal. A corrupted file fails the query.

    Args:
        session: the Spark session.
        ledger: the ledger as of a commit.
        table: name of the table.

    Returns:
        The rows as a DataFrame; types as of ``table_to_dataframe``.
    """

    def read(bucket: int) -> Iterator[pa.Table]:
        yield ledger.rows(bucket, table=table)

    return task_dataframe(session, table_schema(table), ledger.buckets, read)


def task_dataframe(
    session: SparkSession, schema: pa.Schema, tasks: int, read: Callable[[int], Iterable[pa.Table]]
) -> DataFrame:
    """Build a DataFrame from rows that Spark tasks read, by task number.

    Unsigned numbers leave the tasks as signed ones, so that a query pays for decimals only in the columns it reads.

    Args:
        session: the Spark session.
        schema: the Arrow schema of the rows.
        tasks: number of tasks.
        read: reads the tables of a task.

    Returns:
        The rows as a DataFrame; types as of ``table_to_dataframe``.

    Raises:
        InvalidInput: the session's workers cannot read the source.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    require_workers(session)
    plain = to_spark_schema(schema)
    unsigned = {field.name for field in schema if field.type == pa.uint64()}
    carried = pa.schema([field.with_type(pa.int64()) if field.name in unsigned else field for field in plain])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in read(number):
                    for start in range(0, rows.num_rows, _BATCH):
                        yield from _signed(rows.slice(start, _BATCH), carried).to_batches()

    with convert_spark_errors():  # Spark Connect sends the function at once
        frame = session.range(0, tasks, 1, max(tasks, 1)).mapInArrow(run, from_arrow_schema(carried))
    columns = []
    for name in schema.names:
        number = F.col(name).cast("decimal(20,0)")
        above = (number + F.expr("18446744073709551616BD")).cast("decimal(20,0)")
        whole = F.when(F.col(name) < 0, above).otherwise(number).alias(name)
        columns.append(whole if name in unsigned else F.col(name))
    return frame.select(*columns)


def _signed(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Reinterpret unsigned columns as signed columns of the same bits."""
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        kind = wanted.field(name).type
        signed = column.type == pa.uint64()
        columns.append(pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind) if signed else column)
    return pa.table(columns, rows.column_names).cast(wanted)


_BATCH = 1 << 16
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def to_spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return an Arrow schema of Spark's types: names as strings, unsigned numbers as decimals.

    Args:
        schema: the Arrow schema.
    """
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


__all__ = ["ledger_dataframe", "table_to_dataframe", "task_dataframe", "to_spark_schema"]
