"""Ledgers of several commits, and their tables in both formats."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from causeway.ledger.commits import STATE_TABLE
from causeway.ledger.row_order import LAYOUTS
from causeway.ledger.schema import TABLES
from causeway.ledger.store import Ledger, LedgerWriter, open_ledger
from causeway.ledger.table_formats.format_table import COMMIT, plain_schema
from causeway.ledger.table_formats.iceberg import open_iceberg
from tests.ledger.ingest.test_ingest_value import HEAD, ROWS, take
from tests.support.properties.audit_ledgers import by_chance

NAMES = (*TABLES, STATE_TABLE)


def write_ledger(folder: Path) -> str:
    """Write a ledger of three commits: two of files, with a repeated event, and one of headers and watermarks."""
    folder.mkdir(exist_ok=True)
    take(folder, HEAD + ROWS)
    take(folder, HEAD + ROWS + "lock,A,B,4,12,7,,\nmint,A,B,1,20,97,3,bob\n", "b.csv")
    ledger = open_ledger(str(folder / "ledger"))
    writer = LedgerWriter(ledger)
    for bucket, read in enumerate(by_chance(Random(65)).stated(ledger.buckets)):
        for name, rows in zip(("headers", "watermarks"), read(), strict=True):
            if rows.num_rows:
                writer.write(name, rows, bucket)
    writer.commit([], {})
    return str(folder / "ledger")


def ledger_rows(ledger: Ledger, table: str) -> list[str]:
    """Return the rows of a table, sorted."""
    if table == "ledger" or table in LAYOUTS:
        rows = pa.concat_tables([ledger.rows(bucket, table=table) for bucket in range(ledger.buckets)])
    else:
        rows = ledger.table(table)
    return sorted(map(repr, rows.to_pylist()))


def file_rows(ledger: Ledger, table: str) -> list[str]:
    """Return the rows of the files of a table, sorted, as an export has them."""
    files = [file for file in ledger.files(table) if file.table == table]
    return plain_rows(pa.concat_tables([plain_schema(table).empty_table(), *(plain(ledger, file) for file in files)]))


def plain(ledger: Ledger, file: Any) -> pa.Table:
    return ledger.read(file).cast(plain_schema(file.table))


def plain_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def snapshots(folder: Path, kind: str, table: str) -> dict[int, list[str]]:
    """Return the rows of each snapshot by the number of its commit; each commit has one."""
    found: dict[int, list[str]] = {}
    schema = plain_schema(table)
    if kind == "delta":
        delta = DeltaTable(str(folder / table))
        for version in reversed(delta.history()):
            number = int(version[COMMIT])
            assert number not in found
            delta.load_as_version(version["version"])
            found[number] = plain_rows(delta.to_pyarrow_table().cast(schema))
        return found
    iceberg = open_iceberg(folder, [table], create=False)[table]._table
    for snapshot in iceberg.snapshots():
        assert snapshot.summary is not None
        number = int(snapshot.summary[COMMIT] or -1)
        assert number not in found
        found[number] = plain_rows(iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow().cast(schema))
    return found
