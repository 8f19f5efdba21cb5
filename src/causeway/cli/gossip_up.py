"""``causeway gossip up``: a network of node processes on this machine."""

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

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.overriding import setting
from causeway.cli.scenario_options import settings_in
from causeway.cli.watch import notes, results

if TYPE_CHECKING:
    from causeway.service.gossip import Gossip, Processes, Verdict

GAP = 1
"""Blanks between two columns."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


PLAYED = "What is played"


def command(
    scenario: Annotated[Path, argument("A scenario of gossip (TOML).")],
    nodes: Annotated[int | None, option("How many processes.", panel=PLAYED)] = None,
    kill: Annotated[int | None, option("How many are killed at random and started again.", panel=PLAYED)] = None,
    blocks: Annotated[int | None, option("How many blocks of the relay chain post queues.", panel=PLAYED)] = None,
    seconds: Annotated[float | None, option("The same as a time.", panel=PLAYED, min=0.0, max=1e6)] = None,
    trace: Annotated[Path | None, option("Record what every node takes, in a new folder.")] = None,
    metrics_port: Annotated[
        int | None,
        option(
            "Serve metrics for Prometheus: of the first node here, of the others at the ports after it; 0: any.",
            min=0,
            max=65535,
        ),
    ] = None,
    settings: Annotated[list[str] | None, settings_in(PLAYED)] = None,
    as_json: Annotated[bool, option("Print one JSON object at the end.", "--json")] = False,
) -> int:
    """Start nodes that gossip, each a process, play a chain to them, kill some, and say whether all got what they need.

    On a terminal a table shows the nodes while they run. Ctrl-C ends all of them.

    [bold]Example[/bold]: causeway gossip up examples/gossip_processes.toml --nodes 16 --kill 4
    """
    from causeway.service.gossip import ProcessOptions

    keys = dict(setting(text) for text in settings or ())
    wanted = ProcessOptions(nodes, kill, blocks, seconds, keys, trace, metrics_port)
    processes = part().processes(scenario, wanted)
    with _shown(processes, as_json):
        verdict = asyncio.run(_run(processes))
    if verdict.stopped:
        if as_json:
            tell(verdict, as_json)
        raise shell.Interrupted(f"interrupted: {verdict.statement}; no process is left")
    if not as_json:
        results().print(_table(processes, results().width))
    tell(verdict, as_json)
    return shell.OK if verdict.holds else shell.BROKEN


async def _run(processes: Processes) -> Verdict:
    stop = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await processes.run(stop)


def part() -> Gossip:
    """Return what runs nodes that gossip."""
    from causeway.protocols.registry import names, protocol

    (name,) = names("gossip")
    found: Gossip = protocol(name).part("gossip")
    return found


def tell(verdict: Verdict, as_json: bool) -> None:
    """Print what a run or a replay came to."""
    if as_json:
        print(json.dumps(verdict.plain))
        return
    results().print(f"{'Holds' if verdict.holds else 'Broken'}: {verdict.statement}.", markup=False)
    for line in verdict.more:
        results().print(f"  {shell.printable(line)}", markup=False)


@contextmanager
def _shown(processes: Processes, as_json: bool) -> Iterator[None]:
    """Show the nodes on a terminal while the body runs."""
    console = notes()
    if as_json or not console.is_terminal:
        yield
        return

    def drawn() -> Group:
        return Group(processes.stage(), _table(processes, console.width))

    with Live(get_renderable=drawn, console=console, refresh_per_second=4, transient=True):
        yield


def _table(processes: Processes, width: int) -> Table:
    """Return the table of the nodes; where a terminal is too narrow, of the first column and of the last ones."""
    rows, room = processes.rows(), width
    shown: list[int] = []
    for column in (0, *range(len(processes.columns) - 1, 0, -1)):
        room -= max(len(text) for text in (processes.columns[column], *(row[column] for row in rows))) + GAP
        if room < -GAP:
            break
        shown.append(column)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for column in sorted(shown):
        table.add_column(processes.columns[column], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[column] for column in sorted(shown)))
    return table
