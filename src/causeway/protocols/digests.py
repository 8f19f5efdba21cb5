"""Digests as columns, shape (n, 32), and bytes of one width as Arrow has them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.proofs.hashing import DIGEST_BYTES, Digests


def hashes(column: Digests) -> list[bytes]:
    """Return the rows of a column of digests."""
    return [row.tobytes() for row in column]


def digests(rows: list[bytes]) -> Digests:
    """Return digests as a column, shape (n, 32)."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), DIGEST_BYTES)


def same(ours: Digests, theirs: Digests) -> npt.NDArray[np.bool_]:
    """Return which rows of two columns of digests are equal."""
    equal: npt.NDArray[np.bool_] = (ours == theirs).all(axis=1)
    return equal


def fixed_column(rows: npt.NDArray[np.uint8]) -> pa.FixedSizeBinaryArray:
    """Return rows of bytes, shape (n, width), as a column of values of that width."""
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, data])
