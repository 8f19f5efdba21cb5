"""Unsigned LEB128: seven bits a byte, lowest first, in the fewest bytes (the leaf ``time``, IC reference 2.9)."""

from __future__ import annotations

from causeway.proofs.ic.errors import MalformedTime
from causeway.proofs.varints import uvarint

_MAX_BYTES = 10
_LIMIT = 1 << 64


def encode_leb128(value: int) -> bytes:
    """Return ``value``, an unsigned number, in LEB128."""
    if value < 0:
        raise OverflowError(f"{value} is not unsigned")
    return uvarint(value)


def decode_leb128(data: bytes) -> int:
    """Return the unsigned 64-bit number that ``data`` is, all of it and in its shortest form.

    Raises:
        MalformedTime: it is not such an encoding.
    """
    value = 0
    for at, byte in enumerate(data[:_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * at)
    if not 1 <= len(data) <= _MAX_BYTES or value >= _LIMIT or encode_leb128(value) != data:
        raise MalformedTime(
            f"{data[: 2 * _MAX_BYTES].hex()} is not an unsigned 64-bit number in its shortest LEB128 form"
        )
    return value
