"""Ingest tasks, and their runners: threads of this process, or Spark.

A task reads parts of files and stages their rows by bucket, or sorts the rows of a bucket. Written files count once a
commit names them. Both runners give the same rows and files.
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

from causeway.cluster.jobs import default_parallelism, share_value, spark_jobs
from causeway.cluster.masters import available_cores
from causeway.cluster.tasks import result_of, run_pickled
from causeway.core.text import count_noun
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
"""Size of the part of a divisible file that a task reads, in bytes."""

QUARANTINE_BYTES = 32 << 20
"""Size of quarantined records in memory before they are written, in bytes."""

MANY_PARTS = 1 << 10
"""Minimum number of rows a bucket to order a piece by bucket at once; smaller pieces are ordered together."""

TaskProgress = Callable[[int], None]
"""Callback with the number of bytes read since the last call."""


@dataclass(frozen=True)
class IngestJob:
    """Common input of the tasks of a commit.

    Attributes:
        lake: Folder of the ledger.
        mapping: Meaning of the records.
        buckets: Number of buckets.
        prefix: Prefix of the commit's file names.
        run_bytes: Size of rows staged together, in bytes.
        part_bytes: Size of the parts of a divided file, in bytes.
        links: Links between records, or None.
    """

    lake: Storage
    mapping: MappingDocument
    buckets: int
    prefix: str
    run_bytes: int = RUN_BYTES
    part_bytes: int = PART_BYTES
    links: LaneLinks | None = None

    @property
    def folder(self) -> str:
        """Folder of staged rows."""
        return f"{STAGING}/{self.prefix}"

    def name(self) -> str:
        """Return a new file name: a retried task writes other files."""
        return f"{self.prefix}-{uuid.uuid4().hex[:16]}"


@dataclass(frozen=True)
class FileSlice:
    """A part of a file, of about ``bytes`` bytes."""

    source: SourceFile
    part: FilePart
    bytes: int


@dataclass
class StagedRows:
    """Result of a task that stages rows.

    Attributes:
        runs: The rows of ``ledger``.
        quarantine: Written files of the quarantine.
        aside: Unwritten rows of the quarantine.
        seen: Windows that the rows show.
        rows: Number of rows of ``ledger``.
        beside: The rows of other tables (``SIDE_TABLES``).
        beside_rows: Their number, by table.
        reasons: Number of quarantined records by reason.
        counts: Number of records by outcome.
        records: Number of records by file.
        ends: End of the records by file, in bytes.
        whole: True by file if the last record is complete.
        failed: Unreadable files: name, reason and text.
    """

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
    """Split a file into parts; an unreadable file is one part.

    Args:
        job: The job.
        source: The file.

    Returns:
        Its parts.
    """
    try:
        with source.open() as stream, source.convert_errors():
            parts = split_file(stream, source.name, source.size, job.mapping, job.part_bytes)
    except BadFile:
        parts = [FilePart()]  # the task that reads it reports the error
    return [FileSlice(source, part, source.size // len(parts)) for part in parts]


def index_slices(job: IngestJob, slices: Iterable[FileSlice]) -> list[pa.Table]:
    """Index the records of parts of files (``links.index_links``); unreadable files are skipped.

    Args:
        job: The job.
        slices: Parts of files.

    Returns:
        Index tables.
    """
    found: list[pa.Table] = []
    for each in slices:
        source = each.source
        with contextlib.suppress(BadFile), source.open() as stream, source.convert_errors():
            parts = ingest_file(stream, source.name, source.size, job.mapping, part=each.part, threads=1)
            found += [index_links(read_records.ledger, job.mapping.links) for read_records in parts]
    return found


def stage_slices(
    job: IngestJob,
    slices: Iterable[FileSlice],
    threads: int = 1,
    *,
    keep: bool = False,
    progress: TaskProgress | None = None,
) -> StagedRows:
    """Stage the rows of parts of files.

    Args:
        job: The job.
        slices: Parts of files.
        threads: Number of threads that read the records of one part.
        keep: Keep small results in memory.
        progress: Called with the progress.

    Returns:
        The staged rows.
    """
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
                self._stage_slice(each, threads)
            except BadFile as error:
                staged.failed.append((each.source.name, error.reason, str(error)))
        if not self._keep:
            self._write_quarantine()
        staged.runs = self._rows.end(keep=self._keep)
        staged.rows = self._rows.taken
        for table, writer in self._beside.items():
            staged.beside += writer.end(keep=self._keep)
            staged.beside_rows[table] = writer.taken
        return staged

    def _stage_slice(self, each: FileSlice, threads: int) -> None:
        staged, source, part = self._staged, each.source, each.part
        records, read, last = 0, 0, None
        with source.open() as stream, source.convert_errors():
            text = self._job.mapping.file_format(source.path) != "parquet"
            for ingested in ingest_file(
                stream, source.name, source.size, self._job.mapping, part=part, threads=threads, then=self._complete
            ):
                self._count(ingested)
                records, last = records + ingested.records, ingested
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

    def _complete(self, ingested: IngestedRecords) -> IngestedRecords:
        """Complete rows by links, and order them by bucket if there are many."""
        buckets = self._job.buckets
        if self._job.links is not None:
            ingested = replace(ingested, ledger=self._job.links.apply(ingested.ledger))
        if ingested.ledger.num_rows < MANY_PARTS * buckets:
            return ingested
        rows, found = spread_rows(ingested.ledger, buckets)
        return replace(ingested, ledger=rows, buckets=found)

    def _count(self, ingested: IngestedRecords) -> None:
        staged = self._staged
        staged.counts.update(
            records=ingested.records, taken=ingested.taken, ignored=ingested.ignored, blank=ingested.blank,
            quarantined=ingested.quarantine.num_rows,
        )  # fmt: skip
        if ingested.quarantine.num_rows:
            staged.reasons += ingested.reasons()
            staged.aside.append(ingested.quarantine)
            self._aside += ingested.quarantine.nbytes
            if self._aside >= QUARANTINE_BYTES:
                self._write_quarantine()
        staged.seen.add(ingested.ledger)
        self._rows.add(ingested.ledger, ingested.buckets)
        for table, rows in ingested.beside.items():
            self._beside[table].add(rows)
        if "value" in ingested.beside:
            staged.seen.add_value(ingested.beside["value"])

    def _write_quarantine(self) -> None:
        """Write the quarantined records."""
        if self._staged.aside:
            rows = pa.concat_tables([QUARANTINE_SCHEMA.empty_table(), *self._staged.aside]).unify_dictionaries()
            file = write_file(self._job.lake, self._job.name(), "quarantine", rows)
            self._staged.quarantine.append(file)
            self._staged.aside, self._aside = [], 0


def _share(records: int, part: FilePart, size: int) -> int:
    return size * records // part.records if part.records else 0


def _ends_whole(last: IngestedRecords) -> bool:
    """Return True if appended data cannot change the last record, line ends aside."""
    quarantined = last.quarantine
    if not quarantined.num_rows:
        return True
    return str(quarantined["reason"][-1]) != "open_quote"


def sort_bucket(job: IngestJob, bucket: int, runs: Sequence[SpooledRun]) -> list[StoredFile]:
    """Write the rows of a bucket as files of the ledger.

    Args:
        job: The ingest, with the storage of the ledger.
        bucket: Bucket number.
        runs: Spooled runs of one table.

    Returns:
        The files, sorted and without duplicates.
    """
    return write_bucket(job.lake, job.name(), bucket, runs)


def digest_file(source: SourceFile) -> str | tuple[str, str]:
    """Return the SHA-256 of a file; for an unreadable one, the reason and a text.

    Args:
        source: The file.

    Returns:
        64 hexadecimal digits; or the reason (``BadFile.reason``) and a text.
    """
    try:
        return str(source.digest().hexdigest())
    except BadFile as error:
        return error.reason, str(error)


TaskResult = TypeVar("TaskResult")

FileDigest = str | tuple[str, str]
"""SHA-256 of a file; for an unreadable one, the reason and a text."""

MAX_THREADS = 8
"""Maximum number of threads: each holds rows in memory, and they share one interpreter."""

SINGLE_TASK_FACTOR = 2
"""Factor of the run size for a single thread. Run boundaries must not depend on the number of threads, and neither
do the written files."""

TASKS_A_CORE = 3
"""Minimum number of Spark tasks a core, so that none waits long for the last ones."""

TASK_BYTES = 256 << 20
"""Approximate maximum size of files that a Spark task reads, in bytes."""


class Runner(Protocol):
    """Runs tasks."""

    def slices(self, job: IngestJob, sources: Sequence[SourceFile]) -> list[FileSlice]:
        """Return the parts of files.

        Args:
            job: The job.
            sources: The files.
        """
        ...

    def indexed(self, job: IngestJob, slices: Sequence[FileSlice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts.

        Args:
            job: The job.
            slices: Parts of files.
        """
        ...

    def staged(
        self, job: IngestJob, slices: Sequence[FileSlice], digests: Sequence[SourceFile], progress: TaskProgress | None
    ) -> tuple[list[StagedRows], list[FileDigest]]:
        """Stage the rows of files.

        Args:
            job: The job.
            slices: Parts of files.
            digests: Files to hash.
            progress: Called with the progress, or None.

        Returns:
            The staged rows, and the SHA-256 of ``digests``.
        """
        ...

    def sorted(self, job: IngestJob, buckets: Sequence[int], runs: Sequence[SpooledRun]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger.

        Args:
            job: The job.
            buckets: Bucket numbers, the largest first.
            runs: Runs of one table.

        Returns:
            The files.
        """
        ...


class ThreadRunner:
    """Runs tasks in threads of this process."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or min(available_cores(), MAX_THREADS)

    def slices(self, job: IngestJob, sources: Sequence[SourceFile]) -> list[FileSlice]:
        """Return the parts of files; text files are one part, as splitting needs a full scan."""
        found: list[FileSlice] = []
        for source in sources:
            if job.mapping.file_format(source.path) == "parquet":
                found += split_source(job, source)
            else:
                found.append(whole_file_slice(job, source))
        return found

    def indexed(self, job: IngestJob, slices: Sequence[FileSlice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        queue = _Shared(slices)
        workers = max(min(self.threads, len(slices)), 1)
        with _Pool(workers, queue.stop) as pool:
            return [table for found in pool.results([pool.submit(index_slices, job, queue) for _ in range(workers)])
                    for table in found]  # fmt: skip

    def staged(
        self, job: IngestJob, slices: Sequence[FileSlice], digests: Sequence[SourceFile], progress: TaskProgress | None
    ) -> tuple[list[StagedRows], list[FileDigest]]:
        """Stage the rows of files, in memory if there are few."""
        queue = _Shared(sorted(slices, key=lambda each: (-each.bytes, each.source.name, each.part.begin)))
        workers = max(min(self.threads, len(slices)), 1)
        threads = max(self.threads // workers, 1)

        def advance(count: int) -> None:
            if queue.stopped:
                raise _Stopped
            if progress is not None:
                progress(count)

        own = replace(job, run_bytes=SINGLE_TASK_FACTOR * job.run_bytes) if workers == 1 else job
        with _Pool(workers + 1, queue.stop) as pool:
            found = [
                pool.submit(stage_slices, own, queue, threads, keep=True, progress=advance) for _ in range(workers)
            ]
            known = [pool.submit(digest_file, source) for source in digests]
            return pool.results(found), pool.results(known)

    def sorted(self, job: IngestJob, buckets: Sequence[int], runs: Sequence[SpooledRun]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        queue = _Shared(list(buckets))

        def sort_buckets() -> list[StoredFile]:
            return [file for bucket in queue for file in sort_bucket(job, bucket, runs)]

        workers = max(min(self.threads, len(buckets)), 1)
        with _Pool(workers, queue.stop) as pool:
            return [
                file for files in pool.results([pool.submit(sort_buckets) for _ in range(workers)]) for file in files
            ]


class _Stopped(Exception):
    """Another thread failed, or the user interrupted."""


class _Shared:
    """Work items shared by threads, until it is stopped."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = deque(items)
        self._lock = threading.Lock()
        self.stopped = False

    def stop(self) -> None:
        """Stop handing out items."""
        self.stopped = True

    def __iter__(self) -> Iterator[Any]:
        while not self.stopped:
            with self._lock:
                if not self._items:
                    return
                item = self._items.popleft()
            yield item


class _Pool:
    """Thread pool that stops all threads once one fails."""

    def __init__(self, threads: int, stop: Callable[[], None]) -> None:
        self._pool, self._stop = ThreadPoolExecutor(threads, "causeway-take"), stop

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._stop()
        self._pool.shutdown(cancel_futures=error is not None)

    def submit(self, call: Callable[..., TaskResult], *arguments: Any, **named: Any) -> Future[TaskResult]:
        """Start a call."""
        return self._pool.submit(call, *arguments, **named)

    def results(self, futures: Sequence[Future[TaskResult]]) -> list[TaskResult]:
        """Return the results of calls; raise the first error."""
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = [error for each in futures if each.done() and (error := each.exception()) is not None]
        for error in sorted(failed, key=lambda each: isinstance(each, _Stopped)):
            raise error
        return [each.result() for each in futures]


def whole_file_slice(job: IngestJob, source: SourceFile) -> FileSlice:
    """Return a whole file as one part."""
    part = FilePart(end=source.size) if is_appendable_text(source.path, job.mapping) else FilePart()
    return FileSlice(source, part, source.size)


class SparkRunner:
    """Runs tasks on Spark.

    A task reads parts of files or sorts a bucket. Tasks exchange files in the ledger's folder; every node can access
    it.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def slices(self, job: IngestJob, sources: Sequence[SourceFile]) -> list[FileSlice]:
        """Return the parts of files; tasks split large ones."""
        large = [source for source in sources if source.size > job.part_bytes]
        parts_of = self._run(job, split_source, large, "split files")
        cut = {source.path: parts for source, parts in zip(large, parts_of, strict=True)}
        return [each for source in sources for each in cut.get(source.path) or [whole_file_slice(job, source)]]

    def indexed(self, job: IngestJob, slices: Sequence[FileSlice]) -> list[pa.Table]:
        """Return the index of the records of files, in parts."""
        return [
            table for found in self._run(job, index_slices, self._tasks(slices), "index records") for table in found
        ]

    def _tasks(self, slices: Sequence[FileSlice]) -> list[list[FileSlice]]:
        """Group slices by task."""
        total = sum(each.bytes for each in slices)
        least = TASKS_A_CORE * default_parallelism(self._session)
        return _group_slices(slices, max(min(TASK_BYTES, total // max(least, 1)), 1))

    def staged(
        self, job: IngestJob, slices: Sequence[FileSlice], digests: Sequence[SourceFile], progress: TaskProgress | None
    ) -> tuple[list[StagedRows], list[FileDigest]]:
        """Stage the rows of files, all in files."""
        largest = sorted(range(len(digests)), key=lambda at: -digests[at].size)
        found = self._run(job, _stage, [*(digests[at] for at in largest), *self._tasks(slices)], "read files")
        of_source = dict(zip(largest, found, strict=False))
        return found[len(digests) :], [of_source[at] for at in range(len(digests))]

    def sorted(self, job: IngestJob, buckets: Sequence[int], runs: Sequence[SpooledRun]) -> list[StoredFile]:
        """Write the rows of buckets as files of the ledger."""
        items = [(bucket, [run for run in runs if bucket in run.buckets]) for bucket in buckets]
        return [file for files in self._run(job, _sort, items, "sort buckets") for file in files]

    def _run(self, job: IngestJob, work: Callable[[IngestJob, Any], Any], items: Sequence[Any], what: str) -> list[Any]:
        """Run a task for each item; return the results, or raise the first error."""
        if not items:
            return []
        session, value = self._session, (pickle.dumps(job), [pickle.dumps(item) for item in items])
        text = f"ingest, {what}, {count_noun(len(items), 'task')}"
        with share_value(session, value) as shared, spark_jobs(session, text) as counts:
            query = session.range(0, len(items), 1, len(items)).mapInArrow(_task(work, shared), _SCHEMA)
            found = {row["item"]: row["result"] for row in query.toArrow().to_pylist()}
            results = [result_of(found[number]) for number in range(len(items))]
            for result in results:
                _count_rows(result, counts)
        return results


_SCHEMA = "item int, result binary"


def _count_rows(result: Any, counts: Counter[str]) -> None:
    """Add the rows that a task staged, or wrote to files, and their size."""
    if isinstance(result, StagedRows):
        counts.update(records=sum(result.records.values()), rows=result.rows)
    elif isinstance(result, list):
        for file in (each for each in result if isinstance(each, StoredFile)):
            counts.update(rows=file.rows, bytes=file.bytes)


def _stage(job: IngestJob, item: SourceFile | list[FileSlice]) -> FileDigest | StagedRows:
    return digest_file(item) if isinstance(item, SourceFile) else stage_slices(job, item)


def _sort(job: IngestJob, item: tuple[int, list[SpooledRun]]) -> list[StoredFile]:
    return sort_bucket(job, *item)


def _group_slices(slices: Sequence[FileSlice], most: int) -> list[list[FileSlice]]:
    """Group slices to about ``most`` bytes."""
    found: list[list[FileSlice]] = []
    remaining = 0
    for each in slices:
        if not found or remaining < each.bytes:
            found.append([])
            remaining = most
        found[-1].append(each)
        remaining -= max(each.bytes, 1 << 16)  # opening a small file costs time as well
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
