"""``causeway ingest lake``: what Causeway itself ran, as a ledger beside recorded traffic."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from causeway.cli import shell
from causeway.cli.compiling import compile_first
from causeway.cli.places import ledger_at
from causeway.cli.watch import notes, results

KIND = "lake"
"""What the kind of traffic is called."""

NOTHING_TAKEN = "interrupted; nothing of it is in the ledger, and it can be run again"
"""What is said where a call is interrupted."""


def take(source: str, target: str, buckets: int | None, as_json: bool) -> int:
    """Take the heights of a lake that are new into a ledger, say what was done, and return the exit code."""
    from causeway.pipeline.lake_taking import take_lake

    compile_first()
    with shell.interruptible(NOTHING_TAKEN), ledger_at(target), heights_bar("deriving") as progress:
        done = take_lake(source, target, buckets=buckets, progress=progress)
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
        return shell.OK
    console, name = results(), f"[bold]{escape(target)}[/bold]"
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
    console = notes()
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("heights"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
