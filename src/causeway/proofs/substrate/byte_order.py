"""The order of byte strings in columns: by groups, then byte by byte, found eight bytes at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.order import Rows, stable_order
from causeway.proofs.substrate.byte_columns import data_of, offsets_of

_ROUNDS = 3
"""Strings that are the same in so many words, not counting what all of a run start with, are merged one by one."""


def ascending_order(groups: Rows, column: pa.LargeBinaryArray) -> Rows | None:
    """Return the rows ascending by group (none negative) and then by string, ties in row order.

    None: they lie so.
    """
    from causeway.proofs.substrate import byte_loops

    data, offsets, count = data_of(column), offsets_of(column), len(column)
    if byte_loops.is_ascending(groups, data, offsets):
        return None
    order = stable_order(groups.view(np.uint64))
    known, words, runs = np.empty(count, np.int64), np.empty(count, np.uint64), np.empty(count, np.int64)
    for _ in range(_ROUNDS):
        byte_loops.words_behind(groups, data, offsets, order, known, words)
        order = stable_order(groups.view(np.uint64), words)
        found = byte_loops.number_runs(groups, words, order, runs)
        groups, runs = runs, np.empty(count, np.int64)
        if found == count:
            return order
    byte_loops.merge_runs(groups, data, offsets, known, order, np.empty(count, np.int64))
    return order
