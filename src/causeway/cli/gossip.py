"""``causeway gossip``: nodes that gossip what chains post for each other."""

from __future__ import annotations

import typer

from causeway.cli import gossip_chain, gossip_replay, gossip_simulate, gossip_up, shell


def build() -> typer.Typer:
    """Return the commands, one file each."""
    app = typer.Typer(no_args_is_help=True, help="Nodes that gossip the queues which chains post for each other.")
    app.command("simulate", epilog=shell.EPILOG)(gossip_simulate.command)
    app.command("relay-chain", epilog=shell.EPILOG)(gossip_chain.command)
    app.command("up", epilog=shell.EPILOG)(gossip_up.command)
    app.command("replay", epilog=shell.EPILOG)(gossip_replay.command)
    return app
