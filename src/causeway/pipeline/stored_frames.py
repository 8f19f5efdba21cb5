"""Tables as DataFrames of anyone's Spark session: those in memory, and those of a stored ledger, a task a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from causeway.pipeline.ledger_commits import schema_of
from causeway.pipeline.ledger_store import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(session: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table in memory as a DataFrame; names are strings, unsigned numbers decimals."""
    return session.createDataFrame(table.cast(_plain(table.schema)))


def stored_frame(session: SparkSession, ledger: Ledger, table: str) -> DataFrame:
    """Return a table of a stored ledger that lies in buckets as a DataFrame, each event once; types as of ``frame_of``.

    A task reads a bucket, and compares it with its seal. What is damaged ends the query.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    wanted = _plain(schema_of(table))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket in batch.column(0).to_pylist():
                rows = ledger.rows(bucket, table=table)
                yield from rows.cast(wanted).to_batches(max_chunksize=_BATCH)

    numbers = session.range(0, ledger.buckets, 1, ledger.buckets)
    return numbers.mapInArrow(read, from_arrow_schema(wanted))


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


__all__ = ["frame_of", "stored_frame"]
