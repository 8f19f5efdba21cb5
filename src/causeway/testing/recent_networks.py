"""The networks that a test used last, for the report of a failed test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MAXIMUM = 3
"""Maximum number of networks; a test that creates many, one an example, keeps the last."""


class RecentNetworks:
    """Networks used so far, latest last; ``others``: number of earlier ones."""

    def __init__(self) -> None:
        self.networks: list[Any] = []
        self.others = 0

    def note(self, network: Any) -> None:
        """Record the use of a network."""
        if self.networks and self.networks[-1] is network:
            return
        found = [each for each in self.networks if each is not network]
        self.others += max(len(found) - MAXIMUM + 1, 0)
        self.networks = [*found[-(MAXIMUM - 1) :], network]


_WATCHING: list[RecentNetworks] = []


def note_network(network: Any) -> None:
    """Record the use of a network, if any test is watched.

    Args:
        network: The network.
    """
    if _WATCHING:
        _WATCHING[-1].note(network)


@contextmanager
def watch_networks() -> Iterator[RecentNetworks]:
    """Record the networks used in the body of a ``with`` statement."""
    found = RecentNetworks()
    _WATCHING.append(found)
    try:
        yield found
    finally:
        _WATCHING.remove(found)


__all__ = ["MAXIMUM", "RecentNetworks", "note_network", "watch_networks"]
