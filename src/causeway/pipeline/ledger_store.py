"""A ledger on disk or in an object store: sorted files by bucket, and commits that say which of them count.

``ledger.json`` says what the folder is and how many buckets it has. A commit is one file of ``manifests/``, created
last, whole and only if absent: it names the files that it adds with their seals, and which rows of which input were
taken. What no manifest names does not count. ``docs/ledger.md`` is the page about the layout.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from causeway.ledger.order import MOST_BUCKETS, without_repeats
from causeway.ledger.schema import DELTAS, TABLES
from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.manifests import decoded, encoded
from causeway.pipeline.places import AlreadyExists
from causeway.pipeline.sealed import Seal, seal_from
from causeway.pipeline.storage import FileDamaged, Storage

LEDGER_FILE = "ledger.json"
FORMAT = 1
ROW_GROUP = 1 << 18

_WHOLE = ("observed", "promises")
"""Tables of which each commit that changes them writes all rows anew."""


class LedgerDamaged(CausewayError):
    """A file of a ledger is not what was written; the message names it."""


@dataclass(frozen=True)
class Input:
    """What was taken of a file: its first ``bytes``, which have that SHA-256, and are ``records`` records."""

    file: str
    bytes: int
    sha256: str
    records: int
    mapping: str


@dataclass(frozen=True)
class StoredFile:
    """A file of a commit. ``bucket``: of the tables that have buckets."""

    path: str
    table: str
    bucket: int | None
    rows: int
    seal: Seal


@dataclass(frozen=True)
class LedgerCommit:
    """One commit. ``counts``: by name, such as ``quarantined``; ``before``: the digest of the one before."""

    number: int
    before: str
    files: tuple[StoredFile, ...] = ()
    inputs: tuple[Input, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True)
class Ledger:
    """A stored ledger as of a commit. ``buckets``: how many it has; ``commits``: all, ascending."""

    storage: Storage
    buckets: int
    digest: str
    commits: tuple[LedgerCommit, ...]

    def files(self, table: str, bucket: int | None = None) -> list[StoredFile]:
        """Return the files of a table, of one bucket or all."""
        _known(table)
        every = [file for commit in self.commits for file in commit.files if file.table == table]
        if table in _WHOLE:
            return every[-1:]
        return [file for file in every if bucket is None or file.bucket == bucket]

    def uris(self, table: str) -> list[str]:
        """Return the files of a table as other engines open them."""
        return [self.storage.absolute(file.path) for file in self.files(table)]

    def rows(self, bucket: int, columns: Sequence[str] | None = None, table: str = "ledger") -> pa.Table:
        """Return the rows of a bucket in the order of ``ledger.order``, each event once however often it was recorded.

        ``columns``: those wanted, in their order; default: all. Raises ``LedgerDamaged``, ``InvalidInput`` for a column
        or bucket that is not there.
        """
        schema = TABLES[_known(table)]
        for name in columns or ():
            if name not in schema.names:
                raise InvalidInput(f"column {name}: not in {table}; it has {', '.join(schema.names)}")
        if not 0 <= bucket < self.buckets:
            raise InvalidInput(f"bucket {bucket}: must be from 0 to {self.buckets - 1}")
        found = self.files(table, bucket)
        if len(found) == 1 or table != "ledger":
            parts = [self._read(file, columns) for file in found]
            rows = pa.concat_tables(parts) if parts else schema.empty_table()
        else:
            parts = [schema.empty_table(), *(self._read(file, None) for file in found)]
            rows = without_repeats(pa.concat_tables(parts).unify_dictionaries())
        return rows if columns is None else rows.select(list(columns))

    def table(self, table: str) -> pa.Table:
        """Return all rows of a table that has no buckets. Raises ``LedgerDamaged``."""
        parts = [self._read(file, None) for file in self.files(table)]
        return pa.concat_tables(parts) if parts else TABLES[table].empty_table()

    def taken(self) -> Iterator[Input]:
        """Yield what was taken of which files."""
        for commit in self.commits:
            yield from commit.inputs

    def _read(self, file: StoredFile, columns: Sequence[str] | None) -> pa.Table:
        schema = TABLES[file.table]
        try:
            found = self.storage.read_table(file.path, columns, file.seal)
        except (FileDamaged, FileNotFoundError) as error:
            raise LedgerDamaged(str(error)) from None
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        return found.select(wanted.names).cast(wanted)


def open_ledger(uri: str) -> Ledger:
    """Return the ledger at a folder or URI. Raises ``InvalidInput`` where there is none, ``LedgerDamaged``."""
    storage = Storage(uri)
    try:
        head = _decoded(storage, LEDGER_FILE)
    except FileNotFoundError:
        raise InvalidInput(f"{uri}: no ledger is there (no {LEDGER_FILE}); causeway ingest makes one") from None
    if head.get("format") != FORMAT:
        raise InvalidInput(f"{uri}: a ledger of format {head.get('format')}; this Causeway reads format {FORMAT}")
    commits, before = [], str(head["digest"])
    for number, name in enumerate(name for name in storage.list("manifests") if name.endswith(".json")):
        path = f"manifests/{name}"
        commit = _commit_of(_decoded(storage, path), path)
        if name != _name_of(number) or commit.number != number or commit.before != before:
            raise LedgerDamaged(f"{path} does not follow on the commit before it")
        commits.append(commit)
        before = commit.digest
    return Ledger(storage, int(head["buckets"]), str(head["digest"]), tuple(commits))


def create_ledger(uri: str, buckets: int) -> Ledger:
    """Make a ledger without rows. Raises ``InvalidInput`` where something else is, or another process just did."""
    if not 1 <= buckets <= MOST_BUCKETS:
        raise InvalidInput(f"buckets: {buckets}: must be from 1 to {MOST_BUCKETS}")
    storage = Storage(uri)
    storage.make_folder("manifests")
    if storage.exists("lake.json"):
        raise InvalidInput(f"{uri}: a lake of a run is there; give ingest a folder of its own")
    try:
        storage.create(LEDGER_FILE, encoded({"format": FORMAT, "buckets": buckets}, in_lines=True))
    except AlreadyExists:
        raise InvalidInput(f"{uri}: another process is making a ledger there") from None
    return open_ledger(uri)


class LedgerWriter:
    """Writes one commit on top of a ledger: files first, then the manifest."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._files: list[StoredFile] = []
        self._numbers = itertools.count()
        # Files that two processes write for the same commit have different names: one of the two commits counts.
        self._token = uuid.uuid4().hex[:16]

    def write(self, table: str, rows: pa.Table | Iterable[pa.Table], bucket: int | None = None) -> int:
        """Write rows as one file, as they are sorted, and return how many; from any thread.

        ``rows``: a table, or several that follow each other, of which one at a time is in memory; of those only the
        last may have a length that is not a multiple of ``ROW_GROUP``.
        """
        storage, number = self.ledger.storage, len(self.ledger.commits)
        folder = table if bucket is None else f"{table}/bucket={bucket:02}"
        storage.make_folder(folder)
        path = f"{folder}/{number:010}-{self._token}-{next(self._numbers):04}.parquet"
        parts = iter([rows] if isinstance(rows, pa.Table) else rows)
        first = next(parts, TABLES[_known(table)].empty_table())
        deltas, count = [name for name in DELTAS if name in first.schema.names], 0
        with storage.parquet_writer(path, first.schema, sync=False, deltas=deltas) as sink:
            for part in itertools.chain([first], parts):
                sink.write_table(part, row_group_size=ROW_GROUP)
                count += part.num_rows
        self._files.append(StoredFile(path, table, bucket, count, sink.seal))
        return count

    def commit(self, inputs: Sequence[Input], counts: Mapping[str, int]) -> LedgerCommit:
        """Have the disk keep all files, and name them. Raises ``InvalidInput`` when another process committed."""
        storage, ledger = self.ledger.storage, self.ledger
        files, self._files = sorted(self._files, key=lambda file: file.path), []
        paths = [file.path for file in files]
        storage.sync([*paths, *sorted({path.rsplit("/", 1)[0] for path in paths})])
        number = len(ledger.commits)
        before = ledger.commits[-1].digest if ledger.commits else ledger.digest
        content = {
            "number": number,
            "before": before,
            "files": [
                {"path": file.path, "table": file.table, "bucket": file.bucket, "rows": file.rows, "seal": file.seal}
                for file in files
            ],
            "inputs": [vars(each) for each in inputs],
            "counts": dict(counts),
        }
        path, manifest = f"manifests/{_name_of(number)}", encoded(content)
        try:
            storage.create(path, manifest)
        except AlreadyExists:
            # A store may have taken it, and been asked again.
            if storage.read_bytes(path) != manifest:
                for name in paths:
                    storage.remove(name)
                text = "another process committed to this ledger meanwhile; run again"
                raise InvalidInput(f"{storage.uri}: {text}") from None
        return _commit_of(_decoded(storage, path), path)

    def abandon(self) -> None:
        """Remove what was written and is part of no commit."""
        for file in self._files:
            self.ledger.storage.remove(file.path)


def _name_of(number: int) -> str:
    return f"{number:010}.json"


def _known(table: str) -> str:
    if table not in TABLES:
        raise InvalidInput(f"table {table}: a ledger has {', '.join(TABLES)}")
    return table


def _decoded(storage: Storage, path: str) -> dict[str, Any]:
    try:
        return decoded(storage.read_bytes(path))
    except ValueError as error:
        raise LedgerDamaged(f"{path} is not what was written: {error}") from None


def _commit_of(content: Mapping[str, Any], path: str) -> LedgerCommit:
    try:
        files = tuple(StoredFile(**{**each, "seal": seal_from(each["seal"])}) for each in content["files"])
        inputs = tuple(Input(**each) for each in content["inputs"])
        number, before, digest = int(content["number"]), str(content["before"]), str(content["digest"])
        return LedgerCommit(number, before, files, inputs, content["counts"], digest)
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerDamaged(f"{path} is no commit of a ledger: {error}") from None


__all__ = [
    "Input", "Ledger", "LedgerCommit", "LedgerDamaged", "LedgerWriter", "StoredFile", "create_ledger", "open_ledger",
]  # fmt: skip
