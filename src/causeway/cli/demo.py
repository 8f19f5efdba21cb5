"""``causeway demo``: a generated network under the load of a real chain, what goes wrong in it, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from causeway.cli import report
from causeway.cli.findings import Findings, busiest, look
from causeway.cli.options import option
from causeway.cli.outcome import Outcome, counts_table, indented, size, verdict
from causeway.cli.run import execute
from causeway.cli.watch import results, waiting
from causeway.model.errors import InvalidInput
from causeway.model.json_text import loads
from causeway.scenarios import demo as texts

DEFAULT_LAKE = "demo-lake"
FEWEST = 4

_BAR = 30
_LANES = 6
_SPARKS = "▁▂▃▄▅▆▇█"


def command(
    messages: Annotated[int | None, option("Calls to make.", min=1, show_default="30000")] = None,
    chains: Annotated[int, option(f"{texts.CHAINS_WORD.capitalize()}.", min=FEWEST, show_default=True)] = texts.CHAINS,
    lake: Annotated[str | None, option("Folder for the tables.", metavar="DIR", show_default=DEFAULT_LAKE)] = None,
    as_json: Annotated[bool, option("Print one JSON object instead of a summary.", "--json")] = False,
) -> int:
    """Run a generated network with the load of a real chain and injected faults; show how each call ended.

    Ends with a [bold]report[/bold]: one HTML file beside the lake.

    [bold]Example[/bold]: causeway demo --messages 200000 --chains 40
    """
    from causeway.scenarios import scenario_file

    place = lake or DEFAULT_LAKE
    if lake is None:
        clear(Path(place))
    page = report.default_place(place)
    report.fit(page, place, overwrite=False)
    with scenario_file("demo") as scenario:
        overrides = changed(scenario, messages, chains)
        outcome, findings = execute(scenario, overrides, place, look)
    if as_json:
        print(json.dumps({**outcome.as_json(), "scenario": "demo", **findings.as_json()}))
    else:
        show(outcome, findings, results())
        show_report(place, page, results())
    return outcome.exit_code


def changed(scenario: Path, messages: int | None, chains: int) -> dict[str, str]:
    """Return what the options change in the scenario."""
    overrides = {} if messages is None else {"traffic.messages": str(messages)}
    if chains != texts.CHAINS:
        overrides["chains"] = _toml_tables([{"name": name} for name in chain_names(scenario, chains)])
        # Who is called depends on how many chains there are, so the program that disappears has another name then.
        from causeway.network.scenario import load_scenario

        programs = load_scenario(scenario, {**overrides, "moves": "[]"}).traffic().topology().programs
        gone = next(name for name in programs["name"].to_pylist() if name.endswith(texts.GONE))
        moves = load_scenario(scenario).document.moves
        overrides["moves"] = _toml_tables(
            [
                {"tick": move.tick, "program": move.program, "chain": move.chain}
                if move.chain is not None
                else {"tick": move.tick, "program": gone}
                for move in moves
            ]
        )
    return overrides


def chain_names(scenario: Path, count: int) -> list[str]:
    """Return the names of so many chains: first those of the scenario."""
    from causeway.network.scenario import load_scenario

    named = [chain.name or "" for chain in load_scenario(scenario).document.chains]
    return [*named, *(texts.FURTHER_CHAIN.format(number) for number in range(len(named) + 1, count + 1))][:count]


def _toml_tables(tables: list[dict[str, object]]) -> str:
    """Return tables as a TOML list of inline tables; their values are text and whole numbers."""
    inline = (", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) for table in tables)
    return "[" + ", ".join(f"{{ {table} }}" for table in inline) + "]"


def clear(place: Path) -> None:
    """Remove the lake of an earlier demo; anything else in its place is the user's. Raises ``InvalidInput``."""
    if not place.exists():
        return
    if place.is_symlink() or not place.is_dir() or not _made_by_a_demo(place):
        raise InvalidInput(f"{place} is not the lake of an earlier demo: move it, or choose another with --lake DIR")
    shutil.rmtree(place)


def _made_by_a_demo(place: Path) -> bool:
    from causeway.pipeline.layout import LAKE_FILE

    try:
        about = loads((place / LAKE_FILE).read_bytes())
        return bool(about["scenario"]["chains"][0]["name"] == texts.FIRST_CHAIN)
    except (OSError, ValueError, LookupError, TypeError):
        return not os.listdir(place)


def show(outcome: Outcome, findings: Findings, console: Console) -> None:
    """Print what a person reads."""
    console.print(
        f"[bold]Demo[/bold]: {outcome.chains} {texts.CHAINS_WORD}, {outcome.summary.counts['sent']:,} calls between "
        f"their {texts.PROGRAMS_WORD}, {outcome.ticks} ticks"
    )
    console.print(f"\n[bold]Messages by tick[/bold]   {sparkline(findings)}")
    console.print("\n[bold]Outcome of the calls[/bold]")
    console.print(counts_table(outcome))
    console.print("\n[bold]Ticks from call to answer[/bold]")
    console.print(_bars([(f"{ticks}", count) for ticks, count in folded(findings)]))
    console.print(f"\n[bold]Busiest of {len(findings.lanes)} {texts.LANES_WORD}[/bold]")
    console.print(_bars([(f"{a} > {b}", count) for (a, b), count in busiest(findings.lanes, _LANES)]))
    console.print("\n[bold]Injected faults and their outcomes[/bold]")
    console.print(_troubles(findings))
    place = escape(outcome.lake or "")
    console.print("\n[bold]Explore[/bold]")
    for options in texts.CLOSER_LOOKS:
        console.print(f"  causeway state {place} {options}", soft_wrap=True)
    console.print("\n[bold]Summary[/bold]")
    for line in closing(outcome, findings):
        console.print(Padding.indent(line, 2))


def show_report(lake: str, page: Path, console: Console) -> None:
    """Write the report of the lake, and print where it is."""
    with waiting("making the report"):
        verdict_of_audit = report.write_report(lake, page)
    console.print("\n[bold]Report[/bold]")
    console.print(f"  {escape(verdict_of_audit)}; to look at it, open in a browser:", soft_wrap=True)
    console.print(f"  {escape(page.absolute().as_uri())}", soft_wrap=True)


def closing(outcome: Outcome, findings: Findings) -> list[str]:
    """Return the last lines: what a person should remember."""
    counts = outcome.summary.counts
    dropped = f", {counts['dropped']:,} dropped" if counts["dropped"] else ""
    return [
        f"{counts['sent']:,} calls between {outcome.chains} {texts.CHAINS_WORD} took "
        f"{outcome.summary.messages:,} messages and "
        f"{outcome.seconds['run']:.1f} s on Spark: {outcome.messages_per_second:,.0f} messages per second, peak memory "
        f"{size(outcome.peak_memory_bytes)}.",
        f"{counts['answered']:,} calls were answered, half of them within {findings.delay(0.5)} ticks and 99 % within "
        f"{findings.delay(0.99)}; {counts['rejected']:,} were rejected, each with a reason{dropped}.",
        f"The lake {escape(outcome.lake or '')} has every tick. Root of all states: {outcome.root[:16]}..., the same "
        "on every machine.",
        *verdict(outcome),
    ]


def sparkline(findings: Findings) -> str:
    """Return the load of every tick as one character."""
    ticks = range(max(findings.load, default=-1) + 1)
    most = max(findings.load.values(), default=1)
    return "".join(_SPARKS[(len(_SPARKS) - 1) * findings.load.get(tick, 0) // most] for tick in ticks)


def folded(findings: Findings) -> list[tuple[str, int]]:
    """Return the delays, with those past the 99th percentile as one."""
    edge = findings.delay(0.99) or 0
    rows = [(str(ticks), findings.delays.get(ticks, 0)) for ticks in range(min(findings.delays, default=0), edge + 1)]
    late = sum(count for ticks, count in findings.delays.items() if ticks > edge)
    return [*rows, (f"over {edge}", late)] if late else rows


def _bars(rows: list[tuple[str, int]]) -> Padding:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    most = max((count for _, count in rows), default=1)
    for label, count in rows:
        length = max(1, round(_BAR * count / most)) if count else 0
        table.add_row(escape(label), f"{count:,}", f"[cyan]{'█' * length}[/cyan]")
    return indented(table)


def _troubles(findings: Findings) -> Padding:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    calls = {(outcome, reason): count for (outcome, reason, _), count in findings.troubles.items()}
    for (what, reason), count in sorted({**calls, **findings.refused}.items(), key=lambda item: -item[1]):
        explained = texts.EXPLAINED.get((what, reason), f"{what}: {reason or 'reject by the program'}")
        table.add_row(f"{count:,}", explained, texts.ENDED.get(what, what))
    return indented(table)
