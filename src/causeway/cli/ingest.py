"""``causeway ingest``: recorded traffic of any kind into a ledger."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from causeway.cli import completion, ingest_follow, ingest_lake, own_process, shell
from causeway.cli.compiling import compile_first
from causeway.cli.options import argument, option
from causeway.cli.places import ledger_at
from causeway.cli.watch import notes, results
from causeway.ingest.kinds import kinds
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.pipeline.ledger_ingest import Ingested


SHOWN = 20
"""So many files that were set aside are named."""


HOW, FOLLOWING = "How it runs", "Following what is written"


def command(
    kind: Annotated[
        str,
        argument(
            f"What the traffic is: {', '.join(kinds())}; any name with --mapping; {ingest_lake.KIND}: SOURCE is a "
            "lake that Causeway ran.",
            autocompletion=completion.kinds_of_traffic,
        ),
    ],
    source: Annotated[str, argument("A file, or a folder of files; a path or a URI.")],
    lake: Annotated[str, option("Folder or URI of the ledger; made if need be.", metavar="DIR")],
    mapping: Annotated[Path | None, option("A mapping of your own, instead of a built-in one.", metavar="FILE")] = None,
    buckets: Annotated[
        int | None, option("Buckets of a new ledger; default: by the size of SOURCE.", metavar="N")
    ] = None,
    executor: Annotated[
        str,
        option(
            "in_process, spark, or auto: by the size of SOURCE.",
            metavar="HOW",
            panel=HOW,
            autocompletion=completion.ways_to_audit,
            show_default=True,
        ),
    ] = "auto",
    master: Annotated[
        str,
        option("Spark master, such as 'local[2]' or spark://host:7077.", metavar="URL", panel=HOW, show_default=True),
    ] = "local[*]",
    set_aside: Annotated[
        bool, option("Put files that cannot be read at all in quarantine, and go on.", "--set-aside")
    ] = False,
    follow: Annotated[
        bool, option("SOURCE is a folder: go on with what is new there, a commit a batch.", "--follow", panel=FOLLOWING)
    ] = False,
    once: Annotated[
        bool, option("With --follow: end when all that is there now is taken.", "--once", panel=FOLLOWING)
    ] = False,
    interval: Annotated[
        float,
        option(
            "With --follow: between two looks.",
            metavar="SECONDS",
            panel=FOLLOWING,
            min=0.1,
            max=86_400,
            show_default=True,
        ),
    ] = 1.0,
    as_json: Annotated[bool, option("Print one JSON object; with --follow, one a batch.", "--json")] = False,
) -> int:
    """Take recorded traffic into a ledger: one row an event of a message, whoever recorded it.

    What is in the files is taken once: those whose content was taken before are skipped, of one that has grown what was
    appended is taken, also after a restart. Records that cannot be read are set aside in the table quarantine, with the
    reason. Of a lake the heights that are new are taken.

    [bold]Example[/bold]: causeway ingest bridge-events nomad.csv --lake my-ledger
    [bold]Example[/bold]: causeway ingest ibc-packets exports/ --lake my-ledger --follow
    """
    own_process.begin_small()
    from causeway.ingest.mapping import load_mapping
    from causeway.pipeline.ledger_ingest import EXECUTORS, ingest

    if executor not in EXECUTORS:
        raise InvalidInput(f"--executor {executor}: must be one of {', '.join(EXECUTORS)}")
    if kind == ingest_lake.KIND and mapping is None:
        return ingest_lake.take(source, lake, buckets, as_json)
    declared = load_mapping(kind, mapping)
    compile_first()
    if follow:
        with ledger_at(lake):
            return ingest_follow.follow_folder(
                source, lake, declared,
                buckets=buckets, executor=executor, master=master, once=once, seconds=interval, as_json=as_json,
            )  # fmt: skip
    if once:
        raise InvalidInput("--once: goes with --follow; without it one call takes what is there")
    with shell.interruptible(ingest_lake.NOTHING_TAKEN), ledger_at(lake), _bar() as progress:
        done = ingest(
            source, lake, declared,
            buckets=buckets, executor=executor, master=master, set_aside=set_aside, progress=progress,
        )  # fmt: skip
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
    else:
        _show(lake, done)
    return shell.OK


def _show(lake: str, done: Ingested) -> None:
    from causeway.audit.verdict import counted
    from causeway.ingest.amounts import READINGS
    from causeway.model.text import was_or_were

    console = results()
    if done.commit is None:
        before = f"{counted(done.skipped, 'file')} {was_or_were(done.skipped)} taken"
        console.print(f"[bold]{escape(lake)}[/bold]: nothing new; {before} before")
        return
    skipped = f"; {done.skipped:,} {was_or_were(done.skipped)} taken before" if done.skipped else ""
    console.print(
        f"[bold]{escape(lake)}[/bold]: {counted(done.rows, 'row')} from "
        f"{counted(done.records, 'record')} of {counted(done.files, 'file')}{skipped}"
    )
    for count, noun, rest in (
        (done.movements, "movement", " of value"),
        (done.headers, "header", ""),
        (done.watermarks, "watermark", ""),
        (done.repeated, "row", f" left out: {'it says' if done.repeated == 1 else 'they say'} again what another says"),
        (done.ignored, "record", " that the mapping ignores"),
        (done.blank, "blank line", ""),
        (done.others, "file", " of the folder in another format"),
    ):
        if count:
            console.print(f"  {counted(count, noun)}{rest}")
    for reason, count in done.quarantined.items():
        reading = f" ({READINGS[reason]})" if reason in READINGS else ""
        console.print(f"  [yellow]{count:,} in quarantine[/yellow]: {reason}{reading}")
    for text in [*done.failed.values()][:SHOWN]:
        console.print(f"  [yellow]set aside[/yellow]: {escape(shell.printable(text))}")
    if len(done.failed) > SHOWN:
        console.print(f"  [yellow]{counted(len(done.failed) - SHOWN, 'more file')} set aside[/yellow]")


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """Show how many bytes are read, on a terminal."""
    console = notes()
    read = DownloadColumn(binary_units=True)
    columns = (TextColumn("reading"), BarColumn(), read, TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
