"""Heads of CBOR items and texts, for the loops that write and read whole columns of them (RFC 8949)."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import compiled
from causeway.proofs.ic.memory import put_byte, put_word

NUMBER, BYTE_STRING, TEXT, LIST, MAP = 0x00, 0x40, 0x60, 0x80, 0xA0
"""Types of items, as the upper three bits of their first byte."""

MOST_HEAD = 9
"""Bytes of the longest head."""

HEAD_ROOM = 1 + 8
"""Bytes behind an address that ``put_head`` may write, the ones in use and others."""

_HIGH_BITS = 0x80


@compiled(allocates=False)
def put_head(at: Any, major: Any, number: Any) -> Any:
    """Write the head of an item in its shortest form at an address; return the address behind it."""
    if number < np.uint64(24):
        put_byte(at, np.uint64(major) | number)
        return at + 1
    if number < np.uint64(1 << 8):
        code, width = 24, 1
    elif number < np.uint64(1 << 16):
        code, width = 25, 2
    elif number < np.uint64(1 << 32):
        code, width = 26, 4
    else:
        code, width = 27, 8
    put_byte(at, np.uint64(major | code))
    put_word(at + 1, number << np.uint64(64 - 8 * width))
    return at + 1 + width


@compiled(allocates=False)
def is_utf8(data: Any, begin: Any, end: Any) -> Any:
    """Return whether ``data[begin:end]`` is UTF-8: no longer forms, no surrogates, nothing above U+10FFFF."""
    found = np.uint8(0)
    for at in range(begin, end):
        found |= data[at]
    if found < _HIGH_BITS:
        return True
    at = begin
    while at < end:
        first = np.int64(data[at])
        if first < 0x80:
            at += 1
            continue
        # How many bytes follow, and what the first of them may be.
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0
            elif first == 0xED:
                high = 0x9F
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F
        else:
            return False
        if at + more >= end or not low <= data[at + 1] <= high:
            return False
        for following in range(at + 2, at + more + 1):
            if not 0x80 <= data[following] <= 0xBF:
                return False
        at += more + 1
    return True
