"""Executors of a tick's buckets: Spark tasks, or the calling process, with equal results."""

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

from causeway.cluster.jobs import is_one_process, session_folder, spark_jobs
from causeway.cluster.session import wait_for_workers
from causeway.cluster.tasks import TaskFailed, result_of, run_pickled
from causeway.cluster.workers import (
    WORKERS_STAY,
    assign_bucket,
    check_assigned,
    find_executors,
    freeze_modules,
    numbered_partitions,
    retain_freed_memory,
)
from causeway.core.text import count_noun
from causeway.storage.lake import KEPT_LAKES, Lake, Manifest
from causeway.tick import bucket as bucket_module
from causeway.tick.bucket import BucketCommit
from causeway.tick.deployment import Deployment, TickGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUEST = "causeway.request"
"""Local property of a Spark job with the ticks of its tasks."""

JOBS_BETWEEN = 32
"""Number of jobs between two searches for executors of a cluster; fewer if a task did not find its state."""

TASK_SCHEMA = "bucket int, worker int, written binary"
"""Columns of a task's result; ``worker`` is the process id of its worker."""

Request = tuple[int, TickGroup]
"""Number of the last manifest, and the ticks to run on top of it."""


class Executor(Protocol):
    """Runs all buckets of a tick."""

    def genesis(self) -> Sequence[BucketCommit]:
        """Write the state of all buckets at height 0."""

    def run(self, before: Manifest, group: TickGroup) -> Sequence[BucketCommit]:
        """Run a group of ticks on top of the committed height ``before``."""


class InProcessExecutor:
    """Runs buckets sequentially in the calling process, for small networks and unit tests."""

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
    """Runs every bucket as a Spark task.

    The query is planned once; a local property of each job selects the ticks. Data between buckets is exchanged through
    the lake, not the driver.
    """

    def __init__(self, session: SparkSession, deployment: Deployment, lake: Lake) -> None:
        self._context = session.sparkContext
        shared = self._context.broadcast((deployment, lake))
        self._session, self._count = session, len(deployment.buckets)
        self._task = _task(shared, uuid.uuid4().hex, self._count)
        self._assigns_buckets = WORKERS_STAY and self._count > 1 and is_one_process(session)
        self._homes: dict[int, int] = {}  # bucket -> process id of the worker that ran it last
        self._executors = find_executors(session)
        self._place_buckets()
        wait_for_workers()
        self._jobs_since_search = JOBS_BETWEEN  # executors may still register

    def _place_buckets(self) -> None:
        """Plan the query; on a cluster, place the buckets on its executors."""
        self._placed = numbered_partitions(self._session, self._count)
        self._query = self._placed.mapInArrow(self._task, TASK_SCHEMA)

    def genesis(self) -> Sequence[BucketCommit]:
        """Write the state of all buckets at height 0."""
        with spark_jobs(self._session, f"genesis, {count_noun(self._count, 'bucket')}"):
            return self._collect(None)

    def run(self, before: Manifest, group: TickGroup) -> Sequence[BucketCommit]:
        """Run a group of ticks on top of the committed height ``before``."""
        self._jobs_since_search += 1
        if self._jobs_since_search > JOBS_BETWEEN:
            self._jobs_since_search, known = 0, self._executors
            self._executors = find_executors(self._session)
            if self._executors != known:
                self._placed.unpersist()
                self._place_buckets()
        text = f"tick {group.first.tick}, {count_noun(self._count, 'bucket')}"
        with spark_jobs(self._session, text) as counts:
            written = self._collect(encode_request(before, group))
            for _, report in (pair for part in written for pair in part.reports):
                counts.update(messages=report.rows.get("outbound", 0))
        if not all(part.warm for part in written):
            self._jobs_since_search = JOBS_BETWEEN
        return written

    def _collect(self, request: Request | None) -> Sequence[BucketCommit]:
        with self._assignment() as assignment:
            encoded_request = base64.b64encode(pickle.dumps((request, assignment))).decode()
            self._context.setLocalProperty(REQUEST, encoded_request)
            try:
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
        """Yield the data by which tasks of a job claim buckets; None if task numbers decide."""
        if not self._assigns_buckets:
            yield None
            return
        # Spark's own folder is removed with Java, even if this process is killed.
        folder = tempfile.mkdtemp(prefix="buckets-", dir=session_folder())
        try:
            yield {"folder": folder, "homes": self._homes}
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def encode_request(before: Manifest, group: TickGroup) -> Request:
    """Return the request of ``run_task`` for a group of ticks."""
    return before.number, replace(group, outside=dict(group.outside))


def _task(shared: Any, key: str, buckets: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        encoded_request = context.getLocalProperty(REQUEST) if context is not None else None
        if encoded_request is None:
            raise TaskFailed("a task was started without a request")
        request, assignment = pickle.loads(base64.b64decode(encoded_request))
        deployment, lake = _prepare_worker(shared, key)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                bucket = int(number)
                if assignment is not None:
                    bucket = assign_bucket(bucket, assignment["folder"], buckets, assignment["homes"])
                numbers = [pa.array([value], pa.int32()) for value in (bucket, os.getpid())]
                result = run_pickled(functools.partial(run_task, deployment, lake, bucket, request))
                written = pa.array([result], pa.binary())
                yield pa.RecordBatch.from_arrays([*numbers, written], ["bucket", "worker", "written"])

    return run


@cached(LRUCache(KEPT_LAKES), key=lambda shared, key: key, lock=threading.Lock())
def _broadcast_value(shared: Any, key: str) -> tuple[Deployment, Lake]:
    """Return the cached broadcast value of a ``SparkExecutor``.

    PySpark drops it whenever a worker runs a task without it, so alternating executors would unpickle theirs on every
    tick.
    """
    return shared.value  # type: ignore[no-any-return]


def _prepare_worker(shared: Any, key: str) -> tuple[Deployment, Lake]:
    """Return the broadcast value, and configure memory and garbage collection of this worker."""
    value = _broadcast_value(shared, key)
    pa.set_cpu_count(1)
    retain_freed_memory()
    freeze_modules()
    return value


def run_task(deployment: Deployment, lake: Lake, number: int, request: Request | None) -> BucketCommit:
    """Run a bucket as a task does.

    Args:
        deployment: The network.
        lake: The lake.
        number: The bucket.
        request: Number of the last manifest and the ticks; None for height 0.

    Returns:
        Files and reports of the bucket.
    """
    if request is None:
        return bucket_module.write_genesis(deployment, lake, number)
    before, group = request
    return bucket_module.run_bucket(deployment, lake, number, lake.numbered(before), group)
