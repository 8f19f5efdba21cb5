"""``causeway prove``: proofs of a chain's commitments, created from a lake."""

from __future__ import annotations

import json
import shlex
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

from causeway_proofs.errors import InvalidInput
from rich.text import Text

from causeway.cli import output_paths, shell
from causeway.cli.options import argument, option
from causeway.cli.output.progress import show_spinner, stdout_console
from causeway.cli.protocol_options import (
    DeclaringCommand,
    declare_options,
    merge_options,
    protocol_parts,
    reject_other_options,
)
from causeway.cli.scenario_options import ProgramsOfLake, ScenarioOfLake, program_sources
from causeway.core.text import to_one_line
from causeway.protocols.shared.command_options import CommandOption, FileOption

PROVE_HELP = "Extract a proof of committed state from a lake, for causeway verify."

PROVED, WRITTEN = "Selection", "Output"


def _command(
    lake: Annotated[str, argument("Folder or URI of a lake.")],
    height: Annotated[
        int | None, option("A committed height; default: the last, or the last that is certified.")
    ] = None,
    out: Annotated[Path | None, option("Write the proof here.", metavar="FILE", panel=WRITTEN)] = None,
    overwrite: Annotated[bool, option("Overwrite existing files.", "--overwrite", panel=WRITTEN)] = False,
    scenario: ScenarioOfLake = None,
    programs: ProgramsOfLake = None,
    as_json: Annotated[bool, option("Print only the proof, as one JSON object.", "--json")] = False,
    **given: Any,
) -> int:
    from causeway.network.opened_lake import open_lake
    from causeway.proving.prover import NotAtHeight, create_prover

    files: dict[FileOption, Path | None] = {option: given[option.name] for option in _files()}
    flags = {"--out": out, **{option.flag: path for option, path in files.items()}}
    named = [(flag, path) for flag, path in flags.items() if path is not None]
    if len({path for _, path in named}) < len(named):
        raise InvalidInput(f"{', '.join(flag for flag, _ in named)}: give each a different file")
    for flag, path in named:
        output_paths.require_writable(flag, path, lake)
        output_paths.refuse_overwrite(flag, path, overwrite=overwrite)
    with show_spinner("Reading"):
        opened = open_lake(lake, program_sources(scenario, programs))
        prover = create_prover(opened)
        reject_other_options(given, (*_options(), *files), (*prover.options, *prover.files), opened.protocol)
        try:
            proved = prover.prove(opened, height, given)
        except NotAtHeight as error:
            other = "give another --height" if height is None else "leave --height out, or give another"
            raise InvalidInput(f"{error}: {other}") from None
    written: dict[str, Any] = {"--out": proved.document}
    written |= {option.flag: proved.beside[option.name] for option in files if option.name in proved.beside}
    contents = {path: _bytes(written[flag]) for flag, path in named if flag in written}
    output_paths.write_files(contents, {path: flag for flag, path in named})
    if as_json:
        print(json.dumps(proved.document))
        return shell.OK
    console = stdout_console()
    for line in proved.lines:
        console.print(Text(line), soft_wrap=True)
    if out is None:
        console.print("The proof was not written: --out FILE writes it, --json prints it.")
    else:
        trusted = [(option.verified_by, path) for option, path in files.items() if option.verified_by and path]
        how = "".join(f" {flag} {shlex.quote(str(path))}" for flag, path in trusted)
        if not how:
            own = "trust" in proved.document or "root" in proved.document
            how = " --self-consistent" if own else " --trust FILE (--trust-out writes it)"
        console.print(
            Text(f"Next: causeway verify {to_one_line(shlex.quote(str(out)))}{to_one_line(how)}"), soft_wrap=True
        )
    return shell.OK


def _bytes(content: Any) -> bytes:
    return content if isinstance(content, bytes) else f"{json.dumps(content, indent=1)}\n".encode()


def _options() -> list[CommandOption]:
    return merge_options([prover.options for prover in protocol_parts("prover")])


def _files() -> list[FileOption]:
    return list({option.name: option for prover in protocol_parts("prover") for option in prover.files}.values())


def build() -> DeclaringCommand:
    """Build the command with the prover options of all protocols.

    Returns:
        The command.
    """
    about = "\n\n".join((PROVE_HELP, *(cleandoc(prover.about) for prover in protocol_parts("prover"))))
    return declare_options(_command, about, {"lake": _options(), "out": _files()}, {"lake": PROVED, "out": WRITTEN})
