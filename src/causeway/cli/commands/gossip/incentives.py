"""``causeway gossip incentives``: compare gossip with and without tickets.

Simulations run for several shares of selfish nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.table import Table

from causeway.cli import output_paths, shell
from causeway.cli.commands.gossip.simulate import SIMULATION, simulate
from causeway.cli.options import argument, option
from causeway.cli.output.progress import stdout_console
from causeway.cli.scenario_options import parse_setting, settings_option

if TYPE_CHECKING:
    from causeway.network.simulation import SimulationResult
    from causeway.scenarios.scenario import Scenario


def command(
    scenario: Annotated[Path, argument("Scenario file (TOML).")],
    nodes: Annotated[str | None, option("Numbers of nodes; default: the scenario's.", "--nodes", metavar="N,N")] = None,
    selfish: Annotated[
        str, option("Shares of selfish nodes, in percent.", "--selfish", metavar="P,P", show_default=True)
    ] = "0,10,20,30,40,50",
    plot: Annotated[Path | None, option("Draw bodies in time, as SVG.", "--plot", metavar="FILE")] = None,
    settings: Annotated[list[str] | None, settings_option(None)] = None,
    as_json: Annotated[bool, option("Print one JSON object instead of a table.", "--json")] = False,
) -> int:
    """Compare gossip with and without tickets, by share of selfish nodes.

    Each combination is one simulation of the scenario, in which selfish nodes take the place of its attackers.

    [bold]Example[/bold]: causeway gossip incentives examples/gossip_tickets.toml --selfish 0,25,50 --plot selfish.svg
    """
    overrides = dict(parse_setting(text) for text in settings or ())
    for key in overrides:
        if key in ("tickets.mode", "nodes.count") or key.split("[")[0] == "attackers":
            raise InvalidInput(f"--set {key}: follows from --nodes and --selfish")
    counts = _numbers("--nodes", nodes, 2, 65_535) if nodes is not None else [None]
    shares = _numbers("--selfish", selfish, 0, 99)
    if plot is not None:
        output_paths.require_svg_target("--plot", plot, None)
    # Load all before the first run, to report errors at once.
    runs = [run for count in counts for run in _runs(scenario, overrides, count, shares)]
    try:
        rows = [_simulate(*run) for run in runs]
    except shell.CommandInterrupted as error:
        raise shell.CommandInterrupted("stopped; partial results were discarded") from error
    if plot is not None:
        output_paths.write_files({plot: _plot(rows).encode()}, {plot: "--plot"})
    if as_json:
        print(json.dumps({"scenario": str(scenario), "runs": rows}))
    else:
        _show(scenario, rows)
    return shell.OK


def _numbers(option: str, text: str, least: int, most: int) -> list[int]:
    """Parse a list of distinct integers.

    Raises:
        InvalidInput: a value is not an integer in range.
    """
    found = []
    for part in text.split(","):
        if not part.strip().isdecimal() or not least <= int(part) <= most:
            raise InvalidInput(
                f"{option}: {part.strip()!r}; allowed: whole numbers from {least} to {most}, with commas"
            )
        found.append(int(part))
    return [*dict.fromkeys(found)]


def _runs(
    scenario: Path, overrides: Mapping[str, str], count: int | None, shares: Sequence[int]
) -> Iterator[tuple[Scenario, int, bool]]:
    """Load the simulations of one number of nodes.

    There is one for each share of selfish nodes, without and with tickets.

    Args:
        scenario: scenario file; selfish nodes replace its attackers.
        overrides: dotted keys to TOML values.
        count: number of nodes; None: that of the scenario.
        shares: shares of selfish nodes, in percent.

    Raises:
        InvalidInput: one of them cannot run.
    """
    from causeway.network.simulation import load_simulation

    given = {**overrides, "attackers": "[]"}
    if count is not None:
        given["nodes.count"] = str(count)
    chains = load_simulation(SIMULATION, scenario, given).document.chains
    total = sum(chain.count or 0 for chain in chains)
    for share in shares:
        selfish = total * share // 100
        given["attackers"] = f'[{{kind = "selfish", count = {selfish}}}]' if selfish else "[]"
        for tickets in (False, True):
            mode = {"tickets.mode": '"on"' if tickets else '"off"'}
            yield load_simulation(SIMULATION, scenario, {**given, **mode}), share, tickets


def _simulate(scenario: Scenario, share: int, tickets: bool) -> dict[str, Any]:
    """Run one simulation and return its row."""
    found, about = simulate(scenario, None, False)
    run_figures = {name: about[name] for name in ("root", "seconds")}
    return {**_row(found), "selfish": share / 100, "tickets": tickets, **run_figures}


def _row(found: SimulationResult) -> dict[str, Any]:
    summary = found.summary
    names = ("nodes", "in_time", "in_time_of_needed", "never", "p50_ms", "p99_ms", "p100_ms", "copies_a_body")
    row = {name: summary[name] for name in (*names, "sent_bytes_a_node")}
    coverage = found.tables["coverage"]
    at = coverage["time"].to_pylist().index(summary["interval_ms"])
    return {**row, "in_time_of_all": round(coverage["all"][at].as_py(), 4), "costs": summary.get("tickets")}


def _plot(rows: list[dict[str, Any]]) -> str:
    from causeway.protocols.registry import find_protocol

    points: dict[tuple[int, bool], list[tuple[float, float]]] = {}
    for row in rows:
        points.setdefault((row["nodes"], row["tickets"]), []).append((row["selfish"], row["in_time_of_needed"] or 0.0))
    svg: str = find_protocol(SIMULATION).part("shares_plot")(points)
    return svg


def _show(scenario: Path, rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    names = ("nodes", "selfish", "tickets", "bodies in time", "queues in time", "p50", "p99", "bytes sent a node")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        times = (f"{row[name]:,} ms" if row[name] is not None else "-" for name in ("p50_ms", "p99_ms"))
        shares = (f"{row[name]:.2%}" if row[name] is not None else "-" for name in ("in_time_of_needed", "in_time"))
        mode = "on" if row["tickets"] else "off"
        table.add_row(
            f"{row['nodes']:,}", f"{row['selfish']:.0%}", mode, *shares, *times, f"{row['sent_bytes_a_node']:,}"
        )
    console = stdout_console()
    console.print(f"{scenario.name}: gossip with and without tickets")
    console.print(table)
    _show_costs(console, [row["costs"] for row in rows if row["costs"]])


def _show_costs(console: Any, costs: list[dict[str, Any]]) -> None:
    """Print the range of the cost of tickets for a body."""
    for name, text in (
        ("bytes_a_body", "bytes"),
        ("signatures_checked_a_body", "signatures checked"),
        ("paid_a_body", "units of payment"),
    ):
        found = [each[name] for each in costs]
        if found:
            console.print(f"tickets a body: {min(found)} to {max(found)} {text}")
