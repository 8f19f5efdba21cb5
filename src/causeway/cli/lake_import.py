"""``causeway ingest lake``: what Causeway itself ran, as a ledger beside recorded traffic."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from causeway.cli import shell
from causeway.cli.output.progress import stderr_console, stdout_console
from causeway.cli.output_paths import name_ledger_errors
from causeway.cli.process import compile_before_use

LAKE_KIND = "lake"
"""What the kind of traffic is called."""

NOTHING_NEW = "interrupted; nothing of it is in the ledger, and it can be run again"
"""What is said where a call is interrupted."""


def ingest_lake_heights(source: str, target: str, buckets: int | None, as_json: bool) -> int:
    """Take the heights of a lake that are new into a ledger, say what was done, and return the exit code."""
    from causeway.ledger.lake.ingest import ingest_lake

    compile_before_use()
    with shell.interruptible(NOTHING_NEW), name_ledger_errors(target), heights_bar("deriving") as progress:
        done = ingest_lake(source, target, buckets=buckets, progress=progress)
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
        return shell.OK
    console, name = stdout_console(), f"[bold]{escape(target)}[/bold]"
    if done.commit is None:
        console.print(f"{name}: nothing new; {done.first:,} heights were taken before")
        return shell.OK
    since = f" from {done.first:,} on" if done.first else ""
    console.print(
        f"{name}: {done.rows:,} rows and {done.movements:,} movements of value from {done.heights:,} heights{since}"
    )
    if done.waiting:
        console.print(f"  {done.waiting:,} messages wait for a lane")
    return shell.OK


@contextmanager
def heights_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many heights of a lake are done, on a terminal."""
    console = stderr_console()
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("heights"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
