"""Run a SQL query over the tables of a stored ledger with DuckDB.

DuckDB runs in a child process without access to anything else. It reads a bucket's file directly if it is a single file
on the local disk, after a comparison with its seal. All other tables (several files with superseded rows, an object
store, derived tables) are first written to a temporary folder, bucket by bucket. Only the tables named in the query are
prepared.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from subprocess import PIPE
from threading import Lock, Timer
from typing import Any, Generic, Self, TypeVar

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput

from causeway.analysis.figures.fees import FEES_SCHEMA
from causeway.analysis.figures.figures import LedgerFigures
from causeway.analysis.figures.filters import ALL_MESSAGES, MessageFilter
from causeway.analysis.figures.lanes import CHAINS_SCHEMA, LANES_SCHEMA
from causeway.analysis.figures.latency import LATENCY_SCHEMA
from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA, WORST_SCHEMA
from causeway.analysis.figures.outcomes import CODES_SCHEMA
from causeway.analysis.figures.over_time import BACKLOG_SCHEMA, PACE_SCHEMA
from causeway.analysis.stored_figures import MessageReader, compute_figures
from causeway.core.text import is_text
from causeway.ledger.schema import TABLES
from causeway.ledger.search import BUCKETED
from causeway.ledger.store import Ledger, StoredFile

QueryProgress = Callable[[int, int], None]
SqlValue = TypeVar("SqlValue")

EXTRA_PACKAGE = "causeway[sql]"
"""The distribution extra with DuckDB."""

_MIN_MEMORY = 256 << 20
_THREADS = 4
_AS_STORED = ("ledger", "headers", "watermarks")
"""Tables whose single bucket file has exactly the valid rows."""


@dataclass(frozen=True)
class SqlView:
    """A table available to a query.

    Attributes:
        pieces: number of parts.
        read: reads the rows of a part, by its number.
        file: returns the path of a verified file with exactly the rows of a part; None without such a file.
    """

    schema: pa.Schema
    pieces: int
    read: Callable[[int], Iterable[pa.Table]]
    file: Callable[[int], str | None] = lambda piece: None


def ledger_views(ledger: Ledger) -> dict[str, SqlView]:
    """Return the tables of a ledger, its messages and calls, and its figures.

    Args:
        ledger: the ledger as of a commit.

    Returns:
        The views, by name.
    """
    found = {name: _view(ledger, name) for name in TABLES}
    for name, where in (("messages", ALL_MESSAGES), ("calls", MessageFilter(calls=True))):
        found[name] = _messages(ledger, where)
    once = _Once(lambda: compute_figures(ledger))
    for name, schema in FIGURES.items():
        found[name] = SqlView(schema, 1, partial(_figure, once, name))
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
"""The figures available as tables."""

SCHEMAS: Mapping[str, pa.Schema] = {**TABLES, "messages": MESSAGES_SCHEMA, "calls": MESSAGES_SCHEMA, **FIGURES}
"""The tables of a ledger, and the tables derived from it."""


class _Once(Generic[SqlValue]):
    """A lazily computed value, shared by threads."""

    def __init__(self, make: Callable[[], SqlValue]) -> None:
        self._make, self._lock = make, Lock()
        self._values: list[SqlValue] = []

    def __call__(self) -> SqlValue:
        with self._lock:
            if not self._values:
                self._values.append(self._make())
        return self._values[0]


def _figure(figures: _Once[LedgerFigures], name: str, piece: int) -> list[pa.Table]:
    return [getattr(figures(), name)]


def _messages(ledger: Ledger, where: MessageFilter) -> SqlView:
    reader = _Once(lambda: MessageReader.of(ledger, where))
    return SqlView(MESSAGES_SCHEMA, ledger.buckets, lambda bucket: reader().rows(bucket))


def _view(ledger: Ledger, table: str) -> SqlView:
    if table not in BUCKETED:
        return SqlView(TABLES[table], 1, lambda piece: [ledger.table(table)])

    def file(bucket: int) -> str | None:
        if table not in _AS_STORED or not ledger.storage.is_local or ledger.loose(bucket, table) is not None:
            return None
        found = [each for each in ledger.files(table, bucket) if each.bucket is not None]
        return _verified(ledger, found[0]) if len(found) == 1 else None

    return SqlView(TABLES[table], ledger.buckets, lambda bucket: [ledger.rows(bucket, table=table)], file)


def _verified(ledger: Ledger, file: StoredFile) -> str:
    with ledger.opened(file, whole=True):
        return ledger.storage.absolute(file.path)


@contextmanager
def run_query(
    views: Mapping[str, SqlView],
    sql: str,
    *,
    memory: int | None = None,
    seconds: float | None = None,
    progress: QueryProgress | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Run one query over some tables; its result ends with the ``with`` statement.

    Args:
        views: the available tables; a table with amounts also has the column ``amount`` (``DECIMAL``; null above
            10^38 - 1, see its limbs).
        sql: one query: ``SELECT``, ``FROM``, ``WITH``, ``SHOW TABLES``, ``DESCRIBE ledger``, ``SUMMARIZE ledger``.
        memory: memory limit in bytes; beyond it DuckDB uses the disk. Default: half of the free memory.
        seconds: time limit of the query and of reading its rows, after its tables are ready. Default: none.
        progress: receives the number of ready parts, and of all parts.

    Yields:
        A reader of the result.

    Raises:
        InvalidInput: DuckDB is not installed, the text is no such query, or the query fails or exceeds its limit.
        LedgerDamaged: a file is corrupted.
    """
    if importlib.util.find_spec("duckdb") is None:
        raise InvalidInput(f"--sql: needs DuckDB, which is not installed: pip install '{EXTRA_PACKAGE}'")
    if not is_text(sql):
        raise InvalidInput(f"--sql: {sql!a}: is no text in UTF-8")
    bound = max(memory or psutil.virtual_memory().available // 2, _MIN_MEMORY)
    with tempfile.TemporaryDirectory(prefix="causeway-sql-") as folder, _QueryProcess(seconds) as process:
        tables = {name: b64encode(view.schema.serialize()).decode() for name, view in views.items()}
        with process.limit():
            named = process.ask({"sql": sql, "tables": tables, "folder": folder, "memory": bound})
        files = _files(views, named, folder, progress)
        with process.limit():
            process.ask({"files": files})
            reader = process.rows()
            yield pa.RecordBatchReader.from_batches(reader.schema, process.batches(reader))


class _QueryProcess:
    """DuckDB in a child process, killed after ``seconds``: its planner cannot be interrupted."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._over = seconds, False
        # The child must not import from the current folder, nor receive this process's interrupts.
        command = [sys.executable, "-P", "-c", "from causeway.analysis.sql_process import serve_query; serve_query()"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.communicate()

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Kill the process if the body of the ``with`` statement exceeds the time limit.

        Raises:
            InvalidInput: the limit is exceeded.
        """
        timer = None if self._seconds is None else Timer(max(self._seconds, 0.0), self._end)
        if timer is not None:
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def _end(self) -> None:
        self._over = True
        self._process.kill()

    def ask(self, request: Mapping[str, Any]) -> list[str]:
        """Send a request to the process, and return its answer.

        Raises:
            InvalidInput: the process reports an error.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the failure is reported below
            stdin.write(f"{json.dumps(request)}\n".encode())
            stdin.flush()
        line = stdout.readline()
        if not line.endswith(b"\n"):
            raise self._failure()
        answer = json.loads(line)
        if "error" in answer:
            raise InvalidInput(answer["error"])
        found: list[str] = answer["named"]
        return found

    def rows(self) -> pa.RecordBatchReader:
        """Return a reader of the result."""
        try:
            return pa.ipc.open_stream(self._process.stdout)
        except (pa.ArrowException, OSError):
            raise self._failure() from None

    def batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            InvalidInput: the query fails.
        """
        try:
            yield from reader
        except (pa.ArrowException, OSError):
            raise self._failure() from None
        if self._over or self._process.wait() != 0:
            raise self._failure()

    def _failure(self) -> InvalidInput:
        """Return the error that ended the process."""
        _, errors = self._process.communicate()
        if self._over:
            return InvalidInput(f"--timeout {self._seconds:g}: the query takes longer")
        text = " ".join(errors.decode("utf-8", "replace").split())
        return InvalidInput(f"--sql: {text or f'its process ended with {self._process.returncode}'}")


def _files(
    views: Mapping[str, SqlView], named: list[str], folder: str, progress: QueryProgress | None
) -> dict[str, list[str]]:
    """Return the files with the rows of some tables, and write missing ones."""
    pieces = [(name, piece) for name in named for piece in range(views[name].pieces)]
    found: dict[str, list[str]] = {name: [] for name in named}

    def ready(piece_key: tuple[str, int]) -> str:
        name, piece = piece_key
        return views[name].file(piece) or _written(views[name], piece, os.path.join(folder, f"{name}-{piece}.parquet"))

    with ThreadPoolExecutor(min(os.cpu_count() or 1, _THREADS), "causeway-tables") as threads:
        futures = [threads.submit(ready, each) for each in pieces]
        try:
            for number, (piece_key, future) in enumerate(zip(pieces, futures, strict=True), 1):
                found[piece_key[0]].append(future.result())
                if progress is not None:
                    progress(number, len(pieces))
        finally:
            for future in futures:
                future.cancel()
    return found


def _written(view: SqlView, piece: int, path: str) -> str:
    with pq.ParquetWriter(path, view.schema, compression="lz4") as writer:
        for part in view.read(piece):
            writer.write_table(part.cast(view.schema), row_group_size=1 << 17)
    return path


__all__ = ["EXTRA_PACKAGE", "SCHEMAS", "SqlView", "ledger_views", "run_query"]
