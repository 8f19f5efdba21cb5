"""Steps common to all relay loops, as data answered by the process; watermarks of a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True)
class Direction:
    """Direction from chain ``source`` at ``end`` ("a" or "b") to ``target`` at the other end."""

    end: str
    source: str
    target: str

    @property
    def other(self) -> str:
        """End of ``target``."""
        return "b" if self.end == "a" else "a"

    def __str__(self) -> str:
        return f"{self.source}>{self.target}"


@dataclass(frozen=True)
class Submit:
    """Submission of a transaction, without an answer; ``last`` marks the last one of a pass."""

    end: str
    chain: str
    transaction: bytes
    messages: int
    last: bool


K = TypeVar("K")


def advance_watermarks(before: Mapping[K, int], reported: Mapping[K, int]) -> tuple[dict[K, int], bool]:
    """Update the watermarks of a target.

    A correct target's numbers never fall. Numbers that fall and return, and new names, are no progress.

    Args:
        before: Watermarks by name.
        reported: Reported numbers by name.

    Returns:
        The new watermarks of the reported names, and True if one rose.
    """
    moved = any(number > before.get(name, number) for name, number in reported.items())
    return {name: max(number, before.get(name, number)) for name, number in reported.items()}, moved
