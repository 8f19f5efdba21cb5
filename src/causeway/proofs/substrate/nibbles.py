"""Keys as nibbles: half bytes, the high one first (ICMP reference 2.3).

A partial key is written with its odd nibble first: an odd count starts with a byte that holds the first nibble alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.order import Rows
from causeway.proofs.substrate.byte_columns import Bytes, data_of, offsets_of, slices

_HALF = np.uint8(4)

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


def packed_slices(keys: pa.LargeBinaryArray, starts: Rows, stops: Rows) -> pa.LargeBinaryArray:
    """Return nibbles ``starts[i]`` to ``stops[i] - 1`` of each key, packed as partial keys."""
    offsets = offsets_of(keys)
    data = data_of(keys)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    odd_stop = (stops % 2).astype(bool)
    if not odd_stop.any():
        return _whole_bytes(data, offsets[:-1], starts, stops)
    if odd_stop.all():
        return _whole_bytes(_shifted(data), offsets[:-1], starts + 1, stops + 1)
    even, odd = np.flatnonzero(~odd_stop), np.flatnonzero(odd_stop)
    parts = [
        _whole_bytes(data, offsets[even], starts[even], stops[even]),
        _whole_bytes(_shifted(data), offsets[odd], starts[odd] + 1, stops[odd] + 1),
    ]
    back = np.empty(len(starts), dtype=np.int64)
    back[np.concatenate([even, odd])] = np.arange(len(starts))
    return pa.concat_arrays(parts).take(pa.array(back))


def _shifted(data: Bytes) -> Bytes:
    """Return ``data`` moved to the right by one nibble: byte j then ends with the high nibble of byte j before."""
    moved = data >> _HALF
    moved[1:] |= data[:-1] << _HALF
    return moved


def _whole_bytes(data: Bytes, offsets: Rows, starts: Rows, stops: Rows) -> pa.LargeBinaryArray:
    """Return packed slices that end at the end of a byte; where they start inside one, its first half is cleared."""
    packed = slices(data, offsets + starts // 2, offsets + stops // 2)
    halves = (starts % 2).astype(bool)
    if not halves.any():
        return packed
    content = data_of(packed).copy()
    positions = offsets_of(packed)
    content[positions[:-1][halves]] &= 0x0F
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(packed), [None, packed.buffers()[1], pa.py_buffer(content)], offset=packed.offset
    )


_DIGITS = bytes.maketrans(b"0123456789abcdef", bytes(range(16)))
_LETTERS = bytes.maketrans(bytes(range(16)), b"0123456789abcdef")
