"""``causeway explore``: a lake or a ledger in a browser, live."""

from __future__ import annotations

import json
import threading
import webbrowser
from typing import Annotated

from causeway.cli import shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner
from causeway.cli.output_paths import name_ledger_errors, require_place
from causeway.cli.process import compile_before_use
from causeway.cli.scenario_options import ProgramsOfLake, ScenarioOfLake, program_sources
from causeway.core.text import to_one_line

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

    A lake may be running, and a ledger growing: pages show new heights and rows. The command writes nothing
    into it, and other machines cannot reach the address. Ctrl-C ends it.

    [bold]Example[/bold]: causeway explore my-lake --open
    """
    from causeway.explorer.app import bind_loopback, serve_explorer, socket_url
    from causeway.explorer.live import LiveLedger

    require_place("LAKE", lake)
    listening = bind_loopback(port)
    try:
        compile_before_use()
        with name_ledger_errors(lake), show_spinner("Opening"):
            live = LiveLedger(lake, program_sources(scenario, programs))
        where = socket_url(listening)

        def started() -> None:
            print(json.dumps({"lake": lake, "url": where}) if as_json else where, flush=True)
            if not as_json:
                shell.print_line(f"exploring {to_one_line(lake)}; Ctrl-C ends it")
            if open_browser:
                # A browser in the terminal would block here.
                threading.Thread(target=webbrowser.open, args=[where], daemon=True).start()

        serve_explorer(live, listening, started)
    finally:
        listening.close()
    shell.print_line(f"stopped exploring {to_one_line(lake)}")
    return shell.OK
