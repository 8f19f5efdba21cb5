"""``causeway ingest --follow``: a folder that grows into a ledger."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape

from causeway.cli import shell
from causeway.cli.interrupts import Interrupts
from causeway.cli.watch import notes, results

if TYPE_CHECKING:
    from causeway.ingest.mapping import MappingDocument
    from causeway.pipeline.ledger_follow import Batch, Followed


SHOWN = 3
"""So many files that may not be whole yet are named."""


def follow_folder(
    folder: str,
    lake: str,
    mapping: MappingDocument,
    *,
    buckets: int | None,
    executor: str,
    master: str,
    once: bool,
    seconds: float,
    as_json: bool,
) -> int:
    """Take what is new in a folder until the user has had enough, or all of it ``once``; return the exit code."""
    from causeway.pipeline.ledger_follow import Followed, follow

    so_far = Followed()
    with Interrupts() as interrupts:
        try:
            with _shown(lake, so_far, as_json) as told:
                follow(
                    folder, lake, mapping, buckets=buckets, executor=executor, master=master, once=once,
                    seconds=seconds, told=told, begun=interrupts.take,
                )  # fmt: skip
        except (KeyboardInterrupt, Exception) as error:
            # An interrupted call to Java ends with an error of any kind.
            if not interrupts.asked:
                raise
            raise shell.Interrupted(f"interrupted; {_in_all(so_far)}; run again to go on") from error
    if as_json:
        print(json.dumps({"followed": dataclasses.asdict(so_far)}))
    else:
        results().print(f"[bold]{escape(lake)}[/bold]: {_in_all(so_far)}")
    return shell.OK


def _in_all(so_far: Followed) -> str:
    commits = f"{so_far.commits:,} {'commit' if so_far.commits == 1 else 'commits'}"
    text = f"{commits} with {so_far.rows:,} rows from {so_far.records:,} records"
    if so_far.waiting:
        text += (
            f"; {len(so_far.waiting):,} files may not be whole yet: {shell.printable(', '.join(so_far.waiting[:3]))}"
        )
    return text


@contextmanager
def _shown(lake: str, so_far: Followed, as_json: bool) -> Iterator[Callable[[Batch], None]]:
    """Show what batches do: how it stands on a terminal, a line a batch in a pipe."""
    console = notes()
    if not console.is_terminal or as_json:

        def tell(batch: Batch) -> None:
            so_far.add(batch)
            if as_json and _is_new(batch):
                print(json.dumps(dataclasses.asdict(batch)), flush=True)
            elif _is_new(batch):
                print(_line(batch), flush=True)

        yield tell
        return
    with console.status(f"following: nothing new yet for {escape(lake)}", spinner="dots") as status:

        def show(batch: Batch) -> None:
            so_far.add(batch)
            for text in batch.done.failed.values():
                console.print(f"[yellow]set aside[/yellow]: {escape(shell.printable(text))}")
            status.update(f"following: {escape(_in_all(so_far))}")

        yield show


def _is_new(batch: Batch) -> bool:
    return batch.done.commit is not None or bool(batch.done.failed)


def _line(batch: Batch) -> str:
    from causeway.audit.verdict import counted

    done = batch.done
    text = (
        f"commit {done.commit}: {counted(done.rows, 'row')} from {counted(done.records, 'record')} of "
        f"{counted(done.files, 'file')}"
    )
    aside = sum(done.quarantined.values())
    for count, what in (
        (aside, "in quarantine"),
        (done.repeated, "row left out" if done.repeated == 1 else "rows left out"),
        (len(batch.waiting), "not whole yet"),
    ):
        if count:
            text += f"; {count:,} {what}"
    return "; ".join([text, *(f"set aside: {shell.printable(why)}" for why in done.failed.values())])


__all__ = ["follow_folder"]
