"""A folder that grows into a stored ledger: what is new, a commit a batch, each record once.

Batches are those of a streaming query over the folder (``folder_source``). What was taken is written down in one place
only, the commits of the ledger, with the rows themselves: a process that is killed between them and whatever Spark
writes down begins a new query, and finds what is new by the ledger. So Spark's checkpoint is a temporary folder.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import xxhash

from causeway.ingest.chunks import BadFile
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.reader import is_text
from causeway.model.errors import InvalidInput
from causeway.pipeline.allocator import keep_memory
from causeway.pipeline.ledger_commit import Done, commit_files
from causeway.pipeline.ledger_commits import CommitLost, Input
from causeway.pipeline.ledger_ingest import (
    EXECUTORS,
    SPARK_BYTES,
    Ingested,
    buckets_for,
    identity,
    ingested,
    opened,
)
from causeway.pipeline.ledger_runners import InThreads, OnSpark, Runner
from causeway.pipeline.ledger_sources import Known, Source, Take, located, shown_name
from causeway.pipeline.ledger_store import create_ledger, open_ledger
from causeway.pipeline.ledger_upkeep import keep_up, sweep
from causeway.pipeline.storage import Storage
from causeway.pipeline.task_errors import TaskFailed, python_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTLED_SECONDS = 60.0
"""After this long without a change a file is whole."""

LEAST_BUCKETS = 16
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
class Tail:
    """What was taken of a text that may grow: its first ``bytes``, of which ``digest`` is the SHA-256 so far, and
    ``edges`` a digest of both ends."""

    inode: int
    bytes: int
    records: int
    digest: Any
    edges: str


@dataclass
class Batch:
    """What one batch did. ``waiting``: files of which something is left that may not be whole yet; ``vanished``: files
    that were gone, or changed, when they were read."""

    done: Ingested
    waiting: list[str]
    vanished: list[str]


@dataclass
class Followed:
    """What a call did in all. ``commits``: how many; ``waiting``: files of which something is left."""

    commits: int = 0
    files: int = 0
    records: int = 0
    rows: int = 0
    quarantined: int = 0
    failed: int = 0
    waiting: list[str] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        done = batch.done
        self.commits += done.commit is not None
        self.files += done.files
        self.records += done.records
        self.rows += done.rows
        self.quarantined += sum(done.quarantined.values())
        self.failed += len(done.failed)
        self.waiting = sorted(batch.waiting)


class Follower:
    """Takes what is new in files that are offered into a ledger."""

    def __init__(
        self, folder: Storage, lake: str, mapping: MappingDocument, buckets: int | None, executor: str = "auto"
    ) -> None:
        """``folder``: where the files are; other arguments and errors as of ``follow``."""
        self._folder, self._lake, self._mapping, self._executor = folder, lake, mapping, executor
        self._identity = identity(mapping)
        self._buckets = buckets
        self._tails: OrderedDict[str, Tail] = OrderedDict()
        self._digests: dict[str, Any] = {}
        self._waiting: dict[str, int] = {}
        ledger = opened(lake, buckets)
        self.ledger = ledger
        self._known = Known(() if ledger is None else ledger.taken(), self._identity)

    def _open(self) -> None:
        """Open the ledger anew: another process committed to it."""
        self.ledger = open_ledger(self._lake)
        self._known = Known(self.ledger.taken(), self._identity)

    def take(self, offered: Iterable[tuple[Source, bool]], spark: Any = None) -> Batch:
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

    def _take(self, offers: Mapping[str, tuple[Source, bool]], spark: Any) -> Batch:
        takes, vanished, self._digests = list[Take](), list[str](), {}
        fresh: list[Source] = []
        for name, (source, settled) in offers.items():
            try:
                take = self._appended(source, settled)
            except BadFile:
                vanished.append(name)
                continue
            if take is None and not self._known.as_it_is(source):
                fresh.append(source)
            elif take is not None and take.begin < source.size:
                takes.append(take)
        new, failed = self._known.new_in(fresh, self._mapping)
        vanished += failed
        for take in new:
            text = is_text(take.source.path, self._mapping)
            final = offers[take.source.name][1] or not text
            takes.append(Take(take.source, take.begin, take.first, take.digest if final else None, final))
        done = self._committed(takes, {name for name, (_, settled) in offers.items() if not settled}, spark)
        for name, (reason, _) in [*done.failed.items()]:
            if reason in ("gone", "changed"):
                vanished.append(name)
                del done.failed[name]
        self._note(takes, done, offers)
        for name in done.failed.keys() & self._waiting.keys():
            del done.failed[name]
        return Batch(ingested(done, 0, 0), sorted(self._waiting), sorted(vanished))

    def _committed(self, takes: list[Take], patient: set[str], spark: Any) -> Done:
        if not takes:
            return Done(None)
        ledger = self.ledger
        if ledger is None:
            chosen = max(LEAST_BUCKETS, buckets_for([take.source for take in takes], self._mapping))
            ledger = self.ledger = create_ledger(self._lake, chosen if self._buckets is None else self._buckets)
        size = sum(take.source.size - take.begin for take in takes)
        runner: Runner = InThreads()
        if spark is not None and (self._executor == "spark" or (self._executor == "auto" and size >= SPARK_BYTES)):
            runner = OnSpark(spark)
        done = commit_files(
            ledger, takes, self._mapping, self._identity, runner, strict=False, patient=patient, digest=self._digest
        )
        if done.commit is not None:
            self.ledger = ledger.after(done.commit)
            try:
                self.ledger = keep_up(self.ledger, runner.threads if isinstance(runner, InThreads) else 1)
            except CommitLost:
                self._open()
        return done

    def _note(self, takes: list[Take], done: Done, offers: Mapping[str, tuple[Source, bool]]) -> None:
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

    def _keep(self, source: Source, taken: Input) -> None:
        try:
            edges = _edges(source, taken.bytes)
        except BadFile:
            return
        digest = self._digests[source.name]
        self._tails[source.name] = Tail(source.inode, taken.bytes, taken.records, digest, edges)
        self._tails.move_to_end(source.name)
        while len(self._tails) > _TAILS:
            self._tails.popitem(last=False)

    def _appended(self, source: Source, settled: bool) -> Take | None:
        """Return what was appended to a file that was taken before, None: that is not known yet."""
        tail = self._tails.get(source.name)
        if tail is None or not source.inode or tail.inode != source.inode or source.size < tail.bytes:
            return None
        if _edges(source, tail.bytes) != tail.edges:
            return None
        return Take(source, tail.bytes, tail.records, None, settled)

    def _digest(self, take: Take, end: int) -> str:
        """Return the SHA-256 of a file up to a place."""
        tail = self._tails.get(take.source.name)
        if tail is not None and tail.bytes == take.begin:
            digest = take.source.digest(tail.bytes, end, tail.digest.copy())
        else:
            digest = take.source.digest(0, end)
        self._digests[take.source.name] = digest
        return str(digest.hexdigest())


def _edges(source: Source, size: int) -> str:
    with source.open() as stream, source.said():
        begin = stream.read(min(size, _EDGE))
        stream.seek(max(size - _EDGE, 0))
        return xxhash.xxh3_128_hexdigest(begin + stream.read(min(size, _EDGE)))


def follow(
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
    told: Callable[[Batch], None] | None = None,
    begun: Callable[[], None] = lambda: None,
) -> Followed:
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
    from causeway.pipeline.folder_source import FORMAT, FolderSource
    from causeway.pipeline.session import open_session

    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    place, name = located(folder)
    if name is not None:
        raise InvalidInput(f"{folder}: a file; only a folder can be followed")
    follower = Follower(place, lake, mapping, buckets, executor)
    keep_memory()
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
        sweep(follower.ledger)
    return query.followed


class _Query:
    """One streaming query: its batches, and how it ends."""

    def __init__(self, follower: Follower, folder: Storage, told: Callable[[Batch], None] | None) -> None:
        self._follower, self._folder, self._told = follower, folder, told
        self.followed = Followed()
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
            source = Source(self._folder, path, shown_name(path), row["size"], row["modified"], row["inode"])
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
            raise TaskFailed(f"the stream failed: {python_error(str(error))}") from None
        finally:
            self._end(query)
        if isinstance(self._failed, PySparkException):
            raise TaskFailed(f"a batch failed: {python_error(str(self._failed))}") from None
        if self._failed is not None:
            raise self._failed

    def _end(self, query: Any) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with self._working:  # a batch that has begun comes to its end
            self._ended = True
        with contextlib.suppress(Py4JError, PySparkException):  # Java was interrupted as well, and is gone
            query.stop()


__all__ = ["SETTLED_SECONDS", "Batch", "Followed", "Follower", "follow"]
