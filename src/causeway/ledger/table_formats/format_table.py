"""Properties of snapshots, and the interface of the two formats."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.core.arrow_types import plain_type
from causeway.core.text import to_one_line
from causeway.ledger.commits import STATE_TABLE, table_schema
from causeway.ledger.schema import TABLES

TABLE_NAMES = (*TABLES, STATE_TABLE)
"""Tables of an export, in the order in which they are written."""

COMMIT, DIGEST = "causeway-commit", "causeway-digest"
"""Properties of a snapshot: number and digest of the ledger's commit."""

_LOST = "another process wrote this table meanwhile; run again"

_MADE_MEANWHILE = re.compile(
    r"a table already exists at|\b(table|namespace)\b.* already exists|unique constraint|database is locked", re.I
)
"""Errors of the first of two exports at the same time: it was missing when this one began."""

_FRAMES = re.compile(r"Backtrace|^\s*0: ", re.M)
"""Begins the stack of an error of Rust."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

Reader = Callable[[], Iterator[pa.RecordBatch]]


class Version(NamedTuple):
    """A version of a table: a commit of Delta Lake, a snapshot of Iceberg.

    Attributes:
        name: Its name in errors, such as ``version 3 (DELETE)``.
        changes_rows: False if it only stores the same rows in other files, or has no rows at all.
        properties: Its properties.
    """

    name: str
    changes_rows: bool
    properties: Mapping[str, Any]


class FormatTable(Protocol):
    """One table of a format.

    Attributes:
        place: Its place, for errors.
    """

    place: str

    def versions(self) -> Iterator[Version]:
        """Yield the versions from the last one back; a table that no export wrote may yield the last one only."""
        ...

    def write(self, rows: pa.RecordBatchReader, commit: Mapping[str, str], *, replace: bool) -> None:
        """Write one snapshot.

        Args:
            rows: The added rows.
            commit: The properties ``COMMIT`` and ``DIGEST``.
            replace: Remove the rows of earlier snapshots.

        Raises:
            InvalidInput: The table cannot be written, or another process wrote it meanwhile.
        """
        ...

    def count(self) -> int:
        """Return the number of rows of the last snapshot."""
        ...

    def read(self, names: Sequence[str]) -> tuple[pa.Schema, Reader]:
        """Return the schema of the last snapshot, and a reader of the columns with some names.

        Args:
            names: Names of columns; missing ones are ignored.

        Raises:
            InvalidInput: The table cannot be read.
        """
        ...


def plain_schema(table: str) -> pa.Schema:
    """Return the columns of a table of an export.

    Args:
        table: Name of the table.
    """
    return pa.schema([field.with_type(plain_type(field.type)) for field in table_schema(table)])


def parse_commit(place: str, properties: Mapping[str, Any]) -> tuple[int, str]:
    """Return the commit that the properties of a snapshot name.

    Args:
        place: Path of the table, for errors.
        properties: The properties.

    Raises:
        InvalidInput: They name no commit.
    """
    number, digest = str(properties.get(COMMIT)), str(properties.get(DIGEST))
    if not re.fullmatch(r"[0-9]{1,18}", number) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise InvalidInput(f"{place}: {COMMIT} {number!a:.80}, {DIGEST} {digest!a:.80}: must be those of an export")
    return int(number), digest


def exported_commit(table: FormatTable) -> tuple[int, str] | None:
    """Return the number and digest of the last exported commit; None: no version names one.

    Args:
        table: The table.

    Raises:
        InvalidInput: A later version has other rows, such as after a deletion: an export would keep the hole.
    """
    changed: Version | None = None
    for version in table.versions():
        if COMMIT in version.properties:
            commit = parse_commit(table.place, version.properties)
            if changed is not None:
                text = f"{changed.name} changed rows after {COMMIT} {commit[0]}, and is not of an export"
                raise InvalidInput(f"{table.place}: {text}; export to an empty folder")
            return commit
        if changed is None and version.changes_rows:
            changed = version
    return None


@contextlib.contextmanager
def convert_errors(
    place: str, lost: tuple[type[Exception], ...] = (), failed: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Convert errors of a package in the body of a ``with`` statement to ``InvalidInput``.

    Args:
        place: Path of the table or catalog.
        lost: Errors of a commit that another process preceded.
        failed: Other errors.
    """
    try:
        yield
    except lost:
        raise InvalidInput(f"{place}: {_LOST}") from None
    except InvalidInput:
        raise
    except failed as error:
        if _MADE_MEANWHILE.search(str(error)):
            raise InvalidInput(f"{place}: {_LOST}") from None
        text = _FRAMES.split(_COLOURS.sub("", str(error)))[0]
        text = " ".join(line.strip() for line in text.splitlines() if line.strip())
        raise InvalidInput(f"{place}: {to_one_line(text or type(error).__name__)[:500]}") from error


def foreign_table(place: str) -> InvalidInput:
    """Return the error about a table that no export wrote.

    Args:
        place: Path of the table.
    """
    return InvalidInput(f"{place}: a table without {COMMIT} in its snapshots; export to an empty folder")


__all__ = [
    "COMMIT",
    "DIGEST",
    "TABLE_NAMES",
    "FormatTable",
    "Reader",
    "Version",
    "convert_errors",
    "exported_commit",
    "foreign_table",
    "parse_commit",
    "plain_schema",
]
