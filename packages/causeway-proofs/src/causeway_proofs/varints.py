"""Encode base-128 varints (protobuf, Tendermint, ICS-23, LEB128), low bits first."""

from __future__ import annotations

PAYLOAD_BITS = 7
MORE = 0x80
"""Continuation bit, set in every byte but the last."""

_SHORT = [bytes([value]) for value in range(MORE)]
"""Precomputed one-byte encodings, the most frequent ones."""


def uvarint(value: int) -> bytes:
    """Return the shortest encoding of ``value`` (0 or more)."""
    if 0 <= value < MORE:
        return _SHORT[value]
    encoded = bytearray()
    while value >= MORE:
        encoded.append(value & (MORE - 1) | MORE)
        value >>= PAYLOAD_BITS
    encoded.append(value)
    return bytes(encoded)
