"""Recorded traffic into a stored ledger: each record of each file once, whatever was killed before.

One call is one commit. What is in memory is a batch of rows, however many there are.

A folder that grows into a stored ledger: what is new, a commit a batch, each record once.

Batches are those of a streaming query over the folder (``folder_source``). What was taken is written down in one place
only, the commits of the ledger, with the rows themselves: a process that is killed between them and whatever Spark
writes down begins a new query, and finds what is new by the ledger. So Spark's checkpoint is a temporary folder.
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
from causeway.ledger.store import Ledger, create_ledger, open_ledger
from causeway.spark.masters import available_cores
from causeway.spark.tasks import TaskFailed, extract_python_error
from causeway.spark.workers import retain_freed_memory
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
    "choose_bucket_count",
    "follow_source",
    "ingest_files",
    "mapping_digest",
    "open_target",
    "to_ingest_result",
]

EXECUTORS = ("auto", "in_process", "spark")

SPARK_BYTES = 16 << 30
"""From so many bytes on ``auto`` takes Spark."""

_ROW_BYTES = {"csv": 200, "jsonl": 1000, "parquet": 20}
"""About how many bytes a record takes, by the format: to choose how many buckets a new ledger has."""

_BUCKET_ROWS, _MAX_ROWS = 400_000, 2_000_000
_FEW_BUCKETS = 64

IngestProgress = Callable[[int, int], None]
"""Told how many bytes are read, and of how many."""


@dataclass
class IngestResult:
    """What one call did. ``commit``: the number of the commit, None: nothing was new. ``records``: that were read;
    ``rows``: of the ledger that were written; ``repeated``: rows that say again what another one said; ``taken``:
    records that gave rows, ``ignored``, ``blank``: those that gave none; ``quarantined``: those that could not be read,
    by the reason; ``failed``: files that could not be read at all, with a text; ``skipped``: files of which all was
    taken before; ``others``: files of the folder that are of another format; ``movements`` of value, ``headers`` and
    ``watermarks``: rows of these tables."""

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
    """Take the files of ``source``, a file or a folder (paths or URIs), into the ledger at ``lake``, made if need be.

    A file of which the same mapping took all bytes before is skipped, whatever it is called; of one that has grown by
    whole records, what was appended is taken.

    Args:
        source: what is taken.
        lake: where the ledger is.
        mapping: what the records mean.
        buckets: of a new ledger; default: by the size of the files.
        executor: ``in_process``, ``spark``, or ``auto``: Spark where a ``session`` is given, or from ``SPARK_BYTES``
            on.
        session: the Spark session that is used; without one, ``open_session(master, extra=settings)`` opens one where
            Spark is used.
        master, settings: as of ``open_session``.
        set_aside: whether a file that cannot be read at all goes to the table ``quarantine`` and the others are taken.
            If not, it ends the call.
        progress: is told of the bytes that are read, from any thread.

    Raises ``InvalidInput`` for files that are not as the mapping says, or when another process commits at the same
    time, ``LedgerDamaged``, and ``TaskFailed`` when a Spark task fails; nothing is committed then.
    """
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    found, others = find_sources(source, mapping)
    known = mapping_digest(mapping)
    ledger = open_target(lake, buckets)
    before = IngestHistory(() if ledger is None else ledger.taken(), known)
    takes, failed = before.find_new(found, mapping)
    if failed and not set_aside:
        raise InvalidInput(failed[min(failed)][1])
    skipped = len(found) - len(takes) - len(failed)
    if not takes:
        if ledger is None:
            raise no_files_error(source, mapping)
        return IngestResult(None, 0, 0, 0, 0, 0, 0, 0, {}, {}, skipped, others)
    if ledger is None:
        ledger = create_ledger(lake, choose_bucket_count(found, mapping) if buckets is None else buckets)
    size = sum(take.source.size - take.begin for take in takes)
    runner: Runner
    if executor == "spark" or (executor == "auto" and (session is not None or size >= SPARK_BYTES)):
        from causeway.spark.session import open_session

        runner = SparkRunner(session or open_session(master, extra=settings))
    else:
        retain_freed_memory()
        runner = ThreadRunner()
    done = commit_files(ledger, takes, mapping, known, runner, strict=not set_aside, progress=progress)
    done.failed |= failed
    if done.commit is not None:
        remove_garbage(maintain_ledger(ledger.after(done.commit), min(available_cores(), MAX_THREADS)))
    return to_ingest_result(done, skipped, others)


def to_ingest_result(done: CommitResult, skipped: int, others: int) -> IngestResult:
    """Return what a commit did."""
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
    """Return the digest of what a mapping says."""
    text = json.dumps(mapping.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def open_target(lake: str, buckets: int | None = None) -> Ledger | None:
    """Return the ledger at a path or URI, None where there is none yet. ``buckets``: that it must have, or may be made
    with; None: any. Raises ``InvalidInput``."""
    if not lake:
        raise InvalidInput("lake: empty; give a folder or URI")
    if buckets is not None and not 1 <= buckets <= MAX_BUCKETS:
        raise InvalidInput(f"buckets: {buckets}: must be from 1 to {MAX_BUCKETS}")
    ledger = open_ledger(lake) if Storage(lake).exists(LEDGER_FILE) else None
    if ledger is not None and buckets is not None and buckets != ledger.buckets:
        raise InvalidInput(f"buckets: {buckets}: the ledger at {lake} has {ledger.buckets}, for good")
    return ledger


def choose_bucket_count(sources: Sequence[SourceFile], mapping: MappingDocument) -> int:
    """Return how many buckets a new ledger gets: a power of two."""
    rows = 0
    for source in sources:
        size = source.size if is_divisible(source.path) else 5 * source.size
        rows += size // _ROW_BYTES[mapping.file_format(source.path)]
    few = min(1 << max(rows // _BUCKET_ROWS, 0).bit_length(), _FEW_BUCKETS)
    return min(max(few, 1 << max(rows // _MAX_ROWS, 0).bit_length()), MAX_BUCKETS)


SETTLED_SECONDS = 60.0
"""After this long without a change a file is whole."""

MIN_BUCKETS = 16
"""Of a new ledger, of which nobody knows how large it becomes."""

_TRIES = 5
"""So often a batch is tried anew when another process commits to the ledger."""

_TAILS = 4096
"""Files that were appended to, of which the digest so far is kept in memory."""

_EDGE = 4096
"""Bytes at the beginning and before the end of what was taken, by which it is known that a file was appended to."""

_LOOK_SECONDS = 0.2

_SETTINGS = {"spark.sql.streaming.stopTimeout": "20s", "spark.sql.streaming.minBatchesToRetain": "4"}


@dataclass
class TextTail:
    """What was taken of a text that may grow: its first ``bytes``, of which ``digest`` is the SHA-256 so far, and
    ``edges`` a digest of both ends."""

    inode: int
    bytes: int
    records: int
    digest: Any
    edges: str


@dataclass
class FollowBatch:
    """What one batch did. ``waiting``: files of which something is left that may not be whole yet; ``vanished``: files
    that were gone, or changed, when they were read."""

    done: IngestResult
    waiting: list[str]
    vanished: list[str]


@dataclass
class FollowResult:
    """What a call did in all. ``commits``: how many; ``waiting``: files of which something is left."""

    commits: int = 0
    files: int = 0
    records: int = 0
    rows: int = 0
    quarantined: int = 0
    failed: int = 0
    waiting: list[str] = field(default_factory=list)

    def add(self, batch: FollowBatch) -> None:
        """Count a batch."""
        done = batch.done
        self.commits += done.commit is not None
        self.files += done.files
        self.records += done.records
        self.rows += done.rows
        self.quarantined += sum(done.quarantined.values())
        self.failed += len(done.failed)
        self.waiting = sorted(batch.waiting)


class FolderFollower:
    """Takes what is new in files that are offered into a ledger."""

    def __init__(
        self, folder: Storage, lake: str, mapping: MappingDocument, buckets: int | None, executor: str = "auto"
    ) -> None:
        """``folder``: where the files are; other arguments and errors as of ``follow``."""
        self._folder, self._lake, self._mapping, self._executor = folder, lake, mapping, executor
        self._identity = mapping_digest(mapping)
        self._buckets = buckets
        self._tails: OrderedDict[str, TextTail] = OrderedDict()
        self._digests: dict[str, Any] = {}
        self._waiting: dict[str, int] = {}
        ledger = open_target(lake, buckets)
        self.ledger = ledger
        self._known = IngestHistory(() if ledger is None else ledger.taken(), self._identity)

    def _open(self) -> None:
        """Open the ledger anew: another process committed to it."""
        self.ledger = open_ledger(self._lake)
        self._known = IngestHistory(self.ledger.taken(), self._identity)

    def take(self, offered: Iterable[tuple[SourceFile, bool]], spark: Any = None) -> FollowBatch:
        """Take what is new in files; of those that are not settled only whole records. ``spark``: the session for
        large batches."""
        offers = {source.name: (source, settled) for source, settled in offered}
        for attempt in range(_TRIES):
            try:
                return self._take(offers, spark)
            except CommitLost:
                if attempt == _TRIES - 1:
                    raise
                self._open()
        raise AssertionError

    def _take(self, offers: Mapping[str, tuple[SourceFile, bool]], spark: Any) -> FollowBatch:
        takes, vanished, self._digests = list[PendingInput](), list[str](), {}
        fresh: list[SourceFile] = []
        for name, (source, settled) in offers.items():
            try:
                take = self._appended(source, settled)
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
        done = self._committed(takes, {name for name, (_, settled) in offers.items() if not settled}, spark)
        for name, (reason, _) in [*done.failed.items()]:
            if reason in ("gone", "changed"):
                vanished.append(name)
                del done.failed[name]
        self._note(takes, done, offers)
        for name in done.failed.keys() & self._waiting.keys():
            del done.failed[name]
        return FollowBatch(to_ingest_result(done, 0, 0), sorted(self._waiting), sorted(vanished))

    def _committed(self, takes: list[PendingInput], patient: set[str], spark: Any) -> CommitResult:
        if not takes:
            return CommitResult(None)
        ledger = self.ledger
        if ledger is None:
            chosen = max(MIN_BUCKETS, choose_bucket_count([take.source for take in takes], self._mapping))
            ledger = self.ledger = create_ledger(self._lake, chosen if self._buckets is None else self._buckets)
        size = sum(take.source.size - take.begin for take in takes)
        runner: Runner = ThreadRunner()
        if spark is not None and (self._executor == "spark" or (self._executor == "auto" and size >= SPARK_BYTES)):
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

    def _note(
        self, takes: list[PendingInput], done: CommitResult, offers: Mapping[str, tuple[SourceFile, bool]]
    ) -> None:
        """Remember what was taken of which files, and of which something is left."""
        taken = {each.file: each for each in done.inputs} if done.commit is not None else {}
        for each in taken.values():
            self._known.add(each)
        for take in takes:
            name, source = take.source.name, take.source
            found = taken.get(name)
            end = take.begin if found is None else found.bytes
            if found is not None and found.ends_record and name in self._digests:
                self._keep(source, found)
            if end < source.size and not offers[name][1]:
                self._waiting[name] = source.size
            else:
                self._waiting.pop(name, None)

    def _keep(self, source: SourceFile, taken: InputFile) -> None:
        try:
            edges = _edges(source, taken.bytes)
        except BadFile:
            return
        digest = self._digests[source.name]
        self._tails[source.name] = TextTail(source.inode, taken.bytes, taken.records, digest, edges)
        self._tails.move_to_end(source.name)
        while len(self._tails) > _TAILS:
            self._tails.popitem(last=False)

    def _appended(self, source: SourceFile, settled: bool) -> PendingInput | None:
        """Return what was appended to a file that was taken before, None: that is not known yet."""
        tail = self._tails.get(source.name)
        if tail is None or not source.inode or tail.inode != source.inode or source.size < tail.bytes:
            return None
        if _edges(source, tail.bytes) != tail.edges:
            return None
        return PendingInput(source, tail.bytes, tail.records, None, settled)

    def _digest(self, take: PendingInput, end: int) -> str:
        """Return the SHA-256 of a file up to a place."""
        tail = self._tails.get(take.source.name)
        if tail is not None and tail.bytes == take.begin:
            digest = take.source.digest(tail.bytes, end, tail.digest.copy())
        else:
            digest = take.source.digest(0, end)
        self._digests[take.source.name] = digest
        return str(digest.hexdigest())


def _edges(source: SourceFile, size: int) -> str:
    with source.open() as stream, source.said():
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
    """Take the files of a folder into the ledger at ``lake``, made if need be, and go on with what is new there.

    Args:
        folder: a folder or URI.
        lake: where the ledger is.
        mapping: what the records mean.
        buckets: of a new ledger.
        executor: who takes a batch: threads of this process (``in_process``), ``spark``, or ``auto``: by its size.
        session: the Spark session that is used; without one, ``open_session(master, extra=settings)`` opens one.
        master, settings: as of ``open_session``.
        once: whether to end when all that is there now is taken.
        seconds: between two looks into the folder, at least.
        settled_seconds: a file that nobody has written to for so long is whole: what stands at its end is a record,
            also without an end of line, and if it cannot be read, it is set aside.
        told: is given what each batch did, from another thread.
        begun: is called when the stream has begun.

    Raises ``InvalidInput``, ``LedgerDamaged``, ``TaskFailed``; what was committed stays.
    """
    from causeway.ledger.ingest.folder_stream import FORMAT, FolderSource
    from causeway.spark.session import open_session

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
    # Spark's own folder goes with Java, also when this process is killed.
    checkpoint = tempfile.mkdtemp(prefix="follow-", dir=session.sparkContext._temp_dir)
    writer = offers.writeStream.foreachBatch(query.batch).option("checkpointLocation", Path(checkpoint).as_uri())
    if once:
        query.run(writer.trigger(availableNow=True).start(), begun)
    else:
        query.run(writer.trigger(processingTime=f"{int(seconds * 1000)} milliseconds").start(), begun)
    if follower.ledger is not None:
        remove_garbage(follower.ledger)
    return query.followed


class _Query:
    """One streaming query: its batches, and how it ends."""

    def __init__(self, follower: FolderFollower, folder: Storage, told: Callable[[FollowBatch], None] | None) -> None:
        self._follower, self._folder, self._told = follower, folder, told
        self.followed = FollowResult()
        self._failed: BaseException | None = None
        self._working = threading.Lock()
        self._ended = False

    def batch(self, offers: DataFrame, number: int) -> None:
        """Take the files of a batch."""
        with self._working:
            if self._ended or self._failed is not None:
                return
            try:
                self._take(offers)
            except BaseException as error:  # raised where the query was started, not in Spark's thread
                self._failed = error

    def _take(self, offers: DataFrame) -> None:
        sources = []
        for row in offers.collect():
            path = os.fsdecode(bytes(row["path"]))
            source = SourceFile(self._folder, path, displayed_path(path), row["size"], row["modified"], row["inode"])
            sources.append((source, bool(row["settled"])))
        batch = self._follower.take(sources, offers.sparkSession)
        self.followed.add(batch)
        if self._told is not None:
            self._told(batch)

    def run(self, query: Any, begun: Callable[[], None]) -> None:
        """Wait until the query ends, or has to. Raises what a batch has raised."""
        from pyspark.errors import PySparkException

        try:
            begun()
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

        with self._working:  # a batch that has begun comes to its end
            self._ended = True
        with contextlib.suppress(Py4JError, PySparkException):  # Java was interrupted as well, and is gone
            query.stop()
