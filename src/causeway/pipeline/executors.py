"""Who runs a tick's buckets: Spark tasks, or the calling process. Same files, same roots."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline import bucket as bucket_module
from causeway.pipeline.allocator import keep_memory, spare_modules
from causeway.pipeline.assignment import WORKERS_STAY, assigned, check_assigned
from causeway.pipeline.bucket import Written
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.group import CommitEvery, Group
from causeway.pipeline.heights import Said
from causeway.pipeline.lake import Lake, LakeDamaged, Manifest
from causeway.pipeline.manifests import parts_from
from causeway.pipeline.offers import Offers, Part
from causeway.pipeline.placement import Place, executors_of, numbered, on_one_machine
from causeway.pipeline.recent import Recent
from causeway.pipeline.sealed import seal_from
from causeway.pipeline.session import workers_prepared
from causeway.pipeline.task_errors import TaskFailed, spark_tasks, told_places
from causeway.protocols.contract import Tick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUEST = "causeway.request"
"""The local property of a Spark job that says which ticks its tasks run."""

ASKED_EVERY = 32
"""After so many jobs Spark is asked which executors there are; sooner where a task did not find its state."""

TASK_SCHEMA = "bucket int, worker int, written string, offers binary"
"""``worker``: the process id of the worker that ran the bucket."""


class Executor(Protocol):
    """Runs all buckets of a tick."""

    def genesis(self) -> Sequence[Written]:
        """Write the state of all buckets at height 0."""
        ...

    def run(self, before: Manifest, group: Group) -> Sequence[Written]:
        """Run a group of ticks on top of the committed height ``before``."""
        ...


class InProcessExecutor:
    """Runs the buckets one after the other in the calling process: for networks of a few messages, and unit tests."""

    def __init__(self, deployment: Deployment, lake: Lake) -> None:
        self._deployment, self._lake = deployment, lake

    def genesis(self) -> Sequence[Written]:
        """Write the state of all buckets at height 0."""
        buckets = range(len(self._deployment.buckets))
        return [bucket_module.genesis(self._deployment, self._lake, bucket) for bucket in buckets]

    def run(self, before: Manifest, group: Group) -> Sequence[Written]:
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
        self._assigns = WORKERS_STAY and self._count > 1 and on_one_machine(session)
        self._homes: dict[int, int] = {}  # bucket -> process id of the worker that ran it last
        self._executors: tuple[Place, ...] = ()
        self._query = self._planned()
        workers_prepared()
        self._since = ASKED_EVERY  # jobs since Spark was asked for its executors

    def _planned(self) -> DataFrame:
        return numbered(self._session, self._count, self._executors).mapInArrow(self._task, TASK_SCHEMA)

    def genesis(self) -> Sequence[Written]:
        """Write the state of all buckets at height 0."""
        return self._collect({"genesis": True})

    def run(self, before: Manifest, group: Group) -> Sequence[Written]:
        """Run a group of ticks on top of the committed height ``before``."""
        self._since += 1
        if self._since > ASKED_EVERY:
            self._since, before_now = 0, self._executors
            self._executors = executors_of(self._session)
            if self._executors != before_now:
                self._query = self._planned()
        written = self._collect(request_of(before, group))
        if not all(part.warm for part in written):
            self._since = ASKED_EVERY
        return written

    def _collect(self, request: dict[str, Any]) -> Sequence[Written]:
        with self._assignment() as assignment:
            self._context.setLocalProperty(REQUEST, json.dumps({**request, "assignment": assignment}))
            try:
                with spark_tasks():
                    rows = self._query.collect()
            finally:
                self._context.setLocalProperty(REQUEST, None)  # type: ignore[arg-type]
        rows = sorted(rows, key=lambda row: int(row["bucket"]))
        check_assigned([int(row["bucket"]) for row in rows], self._count)
        written = [written_from(row["written"], bytes(row["offers"])) for row in rows]
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


def request_of(before: Manifest, group: Group) -> dict[str, Any]:
    """Return what ``run_task`` is asked for a group of ticks, as a JSON object."""
    asked = {"first": asdict(group.first), "until": group.until, "every": asdict(group.every)}
    return {"before": before.number, "group": {**asked, "outside": dict(group.outside)}}


def written_from(content: str, offers: bytes) -> Written:
    """Return what a task wrote from what ``run_task`` returned. Raises the error with which it failed."""
    found = json.loads(content)
    if "error" in found:
        raise _error_of(found)
    found["said"] = [(Tick(**tick), Said(*said)) for tick, said in found["said"]]
    found["state"] = {name: parts_from(parts) for name, parts in found["state"].items()}
    found["files"] = {path: seal_from(seal) for path, seal in found["files"].items()}
    found["offers"] = Offers(tuple(Part(*part) for part in found["offers"]), offers)
    return Written(**found)


def _task(shared: Any, key: str, buckets: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        asked = context.getLocalProperty(REQUEST) if context is not None else None
        if asked is None:
            raise TaskFailed("a task was started without a request")
        request = json.loads(asked)
        deployment, lake = _shared(shared, key)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                bucket = _bucket_of(int(number), request["assignment"], buckets)
                content, offers = run_task(deployment, lake, bucket, request)
                numbers = [pa.array([value], pa.int32()) for value in (bucket, os.getpid())]
                columns = [*numbers, pa.array([content]), pa.array([offers], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["bucket", "worker", "written", "offers"])

    return run


def _bucket_of(task: int, assignment: Mapping[str, Any] | None, buckets: int) -> int:
    """Return which bucket a task runs. Raises ``NotAssigned``."""
    if assignment is None:
        return task
    homes = {int(bucket): worker for bucket, worker in assignment["homes"].items()}
    return assigned(task, assignment["folder"], buckets, homes)


_SHARED: Recent[str, tuple[Deployment, Lake]] = Recent()
"""What this worker knows of each ``SparkExecutor``, by its key. PySpark forgets a broadcast value whenever a worker
runs a task without it, so that executors in turns would unpickle theirs every time."""


def _shared(shared: Any, key: str) -> tuple[Deployment, Lake]:
    value = _SHARED.use(key, lambda: shared.value)
    pa.set_cpu_count(1)
    keep_memory()
    spare_modules()
    return value


def run_task(deployment: Deployment, lake: Lake, number: int, request: Mapping[str, Any]) -> tuple[str, bytes]:
    """Run one bucket as a task does; return what it wrote as JSON, or with what error it failed, and the bytes that it
    offers the others."""
    try:
        with told_places():
            if "genesis" in request:
                written = bucket_module.genesis(deployment, lake, number)
            else:
                before, group = lake.numbered(request["before"]), _group_of(request["group"])
                written = bucket_module.run_bucket(deployment, lake, number, before, group)
    except LakeDamaged as error:
        return json.dumps(
            {"error": error.name, "damaged": [lake.storage.uri, error.path, error.what, error.whole]}
        ), b""
    except CausewayError as error:
        failed = {"error": error.name, "text": str(error), "input": isinstance(error, InvalidInput)}
        return json.dumps(failed), b""
    said = [(asdict(tick), said) for tick, said in written.said]
    return json.dumps({**written.__dict__, "said": said, "offers": written.offers.parts}), written.offers.content


def _group_of(asked: Mapping[str, Any]) -> Group:
    return Group(**{**asked, "first": Tick(**asked["first"]), "every": CommitEvery(**asked["every"])})


def _error_of(content: dict[str, Any]) -> CausewayError:
    if "damaged" in content:
        return LakeDamaged(*content["damaged"])
    text = content["text"] if content["input"] else f"{content['error']}: {content['text']}"
    return InvalidInput(text) if content["input"] else TaskFailed(text)
