"""Ingest recorded traffic into a stored ledger, once or continuously.

Each call of ``ingest_files`` is one commit; memory is bounded by a batch of rows. ``follow_source`` commits the batches
of a streaming query over the folder (``folder_stream``). Progress is recorded in the ledger's commits only, together
with the rows. After a crash a new query starts and finds new records by the ledger, so Spark's checkpoint is temporary.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import xxhash
from causeway_proofs.errors import InvalidInput

from causeway.cluster.jobs import session_folder
from causeway.cluster.masters import available_cores
from causeway.cluster.tasks import TaskFailed, extract_python_error
from causeway.cluster.thresholds import spark_threshold
from causeway.cluster.workers import retain_freed_memory
from causeway.ledger.commits import LEDGER_FILE, CommitLost, InputFile
from causeway.ledger.ingest.chunks import BadFile
from causeway.ledger.ingest.commit import COUNT_NAMES, CommitResult, commit_files
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.reader import is_appendable_text, is_divisible
from causeway.ledger.ingest.sources import (
    IngestHistory,
    PendingInput,
    SourceFile,
    displayed_path,
    find_sources,
    locate_source,
    no_files_error,
)
from causeway.ledger.ingest.tasks import MAX_THREADS, Runner, SparkRunner, ThreadRunner
from causeway.ledger.maintenance import maintain_ledger, remove_garbage
from causeway.ledger.row_order import MAX_BUCKETS
from causeway.ledger.store import Ledger, create_ledger, open_ledger, require_bucket_count
from causeway.storage.files import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "EXECUTORS",
    "SETTLED_SECONDS",
    "BadFile",
    "FolderFollower",
    "FollowBatch",
    "FollowResult",
    "IngestResult",
    "bucket_count",
    "choose_bucket_count",
    "follow_source",
    "ingest_files",
    "mapping_digest",
    "open_target",
    "to_ingest_result",
]

EXECUTORS = ("auto", "in_process", "spark")

_ROW_BYTES = {"csv": 200, "jsonl": 1000, "parquet": 20}
"""Approximate size of a record by format, in bytes, to choose the bucket count of a new ledger."""

_BUCKET_ROWS, _MAX_ROWS = 400_000, 2_000_000
_FEW_BUCKETS = 64

IngestProgress = Callable[[int, int], None]
"""Callback with the number of bytes read, and their total."""


@dataclass
class IngestResult:
    """Result of one ingest.

    Attributes:
        commit: Number of the commit, or None if nothing was new.
        files: Number of ingested files.
        records: Number of records read.
        rows: Number of ledger rows written.
        repeated: Number of duplicate rows.
        taken: Number of records that gave rows.
        ignored: Number of records that the mapping ignores.
        blank: Number of blank records.
        quarantined: Number of unreadable records by reason.
        failed: Text for each unreadable file.
        skipped: Number of files that were already ingested.
        others: Number of files of other formats in the folder.
        movements: Number of movements of value written.
        headers: Number of headers written.
        watermarks: Number of watermarks written.
    """

    commit: int | None
    files: int
    records: int
    rows: int
    repeated: int
    taken: int
    ignored: int
    blank: int
    quarantined: dict[str, int]
    failed: dict[str, str]
    skipped: int
    others: int
    movements: int = 0
    headers: int = 0
    watermarks: int = 0


def ingest_files(
    source: str,
    lake: str,
    mapping: MappingDocument,
    *,
    buckets: int | None = None,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    set_aside: bool = False,
    progress: IngestProgress | None = None,
) -> IngestResult:
    """Ingest a file or folder into a ledger, as one commit.

    A file that the same mapping ingested completely before is skipped, whatever its name. Of a file that grew by whole
    records, only the appended part is ingested.

    Args:
        source: Path or URI of a file or folder.
        lake: Path or URI of the ledger; it is created if missing.
        mapping: Meaning of the records.
        buckets: Bucket count of a new ledger; default: by the size of the files.
        executor: ``in_process``, ``spark``, or ``auto``: Spark with a ``session``, or from
            ``CAUSEWAY_SPARK_BYTES`` on.
        session: Spark session to use; default: ``open_session(master, extra=settings)`` if Spark is used.
        master: As of ``open_session``.
        settings: As of ``open_session``.
        set_aside: Quarantine unreadable files. Otherwise they end the call.
        progress: Called with the progress, from any thread.

    Returns:
        The result of the ingest.

    Raises:
        InvalidInput: A file does not fit the mapping, or another process commits. Nothing is committed.
        LedgerDamaged: The ledger is damaged. Nothing is committed.
        TaskFailed: A Spark task failed. Nothing is committed.
    """
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    found, others = find_sources(source, mapping)
    digest = mapping_digest(mapping)
    ledger = open_target(lake, buckets)
    before = IngestHistory(() if ledger is None else ledger.ingested_inputs(), digest)
    pending, failed = before.find_new(found, mapping)
    if failed and not set_aside:
        raise InvalidInput(failed[min(failed)][1])
    skipped = len(found) - len(pending) - len(failed)
    if not pending:
        if ledger is None:
            raise no_files_error(source, mapping)
        return IngestResult(None, 0, 0, 0, 0, 0, 0, 0, {}, {}, skipped, others)
    is_large = _is_large(sum(take.source.size - take.begin for take in pending))
    if ledger is None:
        ledger = create_ledger(lake, choose_bucket_count(found, mapping) if buckets is None else buckets)
    runner: Runner
    if executor == "spark" or (executor == "auto" and (session is not None or is_large)):
        from causeway.cluster.session import open_session

        runner = SparkRunner(session or open_session(master, extra=settings))
    else:
        retain_freed_memory()
        runner = ThreadRunner()
    result = commit_files(ledger, pending, mapping, digest, runner, strict=not set_aside, progress=progress)
    result.failed |= failed
    if result.commit is not None:
        remove_garbage(maintain_ledger(ledger.after(result.commit), min(available_cores(), MAX_THREADS)))
    return to_ingest_result(result, skipped, others)


def _is_large(size: int) -> bool:
    return size >= spark_threshold("CAUSEWAY_SPARK_BYTES")


def to_ingest_result(done: CommitResult, skipped: int, others: int) -> IngestResult:
    """Convert the result of a commit.

    Args:
        done: Result of the commit.
        skipped: Number of files that were already ingested.
        others: Number of files of other formats in the folder.

    Returns:
        The counts of the ingest.
    """
    counts = done.counts
    return IngestResult(
        None if done.commit is None else done.commit.number,
        done.files,
        counts["records"],
        done.rows,
        done.repeated,
        counts["taken"],
        counts["ignored"],
        counts["blank"],
        dict(sorted(done.reasons.items())),
        {name: text for name, (_, text) in sorted(done.failed.items())},
        skipped,
        others,
        **{name: done.beside[table] for table, name in COUNT_NAMES.items()},
    )


def mapping_digest(mapping: MappingDocument) -> str:
    """Return the SHA-256 of the content of a mapping, as hexadecimal digits.

    Args:
        mapping: Meaning of the records.

    Returns:
        64 digits.
    """
    text = json.dumps(mapping.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def open_target(lake: str, buckets: int | None = None) -> Ledger | None:
    """Open the ledger at a path or URI; return None if there is none yet.

    Args:
        lake: Path or URI.
        buckets: Required bucket count, or None for any.

    Raises:
        InvalidInput: The bucket count is invalid or differs from the ledger's.
    """
    if not lake:
        raise InvalidInput("lake: empty; give a folder or URI")
    if buckets is not None:
        require_bucket_count(buckets)
    ledger = open_ledger(lake) if Storage(lake).exists(LEDGER_FILE) else None
    if ledger is not None and buckets is not None and buckets != ledger.buckets:
        raise InvalidInput(f"buckets: {buckets}: the ledger at {lake} has {ledger.buckets}, for good")
    return ledger


def choose_bucket_count(sources: Sequence[SourceFile], mapping: MappingDocument) -> int:
    """Return the bucket count of a new ledger: a power of two.

    Args:
        sources: Files to ingest; their number of rows is estimated from their sizes.
        mapping: Meaning of the records, with the formats of files.

    Returns:
        Number of buckets, at most ``MAX_BUCKETS``.
    """
    rows = 0
    for source in sources:
        size = source.size if is_divisible(source.path) else 5 * source.size
        rows += size // _ROW_BYTES[mapping.file_format(source.path)]
    return bucket_count(rows)


def bucket_count(rows: int) -> int:
    """Return the bucket count of a new ledger: a power of two.

    Args:
        rows: Number of rows that it will have.

    Returns:
        Number of buckets, at most ``MAX_BUCKETS``.
    """
    few = min(1 << max(rows // _BUCKET_ROWS, 0).bit_length(), _FEW_BUCKETS)
    return min(max(few, 1 << max(rows // _MAX_ROWS, 0).bit_length()), MAX_BUCKETS)


SETTLED_SECONDS = 60.0
"""Minimum time without a change of a complete file, in seconds."""

MIN_BUCKETS = 16
"""Minimum bucket count of a followed ledger, whose final size is unknown."""

_TRIES = 5
"""Maximum number of attempts of a batch when another process commits."""

_TAILS = 4096
"""Maximum number of growing files with a cached digest."""

_EDGE = 4096
"""Size of the two samples that identify an appended file, in bytes."""

_LOOK_SECONDS = 0.2

_SETTINGS = {"spark.sql.streaming.stopTimeout": "20s", "spark.sql.streaming.minBatchesToRetain": "4"}


@dataclass
class TextTail:
    """Ingested part of a text file that may grow.

    Attributes:
        inode: Inode of the file.
        bytes: Length of the ingested part.
        records: Number of its records.
        digest: SHA-256 state after the ingested part.
        edges: Digest of its first and last bytes.
    """

    inode: int
    bytes: int
    records: int
    digest: Any
    edges: str


@dataclass
class FollowBatch:
    """Result of one batch.

    Attributes:
        done: Result of the ingest.
        waiting: Files with a remainder that may still be incomplete.
        vanished: Files that were removed or changed while they were read.
    """

    done: IngestResult
    waiting: list[str]
    vanished: list[str]


@dataclass
class FollowResult:
    """Sum of the results of all batches.

    Attributes:
        commits: Number of commits.
        files: Number of ingested files.
        records: Number of records read.
        rows: Number of ledger rows written.
        quarantined: Number of unreadable records.
        failed: Number of unreadable files.
        waiting: Files with a remainder that may still be incomplete.
    """

    commits: int = 0
    files: int = 0
    records: int = 0
    rows: int = 0
    quarantined: int = 0
    failed: int = 0
    waiting: list[str] = field(default_factory=list)

    def add(self, batch: FollowBatch) -> None:
        """Add the result of a batch."""
        done = batch.done
        self.commits += done.commit is not None
        self.files += done.files
        self.records += done.records
        self.rows += done.rows
        self.quarantined += sum(done.quarantined.values())
        self.failed += len(done.failed)
        self.waiting = sorted(batch.waiting)


class FolderFollower:
    """Ingests the new part of offered files."""

    def __init__(
        self, folder: Storage, lake: str, mapping: MappingDocument, buckets: int | None, executor: str = "auto"
    ) -> None:
        """Open the ledger.

        Args:
            folder: Folder of the files.
            lake: Path or URI of the ledger.
            mapping: Meaning of the records.
            buckets: Bucket count of a new ledger, or None.
            executor: As of ``follow_source``.

        Raises:
            InvalidInput: The bucket count is invalid.
        """
        self._folder, self._lake, self._mapping, self._executor = folder, lake, mapping, executor
        self._identity = mapping_digest(mapping)
        self._buckets = buckets
        self._tails: OrderedDict[str, TextTail] = OrderedDict()
        self._digests: dict[str, Any] = {}
        self._waiting: dict[str, int] = {}
        ledger = open_target(lake, buckets)
        self.ledger = ledger
        self._known = IngestHistory(() if ledger is None else ledger.ingested_inputs(), self._identity)

    def _open(self) -> None:
        """Reopen the ledger after another process committed."""
        self.ledger = open_ledger(self._lake)
        self._known = IngestHistory(self.ledger.ingested_inputs(), self._identity)

    def take(self, offered: Iterable[tuple[SourceFile, bool]], spark: Any = None) -> FollowBatch:
        """Ingest the new part of files; of unsettled files only complete records.

        Args:
            offered: Files, each with a flag that it is settled.
            spark: Spark session for large batches, or None.

        Returns:
            The result of the batch.

        Raises:
            CommitLost: Other processes committed at each attempt.
        """
        offers = {source.name: (source, settled) for source, settled in offered}
        for attempt in range(_TRIES):
            try:
                return self._ingest(offers, spark)
            except CommitLost:
                if attempt == _TRIES - 1:
                    raise
                self._open()
        raise AssertionError

    def _ingest(self, offers: Mapping[str, tuple[SourceFile, bool]], spark: Any) -> FollowBatch:
        takes, vanished, self._digests = list[PendingInput](), list[str](), {}
        fresh: list[SourceFile] = []
        for name, (source, settled) in offers.items():
            try:
                take = self._find_appended(source, settled)
            except BadFile:
                vanished.append(name)
                continue
            if take is None and not self._known.is_fully_ingested(source):
                fresh.append(source)
            elif take is not None and take.begin < source.size:
                takes.append(take)
        new, failed = self._known.find_new(fresh, self._mapping)
        vanished += failed
        for take in new:
            text = is_appendable_text(take.source.path, self._mapping)
            final = offers[take.source.name][1] or not text
            takes.append(PendingInput(take.source, take.begin, take.first, take.digest if final else None, final))
        done = self._commit(takes, {name for name, (_, settled) in offers.items() if not settled}, spark)
        for name, (reason, _) in [*done.failed.items()]:
            if reason in ("gone", "changed"):
                vanished.append(name)
                del done.failed[name]
        self._update_progress(takes, done, offers)
        for name in done.failed.keys() & self._waiting.keys():
            del done.failed[name]
        return FollowBatch(to_ingest_result(done, 0, 0), sorted(self._waiting), sorted(vanished))

    def _commit(self, takes: list[PendingInput], patient: set[str], spark: Any) -> CommitResult:
        if not takes:
            return CommitResult(None)
        is_large = _is_large(sum(take.source.size - take.begin for take in takes))
        ledger = self.ledger
        if ledger is None:
            chosen = max(MIN_BUCKETS, choose_bucket_count([take.source for take in takes], self._mapping))
            ledger = self.ledger = create_ledger(self._lake, chosen if self._buckets is None else self._buckets)
        runner: Runner = ThreadRunner()
        if spark is not None and (self._executor == "spark" or (self._executor == "auto" and is_large)):
            runner = SparkRunner(spark)
        done = commit_files(
            ledger, takes, self._mapping, self._identity, runner, strict=False, patient=patient, digest=self._digest
        )
        if done.commit is not None:
            self.ledger = ledger.after(done.commit)
            try:
                self.ledger = maintain_ledger(self.ledger, runner.threads if isinstance(runner, ThreadRunner) else 1)
            except CommitLost:
                self._open()
        return done

    def _update_progress(
        self, takes: list[PendingInput], done: CommitResult, offers: Mapping[str, tuple[SourceFile, bool]]
    ) -> None:
        """Record the ingested parts and the remainders of files."""
        committed = {each.file: each for each in done.inputs} if done.commit is not None else {}
        for each in committed.values():
            self._known.add(each)
        for take in takes:
            name, source = take.source.name, take.source
            found = committed.get(name)
            end = take.begin if found is None else found.bytes
            if found is not None and found.ends_record and name in self._digests:
                self._cache_tail(source, found)
            if end < source.size and not offers[name][1]:
                self._waiting[name] = source.size
            else:
                self._waiting.pop(name, None)

    def _cache_tail(self, source: SourceFile, committed: InputFile) -> None:
        try:
            edges = _edges(source, committed.bytes)
        except BadFile:
            return
        digest = self._digests[source.name]
        self._tails[source.name] = TextTail(source.inode, committed.bytes, committed.records, digest, edges)
        self._tails.move_to_end(source.name)
        while len(self._tails) > _TAILS:
            self._tails.popitem(last=False)

    def _find_appended(self, source: SourceFile, settled: bool) -> PendingInput | None:
        """Return the appended part of a known file, or None if that needs a comparison of bytes."""
        tail = self._tails.get(source.name)
        if tail is None or not source.inode or tail.inode != source.inode or source.size < tail.bytes:
            return None
        if _edges(source, tail.bytes) != tail.edges:
            return None
        return PendingInput(source, tail.bytes, tail.records, None, settled)

    def _digest(self, take: PendingInput, end: int) -> str:
        """Return the SHA-256 of a file up to a position."""
        tail = self._tails.get(take.source.name)
        if tail is not None and tail.bytes == take.begin:
            digest = take.source.digest(tail.bytes, end, tail.digest.copy())
        else:
            digest = take.source.digest(0, end)
        self._digests[take.source.name] = digest
        return str(digest.hexdigest())


def _edges(source: SourceFile, size: int) -> str:
    with source.open() as stream, source.convert_errors():
        begin = stream.read(min(size, _EDGE))
        stream.seek(max(size - _EDGE, 0))
        return xxhash.xxh3_128_hexdigest(begin + stream.read(min(size, _EDGE)))


def follow_source(
    folder: str,
    lake: str,
    mapping: MappingDocument,
    *,
    buckets: int | None = None,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    once: bool = False,
    seconds: float = 1.0,
    settled_seconds: float = SETTLED_SECONDS,
    told: Callable[[FollowBatch], None] | None = None,
    begun: Callable[[], None] = lambda: None,
) -> FollowResult:
    """Ingest the files of a folder, and keep ingesting new data.

    Args:
        folder: Path or URI of a folder.
        lake: Path or URI of the ledger; it is created if missing.
        mapping: Meaning of the records.
        buckets: Bucket count of a new ledger.
        executor: Executor of a batch: threads of this process (``in_process``), ``spark``, or ``auto``: by its size.
        session: Spark session to use; default: ``open_session(master, extra=settings)``.
        master: As of ``open_session``.
        settings: As of ``open_session``.
        once: Stop after ingesting the present data.
        seconds: Minimum interval between two scans of the folder.
        settled_seconds: Time without a change after which a file is complete. Then its end is a record even without an
            end of line, and an unreadable file is quarantined.
        told: Called with the result of each batch, from another thread.
        begun: Called when the stream has started.

    Returns:
        The sum of all batches.

    Raises:
        InvalidInput: The folder, the executor or the bucket count is invalid. Earlier commits stay.
        LedgerDamaged: The ledger is damaged. Earlier commits stay.
        TaskFailed: The stream or a Spark task failed. Earlier commits stay.
    """
    from causeway.cluster.session import open_session
    from causeway.ledger.ingest.folder_stream import FORMAT, FolderSource

    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    place, name = locate_source(folder)
    if name is not None:
        raise InvalidInput(f"{folder}: a file; only a folder can be followed")
    follower = FolderFollower(place, lake, mapping, buckets, executor)
    retain_freed_memory()
    session = session or open_session(master, extra={**_SETTINGS, **settings})
    session.dataSource.register(FolderSource)
    query = _Query(follower, place, told)
    stream = session.readStream.format(FORMAT).option("files", ",".join(mapping.format))
    offers = stream.option("settledSeconds", str(settled_seconds)).load(place.uri)
    # A folder in Spark's own temporary folder is removed with Java, even after a kill.
    checkpoint = tempfile.mkdtemp(prefix="follow-", dir=session_folder())
    writer = offers.writeStream.foreachBatch(query.batch).option("checkpointLocation", Path(checkpoint).as_uri())
    if once:
        query.run(writer.trigger(availableNow=True).start(), begun)
    else:
        query.run(writer.trigger(processingTime=f"{int(seconds * 1000)} milliseconds").start(), begun)
    if follower.ledger is not None:
        remove_garbage(follower.ledger)
    return query.followed


class _Query:
    """One streaming query: its batches and its end."""

    def __init__(self, follower: FolderFollower, folder: Storage, report: Callable[[FollowBatch], None] | None) -> None:
        self._follower, self._folder, self._report = follower, folder, report
        self.followed = FollowResult()
        self._failed: BaseException | None = None
        self._working = threading.Lock()
        self._ended = False

    def batch(self, offers: DataFrame, number: int) -> None:
        """Ingest the files of a batch."""
        with self._working:
            if self._ended or self._failed is not None:
                return
            try:
                self._ingest(offers)
            except BaseException as error:  # raised again by ``run``, not in Spark's thread
                self._failed = error

    def _ingest(self, offers: DataFrame) -> None:
        sources = []
        for row in offers.collect():
            path = os.fsdecode(bytes(row["path"]))
            source = SourceFile(self._folder, path, displayed_path(path), row["size"], row["modified"], row["inode"])
            sources.append((source, bool(row["settled"])))
        batch = self._follower.take(sources, offers.sparkSession)
        self.followed.add(batch)
        if self._report is not None:
            self._report(batch)

    def run(self, query: Any, started: Callable[[], None]) -> None:
        """Wait for the end of the query; raise the error of a batch."""
        from pyspark.errors import PySparkException

        try:
            started()
            while self._failed is None and not query.awaitTermination(_LOOK_SECONDS):
                pass
        except PySparkException as error:
            raise TaskFailed(f"the stream failed: {extract_python_error(str(error))}") from None
        finally:
            self._end(query)
        if isinstance(self._failed, PySparkException):
            raise TaskFailed(f"a batch failed: {extract_python_error(str(self._failed))}") from None
        if self._failed is not None:
            raise self._failed

    def _end(self, query: Any) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with self._working:  # let a running batch finish
            self._ended = True
        with contextlib.suppress(Py4JError, PySparkException):  # an interrupt may have ended Java as well
            query.stop()
