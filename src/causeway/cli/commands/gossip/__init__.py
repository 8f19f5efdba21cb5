"""``causeway gossip``: nodes that gossip message queues of chains."""

from __future__ import annotations

import typer

from causeway.cli.commands.gossip import incentives, simulate, up
from causeway.cli.help import add_command


def build() -> typer.Typer:
    """Build the group of commands, one file each."""
    app = typer.Typer(no_args_is_help=True, help="Nodes that gossip the queues which chains post for each other.")
    add_command(app, "simulate", simulate.command, "gossip")
    add_command(app, "incentives", incentives.command, "gossip")
    add_command(app, "relay-chain", up.relay_chain, "gossip")
    add_command(app, "up", up.up, "gossip")
    add_command(app, "replay", up.replay, "gossip")
    return app
