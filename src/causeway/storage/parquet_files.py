"""Untrusted Parquet files of a lake or a ledger; damage raises ``FileDamaged``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from causeway.core.arrow_types import value_type
from causeway.storage.object_store import first_line
from causeway.storage.seals import FileDamaged

MAX_EXPANSION = 256
"""Maximum ratio of memory to file size.

Number codecs in files of Causeway reach 255; files of recorded traffic reach 20.
"""

FREE_BYTES = 64 << 20
"""Memory that a file may use however small it is."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
"""Bytes of a value by physical type, if not 8; texts and bytes have an offset each."""


class StoredParquet(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet file with a path; one that would expand too much is refused before it is read.

    Args:
        path: Path in the lake or ledger, for errors.
        source: Content.
        length: Number of bytes.
        more: As in ``pyarrow.parquet.ParquetFile``.

    Raises:
        FileDamaged: It is no Parquet file, or would expand too much. Methods that read raise it too.
    """

    def __init__(self, path: str, source: Any, length: int, **more: Any) -> None:
        self.path = path
        with convert_arrow_errors(path):
            super().__init__(source, **more)
            size = max(_declared_size(self.metadata), _value_size(self.metadata))
        if size > FREE_BYTES + MAX_EXPANSION * length:
            raise FileDamaged(path, f"has {length:,} bytes, which would become {size:,}")

    def read(self, columns: Sequence[str] | None = None, **more: Any) -> pa.Table:
        """Return all rows."""
        with self._reading(columns):
            return validate_rows(super().read(columns, **more))

    def read_row_group(self, i: int, columns: Sequence[str] | None = None, **more: Any) -> pa.Table:
        """Return the rows of a row group."""
        with self._reading(columns):
            return validate_rows(super().read_row_group(i, columns, **more))

    def read_row_groups(self, row_groups: Sequence[int], columns: Sequence[str] | None = None, **more: Any) -> pa.Table:
        """Return the rows of some row groups."""
        with self._reading(columns):
            return validate_rows(super().read_row_groups(row_groups, columns, **more))

    def iter_batches(self, *values: Any, columns: Sequence[str] | None = None, **more: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches."""
        with self._reading(columns):
            batches = super().iter_batches(*values, columns=columns, **more)
        while True:
            with self._reading(None):
                batch = next(batches, None)
                if batch is None:
                    return
                validate_rows(batch)
            yield batch

    def require(self, schema: pa.Schema, *, partly: bool = False) -> None:
        """Check that the file has the columns of a schema; texts may be dictionary-encoded.

        Args:
            schema: The schema.
            partly: Nullable columns may be missing.

        Raises:
            FileDamaged: A column is missing or has another type.
        """
        found = self.schema_arrow
        wrong = find_misfit(
            found, (each for each in schema if not (partly and each.nullable) or each.name in found.names)
        )
        if wrong is not None:
            raise FileDamaged(self.path, wrong)

    def statistics(self, column: str) -> Iterator[pq.Statistics | None]:
        """Yield the statistics of a column for each row group, None if absent."""
        for number in range(self.num_row_groups):
            group = self.metadata.row_group(number)
            places = range(group.num_columns)
            yield from (group.column(at).statistics for at in places if group.column(at).path_in_schema == column)

    @contextlib.contextmanager
    def _reading(self, columns: Sequence[str] | None) -> Iterator[None]:
        missing = sorted(set(columns) - set(self.schema_arrow.names)) if columns else []
        if missing:
            raise FileDamaged(self.path, f"has no column {missing[0]}")
        with convert_arrow_errors(self.path):
            yield


def find_misfit(found: pa.Schema, wanted: Iterable[pa.Field]) -> str | None:
    """Describe the first column that is missing or has another type.

    Args:
        found: Schema of the file.
        wanted: Required columns.

    Returns:
        The description, or None if all fit.
    """
    for each in wanted:
        place = found.get_field_index(each.name)
        if place < 0:
            return f"has no column {each.name}"
        kind, right = value_type(found.field(place).type), value_type(each.type)
        if kind != right:
            return f"has {kind} in column {each.name}, not {right}"
    return None


def validate_rows(rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Validate rows of an untrusted file. Raises ``ArrowInvalid`` for text that is not UTF-8."""
    rows.validate(full=True)
    return rows


def _declared_size(found: pq.FileMetaData) -> int:
    """Return the uncompressed size that a file declares."""
    return sum(int(found.row_group(number).total_byte_size) for number in range(found.num_row_groups))


def _value_size(found: pq.FileMetaData) -> int:
    """Return the size of a file's values in memory, without text and bytes bodies."""
    columns = [found.schema.column(number) for number in range(found.num_columns)]
    widths = [_WIDTHS.get(column.physical_type, column.length or 8) for column in columns]
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    if any(column.max_repetition_level for column in columns):  # more values than rows
        places = range(len(widths))
        return sum(widths[place] * int(group.column(place).num_values) for group in groups for place in places)
    return sum(widths) * max(sum(int(group.num_rows) for group in groups), int(found.num_rows))


@contextlib.contextmanager
def convert_arrow_errors(path: str) -> Iterator[None]:
    """Convert Arrow errors about a file in the body of a ``with`` statement to ``FileDamaged``.

    Args:
        path: Path of the file.
    """
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as error:
        raise FileDamaged(path, f"has another content than it can have: {first_line(error)}") from error
    except OSError as error:
        if error.errno is not None or type(error) is not OSError:  # one of the system or the store
            raise
        raise FileDamaged(path, f"has another content than it can have: {first_line(error)}") from error


__all__ = ["FREE_BYTES", "MAX_EXPANSION", "StoredParquet", "convert_arrow_errors"]
