"""The two formats by name; each is imported at its first use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

from causeway_proofs.errors import InvalidInput

from causeway.ledger.commits import LEDGER_FILE
from causeway.ledger.table_formats.format_table import TABLE_NAMES, FormatTable, convert_errors
from causeway.storage.object_store import LocalPlace, open_place

FORMATS = ("delta", "iceberg")
"""Names of the formats."""

_MARKS = {"delta": "ledger/_delta_log", "iceberg": "catalog.db"}
"""A path that exists in each folder with tables of a format."""

_MISREAD = {"delta": "%", "iceberg": "?#"}
"""Characters of a path with which a package would use another folder."""

_CATALOG = "catalog:"
"""Begins a namespace of a catalog that the user configured."""


def open_tables(place: str, kind: str, tables: Sequence[str], *, create: bool) -> Mapping[str, FormatTable]:
    """Open tables.

    Args:
        place: Path of a folder; for Delta Lake also the URI of an object store; for Iceberg also
            ``catalog:NAME/NAMESPACE``, a namespace of a catalog in the configuration of PyIceberg.
        kind: Name of the format, one of ``FORMATS``.
        tables: Names of the tables.
        create: Also return missing tables, to be written.

    Returns:
        The tables by name.

    Raises:
        InvalidInput: The format is unknown or its package not installed, the place does not answer, or it has something
            else.
    """
    if kind not in FORMATS:
        raise InvalidInput(f"format {kind}: must be one of {', '.join(FORMATS)}")
    try:
        if place.startswith(_CATALOG):
            return _open_catalog(place, kind, tables, create=create)
        return _open_folder(place, kind, tables, create=create)
    except ModuleNotFoundError as error:
        text = f"{kind}: needs the package {error.name}, which is not installed: pip install 'causeway[tables]'"
        raise InvalidInput(text) from None
    except OSError as error:
        raise InvalidInput(f"{place}: {error.strerror or error}") from None


def _open_folder(place: str, kind: str, tables: Sequence[str], *, create: bool) -> Mapping[str, FormatTable]:
    """Open tables in a folder, or below the URI of an object store."""
    if not place:
        raise InvalidInput("folder: must be a local folder, or a URI for delta")
    found = open_place(place, "tables")
    if kind != "delta" and not isinstance(found, LocalPlace):
        raise InvalidInput(f"{place}: must be a local folder, or catalog:NAME/NAMESPACE, for {kind}")
    root = found.root if isinstance(found, LocalPlace) else found.uri.rstrip("/")
    for mark in _MISREAD[kind]:
        if mark in root:
            raise InvalidInput(f"{root}: must have no {mark} for {kind}")
    others = (LEDGER_FILE, "lake.json", *(mark for name, mark in _MARKS.items() if name != kind))
    present = [path for path in others if found.size(path) is not None]  # fails at a store that does not answer
    if create and present:
        raise InvalidInput(f"{place}: has {present[0]}: must be an empty folder, or an export to {kind}")
    if create:
        found.make_folder("")
    if kind == "delta":
        from causeway.ledger.table_formats.delta import open_delta

        return open_delta(root, tables, create=create)
    _require_configuration()
    from causeway.ledger.table_formats.iceberg import open_iceberg

    return open_iceberg(Path(root), tables, create=create)


def _open_catalog(place: str, kind: str, tables: Sequence[str], *, create: bool) -> Mapping[str, FormatTable]:
    """Open tables in a namespace of a catalog."""
    if kind != "iceberg":
        raise InvalidInput(f"{place}: must be a folder or a URI for {kind}; a catalog has tables of iceberg")
    match = re.fullmatch(rf"{_CATALOG}([^/.]+)/([^/.]+(?:\.[^/.]+)*)", place)
    if match is None:
        raise InvalidInput(f"{place}: must be catalog:NAME/NAMESPACE, such as catalog:prod/analytics.bridge")
    _require_configuration()
    from causeway.ledger.table_formats.iceberg import open_iceberg_catalog

    return open_iceberg_catalog(match[1], match[2], tables, create=create)


def _require_configuration() -> None:
    """Raise ``InvalidInput`` if PyIceberg cannot read its configuration, which it does when it is imported."""
    from pyiceberg.utils.config import Config
    from strictyaml import YAMLError

    with convert_errors(".pyiceberg.yaml", failed=(YAMLError, ValueError, AttributeError)):
        Config()


def require_apart(place: str, ledger: str) -> None:
    """Refuse tables in the folder of a ledger, and a ledger in that of a table: it would be read as part of it.

    Args:
        place: The place of the tables, as of ``open_tables``.
        ledger: Path or URI of the ledger.

    Raises:
        InvalidInput: One is in the other.
    """
    if place.startswith(_CATALOG):
        return
    (store, own), (other_store, other) = _locate(place, "tables"), _locate(ledger, "ledger")
    if store != other_store:
        return
    if own.is_relative_to(other):
        raise InvalidInput(f"{place}: must be outside of the ledger {ledger}")
    if other.is_relative_to(own) and other.relative_to(own).parts[0] in TABLE_NAMES:
        raise InvalidInput(f"{ledger}: must be outside of the tables in {place}")


def _locate(place: str, what: str) -> tuple[str, PurePath]:
    """Return the store of a path or URI, empty for local folders, and the path there."""
    found = open_place(place, what)
    if isinstance(found, LocalPlace):
        return "", Path(found.root).resolve()
    scheme, rest = found.uri.split("://", 1)
    bucket, _, path = rest.partition("/")
    return f"{'s3' if scheme == 's3a' else scheme}://{bucket}", PurePosixPath(path.strip("/"))


__all__ = ["FORMATS", "open_tables", "require_apart"]
