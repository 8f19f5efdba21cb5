"""Spark types of the lake's columns."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from pyspark.sql import types as T

from causeway.storage.lake import LakeError


@cache
def spark_type(kind: pa.DataType) -> T.DataType:
    """Return the Spark type of a Parquet column of an Arrow type.

    Spark lacks unsigned numbers: each becomes the next larger type, 64-bit ones ``decimal(20,0)``.

    Raises:
        LakeError: Spark cannot read the type.
    """
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return T.BinaryType()
    if pa.types.is_list(kind):
        return T.ArrayType(spark_type(kind.value_type))
    if pa.types.is_timestamp(kind):
        return T.TimestampType() if kind.tz else T.TimestampNTZType()
    found = _TYPES.get(kind)
    if found is None:
        raise LakeError(f"a table has a column of type {kind}, which Spark cannot read")
    return found


_TYPES: dict[pa.DataType, T.DataType] = {
    pa.uint8(): T.ShortType(),
    pa.uint16(): T.IntegerType(),
    pa.uint32(): T.LongType(),
    pa.uint64(): T.DecimalType(20, 0),
    pa.int8(): T.ByteType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    pa.float32(): T.FloatType(),
    pa.float64(): T.DoubleType(),
    pa.bool_(): T.BooleanType(),
    pa.string(): T.StringType(),
    pa.large_string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.large_binary(): T.BinaryType(),
}


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Convert an Arrow schema to Spark's.

    Args:
        schema: The Arrow schema.
    """
    return T.StructType([T.StructField(item.name, spark_type(item.type), nullable=True) for item in schema])


def to_spark_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the columns of a table to a schema.

    Args:
        table: The table.
        schema: The schema.
    """
    columns = [_cast(table[item.name], item.type) for item in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
