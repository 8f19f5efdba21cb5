"""``causeway prove``: proofs of what a chain has committed to, taken from a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from causeway.cli import shell
from causeway.cli.declared import declared, merged, parts, refuse_others
from causeway.cli.watch import results, waiting
from causeway.model.errors import InvalidInput
from causeway.model.text import readable
from causeway.protocols.command_options import FileOption


def _command(
    lake: Annotated[str, typer.Argument(help="Folder or URI of a lake.", show_default=False)],
    height: Annotated[
        int | None, typer.Option(help="A committed height; without it the last.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the proof here.", show_default=False)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the proof, one JSON object, and nothing else.")
    ] = False,
    **given: Any,
) -> int:
    from causeway.network.opened import open_lake
    from causeway.proving.prover import prover_of

    files: dict[FileOption, Path | None] = {option: given[option.name] for option in FILES}
    places = [path for path in (out, *files.values()) if path is not None]
    if len(set(places)) < len(places):
        flags = ", ".join(("--out", *(option.flag for option in FILES)))
        raise InvalidInput(f"{flags}: name a file of its own for each")
    with waiting("Reading"):
        opened = open_lake(lake)
        prover = prover_of(opened)
        refuse_others(given, (*OPTIONS, *FILES), (*prover.options, *prover.files), opened.protocol)
        proved = prover.prove(opened, height, given)
    written = [(out, proved.document)]
    written += [(path, proved.beside[option.name]) for option, path in files.items() if option.name in proved.beside]
    for path, content in written:
        if path is not None:
            path.write_text(json.dumps(content, indent=1) + "\n")
    if as_json:
        print(json.dumps(proved.document))
        return shell.OK
    console = results()
    for line in proved.lines:
        console.print(Text(line), soft_wrap=True)
    if out is None:
        console.print("Nothing is kept: --out FILE writes the proof, --json prints it.")
    else:
        trusted = [f" {option.verified_by} {path}" for option, path in files.items() if option.verified_by and path]
        console.print(Text(f"Next: causeway verify {readable(str(out))}{readable(''.join(trusted))}"), soft_wrap=True)
    return shell.OK


_PROVERS = parts("prover")
OPTIONS = merged([prover.options for prover in _PROVERS])
FILES = list({option.name: option for prover in _PROVERS for option in prover.files}.values())

command = declared(_command, "\n\n".join(prover.about for prover in _PROVERS), {"lake": OPTIONS, "out": FILES})
