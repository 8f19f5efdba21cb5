"""Where a lake lies: a local folder or any URI that PyArrow can write, behind the few calls that the lake needs."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from causeway.model.errors import InvalidInput

SYNCERS = 8
"""Threads that wait for the disk."""


class AlreadyExists(Exception):
    """A file that was to be created if absent exists."""


@dataclass(frozen=True)
class Storage:
    """A folder at ``uri``; paths are relative to it. Picklable."""

    uri: str

    @cached_property
    def _place(self) -> tuple[fs.FileSystem, str]:
        if "://" not in self.uri:
            return fs.LocalFileSystem(), os.path.abspath(self.uri)
        try:
            system, path = fs.FileSystem.from_uri(self.uri)
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(f"lake: {self.uri} is not a place that can be opened: {first_line(error)}") from error
        return system, path

    @property
    def is_local(self) -> bool:
        """Return whether the folder is on a file system of this machine."""
        return isinstance(self._place[0], fs.LocalFileSystem)

    def absolute(self, path: str) -> str:
        """Return the path or URI of a file as Spark wants it."""
        if self.is_local:
            return f"{self._place[1]}/{path}"
        return f"{self.uri.rstrip('/')}/{path}"

    def _full(self, path: str) -> str:
        return f"{self._place[1]}/{path}" if path else self._place[1]

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        self._place[0].create_dir(self._full(path), recursive=True)

    def list(self, path: str) -> list[str]:
        """Return the names of the files in a folder, ascending; none when it does not exist."""
        if self.is_local:
            with contextlib.suppress(FileNotFoundError), os.scandir(self._full(path)) as entries:
                return sorted(entry.name for entry in entries)
            return []
        selector = fs.FileSelector(self._full(path), allow_not_found=True)
        return sorted(info.base_name for info in self._place[0].get_file_info(selector))

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return bool(self._place[0].get_file_info(self._full(path)).type != fs.FileType.NotFound)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._place[0].delete_file(self._full(path))

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all in it."""
        self._place[0].delete_dir(self._full(path))

    def read_bytes(self, path: str) -> bytes:
        """Return a file's content; raises ``FileNotFoundError``."""
        if self.is_local:
            return Path(self._full(path)).read_bytes()
        with self._place[0].open_input_stream(self._full(path)) as stream:
            content: bytes = stream.read()
            return content

    def modified(self, path: str) -> float | None:
        """Return when a file was written, in seconds of the Unix epoch, None where the storage does not say."""
        found = self._place[0].get_file_info(self._full(path)).mtime_ns
        return None if found is None else found / 1e9

    def create(self, path: str, content: bytes) -> None:
        """Create a file whole or not at all, and only if it is absent; raises ``AlreadyExists``."""
        full = self._full(path)
        if not self.is_local:
            # Object stores offer no common put-if-absent; there, one writer a lake is the rule.
            if self.exists(path):
                raise AlreadyExists(path)
            with self._place[0].open_output_stream(full) as stream:
                stream.write(content)
            return
        temporary = f"{full}.{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, full)
            except FileExistsError:
                raise AlreadyExists(path) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        self._sync(os.path.dirname(full))

    @contextlib.contextmanager
    def open_parquet(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file for reading."""
        full = self._full(path)
        if self.is_local:
            # What the system has in memory is read in place.
            with pq.ParquetFile(full, memory_map=True, pre_buffer=False) as file:
                yield file
            return
        with pq.ParquetFile(self._place[0].open_input_file(full)) as file:
            yield file

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a Parquet file as a table."""
        with self.open_parquet(path) as file:
            return file.read(columns=None if columns is None else [*columns], use_threads=False)

    def write_table(self, path: str, table: pa.Table, *, sync: bool = True) -> None:
        """Write a Parquet file and have the disk keep it; without ``sync`` that is left to a later ``sync``."""
        with self.parquet_writer(path, table.schema, sync=sync) as writer:
            writer.write_table(table)

    @contextlib.contextmanager
    def parquet_writer(self, path: str, schema: pa.Schema, *, sync: bool = True) -> Iterator[pq.ParquetWriter]:
        """Open a Parquet file for writing row group by row group; when the block ends, the disk keeps it (``sync``)."""
        full = self._full(path)
        where = pa.OSFile(full, "wb") if self.is_local else self._place[0].open_output_stream(full)
        bodies = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_binary(kind)]
        texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_dictionary(kind)]
        with (
            where as sink,
            pq.ParquetWriter(
                sink,
                schema,
                # Snappy passes over bodies that cannot be made smaller; lz4 beats a dictionary for numbers.
                compression={name: "snappy" if name in bodies else "lz4" for name in schema.names} if bodies else "lz4",
                use_dictionary=texts or False,
                write_statistics=False,
            ) as writer,
        ):
            yield writer
        if sync:
            self.sync([path])

    def sync(self, paths: Iterable[str]) -> None:
        """Have the disk keep files and the entries of folders.

        Many are written first and synced at once: then the disk does most of the work for all of them together.
        """
        if self.is_local:
            for _ in _syncers(os.getpid()).map(self._sync, [self._full(path) for path in paths]):
                pass

    def _sync(self, full: str) -> None:
        descriptor = os.open(full, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@cache
def _syncers(process: int) -> ThreadPoolExecutor:
    """Return the threads of this process: those of the one it was forked from are not here."""
    return ThreadPoolExecutor(SYNCERS, "causeway-sync")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
