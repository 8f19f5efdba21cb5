"""An audit on a terminal, as JSON and as files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from causeway.audit.plain import input_figures as figures
from causeway.audit.plain import plain_check
from causeway.audit.verdict import Verdict, counted
from causeway.cli.tables import show_table
from causeway.cli.watch import notes, results
from causeway.model.text import about, moment_text, name_of, readable, unit_of

if TYPE_CHECKING:
    from causeway.audit.auditing import Audit, Check

COLOURS = {"PASSED": "bold green", "FAILED": "bold red", "INCONCLUSIVE": "yellow", "NOT APPLICABLE": "dim"}
"""The colour of each verdict."""

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


def audit_data(found: Audit, checks: list[Check], quarantined: Mapping[str, int]) -> dict[str, Any]:
    """Return an audit as the object that ``--json`` prints."""
    from causeway.audit.verdict import verdict_of

    verdict = verdict_of(checks)
    return {
        "verdict": verdict.value,
        "sentence": found.sentence(*(check.name for check in checks)),
        "holds": verdict is not Verdict.FAILED,
        **figures(found),
        "quarantined": dict(quarantined),
        "remarks": list(found.remarks),
        "checks": [plain_check(check) for check in checks],
    }


def write_tables(found: Audit, folder: Path) -> None:
    """Write the tables of an audit as Parquet."""
    import pyarrow.parquet as pq

    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        with (folder / f"{name}.parquet").open("wb") as file:  # a path with :// would be taken for a URI
            pq.write_table(getattr(found, name), file)


def show(lake: str, checks: list[Check], found: Audit, quarantined: Mapping[str, int]) -> None:
    """Print an audit: the verdict, the earliest violation of each check, a table of the checks, then the input."""
    console = results()
    sentence = found.sentence(*(check.name for check in checks))
    console.print(f"[bold]{escape(readable(lake))}[/bold]: {coloured(sentence)}", soft_wrap=True)
    for line in first_violations(checks):
        console.print(line, soft_wrap=True)
    narrow = console.width < WIDE
    counts = ("examined", "violated", "unknown", "noted")
    titles = ["check", "verdict", *counts, "reasons", *([] if narrow else ["first", "worst"])]
    rows = []
    applicable = [each for each in checks if each.verdict is not Verdict.NOT_APPLICABLE]
    for each in applicable:
        examples = () if narrow else (escape(_example(each.first)), escape(_example(each.worst)))
        numbers = (f"{getattr(each, name):,}" for name in counts)
        rows.append([each.name, coloured(each.verdict), *numbers, escape(_because(each)), *examples])
    texts = ("reasons", "first", "worst")
    if rows:
        show_table(console, titles, rows, left=["check", "verdict", *texts], folds=texts)
    others: dict[str, list[str]] = {}
    for each in checks:
        if each not in applicable:
            others.setdefault(_because(each), []).append(each.name)
    if others:
        said = "; ".join(f"{', '.join(names)} ({why})" for why, names in others.items())
        console.print(f"Not applicable: {escape(said)}", soft_wrap=True)
    lanes, one_sided, missing = figures(found).values()
    console.print(
        f"{counted(lanes, 'lane')}, {one_sided:,} recorded at one end only; "
        f"{counted(missing, 'message')} missing in the input"
    )
    if quarantined:
        total, reasons = sum(quarantined.values()), sorted(quarantined.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{reason} {count:,}" for reason, count in reasons)
        console.print(f"[yellow]{counted(total, 'record')} in quarantine[/]: {escape(named)}")
    for remark in found.remarks:
        console.print(escape(remark), soft_wrap=True)


def coloured(sentence: str) -> str:
    """Return a sentence that begins with a verdict as markup, the verdict in its colour."""
    verdict = next(word for word in COLOURS if sentence.startswith(word))
    return f"[{COLOURS[verdict]}]{verdict}[/]{escape(sentence.removeprefix(verdict))}"


def first_violations(checks: Iterable[Check]) -> list[str]:
    """Return the earliest violation of each check that has any, a line each."""
    found = [(each.name, each.first) for each in checks if each.violated and each.first is not None]
    return [f"  {name}: {escape(earliest(row))}" for name, row in found]


def earliest(row: dict[str, Any]) -> str:
    """Return where the first finding is, and when that was."""
    lane = " ".join(name_of(name) for name in (row["protocol"], row["source"], row["destination"]) if name)
    when = [] if row["time"] is None else [f"at {moment_text(row['time'])} UTC"]
    when += [] if row["height"] is None else [f"in block {row['height']:,} of {name_of(row['chain'] or '?')}"]
    return " ".join(["first", _example(row), f"({lane})", *when])


def _because(check: Check) -> str:
    from causeway.audit.auditing import PROMISED

    if not check.examined and not check.reasons:
        promises = PROMISED.get(check.name)
        return "nothing to examine" if promises is None else "no lane promises it"
    return ", ".join(f"{reason} {count:,}" for (_, reason), count in check.reasons.items())


def _example(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    lane = name_of(row["lane"] or row["source"] or row["protocol"] or "")
    message = row["message_id"] if row["index"] is None else row["index"]
    text = lane if message is None else f"{lane} {name_of(str(message))}"
    if row["magnitude"] is None:
        return text
    if row["unit"] == "microseconds":
        return f"{text}: {row['magnitude'] / 1_000_000:,.0f} s"
    size = about(row["magnitude"]) if row["size"] is None else f"{int(row['size']):,}"
    return f"{text}: {size} {unit_of(row['magnitude'], row['unit'])}"


__all__ = [
    "audit_data", "coloured", "earliest", "figures", "first_violations", "plain_check", "progress_bar", "show",
    "write_tables",
]  # fmt: skip
