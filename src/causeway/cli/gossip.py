"""``causeway gossip``: nodes that gossip what chains post for each other."""

from __future__ import annotations

import typer

from causeway.cli import gossip_chain, gossip_incentives, gossip_replay, gossip_simulate, gossip_up
from causeway.cli.helping import add


def build() -> typer.Typer:
    """Return the commands, one file each."""
    app = typer.Typer(no_args_is_help=True, help="Nodes that gossip the queues which chains post for each other.")
    add(app, "simulate", gossip_simulate.command, "gossip")
    add(app, "incentives", gossip_incentives.command, "gossip")
    add(app, "relay-chain", gossip_chain.command, "gossip")
    add(app, "up", gossip_up.command, "gossip")
    add(app, "replay", gossip_replay.command, "gossip")
    return app
