"""Find equal slices of bytes, so that each distinct slice is processed once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway_proofs.order import Rows

__all__ = ["distinct_slices"]

Bytes = npt.NDArray[np.uint8]


def distinct_slices(data: Bytes, starts: Rows, stops: Rows) -> tuple[Rows, Rows]:
    """Assign numbers to the slices ``data[starts[i] : stops[i]]``, one a distinct content.

    Rows with one number have equal bytes: they were compared. Equal bytes have one number, too, unless many slices were
    chosen to collide under a weak hash. Some of those count as distinct, so that the time stays proportional to the
    bytes.

    Args:
        data: bytes, contiguous.
        starts: start of each slice in ``data``; slices may overlap and lie in any order.
        stops: end of each slice.

    Returns:
        The number of each row, shape (n,), and the first row of each number, shape (distinct,).
    """
    from causeway_proofs.distinct_loops import number_slices

    count = len(starts)
    # A load of at most one half.
    table = np.full(1 << max(4, (2 * count).bit_length()), -1, dtype=np.int64)
    numbers, firsts = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    found = number_slices(data, starts, stops, table, numbers, firsts, np.empty(count, dtype=np.uint64))
    return numbers, firsts[:found]
