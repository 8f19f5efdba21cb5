"""``causeway gossip simulate``: thousands of nodes, and who got what when."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from causeway.cli import places, shell
from causeway.cli.compiling import compile_first
from causeway.cli.interrupts import Interrupts
from causeway.cli.memory import PeakMemory
from causeway.cli.options import argument, option
from causeway.cli.overriding import setting
from causeway.cli.run import claim_is_watched
from causeway.cli.scenario_options import settings_in
from causeway.cli.watch import Watch, results, waiting
from causeway.model.errors import InvalidInput

if TYPE_CHECKING:
    from causeway.network.network import Network
    from causeway.network.scenario import Scenario
    from causeway.network.simulated import Found
    from causeway.pipeline.lake import Manifest

SIMULATION = "gossip"


def command(
    scenario: Annotated[Path, argument("Scenario file (TOML).")],
    out: Annotated[
        str | None, option("Folder or URI for the tables; default: a temporary one.", "--out", metavar="LAKE")
    ] = None,
    resume: Annotated[bool, option("Continue the simulation in the lake.", "--resume")] = False,
    plot: Annotated[Path | None, option("Draw coverage over time, as SVG.", "--plot", metavar="FILE")] = None,
    settings: Annotated[list[str] | None, settings_in(None)] = None,
    as_json: Annotated[bool, option("Print one JSON object instead of a summary.", "--json")] = False,
) -> int:
    """Simulate nodes that gossip queues: how many bodies are where they are needed, when, and for how many bytes.

    Every node runs the state machine of a real node. A simulation runs on the tick engine, a chain a node: it can be
    killed and resumed, and gives the same results wherever it runs.

    [bold]Example[/bold]: causeway gossip simulate examples/gossip.toml --plot coverage.svg
    """
    if resume and out is None:
        raise InvalidInput("--resume: needs the lake to continue, as --out LAKE")
    overrides = dict(setting(text) for text in settings or ())
    if plot is not None:
        places.drawing("--plot", plot, out)
    from causeway.network.simulated import load_simulation

    found, about = simulate(load_simulation(SIMULATION, scenario, overrides), out, resume)
    if plot is not None:
        places.write({plot: found.plot.encode()}, {plot: "--plot"})
    content: dict[str, Any] = {"scenario": str(scenario), **found.summary, **about, "lake": out}
    if as_json:
        print(json.dumps(content))
    else:
        _show(scenario, found, content)
    return shell.OK if found.holds else shell.BROKEN


def simulate(scenario: Scenario, out: str | None, resume: bool) -> tuple[Found, dict[str, Any]]:
    """Run a simulation and return what it found, and its root, time and memory.

    Args:
        scenario: The simulation.
        out: Folder or URI of the lake; None for a temporary one.
        resume: Continue the simulation in the lake.

    Raises:
        InvalidInput: The lake cannot be used.
        Interrupted: The user stopped it.
    """
    from causeway.network.network import Network
    from causeway.network.simulated import found_in

    reached: Network | None = None
    with PeakMemory() as memory, Interrupts() as interrupts:
        try:
            compile_first()
            with waiting("Starting"):
                network = Network(scenario, out, resume=resume, waiting=claim_is_watched)
            with network:
                reached = network
                interrupts.take()
                started = time.perf_counter()
                _ticks(network, Path(scenario.path).name, interrupts)
                seconds = time.perf_counter() - started
                with waiting("Counting"):
                    found = found_in(network)
                memory.sample()
                about = {"root": network.root(), "seconds": round(seconds, 3), "peak_memory_bytes": memory.peak_bytes}
                return found, about
        except (KeyboardInterrupt, Exception) as error:
            if not interrupts.asked:
                raise
            if reached is None:
                raise shell.Interrupted("stopped before the first tick") from error
            again = "continue with --resume" if out is not None else "the lake was temporary; use --out to resume"
            raise shell.Interrupted(f"stopped at height {reached.height}; {again}") from error


def _ticks(network: Network, title: str, interrupts: Interrupts) -> None:
    watch = Watch(title, network.tick, None, counts=False)

    def committed(manifest: Manifest) -> None:
        watch(manifest)
        if interrupts.asked:
            raise KeyboardInterrupt

    interrupts.gentle = True
    with watch:
        network.run(progress=committed)
    interrupts.gentle = False


def _show(scenario: Path, found: Found, content: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(justify="right", style="bold")
    table.add_column(overflow="fold")
    for name, text in found.lines:
        table.add_row(name, text)
    table.add_row("root", content["root"])
    table.add_row("took", f"{content['seconds']:,} s, {content['peak_memory_bytes'] >> 20:,} MiB")
    console = results()
    console.print(f"{scenario.name}: gossip")
    console.print(table)
