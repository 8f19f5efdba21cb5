"""Tasks that take files into a ledger: each reads some parts of files and sets their rows aside by bucket, or sorts the
rows of a bucket. They may run in threads, or as Spark tasks; what a task wrote counts when a commit names it."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from causeway.ingest.chunks import BadFile
from causeway.ingest.links import Links, index_rows
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.reader import Part, parts_of, take_file
from causeway.ingest.taking import BESIDE, Taken
from causeway.ingest.windows import Seen
from causeway.ledger.schema import QUARANTINE_SCHEMA
from causeway.pipeline.ledger_commits import STAGING
from causeway.pipeline.ledger_runs import RUN_BYTES, Run, RunWriter, settle, spread
from causeway.pipeline.ledger_sources import Source
from causeway.pipeline.ledger_store import StoredFile, write_file
from causeway.pipeline.storage import Storage

PART_BYTES = 64 << 20
"""Bytes of files that a task reads, of those that can be cut."""

QUARANTINE_BYTES = 32 << 20
"""Bytes of records that were set aside, before they are written."""

MANY = 1 << 10
"""Rows a bucket, from which on those of a piece are put in order at once: with fewer, those of many pieces are."""

Progress = Callable[[int], None]
"""Told how many bytes more were read."""


@dataclass(frozen=True)
class Job:
    """What the tasks of a commit share. ``lake``: the ledger, with so many ``buckets``; ``prefix``: what the names of
    the commit's files begin with; ``run_bytes``: of rows that are set aside together; ``part_bytes``: that a file is
    cut into; ``links``: what other records tell of each row."""

    lake: Storage
    mapping: MappingDocument
    buckets: int
    prefix: str
    run_bytes: int = RUN_BYTES
    part_bytes: int = PART_BYTES
    links: Links | None = None

    @property
    def folder(self) -> str:
        """Return where rows are set aside."""
        return f"{STAGING}/{self.prefix}"

    def name(self) -> str:
        """Return a new name for a file: a task that is tried again writes other files."""
        return f"{self.prefix}-{uuid.uuid4().hex[:16]}"


@dataclass(frozen=True)
class Slice:
    """A part of a file, of about ``bytes`` bytes."""

    source: Source
    part: Part
    bytes: int


@dataclass
class Staged:
    """What a task made of parts of files. ``runs``: the rows; ``quarantine``: files of it that were written, and
    ``aside``: rows of it that were not; ``reasons``: how many records were set aside for what; ``counts``: of records,
    by what became of them; ``of``: by name of a file, how many records it has, and where they end; ``whole``: whether a
    record ends there; ``beside``: rows of the tables ``BESIDE``, and ``beside_rows``: how many; ``failed``: files that
    cannot be read, with reason and text."""

    runs: list[Run]
    quarantine: list[StoredFile]
    aside: list[pa.Table]
    seen: Seen
    rows: int = 0
    beside: list[Run] = field(default_factory=list)
    beside_rows: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    ends: dict[str, int] = field(default_factory=dict)
    whole: dict[str, bool] = field(default_factory=dict)
    failed: list[tuple[str, str, str]] = field(default_factory=list)


def survey(job: Job, source: Source) -> list[Slice]:
    """Return the parts that a file is cut into: one, which has it all, where it cannot be read."""
    try:
        with source.open() as stream, source.said():
            parts = parts_of(stream, source.name, source.size, job.mapping, job.part_bytes)
    except BadFile:
        parts = [Part()]  # whoever reads it says why
    return [Slice(source, part, source.size // len(parts)) for part in parts]


def index(job: Job, slices: Iterable[Slice]) -> list[pa.Table]:
    """Return the index of the records of some parts of files (``links.index_rows``). Files that cannot be read have
    none: who stages them says why."""
    found: list[pa.Table] = []
    for each in slices:
        source = each.source
        with contextlib.suppress(BadFile), source.open() as stream, source.said():
            parts = take_file(stream, source.name, source.size, job.mapping, part=each.part, threads=1)
            found += [index_rows(taken.ledger, job.mapping.links) for taken in parts]
    return found


def stage(
    job: Job, slices: Iterable[Slice], threads: int = 1, *, keep: bool = False, progress: Progress | None = None
) -> Staged:
    """Set the rows of some parts of files aside. ``threads``: that read records of one part; ``keep``: what is small
    may stay in memory; ``progress``: is told how far it is."""
    return _Staging(job, keep, progress).run(slices, threads)


class _Staging:
    def __init__(self, job: Job, keep: bool, progress: Progress | None) -> None:
        self._job, self._keep, self._progress = job, keep, progress
        self._rows = RunWriter(job.lake, job.folder, job.buckets, job.run_bytes)
        self._beside = {table: RunWriter(job.lake, job.folder, job.buckets, job.run_bytes, table) for table in BESIDE}
        self._staged = Staged([], [], [], Seen(job.mapping))
        self._aside = 0

    def run(self, slices: Iterable[Slice], threads: int) -> Staged:
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

    def _take(self, each: Slice, threads: int) -> None:
        staged, source, part = self._staged, each.source, each.part
        records, read, last = 0, 0, None
        with source.open() as stream, source.said():
            text = self._job.mapping.format_of(source.path) != "parquet"
            for taken in take_file(
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

    def _completed(self, taken: Taken) -> Taken:
        """Return records with their rows completed by other records, and in the order of the buckets, where each has
        many of them."""
        buckets = self._job.buckets
        if self._job.links is not None:
            taken = replace(taken, ledger=self._job.links.apply(taken.ledger))
        if taken.ledger.num_rows < MANY * buckets:
            return taken
        rows, found = spread(taken.ledger, buckets)
        return replace(taken, ledger=rows, buckets=found)

    def _count(self, taken: Taken) -> None:
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


def _share(records: int, part: Part, size: int) -> int:
    return size * records // part.records if part.records else 0


def _ends_whole(last: Taken) -> bool:
    """Return whether the last record needs nothing that may still be appended: that it ended with a line is for who
    has the file to say."""
    broken = last.quarantine
    if not broken.num_rows:
        return True
    return str(broken["reason"][-1]) != "open_quote"


def sort(job: Job, bucket: int, runs: Sequence[Run]) -> list[StoredFile]:
    """Write the rows of a bucket as files of the ledger."""
    return settle(job.lake, job.name(), bucket, runs)


def digest(source: Source) -> str | tuple[str, str]:
    """Return the SHA-256 of a file; of one that cannot be read, the reason and a text."""
    try:
        return str(source.digest().hexdigest())
    except BadFile as error:
        return error.reason, str(error)


__all__ = ["PART_BYTES", "Job", "Progress", "Slice", "Staged", "digest", "index", "sort", "stage", "survey"]
