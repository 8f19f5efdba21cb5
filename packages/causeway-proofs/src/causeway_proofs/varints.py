"""Numbers in base 128, as protobuf, Tendermint, ICS-23 and LEB128 write them: seven bits a byte, the low ones first."""

from __future__ import annotations

PAYLOAD_BITS = 7
MORE = 0x80
"""Bit of every byte but the last."""

_SHORT = [bytes([value]) for value in range(MORE)]
"""The numbers of one byte, which most are."""


def uvarint(value: int) -> bytes:
    """Return ``value`` (0 or more) in its shortest form."""
    if 0 <= value < MORE:
        return _SHORT[value]
    encoded = bytearray()
    while value >= MORE:
        encoded.append(value & (MORE - 1) | MORE)
        value >>= PAYLOAD_BITS
    encoded.append(value)
    return bytes(encoded)
