"""Buckets of a ledger passed over by Spark tasks: one a bucket; what each shows comes back as small Arrow tables."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from cachetools import LRUCache, cached

from causeway.model import compiled_ready
from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.allocator import keep_memory, spare_modules
from causeway.pipeline.ledger_store import LedgerDamaged
from causeway.pipeline.task_errors import TaskFailed, spark_tasks, told_places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tables = TypeVar("Tables")
"""A dataclass whose fields are Arrow tables and truth values."""

TASK_SCHEMA = "bucket int, run int, error string, shown binary"
ARROW_SCHEMA = pa.schema([("bucket", pa.int32()), ("run", pa.int32()), ("error", pa.string()), ("shown", pa.binary())])
"""A row is what one run of a bucket shows (``packed``), or the error with which the bucket failed: name and text."""

MODULES = (
    *("causeway.audit.passing", "causeway.audit.message_loops", "causeway.audit.lane_loops"),
    *("causeway.audit.column_loops", "causeway.pipeline.ledger_tasks", "causeway.pipeline.ledger_parts"),
)
"""What a task imports."""

_KNOWN = {"InvalidInput": InvalidInput, "LedgerDamaged": LedgerDamaged}
"""Errors that are raised again as they were; any other is a ``TaskFailed``."""

_LARGE_BYTES, _LARGE = 1 << 20, pa.ipc.IpcWriteOptions(compression="zstd")
"""Larger tables, such as the causal links of runs, come back compressed: Spark limits what tasks return together."""

Batches = Iterator[pa.RecordBatch]
Work = Callable[[Any, int], Iterable[tuple[int, Any]]]
"""Given what all tasks share and the number of a bucket, yields what its runs show, by their numbers."""


def packed(shown: Any) -> bytes:
    """Return a dataclass of tables and truth values as bytes: a table after the other, each as an Arrow stream."""
    sink = io.BytesIO()
    for field in fields(shown):
        value = getattr(shown, field.name)
        table = value if isinstance(value, pa.Table) else pa.table({"": pa.array([value], pa.bool_())})
        with pa.ipc.new_stream(sink, table.schema, options=_LARGE if table.nbytes > _LARGE_BYTES else None) as stream:
            stream.write_table(table)
    return sink.getvalue()


def unpacked(content: bytes, kind: type[Tables]) -> Tables:
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
    work: Work,
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
    with spark_tasks():
        rows = query.toArrow()
    found: dict[tuple[int, int], Tables] = {}
    for key, shown in shown_in(rows, kind):
        if add is None:
            found[key] = shown
        else:
            add(key, shown)
    return found


def shown_in(rows: pa.Table, kind: type[Tables]) -> Iterator[tuple[tuple[int, int], Tables]]:
    """Yield what runs show with their bucket and run, from rows of ``TASK_SCHEMA``. Raises the first bucket's error."""
    places = rows.select(["bucket", "run", "error"]).to_pylist()
    failed = {row["bucket"]: row["error"] for row in places if row["error"] is not None}
    if failed:
        name, _, text = failed[min(failed)].partition(" ")
        raise _KNOWN[name](text) if name in _KNOWN else TaskFailed(f"{name}: {text}")
    for number, row in enumerate(places):
        yield (row["bucket"], row["run"]), unpacked(rows["shown"][number].as_py(), kind)


def _task(buckets: Sequence[int], work: Work, shared: Any) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(buckets[number], lambda bucket: work(shared, bucket))

    return run


def prepare_worker() -> None:
    """Set this worker up for passes over columns."""
    pa.set_cpu_count(1)
    compiled_ready.use()
    keep_memory()
    spare_modules()


def rows_of(bucket: int, work: Callable[[int], Iterable[tuple[int, Any]]]) -> Batches:
    """Yield what the runs of one bucket show, or its error, as rows of ``TASK_SCHEMA``."""
    try:
        with told_places():
            for run, shown in work(bucket):
                yield _row(bucket, run, None, packed(shown))
    except CausewayError as error:
        yield _row(bucket, None, f"{error.name} {error}", None)


def _row(bucket: int, run: int | None, error: str | None, shown: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"bucket": bucket, "run": run, "error": error, "shown": shown}], ARROW_SCHEMA)


@cached(LRUCache(2), key=lambda key, make: key, lock=threading.Lock())
def once(key: str, make: Callable[[], Tables]) -> Tables:
    """Return what a worker makes once for all its tasks of a job."""
    return make()


__all__ = ["MODULES", "once", "packed", "prepare_worker", "rows_of", "run_buckets", "shown_in", "unpacked"]
