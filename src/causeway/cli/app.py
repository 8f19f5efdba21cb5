"""The commands, put together."""

from __future__ import annotations

import importlib
import os
from typing import Annotated

import typer

from causeway.cli import completion
from causeway.cli.helping import add
from causeway.cli.options import option
from causeway.cli.shell import EPILOG
from causeway.model.errors import InvalidInput

RUN = "Run a network"
LOOK = "Look at what happened"
PROOFS = "Proofs"
SERVE = "Networks of several deployments"
REST = "The command line itself"


_COMMAND, _BUILT, _GROUP = "command", "built", "group"
"""What the module of a command has: the command, a function that makes it, one that makes a group of commands."""

COMMANDS = {
    "demo": (RUN, _COMMAND),
    "run": (RUN, _COMMAND),
    "compare": (RUN, _COMMAND),
    "state": (LOOK, _COMMAND),
    "prove": (PROOFS, _BUILT),
    "verify": (PROOFS, _COMMAND),
    "audit": (LOOK, _COMMAND),
    "calls": (LOOK, _COMMAND),
    "latency": (LOOK, _COMMAND),
    "backlog": (LOOK, _COMMAND),
    "ledger": (LOOK, _COMMAND),
    "report": (LOOK, _COMMAND),
    "trace": (LOOK, _COMMAND),
    "explore": (LOOK, _COMMAND),
    "check": (RUN, _COMMAND),
    "ingest": (LOOK, _COMMAND),
    "vacuum": (RUN, _COMMAND),
    "serve": (SERVE, _COMMAND),
    "relay": (SERVE, _BUILT),
    "send": (SERVE, _COMMAND),
    "completion": (REST, _COMMAND),
    "manual": (REST, _COMMAND),
    "gossip": (SERVE, _GROUP),
    "key": (SERVE, _GROUP),
}
"""The commands, each in the module of its name: where the help names it, and what that module has."""


def build(asked: str | None = None) -> typer.Typer:
    """Return the command line as a Typer application.

    ``asked``: the command that will be run: if it is one of them, the others are left out, and not imported.
    """
    completion.begin()
    app = typer.Typer(
        name="causeway",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(epilog=EPILOG, invoke_without_command=True)
    def causeway_command(
        context: typer.Context,
        version: Annotated[
            bool, option("Print the versions of Causeway and of what it stands on, and exit.", "--version")
        ] = False,
        as_json: Annotated[bool, option("With --version: print one JSON object.", "--json")] = False,
    ) -> None:
        """Execute inter-chain messaging protocols and check that every message is delivered once and in order.

        Everything runs on your machines, on generated or recorded traffic; no live chain is contacted.

        [bold]Example[/bold]: causeway demo
        """
        if version:
            from causeway.cli.versions import show

            show(as_json)
            raise typer.Exit
        if as_json:
            raise InvalidInput("--json: without a command only with --version; else after the command")
        if context.invoked_subcommand is None:
            raise InvalidInput("a command is missing (see causeway --help)")

    for name in [asked] if asked in COMMANDS and completion.COMPLETE not in os.environ else COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    module = importlib.import_module(f"causeway.cli.{name}")
    panel, how = COMMANDS[name]
    if how == _GROUP:
        app.add_typer(module.build(), name=name, rich_help_panel=panel)
    else:
        command = module.command if how == _COMMAND else module.build()
        add(app, name, command, panel=panel)
