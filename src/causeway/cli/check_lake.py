"""What ``causeway check`` does with a lake: verify that it is what was written, and execute it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from causeway.cli import shell
from causeway.cli.watch import notes, results, waiting
from causeway.model.text import escaped

if TYPE_CHECKING:
    from rich.console import Console

    from causeway.network.again import Different
    from causeway.network.opened import OpenedLake
    from causeway.network.recheck import Executed, Recheck
    from causeway.pipeline.check import Checked
    from causeway.pipeline.lake import LakeDamaged
    from causeway.programs.sources import Sources
    from causeway.protocols.secrets import Secrets

SHOWN = 20
"""Damaged files and folders with strays that are listed; the others are counted."""


def check_lake(
    lake: str,
    *,
    execute: bool,
    first: int | None,
    last: int | None,
    processes: int | None,
    sources: Sources,
    validator_keys: Sequence[Path],
    as_json: bool,
) -> int:
    """Verify a lake, say what came of it, and return the exit code. Raises ``InvalidInput``, ``LakeError``."""
    from causeway.network.opened import open_lake
    from causeway.pipeline.check import Checked, check
    from causeway.pipeline.lake import Lake
    from causeway.pipeline.layout import LakeDamaged

    try:
        with bar("files") as progress:
            checked = check(Lake.at(lake), progress)
    except LakeDamaged as error:  # what the lake is cannot be told, so nothing else of it can be checked
        checked = Checked(0, 0, 0, 0, (error,), ())
    executed: Executed | None = None
    found = list(checked.damaged)
    states, other, missing = 0, "", ""
    if not found and checked.heights:
        from causeway.network.recheck import Recheck
        from causeway.network.replayed import MissingKeys, OtherTables
        from causeway.programs.catalogue import ProgramNotFound

        opened = open_lake(lake)
        again: Recheck | None = None
        with waiting("Reading the network"):
            secrets = _secrets(validator_keys)
            try:
                again = Recheck(opened, sources, secrets)
            except OtherTables as error:
                if execute:
                    raise
                other = error.what
            except (MissingKeys, ProgramNotFound) as error:
                other = missing = str(error)
        if again is not None:
            with bar("roots") as progress:
                states, found = _wrong_roots(opened, again, progress)
        if again is not None and execute and not found:
            end = checked.heights - 1 if last is None else last
            with bar("heights") as progress:
                executed = again.ranges(first or 0, end, processes=processes, progress=progress)
    if as_json:
        print(json.dumps(_as_json(checked, states, other, found, executed)))
    else:
        _show(lake, checked, states, other, found, executed)
    if found or (executed is not None and executed.different):
        return shell.BROKEN
    return shell.BAD_INPUT if missing else shell.OK


def _secrets(files: Sequence[Path]) -> Secrets:
    from causeway.protocols.secrets import Secrets
    from causeway.service.keys import read_key

    return Secrets({key.public: key.seed for key in map(read_key, files)})


def _wrong_roots(
    opened: OpenedLake, again: Recheck, progress: Callable[[int, int], None]
) -> tuple[int, list[LakeDamaged]]:
    """Return how many states are in files, and which do not have the roots in their headers."""
    from causeway.pipeline.lake import LakeDamaged

    count, states = opened.manifest().number + 1, 0
    wrong: list[LakeDamaged] = []
    for number in range(count):
        if opened.lake.freed(opened.lake.numbered(number).last) is None:
            states += 1
            try:
                again.roots(number)
            except LakeDamaged as error:
                wrong.append(error)
        progress(number + 1, count)
    return states, wrong


def _show(
    lake: str,
    checked: Checked,
    states: int,
    other: str,
    damaged: list[LakeDamaged],
    executed: Executed | None,
) -> None:
    console = results()
    freed = f", the state of {checked.freed:,} of them freed" if checked.freed else ""
    console.print(
        f"[bold]{escape(lake)}[/bold]: {checked.heights:,} heights{freed}; {checked.files:,} files, "
        f"{checked.bytes:,} bytes"
    )
    show_wrong(console, [f"{error.path} {error.what}" for error in damaged], checked.strays)
    if damaged:
        whole = min(error.whole for error in damaged)
        console.print(f"The last whole height is {whole}." if whole >= 0 else "No height is whole.")
        return
    if other:
        console.print(f"Every file is what was written. Roots cannot be made again, nor compared: {escape(other)}")
        return
    console.print(f"Every file is what was written, and {_kept(checked, states)} has the roots in its headers.")
    if executed is not None and executed.different:
        for each in executed.different[:SHOWN]:
            console.print(f"[red]Executed again, {_what(each)} differently[/red]: {escape(', '.join(each.chains))}")
        if len(executed.different) > SHOWN:
            console.print(f"  ... and {len(executed.different) - SHOWN:,} more; --json has all of them")
    elif executed is not None:
        console.print(f"Executed again, heights {executed.first:,} to {executed.last:,} come out the same.")
    elif states + checked.freed < checked.heights:
        console.print("The state of the heights between is in no file: --execute executes them again.")


def show_wrong(console: Console, damaged: Sequence[str], strays: Sequence[str]) -> None:
    """Print which files are damaged, and how many strays there are in which folder."""
    from causeway.pipeline.check import strays_of

    for what in damaged[:SHOWN]:
        console.print(f"  [red]damaged[/red]  {escape(escaped(what))}", soft_wrap=True)
    if len(damaged) > SHOWN:
        console.print(f"  ... and {len(damaged) - SHOWN:,} more; --json has all of them")
    for folder, count in list(strays_of(strays).items())[:SHOWN]:
        what = "file" if count == 1 else "files"
        console.print(f"  stray    {count:,} {what} in {escape(escaped(folder))} that nothing names, and nothing reads")


def _what(each: Different) -> str:
    from causeway.network.again import Reason

    if each.reason == Reason.ROOT:
        return f"height {each.height} comes out"
    what = "rows" if each.reason == Reason.ROWS else "state in files"
    return f"height {each.height}, {what} of {each.place}, come out"


def _kept(checked: Checked, states: int) -> str:
    """Return of which heights the state was verified, as the subject of a sentence."""
    if states == checked.heights:
        return "every height"
    if states + checked.freed == checked.heights:
        return "every height whose state is there"
    return f"every state in files, of {states:,} heights,"


def _as_json(
    checked: Checked,
    states: int,
    other: str,
    damaged: list[LakeDamaged],
    executed: Executed | None,
) -> dict[str, object]:
    differences = [
        {
            "height": each.height,
            "chains": list(each.chains),
            "reason": each.reason.value,
            "what": each.what,
            "column": each.column or None,
        }
        for each in (() if executed is None else executed.different)
    ]
    return {
        "heights": checked.heights,
        "freed": checked.freed,
        "states": states,
        "other_tables": other or None,
        "files": checked.files,
        "bytes": checked.bytes,
        "whole": min((error.whole for error in damaged), default=checked.heights - 1),
        "damaged": [{"path": error.path, "what": error.what, "whole": error.whole} for error in damaged],
        "strays": list(checked.strays),
        "executed": None if executed is None else [executed.first, executed.last],
        "different": next(iter(differences), None),
        "differences": differences,
    }


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how much is done, on a terminal."""
    console = notes()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)
