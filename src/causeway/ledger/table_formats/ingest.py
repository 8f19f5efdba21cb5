"""Import the tables of a format into a new ledger, as one commit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.core.arrow_types import fill_optional, require_columns, require_types, to_schema
from causeway.core.text import to_one_line
from causeway.ledger.commits import LEDGER_FILE, LEDGER_HEAD, STATE_TABLE, table_schema
from causeway.ledger.ingest.commit import COUNT_NAMES, IngestState, write_runs
from causeway.ledger.ingest.ingest import bucket_count, open_target
from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.tasks import IngestJob, ThreadRunner
from causeway.ledger.row_order import LAYOUTS
from causeway.ledger.row_rules import require_amount_columns, require_valid_rows
from causeway.ledger.sorted_runs import RunWriter
from causeway.ledger.store import ROW_GROUP, Ledger, LedgerWriter, create_ledger
from causeway.ledger.table_formats.format_table import COMMIT, DIGEST, TABLE_NAMES, FormatTable, exported_commit
from causeway.ledger.table_formats.formats import open_tables, require_apart
from causeway.ledger.windows import HeightBounds, mark_restarts
from causeway.storage.files import Storage

REPORTER = "ingest"
"""Reporter of chains that restarted, if the tables do not name them."""


@dataclass
class ImportResult:
    """Result of an import.

    Attributes:
        commit: Number of the commit.
        rows: Number of rows of each table, without duplicate events.
    """

    commit: int
    rows: dict[str, int]


def import_tables(place: str, kind: str, lake: str, *, buckets: int | None = None) -> ImportResult:
    """Write a new ledger with the rows of the last snapshots of tables.

    Tables of any origin are allowed. Columns are found by name; nullable ones and all tables but ``ledger`` may be
    missing. Memory is bounded by a batch of rows or a part of a bucket, and by the tables without buckets.

    Args:
        place: The place of the tables, as of ``formats.open_tables``.
        kind: ``delta`` or ``iceberg``.
        lake: Path or URI of the ledger. It must not have a commit yet.
        buckets: Number of buckets; default: by the number of rows.

    Returns:
        The result of the import.

    Raises:
        InvalidInput: A table is missing, or does not fit; the tables are a part of an export, or of several; or the
            ledger has commits. Nothing is committed.
    """
    tables = open_tables(place, kind, TABLE_NAMES, create=False)
    if "ledger" not in tables:
        raise InvalidInput(f"{place}: no {kind} table ledger is there; causeway export writes one")
    _require_whole_export(place, tables)
    require_apart(place, lake)
    ledger = open_target(lake, buckets)
    if ledger is not None and ledger.number >= 0:
        raise InvalidInput(f"{lake}: has commits; tables are imported into a new ledger only")
    sources = {name: _Source(f"{place}/{name}", name, table) for name, table in tables.items()}
    if ledger is not None:
        return _import_into(ledger, sources)
    count = buckets or bucket_count(tables["ledger"].count())
    with _new_ledger(lake, count) as ledger:
        return _import_into(ledger, sources)


def _import_into(ledger: Ledger, sources: dict[str, _Source]) -> ImportResult:
    with LedgerWriter(ledger) as writer:
        job = IngestJob(ledger.storage, MappingDocument.model_construct(), ledger.buckets, writer.prefix)
        return _import(sources, writer, job)


@contextlib.contextmanager
def _new_ledger(lake: str, buckets: int) -> Iterator[Ledger]:
    """Create a ledger for the body of a ``with`` statement; after an error remove it, unless others wrote there."""
    storage = Storage(lake)
    made = storage.is_local and not os.path.lexists(storage.absolute(""))
    before = {*storage.walk()}
    ledger = create_ledger(lake, buckets)
    try:
        yield ledger
    except BaseException:
        if {*storage.walk()} - before <= {LEDGER_FILE, LEDGER_HEAD}:
            storage.remove(LEDGER_FILE)
            storage.remove(LEDGER_HEAD)
            if made:
                _remove_empty(storage.absolute(""))
        raise


def _remove_empty(root: str) -> None:
    """Remove a folder and those in it, as far as they are empty."""
    for folder, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _require_whole_export(place: str, tables: Mapping[str, FormatTable]) -> None:
    """Refuse a part of an export: without its windows and promises, a broken promise would look like missing data.

    Raises:
        InvalidInput: A table is missing, or of another commit; or the rows of one are no longer those of its commit.
    """
    commits = {name: commit for name, table in tables.items() if (commit := exported_commit(table)) is not None}
    if not commits:
        return  # of other origin
    whole, (number, digest) = max(commits.items(), key=lambda each: each[1][0])
    needed = f"{COMMIT} {number} is needed, as {whole} has; run the export again"
    for name in TABLE_NAMES:
        if name not in tables:
            raise InvalidInput(f"{place}/{name}: is missing; {needed}")
        if name not in commits:
            raise InvalidInput(f"{place}/{name}: has no {COMMIT}; {needed}")
        if commits[name][0] != number:
            raise InvalidInput(f"{place}/{name}: has {COMMIT} {commits[name][0]}; {needed}")
        if commits[name][1] != digest:
            text = f"has another {DIGEST} than {whole}, so it is of another ledger; export to an empty folder"
            raise InvalidInput(f"{place}/{name}: {text}")


class _Source:
    """A table of a format, with rows in the schema of the ledger."""

    def __init__(self, place: str, name: str, table: FormatTable) -> None:
        self._place, self._schema = place, table_schema(name)
        found, self._read = table.read(self._schema.names)
        require_columns(found.names, self._schema, place)
        require_amount_columns(found.names, self._schema, place)
        require_types(found, self._schema, place)

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows; raise ``InvalidInput`` for a value that does not fit."""
        for batch in self._read():
            if batch.num_rows:
                rows = to_schema(pa.Table.from_batches([batch]), self._schema, self._place)
                yield fill_optional(require_valid_rows(rows, self._place))

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.concat_tables([self._schema.empty_table(), *self.batches()]).unify_dictionaries().combine_chunks()


def _import(sources: dict[str, _Source], writer: LedgerWriter, job: IngestJob) -> ImportResult:
    bounds, rows = HeightBounds(), dict[str, int]()
    for name, source in sources.items():
        if name == "ledger" or name in LAYOUTS:
            spool = RunWriter(job.lake, job.folder, job.buckets, job.run_bytes, name)
            for batch in source.batches():
                if name == "ledger":
                    bounds.add(batch)
                spool.add(batch)
            if spool.taken:
                runs = spool.end(keep=True)
                rows[name] = write_runs(writer, runs, spool.taken, partial(ThreadRunner().sorted, job, runs=runs))
        elif name == "quarantine":
            rows[name] = sum(
                writer.write(name, batch.slice(start, ROW_GROUP))
                for batch in source.batches()
                for start in range(0, batch.num_rows, ROW_GROUP)
            )
        elif name not in ("observed", "promises", STATE_TABLE):
            rows[name] = _write(writer, name, source.table())
    observed, promises = (
        sources[name].table() if name in sources else table_schema(name).empty_table()
        for name in ("observed", "promises")
    )
    rows["observed"] = _write(writer, "observed", observed)
    if STATE_TABLE in sources:
        state = _checked_state(sources[STATE_TABLE])
    else:
        promises = mark_restarts(promises, bounds.restarted(), REPORTER)
        state = IngestState(bounds).table()
    rows["promises"] = _write(writer, "promises", promises)
    _write(writer, STATE_TABLE, state)
    names = {"ledger": "rows", "quarantine": "quarantined", **COUNT_NAMES}
    commit = writer.commit([], {names[name]: count for name, count in rows.items() if count and name in names})
    return ImportResult(commit.number, {name: rows.get(name, 0) for name in TABLE_NAMES if name != STATE_TABLE})


def _checked_state(source: _Source) -> pa.Table:
    """Return the rows of the state, which later commits read.

    Raises:
        InvalidInput: They are of another form.
    """
    state = source.table()
    try:
        IngestState.of(state)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__} {to_one_line(str(error))[:100]}"
        raise InvalidInput(f"{STATE_TABLE}: {what}: must be as an export wrote it") from None
    return state


def _write(writer: LedgerWriter, name: str, rows: pa.Table) -> int:
    return writer.write(name, rows) if rows.num_rows else 0


__all__ = ["ImportResult", "import_tables"]
