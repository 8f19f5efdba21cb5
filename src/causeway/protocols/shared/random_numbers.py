"""Where kernels draw random numbers: Philox-4x64 keyed by (seed, place) and counted by (when, what is drawn, which).

Each of these draws has a number of its own here, so that no two of them ever see the same words.

Random numbers as columns, of simulations and of bodies that come late: Philox-4x32-10, keyed by the seed, counted
by what is drawn of what.

A number depends on nothing else: not on which nodes are in a call, nor on what was drawn before.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Any

import numpy as np
import numpy.typing as npt

_FURTHER = 1 << 63
"""Told apart by it: counters of the words after the first four. Those of the first four end in 0, and those of traffic
(``causeway.scenarios.generator``) in the small number of a stream."""


@unique
class DrawPurpose(IntEnum):
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


def draw_words(what: DrawPurpose, seed: int, place: int, when: int, which: int = 0) -> np.random.Philox:
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


U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10


@unique
class SimulationDraw(IntEnum):
    """What is drawn; in brackets of what."""

    GRAPH = 0
    """Where a node stands in a random cycle (cycle, node)."""
    REWIRED = 1
    """Whether and where a link of a small world goes instead (node, place)."""
    LATENCY = 2
    """A link's latency (node, peer)."""
    PROPAGATION = 3
    """How much later a node has a block (node, block)."""
    QUEUE = 4
    """A queue's ends and sizes (block, queue)."""
    CONTENT = 5
    """The bytes of a queue's messages (queue, word)."""
    FORK = 6
    """Whether a block has a sibling, and how much later (number)."""
    LOST = 7
    """Whether what a node sends is lost (node, peer, tick, which)."""
    CHURN = 8
    """Whether a node is away in a period, and when its periods begin (node, period)."""
    VICTIM = 9
    """Whom attackers choose (attackers, node)."""
    JUNK = 10
    """What a spammer makes up (junk)."""
    SALT = 11
    """The salt of a connection (node, peer, tick, word)."""
    ENTRY = 12
    """To which of those who carry its queues a keeper is linked (keeper, node, parachain)."""
    HOLDER = 13
    """Who is asked for a queue that is missing (node, entry, turn)."""
    BODY = 14
    """How long a queue is on its way in a run without a simulation (to, source, number of the relay block)."""
    TICKET = 15
    """Whether a ticket's signature is made and checked (payer, payee, serial number)."""


def words(seed: int, what: SimulationDraw, *of: Any) -> U64:
    """Return one 64-bit word for each row of the columns ``of`` (up to three whole numbers below 2**32, then any below
    2**24); single numbers are repeated."""
    first, second = philox(seed, what, *of)
    return (first << _HALF) | second


def paired_words(seed: int, what: SimulationDraw, *of: Any) -> tuple[U64, U64]:
    """Return two 64-bit words for each row of the columns ``of``, as ``words`` has them."""
    first, second, third, fourth = _philox(seed, what, *of)
    return (first << _HALF) | second, (third << _HALF) | fourth


def uniforms(seed: int, what: SimulationDraw, *of: Any) -> F64:
    """Return one number in (0, 1) for each row."""
    numbers: F64 = ((words(seed, what, *of) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return numbers


def philox(seed: int, what: SimulationDraw, *of: Any) -> tuple[U64, U64]:
    """Return the first two of the four 32-bit words of each counter."""
    first, second, *_ = _philox(seed, what, *of)
    return first, second


def _philox(seed: int, what: SimulationDraw, *of: Any) -> list[U64]:
    columns = np.broadcast_arrays(*(np.asarray(column, dtype=np.uint64) for column in (*of, 0, 0, 0, 0)[:4]))
    last = (columns[3] << np.uint64(8)) | np.uint64(what)
    counter = [columns[0] & _LOW, columns[1] & _LOW, columns[2] & _LOW, last & _LOW]
    key = [np.uint64(seed) & _LOW, np.uint64(seed) >> _HALF]
    return rounds(counter, key)


def rounds(counter: list[U64], key: list[np.uint64]) -> list[U64]:
    """Return the four words of Philox-4x32-10 of counters (four columns of 32-bit words) under one key."""
    first, second, third, fourth = counter
    for _ in range(_ROUNDS):
        one, other = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
        first, second, third, fourth = (
            (other >> _HALF) ^ second ^ key[0],
            other & _LOW,
            (one >> _HALF) ^ fourth ^ key[1],
            one & _LOW,
        )
        key = [np.uint64((int(word) + int(step)) & 0xFFFFFFFF) for word, step in zip(key, _STEPS, strict=True)]
    return [first, second, third, fourth]
