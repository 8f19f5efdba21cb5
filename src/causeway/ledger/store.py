"""A ledger on disk or in an object store: sorted files by bucket, and a log of commits.

``ledger.json`` has the format and the bucket count. A commit is one file of ``manifests/``, created atomically and
last: it names added files with their seals, removed files, and the ingested input. Files without a manifest do not
count. After each commit ``ledger.head`` names it, so that a ledger with missing last manifests is detected as damaged.
Checkpoints (``checkpoints/``) list all live files; opening a ledger reads the last one and the manifests after it.
``docs/reference/ledger.md`` describes the layout.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.core.arrow_types import align_columns
from causeway.core.text import format_value
from causeway.ledger.commits import (
    FORMAT,
    FORMATS,
    HEADLESS,
    INPUTS_TABLE,
    LEDGER_FILE,
    LEDGER_HEAD,
    MANIFESTS,
    REWRITTEN_TABLES,
    STAGING,
    CommitLost,
    FilesMerged,
    InputFile,
    LedgerCommit,
    LedgerDamaged,
    LedgerHead,
    StoredFile,
    checkpoints_of,
    commits_of,
    inputs_from_table,
    inputs_table,
    ledger_reading,
    make_table_folder,
    read_checkpoint,
    read_commit,
    read_ledger_head,
    table_schema,
)
from causeway.ledger.encodings import text_slices
from causeway.ledger.retention import retention_seconds
from causeway.ledger.row_order import LAYOUTS, MAX_BUCKETS, drop_repeats, message_buckets
from causeway.ledger.schema import BOUNDED, DELTAS
from causeway.storage.commit_log import decoded, encoded, read_record
from causeway.storage.files import FileDamaged, Storage
from causeway.storage.object_store import AlreadyExists
from causeway.storage.parquet_files import StoredParquet, convert_arrow_errors
from causeway.storage.seals import NotRegularFile

FILE_BYTES = 2 << 30
"""Memory that all rows of a file may use however small the file is; passes read row groups."""

ROW_GROUP = 1 << 18

TEMPORARY_PREFIX = "causeway-"
"""Begins the name of the folder with a ledger of DataFrames, before 32 hexadecimal digits."""

_TEMPORARY = re.compile(f"/{TEMPORARY_PREFIX}[0-9a-f]{{32}}/[^/]+/?$")

LOOSE_FOLDER = -1
"""Bucket number in the folder name of files with rows of all buckets."""

LOOSE_TABLES = ("ledger", "value")
"""Tables that may have such files."""

_SAMPLES, _SAMPLE_ROWS, _MAX_RATIO = 8, 512, 0.9
"""Compression test of a column: number of samples, rows a sample, and the maximum ratio to compress it."""

_INLINE = 256
"""Maximum number of inputs in a manifest; more of them become a file."""


@dataclass(frozen=True)
class Ledger:
    """A stored ledger as of a commit.

    Attributes:
        storage: Folder of the ledger.
        buckets: Number of buckets.
        digest: Digest of ``ledger.json``.
        format: Format of the files.
        number: Number of the last commit, -1: none.
        last: Digest of the last commit.
        live: Files that count.
        counts: Sums over all commits.
        recent: Commits after the ``checkpoint``.
        checkpoint: Number of the checkpoint that was read, -1: none.
        gone: As of ``Checkpoint``.
    """

    storage: Storage
    buckets: int
    digest: str
    format: int = FORMAT
    number: int = -1
    last: str = ""
    live: tuple[StoredFile, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    recent: tuple[LedgerCommit, ...] = ()
    checkpoint: int = -1
    gone: tuple[tuple[str, int], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def files(self, table: str, bucket: int | None = None) -> list[StoredFile]:
        """Return the files of a table.

        Files with rows of all buckets (``bucket`` None, of ``LOOSE_TABLES``) are files of each bucket. The rows of
        ``waiting`` are rows of ``ledger`` as well.

        Args:
            table: Name of the table.
            bucket: Bucket number, or None for all.
        """
        table_schema(table)
        every = self._by_table.get(table, [])
        if table in REWRITTEN_TABLES:
            return every[-1:]
        return every if bucket is None else self._by_bucket.get((table, bucket), []) + self._loose_files(table)

    def uris(self, table: str) -> list[str]:
        """Return the absolute paths or URIs of a table's files, for other engines."""
        return [self.storage.absolute(file.path) for file in self.files(table)]

    def rows(self, bucket: int, columns: Sequence[str] | None = None, table: str = "ledger") -> pa.Table:
        """Return the rows of a bucket in ledger order, without duplicates.

        Args:
            bucket: Bucket number.
            columns: Names of columns, in the order of the result; default: all.
            table: Name of the table; headers, watermarks and value have their own order (``LAYOUTS``).

        Returns:
            The sorted rows.

        Raises:
            InvalidInput: A column or bucket does not exist, or the files were merged meanwhile.
            LedgerDamaged: A file is damaged.
        """
        schema = table_schema(table)
        for name in columns or ():
            if name not in schema.names:
                raise InvalidInput(f"column {name}: not in {table}; it has {', '.join(schema.names)}")
        if not 0 <= bucket < self.buckets:
            raise InvalidInput(f"bucket {bucket}: must be from 0 to {self.buckets - 1}")
        files = self._by_bucket.get((table, bucket), [])
        loose = self.loose(bucket, table)
        if table == "value":
            parts = [*(self.read(file) for file in files), *([] if loose is None else [loose])]
            layout, merged = LAYOUTS[table], pa.concat_tables([schema.empty_table(), *parts])
            rows = layout.read(merged) if len(parts) > 1 or loose is not None else layout.deduplicate(merged)
        elif (len(files) <= 1 and loose is None) or (table != "ledger" and table not in LAYOUTS):
            parts = [self.read(file, columns) for file in files]
            rows = pa.concat_tables(parts) if parts else schema.empty_table()
        elif table in LAYOUTS:
            rows = LAYOUTS[table].in_order(pa.concat_tables([self.read(file) for file in files]).unify_dictionaries())
        else:
            parts = [schema.empty_table(), *(self.read(file) for file in files), *([] if loose is None else [loose])]
            rows = drop_repeats(pa.concat_tables(parts))
        return rows if columns is None else rows.select(list(columns))

    def loose(self, bucket: int, table: str = "ledger") -> pa.Table | None:
        """Return a bucket's rows from files with rows of all buckets.

        Args:
            bucket: Bucket number.
            table: Name of the table.

        Returns:
            The rows in stored order, or None.

        Raises:
            InvalidInput: The files were merged meanwhile.
            LedgerDamaged: A file is damaged.
        """
        if table not in LOOSE_TABLES:
            return None
        if table not in self._loose:
            self._loose[table] = self._loose_rows(table)
        return self._loose[table].get(bucket)

    def table(self, table: str) -> pa.Table:
        """Return all rows of a table without buckets.

        Args:
            table: Name of the table.

        Raises:
            LedgerDamaged: A file is damaged.
        """
        parts = [self.read(file) for file in self.files(table)]
        return pa.concat_tables(parts) if parts else table_schema(table).empty_table()

    def quarantined(self) -> dict[str, int]:
        """Return the number of quarantined records by reason.

        Raises:
            LedgerDamaged: A file is damaged.
        """
        reasons = pa.chunked_array(
            [
                self.read(file, ["reason"])["reason"].cast(pa.string()).combine_chunks()
                for file in self.files("quarantine")
            ],
            pa.string(),
        )
        counts = ((each["values"].as_py(), each["counts"].as_py()) for each in reasons.value_counts())
        return dict(sorted((str(reason), count) for reason, count in counts))

    def ingested_inputs(self) -> Iterator[InputFile]:
        """Yield the ingested part of each input file.

        Raises:
            LedgerDamaged: A file is damaged.
        """
        for file in self.files(INPUTS_TABLE):
            rows = self.read(file)
            try:
                yield from inputs_from_table(rows)
            except ValueError as error:
                raise LedgerDamaged(f"{file.path} names an input that there cannot be: {error}") from None
        for commit in self.recent:
            yield from commit.inputs

    def read(self, file: StoredFile, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of one file.

        Args:
            file: A file of the ledger.
            columns: Names of columns; default: all.

        Returns:
            The rows, in stored order.

        Raises:
            InvalidInput: The file was merged meanwhile.
            LedgerDamaged: The file is damaged.
        """
        schema = table_schema(file.table)
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        with self.opened(file, whole=columns is None) as found:
            names = [name for name in wanted.names if name in found.schema_arrow.names]
            return align_columns(found.read(names, free=FILE_BYTES, use_threads=False), wanted)

    @contextlib.contextmanager
    def opened(self, file: StoredFile, *, whole: bool = False) -> Iterator[StoredParquet]:
        """Open a file for a ``with`` block; its errors in the block become ``LedgerDamaged``.

        Args:
            file: A file of the ledger.
            whole: All of it will be read.

        Raises:
            InvalidInput: The file was merged meanwhile.
            LedgerDamaged: The file is damaged.
        """
        with self.reading(file), self.parquet(file, whole=whole) as found:
            yield found

    def parquet(self, file: StoredFile, *, whole: bool = False) -> StoredParquet:
        """Open a file; the caller closes it.

        Args:
            file: A file of the ledger.
            whole: All of it will be read.

        Raises:
            InvalidInput: The file was merged meanwhile.
            LedgerDamaged: The file is damaged.
        """
        with self.reading(file):
            found = self.storage.open_parquet(file.path, file.seal, whole=whole)
            found.require(table_schema(file.table), partly=self.format < FORMAT)
            if found.metadata.num_rows != file.rows:
                raise FileDamaged(file.path, f"has {found.metadata.num_rows:,} rows, and {file.rows:,} were written")
            return found

    @contextlib.contextmanager
    def reading(self, file: StoredFile) -> Iterator[None]:
        """Convert errors of a file in a ``with`` block to ``LedgerDamaged``.

        Raises:
            FilesMerged: The file was merged meanwhile.
            LedgerDamaged: The file is missing or damaged.
        """
        try:
            with ledger_reading(), convert_arrow_errors(file.path):
                yield
        except FileNotFoundError:
            if file.path not in {other.path for other in open_ledger(self.storage.uri).live}:
                text = "its files were merged anew while it was read; run again"
                raise FilesMerged(f"{self.storage.uri}: {text}") from None
            raise LedgerDamaged(f"{file.path} is missing") from None
        except NotRegularFile as error:
            raise LedgerDamaged(f"{file.path} {error.strerror}") from None

    def after(self, commit: LedgerCommit) -> Ledger:
        """Return the ledger as of the next commit.

        Args:
            commit: The next commit.

        Raises:
            LedgerDamaged: The commit does not follow this ledger's last one.
        """
        path = commits_of(self.storage).path(commit.number)
        if commit.number != self.number + 1 or commit.before != (self.last or self.digest):
            raise LedgerDamaged(f"{path} does not follow on the commit before it")
        self._require_buckets(path, commit.files)
        gone = set(commit.gone)
        counts = {name: self.counts.get(name, 0) + count for name, count in commit.counts.items()}
        return replace(
            self,
            number=commit.number,
            last=commit.digest,
            live=(*(file for file in self.live if file.path not in gone), *commit.files),
            counts={**self.counts, **counts},
            recent=(*self.recent, commit),
            gone=(*self.gone, *((path, commit.number) for path in commit.gone)),
        )

    def _require_buckets(self, path: str, files: Iterable[StoredFile]) -> None:
        """Raise ``LedgerDamaged`` for a file of a nonexistent bucket."""
        for file in files:
            if file.bucket is not None and file.bucket >= self.buckets:
                raise LedgerDamaged(f"{path} names a file of bucket {file.bucket}, and there are {self.buckets}")

    @cached_property
    def _by_table(self) -> dict[str, list[StoredFile]]:
        found: dict[str, list[StoredFile]] = {}
        for file in self.live:
            found.setdefault(file.table, []).append(file)
            if file.table == "waiting" and file.rows:
                found.setdefault("ledger", []).append(file)
        return found

    @cached_property
    def _by_bucket(self) -> dict[tuple[str, int], list[StoredFile]]:
        found: dict[tuple[str, int], list[StoredFile]] = {}
        for file in self.live:
            if file.bucket is not None:
                found.setdefault((file.table, file.bucket), []).append(file)
        return found

    def _loose_files(self, table: str) -> list[StoredFile]:
        every = self._by_table.get(table, []) if table in LOOSE_TABLES else []
        return [file for file in every if file.bucket is None]

    @cached_property
    def _loose(self) -> dict[str, dict[int, pa.Table]]:
        return {}

    def _loose_rows(self, table: str) -> dict[int, pa.Table]:
        """Return the rows of files with rows of all buckets, by bucket."""
        parts = [self.read(file) for file in self._loose_files(table)]
        if not parts:
            return {}
        return group_by_bucket(pa.concat_tables(parts).unify_dictionaries().combine_chunks(), self.buckets, table)


def group_by_bucket(rows: pa.Table, buckets: int, table: str = "ledger") -> dict[int, pa.Table]:
    """Group rows by bucket, in their order.

    Args:
        rows: Rows of a table.
        buckets: Number of buckets.
        table: Name of the table.

    Returns:
        Rows by bucket number.
    """
    if not rows.num_rows:
        return {}
    row_buckets = message_buckets(rows, buckets) if table == "ledger" else LAYOUTS[table].buckets_of(rows, buckets)
    order = np.argsort(row_buckets, kind="stable")
    ordered = rows.take(pa.array(order))
    present, starts = np.unique(row_buckets[order], return_index=True)
    ends = [*starts[1:].tolist(), rows.num_rows]
    segments = zip(present.tolist(), starts.tolist(), ends, strict=True)
    return {bucket: ordered.slice(start, end - start) for bucket, start, end in segments}


def open_ledger(uri: str) -> Ledger:
    """Open the ledger at a folder or URI.

    Args:
        uri: Path or URI.

    Returns:
        The ledger as of its last commit.

    Raises:
        InvalidInput: There is no ledger, or its format is unknown.
        LedgerDamaged: The ledger is damaged.
    """
    storage = Storage(uri)
    try:
        with ledger_reading():
            about = read_record(storage, LEDGER_FILE, decoded)
    except FileNotFoundError:
        closed = _TEMPORARY.search(uri) is not None
        text = "was closed; store the DataFrames again" if closed else "causeway ingest makes one"
        raise InvalidInput(f"{uri}: no ledger is there (no {LEDGER_FILE}); {text}") from None
    if about.get("format") not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise InvalidInput(f"{uri}: a ledger of format {about.get('format')}: must be one of {known}")
    head = read_ledger_head(storage)  # before listing the manifests: the listing then has at least this one
    if head is None and about["format"] not in HEADLESS:
        raise LedgerDamaged(f"{LEDGER_HEAD} is missing")
    buckets = about.get("buckets")
    if type(buckets) is not int or not 1 <= buckets <= MAX_BUCKETS:
        raise LedgerDamaged(f"{LEDGER_FILE}: buckets: {buckets!r:.80}: must be from 1 to {MAX_BUCKETS}")
    ledger = _from_checkpoint(Ledger(storage, buckets, str(about["digest"]), about["format"]))
    commits = commits_of(storage)
    for number in commits.numbers():
        if number > ledger.number:
            if number != ledger.number + 1:
                raise LedgerDamaged(f"{commits.path(ledger.number + 1)} is missing")
            ledger = ledger.after(read_commit(storage, number))
    if head is not None and head.number > ledger.number:
        path = commits.path(ledger.number + 1)
        raise LedgerDamaged(f"{path} is missing: {LEDGER_HEAD} names commit {head.number}")
    if head is not None and head.number == ledger.number and head.commit != ledger.last:
        raise LedgerDamaged(f"{commits.path(head.number)} is not the commit that {LEDGER_HEAD} names")
    return ledger


def _from_checkpoint(ledger: Ledger) -> Ledger:
    """Return a ledger as of its last readable checkpoint."""
    wrong: LedgerDamaged | None = None
    checkpoints = checkpoints_of(ledger.storage)
    for number in reversed(checkpoints.numbers()):
        try:
            stored = read_checkpoint(ledger.storage, number)
            ledger._require_buckets(checkpoints.path(number), stored.files)
        except LedgerDamaged as error:
            wrong = wrong or error
            continue
        except FileNotFoundError:
            continue  # removed concurrently: later ones exist
        ledger = replace(ledger, number=number, last=stored.commit, live=stored.files, checkpoint=number)
        return replace(ledger, counts=stored.counts, gone=stored.gone)
    if wrong is not None and not ledger.storage.exists(commits_of(ledger.storage).path(0)):
        raise wrong
    return ledger


def require_bucket_count(buckets: object) -> None:
    """Check the number of buckets of a new ledger.

    Args:
        buckets: The number.

    Raises:
        InvalidInput: It is no whole number from 1 to ``MAX_BUCKETS``.
    """
    if type(buckets) is not int or not 1 <= buckets <= MAX_BUCKETS:
        raise InvalidInput(f"buckets: {format_value(buckets)}: must be a whole number from 1 to {MAX_BUCKETS}")


def create_ledger(uri: str, buckets: int) -> Ledger:
    """Create an empty ledger.

    Args:
        uri: Path or URI of a folder.
        buckets: Number of buckets.

    Returns:
        The new ledger.

    Raises:
        InvalidInput: The number of buckets is invalid, the folder has a lake, or another process creates a ledger
            there.
    """
    require_bucket_count(buckets)
    storage = Storage(uri)
    storage.make_folder(MANIFESTS)
    if storage.exists("lake.json"):
        raise InvalidInput(f"{uri}: a lake of a run is there; give ingest a folder of its own")
    with contextlib.suppress(AlreadyExists):  # another process creates a ledger there
        storage.create(LEDGER_HEAD, LedgerHead().content())
    try:
        storage.create(LEDGER_FILE, encoded({"format": FORMAT, "buckets": buckets}, in_lines=True))
    except AlreadyExists:
        raise InvalidInput(f"{uri}: another process is making a ledger there") from None
    return open_ledger(uri)


class LedgerWriter:
    """Writes one commit on top of a ledger: files first, then the manifest.

    A ``with`` statement removes its staged rows at the end, and its files after an error.

    Args:
        ledger: The ledger as of its last commit.
        token: Unique part of file names. Two processes that write the same commit use different names, and one of the
            two commits counts.

    Raises:
        InvalidInput: ``CAUSEWAY_RETENTION``, which the maintenance after a commit needs, is no duration.
    """

    def __init__(self, ledger: Ledger, token: str | None = None) -> None:
        retention_seconds()
        self.ledger = ledger
        self.token = token or uuid.uuid4().hex[:16]
        self._files: list[StoredFile] = []
        self._gone: list[str] = []
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove staged rows; after an error also the files."""
        try:
            if error is not None:
                self.abandon()
        finally:
            if self.prefix in self.ledger.storage.list(STAGING):
                self.ledger.storage.remove_folder(f"{STAGING}/{self.prefix}")

    @property
    def prefix(self) -> str:
        """Prefix of its file names: the number of the commit, and the token."""
        return f"{self.ledger.number + 1:010}-{self.token}"

    def write(self, table: str, rows: pa.Table | Iterable[pa.Table], bucket: int | None = None) -> int:
        """Write sorted rows as one file, from any thread.

        Args:
            table: Name of the table.
            rows: A table, or consecutive tables, held in memory one at a time. All but the last must have a multiple of
                ``ROW_GROUP`` rows.
            bucket: Bucket number, or None.

        Returns:
            Number of rows.
        """
        file = write_file(self.ledger.storage, f"{self.prefix}-{next(self._numbers):06}", table, rows, bucket)
        self._files.append(file)
        return file.rows

    def add(self, file: StoredFile) -> None:
        """Add a file written elsewhere (``write_file``) under a name with ``prefix``."""
        self._files.append(file)

    def remove(self, file: StoredFile) -> None:
        """Remove a file of the ledger from the next commit on."""
        self._gone.append(file.path)

    def commit(self, inputs: Sequence[InputFile], counts: Mapping[str, int]) -> LedgerCommit:
        """Sync all files, and create the manifest.

        Args:
            inputs: Ingested input.
            counts: Counts of the commit.

        Returns:
            The commit.

        Raises:
            CommitLost: Another process committed.
        """
        storage, ledger = self.ledger.storage, self.ledger
        if len(inputs) > _INLINE:
            self.write(INPUTS_TABLE, inputs_table(inputs))
            inputs = ()
        files, self._files = sorted(self._files, key=lambda file: file.path), []
        rewritten = [table for table in REWRITTEN_TABLES if any(file.table == table for file in files)]
        gone = [*self._gone, *(old.path for table in rewritten for old in ledger.files(table))]
        paths = [file.path for file in files]
        storage.sync([*paths, *sorted({path.rsplit("/", 1)[0] for path in paths})])
        number = ledger.number + 1
        commit = LedgerCommit(number, ledger.last or ledger.digest, tuple(files), tuple(gone), tuple(inputs), counts)
        try:
            commits_of(storage).create(number, commit.content())
        except AlreadyExists:
            for name in paths:
                storage.remove(name)
            text = "another process committed to this ledger meanwhile; run again"
            raise CommitLost(f"{storage.uri}: {text}") from None
        written = read_commit(storage, number)
        storage.put(LEDGER_HEAD, LedgerHead(number, written.digest).content())
        return written

    def abandon(self) -> None:
        """Remove uncommitted files."""
        for file in self._files:
            self.ledger.storage.remove(file.path)


def write_file(
    storage: Storage, name: str, table: str, rows: pa.Table | Iterable[pa.Table], bucket: int | None = None
) -> StoredFile:
    """Write rows as a file of a table; it counts once a commit names it.

    Args:
        storage: Folder of the ledger.
        name: File name without extension; it begins with the writer's ``prefix``.
        table: Name of the table.
        rows: As of ``LedgerWriter.write``.
        bucket: Bucket number, or None.

    Returns:
        The stored file, with its seal.
    """
    if bucket is not None:
        folder = f"{table}/bucket={bucket:02}"
    else:
        folder = f"{table}/bucket={LOOSE_FOLDER}" if table in LOOSE_TABLES else table
    make_table_folder(storage, folder)
    path = f"{folder}/{name}.parquet"
    parts = iter([rows] if isinstance(rows, pa.Table) else rows)
    first = next(parts, table_schema(table).empty_table())
    deltas, bounded = ([name for name in names if name in first.schema.names] for names in (DELTAS, BOUNDED))
    count = size = 0
    plain = [name for name, kind in zip(first.schema.names, first.schema.types, strict=True)
             if pa.types.is_string(kind) and not _is_compressible(first[name])]  # fmt: skip
    with storage.parquet_writer(path, first.schema, sync=False, deltas=deltas, statistics=bounded, plain=plain) as sink:
        for part in itertools.chain([first], parts):
            sink.write_table(part, row_group_size=ROW_GROUP)
            count, size = count + part.num_rows, size + part.nbytes
    return StoredFile(path, table, bucket, count, sink.seal, size)


def _is_compressible(column: pa.ChunkedArray) -> bool:
    """Return True if samples of a text column compress well; digests do not."""
    sizes = [0, 0]
    for begin in range(0, len(column), max(len(column) // _SAMPLES, _SAMPLE_ROWS)):
        sample = column.slice(begin, _SAMPLE_ROWS).combine_chunks()
        data, offsets = text_slices(sample)
        content = data[offsets[0] : offsets[-1]].tobytes()
        if content:
            sizes = [sizes[0] + len(content), sizes[1] + len(pa.compress(content, "lz4", asbytes=True))]
    return sizes[1] <= _MAX_RATIO * sizes[0]


__all__ = [
    "LEDGER_FILE",
    "LOOSE_TABLES",
    "TEMPORARY_PREFIX",
    "CommitLost",
    "InputFile",
    "Ledger",
    "LedgerCommit",
    "LedgerDamaged",
    "LedgerWriter",
    "StoredFile",
    "create_ledger",
    "group_by_bucket",
    "open_ledger",
    "require_bucket_count",
    "write_file",
]  # fmt: skip
