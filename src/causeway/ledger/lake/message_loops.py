"""Compiled loops of a hash index: the latest message of a name up to a height."""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import BYTES, NOTHING, ROWS, ROWS_OUT, compile_loop, read_only_arrays

WORDS, NAMES = read_only_arrays("uint64"), read_only_arrays("uint64", 2)

_ODD_1 = np.uint64(0xBF58476D1CE4E5B9)
_ODD_2 = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compile_loop(allocates=False)
def hash_slot(names: Any, row: Any, mask: Any) -> Any:
    """Return the slot of a name (splitmix64 over its words)."""
    word = np.uint64(0)
    for place in range(names.shape[1]):
        word = (word ^ names[row, place]) + _STEP
        word = (word ^ (word >> _30)) * _ODD_1
        word = (word ^ (word >> _27)) * _ODD_2
        word ^= word >> _31
    return np.int64(word & mask)


@compile_loop(NOTHING, [NAMES, BYTES, ROWS_OUT, ROWS_OUT], allocates=False)
def link_slots(names: Any, chosen: Any, heads: Any, before: Any) -> None:
    """Link chosen rows by the slots of their names, the last one first.

    Args:
        names: Names as rows of words.
        chosen: Rows to link.
        heads: Output: last row of each slot, initially -1; the number of slots is a power of two.
        before: Output: previous row of each row's slot.
    """
    mask = np.uint64(len(heads) - 1)
    for row in range(len(names)):
        if chosen[row]:
            slot = hash_slot(names, row, mask)
            before[row] = heads[slot]
            heads[slot] = row


@compile_loop(NOTHING, [NAMES, WORDS, ROWS, ROWS, NAMES, WORDS, ROWS_OUT], allocates=False)
def find_latest_rows(names: Any, heights: Any, heads: Any, before: Any, asked: Any, until: Any, found: Any) -> None:
    """Write the last row of each asked name up to a height, or -1; rows ascend by height."""
    mask = np.uint64(len(heads) - 1)
    for row in range(len(asked)):
        at = heads[hash_slot(asked, row, mask)]
        while at >= 0:
            same = heights[at] <= until[row]
            for place in range(names.shape[1]):
                same = same and names[at, place] == asked[row, place]
            if same:
                break
            at = before[at]
        found[row] = at
