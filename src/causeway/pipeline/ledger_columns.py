"""Tables of a ledger in the types of others: which Spark has for its columns, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.text import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONAL = ("stated_by", "how")
"""Columns that must not be null in a stored ledger, and may be missing here."""

_LARGEST = 2**64 - 1


def chosen_columns(frame: DataFrame, schema: pa.Schema, what: str) -> DataFrame:
    """Return the columns of a table of the ledger that a DataFrame has; ``what`` is what errors call it.

    Raises ``InvalidInput`` for a column that is missing, there twice or of a type that does not fit.
    """
    from pyspark.sql import functions as F

    names = frame.columns
    for field in schema:
        if names.count(field.name) > 1:
            raise InvalidInput(f"{what}: {field.name}: there are two columns of this name")
        if field.name not in names and not field.nullable and field.name not in OPTIONAL:
            needed = [each.name for each in schema if not each.nullable and each.name not in OPTIONAL]
            raise InvalidInput(f"{what}: there is no column {field.name}; needed are {', '.join(needed)}")
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


def given_table(given: DataFrame | pa.Table | None, schema: pa.Schema, what: str) -> pa.Table:
    """Return a small table of a ledger that is a DataFrame or a table; None: without rows. Raises ``InvalidInput``."""
    if given is None:
        return schema.empty_table()
    table = given if isinstance(given, pa.Table) else chosen_columns(given, schema, what).toArrow()
    return as_table(table, schema, what)


def as_table(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Return a table with the columns of a schema, in its types; columns that are not there are null.

    Raises ``InvalidInput`` for a column whose type or value does not fit, or that has nulls and must not.
    """
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, _plain(field.type)).cast(field.type)]))
            continue
        column = rows[field.name]
        if column.null_count and not field.nullable and field.name not in OPTIONAL:
            raise InvalidInput(f"{what}: {field.name}: is null in a row: must not be")
        columns.append(_as_type(column, field, what))
    return pa.table(columns, schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _as_type(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    try:
        if pa.types.is_dictionary(field.type):
            if pa.types.is_dictionary(column.type):
                return column.cast(field.type)
            return column.cast(pa.string()).dictionary_encode().cast(field.type)
        if pa.types.is_timestamp(field.type) and column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidInput(f"{what}: {field.name}: {_misfit(column, field.type)}") from None


def _misfit(column: pa.ChunkedArray, kind: pa.DataType) -> str:
    """Return what does not fit into a column of some type."""
    if kind == pa.uint64() and (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
        for value in column.drop_null():
            number = value.as_py()
            if not 0 <= number <= _LARGEST or number != int(number):
                return f"{number}: must be a whole number from 0 to {_LARGEST}"
    if pa.types.is_fixed_size_binary(kind):
        lengths = pc.binary_length(column.drop_null())
        wrong = [length for length in lengths.unique().to_pylist() if length != kind.byte_width]
        if wrong:
            return f"a value of {wrong[0]} bytes: must be {kind.byte_width}"
    return f"is of type {readable(str(column.type))}: must be {_plain(kind)}"


__all__ = ["OPTIONAL", "as_table", "chosen_columns", "given_table"]
