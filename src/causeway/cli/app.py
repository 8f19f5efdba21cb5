"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import causeway
from causeway.cli import (
    audit,
    check,
    demo,
    explore,
    gossip,
    ingest,
    key,
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


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"causeway {causeway.__version__}")
        raise typer.Exit


def build() -> typer.Typer:
    """Return the command line as a Typer application."""
    app = typer.Typer(
        name="causeway",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(epilog=EPILOG)
    def causeway_command(
        version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        """Execute inter-chain messaging protocols and check that every message is delivered once and in order.

        Everything runs on your machines, on generated or recorded traffic; no live chain is contacted.

        [bold]Example[/bold]: causeway demo
        """

    app.command("demo", epilog=EPILOG)(demo.command)
    app.command("run", epilog=EPILOG)(run.command)
    app.command("state", epilog=EPILOG)(state.command)
    app.command("prove", epilog=EPILOG)(prove.build())
    app.command("verify", epilog=EPILOG)(verify.command)
    app.command("audit", epilog=EPILOG)(audit.command)
    app.command("ledger", epilog=EPILOG)(ledger.command)
    app.command("report", epilog=EPILOG)(report.command)
    app.command("trace", epilog=EPILOG)(trace.command)
    app.command("explore", epilog=EPILOG)(explore.command)
    app.command("check", epilog=EPILOG)(check.command)
    app.command("ingest", epilog=EPILOG)(ingest.command)
    app.command("vacuum", epilog=EPILOG)(vacuum.command)
    app.command("serve", epilog=EPILOG)(serve.command)
    app.command("relay", epilog=EPILOG)(relay.build())
    app.command("send", epilog=EPILOG)(send.command)
    app.add_typer(gossip.build(), name="gossip")
    app.add_typer(key.build(), name="key")
    return app
