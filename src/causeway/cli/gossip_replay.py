"""``causeway gossip replay``: what node processes did, played into the state machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from causeway.cli import shell
from causeway.cli.gossip_up import part, tell
from causeway.cli.options import argument, option


def command(
    trace: Annotated[Path, argument("The folder of a trace (gossip up --trace).")],
    as_json: Annotated[bool, option("Print one JSON object.", "--json")] = False,
) -> int:
    """Play what processes recorded into the state machine of all nodes at once, and compare what each node got.

    [bold]Example[/bold]: causeway gossip replay my-trace
    """
    verdict = part().replayed(trace)
    tell(verdict, as_json)
    return shell.OK if verdict.holds else shell.BROKEN
