"""Exact sums of amounts by pairs of chains."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_HALF = np.uint64(32)
_MASK = np.uint64(2**32 - 1)


def sums(
    first: npt.NDArray[np.uint32], second: npt.NDArray[np.uint32], *words: npt.NDArray[np.uint64]
) -> list[tuple[int, int, int]]:
    """Return (first, second, sum) of every pair of chains whose sum is not zero, ascending.

    ``words``: of each row's amount the lowest 64 bits, then the next.
    """
    if len(first) == 0:
        return []
    pairs, which = np.unique(first.astype(np.uint64) << _HALF | second, return_inverse=True)
    totals = [0] * len(pairs)
    for place, column in enumerate(words):
        for half, shift in ((column & _MASK, 0), (column >> _HALF, 32)):
            parts = np.zeros(len(pairs), dtype=np.uint64)
            np.add.at(parts, which, half)
            totals = [
                total + (part << (shift + 64 * place)) for total, part in zip(totals, parts.tolist(), strict=True)
            ]
    found = zip(pairs.tolist(), totals, strict=True)
    return [(pair >> 32, pair & 0xFFFFFFFF, total) for pair, total in found if total]
