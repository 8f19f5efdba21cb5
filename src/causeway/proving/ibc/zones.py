"""The zones of the network in a lake."""

from __future__ import annotations

from functools import lru_cache

from causeway.model.errors import InvalidInput
from causeway.network.opened import OpenedLake
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.zones import Zones

KEPT = 16
"""Lakes of which they are kept in memory."""


@lru_cache(maxsize=KEPT)
def zones_of(opened: OpenedLake) -> Zones:
    """Return the zones of a network under ``ibc``.

    Raises:
        InvalidInput: the network has another protocol.
    """
    if opened.protocol != "ibc":
        raise InvalidInput(
            f"lake: {opened.lake.storage.uri} is of the protocol {opened.protocol}; only one of ibc has zones"
        )
    return Zones(opened.topology, IbcOptions(**opened.options))


__all__ = ["zones_of"]
