"""A stored ledger as a Spark data source: a task a bucket, and values of columns that select row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from causeway.cluster.types import to_spark_columns
from causeway.dataframes.ledger_tables import to_spark_schema
from causeway.ledger.commits import table_schema
from causeway.ledger.schema import TABLES
from causeway.ledger.search import BUCKETED, select_rows
from causeway.ledger.store import Ledger, open_ledger
from causeway.storage.lake import LakeError

__all__ = ["LedgerReader", "open_table"]


@dataclass
class BucketPartition(InputPartition):
    """The rows of one bucket; None for a table without buckets."""

    bucket: int | None


def open_table(options: Mapping[str, str]) -> tuple[Ledger, str]:
    """Open the ledger at ``path``, and check the option ``table``.

    Args:
        options: Options of the data source.

    Raises:
        LakeError: The table is missing or unknown, or an option is of lakes only.
    """
    table = options.get("table") or ""
    if table not in TABLES:
        raise LakeError(f"table: {table or 'missing'}; allowed: {', '.join(TABLES)}")
    if "height" in options:
        raise LakeError("height: a ledger is read as of its last commit; only a state table of a lake has heights")
    return open_ledger(options["path"]), table


class LedgerReader(DataSourceReader):
    """A batch reader of a ledger's table as of its last commit.

    Args:
        ledger: The ledger.
        table: Name of the table.
        options: Options of the data source; those with the names of text columns select rows.
    """

    def __init__(self, ledger: Ledger, table: str, options: Mapping[str, str]) -> None:
        self._ledger, self._table, self._schema = ledger, table, to_spark_schema(table_schema(table))
        texts = [field.name for field in self._schema if pa.types.is_string(field.type)]
        self._condition = {name: (options[name],) for name in texts if name in options}

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition a bucket."""
        if self._table not in BUCKETED:
            return [BucketPartition(None)]
        return [BucketPartition(bucket) for bucket in range(self._ledger.buckets)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition, compared with their seals."""
        assert isinstance(partition, BucketPartition)
        buckets = None if partition.bucket is None else [partition.bucket]
        for rows in select_rows(self._ledger, self._table, self._condition, buckets=buckets):
            yield from to_spark_columns(rows, self._schema).to_batches()
