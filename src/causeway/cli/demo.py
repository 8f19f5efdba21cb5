"""``causeway demo``."""

from __future__ import annotations


def command() -> int:
    """Run a generated network.

    [bold]Example[/bold]: causeway demo
    """
    return 0
