"""Tables of Apache Iceberg: a snapshot a commit.

They are in a folder, with a catalog in SQLite beside them, or in a catalog that the user configured for PyIceberg.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    PyArrowFile,
    PyArrowFileIO,
    _check_pyarrow_schema_compatible,
    _dataframe_to_data_files,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import Config
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import SQLAlchemyError

from causeway.core.text import suggest_known
from causeway.ledger.table_formats.format_table import (
    Reader,
    Version,
    convert_errors,
    plain_schema,
)

CATALOG_FILE, NAMESPACE = "catalog.db", "causeway"

_PROPERTIES = {
    "commit.retry.num-retries": "0",  # a retried append would repeat the rows of a concurrent export
    "write.target-file-size-bytes": str(128 << 20),  # of rows in memory, which are collected before a file is written
}

CATALOG_SECONDS = 60.0
"""Maximum time to load a catalog of the user, and for an answer of a REST catalog. PyIceberg has no limits."""

_STORE_LIMITS = {"s3.connect-timeout": "10", "s3.request-timeout": "20"}
"""Limits for S3, in seconds without a byte; each of three attempts has them."""

_STORE_VARIABLES = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""Environment variables of S3 that PyIceberg does not read itself."""

_converted_errors = partial(
    convert_errors,
    lost=(CommitFailedException,),
    # What PyIceberg raises about damaged metadata and manifests, beside its own classes, which have no common one.
    failed=(
        *(each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)),
        *(SQLAlchemyError, pa.ArrowException, OSError, ValueError),
        *(EOFError, SystemError, LookupError, TypeError, AttributeError),
    ),
)


class _FolderFiles(PyArrowFileIO):
    """Files of one folder. Metadata of a foreign table may name files anywhere, and classes that read them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder.resolve()

    def new_input(self, location: str) -> PyArrowFile:
        return super().new_input(self.require_inside(location))

    def new_output(self, location: str) -> PyArrowFile:
        return super().new_output(self.require_inside(location))

    def require_inside(self, location: str) -> str:
        """Return the place of a file; raise ``ValueError`` if it is not in the folder."""
        scheme, host, path = self.parse_location(location)
        if scheme != "file" or host or not Path(path).resolve().is_relative_to(self._folder):
            raise ValueError(f"{location!a:.200}: must be a file of {self._folder}")
        return location


class _FolderCatalog(SqlCatalog):
    """A catalog in a file of the folder with its tables."""

    def __init__(self, folder: Path) -> None:
        self._files = _FolderFiles(folder)
        uri = f"sqlite:///{quote(str(folder / CATALOG_FILE))}"
        super().__init__(NAMESPACE, uri=uri, warehouse=f"file://{folder}")

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return self._files

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        self._files.require_inside(orm_table.metadata_location or "")
        table = super()._convert_orm_to_iceberg(orm_table)
        if any("py-" in name for name in table.properties):
            raise ValueError(f"{table.location()}: properties must name no Python classes")
        return table


class IcebergFormatTable:
    """A table of Apache Iceberg.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.place = table.location()

    def versions(self) -> Iterator[Version]:
        """Yield the snapshots, as ``FormatTable.versions``."""
        with _converted_errors(self.place):
            snapshot = self._table.current_snapshot()
            seen = set[int]()
            while snapshot is not None and snapshot.snapshot_id not in seen:
                summary = snapshot.summary
                operation = "unknown" if summary is None else summary.operation.value
                properties = {} if summary is None else summary.additional_properties
                name = f"snapshot {snapshot.snapshot_id} ({operation})"
                yield Version(name, operation != Operation.REPLACE.value, properties)
                seen.add(snapshot.snapshot_id)
                parent = snapshot.parent_snapshot_id
                snapshot = None if parent is None else self._table.snapshot_by_id(parent)

    def write(self, rows: pa.RecordBatchReader, commit: Mapping[str, str], *, replace: bool) -> None:
        """Write one snapshot, as ``FormatTable.write``.

        ``Table.overwrite`` would write two: a deletion, then the new rows.
        """
        try:
            _check_pyarrow_schema_compatible(self._table.schema(), rows.schema)
        except ValueError:
            raise InvalidInput(f"{self.place}: has other columns than an export; must be a new table") from None
        with _converted_errors(self.place), self._table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(commit))
            with update.overwrite() if replace else update.fast_append() as snapshot:
                if replace:
                    for task in self._table.scan().plan_files():
                        snapshot.delete_data_file(task.file)
                for file in _dataframe_to_data_files(transaction.table_metadata, rows, self._table.io):
                    snapshot.append_data_file(file)

    def count(self) -> int:
        """Return the number of rows."""
        with _converted_errors(self.place):
            return self._table.scan().count()

    def read(self, names: Sequence[str]) -> tuple[pa.Schema, Reader]:
        """Return the schema and a reader, as ``FormatTable.read``."""
        with _converted_errors(self.place):
            schema = self._table.schema().as_arrow()
        present = tuple(name for name in names if name in schema.names)

        def read() -> Iterator[pa.RecordBatch]:
            with _converted_errors(self.place):
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
    with _converted_errors(str(file)):
        return _open_tables(_FolderCatalog(folder), NAMESPACE, tables, f"file://{folder}/", create)


def open_iceberg_catalog(
    name: str, namespace: str, tables: Sequence[str], *, create: bool
) -> dict[str, IcebergFormatTable]:
    """Open the tables of a namespace of a catalog in the configuration of PyIceberg.

    Args:
        name: Name of the catalog.
        namespace: The namespace, with dots between its parts.
        tables: Names of the tables.
        create: Create missing tables, and the namespace, where the catalog places them.

    Raises:
        InvalidInput: There is no such catalog, it does not answer, or a table cannot be read.
    """
    with _converted_errors(f"catalog {name}"):
        config = Config()
        configured = config.get_catalog_config(name)
        if configured is None:
            text = suggest_known("catalog", name, config.get_known_catalogs())
            raise InvalidInput(f"catalog {text} (.pyiceberg.yaml or PYICEBERG_CATALOG__NAME__URI configures one)")
        catalog = _load_catalog(name, _with_store_defaults(configured))
        return _open_tables(catalog, namespace, tables, None, create)


def _load_catalog(name: str, properties: Mapping[str, Any]) -> Catalog:
    """Load a catalog in a thread of its own, as a REST catalog sends the first request before it has a session."""
    found: queue.Queue[Catalog | Exception] = queue.Queue()

    def load() -> None:
        try:
            found.put(load_catalog(name, **properties))
        except Exception as error:
            found.put(error)

    threading.Thread(target=load, name="causeway-catalog", daemon=True).start()
    try:
        loaded = found.get(timeout=CATALOG_SECONDS)
    except queue.Empty:
        raise InvalidInput(f"catalog {name}: does not answer within {CATALOG_SECONDS:g} s") from None
    if isinstance(loaded, Exception):
        # The package of a catalog, such as that of AWS, has errors of its own.
        with convert_errors(f"catalog {name}", failed=(type(loaded),)):
            raise loaded
    session = getattr(loaded, "_session", None)  # of a REST catalog
    if isinstance(session, Session):
        for scheme in ("https://", "http://"):
            session.mount(scheme, _LimitedAdapter())
    return loaded


class _LimitedAdapter(HTTPAdapter):
    """Sends requests of a REST catalog, with a limit for each answer."""

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        return super().send(request, *args, **{**options, "timeout": options.get("timeout") or CATALOG_SECONDS})


def _with_store_defaults(configured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a catalog, with those of S3 that only the environment sets."""
    found = dict(_STORE_LIMITS)
    for name, variables in _STORE_VARIABLES.items():
        values = [os.environ[variable] for variable in variables if os.environ.get(variable)]
        if values and name.replace("s3.", "client.") not in configured:
            found[name] = values[0]
    return {**found, **configured}


def _open_tables(
    catalog: Catalog, namespace: str, tables: Sequence[str], folder: str | None, create: bool
) -> dict[str, IcebergFormatTable]:
    """Open tables; create missing ones in a folder, or where the catalog places them."""
    if create:
        catalog.create_namespace_if_not_exists(namespace)
    found = {}
    for table in tables:
        name = f"{namespace}.{table}"
        location = None if folder is None else f"{folder}{table}"
        with contextlib.suppress(NoSuchTableError, NoSuchNamespaceError):
            found[table] = IcebergFormatTable(
                catalog.create_table_if_not_exists(name, plain_schema(table), location, properties=_PROPERTIES)
                if create
                else catalog.load_table(name)
            )
    return found


__all__ = ["CATALOG_FILE", "CATALOG_SECONDS", "NAMESPACE", "IcebergFormatTable", "open_iceberg", "open_iceberg_catalog"]
