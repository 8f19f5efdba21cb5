"""Buckets of a ledger passed over by Spark tasks: one a bucket; what each shows comes back as small Arrow tables.

How the buckets of a stored ledger are passed over: in this process, a few at once, or by Spark, a task a bucket.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
from cachetools import LRUCache, cached
from causeway_proofs import jit_code
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.ledger.store import Ledger, LedgerDamaged
from causeway.spark.masters import available_cores
from causeway.spark.tasks import TaskFailed, convert_spark_errors, convert_storage_errors
from causeway.spark.workers import freeze_modules, retain_freed_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "EXECUTORS",
    "MAX_THREADS",
    "PRELOADED_MODULES",
    "SPARK_ROWS",
    "BucketPasses",
    "LocalPass",
    "PassProgress",
    "PassProgressCallback",
    "PassWork",
    "SharedJobState",
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
"""A dataclass whose fields are Arrow tables and truth values."""

TASK_SCHEMA = "bucket int, run int, error string, shown binary"
ARROW_SCHEMA = pa.schema([("bucket", pa.int32()), ("run", pa.int32()), ("error", pa.string()), ("shown", pa.binary())])
"""A row is what one run of a bucket shows (``packed``), or the error with which the bucket failed: name and text."""

PRELOADED_MODULES = (
    *("causeway.audit.passes.bucket_pass", "causeway.audit.message_loops", "causeway.audit.checks.lane_loops"),
    *("causeway.audit.column_loops", "causeway.ledger.bucket_scan", "causeway.ledger.stored_parts"),
)
"""What a task imports."""

_KNOWN = {"InvalidInput": InvalidInput, "LedgerDamaged": LedgerDamaged}
"""Errors that are raised again as they were; any other is a ``TaskFailed``."""

_LARGE_BYTES, _LARGE = 1 << 20, pa.ipc.IpcWriteOptions(compression="zstd")
"""Larger tables, such as the causal links of runs, come back compressed: Spark limits what tasks return together."""

RowBatches = Iterator[pa.RecordBatch]
BucketWork = Callable[[Any, int], Iterable[tuple[int, Any]]]
"""Given what all tasks share and the number of a bucket, yields what its runs show, by their numbers."""


def pack_tables(shown: Any) -> bytes:
    """Return a dataclass of tables and truth values as bytes: a table after the other, each as an Arrow stream."""
    sink = io.BytesIO()
    for field in fields(shown):
        value = getattr(shown, field.name)
        table = value if isinstance(value, pa.Table) else pa.table({"": pa.array([value], pa.bool_())})
        with pa.ipc.new_stream(sink, table.schema, options=_LARGE if table.nbytes > _LARGE_BYTES else None) as stream:
            stream.write_table(table)
    return sink.getvalue()


def unpack_tables(content: bytes, kind: type[Tables]) -> Tables:
    """Return what ``packed`` was given."""
    source = pa.BufferReader(content)
    found = []
    for _ in fields(kind):  # type: ignore[arg-type]
        table = pa.ipc.open_stream(source).read_all()
        found.append(table if table.column_names != [""] else table.column(0)[0].as_py())
    return kind(*found)


def run_buckets(
    session: SparkSession,
    buckets: Sequence[int],
    work: BucketWork,
    shared: Any,
    kind: type[Tables],
    add: Callable[[tuple[int, int], Tables], None] | None = None,
) -> dict[tuple[int, int], Tables]:
    """Run ``work`` of each bucket as a Spark task, in the order given; return what runs show by bucket and run.

    ``work``: a function of a module; ``shared``: what it is given, picklable; ``add``: is given what each run shows,
    one after the other, instead.

    Raises:
        InvalidInput, LedgerDamaged: a task raised it.
        TaskFailed: a task failed otherwise.
    """
    query = session.range(0, len(buckets), 1, len(buckets)).mapInArrow(_task(tuple(buckets), work, shared), TASK_SCHEMA)
    with convert_spark_errors():
        rows = query.toArrow()
    found: dict[tuple[int, int], Tables] = {}
    for key, shown in run_results(rows, kind):
        if add is None:
            found[key] = shown
        else:
            add(key, shown)
    return found


def run_results(rows: pa.Table, kind: type[Tables]) -> Iterator[tuple[tuple[int, int], Tables]]:
    """Yield what runs show with their bucket and run, from rows of ``TASK_SCHEMA``. Raises the first bucket's error."""
    places = rows.select(["bucket", "run", "error"]).to_pylist()
    failed = {row["bucket"]: row["error"] for row in places if row["error"] is not None}
    if failed:
        name, _, text = failed[min(failed)].partition(" ")
        raise _KNOWN[name](text) if name in _KNOWN else TaskFailed(f"{name}: {text}")
    for number, row in enumerate(places):
        yield (row["bucket"], row["run"]), unpack_tables(rows["shown"][number].as_py(), kind)


def _task(buckets: Sequence[int], work: BucketWork, shared: Any) -> Callable[[RowBatches], RowBatches]:
    def run(batches: RowBatches) -> RowBatches:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from task_rows(buckets[number], lambda bucket: work(shared, bucket))

    return run


def prepare_worker() -> None:
    """Set this worker up for passes over columns."""
    pa.set_cpu_count(1)
    jit_code.use_cached_code()
    retain_freed_memory()
    freeze_modules()


def task_rows(bucket: int, work: Callable[[int], Iterable[tuple[int, Any]]]) -> RowBatches:
    """Yield what the runs of one bucket show, or its error, as rows of ``TASK_SCHEMA``."""
    try:
        with convert_storage_errors():
            for run, shown in work(bucket):
                yield _row(bucket, run, None, pack_tables(shown))
    except CausewayError as error:
        yield _row(bucket, None, f"{error.name} {error}", None)


def _row(bucket: int, run: int | None, error: str | None, shown: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"bucket": bucket, "run": run, "error": error, "shown": shown}], ARROW_SCHEMA)


@cached(LRUCache(2), key=lambda key, make: key, lock=threading.Lock())
def once_per_worker(key: str, make: Callable[[], Tables]) -> Tables:
    """Return what a worker makes once for all its tasks of a job."""
    return make()


PassResult = TypeVar("PassResult")

EXECUTORS = ("auto", "in_process", "spark")

SPARK_ROWS = 50_000_000
"""From so many rows on ``auto`` takes Spark: below, a session takes longer to start than the pass."""

MAX_THREADS = 8
"""Buckets that are looked at at once in one process, at most: each takes memory, and they share one interpreter."""

PassProgressCallback = Callable[[int, int], None]
"""Told how many rows were looked at, and of how many."""

Steps = Callable[[str], PassProgressCallback]
"""Begins a step of a longer work, and gives what is told how far it is."""


class SharedJobState(Protocol):
    """What a job has in each worker."""

    @property
    def value(self) -> Any:
        """Return it."""
        ...


def bucket_rows(ledger: Ledger) -> list[int]:
    """Return how many rows of the table ``ledger`` the files of each bucket have."""
    return [sum(file.rows for file in ledger.files("ledger", bucket)) for bucket in range(ledger.buckets)]


def should_use_spark(executor: str, session: SparkSession | None, rows: Sequence[int]) -> bool:
    """Return whether Spark passes over buckets of so many rows: ``executor`` is ``spark``, or it is ``auto`` and there
    is a session or ``SPARK_ROWS`` rows. Raises ``InvalidInput`` for an executor that there is not."""
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    return executor == "spark" or (executor == "auto" and (session is not None or sum(rows) >= SPARK_ROWS))


def open_worker_session(
    master: str, settings: Mapping[str, str] = MappingProxyType({}), tasks: int = 1, modules: Sequence[str] = ()
) -> SparkSession:
    """Return a session whose workers have imported what so many tasks need."""
    from causeway.spark.session import open_session, prepare_workers, requested_tasks, start_session, wait_for_workers

    start_session(master, extra=settings)
    prepare_workers(min(tasks, requested_tasks(master, settings)), (*PRELOADED_MODULES, *modules))
    session = open_session(master, extra=settings)
    wait_for_workers()
    return session


def pass_threads() -> ThreadPoolExecutor:
    """Return the threads of a pass in this process."""
    return ThreadPoolExecutor(min(available_cores(), MAX_THREADS), "causeway-pass")


def order_by_size(rows: Sequence[int], only: Iterable[int] | None = None) -> list[int]:
    """Return the buckets to look at, so that the last ones to end are small."""
    return sorted(range(len(rows)) if only is None else only, key=lambda bucket: (-rows[bucket], bucket))


PassWork = Callable[[SharedJobState, int], Iterable[tuple[int, Any]]]
"""Given what all buckets share and the number of one, yields what its runs show, by their numbers; a function of a
module."""


@dataclass(frozen=True)
class LocalPass:
    """What a pass in this process shares."""

    value: Any


@dataclass(frozen=True)
class BucketPasses:
    """Passes over buckets: by Spark where there is a ``session``, else in this process."""

    session: SparkSession | None

    def over(
        self, buckets: Sequence[int], work: PassWork, value: Any, kind: type[PassResult]
    ) -> Iterator[tuple[int, PassResult]]:
        """Yield what the runs of buckets show, with the number of each bucket, in the order of ``buckets``.

        ``value``: what all share, picklable; ``kind``: a dataclass of tables and truth values. Raises as
        ``ledger_tasks.run_buckets``.
        """
        if self.session is None:
            with pass_threads() as pool:
                each = pool.map(lambda bucket: [shown for _, shown in work(LocalPass(value), bucket)], buckets)
                for bucket, found in zip(buckets, each, strict=True):
                    yield from ((bucket, shown) for shown in found)
            return
        from causeway.spark.workers import require_workers

        require_workers(self.session)
        shared = self.session.sparkContext.broadcast(value)
        try:
            by_run = run_buckets(self.session, buckets, work, shared, kind)
        finally:
            shared.unpersist()
        place = {bucket: number for number, bucket in enumerate(buckets)}
        for bucket, run in sorted(by_run, key=lambda key: (place[key[0]], key[1])):
            yield bucket, by_run[bucket, run]


class PassProgress:
    """How far a pass is."""

    def __init__(self, progress: PassProgressCallback | None, rows: Sequence[int]) -> None:
        self._progress, self._rows, self._total, self._done = progress, rows, sum(rows), 0
        if progress is not None:
            progress(0, self._total)

    def bucket(self, bucket: int) -> None:
        """Say that a bucket was looked at."""
        self._done += self._rows[bucket]
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
