"""Tables of Delta Lake, a folder each: version N is commit N, unless files of the ledger were merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from causeway.core.text import to_one_line
from causeway.ledger.table_formats.format_table import COMMIT, Reader, convert_errors, foreign_table, parse_commit

_APPLICATION = "causeway"
"""Application of the transactions: of two exports that write at the same time, one fails."""

_CONFIGURATION = {"delta.logRetentionDuration": "interval 36500 days"}


_converted_errors = partial(convert_errors, lost=CommitFailedError, failed=(DeltaError, pa.ArrowException, OSError))


class DeltaFormatTable:
    """A table of Delta Lake.

    Args:
        place: Its folder.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        with _converted_errors(place):
            self._table = DeltaTable(place) if DeltaTable.is_deltatable(place) else None

    def last_commit(self) -> tuple[int, str] | None:
        """Return the number and digest of the last exported commit; None: there is no table."""
        if self._table is None:
            return None
        for limit in (1, None):  # later versions may be by others, such as OPTIMIZE
            for version in self._table.history(limit):
                if COMMIT in version:
                    return parse_commit(self._place, version)
        raise foreign_table(self._place)

    def write(self, rows: pa.RecordBatchReader, commit: Mapping[str, str], *, replace: bool) -> None:
        """Write one version, as ``FormatTable.write``."""
        transaction = Transaction(_APPLICATION, int(commit[COMMIT]))
        properties = CommitProperties(custom_metadata=dict(commit), app_transactions=[transaction])
        with _converted_errors(self._place):
            if self._table is None:
                write_deltalake(self._place, rows, configuration=_CONFIGURATION, commit_properties=properties)
                self._table = DeltaTable(self._place)
            elif replace:
                write_deltalake(self._table, rows, mode="overwrite", commit_properties=properties)
            else:
                write_deltalake(self._table, rows, mode="append", commit_properties=properties)

    def _require_inside(self) -> None:
        """Refuse a table with files elsewhere, such as behind a symbolic link."""
        assert self._table is not None
        folder = Path(self._place).resolve()
        for file in self._table.file_uris():
            if not Path(file).resolve().is_relative_to(folder):
                raise InvalidInput(f"{self._place}: {to_one_line(file)}: must be a file of the folder")

    def count(self) -> int:
        """Return the number of rows."""
        assert self._table is not None
        with _converted_errors(self._place):
            self._require_inside()
            return int(self._table.to_pyarrow_dataset().count_rows())

    def read(self, names: Sequence[str]) -> tuple[pa.Schema, Reader]:
        """Return the schema and a reader, as ``FormatTable.read``."""
        assert self._table is not None
        with _converted_errors(self._place):
            self._require_inside()
            rows = self._table.to_pyarrow_dataset()
        present = [name for name in names if name in rows.schema.names]

        def read() -> Iterator[pa.RecordBatch]:
            with _converted_errors(self._place):
                yield from rows.to_batches(columns=present, batch_readahead=1, fragment_readahead=1)

        return rows.schema, read


def open_delta(folder: Path, tables: Sequence[str], *, create: bool) -> dict[str, DeltaFormatTable]:
    """Open the tables of a folder.

    Args:
        folder: The folder.
        tables: Names of the tables.
        create: Also return missing tables; their first write creates them.

    Raises:
        InvalidInput: A table cannot be read.
    """
    found = {table: str(folder / table) for table in tables}
    return {
        table: DeltaFormatTable(place) for table, place in found.items() if create or DeltaTable.is_deltatable(place)
    }


__all__ = ["DeltaFormatTable", "open_delta"]
