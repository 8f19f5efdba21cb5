"""Tables of Apache Iceberg in a folder, with a catalog in SQLite beside them: a snapshot a commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from causeway.core.text import to_one_line
from causeway.ledger.table_formats.format_table import COMMIT, Reader, foreign_table, parse_commit, plain_schema

CATALOG_FILE, NAMESPACE = "catalog.db", "causeway"

_PROPERTIES = {
    "commit.retry.num-retries": "0",  # a retried append would repeat the rows of a concurrent export
    "write.target-file-size-bytes": str(128 << 20),  # of rows in memory, which are collected before a file is written
}


class IcebergFormatTable:
    """A table of Apache Iceberg.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._place = table.location()

    def last_commit(self) -> tuple[int, str] | None:
        """Return the number and digest of the last exported commit; None: there is no snapshot."""
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return None
        while snapshot is not None:
            if snapshot.summary is not None and snapshot.summary.get(COMMIT) is not None:
                return parse_commit(self._place, snapshot.summary.additional_properties)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        raise foreign_table(self._place)

    def write(self, rows: pa.RecordBatchReader, commit: Mapping[str, str], *, replace: bool) -> None:
        """Write one snapshot, as ``FormatTable.write``.

        ``Table.overwrite`` would write two: a deletion, then the new rows.
        """
        with _converted_errors(self._place), self._table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(commit))
            with update.overwrite() if replace else update.fast_append() as snapshot:
                if replace:
                    for task in self._table.scan().plan_files():
                        snapshot.delete_data_file(task.file)
                for file in _dataframe_to_data_files(transaction.table_metadata, rows, self._table.io):
                    snapshot.append_data_file(file)

    def count(self) -> int:
        """Return the number of rows."""
        with _converted_errors(self._place):
            return self._table.scan().count()

    def read(self, names: Sequence[str]) -> tuple[pa.Schema, Reader]:
        """Return the schema and a reader, as ``FormatTable.read``."""
        schema = self._table.schema().as_arrow()
        present = tuple(name for name in names if name in schema.names)

        def read() -> Iterator[pa.RecordBatch]:
            with _converted_errors(self._place):
                scan = self._table.scan(selected_fields=present)
                rows = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
                for task in scan.plan_files():  # all at once would be read into memory together
                    yield from rows.to_record_batches([task])

        return schema, read


def open_iceberg(folder: Path, tables: Sequence[str], *, create: bool) -> dict[str, IcebergFormatTable]:
    """Open the tables of a folder's catalog.

    Args:
        folder: The folder.
        tables: Names of the tables.
        create: Create missing tables, and the catalog.

    Raises:
        InvalidInput: There is no catalog, or it cannot be read.
    """
    file = folder / CATALOG_FILE
    if not create and not file.is_file():
        return {}
    found = {}
    with _converted_errors(str(file)):
        catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{quote(str(file))}", warehouse=f"file://{folder}")
        if create:
            catalog.create_namespace_if_not_exists(NAMESPACE)
        for table in tables:
            name = f"{NAMESPACE}.{table}"
            with contextlib.suppress(NoSuchTableError):
                found[table] = IcebergFormatTable(
                    catalog.create_table_if_not_exists(
                        name, plain_schema(table), location=f"file://{folder}/{table}", properties=_PROPERTIES
                    )
                    if create
                    else catalog.load_table(name)
                )
    return found


@contextlib.contextmanager
def _converted_errors(place: str) -> Iterator[None]:
    """Convert errors of the package to ``InvalidInput``."""
    try:
        yield
    except CommitFailedException:
        raise InvalidInput(f"{place}: another process wrote this table meanwhile; run again") from None
    except (SQLAlchemyError, pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInput(f"{place}: {to_one_line(str(error))[:500]}") from error


__all__ = ["CATALOG_FILE", "NAMESPACE", "IcebergFormatTable", "open_iceberg"]
