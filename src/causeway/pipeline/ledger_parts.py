"""The rows of a stored ledger's buckets as the audit reads them: in parts, of which it asks for columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from causeway.audit.parts import Part, parts_of
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.pipeline.ledger_store import Ledger, LedgerDamaged
from causeway.pipeline.sealed import FileDamaged

GROUPS = 2
"""Row groups of which a part consists."""


def bucket_parts(ledger: Ledger, bucket: int) -> Iterator[Part]:
    """Yield the rows of a bucket of the table ``ledger`` in its order, in parts of which columns are read when they are
    asked for: all that is in memory is what was asked for last. A bucket in several files is read whole.

    Raises ``LedgerDamaged``, also when columns are read, ``InvalidInput`` for a bucket that is not there.
    """
    found = ledger.files("ledger", bucket)
    if len(found) != 1 or found[0].bucket != bucket:
        yield from parts_of(ledger.rows(bucket))
        return
    with _said():
        file = ledger.storage.parquet_file(found[0].path, found[0].seal)
    with file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        for first in range(0, len(counts), GROUPS):
            yield StoredPart(file, first, tuple(counts[first : first + GROUPS]))


@dataclass(frozen=True)
class StoredPart:
    """Neighbouring row groups of an open file: from number ``first`` on, ``counts`` rows each."""

    file: pq.ParquetFile
    first: int
    counts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Return how many rows there are."""
        return sum(self.counts)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows. Raises ``LedgerDamaged``."""
        return self._read(names, range(self.first, self.first + len(self.counts)))

    def take(self, names: Sequence[str], rows: npt.NDArray[Any]) -> pa.Table:
        """Return some columns of some rows, of whose row groups alone they are read. Raises ``LedgerDamaged``."""
        counts = np.array(self.counts, dtype=np.int64)
        ends = np.cumsum(counts)
        groups = np.searchsorted(ends, rows, side="right")
        used = np.unique(groups)
        read = self._read(names, [self.first + group for group in used.tolist()])
        begins = np.zeros(len(counts), dtype=np.int64)
        begins[used] = np.cumsum(counts[used]) - counts[used]
        return read.take(pa.array(begins[groups] + rows - (ends - counts)[groups]))

    def _read(self, names: Sequence[str], groups: Sequence[int]) -> pa.Table:
        wanted = pa.schema([LEDGER_SCHEMA.field(name) for name in names])
        with _said():
            found = self.file.read_row_groups([*groups], columns=[*names], use_threads=False)
        return found.select(wanted.names).cast(wanted)


@contextlib.contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except (FileDamaged, FileNotFoundError) as error:
        raise LedgerDamaged(str(error)) from None
