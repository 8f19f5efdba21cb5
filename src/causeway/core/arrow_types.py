"""Conversion of foreign Arrow tables to ledger schemas; errors name the column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.text import shorten_name, to_one_line

OPTIONAL = ("stated_by", "how")
"""Columns that are required in a stored ledger but optional in foreign tables."""

_LARGEST = 2**64 - 1
_MICROSECONDS = pa.timestamp("us", "UTC")
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999


def require_columns(names: Sequence[str], schema: pa.Schema, what: str) -> None:
    """Check that a table has the columns of a schema, each once and in its spelling.

    Args:
        names: Columns of the table.
        schema: The schema.
        what: Name of the table, for errors.

    Raises:
        InvalidInput: A column is missing, repeated, or spelled otherwise.
    """
    written = {name.lower(): name for name in schema.names}
    for name in names:
        column = written.get(name.lower(), name)
        if column not in names:
            raise InvalidInput(f"{what}: {to_one_line(name)}: the column of this name is written {column}")
    require_unique(names, schema, what)
    for field in schema:
        if field.name not in names and not field.nullable and field.name not in OPTIONAL:
            needed = [each.name for each in schema if not each.nullable and each.name not in OPTIONAL]
            raise InvalidInput(f"{what}: there is no column {field.name}; needed are {', '.join(needed)}")


def require_unique(names: Sequence[str], schema: pa.Schema, what: str) -> None:
    """Check that a table has no column of a schema twice.

    Args:
        names: Columns of the table.
        schema: The schema.
        what: Name of the table, for errors.

    Raises:
        InvalidInput: A column is repeated.
    """
    for name in schema.names:
        if names.count(name) > 1:
            raise InvalidInput(f"{what}: {name}: there are two columns of this name")


def conform_table(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Convert a foreign table as ``to_schema``; an empty one needs no columns.

    Args:
        rows: The table.
        schema: The schema.
        what: Name of the table, for errors.

    Raises:
        InvalidInput: It is not an Arrow table, or does not fit the schema.
    """
    if not isinstance(rows, pa.Table):
        raise InvalidInput(f"{what}: is a {type(rows).__name__}: must be an Arrow table")
    if rows.num_rows:
        require_columns(rows.column_names, schema, what)
    else:
        require_unique(rows.column_names, schema, what)
    return to_schema(rows, schema, what)


def align_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to a schema; columns missing in earlier formats become null.

    Args:
        rows: The rows.
        schema: The schema.

    Raises:
        ArrowInvalid: A required column has nulls.
    """
    present = set(rows.column_names)
    for field in schema:
        if field.name in present and not field.nullable and rows[field.name].null_count:
            raise pa.ArrowInvalid(f"{field.name} is null in a row")
    columns = [
        rows[field.name].cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def to_schema(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Cast a table to a schema; missing columns become null.

    Args:
        rows: The table.
        schema: The schema.
        what: Name of the table, for errors.

    Raises:
        InvalidInput: A type or value does not fit, or a required column has nulls.
    """
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, value_type(field.type)).cast(field.type)]))
            continue
        column = rows[field.name]
        if column.null_count and not field.nullable and field.name not in OPTIONAL:
            raise InvalidInput(f"{what}: {field.name}: is null in a row: must not be")
        columns.append(_cast(column, field, what))
    return pa.table(columns, schema)


def to_python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Convert rows to Python; times outside the years 1 to 9999 become None.

    Args:
        rows: The rows.
    """
    return list(null_invalid_years(rows).to_pylist())


def null_invalid_years(rows: pa.Table) -> pa.Table:
    """Replace times outside Python's years 1 to 9999 by null.

    Args:
        rows: The rows.
    """
    for place, field in enumerate(rows.schema):
        if not pa.types.is_timestamp(field.type):
            continue
        times = rows[field.name].cast(_MICROSECONDS).cast(pa.int64())
        out_of_range = pc.or_(pc.less(times, _FIRST_TIME), pc.greater(times, _LAST_TIME))
        if pc.any(out_of_range).as_py():
            rows = rows.set_column(
                place, field, pc.if_else(out_of_range, pa.scalar(None, field.type), rows[field.name])
            )
    return rows


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, decoding dictionaries.

    Args:
        kind: Type of the column.
    """
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in other systems: text for dictionaries, decimals for unsigned numbers.

    Args:
        kind: Type of the column in a ledger or lake.
    """
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return pa.decimal128(20, 0) if kind == pa.uint64() else kind


def fill_optional(rows: pa.Table) -> pa.Table:
    """Replace nulls of ``OPTIONAL`` columns by an empty text, as files require.

    Args:
        rows: The rows.
    """
    for place, field in enumerate(rows.schema):
        if field.name in OPTIONAL and rows[place].null_count:
            rows = rows.set_column(place, field, rows[place].cast(pa.string()).fill_null("").cast(field.type))
    return rows


def require_types(found: pa.Schema, schema: pa.Schema, what: str) -> None:
    """Check that the columns of a foreign table have types that ``to_schema`` converts without a change of value.

    Args:
        found: Columns of the table; missing ones are not checked.
        schema: The schema.
        what: Name of the table, for errors.

    Raises:
        InvalidInput: A column has another type.
    """
    for field in schema:
        if field.name in found.names and _type_family(found.field(field.name).type) != _type_family(field.type):
            text = to_one_line(str(found.field(field.name).type))
            raise InvalidInput(f"{what}: {field.name}: is of type {text}: must be {plain_type(field.type)}")


def _type_family(kind: pa.DataType) -> str:
    kind, types = value_type(kind), pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return f"list of {_type_family(kind.value_type)}"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_timestamp(kind):
        return "time"
    if types.is_integer(kind) or types.is_decimal(kind):
        return "number"
    return "bytes" if _is_bytes(kind) or types.is_binary_view(kind) else str(kind)


def is_utf8(column: pa.Array) -> bool:
    """Return True if all texts of a column, or all entries of its dictionary, are UTF-8.

    Args:
        column: Texts, bytes or a dictionary of them.
    """
    values = column.dictionary if pa.types.is_dictionary(column.type) else column
    try:
        values.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def require_utf8(column: pa.Array | pa.ChunkedArray, place: str) -> None:
    """Check that the texts of a column are UTF-8; Spark and Arrow may hold others.

    Args:
        column: Texts or bytes, lists or a dictionary of them; columns of other types are not checked.
        place: Place of the column, for errors.

    Raises:
        InvalidInput: A text is not UTF-8.
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        values = chunk
        while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            values = values.flatten()
        values = values.dictionary if pa.types.is_dictionary(values.type) else values
        if _type_family(values.type) in ("text", "bytes") and not is_utf8(values):
            for octets in values.cast(pa.large_binary()).drop_null().to_pylist():
                text = octets.decode("utf-8", "backslashreplace")
                if text.encode() != octets:
                    raise InvalidInput(f"{place}: {shorten_name(text)}: must be UTF-8")


def _cast(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    if _type_family(field.type) in ("text", "list of text"):
        require_utf8(column, f"{what}: {field.name}")
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
        if pa.types.is_list(field.type) and _type_family(column.type) not in (_type_family(field.type), "list of null"):
            raise pa.ArrowInvalid(f"{column.type} has other elements")
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InvalidInput(f"{what}: {field.name}: {_misfit(column, field.type)}") from None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _misfit(column: pa.ChunkedArray, kind: pa.DataType) -> str:
    """Describe the first value that does not fit a type."""
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
    "fill_optional",
    "is_utf8",
    "null_invalid_years",
    "plain_type",
    "require_columns",
    "require_types",
    "require_unique",
    "require_utf8",
    "to_python_rows",
    "to_schema",
    "value_type",
]
