"""Tables of Delta Lake, a folder each: version N is commit N, unless files of the ledger were merged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from causeway.core.text import to_one_line
from causeway.ledger.table_formats.format_table import COMMIT, Reader, Version, convert_errors

_APPLICATION = "causeway"
"""Application of the transactions: of two exports that write at the same time, one fails."""

_CONFIGURATION = {"delta.logRetentionDuration": "interval 36500 days"}


_SAME_ROWS = re.compile(
    "(OPTIMIZE|VACUUM|REORG|CLUSTER BY|COMPUTE STAT|UPGRADE|SET |UNSET |ADD |CHANGE COLUMN|DROP (CONSTRAINT|FEATURE))"
)
"""Begins the names of operations that change no rows. There are more, by any writer: others may."""

_STORE_OPTIONS = {"connect_timeout": "10s", "timeout": "60s", "max_retries": "6", "retry_timeout": "60s"}
"""Limits for object stores. The defaults are minutes, in which a command seems to hang."""


_converted_errors = partial(convert_errors, lost=(CommitFailedError,), failed=(DeltaError, pa.ArrowException, OSError))


class DeltaFormatTable:
    """A table of Delta Lake.

    Args:
        place: Its folder, or URI in an object store.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._options = _STORE_OPTIONS if "://" in place else None
        with _converted_errors(place):
            self._table = self._open() if DeltaTable.is_deltatable(place, self._options) else None

    @property
    def exists(self) -> bool:
        """Return True if the table exists."""
        return self._table is not None

    def _open(self) -> DeltaTable:
        return DeltaTable(self.place, storage_options=self._options)

    def versions(self) -> Iterator[Version]:
        """Yield the versions, as ``FormatTable.versions``."""
        if self._table is None:
            return
        with _converted_errors(self.place):
            yield from map(_version, self._table.history(1))
            if self._table.transaction_version(_APPLICATION) is not None:
                yield from map(_version, self._table.history()[1:])

    def write(self, rows: pa.RecordBatchReader, commit: Mapping[str, str], *, replace: bool) -> None:
        """Write one version, as ``FormatTable.write``."""
        transaction = Transaction(_APPLICATION, int(commit[COMMIT]))
        properties = CommitProperties(custom_metadata=dict(commit), app_transactions=[transaction])
        with _converted_errors(self.place):
            if self._table is None:
                write_deltalake(
                    self.place,
                    rows,
                    configuration=_CONFIGURATION,
                    commit_properties=properties,
                    storage_options=self._options,
                )
                self._table = self._open()
                return
            columns = {field.name for field in self._table.schema().fields}
            missing = [name for name in rows.schema.names if name not in columns]
            if missing:
                raise InvalidInput(f"{self.place}: has no column {', '.join(missing)}; export to an empty folder")
            if replace:
                write_deltalake(self._table, rows, mode="overwrite", commit_properties=properties)
            else:
                write_deltalake(self._table, rows, mode="append", commit_properties=properties)

    def _require_inside(self) -> None:
        """Refuse a table with files elsewhere, such as behind a symbolic link."""
        assert self._table is not None
        root = f"{self._table.table_uri.removeprefix('file://').rstrip('/')}/"  # percent-encoded, unlike what follows
        for file in self._table.file_uris():
            if not file.startswith(root) or not self._is_inside(file.removeprefix(root)):
                raise InvalidInput(f"{self.place}: {to_one_line(file)}: must be a file of the folder")

    def _is_inside(self, path: str) -> bool:
        if "://" in self.place:
            return ".." not in unquote(path).split("/")
        folder = Path(self.place).resolve()
        return (folder / path).resolve().is_relative_to(folder)

    def count(self) -> int:
        """Return the number of rows."""
        assert self._table is not None
        with _converted_errors(self.place):
            self._require_inside()
            return int(self._table.to_pyarrow_dataset().count_rows())

    def read(self, names: Sequence[str]) -> tuple[pa.Schema, Reader]:
        """Return the schema and a reader, as ``FormatTable.read``."""
        assert self._table is not None
        with _converted_errors(self.place):
            self._require_inside()
            rows = self._table.to_pyarrow_dataset()
        present = [name for name in names if name in rows.schema.names]

        def read() -> Iterator[pa.RecordBatch]:
            with _converted_errors(self.place):
                yield from rows.to_batches(columns=present, batch_readahead=1, fragment_readahead=1)

        return rows.schema, read


def _version(entry: Mapping[str, Any]) -> Version:
    """Return the version of an entry of the history."""
    operation = str(entry.get("operation"))
    name = f"version {entry['version']} ({to_one_line(operation)[:80]})"
    return Version(name, _SAME_ROWS.match(operation) is None, entry)


def open_delta(folder: str, tables: Sequence[str], *, create: bool) -> dict[str, DeltaFormatTable]:
    """Open the tables of a folder.

    Args:
        folder: Absolute path of the folder, or its URI in an object store.
        tables: Names of the tables.
        create: Also return missing tables; their first write creates them.

    Raises:
        InvalidInput: A table cannot be read.
    """
    found = {table: DeltaFormatTable(f"{folder}/{table}") for table in tables}
    return {table: opened for table, opened in found.items() if create or opened.exists}


__all__ = ["DeltaFormatTable", "open_delta"]
