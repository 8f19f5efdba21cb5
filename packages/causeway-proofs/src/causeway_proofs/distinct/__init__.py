"""Equal slices of bytes are found, so that each is looked at once however often it is given.

The numbers of distinct slices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway_proofs.order import Rows

__all__ = ["distinct_slices"]

Bytes = npt.NDArray[np.uint8]


def distinct_slices(data: Bytes, starts: Rows, stops: Rows) -> tuple[Rows, Rows]:
    """Return the number of each slice ``data[starts[i] : stops[i]]``, and by number the first row that has it.

    Rows with one number have equal bytes: they were compared. Nearly always equal bytes have one number too; only where
    many slices were chosen so that they look alike to a weak hash, some are taken as distinct, so that the time stays
    in proportion to the bytes.

    Args:
        data: bytes, contiguous.
        starts: where each slice starts in ``data``; slices may overlap and lie in any order.
        stops: where each ends.
    """
    from causeway_proofs.distinct_loops import number_slices

    count = len(starts)
    # At most half full.
    table = np.full(1 << max(4, (2 * count).bit_length()), -1, dtype=np.int64)
    numbers, firsts = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    found = number_slices(data, starts, stops, table, numbers, firsts, np.empty(count, dtype=np.uint64))
    return numbers, firsts[:found]
