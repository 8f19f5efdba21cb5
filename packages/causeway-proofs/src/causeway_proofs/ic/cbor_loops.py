"""Compiled helpers for CBOR columns: heads, texts, big-endian words (RFC 8949).

Writing a number byte by byte would dominate the loops' time, so words are accessed at addresses. The caller guarantees
that all eight bytes lie inside an array, and that the array stays alive.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from causeway_proofs.hashing.vector_instructions import address_of, copy
from causeway_proofs.jit import INT64, NOTHING, UINT64, compile_loop, compiler_type, intrinsic

__all__ = ["address_of", "copy", "get_word", "put_byte", "put_word"]

_I8, _I64 = ir.IntType(8), ir.IntType(64)


def _put_word(context: Any, address: Any, word: Any) -> Any:
    """Write a 64-bit number, big-endian."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        address, word = arguments
        builder.store(builder.bswap(word), builder.inttoptr(address, _I64.as_pointer()), align=1)
        return context.get_dummy_value()

    return compiler_type(NOTHING)(compiler_type(INT64), compiler_type(UINT64)), generate


def _put_byte(context: Any, address: Any, byte: Any) -> Any:
    """Write the lowest byte of a number."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        address, byte = arguments
        builder.store(builder.trunc(byte, _I8), builder.inttoptr(address, _I8.as_pointer()), align=1)
        return context.get_dummy_value()

    return compiler_type(NOTHING)(compiler_type(INT64), compiler_type(UINT64)), generate


def _get_word(context: Any, address: Any) -> Any:
    """Read a 64-bit number, big-endian."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.bswap(builder.load(builder.inttoptr(arguments[0], _I64.as_pointer()), align=1))

    return compiler_type(UINT64)(compiler_type(INT64)), generate


put_word: Any = intrinsic(_put_word)
put_byte: Any = intrinsic(_put_byte)
get_word: Any = intrinsic(_get_word)


NUMBER, BYTE_STRING, TEXT, LIST, MAP = 0x00, 0x40, 0x60, 0x80, 0xA0
"""Major types of items, as the upper three bits of their first byte."""

NOT_FOUND = -1

_HIGH_BITS = 0x80


@compile_loop(allocates=False)
def put_head(at: Any, major: Any, number: Any) -> Any:
    """Write the shortest head of an item at an address; return the next address."""
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


@compile_loop(allocates=False)
def is_utf8(data: Any, begin: Any, end: Any) -> Any:
    """Return True if ``data[begin:end]`` is UTF-8.

    Rejects overlong forms, surrogates and values above U+10FFFF.
    """
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
        # Number of following bytes, and the least valid first one.
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


@compile_loop(allocates=False)
def get_head(data: Any, at: Any, end: Any, major: Any) -> Any:
    """Read the shortest head of type ``major`` at ``data[at]``, inside ``data[:end]``.

    Returns:
        Its number (value, length or count) and the next position; ``NOT_FOUND`` if there is none, or if ``at`` is
        ``NOT_FOUND``.
    """
    if at < 0 or at >= end:
        return np.uint64(0), NOT_FOUND
    first = np.int64(data[at])
    code = first & 0x1F
    if first & 0xE0 != major or code > 27:
        return np.uint64(0), NOT_FOUND
    if code < 24:
        return np.uint64(code), at + 1
    width = 1 << (code - 24)
    behind = at + 1 + width
    if behind > end:
        return np.uint64(0), NOT_FOUND
    number = np.uint64(0)
    if at + 9 <= len(data):
        number = get_word(address_of(data) + at + 1) >> np.uint64(64 - 8 * width)
    else:
        for position in range(at + 1, behind):
            number = number << np.uint64(8) | np.uint64(data[position])
    if number < np.uint64(24 if width == 1 else 1 << (4 * width)):
        return np.uint64(0), NOT_FOUND
    return number, behind


@compile_loop(allocates=False)
def get_field(data: Any, at: Any, end: Any, key: Any) -> Any:
    """Read a field's key, below 24; return the next position, ``NOT_FOUND`` for another key."""
    if at < 0 or at >= end or data[at] != key:
        return NOT_FOUND
    return at + 1
