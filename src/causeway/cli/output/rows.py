"""Print rows of a table as a table, JSON lines or CSV, or write a Parquet file."""

from __future__ import annotations

import json
import math
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from causeway.cli.output_paths import refuse_overwrite, require_writable
from causeway.core.arrow_types import to_python_rows
from causeway.core.text import format_lane, shorten_name
from causeway.ledger.schema import LANE, LIMBS

DEFAULT_ROWS = 20
"""Default number of rows on a terminal."""

MAX_WIDTH = 44
"""Maximum characters of a value in a table."""

_FIRST = (
    "why",
    "rank",
    "scope",
    "outcome",
    "took",
    "sent at",
    "tick",
    "time",
    "chain",
    "height",
    "event",
    "kind",
    "lane",
    "index",
    "message_id",
)
_LAST = ("stated_by", "source_file", "source_row", "position", "payload_hash", "transaction")
_BETWEEN = 2
_LANE_OF_A_ROW = "lane"
_NAMES = ("index", "first_index", "last_index", "oldest_pending_index")
"""Columns of numbers that identify something, printed without separators."""


def require_one_format(as_json: bool, as_csv: bool, parquet: Path | None) -> None:
    """Reject more than one output format.

    Args:
        as_json: JSON lines.
        as_csv: CSV.
        parquet: a Parquet file.

    Raises:
        InvalidInput: several are given.
    """
    given = [name for name, is_given in (("--json", as_json), ("--csv", as_csv), ("--parquet", parquet)) if is_given]
    if len(given) > 1:
        raise InvalidInput(f"{', '.join(given)}: give one of them")


def print_json(parts: Iterable[pa.Table]) -> None:
    """Print one JSON object a row.

    Args:
        parts: the rows.
    """
    for part in parts:
        for row in json_rows(part):
            print(json.dumps(row))


def json_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Convert rows to JSON: integer amounts, ISO 8601 times, bytes as hexadecimal digits.

    Args:
        rows: the rows.

    Returns:
        One object a row.
    """
    rows = _to_printable(rows)
    whole = {name for name in rows.column_names if name == "amount"}
    found = to_python_rows(rows)
    return [
        {
            name: int(value) if name in whole and _is_digits(value) else to_json_value(value)
            for name, value in row.items()
        }
        for row in found
    ]


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdecimal()


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON.

    Args:
        value: the value.

    Returns:
        The JSON value.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(key): to_json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(inner) for inner in value]
    return str(value)


def print_csv(parts: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Print rows as CSV with a header. Texts are quoted, null is not; times are ISO 8601.

    Untrusted texts are neutralized for terminals and spreadsheets (``_neutralize``).

    Args:
        parts: the rows.
        schema: their schema.
    """
    from pyarrow.csv import WriteOptions, write_csv

    header = True
    for part in (schema.empty_table(), *parts) if schema.names else parts:
        sink = pa.BufferOutputStream()
        write_csv(
            _neutralize(_texts(_to_printable(part))), sink, WriteOptions(include_header=header, quoting_style="needed")
        )
        header = False
        sys.stdout.write(sink.getvalue().to_pybytes().decode("utf-8", "replace"))


_CONTROLS = ("Cc", "Cf", "Zl", "Zp")
"""Categories of characters that affect a terminal or the display of text."""

_CONTROL = "[" + "".join(rf"\p{{{each}}}" for each in _CONTROLS) + "]"

_FORMULA = r"^\s*[=+\-@\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
"""First characters of spreadsheet formulas; the last four are their fullwidth forms."""

_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?$"


def _neutralize(rows: pa.Table) -> pa.Table:
    """Neutralize texts and column names.

    Control characters are escaped, and a possible spreadsheet formula gets an apostrophe in front.
    """
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            rows = rows.set_column(place, field.name, _neutralize_column(rows.column(place)))
    return rows.rename_columns(
        _neutralize_column(pa.chunked_array([pa.array(rows.column_names, pa.string())])).to_pylist()
    )


def _neutralize_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
        column = pa.chunked_array([pa.array(map(_escape, column.to_pylist()), column.type)])
    formula = pc.and_not(pc.match_substring_regex(column, _FORMULA), pc.match_substring_regex(column, _NUMBER))
    if not pc.any(formula).as_py():
        return column
    quoted = pc.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))
    return pc.if_else(formula, quoted, column)


def _escape(text: str | None) -> str | None:
    if text is None:
        return None
    return "".join(ascii(each)[1:-1] if unicodedata.category(each) in _CONTROLS else each for each in text)


def _texts(rows: pa.Table) -> pa.Table:
    """Convert rows to types of CSV."""
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        kind = column.type
        if pa.types.is_timestamp(kind):
            suffix = "Z" if kind.tz else ""
            text = pc.strftime(column.cast(pa.timestamp(kind.unit)), format="%Y-%m-%dT%H:%M:%S")
            column = pc.binary_join_element_wise(text, suffix, "")
        elif pa.types.is_nested(kind) or pa.types.is_interval(kind):
            values = [None if value is None else json.dumps(to_json_value(value)) for value in column.to_pylist()]
            column = pa.chunked_array([pa.array(values, pa.string())])
        rows = rows.set_column(place, field.name, column)
    return rows


def write_parquet(parts: Iterable[pa.Table], schema: pa.Schema, path: Path) -> int:
    """Write rows as a Parquet file atomically, in their own types.

    Args:
        parts: the rows.
        schema: their schema.
        path: the file.

    Returns:
        The number of rows.
    """
    import pyarrow.parquet as pq

    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count = 0
    try:
        with pq.ParquetWriter(beside, schema, compression="zstd") as writer:
            for part in parts:
                writer.write_table(part.cast(schema))
                count += part.num_rows
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return count


def require_parquet_target(path: Path, lake: str, *, overwrite: bool) -> None:
    """Reject a path that cannot take a Parquet file.

    Args:
        path: the file.
        lake: the lake; its folder is rejected.
        overwrite: allow to replace a file.

    Raises:
        InvalidInput: the path is rejected.
    """
    require_writable("--parquet", path, lake)
    if path.exists() and not path.is_file():
        raise InvalidInput(f"--parquet {path}: is no file")
    refuse_overwrite("--parquet", path, overwrite=overwrite)
    if not path.parent.is_dir():
        raise InvalidInput(f"--parquet {path}: {path.parent} is no folder")


def _to_printable(rows: pa.Table) -> pa.Table:
    """Merge the four limbs of an amount, decode dictionaries, and format bytes as digits."""
    if set(LIMBS) <= set(rows.column_names) and "amount" not in rows.column_names:
        from causeway.ledger.encodings import amount_texts

        try:
            texts = amount_texts([rows[name] for name in LIMBS])
        except ValueError as error:
            raise InvalidInput(f"amount: {error}") from None
        place = rows.column_names.index(LIMBS[0])
        rows = rows.add_column(place, "amount", pa.chunked_array([texts])).drop_columns([*LIMBS])
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_fixed_size_binary(column.type) or pa.types.is_binary(column.type):
            values = [None if value is None else value.hex() for value in column.to_pylist()]
            column = pa.chunked_array([pa.array(values, pa.string())])
        if column is not rows.column(place):
            rows = rows.set_column(place, field.name, column)
    return rows


def distinct_names(schema: pa.Schema) -> pa.Schema:
    """Rename equal columns of a schema: ``count``, ``count_1``.

    Args:
        schema: the schema.

    Returns:
        A schema with distinct names.
    """
    seen: set[str] = set()
    names = []
    for name in schema.names:
        number, chosen = 0, name
        while chosen in seen:
            number += 1
            chosen = f"{name}_{number}"
        seen.add(chosen)
        names.append(chosen)
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


@contextmanager
def limit_rows(parts: Iterable[pa.Table], most: int | None) -> Iterator[Iterator[pa.Table]]:
    """Give the first rows of some parts.

    Args:
        parts: the rows.
        most: maximum number of rows; None: all.

    Yields:
        The rows.
    """

    def first_parts() -> Iterator[pa.Table]:
        left = most
        for part in parts:
            part = part if left is None else part.slice(0, left)
            left = None if left is None else left - part.num_rows
            if part.num_rows:
                yield part
            if left == 0:
                return

    yield first_parts()


def show_rows(console: Console, rows: pa.Table, *, as_stored: bool = False) -> int:
    """Print rows as a table of the most informative columns that fit.

    Args:
        console: the console.
        rows: the rows.
        as_stored: keep the order of columns, and the parts of lanes separate.

    Returns:
        The number of omitted columns.
    """
    columns = _columns(rows, as_stored)
    if not columns:
        return 0
    texts = {name: [_text(name, value) for value in values] for name, values in columns.items()}
    numbers = {name for name, values in columns.items() if all(_is_number(value) for value in values)}
    fitting: list[str] = []
    room = console.width
    for name, cells in texts.items():
        width = min(max(cell_len(text) for text in (name, *cells)), MAX_WIDTH) + _BETWEEN
        if fitting and width > room:
            continue
        fitting.append(name)
        room -= width
    table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="bold")
    for name in fitting:
        side: Literal["right", "left"] = "right" if name in numbers else "left"
        table.add_column(
            escape(shorten_name(name)), justify=side, no_wrap=True, overflow="ellipsis", max_width=MAX_WIDTH
        )
    for place in range(rows.num_rows):
        table.add_row(*(escape(texts[name][place]) for name in fitting))
    console.print(table)
    return len(texts) - len(fitting)


def _columns(rows: pa.Table, as_stored: bool) -> dict[str, list[Any]]:
    """Return the informative columns, the important ones first."""
    shaped = _to_printable(rows)
    plain = to_python_rows(shaped)
    columns = {name: [row[name] for row in plain] for name in shaped.column_names}
    if as_stored:
        return columns
    if set(LANE) <= set(columns):
        lanes = list(zip(*(columns[name] for name in LANE), strict=True))
        columns = {name: values for name, values in columns.items() if name not in LANE}
        columns[_LANE_OF_A_ROW] = [format_lane(lane) for lane in lanes]
    if any(value is not None for value in columns.get("tick", [])):
        columns.pop("time", None)  # in a run the time is derived from the tick
    filled = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    first = [name for name in _FIRST if name in filled]
    middle = [name for name in filled if name not in (*_FIRST, *_LAST)]
    return {name: filled[name] for name in (*first, *middle, *(name for name in _LAST if name in filled))}


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        text = value.replace(microsecond=0, tzinfo=None).isoformat(" ")
        return f"{text}.{value.microsecond // 1000:03}" if value.microsecond else text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if name in _NAMES else f"{value:,}"
    if isinstance(value, float | Decimal):
        return f"{value:,.3f}".rstrip("0").rstrip(".") if math.isfinite(value) else str(value)
    if name == "amount" and _is_digits(value):
        return f"{int(value):,}"
    return shorten_name(value if isinstance(value, str) else json.dumps(to_json_value(value)))


__all__ = [
    "DEFAULT_ROWS",
    "distinct_names",
    "json_rows",
    "limit_rows",
    "print_csv",
    "print_json",
    "require_one_format",
    "require_parquet_target",
    "show_rows",
    "to_json_value",
    "write_parquet",
]  # fmt: skip
