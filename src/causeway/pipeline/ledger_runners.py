"""Who runs the tasks that take files into a ledger: threads of this process, or Spark. Same rows, same files."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from causeway.ingest.reader import Part, is_text
from causeway.pipeline.ledger_runs import Run
from causeway.pipeline.ledger_sources import Source
from causeway.pipeline.ledger_store import StoredFile
from causeway.pipeline.ledger_taking import Job, Progress, Slice, Staged, digest, index, sort, stage, survey
from causeway.pipeline.masters import cores_here
from causeway.pipeline.task_errors import result_of, run_pickled, spark_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")

Digest = str | tuple[str, str]
"""The SHA-256 of a file, or why it cannot be read: the reason and a text."""

MOST_THREADS = 8
"""Threads of one process: each has some rows in memory, and they share one interpreter."""

ALONE = 2
"""So many times as many rows a thread that takes files alone has in memory: where they end tells nothing of how many
threads there are, as what is written shall not."""

TASKS_A_CORE = 3
"""So many tasks a core has on Spark at least, so that none waits long for the last ones."""

TASK_BYTES = 256 << 20
"""Bytes of files that a Spark task reads, at most and about."""


class Runner(Protocol):
    """Runs tasks."""

    def slices(self, job: Job, sources: Sequence[Source]) -> list[Slice]:
        """Return the parts that files are read in."""
        ...

    def indexed(self, job: Job, slices: Sequence[Slice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        ...

    def staged(
        self, job: Job, slices: Sequence[Slice], digests: Sequence[Source], progress: Progress | None
    ) -> tuple[list[Staged], list[Digest]]:
        """Set the rows of files aside; return what was made of them, and the SHA-256 of ``digests``."""
        ...

    def sorted(self, job: Job, buckets: Sequence[int], runs: Sequence[Run]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        ...


class InThreads:
    """Runs tasks in threads of this process."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(cores_here(), MOST_THREADS)

    def slices(self, job: Job, sources: Sequence[Source]) -> list[Slice]:
        """Return the parts that files are read in: those whose parts are known without reading all of them."""
        found: list[Slice] = []
        for source in sources:
            if job.mapping.format_of(source.path) == "parquet":
                found += survey(job, source)
            else:
                found.append(whole_slice(job, source))
        return found

    def indexed(self, job: Job, slices: Sequence[Slice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        left = _Shared(slices)
        workers = max(min(self.threads, len(slices)), 1)
        with _Pool(workers, left.stop) as pool:
            return [table for found in pool.results([pool.submit(index, job, left) for _ in range(workers)])
                    for table in found]  # fmt: skip

    def staged(
        self, job: Job, slices: Sequence[Slice], digests: Sequence[Source], progress: Progress | None
    ) -> tuple[list[Staged], list[Digest]]:
        """Set the rows of files aside, in memory if there are few."""
        left = _Shared(sorted(slices, key=lambda each: (-each.bytes, each.source.name, each.part.begin)))
        workers = max(min(self.threads, len(slices)), 1)
        threads = max(self.threads // workers, 1)

        def told(count: int) -> None:
            if left.stopped:
                raise _Stopped
            if progress is not None:
                progress(count)

        own = replace(job, run_bytes=ALONE * job.run_bytes) if workers == 1 else job
        with _Pool(workers + 1, left.stop) as pool:
            found = [pool.submit(stage, own, left, threads, keep=True, progress=told) for _ in range(workers)]
            known = [pool.submit(digest, source) for source in digests]
            return pool.results(found), pool.results(known)

    def sorted(self, job: Job, buckets: Sequence[int], runs: Sequence[Run]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        left = _Shared(list(buckets))

        def some() -> list[StoredFile]:
            return [file for bucket in left for file in sort(job, bucket, runs)]

        workers = max(min(self.threads, len(buckets)), 1)
        with _Pool(workers, left.stop) as pool:
            return [file for files in pool.results([pool.submit(some) for _ in range(workers)]) for file in files]


class _Stopped(Exception):
    """The work of another thread has failed, or the user has had enough."""


class _Shared:
    """Work that threads take from each other, until it is stopped."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = deque(items)
        self._lock = threading.Lock()
        self.stopped = False

    def stop(self) -> None:
        """Give nothing out any more."""
        self.stopped = True

    def __iter__(self) -> Iterator[Any]:
        while not self.stopped:
            with self._lock:
                if not self._items:
                    return
                item = self._items.popleft()
            yield item


class _Pool:
    """Threads of which none goes on when one fails."""

    def __init__(self, threads: int, stop: Callable[[], None]) -> None:
        self._pool, self._stop = ThreadPoolExecutor(threads, "causeway-take"), stop

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._stop()
        self._pool.shutdown(cancel_futures=error is not None)

    def submit(self, call: Callable[..., Result], *arguments: Any, **named: Any) -> Future[Result]:
        """Begin a call."""
        return self._pool.submit(call, *arguments, **named)

    def results(self, futures: Sequence[Future[Result]]) -> list[Result]:
        """Return what calls return. Raises what one of them raised."""
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = [error for each in futures if each.done() and (error := each.exception()) is not None]
        for error in sorted(failed, key=lambda each: isinstance(each, _Stopped)):
            raise error
        return [each.result() for each in futures]


def whole_slice(job: Job, source: Source) -> Slice:
    """Return all of a file as one part."""
    part = Part(end=source.size) if is_text(source.path, job.mapping) else Part()
    return Slice(source, part, source.size)


class OnSpark:
    """Runs tasks on Spark: each reads some parts of files, or sorts a bucket. What goes from one to the other are files
    in the ledger's folder, which all of them reach."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def slices(self, job: Job, sources: Sequence[Source]) -> list[Slice]:
        """Return the parts that files are read in; those of large ones are looked for by tasks."""
        large = [source for source in sources if source.size > job.part_bytes]
        cut = {source.path: parts for source, parts in zip(large, self._run(job, survey, large), strict=True)}
        return [each for source in sources for each in cut.get(source.path) or [whole_slice(job, source)]]

    def indexed(self, job: Job, slices: Sequence[Slice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        return [table for found in self._run(job, index, self._tasks(slices)) for table in found]

    def _tasks(self, slices: Sequence[Slice]) -> list[list[Slice]]:
        """Return the slices that a task reads, of each."""
        total = sum(each.bytes for each in slices)
        least = TASKS_A_CORE * self._session.sparkContext.defaultParallelism
        return _grouped(slices, max(min(TASK_BYTES, total // max(least, 1)), 1))

    def staged(
        self, job: Job, slices: Sequence[Slice], digests: Sequence[Source], progress: Progress | None
    ) -> tuple[list[Staged], list[Digest]]:
        """Set the rows of files aside, all in files."""
        largest = sorted(range(len(digests)), key=lambda at: -digests[at].size)
        found = self._run(job, _stage, [*(digests[at] for at in largest), *self._tasks(slices)])
        of_source = dict(zip(largest, found, strict=False))
        return found[len(digests) :], [of_source[at] for at in range(len(digests))]

    def sorted(self, job: Job, buckets: Sequence[int], runs: Sequence[Run]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        items = [(bucket, [run for run in runs if bucket in run.buckets]) for bucket in buckets]
        return [file for files in self._run(job, _sort, items) for file in files]

    def _run(self, job: Job, work: Callable[[Job, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run a task an item; return what they return. Raises what the first of them raised."""
        if not items:
            return []
        context = self._session.sparkContext
        shared = context.broadcast((pickle.dumps(job), [pickle.dumps(item) for item in items]))
        try:
            with spark_tasks():
                query = self._session.range(0, len(items), 1, len(items)).mapInArrow(_task(work, shared), _SCHEMA)
                rows = query.toArrow().to_pylist()
        finally:
            shared.unpersist()
        found = {row["item"]: row["result"] for row in rows}
        return [result_of(found[number]) for number in range(len(items))]


_SCHEMA = "item int, result binary"


def _stage(job: Job, item: Source | list[Slice]) -> Digest | Staged:
    return digest(item) if isinstance(item, Source) else stage(job, item)


def _sort(job: Job, item: tuple[int, list[Run]]) -> list[StoredFile]:
    return sort(job, *item)


def _grouped(slices: Sequence[Slice], most: int) -> list[list[Slice]]:
    """Return slices in groups of about ``most`` bytes."""
    found: list[list[Slice]] = []
    room = 0
    for each in slices:
        if not found or room < each.bytes:
            found.append([])
            room = most
        found[-1].append(each)
        room -= max(each.bytes, 1 << 16)  # a small file takes time, too
    return found


def _task(
    work: Callable[[Job, Any], Any], shared: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from causeway.pipeline.ledger_tasks import prepare_worker

        prepare_worker()
        job, items = shared.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = run_pickled(partial(work, pickle.loads(job), pickle.loads(items[number])))
                columns = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["item", "result"])

    return run


__all__ = ["InThreads", "OnSpark", "Runner"]
