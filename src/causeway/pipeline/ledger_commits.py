"""What the small files of a ledger say: a commit each, and now and then all that counts by then, so that who opens a
ledger reads a few of them, however long its history is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from causeway.ledger.schema import TABLES
from causeway.model.errors import InvalidInput
from causeway.pipeline.confined import NoFile, confined
from causeway.pipeline.manifests import decoded, encoded, head_content, head_fields, read_head
from causeway.pipeline.sealed import Seal, seal_from
from causeway.pipeline.storage import Storage

LEDGER_FILE, LEDGER_HEAD = "ledger.json", "ledger.head"
MANIFESTS, CHECKPOINTS, STAGING = "manifests", "checkpoints", "staging"
FORMAT = 2
FORMATS = (1, 2)
"""The format that is written, and those that are read: format 1 lacks revisions, blocks and time-outs."""

HEADLESS = (1,)
"""Formats of ledgers that may be without ``ledger.head``."""

INPUTS = "inputs"
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

STATE = "state"
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

INTERNAL = {INPUTS: INPUTS_SCHEMA, STATE: STATE_SCHEMA}
"""The tables beside ``TABLES``."""

WHOLE = ("observed", "promises", "waiting", STATE)
"""Tables of which each commit that changes them writes all rows anew."""


class LedgerDamaged(InvalidInput):
    """A file of a ledger is not what was written; the message names it."""


class FilesMerged(InvalidInput):
    """Files of a ledger were merged while it was read, and are gone; who reads it anew finds the others."""


class CommitLost(InvalidInput):
    """Another process committed to the ledger meanwhile; nothing of this commit is in it."""


@dataclass(frozen=True)
class Input:
    """What was taken of a file: its first ``bytes``, which have that SHA-256, and are ``records`` records.

    ``mapping``: the digest of what its mapping says. ``ends_record``: with the last byte a record ends, so that what is
    appended begins with one. ``modified``: when the file was written last by then, in nanoseconds of the Unix epoch, if
    that is known. ``goes_on``: how many of the bytes were taken before, by a commit that this goes on from.
    """

    file: str
    bytes: int
    sha256: str
    records: int
    mapping: str
    ends_record: bool = False
    modified: int | None = None
    goes_on: int = 0


@dataclass(frozen=True)
class StoredFile:
    """A file of a commit. ``bucket``: of the tables that have buckets; None in the table ``ledger``: it has rows of
    all, sorted by bucket. ``bytes``: of its rows in memory."""

    path: str
    table: str
    bucket: int | None
    rows: int
    seal: Seal
    bytes: int = 0


@dataclass(frozen=True)
class LedgerCommit:
    """One commit. ``gone``: paths of files that no longer count from then on; ``counts``: by name, such as
    ``quarantined``; ``before``: the digest of the commit before."""

    number: int
    before: str
    files: tuple[StoredFile, ...] = ()
    gone: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""

    def content(self) -> bytes:
        """Return the commit as its file has it."""
        return encoded(
            {
                "number": self.number,
                "before": self.before,
                "files": [_file_content(file) for file in self.files],
                "gone": list(self.gone),
                "inputs": [vars(each) for each in self.inputs],
                "counts": dict(self.counts),
            }
        )


@dataclass(frozen=True)
class Checkpoint:
    """All that counts as of the commit ``number``, of that digest (``commit``).

    ``files``: of all tables; ``gone``: what no longer counts, and may still be read by who opened the ledger before,
    with the number of the commit since which it does not; ``counts``: of all commits together.
    """

    number: int
    commit: str
    files: tuple[StoredFile, ...] = ()
    gone: tuple[tuple[str, int], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    def content(self) -> bytes:
        """Return the checkpoint as its file has it."""
        return encoded(
            {
                "number": self.number,
                "commit": self.commit,
                "files": [_file_content(file) for file in self.files],
                "gone": [list(each) for each in self.gone],
                "counts": dict(self.counts),
            }
        )


@dataclass(frozen=True)
class LedgerHead:
    """A commit that there must be, by its ``number`` and ``digest``; -1: none yet."""

    number: int = -1
    digest: str = ""

    def content(self) -> bytes:
        """Return the head as its file has it."""
        return head_content({"number": self.number, "commit": self.digest})

    @classmethod
    def of(cls, content: bytes) -> LedgerHead:
        """Return the head in a file. Raises ``ValueError`` when the file is not what was written."""
        found = head_fields(content, number=int, commit=str)
        return cls(found["number"], found["commit"])


def read_ledger_head(storage: Storage) -> LedgerHead | None:
    """Return the head of a ledger, None if it has none. Raises ``LedgerDamaged``."""
    try:
        return read_head(lambda: storage.read_bytes(LEDGER_HEAD), LedgerHead.of)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LedgerDamaged(f"{LEDGER_HEAD} is not what was written: {error}") from None
    except NoFile as error:
        raise LedgerDamaged(f"{LEDGER_HEAD} {error.strerror}") from None


def numbered_path(folder: str, number: int) -> str:
    """Return where the commit or the checkpoint of a number is."""
    return f"{folder}/{number:010}.json"


def number_of(name: str) -> int | None:
    """Return for which commit a file or folder was made, as its name tells; None: it does not."""
    digits = name[:10]
    return int(digits) if len(digits) == 10 and digits.isascii() and digits.isdecimal() else None


def schema_of(table: str) -> pa.Schema:
    """Return the columns of a table. Raises ``InvalidInput`` for one that there is not."""
    if table in INTERNAL:
        return INTERNAL[table]
    if table not in TABLES:
        raise InvalidInput(f"table {table}: a ledger has {', '.join(TABLES)}")
    return TABLES[table]


def read_content(storage: Storage, path: str) -> dict[str, Any]:
    """Return what a small file says. Raises ``LedgerDamaged``, ``FileNotFoundError``."""
    try:
        return decoded(storage.read_bytes(path))
    except ValueError as error:
        raise LedgerDamaged(f"{path} is not what was written: {error}") from None
    except NoFile as error:
        raise LedgerDamaged(f"{path} {error.strerror}") from None


def read_commit(storage: Storage, number: int) -> LedgerCommit:
    """Return the commit of a number. Raises ``LedgerDamaged``, ``FileNotFoundError``."""
    path = numbered_path(MANIFESTS, number)
    content = read_content(storage, path)
    try:
        found = LedgerCommit(
            int(content["number"]),
            str(content["before"]),
            _files(content["files"]),
            tuple(confined(path) for path in content.get("gone", ())),
            tuple(_input(each) for each in content["inputs"]),
            _counts(content["counts"]),
            str(content["digest"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerDamaged(f"{path} is no commit of a ledger: {error}") from None
    if found.number != number:
        raise LedgerDamaged(f"{path} is the commit number {found.number}")
    return found


def read_checkpoint(storage: Storage, number: int) -> Checkpoint:
    """Return the checkpoint of a number. Raises ``LedgerDamaged``, ``FileNotFoundError``."""
    path = numbered_path(CHECKPOINTS, number)
    content = read_content(storage, path)
    try:
        gone = tuple((confined(name), int(since)) for name, since in content["gone"])
        found = Checkpoint(
            int(content["number"]), str(content["commit"]), _files(content["files"]), gone, _counts(content["counts"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerDamaged(f"{path} is no checkpoint of a ledger: {error}") from None
    if found.number != number:
        raise LedgerDamaged(f"{path} is the checkpoint number {found.number}")
    return found


def inputs_table(inputs: Iterable[Input]) -> pa.Table:
    """Return what was taken as a table."""
    rows = [vars(each) for each in inputs]
    return pa.table({each.name: pa.array([row[each.name] for row in rows], each.type) for each in INPUTS_SCHEMA})


def inputs_of(table: pa.Table) -> list[Input]:
    """Return the inputs in a table. Raises ``ValueError`` for a value that no input has."""
    return [_input(row) for row in table.to_pylist()]


def _file_content(file: StoredFile) -> dict[str, Any]:
    return dict(vars(file))


def _files(content: Sequence[Mapping[str, Any]]) -> tuple[StoredFile, ...]:
    return tuple(
        StoredFile(
            confined(each["path"]),
            _text(each["table"], (*TABLES, *INTERNAL)),
            None if each["bucket"] is None else _whole(each["bucket"]),
            _whole(each["rows"]),
            seal_from(each["seal"]),
            _whole(each.get("bytes", 0)),
        )
        for each in content
    )


def _input(content: Mapping[str, Any]) -> Input:
    found = Input(**content)
    for text in (found.file, found.sha256, found.mapping):
        _text(text)
    bytes.fromhex(found.sha256)
    for number in (found.bytes, found.records, found.goes_on):
        _whole(number)
    if type(content["ends_record"]) is not bool or type(content["modified"]) not in (int, type(None)):
        raise ValueError(f"{found.file!r:.80} ends a record, or was written, in no way that is known")
    return found


def _counts(content: Mapping[str, Any]) -> dict[str, int]:
    return {name: _whole(count) for name, count in dict(content).items()}


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.80} is no count")
    return value


def _text(value: Any, allowed: Collection[str] = ()) -> str:
    if not isinstance(value, str) or (allowed and value not in allowed):
        raise ValueError(f"{value!r:.80} is not {' or '.join(allowed) or 'a text'}")
    return value
