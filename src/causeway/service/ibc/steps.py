"""What the relay loop asks for and hands over, as data: whoever runs it answers (IBC reference 3.5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Direction:
    """From chain ``source`` on the lake at one ``end`` ("a" or "b") to chain ``target`` on that at the other."""

    end: str
    source: str
    target: str

    @property
    def other(self) -> str:
        """Return the end that ``target`` is at."""
        return "b" if self.end == "a" else "a"

    def __str__(self) -> str:
        return f"{self.source}>{self.target}"


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
class Submit:
    """Hands over a transaction for a chain. The answer is not looked at; ``last``: no more come in this pass."""

    end: str
    chain: str
    transaction: bytes
    headers: int
    messages: int
    last: bool


Step = ReadLane | ReadHeader | ReadProofs | ReadPackets | Submit
