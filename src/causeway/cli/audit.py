"""``causeway audit``: does a ledger, or a lake, hold what its lanes promise, and how much does the input show?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from causeway.cli import shell
from causeway.cli.compiling import compile_first
from causeway.cli.watch import notes, results
from causeway.model.errors import InvalidInput
from causeway.model.text import readable

if TYPE_CHECKING:
    from causeway.audit.auditing import Audit, Check
    from causeway.network.recheck import Executed
    from causeway.pipeline.ledger_store import Ledger

COLOURS = {"holds": "bold green", "violated": "bold red", "unknown": "yellow"}
NAMED = 10_000
WIDE = 120
"""A terminal this wide has room for examples beside the figures."""


def command(
    lake: Annotated[
        str, typer.Argument(help="Folder or URI of a ledger, or of a lake that Causeway ran.", show_default=False)
    ],
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
    executor: Annotated[
        str, typer.Option(metavar="HOW", help="in_process, spark, or auto: by the number of rows.")
    ] = "auto",
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master, such as 'local[2]' or spark://host:7077.")
    ] = "local[*]",
    reexecute: Annotated[
        bool, typer.Option("--reexecute", help="Of a lake, also execute all heights again, and compare every root.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --reexecute: so many ranges of heights at once; default: by the work.",
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --reexecute: the scenario of the lake, when programs of its own lie beside it.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Check a ledger: was everything sent received once, as it was sent, in order, in time?

    Each check holds, is violated, or is unknown where the input has a hole. docs/audit has a page for each. Of a lake
    that Causeway ran the ledger is derived first, and nothing is written into it. Exit code 1 when a check is violated.

    [bold]Example[/bold]: causeway audit my-ledger --check authenticity --out findings
    """
    from causeway.audit.auditing import CHECK_NAMES
    from causeway.pipeline.allocator import keep_memory
    from causeway.pipeline.ledger_audit import EXECUTORS, audit_ledger

    for name in check or ():
        if name not in CHECK_NAMES:
            raise InvalidInput(f"--check {name}: must be one of {', '.join(CHECK_NAMES)}")
    if executor not in EXECUTORS:
        raise InvalidInput(f"--executor {executor}: must be one of {', '.join(EXECUTORS)}")
    if reexecute:
        _require_lake(lake)
    compile_first()
    keep_memory()
    with _bar() as begin, _ledger(lake, begin("deriving the ledger")) as ledger:
        found = audit_ledger(ledger, executor=executor, master=master, limit=named, progress=begin("checking"))
        if reexecute:
            found = _executed_again(lake, scenario, processes, begin("executing again")).added_to(found, named)
    checks = [each for name, each in found.checks.items() if not check or name in check]
    if out is not None:
        _write(found, out)
    if as_json:
        print(json.dumps({"lake": lake, "holds": _holds(checks), "checks": [as_dict(each) for each in checks]}))
    else:
        _show(lake, checks, found)
        if out is not None:
            notes().print(f"tables written to {escape(str(out))}", soft_wrap=True)
    return shell.OK if _holds(checks) else shell.BROKEN


def _executed_again(
    lake: str, scenario: Path | None, processes: int | None, progress: Callable[[int, int], None]
) -> Executed:
    from causeway.network.recheck import reexecute

    done = reexecute(lake, None if scenario is None else str(scenario), processes=processes, progress=progress)
    if done.other is not None:
        shell.tell(f"{lake}: not executed again: {done.other}")
    return done


def _require_lake(lake: str) -> None:
    from causeway.pipeline.lake_taking import is_lake

    if not is_lake(lake):
        raise InvalidInput(f"--reexecute: {lake} is no lake that Causeway ran; only such a lake is executed again")


@contextmanager
def _ledger(lake: str, progress: Callable[[int, int], None]) -> Iterator[Ledger]:
    """Give the ledger at a path or URI, of a lake that Causeway ran one that is derived from it."""
    from causeway.pipeline.ledger_store import LEDGER_FILE, open_ledger
    from causeway.pipeline.storage import Storage

    if Storage(lake).exists(LEDGER_FILE):
        yield open_ledger(lake)
        return
    from causeway.pipeline.lake_taking import ledger_of

    with ledger_of(lake, progress=progress) as derived:
        yield derived


@contextmanager
def _bar() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show how far each step is, on a terminal."""
    console = notes()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:

        def begin(what: str) -> Callable[[int, int], None]:
            task = progress.add_task(what, total=None, visible=False)
            return lambda done, of: progress.update(task, completed=done, total=of, visible=True)

        yield begin


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


def _show(lake: str, checks: list[Check], found: Audit) -> None:
    console = results()
    console.print(f"[bold]{escape(readable(lake))}[/bold]: {_verdict(checks)}", soft_wrap=True)
    for each in checks:
        if each.violated and each.first is not None:
            console.print(f"  {each.name}: {escape(_earliest(each.first))}", soft_wrap=True)
    narrow = console.width < WIDE
    table = Table(box=None, pad_edge=False)
    for title in ("check", "verdict"):
        table.add_column(title, no_wrap=True)
    for title in ("examined", "violated", "unknown"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("because",) if narrow else ("because", "first", "worst"):
        table.add_column(title, overflow="fold")
    for each in checks:
        colour = COLOURS[each.verdict]
        examples = () if narrow else (escape(_example(each.first)), escape(_example(each.worst)))
        table.add_row(
            each.name,
            f"[{colour}]{each.verdict}[/{colour}]",
            *(f"{number:,}" for number in (each.examined, each.violated, each.unknown)),
            escape(_because(each)),
            *examples,
        )
    console.print(table)
    missing = sum(found.lanes["missing"].to_pylist())
    sided = len(set(_one_sided(found)))
    console.print(
        f"{_many(missing, 'message')} missing in the input; {_many(found.lanes.num_rows, 'lane')}, "
        f"{sided:,} of which only one end was recorded"
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


def _earliest(row: dict[str, Any]) -> str:
    """Return where the first finding is, and when that was."""
    lane = " ".join(readable(name) for name in (row["protocol"], row["source"], row["destination"]) if name)
    when = [] if row["time"] is None else [f"at {row['time']:%Y-%m-%d %H:%M:%S} UTC"]
    when += [] if row["height"] is None else [f"in block {row['height']:,} of {readable(row['chain'] or '?')}"]
    return " ".join(["first", _example(row), f"({lane})", *when])


def _one_sided(found: Audit) -> list[tuple[str | None, ...]]:
    from causeway.ledger.schema import LANE

    rows = found.completeness.select([*LANE, "one_sided"]).to_pylist()
    return [tuple(row[name] for name in LANE) for row in rows if row["one_sided"]]


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
    lane = readable(row["lane"] or row["source"] or row["protocol"] or "")
    message = row["message_id"] if row["index"] is None else row["index"]
    text = f"{lane} {readable(str(message))}"
    if row["magnitude"] is None:
        return text
    if row["unit"] == "microseconds":
        return f"{text}: {row['magnitude'] / 1_000_000:,.0f} s"
    return f"{text}: {row['magnitude']:,.0f} {row['unit']}"
