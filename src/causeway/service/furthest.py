"""How far a target has come, as it says itself: what counts is only that it is further than ever before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def furthest(before: Mapping[K, int], said: Mapping[K, int]) -> tuple[dict[K, int], bool]:
    """Return the highest number ever said of each name that is said now, and whether one is higher than before.

    None of the numbers falls while a target keeps the rules. So what it takes back, and says again, is no step on, and
    what is said for the first time is none.
    """
    moved = any(number > before.get(name, number) for name, number in said.items())
    return {name: max(number, before.get(name, number)) for name, number in said.items()}, moved
