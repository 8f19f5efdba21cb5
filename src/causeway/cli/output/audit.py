"""The output of an audit: on a terminal, as JSON and as files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from causeway.audit.json_output import check_to_json
from causeway.audit.json_output import input_figures as figures
from causeway.audit.verdict import Verdict
from causeway.cli.output.progress import stderr_console, stdout_console
from causeway.cli.output.tables import show_table
from causeway.core.text import count_noun, format_moment, format_number, pluralize, shorten_name, to_one_line

if TYPE_CHECKING:
    from causeway.audit.engine import AuditResult, CheckVerdict

VERDICT_COLORS = {"PASSED": "bold green", "FAILED": "bold red", "INCONCLUSIVE": "yellow", "NOT APPLICABLE": "dim"}
"""The colour of each verdict."""

WIDE_COLUMNS = 120
"""Least terminal width for examples beside the figures."""


@contextmanager
def progress_bar() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show the progress of each step, on a terminal.

    Yields:
        A function that starts a step, and returns its progress callback.
    """
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)

    def begin(what: str) -> Callable[[int, int], None]:
        task = progress.add_task(what, total=None, visible=False)

        def report(done: int, of: int) -> None:
            progress.start()
            progress.update(task, completed=done, total=of, visible=True)

        return report

    try:
        yield begin
    finally:
        if progress.live.is_started:
            progress.stop()


def audit_data(found: AuditResult, checks: list[CheckVerdict], quarantined: Mapping[str, int]) -> dict[str, Any]:
    """Return an audit as the JSON object of ``--json``.

    Args:
        found: the audit.
        checks: the selected checks.
        quarantined: records in quarantine, by reason.

    Returns:
        The object.
    """
    from causeway.audit.verdict import combine_verdicts

    verdict = combine_verdicts(checks)
    return {
        "verdict": verdict.value,
        "sentence": found.sentence(*(check.name for check in checks)),
        "holds": verdict is not Verdict.FAILED,
        **figures(found),
        "quarantined": dict(quarantined),
        "remarks": list(found.remarks),
        "checks": [check_to_json(check) for check in checks],
    }


def write_tables(found: AuditResult, folder: Path) -> None:
    """Write the tables of an audit as Parquet.

    Args:
        found: the audit.
        folder: the folder.
    """
    import pyarrow.parquet as pq

    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        with (folder / f"{name}.parquet").open("wb") as file:  # pyarrow treats a path with :// as a URI
            pq.write_table(getattr(found, name), file)


def show_audit(lake: str, checks: list[CheckVerdict], found: AuditResult, quarantined: Mapping[str, int]) -> None:
    """Print an audit: verdict, earliest violation of each check, table of the checks, input.

    Args:
        lake: path or URI.
        checks: the selected checks.
        found: the audit.
        quarantined: records in quarantine, by reason.
    """
    console = stdout_console()
    sentence = found.sentence(*(check.name for check in checks))
    console.print(f"[bold]{escape(to_one_line(lake))}[/bold]: {color_verdict(sentence)}", soft_wrap=True)
    for line in first_violations(checks):
        console.print(line, soft_wrap=True)
    narrow = console.width < WIDE_COLUMNS
    counts = ("examined", "violated", "unknown", "noted")
    titles = ["check", "verdict", *counts, "reasons", *([] if narrow else ["first", "worst"])]
    rows = []
    applicable = [each for each in checks if each.verdict is not Verdict.NOT_APPLICABLE]
    for each in applicable:
        examples = () if narrow else (escape(_example(each.first)), escape(_example(each.worst)))
        numbers = (f"{getattr(each, name):,}" for name in counts)
        rows.append([each.name, color_verdict(each.verdict), *numbers, escape(_because(each)), *examples])
    texts = ("reasons", "first", "worst")
    if rows:
        show_table(console, titles, rows, left=["check", "verdict", *texts], folds=texts)
    others: dict[str, list[str]] = {}
    for each in checks:
        if each not in applicable:
            others.setdefault(_because(each), []).append(each.name)
    if others:
        skipped = "; ".join(f"{', '.join(names)} ({why})" for why, names in others.items())
        console.print(f"Not applicable: {escape(skipped)}", soft_wrap=True)
    lanes, one_sided, missing = figures(found).values()
    console.print(
        f"{count_noun(lanes, 'lane')}, {one_sided:,} recorded at one end only; "
        f"{count_noun(missing, 'message')} missing in the input"
    )
    if quarantined:
        total, reasons = sum(quarantined.values()), sorted(quarantined.items(), key=lambda item: (-item[1], item[0]))
        named = ", ".join(f"{reason} {count:,}" for reason, count in reasons)
        console.print(f"[yellow]{count_noun(total, 'record')} in quarantine[/]: {escape(named)}")
    for remark in found.remarks:
        console.print(escape(remark), soft_wrap=True)


def color_verdict(sentence: str) -> str:
    """Return a sentence that begins with a verdict as markup, with the verdict in its colour.

    Args:
        sentence: the sentence.

    Returns:
        Rich markup.
    """
    verdict = next(word for word in VERDICT_COLORS if sentence.startswith(word))
    return f"[{VERDICT_COLORS[verdict]}]{verdict}[/]{escape(sentence.removeprefix(verdict))}"


def first_violations(checks: Iterable[CheckVerdict]) -> list[str]:
    """Return the earliest violation of each violated check, a line each.

    Args:
        checks: the checks.

    Returns:
        The lines.
    """
    found = [(each.name, each.first) for each in checks if each.violated and each.first is not None]
    return [f"  {name}: {escape(describe_earliest(row))}" for name, row in found]


def describe_earliest(row: dict[str, Any]) -> str:
    """Describe the chain, height and time of a finding.

    Args:
        row: the finding.

    Returns:
        The text.
    """
    lane = " ".join(shorten_name(name) for name in (row["protocol"], row["source"], row["destination"]) if name)
    when = [] if row["time"] is None else [f"at {format_moment(row['time'])} UTC"]
    when += [] if row["height"] is None else [f"in block {row['height']:,} of {shorten_name(row['chain'] or '?')}"]
    return " ".join(["first", _example(row), f"({lane})", *when])


def _because(check: CheckVerdict) -> str:
    from causeway.audit.engine import PROMISE_CHECKS

    if not check.examined and not check.reasons:
        promises = PROMISE_CHECKS.get(check.name)
        return "nothing to examine" if promises is None else "no lane promises it"
    return ", ".join(f"{reason} {count:,}" for (_, reason), count in check.reasons.items())


def _example(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    lane = shorten_name(row["lane"] or row["source"] or row["protocol"] or "")
    message = row["message_id"] if row["index"] is None else row["index"]
    text = lane if message is None else f"{lane} {shorten_name(str(message))}"
    if row["magnitude"] is None:
        return text
    if row["unit"] == "microseconds":
        return f"{text}: {row['magnitude'] / 1_000_000:,.0f} s"
    size = format_number(row["magnitude"]) if row["size"] is None else f"{int(row['size']):,}"
    return f"{text}: {size} {pluralize(row['magnitude'], row['unit'])}"


__all__ = [
    "audit_data",
    "check_to_json",
    "color_verdict",
    "describe_earliest",
    "figures",
    "first_violations",
    "progress_bar",
    "show_audit",
    "write_tables",
]  # fmt: skip
