"""``causeway gossip up``, ``relay-chain`` and ``replay``: gossip between processes.

``up`` runs a network of node processes on this machine. ``relay-chain`` exports the relay chain of a run for
simulations of gossip. ``replay`` plays the trace of node processes into the state machine.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Group
from rich.live import Live
from rich.table import Table

from causeway.cli import output_paths, scenario_options, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stderr_console, stdout_console

if TYPE_CHECKING:
    from causeway.gossip.options import GossipProcesses, NodeProcesses, RunVerdict

COLUMN_GAP = 1
"""Blanks between two columns."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


PLAYED_FILE = "Workload"


def up(
    scenario: Annotated[Path, argument("A scenario of gossip (TOML).")],
    nodes: Annotated[int | None, option("Number of processes.", panel=PLAYED_FILE)] = None,
    kill: Annotated[int | None, option("Number of processes to kill at random and restart.", panel=PLAYED_FILE)] = None,
    blocks: Annotated[int | None, option("Number of relay-chain blocks that post queues.", panel=PLAYED_FILE)] = None,
    seconds: Annotated[
        float | None,
        option("The same as a duration in seconds, instead of --blocks.", panel=PLAYED_FILE, min=0.0, max=1e6),
    ] = None,
    trace: Annotated[Path | None, option("Record the inputs of every node in a new folder.")] = None,
    metrics_port: Annotated[
        int | None,
        option(
            "Port of the first node's Prometheus metrics; the other nodes use the next ports; 0: any.",
            min=0,
            max=65535,
        ),
    ] = None,
    settings: Annotated[list[str] | None, scenario_options.settings_option(PLAYED_FILE)] = None,
    as_json: Annotated[bool, option("Print one JSON object at the end.", "--json")] = False,
) -> int:
    """Run gossip nodes as processes, kill some, and check that all received the bodies they need.

    On a terminal a table shows the nodes while they run. Ctrl-C ends all of them.

    [bold]Example[/bold]: causeway gossip up examples/gossip_processes.toml --nodes 16 --kill 4
    """
    from causeway.gossip.options import ProcessOptions

    keys = dict(scenario_options.parse_setting(text) for text in settings or ())
    wanted = ProcessOptions(nodes, kill, blocks, seconds, keys, trace, metrics_port)
    processes = gossip_runner().processes(scenario, wanted)
    with _live_table(processes, as_json):
        verdict = asyncio.run(_run(processes))
    if verdict.stopped:
        if as_json:
            print_result(verdict, as_json)
        raise shell.CommandInterrupted(f"interrupted: {verdict.statement}; no process is left")
    if not as_json:
        stdout_console().print(_table(processes, stdout_console().width))
    print_result(verdict, as_json)
    return shell.OK if verdict.holds else shell.FAILED


async def _run(processes: NodeProcesses) -> RunVerdict:
    stop = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await processes.run(stop)


def gossip_runner() -> GossipProcesses:
    """Return the runner of gossip node processes."""
    from causeway.protocols.registry import find_protocol, protocol_names

    (name,) = protocol_names("gossip")
    found: GossipProcesses = find_protocol(name).part("gossip")
    return found


def print_result(verdict: RunVerdict, as_json: bool) -> None:
    """Print the result of a run or a replay.

    Args:
        verdict: the verdict.
        as_json: print JSON.
    """
    if as_json:
        print(json.dumps(verdict.plain))
        return
    stdout_console().print(f"{'Holds' if verdict.holds else 'Broken'}: {verdict.statement}.", markup=False)
    for line in verdict.more:
        stdout_console().print(f"  {shell.to_printable(line)}", markup=False)


@contextmanager
def _live_table(processes: NodeProcesses, as_json: bool) -> Iterator[None]:
    """Show the nodes on a terminal while the body runs."""
    console = stderr_console()
    if as_json or not console.is_terminal:
        yield
        return

    def render() -> Group:
        return Group(processes.stage(), _table(processes, console.width))

    with Live(get_renderable=render, console=console, refresh_per_second=4, transient=True):
        yield


def _table(processes: NodeProcesses, width: int) -> Table:
    """Return the table of the nodes; a narrow terminal has the first and the last columns."""
    rows, room = processes.rows(), width
    visible: list[int] = []
    for column in (0, *range(len(processes.columns) - 1, 0, -1)):
        room -= max(len(text) for text in (processes.columns[column], *(row[column] for row in rows))) + COLUMN_GAP
        if room < -COLUMN_GAP:
            break
        visible.append(column)
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0))
    for column in sorted(visible):
        table.add_column(processes.columns[column], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[column] for column in sorted(visible)))
    return table


def relay_chain(
    lake: Annotated[str, argument("Folder or URI of a lake of parachains.")],
    out: Annotated[Path, option("Write the table here.", "--out", metavar="FILE")],
    scenario: scenario_options.ScenarioOfLake = None,
    programs: scenario_options.ProgramsOfLake = None,
    overwrite: Annotated[bool, option("Overwrite an existing file.", "--overwrite")] = False,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Export the relay chain of a lake as a table for gossip simulations (relay.table).

    [bold]Example[/bold]: causeway gossip relay-chain my-lake --out relay.parquet
    """
    output_paths.require_writable("--out", out, lake)
    output_paths.refuse_overwrite("--out", out, overwrite=overwrite)
    with show_spinner("Reading"):
        found = gossip_runner().relay_chain(lake, scenario_options.program_sources(scenario, programs), out)
    if as_json:
        print(json.dumps(dict(found)))
        return shell.OK
    console = stdout_console()
    console.print(", ".join(f"{name.replace('_', ' ')}: {number:,}" for name, number in found.items()), markup=False)
    console.print(f"Next: --set relay.table={out} --set relay.interval={found['interval']}", markup=False)
    return shell.OK


def replay(
    trace: Annotated[Path, argument("The folder of a trace (gossip up --trace).")],
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Replay a recorded trace in the simulator and compare the inputs of every node.

    [bold]Example[/bold]: causeway gossip replay my-trace
    """
    verdict = gossip_runner().replayed(trace)
    print_result(verdict, as_json)
    return shell.OK if verdict.holds else shell.FAILED
