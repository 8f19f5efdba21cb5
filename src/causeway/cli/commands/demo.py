"""``causeway demo``: run a generated network under the load of a real chain, with faults.

Beyond the counts of a run it prints delays, lanes, load and failures. Texts about outcomes belong to its scenario,
``demo.toml``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from causeway.cli.commands import report
from causeway.cli.commands.run import execute_run
from causeway.cli.options import option
from causeway.cli.output.progress import show_spinner, stdout_console
from causeway.cli.output.run_outcome import RunFigures, counts_table, format_size, indent_table, verdict_lines
from causeway.core.text import load_json

if TYPE_CHECKING:
    from causeway.analysis.run_summary import RunSummary
    from causeway.ledger.store import Ledger


@dataclass(frozen=True)
class DemoFindings:
    """The findings of a demo, from its ledger.

    ``delays``: number of answered calls by ticks from call to answer. ``lanes``: messages by (source, destination).
    ``load``: messages by tick of sending. ``troubles``: unanswered calls, rerouted answers and forged messages by
    (outcome,
    reason, code). ``refused``: refused slices and user messages by (kind, reason).
    """

    delays: Mapping[int, int]
    lanes: Mapping[tuple[str, str], int]
    load: Mapping[int, int]
    troubles: Mapping[tuple[str, str, int], int]
    refused: Mapping[tuple[str, str], int]

    def delay(self, share: float) -> int | None:
        """Return the delay that a share of the answered calls does not exceed, or None."""
        return quantile(self.delays, share)

    def as_json(self) -> dict[str, Any]:
        """Return the findings for ``--json``."""
        return {
            "delay_ticks": {"p50": self.delay(0.5), "p99": self.delay(0.99), "max": max(self.delays, default=None)},
            "busiest_lanes": [
                {"source": source, "destination": destination, "messages": count}
                for (source, destination), count in busiest(self.lanes, 10)
            ],
            "troubles": [
                {"outcome": outcome, "reason": reason, "code": code, "calls": count}
                for (outcome, reason, code), count in sorted(self.troubles.items())
            ],
            "refused": [
                {"what": what, "reason": reason, "count": count}
                for (what, reason), count in sorted(self.refused.items())
            ],
        }


def read_demo_findings(ledger: Ledger, summary: RunSummary) -> DemoFindings:
    """Read the findings from the ledger of a run.

    Args:
        ledger: the ledger.
        summary: the summary of the run.

    Returns:
        The findings.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    import pyarrow.compute as pc

    from causeway.analysis.figures.filters import MessageFilter
    from causeway.analysis.figures.outcomes import FORGED_KIND, FROM_USERS, select_kind
    from causeway.analysis.stored_figures import read_messages

    found, codes = summary.figures, summary.figures.codes
    delays: Counter[int] = Counter()
    for rows in read_messages(ledger, MessageFilter.of(outcome="answered").and_(MessageFilter(calls=True))):
        counted = rows["round_trip_ticks"].drop_null().value_counts()
        delays.update({row["values"]: row["counts"] for row in counted.to_pylist()})
    lanes: Counter[tuple[str, str]] = Counter()
    for row in found.lanes.filter(pc.greater(found.lanes["between_chains"], 0)).to_pylist():
        lanes[row["source"], row["destination"]] += row["between_chains"]
    load = Counter(dict(zip(*(found.backlog[name].to_pylist() for name in ("tick", "sent")), strict=True)))
    troubles: Counter[tuple[str, str, int]] = Counter()
    for row in codes.to_pylist():
        kind, outcome = row["kind"], row["outcome"]
        if kind == FORGED_KIND:
            outcome = kind
        elif kind == "response" and outcome == "rejected":
            outcome = "rerouted"
        elif kind != "request" or outcome == "answered":
            continue
        troubles[outcome, row["detail"] or "", row["code"] or 0] += row["messages"]
    refused: Counter[tuple[str, str]] = Counter()
    for kind, what in (("control", "slice"), (FROM_USERS, "ingress")):
        for row in select_kind(codes, kind).to_pylist():
            if row["outcome"] == "rejected" and row["detail"]:
                refused[what, row["detail"]] += row["messages"]
    return DemoFindings(delays, lanes, load, troubles, refused)


def quantile(counts: Mapping[int, int], share: float) -> int | None:
    """Return the least value that a share of the counted values does not exceed.

    Args:
        counts: number of values, by value.
        share: the share, from 0 to 1.

    Returns:
        The value; None without values.
    """
    left = share * sum(counts.values())
    for value, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return value
    return None


def busiest(lanes: Mapping[tuple[str, str], int], count: int) -> list[tuple[tuple[str, str], int]]:
    """Return the lanes with the most messages.

    Args:
        lanes: messages by (source, destination).
        count: maximum number of lanes.

    Returns:
        Lanes with their messages, the busiest first.
    """
    return sorted(lanes.items(), key=lambda item: (-item[1], item[0]))[:count]


CHAINS = 12
"""Number of chains in the scenario."""

FIRST_CHAIN = "atlas"
"""First chain of the scenario; it identifies the lake of an earlier demo."""

FURTHER_CHAIN = "subnet-{}"
"""Name pattern of chains beyond those of the scenario."""

REMOVED_PROGRAM_SUFFIX = "/birch-channel-2"
"""Suffix of the name of the removed program."""

CHAINS_WORD, PROGRAMS_WORD, LANES_WORD = "subnets", "canisters", "streams"

FURTHER_COMMANDS = ("--table lanes --chain atlas", "--table program_caller --height 10 --chain birch")
"""Suggested options of ``causeway state``."""

OUTCOME_EXPLANATIONS = {
    ("rejected", "Unknown"): "calls rejected by a policy, every 400th of a stream",
    ("rejected", "CanisterMigrating"): "calls from a canister that moved while they were in transit",
    ("rejected", "NON_EXISTENT_CANISTER"): "calls to a canister that does not exist",
    ("rerouted", "CanisterMigrating"): "answers to a canister that was moving",
    ("forged", "CanisterMigrating"): "call forged by a subnet that does not host its sender",
    ("slice", "InvalidStream(RootHashMismatch)"): "slice of a stream altered by a carrier: root mismatch",
    ("ingress", "ChainHalted"): "messages from users to a halted subnet",
}
"""Explanations of outcomes and reasons in this network."""

ENDING_NOTES = {
    "rejected": "reported to the caller",
    "rerouted": "rerouted to its new subnet",
    "forged": "refused",
    "slice": "refused, fetched again",
    "ingress": "reported to the user",
    "dropped": "dropped, as the protocol declares",
    "pending": "still in progress",
}
"""Texts about the end of a run."""


DEFAULT_LAKE = "demo-lake"
MIN_CHAINS = 4

_BAR = 30
_LANES = 6
_SPARKS = "▁▂▃▄▅▆▇█"


def command(
    messages: Annotated[int | None, option("Calls to make.", min=1, show_default="30000")] = None,
    chains: Annotated[int, option(f"{CHAINS_WORD.capitalize()}.", min=MIN_CHAINS, show_default=True)] = CHAINS,
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
        remove_demo_lake(Path(place))
    page = report.default_report_path(place)
    report.require_report_target(page, place, overwrite=False)
    with scenario_file("demo") as scenario:
        overrides = changed_options(scenario, messages, chains)
        outcome, findings = execute_run(scenario, overrides, place, read_demo_findings)
    if as_json:
        print(json.dumps({**outcome.as_json(), "scenario": "demo", **findings.as_json()}))
    else:
        show_demo(outcome, findings, stdout_console())
        show_report(place, page, stdout_console())
    return outcome.exit_code


def changed_options(scenario: Path, messages: int | None, chains: int) -> dict[str, str]:
    """Return the overrides of the scenario for the options.

    Args:
        scenario: the scenario file.
        messages: number of calls, or None.
        chains: number of chains.

    Returns:
        TOML values by dotted key.
    """
    overrides = {} if messages is None else {"traffic.messages": str(messages)}
    if chains != CHAINS:
        overrides["chains"] = _toml_tables([{"name": name} for name in demo_chain_names(scenario, chains)])
        # Callees depend on the number of chains, and so does the name of the removed program.
        from causeway.scenarios.scenario import load_scenario

        programs = load_scenario(scenario, {**overrides, "moves": "[]"}).traffic().topology().programs
        removed = next(name for name in programs["name"].to_pylist() if name.endswith(REMOVED_PROGRAM_SUFFIX))
        moves = load_scenario(scenario).document.moves
        overrides["moves"] = _toml_tables(
            [
                {"tick": move.tick, "program": move.program, "chain": move.chain}
                if move.chain is not None
                else {"tick": move.tick, "program": removed}
                for move in moves
            ]
        )
    return overrides


def demo_chain_names(scenario: Path, count: int) -> list[str]:
    """Return the names of chains, those of the scenario first.

    Args:
        scenario: the scenario file.
        count: number of chains.

    Returns:
        The names.
    """
    from causeway.scenarios.scenario import load_scenario

    named = [chain.name or "" for chain in load_scenario(scenario).document.chains]
    return [*named, *(FURTHER_CHAIN.format(number) for number in range(len(named) + 1, count + 1))][:count]


def _toml_tables(tables: list[dict[str, object]]) -> str:
    """Format tables of texts and integers as a TOML list of inline tables."""
    inline = (", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) for table in tables)
    return "[" + ", ".join(f"{{ {table} }}" for table in inline) + "]"


def remove_demo_lake(place: Path) -> None:
    """Remove the lake of an earlier demo; keep anything else.

    Args:
        place: the folder.

    Raises:
        InvalidInput: the folder is no lake of a demo.
    """
    if not place.exists():
        return
    if place.is_symlink() or not place.is_dir() or not _is_demo_lake(place):
        raise InvalidInput(f"{place} is not the lake of an earlier demo: move it, or choose another with --lake DIR")
    shutil.rmtree(place)


def _is_demo_lake(place: Path) -> bool:
    from causeway.storage.layout import LAKE_FILE

    try:
        about = load_json((place / LAKE_FILE).read_bytes())
        return bool(about["scenario"]["chains"][0]["name"] == FIRST_CHAIN)
    except (OSError, ValueError, LookupError, TypeError):
        return not os.listdir(place)


def show_demo(outcome: RunFigures, findings: DemoFindings, console: Console) -> None:
    """Print the summary of a demo.

    Args:
        outcome: figures of the run.
        findings: findings of its ledger.
        console: the console.
    """
    console.print(
        f"[bold]Demo[/bold]: {outcome.chains} {CHAINS_WORD}, {outcome.summary.counts['sent']:,} calls between "
        f"their {PROGRAMS_WORD}, {outcome.ticks} ticks"
    )
    console.print(f"\n[bold]Messages by tick[/bold]   {load_sparkline(findings)}")
    console.print("\n[bold]Outcome of the calls[/bold]")
    console.print(counts_table(outcome))
    console.print("\n[bold]Ticks from call to answer[/bold]")
    console.print(_bars([(f"{ticks}", count) for ticks, count in fold_delays(findings)]))
    console.print(f"\n[bold]Busiest of {len(findings.lanes)} {LANES_WORD}[/bold]")
    console.print(_bars([(f"{a} > {b}", count) for (a, b), count in busiest(findings.lanes, _LANES)]))
    console.print("\n[bold]Injected faults and their outcomes[/bold]")
    console.print(_troubles(findings))
    place = escape(outcome.lake or "")
    console.print("\n[bold]Explore[/bold]")
    for options in FURTHER_COMMANDS:
        console.print(f"  causeway state {place} {options}", soft_wrap=True)
    console.print("\n[bold]Summary[/bold]")
    for line in closing_lines(outcome, findings):
        console.print(Padding.indent(line, 2))


def show_report(lake: str, page: Path, console: Console) -> None:
    """Write the report of the lake, and print its path.

    Args:
        lake: the lake.
        page: the path of the report.
        console: the console.
    """
    with show_spinner("making the report"):
        verdict_of_audit = report.write_report(lake, page)
    console.print("\n[bold]Report[/bold]")
    console.print(f"  {escape(verdict_of_audit)}; to look at it, open in a browser:", soft_wrap=True)
    console.print(f"  {escape(page.absolute().as_uri())}", soft_wrap=True)


def closing_lines(outcome: RunFigures, findings: DemoFindings) -> list[str]:
    """Return the last lines of the summary.

    Args:
        outcome: figures of the run.
        findings: findings of its ledger.

    Returns:
        Rich markup.
    """
    counts = outcome.summary.counts
    dropped = f", {counts['dropped']:,} dropped" if counts["dropped"] else ""
    return [
        f"{counts['sent']:,} calls between {outcome.chains} {CHAINS_WORD} took "
        f"{outcome.summary.messages:,} messages and "
        f"{outcome.seconds['run']:.1f} s on Spark: {outcome.messages_per_second:,.0f} messages per second, peak memory "
        f"{format_size(outcome.peak_memory_bytes)}.",
        f"{counts['answered']:,} calls were answered, half of them within {findings.delay(0.5)} ticks and 99 % within "
        f"{findings.delay(0.99)}; {counts['rejected']:,} were rejected, each with a reason{dropped}.",
        f"The lake {escape(outcome.lake or '')} has every tick. Root of all states: {outcome.root[:16]}..., the same "
        "on every machine.",
        *verdict_lines(outcome),
    ]


def load_sparkline(findings: DemoFindings) -> str:
    """Return the load of every tick as one character.

    Args:
        findings: findings of the ledger.

    Returns:
        One line.
    """
    ticks = range(max(findings.load, default=-1) + 1)
    most = max(findings.load.values(), default=1)
    return "".join(_SPARKS[(len(_SPARKS) - 1) * findings.load.get(tick, 0) // most] for tick in ticks)


def fold_delays(findings: DemoFindings) -> list[tuple[str, int]]:
    """Return the delays, with those above the 99th percentile as one row.

    Args:
        findings: findings of the ledger.

    Returns:
        Labels with counts.
    """
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
    return indent_table(table)


def _troubles(findings: DemoFindings) -> Padding:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    calls = {(outcome, reason): count for (outcome, reason, _), count in findings.troubles.items()}
    for (what, reason), count in sorted({**calls, **findings.refused}.items(), key=lambda item: -item[1]):
        explained = OUTCOME_EXPLANATIONS.get((what, reason), f"{what}: {reason or 'reject by the program'}")
        table.add_row(f"{count:,}", explained, ENDING_NOTES.get(what, what))
    return indent_table(table)
