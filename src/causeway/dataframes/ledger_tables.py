"""Tables as DataFrames of anyone's Spark session: those in memory, and those of a stored ledger, a task a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from causeway.ledger.commits import table_schema
from causeway.ledger.store import Ledger
from causeway.spark.workers import require_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_to_dataframe(session: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table in memory as a DataFrame; names are strings, unsigned numbers decimals."""
    return session.createDataFrame(table.cast(_plain(table.schema)))


def ledger_dataframe(session: SparkSession, ledger: Ledger, table: str) -> DataFrame:
    """Return a table of a stored ledger that lies in buckets as a DataFrame, each event once; types as of ``frame_of``.

    A task reads a bucket, and compares it with its seal. What is damaged ends the query.
    """

    def read(bucket: int) -> Iterator[pa.Table]:
        yield ledger.rows(bucket, table=table)

    return task_dataframe(session, table_schema(table), ledger.buckets, read)


def task_dataframe(
    session: SparkSession, schema: pa.Schema, tasks: int, read: Callable[[int], Iterable[pa.Table]]
) -> DataFrame:
    """Return rows of a schema that Spark tasks read, by the number of each, as a DataFrame; types as of ``frame_of``.

    Unsigned numbers come out of the tasks as signed ones, so that a query does not pay for decimals that it does not
    look at. Raises ``InvalidInput`` where workers of the session cannot read it.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    require_workers(session)
    plain = _plain(schema)
    unsigned = {field.name for field in schema if field.type == pa.uint64()}
    carried = pa.schema([field.with_type(pa.int64()) if field.name in unsigned else field for field in plain])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in read(number):
                    for start in range(0, rows.num_rows, _BATCH):
                        yield from _signed(rows.slice(start, _BATCH), carried).to_batches()

    frame = session.range(0, tasks, 1, max(tasks, 1)).mapInArrow(run, from_arrow_schema(carried))
    columns = []
    for name in schema.names:
        number = F.col(name).cast("decimal(20,0)")
        above = (number + F.expr("18446744073709551616BD")).cast("decimal(20,0)")
        whole = F.when(F.col(name) < 0, above).otherwise(number).alias(name)
        columns.append(whole if name in unsigned else F.col(name))
    return frame.select(*columns)


def _signed(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return rows in which unsigned numbers are the signed ones of the same bits."""
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        kind = wanted.field(name).type
        signed = column.type == pa.uint64()
        columns.append(pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind) if signed else column)
    return pa.table(columns, rows.column_names).cast(wanted)


_BATCH = 1 << 16


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema in types that Spark has."""
    return pa.schema([pa.field(field.name, _type(field.type)) for field in schema])


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return pa.decimal128(20, 0) if kind == pa.uint64() else kind


__all__ = ["ledger_dataframe", "table_to_dataframe", "task_dataframe"]
