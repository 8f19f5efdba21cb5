"""``causeway ingest delta`` and ``causeway ingest iceberg``: tables of a format into a new ledger."""

from __future__ import annotations

import dataclasses
import json

from rich.markup import escape

from causeway.cli import shell
from causeway.cli.lake_import import NOTHING_NEW
from causeway.cli.output.progress import show_spinner, stdout_console
from causeway.cli.process import compile_before_use
from causeway.core.text import count_noun


def import_table_folder(kind: str, source: str, target: str, buckets: int | None, as_json: bool) -> int:
    """Import tables into a new ledger, and print the result.

    Args:
        kind: name of the format.
        source: folder of the tables.
        target: folder or URI of the ledger.
        buckets: number of buckets, or None.
        as_json: print JSON.

    Returns:
        The exit code.
    """
    from causeway.ledger.table_formats.ingest import import_tables

    compile_before_use()
    with shell.interruptible(NOTHING_NEW), show_spinner("Importing tables"):
        done = import_tables(source, kind, target, buckets=buckets)
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
        return shell.OK
    console = stdout_console()
    console.print(f"[bold]{escape(target)}[/bold]: {count_noun(done.rows['ledger'], 'row')} of {escape(source)}/ledger")
    for table, rows in done.rows.items():
        if rows and table != "ledger":
            console.print(f"  {count_noun(rows, 'row')} of {table}")
    return shell.OK
