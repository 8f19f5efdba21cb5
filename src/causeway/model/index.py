"""The type Index: a prefix that names a queue, and a natural number in it (IC reference 2.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from causeway.model.errors import IndexOverflow

Index = tuple[int, ...]
"""``X x ... x Y x N``: identifiers, then a number. A plain tuple, so that it can be a key anywhere."""

MAX_INDEX = 2**64 - 1

AnyIndex = TypeVar("AnyIndex", bound=Index)


def prefix(index: Index) -> Index:
    """Return all elements but the last: the queue that the index belongs to."""
    return index[:-1]


def postfix(index: Index) -> int:
    """Return the last element: the position in the queue."""
    return index[-1]


def successor(index: Index) -> Index:
    """Return ``index + 1``; raise ``IndexOverflow`` past 2**64 - 1."""
    if index[-1] >= MAX_INDEX:
        raise IndexOverflow(f"index {index[-1]} has no successor below 2**64")
    return (*index[:-1], index[-1] + 1)


def comparable(first: Index, second: Index) -> bool:
    """Return whether the two indices belong to one queue; others have no order."""
    return prefix(first) == prefix(second)


def at_most(first: Index, second: Index) -> bool:
    """Return ``first <= second``: equal prefixes and ``postfix(first) <= postfix(second)``."""
    return comparable(first, second) and postfix(first) <= postfix(second)


def minimum(indices: Iterable[Index]) -> set[Index]:
    """Return ``min(X)``: the smallest index of each prefix in ``indices``, so a set."""
    smallest: dict[Index, int] = {}
    for index in indices:
        smallest[prefix(index)] = min(postfix(index), smallest.get(prefix(index), MAX_INDEX))
    return {(*head, last) for head, last in smallest.items()}


def maximum(indices: Iterable[Index]) -> set[Index]:
    """Return ``max(X)``: the largest index of each prefix in ``indices``, so a set."""
    largest: dict[Index, int] = {}
    for index in indices:
        largest[prefix(index)] = max(postfix(index), largest.get(prefix(index), 0))
    return {(*head, last) for head, last in largest.items()}


def rank(index: int, values: Iterable[int]) -> int:
    """Return how many of ``values`` are at most ``index``: the first element has rank 1 (IC reference 2.1)."""
    return sum(1 for value in values if value <= index)
