"""What the fixtures of the pytest plugin are, for tests that say the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from causeway.testing.deploys import CALLER_BALANCE, Deploy
from causeway.testing.network import Network
from causeway.testing.words import ProtocolName


class MakeNetwork(Protocol):
    """The fixture ``causeway_network``: makes networks as ``Network`` does, under the protocol of the test."""

    def __call__(
        self,
        chains: int | Iterable[str | Mapping[str, Any]] = 2,
        programs: Iterable[Deploy] = (),
        *,
        protocol: ProtocolName = ...,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        faults: Iterable[Mapping[str, Any]] = (),
        skip: float = 0.0,
        seconds_per_tick: float = 1.0,
        callers: int | None = CALLER_BALANCE,
        run_twice: bool = True,
    ) -> Network:
        """Return a network; arguments as of ``Network``."""
        ...


ForkNetwork: TypeAlias = Callable[[Callable[[MakeNetwork], Network]], Network]
"""The fixture ``causeway_fork``: gives a fork of the network that a function builds, which it calls once."""

__all__ = ["ForkNetwork", "MakeNetwork"]
