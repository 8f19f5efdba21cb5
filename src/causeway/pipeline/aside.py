"""Rows of a table that are set aside by bucket on this machine, until all are there and each bucket is written once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.ipc as ipc

from causeway.ledger.chain_order import LAYOUTS
from causeway.pipeline.ledger_commits import schema_of
from causeway.pipeline.ledger_store import LedgerWriter, by_bucket


@dataclass
class Aside:
    """Rows of ``table`` (of ``chain_order.LAYOUTS``) in ``buckets``, in files of ``folder`` that hold a part each."""

    folder: str
    table: str
    buckets: int
    rows: int = 0
    _parts: list[dict[int, int]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Set rows aside."""
        if not rows.num_rows:
            return
        batches: dict[int, int] = {}
        whole = rows.unify_dictionaries().combine_chunks()
        with ipc.new_file(self._path(len(self._parts)), schema_of(self.table)) as sink:
            for bucket, mine in by_bucket(whole, self.buckets, self.table).items():
                batches[bucket] = len(batches)
                sink.write_table(mine)
        self._parts.append(batches)
        self.rows += rows.num_rows

    def add_all(self, tables: Iterable[pa.Table]) -> None:
        """Set the rows of several tables aside."""
        for rows in tables:
            self.add(rows)

    def write(self, writer: LedgerWriter, few: int = 0) -> int:
        """Write each bucket as a file of the ledger, or fewer rows than ``few`` as one file for all buckets; return how
        many rows there are."""
        in_order = LAYOUTS[self.table].in_order
        buckets = sorted({bucket for batches in self._parts for bucket in batches})
        if self.buckets > 1 and 0 < self.rows < few:
            parts = [in_order(self._rows(bucket)) for bucket in buckets]
            return writer.write(self.table, pa.concat_tables(parts).unify_dictionaries())
        return sum(writer.write(self.table, in_order(self._rows(bucket)), bucket) for bucket in buckets)

    def _rows(self, bucket: int) -> pa.Table:
        parts = []
        for number, batches in enumerate(self._parts):
            if bucket in batches:
                with pa.memory_map(self._path(number)) as source:
                    parts.append(pa.Table.from_batches([ipc.open_file(source).get_batch(batches[bucket])]))
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def _path(self, number: int) -> str:
        return f"{self.folder}/{self.table}-{number}"


__all__ = ["Aside"]
