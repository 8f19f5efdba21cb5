"""``causeway gossip simulate``: coverage and traffic of thousands of nodes over time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.table import Table

from causeway.cli import output_paths, shell
from causeway.cli.commands.run import explain_claim_wait, run_network
from causeway.cli.options import argument, option
from causeway.cli.output.progress import RunProgress, show_spinner, stdout_console
from causeway.cli.peak_memory import PeakMemory
from causeway.cli.process import InterruptHandler, compile_before_use
from causeway.cli.scenario_options import parse_setting, settings_option

if TYPE_CHECKING:
    from causeway.network.simulation import SimulationResult
    from causeway.scenarios.scenario import Scenario

SIMULATION = "gossip"


def command(
    scenario: Annotated[Path, argument("Scenario file (TOML).")],
    out: Annotated[
        str | None, option("Folder or URI for the tables; default: a temporary one.", "--out", metavar="LAKE")
    ] = None,
    resume: Annotated[bool, option("Continue the simulation in the lake.", "--resume")] = False,
    plot: Annotated[Path | None, option("Draw coverage over time, as SVG.", "--plot", metavar="FILE")] = None,
    settings: Annotated[list[str] | None, settings_option(None)] = None,
    as_json: Annotated[bool, option("Print one JSON object instead of a summary.", "--json")] = False,
) -> int:
    """Simulate queue gossip and report coverage, delay and bandwidth of bodies.

    Every node runs the state machine of a real node. A simulation runs on the tick engine, a chain a node: it can be
    killed and resumed, and gives the same results wherever it runs.

    [bold]Example[/bold]: causeway gossip simulate examples/gossip.toml --plot coverage.svg
    """
    if resume and out is None:
        raise InvalidInput("--resume: needs the lake to continue, as --out LAKE")
    overrides = dict(parse_setting(text) for text in settings or ())
    if plot is not None:
        output_paths.require_svg_target("--plot", plot, out)
    from causeway.network.simulation import load_simulation

    found, about = simulate(load_simulation(SIMULATION, scenario, overrides), out, resume)
    if plot is not None:
        output_paths.write_files({plot: found.plot.encode()}, {plot: "--plot"})
    content: dict[str, Any] = {"scenario": str(scenario), **found.summary, **about, "lake": out}
    if as_json:
        print(json.dumps(content))
    else:
        _show(scenario, found, content)
    return shell.OK if found.holds else shell.FAILED


def simulate(scenario: Scenario, out: str | None, resume: bool) -> tuple[SimulationResult, dict[str, Any]]:
    """Run a simulation and return its result, root, time and memory.

    Args:
        scenario: the simulation.
        out: folder or URI of the lake; None: a temporary one.
        resume: continue the simulation in the lake.

    Returns:
        The result, and the JSON of root, time and memory.

    Raises:
        InvalidInput: the lake cannot be used.
        Interrupted: the user stopped it.
    """
    from causeway.network.network import LakeNetwork
    from causeway.network.simulation import summarize_simulation

    reached: LakeNetwork | None = None
    with PeakMemory() as memory, InterruptHandler() as interrupts:
        try:
            compile_before_use()
            with show_spinner("Starting"):
                network = LakeNetwork(scenario, out, resume=resume, waiting=explain_claim_wait)
            with network:
                reached = network
                interrupts.take()
                started = time.perf_counter()
                watch = RunProgress(Path(scenario.path).name, network.tick, None, counts=False)
                run_network(network, watch, interrupts)
                seconds = time.perf_counter() - started
                with show_spinner("Counting"):
                    found = summarize_simulation(network)
                memory.sample()
                about = {"root": network.root(), "seconds": round(seconds, 3), "peak_memory_bytes": memory.peak_bytes}
                return found, about
        except (KeyboardInterrupt, Exception) as error:
            if not interrupts.asked:
                raise
            if reached is None:
                raise shell.CommandInterrupted("stopped before the first tick") from error
            again = "continue with --resume" if out is not None else "the lake was temporary; use --out to resume"
            raise shell.CommandInterrupted(f"stopped at height {reached.height}; {again}") from error


def _show(scenario: Path, found: SimulationResult, content: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column(overflow="fold")
    for name, text in found.lines:
        table.add_row(name, text)
    table.add_row("root", content["root"])
    table.add_row("took", f"{content['seconds']:,} s, {content['peak_memory_bytes'] >> 20:,} MiB")
    console = stdout_console()
    console.print(f"{scenario.name}: gossip")
    console.print(table)
