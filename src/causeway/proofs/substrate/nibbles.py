"""Keys as nibbles: half bytes, the high one first (ICMP reference 2.3).

A partial key is written with its odd nibble first: an odd count starts with a byte that holds the first nibble alone.
"""

from __future__ import annotations

MAX_KEY_BYTES = 32_767
"""Longest key, in bytes: a node header counts at most 65,535 nibbles."""


def to_nibbles(key: bytes) -> bytes:
    """Return the nibbles of ``key``, one a byte, the high one first."""
    # A hexadecimal digit is a nibble.
    return key.hex().encode().translate(_DIGITS)


def from_nibbles(nibbles: bytes) -> bytes:
    """Return the bytes that an even number of ``nibbles`` (one a byte) are the halves of."""
    return bytes.fromhex(nibbles.translate(_LETTERS).decode())


def pack(nibbles: bytes) -> bytes:
    """Return a partial key as a node holds it: the odd nibble first, then pairs."""
    return from_nibbles(b"\x00" + nibbles if len(nibbles) % 2 else nibbles)


def unpack(packed: bytes, count: int) -> bytes | None:
    """Return the ``count`` nibbles of a packed partial key, or None when the unused half of an odd one is not zero."""
    nibbles = to_nibbles(packed)
    if count % 2 == 0:
        return nibbles
    return None if nibbles[0] else nibbles[1:]


def common_length(first: bytes, second: bytes) -> int:
    """Return how many nibbles or bytes the two have in common from their start."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    low, high = 0, shorter
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low


_DIGITS = bytes.maketrans(b"0123456789abcdef", bytes(range(16)))
_LETTERS = bytes.maketrans(bytes(range(16)), b"0123456789abcdef")
