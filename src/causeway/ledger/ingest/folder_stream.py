"""A folder as a Spark streaming source: files that are new or have grown.

Spark's own file sources read a file once by name, and do not tell ``foreachBatch`` the files of a batch. Here a row is
the present state of a file: path, length, time and inode, and ``settled``: unmodified for a while. An offset counts the
batches of one query. The ledger records the ingested parts, so that a query can restart at any time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from causeway.cluster.streams import LIMITED_STREAMS, AvailableNow, read_limit
from causeway.cluster.types import spark_schema
from causeway.ledger.ingest.mapping import has_format
from causeway.ledger.ingest.sources import SourceFile, inspect_file, list_files
from causeway.storage.files import Storage

FORMAT = "causeway-folder"

OFFERS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.binary()),
        pa.field("size", pa.int64()),
        pa.field("modified", pa.int64()),
        pa.field("inode", pa.int64()),
        pa.field("settled", pa.bool_()),
    ]
)

MAX_FILES, MAX_BYTES = 4096, 1 << 30
"""Maximum number of files and bytes of a batch, or one file."""

OLD_SECONDS, LOOK_EVERY = 600.0, 30
"""Minimum age of files that are inspected only in every ``LOOK_EVERY``-th listing."""

_ROUND = "round"


@dataclass
class OfferedFiles(InputPartition):
    """The files of a partition."""

    files: list[tuple[bytes, int, int, int, bool]]


@dataclass
class FileSnapshot:
    """Last offered state of a file.

    Attributes:
        state: Length, time and inode.
        settled: The file was unmodified for a while.
    """

    state: tuple[int, int, int]
    settled: bool


class FolderLister:
    """Finds new states of files in a folder, each once, and again once it has settled.

    Args:
        folder: The folder.
        formats: Formats of files.
        seconds: Minimum time without modification of a settled file.
    """

    def __init__(self, folder: Storage, formats: Sequence[str], seconds: float) -> None:
        self._folder, self._formats, self._seconds = folder, tuple(formats), seconds
        self._known: dict[str, FileSnapshot] = {}
        self._pending: list[tuple[SourceFile, bool]] = []
        self._listings = 0
        self._ended = False

    def end(self) -> None:
        """Scan the folder once more, and then never again."""
        self._scan()
        self._ended = True

    def more(self) -> bool:
        """Return True if there are files to offer."""
        if not self._pending and not self._ended:
            self._scan()
        return bool(self._pending)

    def next(self) -> list[tuple[SourceFile, bool]]:
        """Return the next files with their settled flags: as many as fit into a batch if batches can be limited."""
        if not LIMITED_STREAMS:
            found, self._pending = self._pending, []
            return found
        size, count = 0, 0
        for source, _ in self._pending[:MAX_FILES]:
            size += source.size
            if count and size > MAX_BYTES:
                break
            count += 1
        found, self._pending = self._pending[:count], self._pending[count:]
        return found

    def _scan(self) -> None:
        now = time.time()
        self._listings += 1
        for source in self._files(now):
            settled = source.modified < (now - self._seconds) * 1_000_000_000
            state = source.size, source.modified, source.inode
            before = self._known.get(source.path)
            if before is None or before.state != state or (settled and not before.settled):
                self._known[source.path] = FileSnapshot(state, settled)
                self._pending.append((source, settled))

    def _files(self, now: float) -> Iterator[SourceFile]:
        """Yield the files; old offered ones only now and then."""
        if not self._folder.is_local or self._listings % LOOK_EVERY == 1:
            found, _ = list_files(self._folder, self._formats)
            present = {source.path for source in found}
            self._known = {path: snapshot for path, snapshot in self._known.items() if path in present}
            yield from found
            return
        old = (now - OLD_SECONDS) * 1_000_000_000
        for name in self._folder.list(""):
            if name.startswith(".") or not has_format(self._formats, name):
                continue
            before = self._known.get(name)
            if before is not None and before.settled and before.state[1] < old:
                continue
            source = inspect_file(self._folder, name)
            if source is not None:
                yield source


class FolderSource(DataSource):
    """The data source.

    Options: ``path``, a folder or URI; ``files``: comma-separated formats; ``settledSeconds``.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns."""
        return spark_schema(OFFERS_SCHEMA)

    def streamReader(self, schema: StructType) -> FolderStreamReader:  # noqa: N802 - Spark's name
        """Create the stream reader."""
        folder, seconds = Storage(self.options["path"]), float(self.options["settledSeconds"])
        return FolderStreamReader(FolderLister(folder, self.options["files"].split(","), seconds))


class FolderStreamReader(DataSourceStreamReader, AvailableNow):
    """Offers files. An offset is ``{"round": the number of the next batch}``."""

    def __init__(self, lister: FolderLister) -> None:
        self._lister = lister
        self._last_batch: tuple[int, list[tuple[SourceFile, bool]]] = (0, [])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the offset of a new query."""
        return {_ROUND: 0}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return an unlimited read: the lister limits batches."""
        return read_limit()

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the next offset if there are files to offer."""
        return {_ROUND: (self._last_batch[0] if start is None else start[_ROUND]) + self._lister.more()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Scan the folder once, and never again."""
        self._lister.end()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the files of a batch, stable across repeated calls."""
        if self._last_batch[0] != end[_ROUND]:
            self._last_batch = end[_ROUND], self._lister.next()
        return [
            OfferedFiles(
                [
                    (os.fsencode(source.path), source.size, source.modified, source.inode, settled)
                    for source, settled in self._last_batch[1]
                ]
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the files of a batch as rows."""
        assert isinstance(partition, OfferedFiles)
        columns = [list(column) for column in zip(*partition.files, strict=True)] or [[] for _ in OFFERS_SCHEMA]
        arrays = [pa.array(column, each.type) for column, each in zip(columns, OFFERS_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=OFFERS_SCHEMA)


__all__ = ["FORMAT", "OFFERS_SCHEMA", "FolderLister", "FolderSource"]
