"""``causeway completion``: shell scripts, and the completion of names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from causeway_proofs.errors import InvalidInput

from causeway.cli import shell
from causeway.cli.options import argument, option

COMPLETE = "_CAUSEWAY_COMPLETE"
"""Environment variable of a shell's completion request."""

Completed = Callable[[str], list[str]]


class Shell(StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def begin_completion() -> None:
    """Prepare for a completion request, if a shell started this process for one."""
    if COMPLETE in os.environ:
        from typer import completion

        completion.completion_init()  # type: ignore[attr-defined]


def command(
    name: Annotated[Shell, argument("bash, zsh or fish.", metavar="SHELL")],
    install: Annotated[bool, option("Write it where the shell looks for it when it starts.", "--install")] = False,
) -> int:
    """Print what a shell needs to complete commands, options, and names of protocols, checks, tables and files.

    For this session: source <(causeway completion bash), or causeway completion fish | source. --install writes it
    into your home folder, for sessions that start from then on.

    [bold]Example[/bold]: causeway completion bash --install
    """
    from typer import completion

    completion.completion_init()  # type: ignore[attr-defined]
    if install:
        try:
            _, path = completion.install(  # type: ignore[attr-defined]
                shell=name.value, prog_name="causeway", complete_var=COMPLETE
            )
        except OSError as error:
            raise InvalidInput(f"--install: {error.filename}: cannot be written: {error.strerror}") from None
        shell.print_line(f"completions for {name.value} are in {path}; shells that start from now on have them")
        return shell.OK
    script = completion.get_completion_script(  # type: ignore[attr-defined]
        prog_name="causeway", complete_var=COMPLETE, shell=name.value
    )
    print(script)
    return shell.OK


# ---- names -------------------------------------------------------------------------------------


def complete_names(names: Callable[[], list[str]]) -> Completed:
    """Return a completion function for names.

    Args:
        names: returns the names; called on demand.

    Returns:
        The completion function.
    """
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _protocols() -> list[str]:
    from causeway.protocols.registry import protocol_names

    return [*protocol_names()]


def _checks() -> list[str]:
    from causeway.audit.engine import CHECK_NAMES

    return [*CHECK_NAMES]


def _kinds() -> list[str]:
    from causeway.cli.lake_import import LAKE_KIND
    from causeway.ledger.ingest import mapping_names

    return [*mapping_names(), LAKE_KIND, *_table_formats()]


def _table_formats() -> list[str]:
    from causeway.ledger.table_formats.formats import FORMATS

    return [*FORMATS]


complete_protocols = complete_names(_protocols)
complete_checks = complete_names(_checks)
complete_traffic_kinds = complete_names(_kinds)
complete_table_formats = complete_names(_table_formats)
complete_executors = complete_names(lambda: ["spark", "in_process"])
complete_audit_executors = complete_names(lambda: ["auto", "in_process", "spark"])


def complete_scenarios(incomplete: str) -> list[str]:
    """Return the TOML files and folders with a path prefix.

    Args:
        incomplete: the prefix.

    Returns:
        The paths.
    """
    return _files(incomplete, ".toml")


def complete_places(incomplete: str) -> list[str]:
    """Return the folders with a path prefix.

    Args:
        incomplete: the prefix.

    Returns:
        The paths.
    """
    return _files(incomplete, None)


def _files(incomplete: str, ending: str | None) -> list[str]:
    found = [*_entries(incomplete, ending)]
    if len(found) == 1 and found[0].endswith("/"):
        # With its content beside it, shells do not add a blank after a folder.
        found += _entries(found[0], ending)
    return found


def _entries(incomplete: str, ending: str | None) -> Iterator[str]:
    given, slash, begin = incomplete.rpartition("/")
    try:
        found = sorted(Path(f"{given}{slash}" or ".").expanduser().iterdir())
    except (OSError, RuntimeError):
        return
    for path in found:
        if not path.name.startswith(begin) or (path.name.startswith(".") and not begin):
            continue
        if path.is_dir():
            yield f"{given}{slash}{path.name}/"
        elif ending is not None and path.name.endswith(ending):
            yield f"{given}{slash}{path.name}"


def complete_state_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the state tables of the lake on the command line, if readable.

    Args:
        context: the context of the command.
        incomplete: the prefix.

    Returns:
        The names.
    """
    from causeway_proofs.errors import CausewayError

    from causeway.storage.lake import Lake
    from causeway.storage.table_schemas import TableSchemas

    given = [context.params.get("lake"), *context.args]  # unparsed arguments are still in the context as given
    place = next((each for each in given if isinstance(each, str)), None)
    if place is None or "://" in place:
        return []
    try:
        tables = TableSchemas.decoded(Lake.at(place).about()["tables"]).state
    except (CausewayError, OSError, LookupError, TypeError):
        return []
    return sorted(name for name in tables if name.startswith(incomplete))
