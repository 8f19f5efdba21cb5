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
"""Maximum ratio of the memory of one read to the file's size, beyond ``FREE_BYTES``.

Files of recorded traffic reach 20. Regular rows, such as one message a second in one lane, reach thousands: they are
read by row groups.
"""

FREE_BYTES = 256 << 20
"""Memory that one read may use however small the file is: a row group of Causeway has less, whatever its rows."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12}
"""Bytes of a value by physical type, if not 8; texts and bytes have an offset each."""


class StoredParquet(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet file with a path; a read that would expand too much is refused.

    Args:
        path: Path in the lake or ledger, for errors.
        source: Content.
        length: Number of bytes.
        more: As in ``pyarrow.parquet.ParquetFile``.

    Raises:
        FileDamaged: It is no Parquet file. Methods that read raise it too, also if the rows would expand too much.
    """

    def __init__(self, path: str, source: Any, length: int, **more: Any) -> None:
        self.path, self._length = path, length
        with convert_arrow_errors(path):
            super().__init__(source, **more)

    def read(self, columns: Sequence[str] | None = None, *, free: int = FREE_BYTES, **more: Any) -> pa.Table:
        """Return all rows; ``free``: memory that they may use however small the file is, in bytes."""
        self._require_bounded(range(self.num_row_groups), columns, free)
        with self._reading(columns):
            return validate_rows(super().read(columns, **more))

    def read_row_group(self, i: int, columns: Sequence[str] | None = None, **more: Any) -> pa.Table:
        """Return the rows of a row group."""
        self._require_bounded([i], columns)
        with self._reading(columns):
            return validate_rows(super().read_row_group(i, columns, **more))

    def read_row_groups(self, row_groups: Sequence[int], columns: Sequence[str] | None = None, **more: Any) -> pa.Table:
        """Return the rows of some row groups."""
        self._require_bounded(row_groups, columns)
        with self._reading(columns):
            return validate_rows(super().read_row_groups(row_groups, columns, **more))

    def iter_batches(
        self,
        batch_size: int = 1 << 16,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        **more: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches."""
        for group in range(self.num_row_groups) if row_groups is None else row_groups:
            self._require_bounded([group], columns)
            with self._reading(columns):
                batches = super().iter_batches(batch_size, row_groups=[group], columns=columns, **more)
            while True:
                with self._reading(None):
                    batch = next(batches, None)
                    if batch is None:
                        break
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

    def _require_bounded(self, groups: Iterable[int], columns: Sequence[str] | None, free: int = FREE_BYTES) -> None:
        """Refuse a read of some row groups whose rows would expand too much."""
        with convert_arrow_errors(self.path):
            size = sum(_memory_size(self.metadata, group, columns) for group in groups)
        if size > free + MAX_EXPANSION * self._length:
            raise FileDamaged(self.path, f"has {self._length:,} bytes, which would become {size:,}")

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


def _memory_size(found: pq.FileMetaData, number: int, names: Sequence[str] | None) -> int:
    """Return the size of a row group in memory: of its values, or as declared if that is more."""
    group, size = found.row_group(number), 0
    for place in range(group.num_columns):
        column, chunk = found.schema.column(place), group.column(place)
        if names is None or column.path.split(".", 1)[0] in names:
            values = max(int(chunk.num_values), int(group.num_rows))  # lists have more values than rows
            width = _WIDTHS.get(column.physical_type, column.length or 8)
            size += max(width * values, int(chunk.total_uncompressed_size))
    return size


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
