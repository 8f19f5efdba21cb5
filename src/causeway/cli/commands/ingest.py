"""``causeway ingest``: recorded traffic into a ledger, once or from a growing folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from causeway_proofs.errors import InvalidInput
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from causeway.cli import completion, lake_import, process, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import stderr_console, stdout_console
from causeway.cli.output_paths import name_ledger_errors
from causeway.cli.process import InterruptHandler, compile_before_use
from causeway.core.text import count_noun
from causeway.ledger.ingest import mapping_names

if TYPE_CHECKING:
    from causeway.ledger.ingest.ingest import FollowBatch, FollowResult, IngestResult
    from causeway.ledger.ingest.mapping import MappingDocument

__all__ = ["follow_folder"]

MAX_SKIPPED = 3
"""Maximum listed files that may be incomplete."""


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
    """Ingest the new content of a folder until it ends; return the exit code.

    Args:
        folder: folder or URI.
        lake: folder or URI of the ledger.
        mapping: the mapping of records.
        buckets: number of buckets of a new ledger, or None.
        executor: ``in_process``, ``spark`` or ``auto``.
        master: Spark master.
        once: end after all current content; else on Ctrl-C.
        seconds: pause between two scans.
        as_json: print JSON lines.

    Returns:
        The exit code.
    """
    from causeway.ledger.ingest.ingest import FollowResult, follow_source

    so_far = FollowResult()
    with InterruptHandler() as interrupts:
        try:
            with _batch_output(lake, so_far, as_json) as told:
                follow_source(
                    folder, lake, mapping, buckets=buckets, executor=executor, master=master, once=once,
                    seconds=seconds, told=told, begun=interrupts.take,
                )  # fmt: skip
        except (KeyboardInterrupt, Exception) as error:
            # An interrupted call to Java raises an arbitrary error.
            if not interrupts.asked:
                raise
            raise shell.CommandInterrupted(f"interrupted; {_totals_text(so_far)}; run again to go on") from error
    if as_json:
        print(json.dumps({"followed": dataclasses.asdict(so_far)}))
    else:
        stdout_console().print(f"[bold]{escape(lake)}[/bold]: {_totals_text(so_far)}")
    return shell.OK


def _totals_text(so_far: FollowResult) -> str:
    commits = f"{so_far.commits:,} {'commit' if so_far.commits == 1 else 'commits'}"
    text = f"{commits} with {so_far.rows:,} rows from {so_far.records:,} records"
    if so_far.waiting:
        text += (
            f"; {len(so_far.waiting):,} files may not be whole yet: {shell.to_printable(', '.join(so_far.waiting[:3]))}"
        )
    return text


@contextmanager
def _batch_output(lake: str, so_far: FollowResult, as_json: bool) -> Iterator[Callable[[FollowBatch], None]]:
    """Show batches: a status line on a terminal, a line a batch in a pipe."""
    console = stderr_console()
    if not console.is_terminal or as_json:

        def tell(batch: FollowBatch) -> None:
            so_far.add(batch)
            if as_json and _is_new(batch):
                print(json.dumps(dataclasses.asdict(batch)), flush=True)
            elif _is_new(batch):
                print(_line(batch), flush=True)

        yield tell
        return
    with console.status(f"following: nothing new yet for {escape(lake)}", spinner="dots") as status:

        def show(batch: FollowBatch) -> None:
            so_far.add(batch)
            for text in batch.done.failed.values():
                console.print(f"[yellow]set aside[/yellow]: {escape(shell.to_printable(text))}")
            status.update(f"following: {escape(_totals_text(so_far))}")

        yield show


def _is_new(batch: FollowBatch) -> bool:
    return batch.done.commit is not None or bool(batch.done.failed)


def _line(batch: FollowBatch) -> str:
    done = batch.done
    text = (
        f"commit {done.commit}: {count_noun(done.rows, 'row')} from {count_noun(done.records, 'record')} of "
        f"{count_noun(done.files, 'file')}"
    )
    aside = sum(done.quarantined.values())
    for count, what in (
        (aside, "in quarantine"),
        (done.repeated, "row left out" if done.repeated == 1 else "rows left out"),
        (len(batch.waiting), "not whole yet"),
    ):
        if count:
            text += f"; {count:,} {what}"
    return "; ".join([text, *(f"set aside: {shell.to_printable(why)}" for why in done.failed.values())])


MAX_REASONS = 20
"""Maximum listed files in quarantine."""


HOW, FOLLOWING = "Execution", "Follow"


def command(
    kind: Annotated[
        str,
        argument(
            f"Kind of traffic: {', '.join(mapping_names())}; any name with --mapping; "
            f"{lake_import.LAKE_KIND}: SOURCE is a "
            "lake that Causeway ran; delta, iceberg: SOURCE is a folder of such tables, for a new ledger.",
            autocompletion=completion.complete_traffic_kinds,
        ),
    ],
    source: Annotated[str, argument("A file, or a folder of files; a path or a URI.")],
    lake: Annotated[str, option("Folder or URI of the ledger; created if absent.", metavar="DIR")],
    mapping: Annotated[
        Path | None, option("Mapping file to use instead of a built-in mapping.", metavar="FILE")
    ] = None,
    buckets: Annotated[
        int | None, option("Buckets of a new ledger; default: by the size of SOURCE.", metavar="N")
    ] = None,
    executor: Annotated[
        str,
        option(
            "in_process, spark, or auto: by the size of SOURCE.",
            metavar="HOW",
            panel=HOW,
            autocompletion=completion.complete_audit_executors,
            show_default=True,
        ),
    ] = "auto",
    master: Annotated[
        str,
        option("Spark master, such as 'local[2]' or spark://host:7077.", metavar="URL", panel=HOW, show_default=True),
    ] = "local[*]",
    set_aside: Annotated[bool, option("Quarantine unreadable files and continue.", "--set-aside")] = False,
    follow: Annotated[
        bool,
        option("Follow SOURCE, a folder: ingest new files and rows, one commit a batch.", "--follow", panel=FOLLOWING),
    ] = False,
    once: Annotated[
        bool, option("With --follow: exit after the current contents are ingested.", "--once", panel=FOLLOWING)
    ] = False,
    interval: Annotated[
        float,
        option(
            "With --follow: seconds between two passes.",
            metavar="SECONDS",
            panel=FOLLOWING,
            min=0.1,
            max=86_400,
            show_default=True,
        ),
    ] = 1.0,
    as_json: Annotated[bool, option("Print one JSON object; with --follow, one per batch.", "--json")] = False,
) -> int:
    """Ingest recorded traffic into a ledger: one row per message event.

    Each file is ingested once: known files are skipped, and only the appended part of a grown file is read, also after
    a restart. Unreadable records go to the table quarantine, with the reason. From a lake, only new heights are
    ingested.

    [bold]Example[/bold]: causeway ingest bridge-events nomad.csv --lake my-ledger
    [bold]Example[/bold]: causeway ingest ibc-packets exports/ --lake my-ledger --follow
    """
    process.skip_jit_import()
    from causeway.cli.table_import import import_table_folder
    from causeway.core.text import suggest_known
    from causeway.ledger.ingest.ingest import EXECUTORS, ingest_files
    from causeway.ledger.ingest.mapping import load_mapping
    from causeway.ledger.table_formats.formats import FORMATS

    if executor not in EXECUTORS:
        raise InvalidInput(f"--executor {executor}: must be one of {', '.join(EXECUTORS)}")
    others = (lake_import.LAKE_KIND, *FORMATS)
    if mapping is None and kind not in (known := (*mapping_names(), *others)):
        raise InvalidInput(f"{suggest_known('kind of traffic', kind, known)}; your own: --mapping FILE")
    if mapping is None and kind in others:
        given = {"--executor": executor != "auto", "--set-aside": set_aside, "--follow": follow, "--once": once}
        for name in (name for name, is_given in given.items() if is_given):
            raise InvalidInput(f"{name}: has no effect on {kind}; must not be given")
    if kind == lake_import.LAKE_KIND and mapping is None:
        return lake_import.ingest_lake_heights(source, lake, buckets, as_json)
    if kind in FORMATS and mapping is None:
        with name_ledger_errors(lake):
            return import_table_folder(kind, source, lake, buckets, as_json)
    declared = load_mapping(kind, mapping)
    compile_before_use()
    if follow:
        with name_ledger_errors(lake):
            return follow_folder(
                source, lake, declared,
                buckets=buckets, executor=executor, master=master, once=once, seconds=interval, as_json=as_json,
            )  # fmt: skip
    if once:
        raise InvalidInput("--once: needs --follow; without --follow the command always ends after one pass")
    with shell.interruptible(lake_import.NOTHING_NEW), name_ledger_errors(lake), _bar() as progress:
        done = ingest_files(
            source, lake, declared,
            buckets=buckets, executor=executor, master=master, set_aside=set_aside, progress=progress,
        )  # fmt: skip
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
    else:
        _show(lake, done)
    return shell.OK


def _show(lake: str, done: IngestResult) -> None:
    from causeway.core.text import was_or_were
    from causeway.ledger.ingest.row_sections import READINGS

    console = stdout_console()
    if done.commit is None:
        before = f"{count_noun(done.skipped, 'file')} {was_or_were(done.skipped)} taken"
        console.print(f"[bold]{escape(lake)}[/bold]: nothing new; {before} before")
        return
    skipped = f"; {done.skipped:,} {was_or_were(done.skipped)} taken before" if done.skipped else ""
    console.print(
        f"[bold]{escape(lake)}[/bold]: {count_noun(done.rows, 'row')} from "
        f"{count_noun(done.records, 'record')} of {count_noun(done.files, 'file')}{skipped}"
    )
    for count, noun, rest in (
        (done.movements, "movement", " of value"),
        (done.headers, "header", ""),
        (done.watermarks, "watermark", ""),
        (done.repeated, "row", " skipped as duplicates"),
        (done.ignored, "record", " that the mapping ignores"),
        (done.blank, "blank line", ""),
        (done.others, "file", " of the folder in another format"),
    ):
        if count:
            console.print(f"  {count_noun(count, noun)}{rest}")
    for reason, count in done.quarantined.items():
        reading = f" ({READINGS[reason]})" if reason in READINGS else ""
        console.print(f"  [yellow]{count:,} in quarantine[/yellow]: {reason}{reading}")
    for text in [*done.failed.values()][:MAX_REASONS]:
        console.print(f"  [yellow]set aside[/yellow]: {escape(shell.to_printable(text))}")
    if len(done.failed) > MAX_REASONS:
        console.print(f"  [yellow]{count_noun(len(done.failed) - MAX_REASONS, 'more file')} set aside[/yellow]")


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """Show the number of bytes read, on a terminal."""
    console = stderr_console()
    read = DownloadColumn(binary_units=True)
    columns = (TextColumn("reading"), BarColumn(), read, TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
