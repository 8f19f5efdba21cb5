"""What the relay loop asks for and hands over, as data: whoever runs it answers (IBC reference 3.5)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.service import relay_steps


@dataclass(frozen=True)
class ReadLane:
    """Asks for the ``LaneView`` of a chain for ``counterparty``, at its last height.

    ``packets_from``, ``receipts_from``: entries below these indices need not be in it. ``height``: as it was at that
    height instead, None where the lake has not kept it.
    """

    end: str
    chain: str
    counterparty: str
    packets_from: int = 0
    receipts_from: int = 0
    height: int | None = None


@dataclass(frozen=True)
class ReadHeader:
    """Asks for the signed header of a chain at a height, as bytes."""

    end: str
    chain: str
    height: int


@dataclass(frozen=True)
class ReadProofs:
    """Asks for (value, proof) of each key in a chain's store at a height; None for a key with nothing under it."""

    end: str
    chain: str
    height: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True)
class ReadPackets:
    """Asks for the values of the packets that a chain has for ``counterparty`` from an index on, ``count`` at most."""

    end: str
    chain: str
    counterparty: str
    height: int
    first: int
    count: int


@dataclass(frozen=True)
class Submit(relay_steps.Submit):
    """Hands over a transaction. ``headers``: the header updates in it."""

    headers: int


Step = ReadLane | ReadHeader | ReadProofs | ReadPackets | Submit
