"""Tables of a ledger that came from elsewhere, in the types that they have here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.text import to_one_line

OPTIONAL = ("stated_by", "how")
"""Columns that must not be null in a stored ledger, and may be missing here."""

_LARGEST = 2**64 - 1
_MICROSECONDS = pa.timestamp("us", "UTC")
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999


def require_columns(names: Sequence[str], schema: pa.Schema, what: str) -> None:
    """Raise ``InvalidInput`` for a column of a schema that is missing, or there twice. ``names``: those that are there;
    ``what``: what errors call the table."""
    for field in schema:
        if names.count(field.name) > 1:
            raise InvalidInput(f"{what}: {field.name}: there are two columns of this name")
        if field.name not in names and not field.nullable and field.name not in OPTIONAL:
            needed = [each.name for each in schema if not each.nullable and each.name not in OPTIONAL]
            raise InvalidInput(f"{what}: there is no column {field.name}; needed are {', '.join(needed)}")


def conform_table(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Return a table from elsewhere as ``as_table`` does; without rows it needs no columns. Raises ``InvalidInput``."""
    if not isinstance(rows, pa.Table):
        raise InvalidInput(f"{what}: is a {type(rows).__name__}: must be an Arrow table")
    if rows.schema.equals(schema):
        return rows
    if rows.num_rows:
        require_columns(rows.column_names, schema, what)
    return to_schema(rows, schema, what)


def align_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns of a schema, in its types; null in those that a file of an earlier format lacks.

    Raises ``ArrowInvalid`` for a null in a column that must have none.
    """
    there = set(rows.column_names)
    for field in schema:
        if field.name in there and not field.nullable and rows[field.name].null_count:
            raise pa.ArrowInvalid(f"{field.name} is null in a row")
    columns = [
        rows[field.name].cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def to_schema(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Return a table with the columns of a schema, in its types; columns that are not there are null.

    Raises ``InvalidInput`` for a column whose type or value does not fit, or that has nulls and must not.
    """
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, value_type(field.type)).cast(field.type)]))
            continue
        column = rows[field.name]
        if column.null_count and not field.nullable and field.name not in OPTIONAL:
            raise InvalidInput(f"{what}: {field.name}: is null in a row: must not be")
        columns.append(_as_type(column, field, what))
    return pa.table(columns, schema)


def to_python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python has them. A time in none of its years, 1 to 9999, is None, as one that was not seen."""
    return list(null_invalid_years(rows).to_pylist())


def null_invalid_years(rows: pa.Table) -> pa.Table:
    """Return rows without times that are in none of Python's years: null in their place."""
    for place, field in enumerate(rows.schema):
        if not pa.types.is_timestamp(field.type):
            continue
        times = rows[field.name].cast(_MICROSECONDS).cast(pa.int64())
        far = pc.or_(pc.less(times, _FIRST_TIME), pc.greater(times, _LAST_TIME))
        if pc.any(far).as_py():
            rows = rows.set_column(place, field, pc.if_else(far, pa.scalar(None, field.type), rows[field.name]))
    return rows


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, whether or not a dictionary encodes them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _as_type(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    try:
        if pa.types.is_dictionary(field.type):
            if pa.types.is_dictionary(column.type):
                return column.cast(field.type)
            return column.cast(pa.string()).dictionary_encode().cast(field.type)
        if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = pc.assume_timezone(column, "UTC")
        if pa.types.is_fixed_size_binary(field.type) and not pa.types.is_null(column.type):
            if not _is_bytes(column.type):
                raise pa.ArrowInvalid(f"{column.type} is no binary")
            column = column.cast(pa.binary())
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InvalidInput(f"{what}: {field.name}: {_misfit(column, field.type)}") from None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _misfit(column: pa.ChunkedArray, kind: pa.DataType) -> str:
    """Return what does not fit into a column of some type."""
    if kind == pa.uint64() and (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
        for value in column.drop_null():
            number = value.as_py()
            if not 0 <= number <= _LARGEST or number != int(number):
                return f"{number}: must be a whole number from 0 to {_LARGEST}"
    if pa.types.is_fixed_size_binary(kind) and _is_bytes(column.type):
        lengths = pc.binary_length(column.drop_null())
        wrong = [length for length in lengths.unique().to_pylist() if length != kind.byte_width]
        if wrong:
            return f"a value of {wrong[0]} bytes: must be {kind.byte_width}"
    return f"is of type {to_one_line(str(column.type))}: must be {value_type(kind)}"


__all__ = [
    "OPTIONAL",
    "conform_table",
    "null_invalid_years",
    "require_columns",
    "to_python_rows",
    "to_schema",
    "value_type",
]
