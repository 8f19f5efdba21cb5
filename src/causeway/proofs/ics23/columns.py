"""Bytes columns put together from parts: varints, heads and bodies of protobuf fields, one value a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.proofs.varints import MORE, PAYLOAD_BITS

Part = Any
"""A bytes column, or one bytes value for all rows."""

MAX_COLUMN_BYTES = 2**31 - 1
"""What the 32-bit offsets of one bytes column reach."""

Mask = npt.NDArray[np.bool_]


def joined(*parts: Part) -> pa.BinaryArray:
    """Return the column whose rows are the parts' rows one after the other; at least one part is a column.

    Raises:
        InvalidInput: the column would be longer than ``MAX_COLUMN_BYTES``.
    """
    rows = next(len(part) for part in parts if not isinstance(part, bytes))
    total = sum(rows * len(part) if isinstance(part, bytes) else data_bytes(part) for part in parts)
    require_room(total)
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(
        *(pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts), b""
    )


def require_room(total: int) -> None:
    """Refuse to make a column of ``total`` bytes when that is more than ``MAX_COLUMN_BYTES``.

    Raises:
        InvalidInput: it is.
    """
    if total > MAX_COLUMN_BYTES:
        raise InvalidInput(f"{total} bytes do not go into one column of {MAX_COLUMN_BYTES}: take fewer rows at once")


def data_bytes(column: pa.BinaryArray) -> int:
    """Return how many bytes the values of a bytes column have together."""
    ends = offsets_of(column)
    return int(ends[-1] - ends[0])


def offsets_of(column: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return where the values begin in the column's buffer, and where the last one ends, shape (n + 1,).

    Raises:
        InvalidInput: it is no bytes column with 32-bit offsets, or has nulls.
    """
    if not isinstance(column, pa.BinaryArray):
        raise InvalidInput(f"a column must be an Arrow array of type binary, not {type(column).__name__}")
    if column.null_count:
        raise InvalidInput(f"{column.null_count} values of a bytes column are null, none may be")
    if len(column) == 0:
        return np.zeros(1, dtype=np.int32)
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]


def lengths_of(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the length of each value of a bytes column."""
    return np.diff(offsets_of(column)).astype(np.int64)


def data_of(column: pa.BinaryArray) -> bytes:
    """Return the values of a bytes column one after the other."""
    ends = offsets_of(column)
    buffer = column.buffers()[2]
    return bytes(memoryview(buffer)[int(ends[0]) : int(ends[-1])]) if buffer is not None else b""


def from_lengths(lengths: npt.NDArray[np.integer[Any]], data: bytes | npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the column of values with ``lengths`` that lie one after the other in ``data``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffer = pa.py_buffer(np.ascontiguousarray(data) if isinstance(data, np.ndarray) else data)
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), buffer])


def sparse(rows: npt.NDArray[np.uint8], present: Mask) -> pa.BinaryArray:
    """Return the column with the rows of a byte matrix where ``present`` is true, in order, and empty values elsewhere.

    Shapes: ``rows`` (number of true, width), ``present`` (n,).
    """
    return from_lengths(np.where(present, rows.shape[1], 0), rows.reshape(-1))


def spread(column: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    """Return the column with the values of ``column`` where ``present`` is true, in order, and empty ones elsewhere."""
    lengths = np.zeros(len(present), dtype=np.int64)
    lengths[present] = lengths_of(column)
    offsets = np.zeros(len(present) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = column.buffers()[2]
    if data is not None:
        data = data.slice(int(offsets_of(column)[0]))
    return pa.BinaryArray.from_buffers(pa.binary(), len(present), [None, pa.py_buffer(offsets), data])


def choice(values: list[bytes], which: npt.NDArray[np.integer[Any]]) -> pa.BinaryArray:
    """Return the column of ``values[which]``."""
    return pa.array(values, pa.binary()).take(pa.array(which))


def uvarints(values: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return each value (not negative) as an unsigned varint: seven bits a byte, the low ones first."""
    remaining = values.astype(np.uint64)
    width = max(1, -(-int(remaining.max()).bit_length() // PAYLOAD_BITS)) if len(remaining) else 1
    digits = np.empty((len(remaining), width), dtype=np.uint8)
    used = np.ones((len(remaining), width), dtype=bool)
    for position in range(width):
        if position:
            used[:, position] = remaining > 0
        low = (remaining & np.uint64(MORE - 1)).astype(np.uint8)
        remaining >>= np.uint64(PAYLOAD_BITS)
        digits[:, position] = np.where(remaining > 0, low | MORE, low)
    if width == 1:
        return from_lengths(np.ones(len(digits), dtype=np.int64), digits.reshape(-1))
    return from_lengths(used.sum(axis=1), digits[used])


def delimited(column: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return the parts of each value with its length in front, as unsigned varint."""
    return uvarints(lengths_of(column)), column
