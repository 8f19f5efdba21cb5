"""A lake's files: small ones as bytes, tables as sealed Parquet files, in whatever place they lie."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from causeway.storage.object_store import AlreadyExists, LocalPlace, ObjectPlace, first_line, open_place
from causeway.storage.parquet_files import StoredParquet
from causeway.storage.paths import FileTooLong
from causeway.storage.seals import (
    MISSING,
    PIECE,
    FileDamaged,
    RangeReader,
    Seal,
    SealedReader,
    SealingWriter,
    check_length,
    check_pieces,
    check_whole,
)

MAX_SMALL_BYTES = 256 << 20
"""Maximum number of bytes of a file that says what there is: a manifest, say."""

WHOLE_BYTES = 4 * PIECE
"""Files up to this size are read at once, also when not all of their columns are wanted."""

_SPARK_SCHEMES = {"s3": "s3a", "az": "abfss", "adl": "abfss"}
"""What Hadoop, through which Spark reads, calls what others call differently."""


class ParquetSink:
    """A Parquet file that is being written; ``seal`` is there when the block that wrote it has ended, and so are the
    ``cuts``: first byte, end and digest of each part that was written by itself, and of what comes after the last."""

    def __init__(self, writer: pq.ParquetWriter, sealing: SealingWriter) -> None:
        self._writer, self._sealing = writer, sealing
        self.seal: Seal = (0, "")
        self.cuts: list[tuple[int, int, str]] = []

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write rows, as row groups of ``row_group_size``."""
        self._writer.write_table(table, row_group_size=row_group_size)

    def write_part(self, table: pa.Table) -> None:
        """Write rows as one row group that can be verified by itself; not in a file that is written at once."""
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.cuts.append(self._sealing.cut())

    def ended(self) -> None:
        """Seal what was written."""
        self.seal = self._sealing.seal()
        self.cuts.append(self._sealing.cut())


@dataclass(frozen=True)
class Storage:
    """The folder or prefix at ``uri``; paths are relative to it. Picklable."""

    uri: str

    @cached_property
    def place(self) -> LocalPlace | ObjectPlace:
        """Return what does the work. Raises ``InvalidInput`` for a URI that is none of a place."""
        return open_place(self.uri)

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri}

    @property
    def is_local(self) -> bool:
        """Return whether the folder is on a file system of this machine."""
        return isinstance(self.place, LocalPlace)

    def absolute(self, path: str) -> str:
        """Return the path or URI of a file as Spark wants it."""
        if isinstance(self.place, LocalPlace):
            return self.place.full(path)
        scheme, rest = self.place.uri.split("://", 1)
        return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}/{path}"

    def inside(self, folder: str) -> Storage:
        """Return a folder of this one as a storage of its own."""
        return Storage(f"{self.uri.rstrip('/')}/{folder}")

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        self.place.make_folder(path)

    def list(self, path: str) -> list[str]:
        """Return the names of the files in a folder, ascending; none when it does not exist."""
        return self.place.list(path)

    def walk(self) -> Iterator[str]:
        """Yield the paths of all files, in folders of folders too."""
        return self.place.walk()

    def size(self, path: str) -> int | None:
        """Return the length of a file, None when it does not exist."""
        return self.place.size(path)

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return self.place.size(path) is not None

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        self.place.remove(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all in it."""
        self.place.remove_folder(path)

    def read_bytes(self, path: str, most: int = MAX_SMALL_BYTES) -> bytes:
        """Return the content of a file of at most so many bytes; raises ``FileNotFoundError``, ``TooLong``."""
        return self.place.read(path, most)

    def remote(self, path: str, size: int) -> RangeReader:
        """Return a file of so many bytes, read a range at a time."""
        return RangeReader(size, lambda start, end: self.place.read_range(path, start, end))

    def modified(self, path: str) -> float | None:
        """Return when a file was written, in seconds of the Unix epoch, None when it does not exist."""
        return self.place.modified(path)

    def create(self, path: str, content: bytes) -> None:
        """Create a file whole or not at all, and only if it is absent; raises ``AlreadyExists``."""
        self.place.create(path, content)

    def put(self, path: str, content: bytes) -> None:
        """Create a file, or replace what it holds by as many bytes."""
        self.place.put(path, content)

    def sync(self, paths: Iterable[str]) -> None:
        """Have the disk keep files and the entries of folders, where there is a disk."""
        self.place.sync(paths)

    # ---- sealed files

    def verify(self, path: str, seal: Seal, *, quickly: bool = False) -> None:
        """Compare a file with its seal. ``quickly``: only its length and its last piece, which holds what a Parquet
        file says of itself.

        Raises ``FileDamaged``.
        """
        if not quickly or seal[0] <= PIECE:
            _found(path, lambda: self._sealed(path, seal))
            return
        last = (seal[0] - 1) // PIECE
        size = self.place.size(path)
        if size is None:
            raise FileDamaged(path, MISSING)
        check_length(path, seal, size)
        ending = _found(path, lambda: self.place.read_range(path, last * PIECE, seal[0]))
        check_pieces(path, seal, last, ending)

    @contextlib.contextmanager
    def open_parquet(self, path: str, seal: Seal | None = None, *, whole: bool = False) -> Iterator[StoredParquet]:
        """Open a Parquet file for reading. With a ``seal`` all that is read of it is verified before it is used;
        without one the checksums of its pages are. ``whole``: all of it will be read.

        Raises ``FileDamaged``, ``FileNotFoundError``.
        """
        with self.parquet_file(path, seal, whole=whole) as file:
            yield file

    def parquet_file(self, path: str, seal: Seal | None = None, *, whole: bool = False) -> StoredParquet:
        """Return an open Parquet file, as of ``open_parquet``; whoever opens it closes it."""
        if seal is None:
            content = self.place.read(path)
            return StoredParquet(path, pa.BufferReader(content), len(content), page_checksum_verification=True)
        known = seal
        if whole or known[0] <= WHOLE_BYTES:
            return StoredParquet(path, pa.BufferReader(self._sealed(path, known)), known[0], pre_buffer=False)
        size = self.place.size(path)
        if size is None:
            raise FileNotFoundError(path)
        check_length(path, known, size)
        reader = SealedReader(path, known, lambda start, end: self.place.read_range(path, start, end))
        return StoredParquet(path, pa.PythonFile(reader, mode="r"), known[0], pre_buffer=False)

    def _sealed(self, path: str, seal: Seal) -> bytes:
        """Return a whole file, verified; one that is too long is not read."""
        try:
            content = self.place.read(path, seal[0])
        except FileTooLong as error:
            check_length(path, seal, error.length)
            raise
        check_whole(path, seal, content)
        return content

    def read_table(self, path: str, columns: Sequence[str] | None = None, seal: Seal | None = None) -> pa.Table:
        """Return a Parquet file as a table; ``seal`` and errors as of ``open_parquet``."""
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
        """Write a Parquet file, have the disk keep it and return its seal; without ``sync`` keeping it is left to a
        later ``sync``. ``statistics``: columns of which each row group states the least and the largest value.
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
        """Open a Parquet file for writing row group by row group; when the block ends, it is sealed and the disk keeps
        it (``sync``). Its pages carry checksums, for readers that know no seals.

        ``dictionary``: columns with few different values, beside those that are dictionaries already. ``at_once``: it
        is small; it is written when it is whole, in one piece and not in the 20 to 30 that the format gives.
        ``statistics``: as of ``write_table``. ``deltas``: columns of whole numbers or times of which neighbours lie
        close together. ``plain``: columns that are not compressed.
        """
        bodies = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_binary(kind)]
        texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_dictionary(kind)]
        with self.place.writer(path) as file:
            sealing = SealingWriter(file)
            buffer = pa.BufferOutputStream() if at_once else None
            with pq.ParquetWriter(
                pa.PythonFile(sealing, mode="w") if buffer is None else buffer,
                schema,
                # Snappy passes over bodies that cannot be made smaller; lz4 beats a dictionary for numbers.
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
    """Return the row groups that may hold values from ``first`` to ``end`` - 1 in a column, by its statistics.

    Raises ``FileDamaged``: there is no such column, or it has no numbers.
    """
    number, found = file.schema_arrow.get_field_index(column), []
    if number < 0 or not pa.types.is_integer(file.schema_arrow.field(number).type):
        raise FileDamaged(file.path, f"has no column {column} of whole numbers")
    for group in range(file.num_row_groups):
        known = file.metadata.row_group(group).column(number).statistics
        if known is None or not known.has_min_max or (known.max >= first and known.min < end):
            found.append(group)
    return found


def _found(path: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except FileNotFoundError:
        raise FileDamaged(path, MISSING) from None
    except (NotADirectoryError, IsADirectoryError):
        raise FileDamaged(path, "is no file") from None


__all__ = ["AlreadyExists", "FileDamaged", "ParquetSink", "Storage", "find_row_groups", "first_line"]
