"""A lake as a Spark data source: batch (``spark.read``) and stream (``spark.readStream``).

For Spark users without the Causeway API: call ``causeway.spark.register_format(spark)`` once, then

    spark.read.format("causeway").option("table", "headers").option("heights", "10-20").load("my-lake")
    spark.readStream.format("causeway").option("table", "events").load("my-lake")

Options: ``path`` (or the argument of ``load``), the folder or URI of the lake; ``table``, a log or topology table, or a
state table at one ``height`` (by default the last); ``heights`` of a log table, as in ``10-20``, ``10-`` or ``-20``, to
open only the files with them. A height within a commit is re-executed. Streams read log tables only, with the options
``startingHeight`` (0) and ``maxHeightsPerTrigger`` (no limit). Other options are refused.

Filters are left to Spark: up to 4.3 at least, it keeps a filter that a Python source has taken for later queries of the
same DataFrame, which then miss rows.

The offset of a stream is the next height. The rows of a height never change, compacted or not. So a sink that commits
each batch once (Parquet files, for example) receives each row exactly once across restarts. All rows are verified
against the seals.

Errors: ``LakeError`` for invalid options and offsets, ``LakeDamaged`` for corrupted files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from causeway.cluster.streams import LIMITED_STREAMS, AvailableNow, read_limit
from causeway.cluster.types import spark_schema, to_spark_columns
from causeway.core.text import suggest_known, truncate_text
from causeway.storage.lake import Lake, LakeError
from causeway.storage.seals import Seal, parse_seal
from causeway.storage.table_schemas import TOPOLOGY_SCHEMAS, StateReader, TableSchemas, replay_between

SPARK_FORMAT = "causeway"

HEIGHT = "height"

HEIGHTS = "heights"

STARTING_HEIGHT, MAX_HEIGHTS = "startingHeight", "maxHeightsPerTrigger"

BATCH_OPTIONS, STREAM_OPTIONS = (HEIGHT, HEIGHTS), (STARTING_HEIGHT, MAX_HEIGHTS)
"""Options of a lake that select rows of a batch, and those of streams."""

_TABLE_MARK, _TABLE_OPTION = "provider", "option."
"""What Spark adds to the options of a table of its catalog: properties, and the user's own options once more."""


@dataclass(frozen=True)
class HeightPartition:
    """A range of heights from ``first`` up to ``end`` (exclusive; None: unbounded)."""

    first: int = 0
    end: int | None = None

    @classmethod
    def parse(cls, text: str) -> HeightPartition:
        """Parse ``10-20``, ``10-``, ``-20`` or ``10``.

        Raises:
            LakeError: The text is no range, or its first height is above its last.
        """
        found = re.fullmatch(r"(?P<first>\d{1,18})?-(?P<last>\d{1,18})?|(?P<one>\d{1,18})", text, re.ASCII)
        if found is None or text == "-":
            raise LakeError(f"heights: {text!r}; allowed: ranges such as 10-20, 10- or -20")
        first, last = int(found["one"] or found["first"] or 0), found["one"] or found["last"]
        if last is not None and first > int(last):
            raise LakeError(f"heights: {text!r}; the first must be at most the last")
        return cls(first, None if last is None else int(last) + 1)


@dataclass
class FilePartition(InputPartition):
    """The rows of one file at ``heights``; None for a table without heights."""

    path: str
    seal: Seal
    heights: HeightPartition | None = None


@dataclass
class ReplayPartition(InputPartition):
    """A state table at a height without a stored snapshot."""

    height: int


@dataclass
class StatePartition(InputPartition):
    """One bucket's rows of a state table in several files, at the last height of a commit."""

    height: int
    bucket: str


class SourceOptions:
    """The parsed options: a table of a lake.

    ``state_at`` re-executes heights; None if that is not supported.
    """

    def __init__(self, options: Mapping[str, str], state_at: Callable[[Lake], StateReader | None]) -> None:
        """Parse the options.

        Raises:
            LakeError: an option is unknown or invalid.
        """
        where, table = options.get("path"), options.get("table")
        if not where:
            raise LakeError("path: missing; name the folder or URI of a lake, as in load(PATH)")
        self.lake = Lake.at(where).with_identity()
        self.state_at = state_at(self.lake)
        self.schemas = TableSchemas.decoded(self.lake.about()["tables"])
        known = [*self.schemas.logs, *TOPOLOGY_SCHEMAS, *self.schemas.state]
        if table not in known:
            raise LakeError(f"table: {table or 'missing'}; allowed: {', '.join(known)}")
        self.table: str = table
        self.first = parse_whole_number(options, STARTING_HEIGHT, 0) or 0
        self.most = parse_limit(options, MAX_HEIGHTS)
        self.height = parse_whole_number(options, HEIGHT, None)
        if self.height is not None and self.table not in self.schemas.state:
            raise LakeError("height: only a state table is read at one height; heights has those of a log table")
        self.heights = HeightPartition.parse(options[HEIGHTS]) if HEIGHTS in options else HeightPartition()
        if HEIGHTS in options and not self.is_log:
            raise LakeError(f"heights: {options[HEIGHTS]}; only of a log table: {', '.join(self.schemas.logs)}")

    @property
    def is_log(self) -> bool:
        """Return True for a log table."""
        return self.table in self.schemas.logs

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the table's files."""
        if self.is_log:
            return self.schemas.logs[self.table]
        state = self.schemas.state.get(self.table)
        return TOPOLOGY_SCHEMAS[self.table] if state is None else state.schema

    def parts(self, heights: HeightPartition) -> Sequence[InputPartition]:
        """Return the partitions to read, one a task."""
        if self.is_log:
            last = self.lake.last_height()
            wanted = range(heights.first, last + 1 if heights.end is None else min(heights.end, last + 1))
            found = self.lake.log_files(self.table, None if len(wanted) == last + 1 else wanted)
            return [FilePartition(path, seal, heights) for path, seal in found.items()]
        if self.table in TOPOLOGY_SCHEMAS:
            path = f"{self.table}.parquet"
            return [FilePartition(path, parse_seal(self.lake.about()["files"][path]))]
        manifest = self.lake.last_manifest() if self.height is None else self.lake.manifest(self.height)
        freed = self.lake.freed(manifest.height)
        if freed is not None:
            raise freed
        if manifest.height < manifest.last:
            return [ReplayPartition(manifest.height)]
        parts = manifest.state.get(self.table, {})
        return [
            FilePartition(one.rows[0], manifest.files[one.rows[0]])
            if one.whole
            else StatePartition(manifest.height, key)
            for key, one in parts.items()
        ]

    def rows(self, part: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition, verified, in Spark's types."""
        if isinstance(part, ReplayPartition):
            table = pa.concat_tables(replay_between(self.lake, self.state_at, part.height, self.table))
        elif isinstance(part, StatePartition):
            manifest = self.lake.manifest(part.height)
            table = self.lake.part(manifest, manifest.state[self.table][part.bucket])
        else:
            assert isinstance(part, FilePartition)
            table = _read_verified(self.lake, part)
        yield from to_spark_columns(table, schema).to_batches()


class LakeSource(DataSource):
    """The data source of lakes, without re-execution of heights."""

    options: MutableMapping[str, str]
    known_options: tuple[str, ...] = ("path", "table", *BATCH_OPTIONS, *STREAM_OPTIONS)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return SPARK_FORMAT

    def state_at(self, lake: Lake) -> StateReader | None:
        """Return a reader that re-executes heights without stored state; None if not supported."""
        return None

    @cached_property
    def _source(self) -> SourceOptions:
        require_known_options(self.options, self.known_options)
        return SourceOptions(self.options, self.state_at)

    def schema(self) -> StructType:
        """Return the columns of the table.

        Raises:
            LakeError: the options are invalid.
        """
        return spark_schema(self._source.schema)

    def reader(self, schema: StructType) -> LakeReader:
        """Return a reader of the table at its current state.

        Raises:
            LakeError: an option is one of streams.
        """
        source = self._source
        refuse_options(self.options, STREAM_OPTIONS, f"only of streams; {HEIGHTS} selects rows of a log table")
        return LakeReader(source, schema)

    def streamReader(self, schema: StructType) -> LakeStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a log table, height by height.

        Raises:
            LakeError: the table is not a log, or an option is not one of streams.
        """
        if not self._source.is_log:
            raise LakeError(
                f"table: {self._source.table}: only log tables grow: {', '.join(self._source.schemas.logs)}"
            )
        refuse_options(self.options, BATCH_OPTIONS, f"not of streams; they have {STARTING_HEIGHT}")
        return LakeStreamReader(self._source, schema)


class LakeReader(DataSourceReader):
    """A batch reader with one task a file."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._source, self._schema = options, to_arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions to read."""
        return self._source.parts(self._source.heights)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition."""
        return self._source.rows(partition, self._schema)


class LakeStreamReader(DataSourceStreamReader, AvailableNow):
    """A stream reader of a log table. An offset is ``{"height": NEXT_HEIGHT}``."""

    def __init__(self, source: SourceOptions, schema: StructType) -> None:
        self._source, self._schema = source, to_arrow_schema(schema)
        self._end: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the start offset of a new query."""
        return {HEIGHT: self._source.first}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the maximum number of heights in a batch."""
        return read_limit(self._source.most)

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch: the last committed height, or the read limit."""
        end = self._source.lake.last_height() + 1 if self._end is None else self._end
        first = self._source.first if start is None else _parse_offset(start)
        most = getattr(limit, "max_files", None)
        return {HEIGHT: max(first, end if most is None else min(end, first + most))}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this query at the last committed height."""
        self._end = self._source.lake.last_height() + 1

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the files that contain the heights of a batch.

        Raises:
            LakeError: an offset of the checkpoint is damaged.
        """
        first, after = _parse_offset(start), _parse_offset(end)
        if first > after:
            raise damaged_offset(end, f"a height from {first}, the start of its batch")
        return self._source.parts(HeightPartition(first, after))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a file at the heights of its batch."""
        return self._source.rows(partition, self._schema)


def parse_whole_number(options: Mapping[str, str], name: str, otherwise: int | None) -> int | None:
    """Parse an option as an integer of at least 0; a missing one is ``otherwise``.

    Raises:
        LakeError: the value is not such a number.
    """
    text = options.get(name)
    if text is None:
        return otherwise
    if not re.fullmatch("[0-9]{1,18}", text):
        raise LakeError(f"{name}: {text!r}; allowed: a whole number from 0")
    return int(text)


def parse_limit(options: Mapping[str, str], name: str) -> int | None:
    """Parse an option that limits the batches of a stream; None if it is missing.

    Raises:
        LakeError: The value is no whole number from 1, or this PySpark has no limits.
    """
    most = parse_whole_number(options, name, None)
    if most == 0:
        raise LakeError(f"{name}: 0; allowed: a whole number from 1")
    if most is not None and not LIMITED_STREAMS:
        raise LakeError(f"{name}: {most}; PySpark {pyspark.__version__} reads all, 4.2 has limits")
    return most


def require_known_options(options: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse unknown options, in any case, as Spark ignores it; the properties of a table of its catalog are allowed.

    Args:
        options: The options.
        known: Names of the allowed options.

    Raises:
        LakeError: An option is unknown.
    """
    allowed = {name.lower() for name in known}
    names = [name.lower() for name in options]
    if _TABLE_MARK in names:
        names = [name.removeprefix(_TABLE_OPTION) for name in names if name.startswith(_TABLE_OPTION)]
    for name in names:
        if name not in allowed:
            raise LakeError(f"option {suggest_known('option', name, known)}")


def refuse_options(options: Mapping[str, str], names: Sequence[str], reason: str) -> None:
    """Refuse options that do not apply.

    Args:
        options: The options.
        names: Names of the refused options.
        reason: The end of the error.

    Raises:
        LakeError: One of them is set.
    """
    for name in names:
        if name in options:
            raise LakeError(f"{name}: {options[name]}; {reason}")


def damaged_offset(offset: object, allowed: str) -> LakeError:
    """Return the error about an offset of a checkpoint that no stream wrote.

    Args:
        offset: The offset.
        allowed: The offsets that are allowed.
    """
    return LakeError(
        f"checkpoint: offset {truncate_text(json.dumps(offset))}; must be {allowed}; start with a new checkpoint"
    )


def _parse_offset(offset: object) -> int:
    """Return the height of an offset of a checkpoint."""
    height = offset.get(HEIGHT) if isinstance(offset, dict) and len(offset) == 1 else None
    if type(height) is not int or not 0 <= height < 1 << 63:
        raise damaged_offset(offset, f'{{"{HEIGHT}": NUMBER}}, as a stream writes it')
    return height


def _read_verified(lake: Lake, file: FilePartition) -> pa.Table:
    """Read and verify the rows of a file."""
    table = lake.sealed_table(file.path, file.seal)
    if file.heights is not None:
        height = table[HEIGHT]
        inside = pc.greater_equal(height, pa.scalar(file.heights.first, height.type))
        if file.heights.end is not None:
            inside = pc.and_(inside, pc.less(height, pa.scalar(file.heights.end, height.type)))
        table = table.filter(inside)
    return table
