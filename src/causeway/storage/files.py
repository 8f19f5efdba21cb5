"""Files of a lake: small ones as bytes, tables as sealed Parquet, in any storage place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from causeway.storage.object_store import AlreadyExists, LocalPlace, ObjectPlace, first_line, open_place
from causeway.storage.parquet_files import StoredParquet
from causeway.storage.seals import (
    MISSING,
    PIECE,
    FileDamaged,
    FileTooLong,
    RangeReader,
    Seal,
    SealedReader,
    SealingWriter,
    check_length,
    check_pieces,
    check_whole,
)

MAX_SMALL_BYTES = 256 << 20
"""Maximum number of bytes of a metadata file, such as a manifest."""

WHOLE_BYTES = 4 * PIECE
"""Files up to this size are read in one request, even for some columns only."""

_SPARK_SCHEMES = {"s3": "s3a", "az": "abfss", "adl": "abfss"}
"""URI schemes that Hadoop, and thus Spark, names differently."""


class ParquetSink:
    """A Parquet file being written.

    Attributes:
        seal: Seal of the file, once it is complete.
        cuts: First byte, end and digest of each independently verifiable part, and of the rest, once it is complete.
    """

    def __init__(self, writer: pq.ParquetWriter, sealing: SealingWriter) -> None:
        self._writer, self._sealing = writer, sealing
        self.seal: Seal = (0, "")
        self.cuts: list[tuple[int, int, str]] = []

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write rows in row groups of ``row_group_size``."""
        self._writer.write_table(table, row_group_size=row_group_size)

    def write_part(self, table: pa.Table) -> None:
        """Write rows as one independently verifiable row group; not with ``at_once``."""
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.cuts.append(self._sealing.cut())

    def ended(self) -> None:
        """Seal the file."""
        self.seal = self._sealing.seal()
        self.cuts.append(self._sealing.cut())


@dataclass(frozen=True)
class Storage:
    """The folder or prefix at ``uri``, with relative paths; picklable."""

    uri: str

    @cached_property
    def place(self) -> LocalPlace | ObjectPlace:
        """The underlying place. Raises ``InvalidInput`` for a URI of no known kind."""
        return open_place(self.uri)

    def __getstate__(self) -> dict[str, Any]:
        # A relative path means another folder in a process that began elsewhere.
        return {"uri": self.uri if "://" in self.uri else os.path.abspath(self.uri)}

    @property
    def is_local(self) -> bool:
        """True for a folder on a local file system."""
        return isinstance(self.place, LocalPlace)

    def absolute(self, path: str) -> str:
        """Return the path or URI of a file for Spark."""
        if isinstance(self.place, LocalPlace):
            return self.place.full(path)
        scheme, rest = self.place.uri.split("://", 1)
        return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}/{path}"

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        self.place.make_folder(path)

    def make_subfolder(self, path: str) -> None:
        """Create a folder and its parents below ``uri``. Raises ``FileNotFoundError`` if ``uri`` is missing."""
        self.place.make_subfolder(path)

    def list(self, path: str) -> list[str]:
        """Return the names of files in a folder, ascending; empty if it does not exist."""
        return self.place.list(path)

    def walk(self) -> Iterator[str]:
        """Yield the paths of all files, recursively."""
        return self.place.walk()

    def size(self, path: str) -> int | None:
        """Return the length of a file in bytes, or None if it does not exist."""
        return self.place.size(path)

    def exists(self, path: str) -> bool:
        """Return True if a file exists."""
        return self.place.size(path) is not None

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        self.place.remove(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder and its content."""
        self.place.remove_folder(path)

    def read_bytes(self, path: str, most: int = MAX_SMALL_BYTES) -> bytes:
        """Read a file of at most ``most`` bytes. Raises ``FileNotFoundError``, ``FileTooLong``."""
        return self.place.read(path, most)

    def remote(self, path: str, size: int) -> RangeReader:
        """Return a file of ``size`` bytes that is read a range at a time."""
        return RangeReader(size, lambda start, end: self.place.read_range(path, start, end))

    def modified(self, path: str) -> float | None:
        """Return the modification time of a file in Unix seconds, or None if it does not exist."""
        return self.place.modified(path)

    def create(self, path: str, content: bytes) -> None:
        """Create a file atomically, and only if it is absent. Raises ``AlreadyExists``."""
        self.place.create(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Create a file, or overwrite it with equally many bytes."""
        self.place.put(path, content)

    def sync(self, paths: Iterable[str]) -> None:
        """Flush files and folder entries to disk, for a local place."""
        self.place.sync(paths)

    # ---- sealed files

    def verify(self, path: str, seal: Seal, *, quickly: bool = False) -> None:
        """Compare a file with its seal.

        Args:
            path: Path of the file.
            seal: The seal.
            quickly: Verify only length and last piece, which holds a Parquet file's metadata.

        Raises:
            FileDamaged: The file differs, or is missing.
        """
        if not quickly or seal[0] <= PIECE:
            _require_file(path, lambda: self._read_sealed(path, seal))
            return
        last = (seal[0] - 1) // PIECE
        size = self.place.size(path)
        if size is None:
            raise FileDamaged(path, MISSING)
        check_length(path, seal, size)
        ending = _require_file(path, lambda: self.place.read_range(path, last * PIECE, seal[0]))
        check_pieces(path, seal, last, ending)

    def open_parquet(self, path: str, seal: Seal | None = None, *, whole: bool = False) -> StoredParquet:
        """Open a Parquet file for the caller to close.

        Args:
            path: Path of the file.
            seal: Verifies each read before use; None: only page checksums are verified.
            whole: The whole file will be read.

        Returns:
            The open file.

        Raises:
            FileDamaged: The file is damaged.
            FileNotFoundError: The file is missing.
        """
        if seal is None:
            content = self.place.read(path)
            return StoredParquet(path, pa.BufferReader(content), len(content), page_checksum_verification=True)
        known = seal
        if whole or known[0] <= WHOLE_BYTES:
            return StoredParquet(path, pa.BufferReader(self._read_sealed(path, known)), known[0], pre_buffer=False)
        size = self.place.size(path)
        if size is None:
            raise FileNotFoundError(path)
        check_length(path, known, size)
        reader = SealedReader(path, known, lambda start, end: self.place.read_range(path, start, end))
        return StoredParquet(path, pa.PythonFile(reader, mode="r"), known[0], pre_buffer=False)

    def _read_sealed(self, path: str, seal: Seal) -> bytes:
        """Read and verify a whole file; one that is too long is not read."""
        try:
            content = self.place.read(path, seal[0])
        except FileTooLong as error:
            check_length(path, seal, error.length)
            raise
        check_whole(path, seal, content)
        return content

    def read_table(self, path: str, columns: Sequence[str] | None = None, seal: Seal | None = None) -> pa.Table:
        """Read a Parquet file; ``seal`` and errors as in ``open_parquet``."""
        with self.open_parquet(path, seal, whole=columns is None) as file:
            return file.read(columns=None if columns is None else [*columns], use_threads=False)

    def write_table(
        self,
        path: str,
        table: pa.Table,
        *,
        sync: bool = True,
        statistics: Sequence[str] = (),
        row_group_size: int | None = None,
    ) -> Seal:
        """Write a Parquet file.

        Args:
            path: Path of the file.
            table: The rows.
            sync: Flush it to disk; False: a later ``sync`` does.
            statistics: Columns with minimum and maximum in each row group.
            row_group_size: Number of rows of a row group; None: the default.

        Returns:
            The seal.
        """
        at_once = table.nbytes <= WHOLE_BYTES
        with self.parquet_writer(path, table.schema, sync=sync, at_once=at_once, statistics=statistics) as sink:
            sink.write_table(table, row_group_size)
        return sink.seal

    @contextlib.contextmanager
    def parquet_writer(
        self,
        path: str,
        schema: pa.Schema,
        *,
        sync: bool = True,
        dictionary: Sequence[str] = (),
        at_once: bool = False,
        statistics: Sequence[str] = (),
        deltas: Sequence[str] = (),
        plain: Sequence[str] = (),
    ) -> Iterator[ParquetSink]:
        """Open a Parquet file for writing by row group; it is sealed when the block ends.

        Pages carry checksums, for readers without seals.

        Args:
            path: Path of the file.
            schema: Schema of the rows.
            sync: Flush it to disk when the block ends.
            dictionary: Further columns to encode with a dictionary, with few distinct values.
            at_once: Write a small file in one request rather than the 20 to 30 writes of the format.
            statistics: As in ``write_table``.
            deltas: Columns of whole numbers or times with close neighbors.
            plain: Columns without compression.
        """
        bodies = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_binary(kind)]
        texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_dictionary(kind)]
        with self.place.writer(path) as file:
            sealing = SealingWriter(file)
            buffer = pa.BufferOutputStream() if at_once else None
            with pq.ParquetWriter(
                pa.PythonFile(sealing, mode="w") if buffer is None else buffer,
                schema,
                # Snappy skips incompressible payloads; lz4 beats a dictionary for numbers.
                compression={
                    name: "none" if name in plain else "snappy" if name in bodies else "lz4" for name in schema.names
                },
                use_dictionary=[*texts, *dictionary] or False,
                write_statistics=[*statistics] or False,
                column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED") or None,
                write_page_checksum=True,
            ) as writer:
                sink = ParquetSink(writer, sealing)
                yield sink
            if buffer is not None:
                sealing.write(memoryview(buffer.getvalue()).cast("B"))
            sink.ended()
        if sync:
            self.sync([path])


def find_row_groups(file: StoredParquet, column: str, first: int, end: int) -> list[int]:
    """Return the row groups that may hold values in a range of a column, by statistics.

    Args:
        file: The file.
        column: Name of an integer column.
        first: First value.
        end: End of the range, exclusive.

    Raises:
        FileDamaged: There is no such column of whole numbers.
    """
    number, found = file.schema_arrow.get_field_index(column), []
    if number < 0 or not pa.types.is_integer(file.schema_arrow.field(number).type):
        raise FileDamaged(file.path, f"has no column {column} of whole numbers")
    for group in range(file.num_row_groups):
        known = file.metadata.row_group(group).column(number).statistics
        if known is None or not known.has_min_max or (known.max >= first and known.min < end):
            found.append(group)
    return found


def _require_file(path: str, call: Callable[[], Any]) -> Any:
    """Call a read function; convert a missing file to ``FileDamaged``."""
    try:
        return call()
    except FileNotFoundError:
        raise FileDamaged(path, MISSING) from None
    except (NotADirectoryError, IsADirectoryError):
        raise FileDamaged(path, "is no file") from None


__all__ = ["AlreadyExists", "FileDamaged", "ParquetSink", "Storage", "find_row_groups", "first_line"]
