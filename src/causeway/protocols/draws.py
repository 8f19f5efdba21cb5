"""Where kernels draw random numbers: Philox-4x64 keyed by (seed, place) and counted by (when, what is drawn, which).

Each of these draws has a number of its own here, so that no two of them ever see the same words.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Any

import numpy as np

_FURTHER = 1 << 63
"""Told apart by it: counters of the words after the first four. Those of the first four end in 0, and those of traffic
(``causeway.network.draws``) in the small number of a stream."""


@unique
class Draw(IntEnum):
    """What is drawn, and of what: the place is a chain's number where nothing else is said, the time a height."""

    WORD = 0
    """A chain's random word of a round."""
    SKIPPED = 1
    """From which sources a destination takes nothing."""
    TURNS = 2
    """The order in which a destination takes up sources."""
    PICKED = 3
    """Which of the messages brought to a destination a fault begins with."""
    FRAUD = 4
    """Whether a fault of a chain's block happens; which: its number in the scenario."""
    BUNDLE = 5
    """Which message in a chain's bundle is altered."""
    FORK = 6
    """Whether the best fork changes, and by how many blocks; place: the fault among those that act, time: a tick."""
    FOLLOWED = 7
    """Which leaf of the relay chain a parachain follows; time: the tick in which the leaves part."""
    ABSENT = 8
    """Whether an operator is absent; time: a block number, which: the fault's number in the scenario."""
    AUTHOR = 9
    """Which operator is the author of a block; time: its number."""


def drawn(what: Draw, seed: int, place: int, when: int, which: int = 0) -> np.random.Philox:
    """Return the words that are drawn once, however many; equal arguments give equal ones.

    The first four are the block counted by (when, what, which, 0). The generator would count on in the first of these,
    which is where the words of the next time stand, so that further ones are counted by (n, when, which, ``_FURTHER`` +
    what), n = 1, 2, ...
    """
    words = np.random.Philox(
        key=np.array([seed, place], dtype=np.uint64), counter=np.array([when, what, which, 0], dtype=np.uint64)
    )
    words.random_raw()  # fills the buffer of four words
    state: Any = words.state
    state["buffer_pos"] = 0
    state["state"]["counter"] = np.array([0, when, which, _FURTHER + what], dtype=np.uint64)
    words.state = state
    return words
