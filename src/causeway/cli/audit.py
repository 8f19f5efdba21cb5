"""``causeway audit``: does a ledger hold what its lanes promise, and how much does the input show?"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from causeway.cli import shell
from causeway.cli.compiling import compile_first
from causeway.cli.watch import notes, results, waiting
from causeway.model.errors import InvalidInput
from causeway.model.text import readable

if TYPE_CHECKING:
    from causeway.audit.auditing import Audit, Check

COLOURS = {"holds": "bold green", "violated": "bold red", "unknown": "yellow"}
NAMED = 10_000


def command(
    lake: Annotated[str, typer.Argument(help="Folder or URI of a ledger.", show_default=False)],
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME", help="Only this check; may be repeated.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the tables violations, completeness, lanes and sums there, as Parquet.",
            show_default=False,
        ),
    ] = None,
    named: Annotated[
        int, typer.Option("--named", min=1, metavar="N", help="Findings to name of each lane, check and reason.")
    ] = NAMED,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check a ledger: was everything sent received once, as it was sent, in order, in time?

    Each check holds, is violated, or is unknown where the input has a hole. docs/audit has a page for each. Exit code 1
    when one is violated.

    [bold]Example[/bold]: causeway audit my-ledger --check authenticity --out findings
    """
    from causeway.audit.auditing import CHECK_NAMES, audit
    from causeway.pipeline.ledger_store import open_ledger

    for name in check or ():
        if name not in CHECK_NAMES:
            raise InvalidInput(f"--check {name}: must be one of {', '.join(CHECK_NAMES)}")
    ledger = open_ledger(lake)
    compile_first()
    with waiting("checking"):
        readers = [partial(ledger.rows, bucket) for bucket in range(ledger.buckets)]
        found = audit(readers, ledger.table("observed"), ledger.table("promises"), named)
    checks = [each for name, each in found.checks.items() if not check or name in check]
    if out is not None:
        _write(found, out)
    if as_json:
        print(json.dumps({"lake": lake, "holds": _holds(checks), "checks": [as_dict(each) for each in checks]}))
    else:
        _show(checks, found)
        if out is not None:
            notes().print(f"tables written to {escape(str(out))}", soft_wrap=True)
    return shell.OK if _holds(checks) else shell.BROKEN


def _holds(checks: list[Check]) -> bool:
    return not any(each.verdict == "violated" for each in checks)


def as_dict(check: Check) -> dict[str, Any]:
    """Return a check as ``--json`` prints it."""
    return {
        "check": check.name,
        "verdict": check.verdict,
        "examined": check.examined,
        "lanes": check.lanes,
        "violated": check.violated,
        "unknown": check.unknown,
        "reasons": [
            {"verdict": verdict, "reason": reason, "findings": count}
            for (verdict, reason), count in check.reasons.items()
        ],
        "first": _plain(check.first),
        "worst": _plain(check.worst),
    }


def _plain(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}


def _write(found: Audit, folder: Path) -> None:
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("violations", "completeness", "lanes", "sums"):
        pq.write_table(getattr(found, name), folder / f"{name}.parquet")


def _show(checks: list[Check], found: Audit) -> None:
    console = results()
    table = Table(box=None, pad_edge=False)
    for title in ("check", "verdict"):
        table.add_column(title, no_wrap=True)
    for title in ("examined", "violated", "unknown"):
        table.add_column(title, justify="right")
    for title in ("because", "first", "worst"):
        table.add_column(title)
    for each in checks:
        colour = COLOURS[each.verdict]
        table.add_row(
            each.name,
            f"[{colour}]{each.verdict}[/{colour}]",
            *(f"{number:,}" for number in (each.examined, each.violated, each.unknown)),
            escape(_because(each)),
            escape(_example(each.first)),
            escape(_example(each.worst)),
        )
    console.print(table)
    missing = sum(found.lanes["missing"].to_pylist())
    sided = sum(found.completeness["one_sided"].to_pylist())
    console.print(
        f"{missing:,} messages missing in the input; {found.lanes.num_rows:,} lanes, "
        f"{sided:,} of which only one end was recorded"
    )


def _because(check: Check) -> str:
    from causeway.audit.auditing import PROMISED

    if not check.examined:
        promises = PROMISED.get(check.name)
        return "nothing to examine" if promises is None else f"no lane promises {' or '.join(promises)}"
    return ", ".join(f"{reason} {count:,}" for (_, reason), count in check.reasons.items())


def _example(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    lane = readable(row["lane"] or row["source"] or row["protocol"] or "")
    message = row["message_id"] if row["index"] is None else row["index"]
    text = f"{lane} {readable(str(message))}"
    if row["magnitude"] is None:
        return text
    if row["unit"] == "microseconds":
        return f"{text}: {row['magnitude'] / 1_000_000:,.0f} s"
    return f"{text}: {row['magnitude']:,.0f} {row['unit']}"
