"""``causeway check`` of a ledger: whether its files are what was written."""

from __future__ import annotations

import json

from rich.markup import escape

from causeway.cli import shell
from causeway.cli.check_lake import bar, show_wrong
from causeway.cli.watch import results
from causeway.model.text import escaped


def check_ledger(uri: str, *, as_json: bool) -> int:
    """Verify a ledger, say what came of it, and return the exit code. Raises ``InvalidInput``."""
    from causeway.pipeline import ledger_check

    with bar("files") as progress:
        found = ledger_check.check_ledger(uri, progress)
    if as_json:
        print(json.dumps({**vars(found), "damaged": list(found.damaged), "strays": list(found.strays)}))
        return shell.BROKEN if found.damaged else shell.OK
    console = results()
    looked_at = (
        f"{found.commits:,} commits, {found.rows:,} rows of events; {found.files:,} files, {found.bytes:,} bytes"
    )
    if not found.commits and found.damaged:
        looked_at = "cannot be opened"
    console.print(f"[bold]{escape(escaped(uri))}[/bold]: {looked_at}", soft_wrap=True)
    show_wrong(console, found.damaged, found.strays)
    if found.damaged:
        return shell.BROKEN
    console.print("Every file that counts is what was written.")
    return shell.OK
