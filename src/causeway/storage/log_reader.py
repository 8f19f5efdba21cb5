"""Log tables of a lake in ranges of heights that fit into memory, forwards and backwards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from causeway.storage.lake import Lake
from causeway.storage.layout import RUN, CompactionRun
from causeway.storage.manifests import Manifest
from causeway.storage.object_store import io_threads
from causeway.storage.seals import Seal
from causeway.storage.table_schemas import TableSchemas


@dataclass
class LogReader:
    """Reads the log tables of a lake by ranges of heights. ``compactions``: cache by run."""

    lake: Lake
    compactions: dict[int, CompactionRun | None] = field(default_factory=dict)

    @cached_property
    def schemas(self) -> dict[str, pa.Schema]:
        """Schemas of the log tables by name."""
        return dict(TableSchemas.decoded(self.lake.about()["tables"]).logs)

    def ranges(self, first: int, end: int, rows: int, tables: Sequence[str]) -> Iterator[range]:
        """Partition heights into ranges of about equal row counts; a height is never split.

        Args:
            first: First height.
            end: End of the heights, exclusive.
            rows: Approximate rows of a range.
            tables: Tables to count.
        """
        start, row_count = first, 0
        for manifest in self.lake.commits(range(first, end)):
            for line in manifest.lines:
                if not first <= line.height < end:
                    continue
                more = sum(line.rows.get(table, 0) for table in tables)
                if row_count and row_count + more > rows:
                    yield range(start, line.height)
                    start, row_count = line.height, 0
                row_count += more
        if start < end:
            yield range(start, end)

    def ranges_back(self, end: int, rows: int, tables: Sequence[str]) -> Iterator[range]:
        """Yield such ranges of the heights below ``end``, last to first."""
        stop, row_count = end, 0
        height = end - 1
        while height >= 0:
            manifest = self.lake.manifest(height)
            for line in reversed([line for line in manifest.lines if line.height <= height]):
                more = sum(line.rows.get(table, 0) for table in tables)
                if row_count and row_count + more > rows:
                    yield range(line.height + 1, stop)
                    stop, row_count = line.height + 1, 0
                row_count += more
            height = manifest.first - 1
        if stop > 0:
            yield range(stop)

    def read(self, table: str, heights: range, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of a log table at heights, in order.

        Args:
            table: Name of the table.
            heights: The heights.
            columns: Columns to return, in order; None: all.

        Raises:
            LakeError: A height is not committed.
            LakeDamaged: A file is damaged.
        """
        schema = self.schemas[table]
        names = schema.names if columns is None else list(columns)
        schema = pa.schema([schema.field(name) for name in names])
        wanted = None if columns is None else list(dict.fromkeys(["height", *names]))
        if not len(heights):
            return schema.empty_table()
        files: dict[str, tuple[Seal, int]] = {}
        for manifest in self.lake.commits(heights):
            files |= {path: (seal, manifest.first - 1) for path, seal in self._files(table, manifest).items()}

        def part(item: tuple[str, tuple[Seal, int]]) -> pa.Table:
            path, (seal, whole) = item
            found = self.lake.rows_at(path, seal, heights.start, heights.stop - 1, whole, wanted)
            return found.select(schema.names).cast(schema)

        return pa.concat_tables([schema.empty_table(), *io_threads(os.getpid()).map(part, files.items())])

    def tick(self, height: int) -> int:
        """Return the tick of a height."""
        return self.lake.manifest(height).tick

    def height_of(self, tick: int, until: int) -> int:
        """Return the last height up to ``until`` with a tick at or before ``tick``."""
        low, high = 0, until
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.tick(middle) <= tick else (low, middle - 1)
        return low

    def _files(self, table: str, manifest: Manifest) -> dict[str, Seal]:
        """Return the files with a commit's rows of a table."""
        run = manifest.number - manifest.number % RUN
        if self.compactions.get(run) is None:
            own = manifest.log.get(table, {}).values()
            if not self.lake.replaced(manifest, list(own)):
                return {path: manifest.files[path] for path in own}
            self.compactions[run] = self.lake.compaction(run)
        found = self.compactions[run]
        assert found is not None
        return {path: found.files[path] for path in found.log.get(table, [])}


__all__ = ["LogReader"]
