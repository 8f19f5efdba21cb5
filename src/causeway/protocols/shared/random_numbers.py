"""Counter-based random numbers of kernels and simulations, in any order of draws.

Kernels use Philox-4x64, keyed by (seed, place) and counted by (time, purpose, number). Each purpose has its own number,
so no two draws share words.

Simulations and late bodies use Philox-4x32-10 in columns, keyed by the seed and counted by purpose and object. A number
does not depend on the other objects of a call, nor on earlier draws.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64

_FURTHER = 1 << 63
"""Flag of the counters of words after the first four.

The counters of the first four end in 0; those of traffic (``causeway.scenarios.generator``) in a small stream number.
"""


@unique
class DrawPurpose(IntEnum):
    """The purpose of a draw. By default the place is a chain's number and the time a height."""

    WORD = 0
    """A chain's random word of a round."""
    SKIPPED = 1
    """The sources that a destination skips."""
    TURNS = 2
    """The order of sources at a destination."""
    PICKED = 3
    """The first message at a destination that a fault affects."""
    FRAUD = 4
    """The occurrence of a fault of a chain's block; number: the fault's in the scenario."""
    BUNDLE = 5
    """The altered message in a chain's bundle."""
    FORK = 6
    """A change of the best fork, and its depth in blocks.

    The place is the rank of the active fault, and the time a tick.
    """
    FOLLOWED = 7
    """The relay chain leaf that a parachain follows; time: the tick of the fork."""
    ABSENT = 8
    """The absence of an operator; time: a block number, number: the fault's in the scenario."""
    AUTHOR = 9
    """The operator that authors a block; time: its number."""


def draw_words(what: DrawPurpose, seed: int, place: int, when: int, which: int = 0) -> np.random.Philox:
    """Return the generator of the words of a draw; equal arguments give equal words.

    The first four words are the block counted by (``when``, ``what``, ``which``, 0). The generator would increment the
    first counter, which belongs to the next time. So later words are counted by (n, ``when``, ``which``, ``_FURTHER`` +
    ``what``), n = 1, 2, ...

    Args:
        what: The purpose.
        seed: The scenario's seed.
        place: The place, by default a chain's number.
        when: The time, by default a height.
        which: The number of the draw.
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


F64 = npt.NDArray[np.float64]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ROUNDS = 10


@unique
class SimulationDraw(IntEnum):
    """The purpose of a simulation's draw; in brackets its objects."""

    GRAPH = 0
    """The position of a node in a random cycle (cycle, node)."""
    REWIRED = 1
    """The rewiring of a small-world link, and its new end (node, place)."""
    LATENCY = 2
    """A link's latency (node, peer)."""
    PROPAGATION = 3
    """The delay of a block at a node (node, block)."""
    QUEUE = 4
    """A queue's ends and sizes (block, queue)."""
    CONTENT = 5
    """The bytes of a queue's messages (queue, word)."""
    FORK = 6
    """The existence of a sibling of a block, and its delay (number)."""
    LOST = 7
    """The loss of a transmission (node, peer, tick, which)."""
    CHURN = 8
    """The absence of a node in a period, and the start of its periods (node, period)."""
    VICTIM = 9
    """The victim of attackers (attackers, node)."""
    JUNK = 10
    """The junk of a spammer (junk)."""
    SALT = 11
    """The salt of a connection (node, peer, tick, word)."""
    ENTRY = 12
    """The carrier of its queues that a keeper links to (keeper, node, parachain)."""
    HOLDER = 13
    """The node asked for a missing queue (node, entry, turn)."""
    BODY = 14
    """The delay of a queue in a run without a simulation (to, source, relay block number)."""
    TICKET = 15
    """The signing and checking of a ticket (payer, payee, serial number)."""


def words(seed: int, what: SimulationDraw, *of: Any) -> U64:
    """Return one 64-bit word for each row of the columns ``of``.

    Args:
        seed: The seed.
        what: The purpose.
        of: Up to three columns of whole numbers below 2**32, then one below 2**24; single numbers are repeated.
    """
    first, second = philox(seed, what, *of)
    return (first << _HALF) | second


def paired_words(seed: int, what: SimulationDraw, *of: Any) -> tuple[U64, U64]:
    """Return two 64-bit words for each row.

    Args:
        seed: The seed.
        what: The purpose.
        of: The columns (see ``words``).
    """
    first, second, third, fourth = _philox(seed, what, *of)
    return (first << _HALF) | second, (third << _HALF) | fourth


def uniforms(seed: int, what: SimulationDraw, *of: Any) -> F64:
    """Return one float64 in (0, 1) for each row.

    Args:
        seed: The seed.
        what: The purpose.
        of: The columns (see ``words``).
    """
    numbers: F64 = ((words(seed, what, *of) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return numbers


def philox(seed: int, what: SimulationDraw, *of: Any) -> tuple[U64, U64]:
    """Return the first two of the four 32-bit words of each counter.

    Args:
        seed: The seed.
        what: The purpose.
        of: The columns (see ``words``).
    """
    first, second, *_ = _philox(seed, what, *of)
    return first, second


def _philox(seed: int, what: SimulationDraw, *of: Any) -> list[U64]:
    columns = np.broadcast_arrays(*(np.asarray(column, dtype=np.uint64) for column in (*of, 0, 0, 0, 0)[:4]))
    last = (columns[3] << np.uint64(8)) | np.uint64(what)
    counter = [columns[0] & _LOW, columns[1] & _LOW, columns[2] & _LOW, last & _LOW]
    key = [np.uint64(seed) & _LOW, np.uint64(seed) >> _HALF]
    return rounds(counter, key)


def rounds(counter: list[U64], key: list[np.uint64]) -> list[U64]:
    """Return the four words of Philox-4x32-10 of counters under one key.

    Args:
        counter: Four columns of 32-bit words.
        key: Two 32-bit words.
    """
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
