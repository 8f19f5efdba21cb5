"""A folder as a streaming source of Spark: which files are new in it, or have grown.

Spark's own file sources take a file once, by its name, and cannot tell in ``foreachBatch`` which files a batch is made
of. Here a row is a file as it is now: its path, length, time and inode, and whether it is ``settled``: nobody has
written to it for a while. An offset counts the batches of one query; what was taken of which file is for the ledger to
know, so that a query may begin anew at any time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from causeway.ledger.ingest.mapping import has_format
from causeway.ledger.ingest.sources import SourceFile, inspect_file, list_files
from causeway.spark.types import spark_schema
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
"""A batch has so many files at most, and so many bytes, or one file."""

OLD_SECONDS, LOOK_EVERY = 600.0, 30
"""A file that nobody has written to for so long is looked at again in every so many listings."""

_ROUND = "round"


@dataclass
class OfferedFiles(InputPartition):
    """Some files."""

    files: list[tuple[bytes, int, int, int, bool]]


@dataclass
class FileSnapshot:
    """What was offered of a file last: its length, time and inode, and whether it was settled."""

    state: tuple[int, int, int]
    settled: bool


class FolderLister:
    """Says what is new in a folder: each state of a file once, and once more when it has settled.

    ``seconds``: after which nobody will write to a file any more that nobody has written to.
    """

    def __init__(self, folder: Storage, formats: Sequence[str], seconds: float) -> None:
        self._folder, self._formats, self._seconds = folder, tuple(formats), seconds
        self._known: dict[str, FileSnapshot] = {}
        self._waiting: list[tuple[SourceFile, bool]] = []
        self._listings = 0
        self._ended = False

    def end(self) -> None:
        """Look once more, and then never again."""
        self._look()
        self._ended = True

    def more(self) -> bool:
        """Return whether there is something to offer."""
        if not self._waiting and not self._ended:
            self._look()
        return bool(self._waiting)

    def next(self) -> list[tuple[SourceFile, bool]]:
        """Return the next files, and whether they are settled; as many as a batch may have."""
        size, count = 0, 0
        for source, _ in self._waiting[:MAX_FILES]:
            size += source.size
            if count and size > MAX_BYTES:
                break
            count += 1
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def _look(self) -> None:
        now = time.time()
        self._listings += 1
        for source in self._files(now):
            settled = source.modified < (now - self._seconds) * 1_000_000_000
            state = source.size, source.modified, source.inode
            before = self._known.get(source.path)
            if before is None or before.state != state or (settled and not before.settled):
                self._known[source.path] = FileSnapshot(state, settled)
                self._waiting.append((source, settled))

    def _files(self, now: float) -> Iterator[SourceFile]:
        """Yield the files; of those that are old and were offered only now and then."""
        if not self._folder.is_local or self._listings % LOOK_EVERY == 1:
            found, _ = list_files(self._folder, self._formats)
            there = {source.path for source in found}
            self._known = {path: looked for path, looked in self._known.items() if path in there}
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
    """The data source. Options: ``path``, a folder or URI; ``files``: the formats by whose endings files are
    chosen, with commas; ``settledSeconds``."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns."""
        return spark_schema(OFFERS_SCHEMA)

    def streamReader(self, schema: StructType) -> FolderStreamReader:  # noqa: N802 - Spark's name
        """Return what looks into the folder."""
        folder, seconds = Storage(self.options["path"]), float(self.options["settledSeconds"])
        return FolderStreamReader(FolderLister(folder, self.options["files"].split(","), seconds))


class FolderStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers files. An offset is ``{"round": the number of the next batch}``."""

    def __init__(self, lister: FolderLister) -> None:
        self._lister = lister
        self._given: tuple[int, list[tuple[SourceFile, bool]]] = (0, [])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        return {_ROUND: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that a batch is limited here."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the number of the batch after the next, if there is something for it."""
        return {_ROUND: start[_ROUND] + self._lister.more()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Look into the folder once, and never again."""
        self._lister.end()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the files of a batch: the same however often Spark asks."""
        if self._given[0] != end[_ROUND]:
            self._given = end[_ROUND], self._lister.next()
        return [
            OfferedFiles(
                [
                    (os.fsencode(source.path), source.size, source.modified, source.inode, settled)
                    for source, settled in self._given[1]
                ]
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the files of a batch as rows."""
        assert isinstance(partition, OfferedFiles)
        columns = [list(column) for column in zip(*partition.files, strict=True)] or [[] for _ in OFFERS_SCHEMA]
        arrays = [pa.array(column, each.type) for column, each in zip(columns, OFFERS_SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=OFFERS_SCHEMA)


__all__ = ["FORMAT", "OFFERS_SCHEMA", "FolderLister", "FolderSource"]
