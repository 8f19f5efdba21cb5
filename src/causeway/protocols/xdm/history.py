"""Which heights of the lake have which blocks of a chain, as far as they are remembered (``HISTORY_SCHEMA``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from causeway.model.frame import Frame
from causeway.protocols.xdm.state import State


def remembers(state: State, chain: int, number: int) -> bool:
    """Return whether the height of a chain's block is remembered."""
    _, numbers = _numbers(state, chain)
    row = int(np.searchsorted(numbers, number))
    return row < len(numbers) and int(numbers[row]) == number


def height_of(state: State, chain: int, number: int) -> int:
    """Return the height that has a block of a chain, by its number."""
    first, numbers = _numbers(state, chain)
    assert remembers(state, chain, number), f"chain {chain}, block {number}: not remembered"
    return int(state["history"]["height"][first + int(np.searchsorted(numbers, number))])


def _numbers(state: State, chain: int) -> tuple[int, np.ndarray]:
    history = state["history"]
    first, end = np.searchsorted(history["chain"], (chain, chain + 1))
    return int(first), history["number"][first:end]


def spans_between(state: State, chain: int, after: int, last: int, *, forks: bool) -> list[tuple[int, int, int]]:
    """Return the heights of a chain's blocks above the number ``after`` up to ``last``, as spans of the chain.

    ``forks``: between the two there may be heights that were abandoned; else all of them are in one span.
    """
    since, until = height_of(state, chain, after) + 1, height_of(state, chain, last)
    if not forks:
        return [(chain, since, until)]
    history = state["history"]
    own = history["height"][history["chain"] == chain]
    return [(chain, *run) for run in runs_of(own[(own >= since) & (own <= until)].tolist())]


def runs_of(heights: Iterable[int]) -> list[tuple[int, int]]:
    """Return heights, ascending, as runs without gaps: the first and the last of each."""
    runs = groupby(enumerate(heights), lambda item: item[1] - item[0])
    found = [[height for _, height in run] for _, run in runs]
    return [(run[0], run[-1]) for run in found]


def heights_frame(spans: Sequence[tuple[int, int, int]]) -> Frame:
    """Return spans of heights, each of a chain from the first to the last (``HEIGHTS_SCHEMA``)."""
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    frame = {"chain": columns[:, 0].astype(np.uint32), "first": columns[:, 1].astype(np.uint64)}
    return Frame({**frame, "last": columns[:, 2].astype(np.uint64)}, len(spans))
