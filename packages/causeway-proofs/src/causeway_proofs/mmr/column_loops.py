"""Compiled loops of ``mmr.columns``: layout of single-leaf proofs, and the pairs to hash."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.jit import BYTES, BYTES_OUT, INT64, NOTHING, ROWS, ROWS_OUT, compile_loop, read_only_arrays

DIGEST = 32


@compile_loop(
    NOTHING, [read_only_arrays("uint64"), read_only_arrays("uint64"), ROWS_OUT, ROWS_OUT, ROWS_OUT], allocates=False
)
def plan_proofs(leaf_indices: Any, leaf_counts: Any, heights: Any, lefts: Any, rights: Any) -> None:
    """Write the layout of each range's mountains around its leaf, for leaves in their ranges.

    ``heights``: height of the leaf's mountain; ``lefts``: mountains on its left; ``rights``: 1 if any is on its right.
    """
    one = np.uint64(1)
    for row in range(len(leaf_indices)):
        count = leaf_counts[row]
        # Above their highest differing bit, index and count describe the same mountains.
        differ = leaf_indices[row] ^ count
        height = 0
        while differ > one:
            differ >>= one
            height += 1
        left = np.int64(0)
        above = count >> np.uint64(height) >> one
        while above:
            left += np.int64(above & one)
            above >>= one
        heights[row], lefts[row] = height, left
        rights[row] = 1 if count & ((one << np.uint64(height)) - one) else 0


@compile_loop(allocates=False)
def copy_digest(source: Any, row: Any, out: Any, place: Any) -> None:
    """Copy digest ``row`` of ``source`` to index ``place`` of ``out``."""
    # With indices known to be non-negative, the compiler moves 32 bytes at once.
    begin, to = np.uint64(DIGEST * row), np.uint64(DIGEST * place)
    for byte in range(np.uint64(DIGEST)):
        out[to + byte] = source[begin + byte]


@compile_loop(
    NOTHING, [ROWS, INT64, read_only_arrays("uint64"), ROWS, ROWS, ROWS, ROWS, BYTES, BYTES, BYTES_OUT], allocates=False
)
def write_pairs(
    rows: Any, step: Any, leaf_indices: Any, heights: Any, lefts: Any, rights: Any, offsets: Any, items: Any,
    current: Any, pairs: Any,
) -> None:  # fmt: skip
    """Write the pair to hash in one step of each proof: ``current`` and an item.

    Siblings come first, bottom-up, then the mountains on the right, then those on the left from the right. ``items``,
    ``current`` and ``pairs`` hold consecutive digests.
    """
    for place in range(len(rows)):
        row = rows[place]
        height, left = heights[row], lefts[row]
        if step < height:
            item = left + step
            known_right: Any = np.int64(leaf_indices[row] >> np.uint64(step) & np.uint64(1))
        elif step == height and rights[row]:
            item, known_right = left + height, 1
        else:
            item, known_right = left - 1 - (step - height - rights[row]), 0
        copy_digest(current, row, pairs, 2 * place + known_right)
        copy_digest(items, offsets[row] + item, pairs, 2 * place + 1 - known_right)
