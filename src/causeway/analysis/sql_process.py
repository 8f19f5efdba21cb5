"""The child process of a query: DuckDB without access to files of other tables.

Requests are lines of JSON: first the query with its tables, then their files. Answers are lines (the tables that the
query names; the start of the result) and a stream of Arrow. Errors of the query are in an answer or, while it runs, in
the last line on standard error. The process ends with its parent.
"""

from __future__ import annotations

import json
import os
import re
import sys
from base64 import b64decode
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from causeway.ledger.schema import LIMBS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH = 1 << 16
"""Rows of a batch of the result."""


def serve_query() -> None:
    """Answer one query, and end the process."""
    try:
        _answer()
        sys.stdout.buffer.flush()
    except (duckdb.Error, pa.ArrowException) as error:
        sys.stderr.write(_error_text(error))
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _answer() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    tables = {name: pa.ipc.read_schema(pa.py_buffer(b64decode(text))) for name, text in request["tables"].items()}
    try:
        _send({"named": _find_tables(tables, request["sql"])})
    except (_NoQuery, duckdb.Error) as error:
        _send({"error": f"--sql: {error if isinstance(error, _NoQuery) else _error_text(error)}"})
        return
    files = json.loads(sys.stdin.buffer.readline())["files"]
    Thread(target=_end_with_parent, daemon=True).start()
    connection = _connect(request["folder"], [path for paths in files.values() for path in paths], request["memory"])
    for name, schema in tables.items():
        _define(connection, name, schema, files.get(name))
    _isolate(connection)
    try:
        reader = connection.sql(request["sql"]).to_arrow_reader(BATCH)
    except duckdb.Error as error:
        _send({"error": f"--sql: {_error_text(error)}"})
        return
    _send({"named": []})
    with pa.ipc.new_stream(sys.stdout.buffer, reader.schema) as stream:
        for batch in reader:
            stream.write_batch(batch)


def _send(answer: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(f"{json.dumps(answer)}\n".encode())
    sys.stdout.buffer.flush()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


class _NoQuery(Exception):
    """The text is not exactly one query."""


def _error_text(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    selected = lines[:1] + [line for line in lines[1:] if line.startswith(("Candidate", "Did you mean", "HINT"))]
    return " ".join(selected) or type(error).__name__


def _find_tables(tables: Mapping[str, pa.Schema], sql: str) -> list[str]:
    """Return the tables named in a query.

    Raises:
        _NoQuery: the text is not exactly one query. Errors of DuckDB pass through.
    """
    connection = _connect(None, [], None)
    try:
        for name, schema in tables.items():
            _define(connection, name, schema, _NO_ROWS)
        _isolate(connection)
        kinds = [_kind(statement) for statement in connection.extract_statements(sql)]
        if kinds == ["MULTI"]:
            raise _NoQuery("pivot: name the values: pivot ledger on event in ('sent', 'received')")
        if kinds != ["SELECT"]:
            what = "several statements" if len(kinds) > 1 else kinds[0] if kinds else "nothing"
            raise _NoQuery(f"{what}; allowed: one query, such as select count(*) from ledger")
        connection.sql(sql)  # binds names: reports unknown ones before any table is read
        words = {word.lower() for word in _WORD.findall(sql)}
        return [name for name in tables if name.lower() in words]
    finally:
        connection.close()


def _kind(statement: Any) -> str:
    """Return the name of a statement's kind; kinds unknown to DuckDB's Python have no name."""
    try:
        return str(statement.type.name)
    except ValueError:
        return "another kind of statement"


def _connect(folder: str | None, files: list[str], memory: int | None) -> DuckDBPyConnection:
    connection: DuckDBPyConnection = duckdb.connect(":memory:")
    settings = {
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "timezone": "'UTC'",
        **({} if memory is None else {"memory_limit": f"'{memory >> 20}MiB'"}),
        "temp_directory": _quote("" if folder is None else os.path.join(folder, "spilled")),
        "allowed_paths": f"[{', '.join(map(_quote, files))}]",
    }
    for name, value in settings.items():
        connection.execute(f"SET {name} = {value}")
    return connection


def _isolate(connection: DuckDBPyConnection) -> None:
    """Forbid file access, extensions and settings from now on."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _define(connection: DuckDBPyConnection, name: str, schema: pa.Schema, files: list[str] | None) -> None:
    """Create a table for a query from files: no files: no rows; None: reading it fails."""
    extra = ""
    if set(LIMBS) <= set(schema.names):
        low, high, *beyond = LIMBS
        fits = " AND ".join(f"{limb} = 0" for limb in beyond) + f" AND {high} < {_HIGH}"
        extra = (
            f", CASE WHEN {fits} THEN ({high}::HUGEINT * 18446744073709551616 + {low})::DECIMAL(38, 0) END AS amount"
        )
    names = ", ".join(f'"{field.name}"' for field in schema)
    if files:
        source = f"read_parquet([{', '.join(map(_quote, files))}], hive_partitioning = false)"
    else:
        nulls = ", ".join(f'NULL::{_type(field.type)} AS "{field.name}"' for field in schema)
        # A query that reaches a table other than by its name must fail, not find it empty.
        unread = "" if files is None else " WHERE false"
        message = _quote(f"{name} was not read: the query must name it")
        source = f"(SELECT {nulls}{unread or f' WHERE error({message})'})"
    connection.execute(f'CREATE VIEW "{name}" AS SELECT {names}{extra} FROM {source}')


_NO_ROWS: list[str] = []
_WORD = re.compile(r"\w+")

_HIGH = 10**38 // 2**64
"""Amounts with a second limb below this have at most 38 digits."""


def _type(kind: pa.DataType) -> str:
    """Return DuckDB's name of a type."""
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    if pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _TYPES[str(kind)]


_TYPES = {
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "binary": "BLOB",
    "large_binary": "BLOB",
    "bool": "BOOLEAN",
    "float": "FLOAT",
    "double": "DOUBLE",
    "duration[us]": "BIGINT",
    **{f"{sign}int{bits}": name for sign, names in (
        ("", ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")), ("u", ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"))
    ) for bits, name in zip((8, 16, 32, 64), names, strict=True)},
}  # fmt: skip


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


__all__ = ["serve_query"]
