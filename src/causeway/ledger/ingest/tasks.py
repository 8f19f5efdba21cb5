"""Tasks that take files into a ledger: each reads some parts of files and sets their rows aside by bucket, or sorts the
rows of a bucket. They may run in threads, or as Spark tasks; what a task wrote counts when a commit names it.

Who runs the tasks that take files into a ledger: threads of this process, or Spark. Same rows, same files.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from causeway.ledger.commits import STAGING
from causeway.ledger.ingest.chunks import BadFile
from causeway.ledger.ingest.links import LaneLinks, index_links
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.reader import FilePart, ingest_file, is_appendable_text, split_file
from causeway.ledger.ingest.records import SIDE_TABLES, IngestedRecords
from causeway.ledger.ingest.sources import SourceFile
from causeway.ledger.ingest.windows import ObservedWindows
from causeway.ledger.schema import QUARANTINE_SCHEMA
from causeway.ledger.sorted_runs import RUN_BYTES, RunWriter, SpooledRun, spread_rows, write_bucket
from causeway.ledger.store import StoredFile, write_file
from causeway.spark.masters import available_cores
from causeway.spark.tasks import convert_spark_errors, result_of, run_pickled
from causeway.storage.files import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "PART_BYTES",
    "FileSlice",
    "IngestJob",
    "Runner",
    "SparkRunner",
    "StagedRows",
    "TaskProgress",
    "ThreadRunner",
    "digest_file",
    "index_slices",
    "sort_bucket",
    "split_source",
    "stage_slices",
]

PART_BYTES = 64 << 20
"""Bytes of files that a task reads, of those that can be cut."""

QUARANTINE_BYTES = 32 << 20
"""Bytes of records that were set aside, before they are written."""

MANY_PARTS = 1 << 10
"""Rows a bucket, from which on those of a piece are put in order at once: with fewer, those of many pieces are."""

TaskProgress = Callable[[int], None]
"""Told how many bytes more were read."""


@dataclass(frozen=True)
class IngestJob:
    """What the tasks of a commit share. ``lake``: the ledger, with so many ``buckets``; ``prefix``: what the names of
    the commit's files begin with; ``run_bytes``: of rows that are set aside together; ``part_bytes``: that a file is
    cut into; ``links``: what other records tell of each row."""

    lake: Storage
    mapping: MappingDocument
    buckets: int
    prefix: str
    run_bytes: int = RUN_BYTES
    part_bytes: int = PART_BYTES
    links: LaneLinks | None = None

    @property
    def folder(self) -> str:
        """Return where rows are set aside."""
        return f"{STAGING}/{self.prefix}"

    def name(self) -> str:
        """Return a new name for a file: a task that is tried again writes other files."""
        return f"{self.prefix}-{uuid.uuid4().hex[:16]}"


@dataclass(frozen=True)
class FileSlice:
    """A part of a file, of about ``bytes`` bytes."""

    source: SourceFile
    part: FilePart
    bytes: int


@dataclass
class StagedRows:
    """What a task made of parts of files. ``runs``: the rows; ``quarantine``: files of it that were written, and
    ``aside``: rows of it that were not; ``reasons``: how many records were set aside for what; ``counts``: of records,
    by what became of them; ``of``: by name of a file, how many records it has, and where they end; ``whole``: whether a
    record ends there; ``beside``: rows of the tables ``BESIDE``, and ``beside_rows``: how many; ``failed``: files that
    cannot be read, with reason and text."""

    runs: list[SpooledRun]
    quarantine: list[StoredFile]
    aside: list[pa.Table]
    seen: ObservedWindows
    rows: int = 0
    beside: list[SpooledRun] = field(default_factory=list)
    beside_rows: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    ends: dict[str, int] = field(default_factory=dict)
    whole: dict[str, bool] = field(default_factory=dict)
    failed: list[tuple[str, str, str]] = field(default_factory=list)


def split_source(job: IngestJob, source: SourceFile) -> list[FileSlice]:
    """Return the parts that a file is cut into: one, which has it all, where it cannot be read."""
    try:
        with source.open() as stream, source.said():
            parts = split_file(stream, source.name, source.size, job.mapping, job.part_bytes)
    except BadFile:
        parts = [FilePart()]  # whoever reads it says why
    return [FileSlice(source, part, source.size // len(parts)) for part in parts]


def index_slices(job: IngestJob, slices: Iterable[FileSlice]) -> list[pa.Table]:
    """Return the index of the records of some parts of files (``links.index_rows``). Files that cannot be read have
    none: who stages them says why."""
    found: list[pa.Table] = []
    for each in slices:
        source = each.source
        with contextlib.suppress(BadFile), source.open() as stream, source.said():
            parts = ingest_file(stream, source.name, source.size, job.mapping, part=each.part, threads=1)
            found += [index_links(taken.ledger, job.mapping.links) for taken in parts]
    return found


def stage_slices(
    job: IngestJob,
    slices: Iterable[FileSlice],
    threads: int = 1,
    *,
    keep: bool = False,
    progress: TaskProgress | None = None,
) -> StagedRows:
    """Set the rows of some parts of files aside. ``threads``: that read records of one part; ``keep``: what is small
    may stay in memory; ``progress``: is told how far it is."""
    return _Staging(job, keep, progress).run(slices, threads)


class _Staging:
    def __init__(self, job: IngestJob, keep: bool, progress: TaskProgress | None) -> None:
        self._job, self._keep, self._progress = job, keep, progress
        self._rows = RunWriter(job.lake, job.folder, job.buckets, job.run_bytes)
        self._beside = {
            table: RunWriter(job.lake, job.folder, job.buckets, job.run_bytes, table) for table in SIDE_TABLES
        }
        self._staged = StagedRows([], [], [], ObservedWindows(job.mapping))
        self._aside = 0

    def run(self, slices: Iterable[FileSlice], threads: int) -> StagedRows:
        staged = self._staged
        for each in slices:
            try:
                self._take(each, threads)
            except BadFile as error:
                staged.failed.append((each.source.name, error.reason, str(error)))
        if not self._keep:
            self._set_aside()
        staged.runs = self._rows.end(keep=self._keep)
        staged.rows = self._rows.taken
        for table, writer in self._beside.items():
            staged.beside += writer.end(keep=self._keep)
            staged.beside_rows[table] = writer.taken
        return staged

    def _take(self, each: FileSlice, threads: int) -> None:
        staged, source, part = self._staged, each.source, each.part
        records, read, last = 0, 0, None
        with source.open() as stream, source.said():
            text = self._job.mapping.file_format(source.path) != "parquet"
            for taken in ingest_file(
                stream, source.name, source.size, self._job.mapping, part=part, threads=threads, then=self._completed
            ):
                self._count(taken)
                records, last = records + taken.records, taken
                if self._progress is not None:
                    done = stream.tell() - part.begin if text else _share(records, part, each.bytes)
                    now = max(min(done, each.bytes), read)
                    self._progress(now - read)
                    read = now
        if part.records is not None and part.records != records:
            raise BadFile(f"{source.name}: changed while it was read; run again", "changed")
        if self._progress is not None:
            self._progress(each.bytes - read)
        staged.records[source.name] += records
        if last is not None and last.end >= staged.ends.get(source.name, 0):
            staged.ends[source.name] = last.end
            staged.whole[source.name] = _ends_whole(last)

    def _completed(self, taken: IngestedRecords) -> IngestedRecords:
        """Return records with their rows completed by other records, and in the order of the buckets, where each has
        many of them."""
        buckets = self._job.buckets
        if self._job.links is not None:
            taken = replace(taken, ledger=self._job.links.apply(taken.ledger))
        if taken.ledger.num_rows < MANY_PARTS * buckets:
            return taken
        rows, found = spread_rows(taken.ledger, buckets)
        return replace(taken, ledger=rows, buckets=found)

    def _count(self, taken: IngestedRecords) -> None:
        staged = self._staged
        staged.counts.update(
            records=taken.records, taken=taken.taken, ignored=taken.ignored, blank=taken.blank,
            quarantined=taken.quarantine.num_rows,
        )  # fmt: skip
        if taken.quarantine.num_rows:
            staged.reasons += taken.reasons()
            staged.aside.append(taken.quarantine)
            self._aside += taken.quarantine.nbytes
            if self._aside >= QUARANTINE_BYTES:
                self._set_aside()
        staged.seen.add(taken.ledger)
        self._rows.add(taken.ledger, taken.buckets)
        for table, rows in taken.beside.items():
            self._beside[table].add(rows)
        if "value" in taken.beside:
            staged.seen.add_value(taken.beside["value"])

    def _set_aside(self) -> None:
        """Write what cannot be read."""
        if self._staged.aside:
            rows = pa.concat_tables([QUARANTINE_SCHEMA.empty_table(), *self._staged.aside]).unify_dictionaries()
            file = write_file(self._job.lake, self._job.name(), "quarantine", rows)
            self._staged.quarantine.append(file)
            self._staged.aside, self._aside = [], 0


def _share(records: int, part: FilePart, size: int) -> int:
    return size * records // part.records if part.records else 0


def _ends_whole(last: IngestedRecords) -> bool:
    """Return whether the last record needs nothing that may still be appended: that it ended with a line is for who
    has the file to say."""
    broken = last.quarantine
    if not broken.num_rows:
        return True
    return str(broken["reason"][-1]) != "open_quote"


def sort_bucket(job: IngestJob, bucket: int, runs: Sequence[SpooledRun]) -> list[StoredFile]:
    """Write the rows of a bucket as files of the ledger."""
    return write_bucket(job.lake, job.name(), bucket, runs)


def digest_file(source: SourceFile) -> str | tuple[str, str]:
    """Return the SHA-256 of a file; of one that cannot be read, the reason and a text."""
    try:
        return str(source.digest().hexdigest())
    except BadFile as error:
        return error.reason, str(error)


TaskResult = TypeVar("TaskResult")

FileDigest = str | tuple[str, str]
"""The SHA-256 of a file, or why it cannot be read: the reason and a text."""

MAX_THREADS = 8
"""Threads of one process: each has some rows in memory, and they share one interpreter."""

SINGLE_TASK_BYTES = 2
"""So many times as many rows a thread that takes files alone has in memory: where they end tells nothing of how many
threads there are, as what is written shall not."""

TASKS_A_CORE = 3
"""So many tasks a core has on Spark at least, so that none waits long for the last ones."""

TASK_BYTES = 256 << 20
"""Bytes of files that a Spark task reads, at most and about."""


class Runner(Protocol):
    """Runs tasks."""

    def slices(self, job: IngestJob, sources: Sequence[SourceFile]) -> list[FileSlice]:
        """Return the parts that files are read in."""
        ...

    def indexed(self, job: IngestJob, slices: Sequence[FileSlice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        ...

    def staged(
        self, job: IngestJob, slices: Sequence[FileSlice], digests: Sequence[SourceFile], progress: TaskProgress | None
    ) -> tuple[list[StagedRows], list[FileDigest]]:
        """Set the rows of files aside; return what was made of them, and the SHA-256 of ``digests``."""
        ...

    def sorted(self, job: IngestJob, buckets: Sequence[int], runs: Sequence[SpooledRun]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        ...


class ThreadRunner:
    """Runs tasks in threads of this process."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(available_cores(), MAX_THREADS)

    def slices(self, job: IngestJob, sources: Sequence[SourceFile]) -> list[FileSlice]:
        """Return the parts that files are read in: those whose parts are known without reading all of them."""
        found: list[FileSlice] = []
        for source in sources:
            if job.mapping.file_format(source.path) == "parquet":
                found += split_source(job, source)
            else:
                found.append(whole_file_slice(job, source))
        return found

    def indexed(self, job: IngestJob, slices: Sequence[FileSlice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        left = _Shared(slices)
        workers = max(min(self.threads, len(slices)), 1)
        with _Pool(workers, left.stop) as pool:
            return [table for found in pool.results([pool.submit(index_slices, job, left) for _ in range(workers)])
                    for table in found]  # fmt: skip

    def staged(
        self, job: IngestJob, slices: Sequence[FileSlice], digests: Sequence[SourceFile], progress: TaskProgress | None
    ) -> tuple[list[StagedRows], list[FileDigest]]:
        """Set the rows of files aside, in memory if there are few."""
        left = _Shared(sorted(slices, key=lambda each: (-each.bytes, each.source.name, each.part.begin)))
        workers = max(min(self.threads, len(slices)), 1)
        threads = max(self.threads // workers, 1)

        def told(count: int) -> None:
            if left.stopped:
                raise _Stopped
            if progress is not None:
                progress(count)

        own = replace(job, run_bytes=SINGLE_TASK_BYTES * job.run_bytes) if workers == 1 else job
        with _Pool(workers + 1, left.stop) as pool:
            found = [pool.submit(stage_slices, own, left, threads, keep=True, progress=told) for _ in range(workers)]
            known = [pool.submit(digest_file, source) for source in digests]
            return pool.results(found), pool.results(known)

    def sorted(self, job: IngestJob, buckets: Sequence[int], runs: Sequence[SpooledRun]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        left = _Shared(list(buckets))

        def some() -> list[StoredFile]:
            return [file for bucket in left for file in sort_bucket(job, bucket, runs)]

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

    def submit(self, call: Callable[..., TaskResult], *arguments: Any, **named: Any) -> Future[TaskResult]:
        """Begin a call."""
        return self._pool.submit(call, *arguments, **named)

    def results(self, futures: Sequence[Future[TaskResult]]) -> list[TaskResult]:
        """Return what calls return. Raises what one of them raised."""
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = [error for each in futures if each.done() and (error := each.exception()) is not None]
        for error in sorted(failed, key=lambda each: isinstance(each, _Stopped)):
            raise error
        return [each.result() for each in futures]


def whole_file_slice(job: IngestJob, source: SourceFile) -> FileSlice:
    """Return all of a file as one part."""
    part = FilePart(end=source.size) if is_appendable_text(source.path, job.mapping) else FilePart()
    return FileSlice(source, part, source.size)


class SparkRunner:
    """Runs tasks on Spark: each reads some parts of files, or sorts a bucket. What goes from one to the other are files
    in the ledger's folder, which all of them reach."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def slices(self, job: IngestJob, sources: Sequence[SourceFile]) -> list[FileSlice]:
        """Return the parts that files are read in; those of large ones are looked for by tasks."""
        large = [source for source in sources if source.size > job.part_bytes]
        cut = {source.path: parts for source, parts in zip(large, self._run(job, split_source, large), strict=True)}
        return [each for source in sources for each in cut.get(source.path) or [whole_file_slice(job, source)]]

    def indexed(self, job: IngestJob, slices: Sequence[FileSlice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        return [table for found in self._run(job, index_slices, self._tasks(slices)) for table in found]

    def _tasks(self, slices: Sequence[FileSlice]) -> list[list[FileSlice]]:
        """Return the slices that a task reads, of each."""
        total = sum(each.bytes for each in slices)
        least = TASKS_A_CORE * self._session.sparkContext.defaultParallelism
        return _grouped(slices, max(min(TASK_BYTES, total // max(least, 1)), 1))

    def staged(
        self, job: IngestJob, slices: Sequence[FileSlice], digests: Sequence[SourceFile], progress: TaskProgress | None
    ) -> tuple[list[StagedRows], list[FileDigest]]:
        """Set the rows of files aside, all in files."""
        largest = sorted(range(len(digests)), key=lambda at: -digests[at].size)
        found = self._run(job, _stage, [*(digests[at] for at in largest), *self._tasks(slices)])
        of_source = dict(zip(largest, found, strict=False))
        return found[len(digests) :], [of_source[at] for at in range(len(digests))]

    def sorted(self, job: IngestJob, buckets: Sequence[int], runs: Sequence[SpooledRun]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        items = [(bucket, [run for run in runs if bucket in run.buckets]) for bucket in buckets]
        return [file for files in self._run(job, _sort, items) for file in files]

    def _run(self, job: IngestJob, work: Callable[[IngestJob, Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run a task an item; return what they return. Raises what the first of them raised."""
        if not items:
            return []
        context = self._session.sparkContext
        shared = context.broadcast((pickle.dumps(job), [pickle.dumps(item) for item in items]))
        try:
            with convert_spark_errors():
                query = self._session.range(0, len(items), 1, len(items)).mapInArrow(_task(work, shared), _SCHEMA)
                rows = query.toArrow().to_pylist()
        finally:
            shared.unpersist()
        found = {row["item"]: row["result"] for row in rows}
        return [result_of(found[number]) for number in range(len(items))]


_SCHEMA = "item int, result binary"


def _stage(job: IngestJob, item: SourceFile | list[FileSlice]) -> FileDigest | StagedRows:
    return digest_file(item) if isinstance(item, SourceFile) else stage_slices(job, item)


def _sort(job: IngestJob, item: tuple[int, list[SpooledRun]]) -> list[StoredFile]:
    return sort_bucket(job, *item)


def _grouped(slices: Sequence[FileSlice], most: int) -> list[list[FileSlice]]:
    """Return slices in groups of about ``most`` bytes."""
    found: list[list[FileSlice]] = []
    room = 0
    for each in slices:
        if not found or room < each.bytes:
            found.append([])
            room = most
        found[-1].append(each)
        room -= max(each.bytes, 1 << 16)  # a small file takes time, too
    return found


def _task(
    work: Callable[[IngestJob, Any], Any], shared: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from causeway.ledger.bucket_scan import prepare_worker

        prepare_worker()
        job, items = shared.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = run_pickled(partial(work, pickle.loads(job), pickle.loads(items[number])))
                columns = [pa.array([number], pa.int32()), pa.array([result], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["item", "result"])

    return run
