"""What ``causeway audit`` shows of an audit: on a terminal, as JSON, as files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from causeway.audit.plain import input_figures as figures
from causeway.audit.plain import plain_check
from causeway.cli.tables import show_table
from causeway.cli.watch import notes, results
from causeway.model.text import about, name_of, readable

if TYPE_CHECKING:
    from causeway.audit.auditing import Audit, Check

COLOURS = {"holds": "bold green", "violated": "bold red", "unknown": "yellow"}

WIDE = 120
"""A terminal this wide has room for examples beside the figures."""


@contextmanager
def progress_bar() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show how far each step is, on a terminal."""
    console = notes()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)

    def begin(what: str) -> Callable[[int, int], None]:
        task = progress.add_task(what, total=None, visible=False)

        def told(done: int, of: int) -> None:
            progress.start()
            progress.update(task, completed=done, total=of, visible=True)

        return told

    try:
        yield begin
    finally:
        if progress.live.is_started:
            progress.stop()


def holds(checks: list[Check]) -> bool:
    """Return whether none of some checks is violated."""
    return not any(each.verdict == "violated" for each in checks)


def write_tables(found: Audit, folder: Path) -> None:
    """Write the tables of an audit as Parquet."""
    import pyarrow.parquet as pq

    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        with (folder / f"{name}.parquet").open("wb") as file:  # a path with :// would be taken for a URI
            pq.write_table(getattr(found, name), file)


def show(lake: str, checks: list[Check], found: Audit) -> None:
    """Print what came of an audit."""
    console = results()
    console.print(f"[bold]{escape(readable(lake))}[/bold]: {_verdict(checks)}", soft_wrap=True)
    for each in checks:
        if each.violated and each.first is not None:
            console.print(f"  {each.name}: {escape(earliest(each.first))}", soft_wrap=True)
    narrow = console.width < WIDE
    titles = ["check", "verdict", "examined", "violated", "unknown", "because", *([] if narrow else ["first", "worst"])]
    rows = []
    for each in checks:
        colour = COLOURS[each.verdict]
        examples = () if narrow else (escape(_example(each.first)), escape(_example(each.worst)))
        counts = (f"{number:,}" for number in (each.examined, each.violated, each.unknown))
        verdict = f"[{colour}]{each.verdict}[/{colour}]"
        rows.append([each.name, verdict, *counts, escape(_because(each)), *examples])
    texts = ("because", "first", "worst")
    show_table(console, titles, rows, left=["check", "verdict", *texts], folds=texts)
    lanes, one_sided, missing = figures(found).values()
    console.print(
        f"{_many(missing, 'message')} missing in the input; {_many(lanes, 'lane')}, "
        f"{one_sided:,} of which only one end was recorded"
    )


def _verdict(checks: list[Check]) -> str:
    """Return in a few words what is wrong, or that nothing is known to be."""
    violated = [each for each in checks if each.verdict == "violated"]
    if violated:
        named = ", ".join(f"{each.name} {each.violated:,}" for each in violated)
        return f"[{COLOURS['violated']}]violated[/]: {named}"
    unknown = sum(1 for each in checks if each.unknown)
    if unknown:
        text = f"[{COLOURS['unknown']}]nothing is violated[/], as far as the input shows"
        return f"{text}; {_many(unknown, 'check')} met holes in it"
    held = sum(1 for each in checks if each.verdict == "holds")
    return f"[{COLOURS['holds']}]holds[/]: {_many(held, 'check')}"


def earliest(row: dict[str, Any]) -> str:
    """Return where the first finding is, and when that was."""
    lane = " ".join(name_of(name) for name in (row["protocol"], row["source"], row["destination"]) if name)
    when = [] if row["time"] is None else [f"at {row['time']:%Y-%m-%d %H:%M:%S} UTC"]
    when += [] if row["height"] is None else [f"in block {row['height']:,} of {name_of(row['chain'] or '?')}"]
    return " ".join(["first", _example(row), f"({lane})", *when])


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _because(check: Check) -> str:
    from causeway.audit.auditing import PROMISED

    if not check.examined:
        promises = PROMISED.get(check.name)
        return "nothing to examine" if promises is None else "no lane promises it"
    return ", ".join(f"{reason} {count:,}" for (_, reason), count in check.reasons.items())


def _example(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    lane = name_of(row["lane"] or row["source"] or row["protocol"] or "")
    message = row["message_id"] if row["index"] is None else row["index"]
    text = f"{lane} {name_of(str(message))}"
    if row["magnitude"] is None:
        return text
    if row["unit"] == "microseconds":
        return f"{text}: {row['magnitude'] / 1_000_000:,.0f} s"
    size = about(row["magnitude"]) if row["size"] is None else f"{int(row['size']):,}"
    return f"{text}: {size} {row['unit']}"


__all__ = ["earliest", "figures", "holds", "plain_check", "progress_bar", "show", "write_tables"]
