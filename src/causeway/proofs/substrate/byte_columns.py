"""Columns of byte strings with 64-bit offsets: the form in which keys, values and encodings are held and joined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.order import Rows
from causeway.proofs.arrays import LARGE_BINARY, byte_column, require_digests, whole
from causeway.proofs.hashing import DIGEST_BYTES, Digests

__all__ = [
    "LARGE_BINARY",
    "Bytes",
    "bitmap",
    "byte_column",
    "data_of",
    "digest_column",
    "ends_of",
    "from_parts",
    "join",
    "offsets_of",
    "whole",
]

Bytes = npt.NDArray[np.uint8]


def offsets_of(column: pa.LargeBinaryArray) -> Rows:
    """Return where each value starts in ``data_of(column)`` and, last, where the last one ends: n + 1 numbers."""
    buffer = column.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]


def data_of(column: pa.LargeBinaryArray) -> Bytes:
    """Return the bytes that ``offsets_of(column)`` points into."""
    buffer = column.buffers()[2]
    return np.empty(0, dtype=np.uint8) if buffer is None else np.frombuffer(buffer, dtype=np.uint8)


def from_parts(data: Bytes, offsets: Rows, valid: npt.NDArray[np.bool_] | None = None) -> pa.LargeBinaryArray:
    """Return the column whose value ``i`` is ``data[offsets[i] : offsets[i + 1]]``; no value is copied.

    Where ``valid`` is given, values are null where it is false.
    """
    buffers = np.ascontiguousarray(offsets, dtype=np.int64), np.ascontiguousarray(data)
    return pa.LargeBinaryArray.from_buffers(
        LARGE_BINARY, len(offsets) - 1, [bitmap(valid), *map(pa.py_buffer, buffers)]
    )


def bitmap(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Return flags as Arrow keeps them, None if all values are there."""
    if valid is None or bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def digest_column(digests: Digests) -> pa.LargeBinaryArray:
    """Return digests, shape (n, 32), as a column of bytes.

    Raises:
        InvalidInput: they have another shape or type.
    """
    require_digests(digests, "roots")
    return from_parts(np.ascontiguousarray(digests).reshape(-1), np.arange(len(digests) + 1) * DIGEST_BYTES)


def ends_of(lengths: npt.NDArray[np.integer]) -> Rows:
    """Return the offsets of values of the given lengths that lie one behind the other."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def join(parts: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Return the column whose value ``i`` is value ``i`` of all ``parts``, one behind the other."""
    # Not made when this file is imported: PyArrow imports pandas for it.
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", LARGE_BINARY))
