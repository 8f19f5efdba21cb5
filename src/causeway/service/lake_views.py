"""What a served lake says of itself, whatever its protocol, as objects that JSON can hold.

Bytes are hexadecimal, times are nanoseconds of block time. All is read from committed heights, by any number of
threads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake

KEPT_MANIFESTS = 64


class LakeViews:
    """The views of one lake. ``external``: the names of the chains that another lake runs."""

    def __init__(self, opened: OpenedLake) -> None:
        self.opened = opened
        chains = opened.topology.chains
        rows = zip(chains["name"].to_pylist(), chains["number"].to_pylist(), strict=True)
        self.external = frozenset(name for name, number in rows if number in opened.topology.external)
        self.manifest = lru_cache(maxsize=KEPT_MANIFESTS)(opened.lake.manifest)

    def own(self) -> list[str]:
        """Return the names of the chains that this lake runs."""
        return [name for name in self.opened.names if name not in self.external]

    def height(self) -> int:
        """Return the last committed height."""
        return self.opened.last_height()

    def time(self, height: int) -> int:
        """Return the block time of a height in nanoseconds."""
        manifest = self.manifest(height)
        return (manifest.tick + 1) * self.opened.tick_ns if height else 0

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        height = self.height()
        return {
            "protocol": self.opened.protocol,
            "lake": self.opened.lake.identity,
            "height": height,
            "tick": self.manifest(height).tick,
            "time": self.time(height),
            "tick_ns": self.opened.tick_ns,
            "chains": [{"name": name, "external": name in self.external} for name in self.opened.names],
        }

    def known(self, chain: str, height: int | None) -> int:
        """Return ``height``, or the last; of a chain that is here.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
        """
        self.opened.position(chain)
        if chain in self.external:
            raise InvalidInput(f"chain: another lake runs {chain}; ask it there")
        return self.height() if height is None else self.manifest(height).height
