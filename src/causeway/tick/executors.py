"""Who runs a tick's buckets: Spark tasks, or the calling process. Same files, same roots."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import pickle
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from cachetools import LRUCache, cached

from causeway.spark.session import wait_for_workers
from causeway.spark.tasks import TaskFailed, convert_spark_errors, result_of, run_pickled
from causeway.spark.workers import (
    WORKERS_STAY,
    ExecutorSlot,
    assign_bucket,
    check_assigned,
    freeze_modules,
    is_single_machine,
    list_executors,
    numbered_partitions,
    retain_freed_memory,
)
from causeway.storage.lake import KEPT_LAKES, Lake, Manifest
from causeway.tick import bucket as bucket_module
from causeway.tick.bucket import BucketCommit
from causeway.tick.deployment import Deployment, TickGroup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUEST = "causeway.request"
"""The local property of a Spark job that says which ticks its tasks run."""

POLL_SECONDS = 32
"""After so many jobs Spark is asked which executors there are; sooner where a task did not find its state."""

TASK_SCHEMA = "bucket int, worker int, written binary"
"""``worker``: the process id of the worker that ran the bucket."""

Request = tuple[int, TickGroup]
"""The number of the last manifest, and the ticks that tasks run on top of it."""


class Executor(Protocol):
    """Runs all buckets of a tick."""

    def genesis(self) -> Sequence[BucketCommit]:
        """Write the state of all buckets at height 0."""
        ...

    def run(self, before: Manifest, group: TickGroup) -> Sequence[BucketCommit]:
        """Run a group of ticks on top of the committed height ``before``."""
        ...


class InProcessExecutor:
    """Runs the buckets one after the other in the calling process: for networks of a few messages, and unit tests."""

    def __init__(self, deployment: Deployment, lake: Lake) -> None:
        self._deployment, self._lake = deployment, lake

    def genesis(self) -> Sequence[BucketCommit]:
        """Write the state of all buckets at height 0."""
        buckets = range(len(self._deployment.buckets))
        return [bucket_module.write_genesis(self._deployment, self._lake, bucket) for bucket in buckets]

    def run(self, before: Manifest, group: TickGroup) -> Sequence[BucketCommit]:
        """Run a group of ticks on top of the committed height ``before``."""
        deployment, lake = self._deployment, self._lake
        buckets = range(len(deployment.buckets))
        return [bucket_module.run_bucket(deployment, lake, bucket, before, group) for bucket in buckets]


class SparkExecutor:
    """Runs every bucket as a Spark task. The query is planned once; a job's local property says which ticks to run.

    What goes from bucket to bucket lies in the lake, not in the driver: a task reads what others wrote for it at
    earlier heights.
    """

    def __init__(self, session: SparkSession, deployment: Deployment, lake: Lake) -> None:
        self._context = session.sparkContext
        shared = self._context.broadcast((deployment, lake))
        self._session, self._count = session, len(deployment.buckets)
        self._task = _task(shared, uuid.uuid4().hex, self._count)
        self._assigns = WORKERS_STAY and self._count > 1 and is_single_machine(session)
        self._homes: dict[int, int] = {}  # bucket -> process id of the worker that ran it last
        self._executors: tuple[ExecutorSlot, ...] = ()
        self._query = self._planned()
        wait_for_workers()
        self._since = POLL_SECONDS  # jobs since Spark was asked for its executors

    def _planned(self) -> DataFrame:
        return numbered_partitions(self._session, self._count, self._executors).mapInArrow(self._task, TASK_SCHEMA)

    def genesis(self) -> Sequence[BucketCommit]:
        """Write the state of all buckets at height 0."""
        return self._collect(None)

    def run(self, before: Manifest, group: TickGroup) -> Sequence[BucketCommit]:
        """Run a group of ticks on top of the committed height ``before``."""
        self._since += 1
        if self._since > POLL_SECONDS:
            self._since, before_now = 0, self._executors
            self._executors = list_executors(self._session)
            if self._executors != before_now:
                self._query = self._planned()
        written = self._collect(encode_request(before, group))
        if not all(part.warm for part in written):
            self._since = POLL_SECONDS
        return written

    def _collect(self, request: Request | None) -> Sequence[BucketCommit]:
        with self._assignment() as assignment:
            asked = base64.b64encode(pickle.dumps((request, assignment))).decode()
            self._context.setLocalProperty(REQUEST, asked)
            try:
                with convert_spark_errors():
                    rows = self._query.collect()
            finally:
                self._context.setLocalProperty(REQUEST, None)  # type: ignore[arg-type]
        rows = sorted(rows, key=lambda row: int(row["bucket"]))
        check_assigned([int(row["bucket"]) for row in rows], self._count)
        written = [result_of(row["written"]) for row in rows]
        self._homes = {int(row["bucket"]): int(row["worker"]) for row in rows}
        return written

    @contextlib.contextmanager
    def _assignment(self) -> Iterator[dict[str, Any] | None]:
        """Give what the tasks of one job need to agree which bucket each runs, None where their numbers say it."""
        if not self._assigns:
            yield None
            return
        # Inside Spark's own folder, which goes with Java even when this process is killed.
        folder = tempfile.mkdtemp(prefix="buckets-", dir=self._context._temp_dir)
        try:
            yield {"folder": folder, "homes": self._homes}
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def encode_request(before: Manifest, group: TickGroup) -> Request:
    """Return what ``run_task`` is asked for a group of ticks."""
    return before.number, replace(group, outside=dict(group.outside))


def _task(shared: Any, key: str, buckets: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        asked = context.getLocalProperty(REQUEST) if context is not None else None
        if asked is None:
            raise TaskFailed("a task was started without a request")
        request, assignment = pickle.loads(base64.b64decode(asked))
        deployment, lake = _shared(shared, key)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                bucket = int(number)
                if assignment is not None:
                    bucket = assign_bucket(bucket, assignment["folder"], buckets, assignment["homes"])
                numbers = [pa.array([value], pa.int32()) for value in (bucket, os.getpid())]
                done = run_pickled(functools.partial(run_task, deployment, lake, bucket, request))
                written = pa.array([done], pa.binary())
                yield pa.RecordBatch.from_arrays([*numbers, written], ["bucket", "worker", "written"])

    return run


@cached(LRUCache(KEPT_LAKES), key=lambda shared, key: key, lock=threading.Lock())
def _value_of(shared: Any, key: str) -> tuple[Deployment, Lake]:
    """Return the broadcast value of the ``SparkExecutor`` with a key. PySpark forgets it whenever a worker runs a task
    without it, so that executors in turns would unpickle theirs every time."""
    return shared.value  # type: ignore[no-any-return]


def _shared(shared: Any, key: str) -> tuple[Deployment, Lake]:
    value = _value_of(shared, key)
    pa.set_cpu_count(1)
    retain_freed_memory()
    freeze_modules()
    return value


def run_task(deployment: Deployment, lake: Lake, number: int, request: Request | None) -> BucketCommit:
    """Run one bucket as a task does; return what it wrote. ``request``: None for height 0."""
    if request is None:
        return bucket_module.write_genesis(deployment, lake, number)
    before, group = request
    return bucket_module.run_bucket(deployment, lake, number, lake.numbered(before), group)
