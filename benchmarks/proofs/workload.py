"""What is committed to: payloads without a pattern, the same in every run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import binary_rows

PAYLOAD_BYTES = 64

ONE_BY_ONE = 200
"""How many proofs are made or verified one by one in a repetition."""

MANY = 1_000
"""Entries of a proof of many."""

IN_BULK = 10_000
"""Proofs made or verified in bulk."""


def random_rows(count: int, width: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    """Return ``count`` rows of ``width`` bytes, shape (count, width)."""
    return np.random.default_rng(seed).integers(0, 256, (count, width), dtype=np.uint8)


def payloads(count: int) -> pa.BinaryArray:
    """Return ``count`` payloads of ``PAYLOAD_BYTES``."""
    return binary_rows(random_rows(count, PAYLOAD_BYTES))


def some_of(low: int, high: int, count: int) -> npt.NDArray[np.int64]:
    """Return ``count`` numbers (fewer when there are not as many) from ``low`` to ``high`` - 1, ascending, none twice.

    They are spread evenly, each drawn in its own part of the range.
    """
    count = min(count, high - low)
    edges = low + (high - low) * np.arange(count + 1) // count
    return edges[:-1] + (np.random.default_rng(2).random(count) * np.diff(edges)).astype(np.int64)
