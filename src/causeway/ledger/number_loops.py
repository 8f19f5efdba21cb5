"""Loops between whole numbers of up to 256 bits and their digits."""

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
"""What a text is as a number."""

MAX_DIGITS = 78
"""Decimal digits of 2**256 - 1."""

_PARTS = 8
_GROUP = 9
_ONE_WORD = 19
"""So many decimal digits always fit into a word."""

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_TEN = np.uint64(10)
_BILLION = np.uint64(1_000_000_000)
_WORDS = writable_arrays("uint64", 2)


@compile_loop(allocates=False)
def multiply_add(parts: Any, used: Any, factor: Any, more: Any) -> bool:
    """Multiply a number of 32-bit parts, add to it, and return whether it still fits into the ``used`` ones."""
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
    """Read hexadecimal digits, at least one."""
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
    """Read decimal digits, at least one."""
    if start == stop:
        return NO_NUMBER
    fits, used = True, 1  # after each group a number needs no more parts than there were groups
    group, scale, taken = np.uint64(0), np.uint64(1), 0
    for at in range(start, stop):
        digit = data[at] - 48
        if digit < 0 or digit > 9:
            return NO_NUMBER
        group, scale, taken = group * _TEN + np.uint64(digit), scale * _TEN, taken + 1
        if taken == _GROUP:
            fits = fits and multiply_add(parts, used, scale, group)
            group, scale, taken = np.uint64(0), np.uint64(1), 0
            used = min(used + 1, _PARTS)
    if taken:
        fits = fits and multiply_add(parts, used, scale, group)
    return GOOD if fits else TOO_LARGE


@compile_loop(allocates=False)
def strip_spaces(data: Any, at: Any, stop: Any) -> Any:
    """Return where a slice begins and ends without the white space around it."""
    while at < stop and (data[at] == 32 or 9 <= data[at] <= 13):
        at += 1
    while stop > at and (data[stop - 1] == 32 or 9 <= data[stop - 1] <= 13):
        stop -= 1
    return at, stop


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, _WORDS, BYTES_OUT])
def parse_number_slices(data: Any, starts: Any, stops: Any, words: Any, found: Any) -> None:
    """Read one number a slice: decimal digits, or ``0x`` and hexadecimal ones; a sign and spaces around are taken.

    ``words``: four a row, the least significant first. ``found``: what each text is; where it is no number that fits,
    its words are 0.
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
    """Give numbers of four words as one word each, 0 where they are not ``GOOD``, and what each is then."""
    for row in range(len(words)):
        narrow[row] = found[row]
        if (words[row, 1] | words[row, 2] | words[row, 3]) != 0:
            narrow[row] = TOO_LARGE
        numbers[row] = words[row, 0] if narrow[row] == GOOD else np.uint64(0)


@compile_loop(INT64, [_WORDS, BYTES, BYTES_OUT, ROWS_OUT])
def format_numbers(words: Any, valid: Any, text: Any, offsets: Any) -> Any:
    """Write one number a row as decimal digits, nothing where it is not ``valid``; return how many bytes there are.

    ``text`` has room for ``MOST_DIGITS`` a row. ``offsets``: where each row begins, and at the end where all ends.
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
