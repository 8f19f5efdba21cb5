"""Compiled loops that convert integers of up to 256 bits from and to digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import (
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS,
    ROWS_OUT,
    compile_loop,
    read_only_arrays,
    writable_arrays,
)

GOOD, NOTHING_THERE, NEGATIVE, NO_NUMBER, TOO_LARGE = range(5)
"""Status of a text as a number."""

MAX_DIGITS = 78
"""Number of decimal digits of 2**256 - 1."""

_PARTS = 8
_GROUP = 9
_ONE_WORD = 19
"""Number of decimal digits that always fit into a word."""

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_TEN = np.uint64(10)
_BILLION = np.uint64(1_000_000_000)
_WORDS = writable_arrays("uint64", 2)


@compile_loop(allocates=False)
def multiply_add(parts: Any, used: Any, factor: Any, more: Any) -> bool:
    """Multiply a number of 32-bit parts and add; return True if it fits into ``used`` parts."""
    carry = more
    for part in range(used):
        carry += parts[part] * factor
        parts[part] = carry & _LOW
        carry >>= _HALF
    return bool(carry == 0)


@compile_loop(allocates=False)
def hex_value(byte: Any) -> Any:
    """Return the value of a hexadecimal digit, 16 for any other byte."""
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return 16


@compile_loop(allocates=False)
def parse_hex(data: Any, start: Any, stop: Any, parts: Any) -> int:
    """Parse hexadecimal digits, at least one."""
    if start == stop:
        return NO_NUMBER
    for at in range(start, stop):
        digit = hex_value(data[at])
        if digit == 16:
            return NO_NUMBER
        if not multiply_add(parts, _PARTS, np.uint64(16), np.uint64(digit)):
            for rest in range(at + 1, stop):
                if hex_value(data[rest]) == 16:
                    return NO_NUMBER
            return TOO_LARGE
    return GOOD


@compile_loop(allocates=False)
def parse_digits(data: Any, start: Any, stop: Any, parts: Any) -> int:
    """Parse decimal digits, at least one."""
    if start == stop:
        return NO_NUMBER
    fits, used = True, 1  # a number needs at most as many parts as groups
    group, scale, digit_count = np.uint64(0), np.uint64(1), 0
    for at in range(start, stop):
        digit = data[at] - 48
        if digit < 0 or digit > 9:
            return NO_NUMBER
        group, scale, digit_count = group * _TEN + np.uint64(digit), scale * _TEN, digit_count + 1
        if digit_count == _GROUP:
            fits = fits and multiply_add(parts, used, scale, group)
            group, scale, digit_count = np.uint64(0), np.uint64(1), 0
            used = min(used + 1, _PARTS)
    if digit_count:
        fits = fits and multiply_add(parts, used, scale, group)
    return GOOD if fits else TOO_LARGE


@compile_loop(allocates=False)
def strip_spaces(data: Any, at: Any, stop: Any) -> Any:
    """Return the bounds of a slice without surrounding white space."""
    while at < stop and (data[at] == 32 or 9 <= data[at] <= 13):
        at += 1
    while stop > at and (data[stop - 1] == 32 or 9 <= data[stop - 1] <= 13):
        stop -= 1
    return at, stop


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, _WORDS, BYTES_OUT])
def parse_number_slices(data: Any, starts: Any, stops: Any, words: Any, found: Any) -> None:
    """Parse one number a slice: decimal digits, or ``0x`` and hexadecimal digits.

    Args:
        data: Bytes of all slices.
        starts: Begin of each slice.
        stops: End of each slice.
        words: Output: four words a number, least significant first; 0 unless ``GOOD``.
        found: Output: status of each slice; a sign and surrounding spaces are allowed.
    """
    parts = np.zeros(_PARTS, dtype=np.uint64)
    for row in range(len(starts)):
        at, stop = strip_spaces(data, starts[row], stops[row])
        if 0 < stop - at <= _ONE_WORD:
            value, good = np.uint64(0), True
            for place in range(at, stop):
                digit = data[place] - 48
                good &= 0 <= digit <= 9
                value = value * _TEN + np.uint64(digit)
            if good:
                found[row] = GOOD
                words[row, 0], words[row, 1], words[row, 2], words[row, 3] = value, 0, 0, 0
                continue
        parts[:] = 0
        negative = False
        if at == stop:
            found[row] = NOTHING_THERE
        else:
            if data[at] == 43 or data[at] == 45:
                negative = data[at] == 45
                at += 1
            if stop - at >= 2 and data[at] == 48 and (data[at + 1] == 120 or data[at + 1] == 88):
                found[row] = parse_hex(data, at + 2, stop, parts)
            else:
                found[row] = parse_digits(data, at, stop, parts)
            if negative and found[row] != NO_NUMBER:
                found[row] = NEGATIVE
        good = found[row] == GOOD
        for word in range(4):
            words[row, word] = parts[2 * word] | (parts[2 * word + 1] << _HALF) if good else np.uint64(0)


@compile_loop(NOTHING, [read_only_arrays("uint64", 2), BYTES, writable_arrays("uint64"), BYTES_OUT])
def narrow_words(words: Any, found: Any, numbers: Any, narrow: Any) -> None:
    """Narrow numbers of four words to one, 0 unless ``GOOD``, with their new status."""
    for row in range(len(words)):
        narrow[row] = found[row]
        if (words[row, 1] | words[row, 2] | words[row, 3]) != 0:
            narrow[row] = TOO_LARGE
        numbers[row] = words[row, 0] if narrow[row] == GOOD else np.uint64(0)


@compile_loop(INT64, [_WORDS, BYTES, BYTES_OUT, ROWS_OUT])
def format_numbers(words: Any, valid: Any, text: Any, offsets: Any) -> Any:
    """Format one number a row as decimal digits; return the total size in bytes.

    Args:
        words: Four words a number.
        valid: Rows with a number; others get no digits.
        text: Output: digits; it has ``MAX_DIGITS`` bytes a row.
        offsets: Output: begin of each row, and the end.
    """
    parts = np.zeros(_PARTS, dtype=np.uint64)
    digits = np.zeros(MAX_DIGITS + _GROUP, dtype=np.uint8)
    at = 0
    for row in range(len(words)):
        offsets[row] = at
        if not valid[row]:
            continue
        top = 0
        for word in range(4):
            parts[2 * word] = words[row, word] & _LOW
            parts[2 * word + 1] = words[row, word] >> _HALF
        for part in range(_PARTS):
            if parts[part] != 0:
                top = part + 1
        count = 0
        while top > 0:
            rest = np.uint64(0)
            for part in range(top - 1, -1, -1):
                value = (rest << _HALF) | parts[part]
                parts[part] = value // _BILLION
                rest = value % _BILLION
            while top > 0 and parts[top - 1] == 0:
                top -= 1
            for _ in range(_GROUP):
                digits[count] = np.uint8(48) + np.uint8(rest % _TEN)
                rest //= _TEN
                count += 1
        while count > 0 and digits[count - 1] == 48:
            count -= 1
        if count == 0:
            digits[0], count = 48, 1
        for digit in range(count - 1, -1, -1):
            text[at] = digits[digit]
            at += 1
    offsets[len(words)] = at
    return at
