"""SQL over the tables of a stored ledger, by DuckDB: one query that reads, and reaches nothing but these tables.

Of a bucket that lies in one file of the local disk DuckDB reads that file, which is compared with its seal before. All
else (several files of which some rows count, an object store, what is made of the ledger) is written for the query into
a folder of its own, bucket by bucket. Only the tables that a query names are touched.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from causeway.figures.codes import CODES_SCHEMA
from causeway.figures.delays import LATENCY_SCHEMA
from causeway.figures.fees import FEES_SCHEMA
from causeway.figures.figures import Figures
from causeway.figures.flow import BACKLOG_SCHEMA
from causeway.figures.lanes import CHAINS_SCHEMA, LANES_SCHEMA
from causeway.figures.messages import MESSAGES_SCHEMA
from causeway.figures.pace import PACE_SCHEMA
from causeway.figures.where import EVERYTHING, Where
from causeway.figures.worst import WORST_SCHEMA
from causeway.ledger.schema import LIMBS, TABLES
from causeway.model.errors import InvalidInput
from causeway.model.text import is_text
from causeway.pipeline.ledger_figures import MessageReader, figures_of
from causeway.pipeline.ledger_select import BUCKETED
from causeway.pipeline.ledger_store import Ledger, LedgerDamaged, StoredFile
from causeway.pipeline.sealed import FileDamaged

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Progress = Callable[[int, int], None]
Value = TypeVar("Value")

EXTRA = "causeway[sql]"
"""What to install for it."""

BATCH = 1 << 16
"""Rows of a result that are handed out at once."""

_LEAST_MEMORY = 256 << 20
_THREADS = 4
_AS_STORED = ("ledger", "headers", "watermarks")
"""Tables of which the only file of a bucket has just the rows that count."""


@dataclass(frozen=True)
class View:
    """A table that a query may name.

    ``pieces``: so many times ``read`` is called, with the number of the piece, for all its rows, one part after the
    other. ``file``: returns the path of a file that has just the rows of a piece and was verified, None where there is
    none.
    """

    schema: pa.Schema
    pieces: int
    read: Callable[[int], Iterable[pa.Table]]
    file: Callable[[int], str | None] = lambda piece: None


def views_of(ledger: Ledger) -> dict[str, View]:
    """Return the tables of a ledger, its messages and calls, and its figures (``figures.Figures``)."""
    found = {name: _view(ledger, name) for name in TABLES}
    for name, where in (("messages", EVERYTHING), ("calls", Where(calls=True))):
        found[name] = _messages(ledger, where)
    once = _Once(lambda: figures_of(ledger))
    for name, schema in FIGURES.items():
        found[name] = View(schema, 1, partial(_figure, once, name))
    return found


FIGURES = {
    "lanes": LANES_SCHEMA,
    "latency": LATENCY_SCHEMA,
    "latency_over_time": PACE_SCHEMA,
    "backlog": BACKLOG_SCHEMA,
    "worst": WORST_SCHEMA,
    "fees": FEES_SCHEMA,
    "codes": CODES_SCHEMA,
    "chains": CHAINS_SCHEMA,
}
"""The figures of a ledger that are tables."""

SCHEMAS: Mapping[str, pa.Schema] = {**TABLES, "messages": MESSAGES_SCHEMA, "calls": MESSAGES_SCHEMA, **FIGURES}
"""The tables of a ledger, and those that are made of it."""


class _Once(Generic[Value]):
    """What is made when it is first asked for, by whichever thread."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make, self._lock = make, Lock()
        self._made: list[Value] = []

    def __call__(self) -> Value:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
        return self._made[0]


def _figure(figures: _Once[Figures], name: str, piece: int) -> list[pa.Table]:
    return [getattr(figures(), name)]


def _messages(ledger: Ledger, where: Where) -> View:
    reader = _Once(lambda: MessageReader.of(ledger, where))
    return View(MESSAGES_SCHEMA, ledger.buckets, lambda bucket: reader().rows(bucket))


def _view(ledger: Ledger, table: str) -> View:
    if table not in BUCKETED:
        return View(TABLES[table], 1, lambda piece: [ledger.table(table)])

    def file(bucket: int) -> str | None:
        if table not in _AS_STORED or not ledger.storage.is_local or ledger.loose(bucket, table) is not None:
            return None
        found = [each for each in ledger.files(table, bucket) if each.bucket is not None]
        return _verified(ledger, found[0]) if len(found) == 1 else None

    return View(TABLES[table], ledger.buckets, lambda bucket: [ledger.rows(bucket, table=table)], file)


def _verified(ledger: Ledger, file: StoredFile) -> str:
    try:
        ledger.storage.verify(file.path, file.seal)
    except FileDamaged as error:
        raise LedgerDamaged(str(error)) from None
    return ledger.storage.absolute(file.path)


@contextmanager
def query(
    views: Mapping[str, View],
    sql: str,
    *,
    memory: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Give the result of one query over some tables, which ends with the ``with`` statement.

    Args:
        views: the tables that it may name; a table with amounts also has the column ``amount`` (``DECIMAL``; null above
            10^38 - 1, where the limbs have it).
        sql: one query: ``SELECT``, ``FROM``, ``WITH``, ``SHOW TABLES``, ``DESCRIBE ledger``, ``SUMMARIZE ledger``.
        memory: bytes that it may take; beyond that it uses the disk. Default: half of what is free.
        seconds: so long it takes at most, with what is done with its rows, once its tables are there; default: no end.
        progress: told how many pieces of the tables are ready, and of how many.

    Raises:
        InvalidInput: DuckDB is not installed, the text is no such query, or the query fails or takes too long.
        LedgerDamaged: a file is not what was written.
    """
    duckdb = _duckdb()
    if not is_text(sql):
        raise InvalidInput(f"--sql: {sql!a}: is no text in UTF-8")
    with tempfile.TemporaryDirectory(prefix="causeway-sql-") as folder:
        files = _files(views, _named(duckdb, views, sql), folder, progress)
        connection = _connected(duckdb, folder, [path for paths in files.values() for path in paths], memory)
        try:
            for name, view in views.items():
                _define(connection, name, view.schema, files.get(name))
            _close_off(connection)
            with ThreadPoolExecutor(1, "causeway-sql") as thread:
                end = None if seconds is None else time.monotonic() + seconds

                def call(what: Callable[[], Value]) -> Value:
                    left = None if end is None else max(end - time.monotonic(), 0.0)
                    try:
                        return _waited(duckdb, connection, thread.submit(what), left)
                    except TimeoutError:
                        raise InvalidInput(f"--timeout {seconds:g}: the query takes longer") from None

                reader = call(lambda: connection.sql(sql).to_arrow_reader(BATCH))
                try:
                    yield pa.RecordBatchReader.from_batches(reader.schema, _batches(call, reader))
                finally:
                    connection.interrupt()
        finally:
            connection.close()


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError:
        raise InvalidInput(f"--sql: needs DuckDB, which is not installed: pip install '{EXTRA}'") from None
    module: ModuleType = duckdb
    return module


def _batches(call: Callable[[Callable[[], Any]], Any], reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while (batch := call(lambda: next(reader, None))) is not None:
        yield batch


def _waited(duckdb: ModuleType, connection: DuckDBPyConnection, running: Future[Value], seconds: float | None) -> Value:
    """Return what a call in another thread gives; an interrupt ends it, and so does what takes longer than it may
    (``TimeoutError``)."""
    try:
        return running.result(seconds)
    except (KeyboardInterrupt, TimeoutError):
        connection.interrupt()
        running.exception()
        raise
    except (duckdb.Error, pa.ArrowException) as error:
        raise InvalidInput(f"--sql: {_said(error)}") from None


def _said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = lines[:1] + [line for line in lines[1:] if line.startswith(("Candidate", "Did you mean", "HINT"))]
    return " ".join(kept) or type(error).__name__


def _named(duckdb: ModuleType, views: Mapping[str, View], sql: str) -> list[str]:
    """Return which tables a text names that is one query. Raises ``InvalidInput`` for what is none."""
    connection = _connected(duckdb, None, [], None)
    try:
        for name, view in views.items():
            _define(connection, name, view.schema, _NO_ROWS)
        _close_off(connection)
        statements = connection.extract_statements(sql)
        kinds = [_kind(statement) for statement in statements]
        if kinds == ["MULTI"]:
            raise InvalidInput("--sql: pivot: name the values: pivot ledger on event in ('sent', 'received')")
        if kinds != ["SELECT"]:
            what = "several statements" if len(kinds) > 1 else kinds[0] if kinds else "nothing"
            raise InvalidInput(f"--sql: {what}; allowed: one query, such as select count(*) from ledger")
        connection.sql(sql)  # binds names, so that what is wrong with them is said before any table is read
        words = {word.lower() for word in _WORD.findall(sql)}
        return [name for name in views if name.lower() in words]
    except duckdb.Error as error:
        raise InvalidInput(f"--sql: {_said(error)}") from None
    finally:
        connection.close()


def _kind(statement: Any) -> str:
    """Return the name of the kind of a statement; those that DuckDB's Python does not know have none."""
    try:
        return str(statement.type.name)
    except ValueError:
        return "another kind of statement"


def _files(views: Mapping[str, View], named: list[str], folder: str, progress: Progress | None) -> dict[str, list[str]]:
    """Return the files that have the rows of some tables, made where need be."""
    pieces = [(name, piece) for name in named for piece in range(views[name].pieces)]
    found: dict[str, list[str]] = {name: [] for name in named}

    def ready(asked: tuple[str, int]) -> str:
        name, piece = asked
        return views[name].file(piece) or _written(views[name], piece, os.path.join(folder, f"{name}-{piece}.parquet"))

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS), "causeway-tables") as threads:
        waiting = [threads.submit(ready, each) for each in pieces]
        try:
            for number, (asked, running) in enumerate(zip(pieces, waiting, strict=True), 1):
                found[asked[0]].append(running.result())
                if progress is not None:
                    progress(number, len(pieces))
        finally:
            for running in waiting:
                running.cancel()
    return found


def _written(view: View, piece: int, path: str) -> str:
    with pq.ParquetWriter(path, view.schema, compression="lz4") as writer:
        for part in view.read(piece):
            writer.write_table(part.cast(view.schema), row_group_size=1 << 17)
    return path


def _connected(duckdb: ModuleType, folder: str | None, files: list[str], memory: int | None) -> DuckDBPyConnection:
    bound = max(memory or psutil.virtual_memory().available // 2, _LEAST_MEMORY)
    connection: DuckDBPyConnection = duckdb.connect(":memory:")
    settings = {
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "timezone": "'UTC'",
        "memory_limit": f"'{bound >> 20}MiB'",
        "temp_directory": _quoted("" if folder is None else os.path.join(folder, "spilled")),
        "allowed_paths": f"[{', '.join(map(_quoted, files))}]",
    }
    for name, value in settings.items():
        connection.execute(f"SET {name} = {value}")
    return connection


def _close_off(connection: DuckDBPyConnection) -> None:
    """Let nothing that follows reach a file, load an extension or change a setting."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _define(connection: DuckDBPyConnection, name: str, schema: pa.Schema, files: list[str] | None) -> None:
    """Make a table for a query: of files; of none it has no rows; None: reading it fails."""
    extra = ""
    if set(LIMBS) <= set(schema.names):
        low, high, *beyond = LIMBS
        fits = " AND ".join(f"{limb} = 0" for limb in beyond) + f" AND {high} < {_HIGH}"
        extra = (
            f", CASE WHEN {fits} THEN ({high}::HUGEINT * 18446744073709551616 + {low})::DECIMAL(38, 0) END AS amount"
        )
    names = ", ".join(f'"{field.name}"' for field in schema)
    if files:
        source = f"read_parquet([{', '.join(map(_quoted, files))}], hive_partitioning = false)"
    else:
        nulls = ", ".join(f'NULL::{_type(field.type)} AS "{field.name}"' for field in schema)
        # A query that comes to a table by another way than its name, which was looked for, must not find it empty.
        unread = "" if files is None else " WHERE false"
        said = _quoted(f"{name} was not read: the query must name it")
        source = f"(SELECT {nulls}{unread or f' WHERE error({said})'})"
    connection.execute(f'CREATE VIEW "{name}" AS SELECT {names}{extra} FROM {source}')


_NO_ROWS: list[str] = []
_WORD = re.compile(r"\w+")

_HIGH = 10**38 // 2**64
"""Amounts with a second limb below this have at most 38 digits."""


def _type(kind: pa.DataType) -> str:
    """Return what DuckDB calls a type."""
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


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


__all__ = ["EXTRA", "SCHEMAS", "View", "query", "views_of"]
