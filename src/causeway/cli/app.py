"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from causeway.cli import (
    audit,
    backlog,
    calls,
    check,
    compare,
    completion,
    demo,
    explore,
    gossip,
    ingest,
    key,
    latency,
    ledger,
    prove,
    relay,
    report,
    run,
    send,
    serve,
    state,
    trace,
    vacuum,
    verify,
)
from causeway.cli.shell import EPILOG
from causeway.model.errors import InvalidInput

RUN = "Run a network"
LOOK = "Look at what happened"
PROOFS = "Proofs"
SERVE = "Networks of several deployments"
REST = "The command line itself"


def build() -> typer.Typer:
    """Return the command line as a Typer application."""
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
            bool, typer.Option("--version", help="Print the versions of Causeway and of what it stands on, and exit.")
        ] = False,
        as_json: Annotated[bool, typer.Option("--json", help="With --version: print one JSON object.")] = False,
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

    app.command("demo", epilog=EPILOG, rich_help_panel=RUN)(demo.command)
    app.command("run", epilog=EPILOG, rich_help_panel=RUN)(run.command)
    app.command("compare", epilog=EPILOG, rich_help_panel=RUN)(compare.command)
    app.command("state", epilog=EPILOG, rich_help_panel=LOOK)(state.command)
    app.command("prove", epilog=EPILOG, rich_help_panel=PROOFS)(prove.build())
    app.command("verify", epilog=EPILOG, rich_help_panel=PROOFS)(verify.command)
    app.command("audit", epilog=EPILOG, rich_help_panel=LOOK)(audit.command)
    app.command("calls", epilog=EPILOG, rich_help_panel=LOOK)(calls.command)
    app.command("latency", epilog=EPILOG, rich_help_panel=LOOK)(latency.command)
    app.command("backlog", epilog=EPILOG, rich_help_panel=LOOK)(backlog.command)
    app.command("ledger", epilog=EPILOG, rich_help_panel=LOOK)(ledger.command)
    app.command("report", epilog=EPILOG, rich_help_panel=LOOK)(report.command)
    app.command("trace", epilog=EPILOG, rich_help_panel=LOOK)(trace.command)
    app.command("explore", epilog=EPILOG, rich_help_panel=LOOK)(explore.command)
    app.command("check", epilog=EPILOG, rich_help_panel=RUN)(check.command)
    app.command("ingest", epilog=EPILOG, rich_help_panel=LOOK)(ingest.command)
    app.command("vacuum", epilog=EPILOG, rich_help_panel=RUN)(vacuum.command)
    app.command("serve", epilog=EPILOG, rich_help_panel=SERVE)(serve.command)
    app.command("relay", epilog=EPILOG, rich_help_panel=SERVE)(relay.build())
    app.command("send", epilog=EPILOG, rich_help_panel=SERVE)(send.command)
    app.command("completion", epilog=EPILOG, rich_help_panel=REST)(completion.command)
    app.add_typer(gossip.build(), name="gossip", rich_help_panel=SERVE)
    app.add_typer(key.build(), name="key", rich_help_panel=SERVE)
    return app
