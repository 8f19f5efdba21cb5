"""``causeway gossip relay-chain``: the relay chain that a run made, for simulations of gossip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from causeway.cli import places, shell
from causeway.cli.gossip_up import part
from causeway.cli.options import argument, option
from causeway.cli.scenario_options import ProgramsOfLake, ScenarioOfLake, sources_in
from causeway.cli.watch import results, waiting


def command(
    lake: Annotated[str, argument("Folder or URI of a lake of parachains.")],
    out: Annotated[Path, option("Write the table here.", "--out", metavar="FILE")],
    scenario: ScenarioOfLake = None,
    programs: ProgramsOfLake = None,
    overwrite: Annotated[bool, option("Write over a file that is there.", "--overwrite")] = False,
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Write the relay chain of a lake as a table: a simulation of gossip (relay.table) carries what the run posted.

    [bold]Example[/bold]: causeway gossip relay-chain my-lake --out relay.parquet
    """
    places.writable("--out", out, lake)
    places.unused("--out", out, overwrite=overwrite)
    with waiting("Reading"):
        found = part().relay_chain(lake, sources_in(scenario, programs), out)
    if as_json:
        print(json.dumps(dict(found)))
        return shell.OK
    console = results()
    console.print(", ".join(f"{name.replace('_', ' ')}: {number:,}" for name, number in found.items()), markup=False)
    console.print(f"Next: --set relay.table={out} --set relay.interval={found['interval']}", markup=False)
    return shell.OK
