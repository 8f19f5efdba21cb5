"""The two formats by name; each is imported at its first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from causeway_proofs.errors import InvalidInput

from causeway.ledger.commits import LEDGER_FILE
from causeway.ledger.table_formats.format_table import TABLE_NAMES, FormatTable
from causeway.storage.files import Storage

FORMATS = ("delta", "iceberg")
"""Names of the formats."""

_MARKS = {"delta": "ledger/_delta_log", "iceberg": "catalog.db"}
"""A path that exists in each folder with tables of a format."""

_MISREAD = {"delta": "%", "iceberg": "?#"}
"""Characters of a path with which a package would use another folder."""


def open_tables(place: str, kind: str, tables: Sequence[str], *, create: bool) -> Mapping[str, FormatTable]:
    """Open tables in a folder.

    Args:
        place: Path of the folder.
        kind: Name of the format, one of ``FORMATS``.
        tables: Names of the tables.
        create: Also return missing tables, to be written.

    Returns:
        The tables by name.

    Raises:
        InvalidInput: The format is unknown or its package not installed, or the folder has something else.
    """
    if kind not in FORMATS:
        raise InvalidInput(f"format {kind}: must be one of {', '.join(FORMATS)}")
    if not place or "://" in place:
        raise InvalidInput(f"{place or 'folder'}: must be a local folder")
    folder = Path(place).absolute()
    for mark in _MISREAD[kind]:
        if mark in str(folder):
            raise InvalidInput(f"{folder}: must have no {mark} for {kind}")
    for path in (LEDGER_FILE, "lake.json", *(mark for name, mark in _MARKS.items() if name != kind)):
        if create and (folder / path).exists():
            raise InvalidInput(f"{place}: has {path}: must be an empty folder, or an export to {kind}")
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        if kind == "delta":
            from causeway.ledger.table_formats.delta import open_delta

            return open_delta(folder, tables, create=create)
        from causeway.ledger.table_formats.iceberg import open_iceberg

        return open_iceberg(folder, tables, create=create)
    except ModuleNotFoundError as error:
        text = f"{kind}: needs the package {error.name}, which is not installed: pip install 'causeway[tables]'"
        raise InvalidInput(text) from None
    except OSError as error:
        raise InvalidInput(f"{place}: {error.strerror or error}") from None


def require_apart(place: str, ledger: str) -> None:
    """Refuse tables in the folder of a ledger, and a ledger in that of a table: it would be read as part of it.

    Args:
        place: Path of the folder with tables.
        ledger: Path or URI of the ledger.

    Raises:
        InvalidInput: One is in the other.
    """
    storage = Storage(ledger)
    if not storage.is_local:
        return
    own, other = Path(place).resolve(), Path(storage.absolute("")).resolve()
    if own.is_relative_to(other):
        raise InvalidInput(f"{place}: must be outside of the ledger {ledger}")
    if other.is_relative_to(own) and other.relative_to(own).parts[0] in TABLE_NAMES:
        raise InvalidInput(f"{ledger}: must be outside of the tables in {place}")


__all__ = ["FORMATS", "open_tables", "require_apart"]
