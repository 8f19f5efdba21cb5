"""What the small files of a ledger say: a commit each, and now and then all that counts by then, so that who opens a
ledger reads a few of them, however long its history is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.ledger.schema import TABLES
from causeway.storage.commit_log import CommitLog, Count, HeadRecord, Record, parse_json
from causeway.storage.files import Storage
from causeway.storage.paths import confine_path
from causeway.storage.seals import FileDamaged, Seal, parse_seal

LEDGER_FILE, LEDGER_HEAD = "ledger.json", "ledger.head"
MANIFESTS, CHECKPOINTS, STAGING = "manifests", "checkpoints", "staging"
FORMAT = 2
FORMATS = (1, 2)
"""The format that is written, and those that are read: format 1 lacks revisions, blocks and time-outs."""

HEADLESS = (1,)
"""Formats of ledgers that may be without ``ledger.head``."""

INPUTS_TABLE = "inputs"
"""The table of what was taken, by files of which no commit says it: only who ingests reads it."""

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
"""The table of what ingestion has to know of earlier commits: only who ingests reads it."""

STATE_SCHEMA = pa.schema(
    [
        pa.field("what", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("time", pa.int64()),
        pa.field("height", pa.uint64()),
        pa.field("value", pa.string()),
    ]
)
"""``what``: ``first_block`` or ``last_block`` of the chain ``key``, by its ``time`` (microseconds since 1970);
``counterparty``: the chain (``value``, null: unknown) at the other end of a lane's end, a JSON list of four names
(``links.End``)."""

INTERNAL = {INPUTS_TABLE: INPUTS_SCHEMA, STATE_TABLE: STATE_SCHEMA}
"""The tables beside ``TABLES``."""

WHOLE_BUCKET = ("observed", "promises", "waiting", STATE_TABLE)
"""Tables of which each commit that changes them writes all rows anew."""


class LedgerDamaged(InvalidInput):
    """A file of a ledger is not what was written; the message names it."""


class FilesMerged(InvalidInput):
    """Files of a ledger were merged while it was read, and are gone; who reads it anew finds the others."""


class CommitLost(InvalidInput):
    """Another process committed to the ledger meanwhile; nothing of this commit is in it."""


def _digest(value: Any) -> str:
    return bytes.fromhex(value).hex()


def _table(value: Any) -> str:
    if value not in TABLES and value not in INTERNAL:
        raise ValueError(f"{value!r:.80} is no table")
    return str(value)


@dataclass(frozen=True)
class InputFile:
    """What was taken of a file: its first ``bytes``, which have that SHA-256, and are ``records`` records.

    ``mapping``: the digest of what its mapping says. ``ends_record``: with the last byte a record ends, so that what is
    appended begins with one. ``modified``: when the file was written last by then, in nanoseconds of the Unix epoch, if
    that is known. ``goes_on``: how many of the bytes were taken before, by a commit that this goes on from.
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
    """A file of a commit. ``bucket``: of the tables that have buckets; None in the table ``ledger``: it has rows of
    all, sorted by bucket. ``bytes``: of its rows in memory."""

    path: Annotated[str, confine_path]
    table: Annotated[str, _table]
    bucket: Count | None
    rows: Count
    seal: Annotated[Seal, parse_seal]
    bytes: Count = 0


@dataclass(frozen=True)
class LedgerCommit(Record):
    """One commit. ``gone``: paths of files that no longer count from then on; ``counts``: by name, such as
    ``quarantined``; ``before``: the digest of the commit before."""

    number: int
    before: str
    files: tuple[StoredFile, ...] = ()
    gone: tuple[Annotated[str, confine_path], ...] = ()
    inputs: tuple[InputFile, ...] = ()
    counts: Mapping[str, Count] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True)
class Checkpoint(Record):
    """All that counts as of the commit ``number``, of that digest (``commit``).

    ``files``: of all tables; ``gone``: what no longer counts, and may still be read by who opened the ledger before,
    with the number of the commit since which it does not; ``counts``: of all commits together.
    """

    number: int
    commit: str
    files: tuple[StoredFile, ...] = ()
    gone: tuple[tuple[Annotated[str, confine_path], int], ...] = ()
    counts: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerHead(HeadRecord):
    """A commit that there must be, by its ``number`` and the digest of the ``commit``; -1: none yet."""

    number: int = -1
    commit: str = ""


@contextlib.contextmanager
def ledger_reading() -> Iterator[None]:
    """Raise ``LedgerDamaged`` for a file that the body of the ``with`` statement finds damaged."""
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


def commits_of(storage: Storage) -> CommitLog[LedgerCommit]:
    """Return the log of the commits of a ledger."""
    return CommitLog(storage, MANIFESTS, "commit", LedgerCommit.of)


def checkpoints_of(storage: Storage) -> CommitLog[Checkpoint]:
    """Return the log of the checkpoints of a ledger."""
    return CommitLog(storage, CHECKPOINTS, "checkpoint", Checkpoint.of)


def read_commit(storage: Storage, number: int) -> LedgerCommit:
    """Read the commit of a number. Raises ``LedgerDamaged``, ``FileNotFoundError``."""
    with ledger_reading():
        return commits_of(storage).read(number)


def read_checkpoint(storage: Storage, number: int) -> Checkpoint:
    """Read the checkpoint of a number. Raises ``LedgerDamaged``, ``FileNotFoundError``."""
    with ledger_reading():
        return checkpoints_of(storage).read(number)


def table_schema(table: str) -> pa.Schema:
    """Return the columns of a table. Raises ``InvalidInput`` for one that there is not."""
    if table in INTERNAL:
        return INTERNAL[table]
    if table not in TABLES:
        raise InvalidInput(f"table {table}: a ledger has {', '.join(TABLES)}")
    return TABLES[table]


def inputs_table(inputs: Iterable[InputFile]) -> pa.Table:
    """Return what was taken as a table."""
    rows = [vars(each) for each in inputs]
    return pa.table({each.name: pa.array([row[each.name] for row in rows], each.type) for each in INPUTS_SCHEMA})


def inputs_from_table(table: pa.Table) -> list[InputFile]:
    """Return the inputs in a table. Raises ``ValueError`` for a value that no input has."""
    return list(parse_json(tuple[InputFile, ...], table.to_pylist()))
