"""What relay loops of all protocols have of what they ask for and hand over, as data: whoever runs one answers."""

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
class Submit:
    """Hands over a transaction for a chain. The answer is not looked at; ``last``: no more come in this pass."""

    end: str
    chain: str
    transaction: bytes
    messages: int
    last: bool
