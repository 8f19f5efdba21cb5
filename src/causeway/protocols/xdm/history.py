"""Which heights of the lake have which blocks of a chain, as far as they are remembered (``HISTORY_SCHEMA``)."""

from __future__ import annotations

from collections.abc import Sequence

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


def heights_frame(spans: Sequence[tuple[int, int, int]]) -> Frame:
    """Return spans of heights, each of a chain from the first to the last (``HEIGHTS_SCHEMA``)."""
    columns = np.array(spans, dtype=np.int64).reshape(-1, 3)
    frame = {"chain": columns[:, 0].astype(np.uint32), "first": columns[:, 1].astype(np.uint64)}
    return Frame({**frame, "last": columns[:, 2].astype(np.uint64)}, len(spans))
