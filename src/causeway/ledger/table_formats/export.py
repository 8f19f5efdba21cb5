"""Export a ledger: one snapshot of each table for each commit.

A snapshot names its commit, so that a repeated export adds the later commits only, also after a kill between two
tables. Compaction removes merged files after ``CAUSEWAY_RETENTION``. A commit whose rows are only in merged files has
no snapshot; its rows are in that of the merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.core.arrow_types import align_columns
from causeway.ledger.commits import REWRITTEN_TABLES, StoredFile, table_schema
from causeway.ledger.history import CommitStep, read_steps
from causeway.ledger.store import Ledger, open_ledger
from causeway.ledger.table_formats.format_table import (
    COMMIT,
    DIGEST,
    TABLE_NAMES,
    FormatTable,
    exported_commit,
    foreign_table,
    plain_schema,
)
from causeway.ledger.table_formats.formats import open_tables, require_apart

_BATCH = 1 << 15
"""Rows of a batch; the writers queue some batches."""


@dataclass
class ExportResult:
    """Result of an export.

    Attributes:
        first: Number of the first exported commit, or None if nothing was new.
        last: Number of the ledger's last commit.
        snapshots: Number of snapshots written.
        rows: Number of rows written.
        merged: Commits without a snapshot in some table, because their files were merged.
    """

    first: int | None
    last: int
    snapshots: int = 0
    rows: int = 0
    merged: list[int] = field(default_factory=list)


def export_ledger(
    ledger: str, place: str, kind: str, progress: Callable[[int, int], None] | None = None
) -> ExportResult:
    """Export a ledger to tables of a format, or add its new commits to an earlier export.

    Rows are those of the ledger's files, a row group in memory at a time.

    Args:
        ledger: Path or URI of the ledger.
        place: The place of the tables, as of ``formats.open_tables``; it is created if missing.
        kind: ``delta`` or ``iceberg``.
        progress: Called with the number of exported commits, and their total.

    Returns:
        The result of the export.

    Raises:
        InvalidInput: There is no ledger, the package of the format is not installed, the place has tables of another
            ledger or does not answer, or another process changed one of the two meanwhile.
        LedgerDamaged: The ledger is damaged. Complete snapshots stay.
    """
    stored = open_ledger(ledger)
    if stored.number < 0:
        raise InvalidInput(f"{ledger}: has no commits; must have one at least")
    steps = read_steps(stored)
    require_apart(place, ledger)
    targets = open_tables(place, kind, TABLE_NAMES, create=True)
    exports = [_TableExport(stored, name, targets[name]) for name in TABLE_NAMES]
    for each in exports:
        each.require_same_ledger(steps, f"{place}/{each.name}")
    result = ExportResult(None, stored.number)
    for number, step in enumerate(steps):
        for each in exports:
            if each.advance(step, result) and result.first is None:
                result.first = step.number
        if progress is not None:
            progress(number + 1, len(steps))
    return result


class _TableExport:
    """Export of one table: the files of the ledger as of a commit, and those in the last snapshot."""

    def __init__(self, ledger: Ledger, name: str, target: FormatTable) -> None:
        self.name = name
        self._ledger, self._target, self._last = ledger, target, exported_commit(target)
        if self._last is None and any(target.versions()):
            raise foreign_table(target.place)
        self._live = {file.path for file in ledger.live}
        self._files: dict[str, StoredFile] = {}
        self._written: dict[str, StoredFile] = {}

    def require_same_ledger(self, steps: Sequence[CommitStep], place: str) -> None:
        """Raise ``InvalidInput`` if the last exported commit is none of this ledger."""
        if self._last is None:
            return
        number, digest = self._last
        known = {step.number: step.digest for step in steps}
        if number in known and known[number] == digest:
            return
        why = "is of another ledger" if number in known or number > steps[-1].number else "is no longer in the ledger"
        raise InvalidInput(f"{place}: {COMMIT} {number} {why}; export to an empty folder")

    def advance(self, step: CommitStep, result: ExportResult) -> bool:
        """Write the snapshot of a commit unless it exists or its files were merged; return True if it was written."""
        before = dict(self._files)
        for path in step.gone:
            self._files.pop(path, None)
        self._files.update((file.path, file) for file in step.files if file.table == self.name)
        if self._last is not None and step.number <= self._last[0]:
            self._written = dict(self._files)
            return False
        replace = not self._written.keys() <= self._files.keys()
        if replace and self.name not in REWRITTEN_TABLES and before == self._written:
            files, replace = list[StoredFile](), False  # a merge: the same rows in other files
        elif replace:
            files = [*self._files.values()]
        else:
            files = [file for path, file in self._files.items() if path not in self._written]
        storage = self._ledger.storage
        if not all(file.path in self._live or storage.exists(file.path) for file in files):
            if step.number not in result.merged:
                result.merged.append(step.number)
            return False
        self._write(step, files, replace)
        self._written = dict(self._files)
        result.snapshots += 1
        result.rows += sum(file.rows for file in files)
        return True

    def _write(self, step: CommitStep, files: Iterable[StoredFile], replace: bool) -> None:
        schema = plain_schema(self.name)
        failed: list[Exception] = []

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for part in chain.from_iterable(_read_groups(self._ledger, file) for file in files):
                    yield from (batch.cast(schema) for batch in part.to_batches(max_chunksize=_BATCH))
            except Exception as error:
                failed.append(error)
                raise

        properties = {COMMIT: str(step.number), DIGEST: step.digest}
        try:
            self._target.write(pa.RecordBatchReader.from_batches(schema, batches()), properties, replace=replace)
        except Exception:
            if failed:  # the packages wrap errors of the reader
                raise failed[0] from None
            raise


def _read_groups(ledger: Ledger, file: StoredFile) -> Iterator[pa.Table]:
    """Yield the row groups of a file."""
    with ledger.opened(file, whole=True) as found:
        schema = table_schema(file.table)
        names = [name for name in schema.names if name in found.schema_arrow.names]
        for group in range(found.num_row_groups):
            yield align_columns(found.read_row_group(group, columns=names, use_threads=False), schema)


__all__ = ["ExportResult", "export_ledger"]
