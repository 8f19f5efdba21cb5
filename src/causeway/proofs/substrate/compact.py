"""SCALE compact integers: one at a time, strictly, and by columns (XDM reference 2.3).

Below 2**6 one byte ``n << 2``; below 2**14 two bytes with mode 1; below 2**30 four bytes with mode 2; else a byte
``(length - 4) << 2 | 3`` and the number in ``length`` bytes, little-endian. Only the shortest form is canonical.
"""

from __future__ import annotations

from causeway.model.errors import InvalidInput
from causeway.proofs.substrate.errors import FailedToDecode

_ONE_BYTE, _TWO_BYTES, _FOUR_BYTES = 1 << 6, 1 << 14, 1 << 30
_MODES = 4
_LONGEST = 67
"""Bytes of the longest number: the length field has six bits, and counts from four."""


def encode_compact(number: int) -> bytes:
    """Return the compact encoding of ``number``.

    Raises:
        InvalidInput: it is negative or takes more than 67 bytes.
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
    """Return how many bytes the compact integer takes that begins with the byte ``first``."""
    return (1, 2, 4, 1 + 4 + (first >> 2))[first % _MODES]


def decode_compact(data: bytes, offset: int, what: str) -> tuple[int, int]:
    """Return the compact integer that starts at ``offset`` of ``data``, and the offset behind it.

    Raises:
        FailedToDecode: ``data`` ends inside it, or it is not in its shortest form; ``what`` names it.
    """
    if offset >= len(data):
        raise FailedToDecode(f"{what} ends before a compact integer")
    mode = data[offset] % _MODES
    length = compact_length(data[offset])
    field = data[offset : offset + length]
    if len(field) < length:
        raise FailedToDecode(f"{what} ends inside a compact integer")
    number = int.from_bytes(field[1:], "little") if mode == 3 else int.from_bytes(field, "little") >> 2
    least = (0, _ONE_BYTE, _TWO_BYTES, _FOUR_BYTES)[mode]
    if number < least or (length > 5 and field[-1] == 0):
        raise FailedToDecode(f"{what} holds the compact integer {number} in more bytes than it takes")
    return number, offset + length
