"""Records of a ledger: commits, checkpoints, the head, inputs, and ingest state.

Checkpoints list all live files, so that opening a ledger reads few records, regardless of its history.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.ledger.schema import TABLES
from causeway.storage.commit_log import CommitLog, Count, HeadRecord, Record, parse_json
from causeway.storage.files import Storage
from causeway.storage.seals import FileDamaged, Seal, confine_path, parse_seal

LEDGER_FILE, LEDGER_HEAD = "ledger.json", "ledger.head"
MANIFESTS, CHECKPOINTS, STAGING = "manifests", "checkpoints", "staging"
FORMAT = 2
FORMATS = (1, 2)
"""Readable formats; format 1 lacks revisions, blocks and time-outs."""

HEADLESS = (1,)
"""Formats of ledgers that may lack ``ledger.head``."""

INPUTS_TABLE = "inputs"
"""Table of ingested inputs that no commit lists itself; only ingest reads it."""

INPUTS_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("bytes", pa.uint64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("records", pa.uint64(), nullable=False),
        pa.field("mapping", pa.string(), nullable=False),
        pa.field("ends_record", pa.bool_(), nullable=False),
        pa.field("modified", pa.int64()),
        pa.field("goes_on", pa.uint64(), nullable=False),
    ]
)

STATE_TABLE = "state"
"""Table of facts that ingest needs from earlier commits."""

STATE_SCHEMA = pa.schema(
    [
        pa.field("what", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("time", pa.int64()),
        pa.field("height", pa.uint64()),
        pa.field("value", pa.string()),
    ]
)
"""``what``: ``first_block`` or ``last_block`` of the chain ``key``, with its ``time`` (microseconds since 1970) and
``height``; ``counterparty``: the chain (``value``, null: unknown) at the other end of a lane end ``key``, a JSON
list of four names (``links.LaneEnd``)."""

INTERNAL = {INPUTS_TABLE: INPUTS_SCHEMA, STATE_TABLE: STATE_SCHEMA}
"""Tables in addition to ``TABLES``."""

REWRITTEN_TABLES = ("observed", "promises", "waiting", STATE_TABLE)
"""Tables that a commit rewrites completely when they change."""


class LedgerDamaged(InvalidInput):
    """A file of a ledger is damaged; the message names it."""


class FilesMerged(InvalidInput):
    """Files were merged and removed during a read; a retry finds the merged ones."""


class CommitLost(InvalidInput):
    """Another process committed to the ledger; this commit was discarded."""


def _digest(value: Any) -> str:
    return bytes.fromhex(value).hex()


def _table(value: Any) -> str:
    if value not in TABLES and value not in INTERNAL:
        raise ValueError(f"{value!r:.80} is no table")
    return str(value)


@dataclass(frozen=True)
class InputFile:
    """Ingested part of a file.

    Attributes:
        file: Name of the file.
        bytes: Length of the ingested part.
        sha256: SHA-256 of the ingested part.
        records: Number of its records.
        mapping: Digest of the mapping.
        ends_record: The last byte ends a record, so that appended data starts with one.
        modified: Modification time then, nanoseconds of the Unix epoch, or None.
        goes_on: Length of the part that an earlier commit ingested.
    """

    file: str
    bytes: Count
    sha256: Annotated[str, _digest]
    records: Count
    mapping: str
    ends_record: bool = False
    modified: int | None = None
    goes_on: Count = 0


@dataclass(frozen=True)
class StoredFile:
    """A file of a commit.

    Attributes:
        path: Path in the ledger.
        table: Name of its table.
        bucket: Bucket number; None: a table without buckets, or rows of all buckets, sorted by bucket.
        rows: Number of rows.
        seal: Seal of the file.
        bytes: Size of its rows in memory.
    """

    path: Annotated[str, confine_path]
    table: Annotated[str, _table]
    bucket: Count | None
    rows: Count
    seal: Annotated[Seal, parse_seal]
    bytes: Count = 0


@dataclass(frozen=True)
class LedgerCommit(Record):
    """One commit.

    Attributes:
        number: Number of the commit.
        before: Digest of the previous commit.
        files: Added files.
        gone: Paths of removed files.
        inputs: Ingested inputs.
        counts: Counts by name, such as ``quarantined``.
        digest: Digest of the commit.
    """

    number: int
    before: str
    files: tuple[StoredFile, ...] = ()
    gone: tuple[Annotated[str, confine_path], ...] = ()
    inputs: tuple[InputFile, ...] = ()
    counts: Mapping[str, Count] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True)
class Checkpoint(Record):
    """State of a ledger as of a commit.

    Attributes:
        number: Number of the commit.
        commit: Digest of the commit.
        files: Live files of all tables.
        gone: Removed files that earlier readers may still use, with the number of the removing commit.
        counts: Sums over all commits.
    """

    number: int
    commit: str
    files: tuple[StoredFile, ...] = ()
    gone: tuple[tuple[Annotated[str, confine_path], int], ...] = ()
    counts: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerHead(HeadRecord):
    """The last known commit.

    Attributes:
        number: Number of the commit, -1: none.
        commit: Digest of the commit.
    """

    number: int = -1
    commit: str = ""


@contextlib.contextmanager
def ledger_reading() -> Iterator[None]:
    """Convert a damaged file in a ``with`` block to ``LedgerDamaged``."""
    try:
        yield
    except FileDamaged as error:
        raise LedgerDamaged(str(error)) from None


def read_ledger_head(storage: Storage) -> LedgerHead | None:
    """Read the head of a ledger, None if it has none. Raises ``LedgerDamaged``."""
    try:
        with ledger_reading():
            return LedgerHead.read(storage, LEDGER_HEAD)
    except FileNotFoundError:
        return None


def make_table_folder(storage: Storage, path: str) -> None:
    """Create a folder of a ledger for a task, which may outlive the ledger of a failed or interrupted driver.

    Args:
        storage: Folder of the ledger.
        path: Path of the folder in it.

    Raises:
        FileNotFoundError: The ledger was removed.
    """
    if not storage.exists(LEDGER_FILE):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{storage.uri}/{LEDGER_FILE}")
    storage.make_subfolder(path)


def commits_of(storage: Storage) -> CommitLog[LedgerCommit]:
    """Return the commit log of a ledger.

    Args:
        storage: Folder of the ledger.
    """
    return CommitLog(storage, MANIFESTS, "commit", LedgerCommit.of)


def checkpoints_of(storage: Storage) -> CommitLog[Checkpoint]:
    """Return the checkpoint log of a ledger."""
    return CommitLog(storage, CHECKPOINTS, "checkpoint", Checkpoint.of)


def read_commit(storage: Storage, number: int) -> LedgerCommit:
    """Read a commit.

    Args:
        storage: Folder of the ledger.
        number: Number of the commit.

    Returns:
        The commit.

    Raises:
        LedgerDamaged: The commit is damaged.
        FileNotFoundError: There is no such commit.
    """
    with ledger_reading():
        return commits_of(storage).read(number)


def read_checkpoint(storage: Storage, number: int) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        LedgerDamaged: The checkpoint is damaged.
        FileNotFoundError: There is no such checkpoint.
    """
    with ledger_reading():
        return checkpoints_of(storage).read(number)


def table_schema(table: str) -> pa.Schema:
    """Return the columns of a table.

    Args:
        table: Name of the table.

    Returns:
        Its schema.

    Raises:
        InvalidInput: There is no such table.
    """
    if table in INTERNAL:
        return INTERNAL[table]
    if table not in TABLES:
        raise InvalidInput(f"table {table}: a ledger has {', '.join(TABLES)}")
    return TABLES[table]


def inputs_table(inputs: Iterable[InputFile]) -> pa.Table:
    """Convert inputs to a table."""
    rows = [vars(each) for each in inputs]
    return pa.table({each.name: pa.array([row[each.name] for row in rows], each.type) for each in INPUTS_SCHEMA})


def inputs_from_table(table: pa.Table) -> list[InputFile]:
    """Convert a table to inputs.

    Raises:
        ValueError: A value is invalid.
    """
    return list(parse_json(tuple[InputFile, ...], table.to_pylist()))
