"""Passes over the buckets of a stored ledger, in threads or as Spark tasks.

Each run of a bucket gives a dataclass of small Arrow tables. Spark tasks return them as packed rows (``TASK_SCHEMA``).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from cachetools import LRUCache, cached
from causeway_proofs import jit_code
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.cluster.jobs import InlineValue, SharedJobState, share_value, spark_jobs
from causeway.cluster.masters import available_cores
from causeway.cluster.tasks import TaskFailed, convert_storage_errors
from causeway.cluster.thresholds import spark_threshold
from causeway.cluster.workers import freeze_modules, retain_freed_memory
from causeway.core.text import count_noun
from causeway.ledger.store import Ledger, LedgerDamaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "EXECUTORS",
    "MAX_THREADS",
    "PRELOADED_MODULES",
    "BucketPasses",
    "PassProgress",
    "PassProgressCallback",
    "PassWork",
    "Steps",
    "bucket_rows",
    "once_per_worker",
    "open_worker_session",
    "order_by_size",
    "pack_tables",
    "pass_threads",
    "prepare_worker",
    "run_buckets",
    "run_results",
    "should_use_spark",
    "task_rows",
    "unpack_tables",
]

Tables = TypeVar("Tables")
"""A dataclass with fields of Arrow tables and truth values."""

TASK_SCHEMA = "bucket int, run int, error string, shown binary"
ARROW_SCHEMA = pa.schema([("bucket", pa.int32()), ("run", pa.int32()), ("error", pa.string()), ("shown", pa.binary())])
"""One row for each result of a run (``pack_tables``), or the error of a bucket: name and text."""

PRELOADED_MODULES = (
    *("causeway.audit.passes.bucket_pass", "causeway.audit.message_loops", "causeway.audit.checks.lane_loops"),
    *("causeway.audit.column_loops", "causeway.ledger.bucket_scan", "causeway.ledger.stored_parts"),
)
"""Modules that a task imports."""

_KNOWN = {"InvalidInput": InvalidInput, "LedgerDamaged": LedgerDamaged}
"""Errors that keep their type; any other becomes a ``TaskFailed``."""

_LARGE_BYTES, _LARGE = 1 << 20, pa.ipc.IpcWriteOptions(compression="zstd")
"""Minimum size of compressed tables: Spark limits the total size of task results."""

RowBatches = Iterator[pa.RecordBatch]
PassWork = Callable[[SharedJobState, int], Iterable[tuple[int, Any]]]
"""A module's function: takes the shared value and a bucket number; yields run numbers and results."""


def pack_tables(result: Any) -> bytes:
    """Serialize a dataclass of tables and truth values: an Arrow stream for each field.

    Args:
        result: Instance of a dataclass with fields of Arrow tables and truth values.

    Returns:
        Arrow IPC streams in the order of the fields; large tables are compressed.
    """
    sink = io.BytesIO()
    for field in fields(result):
        value = getattr(result, field.name)
        table = value if isinstance(value, pa.Table) else pa.table({"": pa.array([value], pa.bool_())})
        with pa.ipc.new_stream(sink, table.schema, options=_LARGE if table.nbytes > _LARGE_BYTES else None) as stream:
            stream.write_table(table)
    return sink.getvalue()


def unpack_tables(content: bytes, kind: type[Tables]) -> Tables:
    """Deserialize the result of ``pack_tables``.

    Args:
        content: Bytes from ``pack_tables``.
        kind: Dataclass of the result.

    Returns:
        The result.
    """
    source = pa.BufferReader(content)
    found = []
    for _ in fields(kind):  # type: ignore[arg-type]
        table = pa.ipc.open_stream(source).read_all()
        found.append(table if table.column_names != [""] else table.column(0)[0].as_py())
    return kind(*found)


def run_buckets(
    session: SparkSession,
    ledger: Ledger,
    buckets: Sequence[int],
    work: PassWork,
    value: Any,
    kind: type[Tables],
    add: Callable[[tuple[int, int], Tables], None] | None = None,
    *,
    text: str,
    tables: Sequence[str] = ("ledger",),
) -> dict[tuple[int, int], Tables]:
    """Run a function for each bucket as a Spark task, in the given order.

    Args:
        session: The Spark session.
        ledger: The ledger.
        buckets: Bucket numbers.
        work: A function of a module.
        value: Picklable value for all tasks.
        kind: Dataclass of the results.
        add: Called with each result; then nothing is returned.
        text: The work, for the description of the job.
        tables: Tables whose rows the work reads.

    Returns:
        Results by bucket and run.

    Raises:
        InvalidInput: A task raised it.
        LedgerDamaged: A task raised it.
        TaskFailed: A task failed otherwise.
    """
    text = f"{text}, {count_noun(len(buckets), 'bucket')}"
    with share_value(session, value) as shared, spark_jobs(session, text) as counts:
        task = _task(tuple(buckets), work, shared)
        rows = session.range(0, len(buckets), 1, len(buckets)).mapInArrow(task, TASK_SCHEMA).toArrow()
        for file in (file for bucket in buckets for table in tables for file in ledger.files(table, bucket)):
            counts.update(rows=file.rows, bytes=file.bytes)
    found: dict[tuple[int, int], Tables] = {}
    for key, result in run_results(rows, kind):
        if add is None:
            found[key] = result
        else:
            add(key, result)
    return found


def run_results(rows: pa.Table, kind: type[Tables]) -> Iterator[tuple[tuple[int, int], Tables]]:
    """Yield results by bucket and run from rows of ``TASK_SCHEMA``; raise the first error.

    Args:
        rows: Rows of ``ARROW_SCHEMA`` from all tasks.
        kind: Dataclass of the results.

    Yields:
        Bucket and run, and the result.

    Raises:
        InvalidInput: A task raised it.
        LedgerDamaged: A task raised it.
        TaskFailed: A task failed otherwise.
    """
    places = rows.select(["bucket", "run", "error"]).to_pylist()
    failed = {row["bucket"]: row["error"] for row in places if row["error"] is not None}
    if failed:
        name, _, text = failed[min(failed)].partition(" ")
        raise _KNOWN[name](text) if name in _KNOWN else TaskFailed(f"{name}: {text}")
    for number, row in enumerate(places):
        yield (row["bucket"], row["run"]), unpack_tables(rows["shown"][number].as_py(), kind)


def _task(buckets: Sequence[int], work: PassWork, shared: SharedJobState) -> Callable[[RowBatches], RowBatches]:
    def run(batches: RowBatches) -> RowBatches:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from task_rows(buckets[number], lambda bucket: work(shared, bucket))

    return run


def prepare_worker() -> None:
    """Prepare this worker for passes over columns."""
    pa.set_cpu_count(1)
    jit_code.use_cached_code()
    retain_freed_memory(arrow=False)  # results of runs would fragment it
    freeze_modules()


def task_rows(bucket: int, work: Callable[[int], Iterable[tuple[int, Any]]]) -> RowBatches:
    """Yield the results of one bucket, or its error, as rows of ``TASK_SCHEMA``.

    Args:
        bucket: Bucket number.
        work: Called with the bucket; yields run numbers and results (dataclasses of tables and truth values).

    Yields:
        One row a batch. A ``CausewayError`` becomes a row with its name and text.
    """
    try:
        with convert_storage_errors():
            for run, result in work(bucket):
                yield _row(bucket, run, None, pack_tables(result))
    except CausewayError as error:
        yield _row(bucket, None, f"{error.name} {error}", None)


def _row(bucket: int, run: int | None, error: str | None, shown: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"bucket": bucket, "run": run, "error": error, "shown": shown}], ARROW_SCHEMA)


@cached(LRUCache(2), key=lambda key, make: key, lock=threading.Lock())
def once_per_worker(key: str, make: Callable[[], Tables]) -> Tables:
    """Return a value that a worker creates once for all its tasks of a job.

    Args:
        key: Key of the job.
        make: Creates the value.
    """
    return make()


PassResult = TypeVar("PassResult")

EXECUTORS = ("auto", "in_process", "spark")

MAX_THREADS = 8
"""Maximum number of buckets at once in a process: each takes memory, and they share an interpreter."""

PassProgressCallback = Callable[[int, int], None]
"""Callback with the number of processed rows, and their total."""

Steps = Callable[[str], PassProgressCallback]
"""Starts a named step of a longer task, and returns its progress callback."""


def bucket_rows(ledger: Ledger) -> list[int]:
    """Return the number of stored rows of the table ``ledger`` in each bucket.

    Args:
        ledger: The ledger.
    """
    return [sum(file.rows for file in ledger.files("ledger", bucket)) for bucket in range(ledger.buckets)]


def should_use_spark(executor: str, session: SparkSession | None, rows: Sequence[int]) -> bool:
    """Return True if a pass should use Spark.

    Args:
        executor: ``in_process``, ``spark``, or ``auto``: Spark with a session, or from ``CAUSEWAY_SPARK_ROWS`` rows on.
        session: A Spark session, or None.
        rows: Number of rows of each bucket.

    Raises:
        InvalidInput: The executor is unknown, or the threshold is not a number.
    """
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    if executor != "auto" or session is not None:
        return executor != "in_process"
    return sum(rows) >= spark_threshold("CAUSEWAY_SPARK_ROWS")


def open_worker_session(
    master: str, settings: Mapping[str, str] = MappingProxyType({}), tasks: int = 1, modules: Sequence[str] = ()
) -> SparkSession:
    """Open a session whose workers have imported the modules of a pass.

    Args:
        master: As of ``open_session``.
        settings: As of ``open_session``.
        tasks: Number of tasks.
        modules: Further modules to import.

    Returns:
        The session.
    """
    from causeway.cluster.session import open_session, prepare_workers, requested_tasks, start_session, wait_for_workers

    start_session(master, extra=settings)
    prepare_workers(min(tasks, requested_tasks(master, settings)), (*PRELOADED_MODULES, *modules))
    session = open_session(master, extra=settings)
    wait_for_workers()
    return session


def pass_threads() -> ThreadPoolExecutor:
    """Create the threads of a pass in this process."""
    return ThreadPoolExecutor(min(available_cores(), MAX_THREADS), "causeway-pass")


def order_by_size(rows: Sequence[int], only: Iterable[int] | None = None) -> list[int]:
    """Return buckets by descending size, so that the last ones to end are small.

    Args:
        rows: Number of rows of each bucket.
        only: Buckets to order; None: all.
    """
    return sorted(range(len(rows)) if only is None else only, key=lambda bucket: (-rows[bucket], bucket))


@dataclass(frozen=True)
class BucketPasses:
    """Passes over buckets: by Spark with a ``session``, else in this process.

    Attributes:
        session: A Spark session, or None.
        ledger: The ledger.
    """

    session: SparkSession | None
    ledger: Ledger

    def over(
        self, buckets: Sequence[int], work: PassWork, value: Any, kind: type[PassResult], text: str
    ) -> Iterator[tuple[int, PassResult]]:
        """Yield the results of buckets with their numbers, in the order of ``buckets``.

        Args:
            buckets: Bucket numbers.
            work: A function of a module.
            value: Picklable value for all buckets.
            kind: Dataclass of the results.
            text: The work, for the description of the job.

        Raises:
            InvalidInput: A task raised it.
            LedgerDamaged: A task raised it.
            TaskFailed: A task failed otherwise.
        """
        if self.session is None:
            with pass_threads() as pool:
                each = pool.map(lambda bucket: [result for _, result in work(InlineValue(value), bucket)], buckets)
                for bucket, found in zip(buckets, each, strict=True):
                    yield from ((bucket, result) for result in found)
            return
        from causeway.cluster.workers import require_workers

        require_workers(self.session)
        by_run = run_buckets(self.session, self.ledger, buckets, work, value, kind, text=text)
        place = {bucket: number for number, bucket in enumerate(buckets)}
        for bucket, run in sorted(by_run, key=lambda key: (place[key[0]], key[1])):
            yield bucket, by_run[bucket, run]


class PassProgress:
    """Progress of a pass.

    Args:
        progress: Called with the number of processed rows, and their total; or None.
        rows: Number of rows of each bucket.
    """

    def __init__(self, progress: PassProgressCallback | None, rows: Sequence[int]) -> None:
        self._progress, self._rows, self._total, self._done = progress, rows, sum(rows), 0
        if progress is not None:
            progress(0, self._total)

    def bucket(self, bucket: int) -> None:
        """Count a finished bucket."""
        self._done += self._rows[bucket]
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
