"""``causeway ingest lake``: ingest a lake of Causeway into a ledger with recorded traffic."""

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
"""Name of the kind of traffic."""

NOTHING_NEW = "interrupted; nothing of it is in the ledger, and it can be run again"
"""Message about an interrupted call."""


def ingest_lake_heights(source: str, target: str, buckets: int | None, as_json: bool) -> int:
    """Ingest the new heights of a lake into a ledger, and print the result.

    Args:
        source: folder or URI of the lake.
        target: folder or URI of the ledger.
        buckets: number of buckets of a new ledger, or None.
        as_json: print JSON.

    Returns:
        The exit code.
    """
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
    """Show the number of processed heights, on a terminal.

    Args:
        what: name of the step.

    Yields:
        A callback for the done heights and all heights.
    """
    console = stderr_console()
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("heights"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
