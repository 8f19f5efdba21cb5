"""``causeway explore``: a lake or a ledger in a browser, as it grows."""

from __future__ import annotations

import json
import threading
import webbrowser
from typing import Annotated

from causeway.cli import shell
from causeway.cli.compiling import compile_first
from causeway.cli.options import argument, option
from causeway.cli.places import ledger_at, require_place
from causeway.cli.scenario_options import ProgramsOfLake, ScenarioOfLake, sources_in
from causeway.cli.watch import waiting
from causeway.model.text import readable

PORT = 8430


def command(
    lake: Annotated[str, argument("Folder or URI of a lake of a run, or of a ledger.")],
    port: Annotated[int, option("Port of this machine; 0: any free port.", min=0, max=65535, show_default=True)] = PORT,
    open_browser: Annotated[bool, option("Open the address in the browser.", "--open")] = False,
    scenario: ScenarioOfLake = None,
    programs: ProgramsOfLake = None,
    as_json: Annotated[bool, option("Print the address as one JSON object.", "--json")] = False,
) -> int:
    """Show a lake or a ledger in a browser: network, lanes, messages and their proofs, heights, findings.

    A lake may be running, and a ledger growing: pages take in what is new. Nothing is written into it, and no other
    machine reaches the address. Ctrl-C ends it.

    [bold]Example[/bold]: causeway explore my-lake --open
    """
    from causeway.explorer.live import Live
    from causeway.explorer.serving import address, explore, listening_at

    require_place("LAKE", lake)
    listening = listening_at(port)
    try:
        compile_first()
        with ledger_at(lake), waiting("Opening"):
            live = Live(lake, sources_in(scenario, programs))
        where = address(listening)

        def started() -> None:
            print(json.dumps({"lake": lake, "url": where}) if as_json else where, flush=True)
            if not as_json:
                shell.tell(f"exploring {readable(lake)}; Ctrl-C ends it")
            if open_browser:
                # A browser of a terminal would wait here until it is closed.
                threading.Thread(target=webbrowser.open, args=[where], daemon=True).start()

        explore(live, listening, started)
    finally:
        listening.close()
    shell.tell(f"stopped exploring {readable(lake)}")
    return shell.OK
