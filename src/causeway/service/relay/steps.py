"""What relay loops of all protocols have of what they ask for and hand over, as data: whoever runs one answers.

How far a target has come, as it says itself: what counts is only that it is further than ever before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar


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


K = TypeVar("K")


def advance_watermarks(before: Mapping[K, int], said: Mapping[K, int]) -> tuple[dict[K, int], bool]:
    """Return the highest number ever said of each name that is said now, and whether one is higher than before.

    None of the numbers falls while a target keeps the rules. So what it takes back, and says again, is no step on, and
    what is said for the first time is none.
    """
    moved = any(number > before.get(name, number) for name, number in said.items())
    return {name: max(number, before.get(name, number)) for name, number in said.items()}, moved
