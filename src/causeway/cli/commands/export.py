"""``causeway export``: a ledger as tables of Delta Lake or Apache Iceberg."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

from rich.markup import escape

from causeway.cli import completion, process, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import stdout_console
from causeway.cli.output_paths import name_ledger_errors, require_place
from causeway.core.text import count_noun


def command(
    ledger: Annotated[str, argument("Folder or URI of a ledger.")],
    kind: Annotated[
        str,
        option("delta or iceberg.", "--format", metavar="FORMAT", autocompletion=completion.complete_table_formats),
    ],
    out: Annotated[
        str,
        option(
            "Folder of the tables; created if absent. For delta also a URI, for iceberg catalog:NAME/NAMESPACE.",
            metavar="DIR",
        ),
    ],
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Export a ledger to tables of Delta Lake or Apache Iceberg.

    One table for each table of the ledger, with one snapshot for each commit. A repeated export adds the new commits
    only, also after an interrupt. causeway ingest FORMAT DIR --lake LEDGER is the way back. Needs the packages of the
    extra "tables", and no Java.

    [bold]Example[/bold]: causeway export my-ledger --format delta --out tables
    """
    process.skip_jit_import()
    from causeway.cli.output.audit import progress_bar
    from causeway.ledger.table_formats.export import export_ledger

    require_place("LEDGER", ledger)
    message = "interrupted; complete snapshots stay, and the next export adds the others"
    with shell.interruptible(message), name_ledger_errors(ledger), progress_bar() as begin:
        done = export_ledger(ledger, out, kind, begin("exporting commits"))
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
        return shell.OK
    console = stdout_console()
    if done.first is None:
        console.print(f"[bold]{escape(out)}[/bold]: nothing new; it has commit {done.last:,}, the last one")
        return shell.OK
    written = f"{count_noun(done.snapshots, 'snapshot')}, {count_noun(done.rows, 'row')}"
    commits = f"commit {done.last:,}" if done.first == done.last else f"commits {done.first:,} to {done.last:,}"
    console.print(f"[bold]{escape(out)}[/bold]: {commits}: {written}")
    if done.merged:
        text = "without a snapshot in some table: their files were merged; a later snapshot has their rows"
        console.print(f"  {count_noun(len(done.merged), 'commit')} {text}")
    return shell.OK
