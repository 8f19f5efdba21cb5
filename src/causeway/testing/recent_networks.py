"""The networks that a test used last, for who shows what became of their messages where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MAXIMUM = 3
"""So many networks are kept; a test that makes one after the other, as for each example, keeps the last."""


class RecentNetworks:
    """The networks that were used while somebody watched, the last ones last; ``others``: how many there were before
    them."""

    def __init__(self) -> None:
        self.networks: list[Any] = []
        self.others = 0

    def note(self, network: Any) -> None:
        """Take note that a network is used."""
        if self.networks and self.networks[-1] is network:
            return
        found = [each for each in self.networks if each is not network]
        self.others += max(len(found) - MAXIMUM + 1, 0)
        self.networks = [*found[-(MAXIMUM - 1) :], network]


_WATCHING: list[RecentNetworks] = []


def note_network(network: Any) -> None:
    """Take note that a network is used, where anybody watches."""
    if _WATCHING:
        _WATCHING[-1].note(network)


@contextmanager
def watch_networks() -> Iterator[RecentNetworks]:
    """Yield the networks that are used in the body of a ``with`` statement."""
    found = RecentNetworks()
    _WATCHING.append(found)
    try:
        yield found
    finally:
        _WATCHING.remove(found)


__all__ = ["MAXIMUM", "RecentNetworks", "note_network", "watch_networks"]
