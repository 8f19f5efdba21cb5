"""A stored ledger as a Spark data source: a task a bucket, and values of columns that select row groups.

As a stream, a table that grows is read commit by commit. The first micro-batch has all rows as of the last commit; each
later one has the rows that the next commits added, as each commit wrote them: an event that a later commit records
again comes again. Rows of messages that wait for a lane come with the commit that assigns one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from causeway.cluster.streams import AvailableNow, read_limit
from causeway.cluster.types import to_spark_columns
from causeway.core.text import format_value
from causeway.dataframes.data_source import damaged_offset, parse_limit, refuse_options, require_known_options
from causeway.dataframes.ledger_tables import to_spark_schema
from causeway.ledger.commits import REWRITTEN_TABLES, StoredFile, table_schema
from causeway.ledger.history import CommitPosition, added_files, position_after, require_position
from causeway.ledger.schema import DECLARED, INFERRED, PROMISES, TABLES, LedgerEvent, LedgerKind
from causeway.ledger.search import BUCKETED, select_rows
from causeway.ledger.store import Ledger, open_ledger
from causeway.storage.lake import LakeError

__all__ = ["LedgerReader", "LedgerStreamReader", "open_table"]

MAX_COMMITS = "maxCommitsPerTrigger"

GROWING_TABLES = tuple(table for table in TABLES if table not in REWRITTEN_TABLES)
"""Tables to which commits only add rows."""

_WORDS = MappingProxyType(
    {"event": tuple(LedgerEvent), "kind": tuple(LedgerKind), "how": (DECLARED, INFERRED), "promise": PROMISES}
)
"""Values of columns; a misspelt one would select nothing."""


@dataclass
class BucketPartition(InputPartition):
    """The rows of one bucket; None: of all buckets."""

    bucket: int | None


@dataclass
class CommitsPartition(BucketPartition):
    """The rows that commits added to a bucket: the files of each commit."""

    commits: list[list[StoredFile]]


def open_table(options: Mapping[str, str]) -> tuple[Ledger, str]:
    """Open the ledger at ``path``, and check the options.

    Args:
        options: Options of the data source.

    Raises:
        LakeError: The table is missing or unknown, or another option is.
    """
    table = options.get("table") or ""
    if table not in TABLES:
        raise LakeError(f"table: {table or 'missing'}; allowed: {', '.join(TABLES)}")
    if "height" in options:
        raise LakeError("height: a ledger is read as of its last commit; only a state table of a lake has heights")
    texts = _text_columns(table)
    others = [name for name in table_schema(table).names if name not in texts]
    refuse_options(options, others, f"only text columns select rows: {', '.join(texts)}; use where for others")
    require_known_options(options, ("path", "table", MAX_COMMITS, *texts))
    for name, words in _WORDS.items():
        if options.get(name, words[0]) not in words:
            raise LakeError(f"{name}: {format_value(options[name])}; allowed: {', '.join(words)}")
    parse_limit(options, MAX_COMMITS)
    return open_ledger(options["path"]), table


def _text_columns(table: str) -> list[str]:
    """Return the names of the columns whose values select rows."""
    return [field.name for field in to_spark_schema(table_schema(table)) if pa.types.is_string(field.type)]


class _TableReader:
    """Reads rows of a ledger's table in Spark's types.

    Args:
        table: Name of the table.
        options: Options of the data source; those with the names of text columns select rows.
    """

    def __init__(self, table: str, options: Mapping[str, str]) -> None:
        self.table, self._schema = table, to_spark_schema(table_schema(table))
        self._condition = {name: (options[name],) for name in _text_columns(table) if name in options}

    def rows(self, ledger: Ledger, bucket: int | None) -> Iterator[pa.RecordBatch]:
        """Read the rows of a bucket, compared with their seals; None: of all buckets."""
        buckets = None if bucket is None else [bucket]
        for rows in select_rows(ledger, self.table, self._condition, buckets=buckets):
            yield from to_spark_columns(rows, self._schema).to_batches()


class LedgerReader(DataSourceReader):
    """A batch reader of a ledger's table as of its last commit.

    Args:
        ledger: The ledger.
        table: Name of the table.
        options: Options of the data source.

    Raises:
        LakeError: An option is one of streams.
    """

    def __init__(self, ledger: Ledger, table: str, options: Mapping[str, str]) -> None:
        refuse_options(options, (MAX_COMMITS,), "only of streams")
        self._ledger, self._reader = ledger, _TableReader(table, options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition a bucket."""
        if self._reader.table not in BUCKETED:
            return [BucketPartition(None)]
        return [BucketPartition(bucket) for bucket in range(self._ledger.buckets)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition."""
        assert isinstance(partition, BucketPartition)
        return self._reader.rows(self._ledger, partition.bucket)


class LedgerStreamReader(DataSourceStreamReader, AvailableNow):
    """A stream reader of a ledger's table. An offset is ``{"number": COMMIT, "digest": ITS_DIGEST}``.

    Args:
        ledger: The ledger.
        table: Name of the table.
        options: Options of the data source; ``maxCommitsPerTrigger`` limits all micro-batches but the first.

    Raises:
        LakeError: The table does not grow, or the limit is invalid.
    """

    def __init__(self, ledger: Ledger, table: str, options: Mapping[str, str]) -> None:
        if table not in GROWING_TABLES:
            raise LakeError(f"table: {table}: only tables that grow are streams: {', '.join(GROWING_TABLES)}")
        self._uri, self._reader = ledger.storage.uri, _TableReader(table, options)
        self._empty = replace(ledger, live=(), recent=(), gone=())
        self._most = parse_limit(options, MAX_COMMITS)
        self._end: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start offset of a new query."""
        return asdict(CommitPosition())

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the maximum number of commits in a batch."""
        return read_limit(self._most)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch: the last commit, or the read limit."""
        ledger, most = open_ledger(self._uri), getattr(limit, "max_files", None)
        after = CommitPosition() if start is None else _parse_offset(start)
        require_position(ledger, after)
        end = ledger.number if self._end is None else max(self._end, after.number)
        if most is not None and after.number >= 0:
            end = min(end, after.number + most)
        return asdict(after if end == after.number else position_after(ledger, end))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this query at the last commit."""
        self._end = open_ledger(self._uri).number

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a partition for each bucket with rows of a batch, and one for files with rows of all buckets.

        Raises:
            LakeError: An offset of the checkpoint is damaged.
        """
        ledger, first, last = open_ledger(self._uri), _parse_offset(start), _parse_offset(end)
        if first != last and first.number >= last.number:
            raise damaged_offset(end, f"a commit after {first.number}, the start of its batch")
        commits = added_files(ledger, self._reader.table, first, last)
        found: dict[int | None, list[list[StoredFile]]] = {}
        for files in commits:
            named = sorted({file.bucket for file in files if file.bucket is not None})
            loose = any(file.bucket is None for file in files)
            buckets: Sequence[int | None] = range(ledger.buckets) if named and loose else named or [None]
            for bucket in buckets:
                found.setdefault(bucket, []).append([file for file in files if file.bucket in (bucket, None)])
        return [CommitsPartition(bucket, files) for bucket, files in found.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition, commit by commit."""
        assert isinstance(partition, CommitsPartition)
        for files in partition.commits:
            yield from self._reader.rows(replace(self._empty, live=tuple(files)), partition.bucket)


def _parse_offset(offset: Any) -> CommitPosition:
    """Parse an offset of a checkpoint; its defaults would begin again."""
    if isinstance(offset, dict) and offset.keys() == asdict(CommitPosition()).keys():
        position = CommitPosition(**offset)
        number, digest = position.number, position.digest
        if position == CommitPosition() or (
            type(number) is int and number >= 0 and re.fullmatch("[0-9a-f]{64}", str(digest))
        ):
            return position
    raise damaged_offset(offset, '{"number": COMMIT, "digest": DIGEST}, as a stream writes it')
