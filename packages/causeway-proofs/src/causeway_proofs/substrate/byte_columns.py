"""Byte columns with 64-bit offsets, and SCALE compact integers.

Compact integers: below 2**6 one byte ``n << 2``; below 2**14 two bytes with mode 1; below 2**30 four bytes with mode 2;
else a byte ``(length - 4) << 2 | 3`` and the number in ``length`` bytes, little-endian. Only the shortest form is
canonical (XDM reference 2.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.arrays import LARGE_BINARY, byte_column, contiguous_column, require_digests
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.order import Rows
from causeway_proofs.substrate.errors import FailedToDecode

__all__ = [
    "LARGE_BINARY",
    "Bytes",
    "bitmap",
    "byte_column",
    "column_data",
    "column_from_buffers",
    "column_offsets",
    "concat_values",
    "contiguous_column",
    "digest_column",
    "offsets_from_lengths",
]

Bytes = npt.NDArray[np.uint8]


def column_offsets(column: pa.LargeBinaryArray) -> Rows:
    """Return the offsets of the values in ``column_data(column)``, shape (n + 1,).

    Args:
        column: n values; may be a slice.

    Returns:
        Offsets in bytes, int64; a view of the column's buffer unless it is empty.
    """
    buffer = column.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]


def column_data(column: pa.LargeBinaryArray) -> Bytes:
    """Return the bytes that ``column_offsets(column)`` points into.

    Args:
        column: the values; may be a slice.

    Returns:
        Bytes of the whole buffer, uint8, one dimension; empty without a buffer.
    """
    buffer = column.buffers()[2]
    return np.empty(0, dtype=np.uint8) if buffer is None else np.frombuffer(buffer, dtype=np.uint8)


def column_from_buffers(data: Bytes, offsets: Rows, valid: npt.NDArray[np.bool_] | None = None) -> pa.LargeBinaryArray:
    """Return the column with values ``data[offsets[i] : offsets[i + 1]]``, without a copy.

    Values are null where ``valid``, if given, is false.

    Args:
        data: bytes of the values, uint8, one dimension.
        offsets: offsets in bytes, shape (n + 1,), ascending.
        valid: mask of values, shape (n,); None: no nulls.

    Returns:
        The column, n values.
    """
    buffers = np.ascontiguousarray(offsets, dtype=np.int64), np.ascontiguousarray(data)
    return pa.LargeBinaryArray.from_buffers(
        LARGE_BINARY, len(offsets) - 1, [bitmap(valid), *map(pa.py_buffer, buffers)]
    )


def bitmap(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Convert flags to an Arrow bitmap, or None if all are true.

    Args:
        valid: mask of values, shape (n,); None: no nulls.

    Returns:
        One bit a value, least significant first; 1: valid.
    """
    if valid is None or bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def digest_column(digests: Digests) -> pa.LargeBinaryArray:
    """Convert digests, shape (n, 32), to a byte column.

    Args:
        digests: digests, shape (n, 32), uint8.

    Returns:
        n values of 32 bytes.

    Raises:
        InvalidInput: shape or dtype differs.
    """
    require_digests(digests, "roots")
    return column_from_buffers(np.ascontiguousarray(digests).reshape(-1), np.arange(len(digests) + 1) * DIGEST_BYTES)


def offsets_from_lengths(lengths: npt.NDArray[np.integer]) -> Rows:
    """Return the offsets of consecutive values of the given lengths.

    Args:
        lengths: length of each value in bytes, shape (n,).

    Returns:
        Offsets, shape (n + 1,), int64; the first is 0.
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def concat_values(parts: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Concatenate the columns of ``parts`` row by row.

    Args:
        parts: columns of n values each.

    Returns:
        Column of n values, null where any part is null.
    """
    # Not at import time: PyArrow imports pandas for it.
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", LARGE_BINARY))


_ONE_BYTE, _TWO_BYTES, _FOUR_BYTES = 1 << 6, 1 << 14, 1 << 30
_MODES = 4
_LONGEST = 67
"""Bytes of the longest number: the length field has six bits and counts from four."""


def encode_compact(number: int) -> bytes:
    """Encode ``number`` as a compact integer.

    Args:
        number: a non-negative integer of at most 67 bytes.

    Returns:
        The encoding.

    Raises:
        InvalidInput: ``number`` is negative or too long.
    """
    if number < 0 or number.bit_length() > 8 * _LONGEST:
        raise InvalidInput(f"a compact integer lies between 0 and 2**536 - 1, not {number}")
    if number < _ONE_BYTE:
        return bytes([number << 2])
    if number < _TWO_BYTES:
        return (number << 2 | 1).to_bytes(2, "little")
    if number < _FOUR_BYTES:
        return (number << 2 | 2).to_bytes(4, "little")
    length = max(4, (number.bit_length() + 7) // 8)
    return bytes([(length - 4) << 2 | 3]) + number.to_bytes(length, "little")


def compact_length(first: int) -> int:
    """Return the length of the compact integer with first byte ``first``."""
    return (1, 2, 4, 1 + 4 + (first >> 2))[first % _MODES]


def decode_compact(data: bytes, offset: int, noun: str) -> tuple[int, int]:
    """Decode the compact integer at ``offset`` of ``data``.

    Args:
        data: the encoding.
        offset: start of the integer.
        noun: noun for the integer in errors.

    Returns:
        The integer and the next offset.

    Raises:
        FailedToDecode: ``data`` ends inside the integer, or it is not in its shortest form.
    """
    if offset >= len(data):
        raise FailedToDecode(f"{noun} ends before a compact integer")
    mode = data[offset] % _MODES
    length = compact_length(data[offset])
    field = data[offset : offset + length]
    if len(field) < length:
        raise FailedToDecode(f"{noun} ends inside a compact integer")
    number = int.from_bytes(field[1:], "little") if mode == 3 else int.from_bytes(field, "little") >> 2
    least = (0, _ONE_BYTE, _TWO_BYTES, _FOUR_BYTES)[mode]
    if number < least or (length > 5 and field[-1] == 0):
        raise FailedToDecode(f"{noun} holds the compact integer {number} in more bytes than it takes")
    return number, offset + length
