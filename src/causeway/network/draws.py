"""Random numbers as a function of where they are used: Philox-4x64 keyed by (seed, place), counted by (tick, stream).

Only the generator's raw words are used, which its definition fixes, and the distributions are made of them here:
another release of NumPy gives the same numbers.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

U64Array = npt.NDArray[np.uint64]
F64Array = npt.NDArray[np.float64]
I64Array = npt.NDArray[np.int64]

_SMALL_MEAN = 30.0
_REACH = 12.0
"""Standard deviations either side of the mean that a quantile is looked for in."""


def words(seed: int, place: int, tick: int, stream: int, count: int) -> U64Array:
    """Return ``count`` random 64-bit words; equal arguments give equal words, a longer draw begins with the shorter."""
    generator, state = _GENERATOR.of_thread()
    state["state"]["key"] = np.array([seed, place], dtype=np.uint64)
    state["state"]["counter"] = np.array([0, 0, tick, stream], dtype=np.uint64)
    generator.state = state
    drawn: U64Array = generator.random_raw(count)
    return drawn


class _Generator(threading.local):
    """One generator a thread, which is put where it is to begin: a new one would ask the system for entropy first."""

    def __init__(self) -> None:
        self._generator = np.random.Philox(key=0)
        self._state: Any = self._generator.state

    def of_thread(self) -> tuple[np.random.Philox, Any]:
        """Return the generator, and a state of it in which no word of a key and a counter is drawn yet."""
        return self._generator, self._state


_GENERATOR = _Generator()


def uniforms(drawn: U64Array) -> F64Array:
    """Return words as numbers evenly spread over (0, 1), both ends excluded."""
    numbers: F64Array = ((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return numbers


def normals(drawn: U64Array) -> F64Array:
    """Return 2n words as n independent standard normal numbers (Box-Muller)."""
    first, second = uniforms(drawn).reshape(2, -1)
    numbers: F64Array = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)
    return numbers


def poisson(chance: F64Array, mean: F64Array) -> I64Array:
    """Return for each element the count at ``chance`` (in (0, 1)) of the Poisson distribution with ``mean`` >= 0."""
    found = np.zeros(chance.shape, dtype=np.int64)
    small = mean <= _SMALL_MEAN
    found[small] = _small_poisson(chance[small], mean[small])
    for place in np.argwhere(~small):
        at = tuple(place)
        found[at] = _large_poisson(float(chance[at]), float(mean[at]))
    return found


def binomial(chance: float, trials: int, probability: float) -> int:
    """Return the count at ``chance`` (in (0, 1)) of the binomial distribution."""
    if trials == 0 or probability <= 0.0:
        return 0
    if probability >= 1.0:
        return trials
    mean = trials * probability
    reach = _REACH * math.sqrt(mean * (1.0 - probability)) + 20.0
    low, high = max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))
    counts = np.arange(low, high, dtype=np.float64)
    steps = np.log((trials - counts) / (counts + 1.0)) + math.log(probability) - math.log1p(-probability)
    return low + _place(chance, steps)


def split(chances: F64Array, total: int, weights: F64Array) -> I64Array:
    """Return ``total`` items spread over n cells with the given weights: a multinomial draw, one chance a cell.

    The parts sum to ``total`` exactly. All weights zero: all items go to the last cell.
    """
    parts = np.zeros(len(weights), dtype=np.int64)
    after = np.cumsum(weights[::-1])[::-1]
    left = total
    for cell in range(len(weights) - 1):
        if left == 0:
            break
        share = float(weights[cell] / after[cell]) if after[cell] > 0 else 0.0
        parts[cell] = binomial(float(chances[cell]), left, share)
        left -= int(parts[cell])
    parts[-1] = left
    return parts


def _small_poisson(chance: F64Array, mean: F64Array) -> I64Array:
    probability = np.exp(-mean)
    below = probability.copy()
    found = np.zeros(chance.shape, dtype=np.int64)
    for count in range(1, int(_SMALL_MEAN + _REACH * math.sqrt(_SMALL_MEAN)) + 21):
        more = chance >= below
        if not more.any():
            break
        found += more
        probability *= mean / count
        below += probability
    return found


def _large_poisson(chance: float, mean: float) -> int:
    reach = _REACH * math.sqrt(mean) + 20.0
    low, high = max(0, math.floor(mean - reach)), math.ceil(mean + reach)
    return low + _place(chance, math.log(mean) - np.log(np.arange(low + 1, high + 1, dtype=np.float64)))


def _place(chance: float, steps: F64Array) -> int:
    """Return the place of ``chance`` in a distribution given by the logarithms of the ratios of neighbours."""
    logarithms = np.append(0.0, np.cumsum(steps))
    mass = np.exp(logarithms - logarithms.max())
    below = np.cumsum(mass)
    return int(min(np.searchsorted(below, chance * below[-1], side="right"), len(below) - 1))
