"""Compiled loops over recorded text: JSON lines, CSV, payload contents and ISO 8601 times."""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import (
    BYTE_ROWS_OUT,
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS,
    ROWS_OUT,
    compile_loop,
    writable_arrays,
)

from causeway.ledger.number_loops import strip_spaces

FINE, NOT_JSON, TOO_DEEP, KEY_TWICE = range(4)
"""Result of a line."""

ABSENT, TEXT, ESCAPED, NUMBER, WORD, NULL, NESTED = range(7)
"""Kind of a value: text without or with escapes, number, ``true`` or ``false``, ``null``, object or list."""

MAX_DEPTH = 64
"""Maximum nesting of objects and lists in a line."""

_TABLE = writable_arrays("int64", 2)
_UPPER_A, _UPPER_Z, _SMALL = np.uint8(65), np.uint8(90), np.uint8(32)


@compile_loop(allocates=False)
def skip_spaces(data: Any, at: Any, stop: Any) -> Any:
    """Return the position of the next byte that is not JSON whitespace."""
    while at < stop and (data[at] == 32 or data[at] == 9 or data[at] == 13 or data[at] == 10):
        at += 1
    return at


@compile_loop(allocates=False)
def skip_text(data: Any, at: Any, stop: Any) -> Any:
    """Return the end of a text whose first byte after the quote is at ``at``.

    -1: invalid. A text with escapes that ends at position ``p`` gives ``-p - 2``.
    """
    escaped = False
    while at < stop:
        byte = data[at]
        if byte == 34:
            return -at - 2 if escaped else at
        if byte < 32:
            return -1
        if byte == 92:
            escaped = True
            at += 1
            if at == stop:
                return -1
            kind = data[at]
            if kind == 117:
                if at + 4 >= stop:
                    return -1
                for digit in range(at + 1, at + 5):
                    found = data[digit]
                    if not (48 <= found <= 57 or 97 <= found <= 102 or 65 <= found <= 70):
                        return -1
                at += 4
            elif kind not in (34, 92, 47, 98, 102, 110, 114, 116):
                return -1
        at += 1
    return -1


@compile_loop(allocates=False)
def skip_number(data: Any, at: Any, stop: Any) -> Any:
    """Return the end of a number, -1: invalid."""
    if data[at] == 45:
        at += 1
    begin = at
    while at < stop and 48 <= data[at] <= 57:
        at += 1
    if at == begin or (data[begin] == 48 and at > begin + 1):
        return -1
    if at < stop and data[at] == 46:
        begin = at + 1
        at += 1
        while at < stop and 48 <= data[at] <= 57:
            at += 1
        if at == begin:
            return -1
    if at < stop and (data[at] == 101 or data[at] == 69):
        at += 1
        if at < stop and (data[at] == 43 or data[at] == 45):
            at += 1
        begin = at
        while at < stop and 48 <= data[at] <= 57:
            at += 1
        if at == begin:
            return -1
    return at


@compile_loop(allocates=False)
def skip_word(data: Any, at: Any, stop: Any) -> Any:
    """Return the end of ``true``, ``false`` or ``null``, -1: none of them."""
    if stop - at >= 4 and data[at] == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4
    if stop - at >= 4 and data[at] == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4
    if (
        stop - at >= 5
        and data[at] == 102
        and data[at + 1] == 97
        and data[at + 2] == 108
        and data[at + 3] == 115
        and data[at + 4] == 101
    ):
        return at + 5
    return -1


@compile_loop(allocates=False)
def is_key(data: Any, start: Any, stop: Any, keys: Any, first: Any, length: Any, loose: Any) -> Any:
    """Compare a key with one of ``keys``; ``loose``: without case, spaces, ``-`` and ``_``."""
    if not loose and length != stop - start:
        return False
    place, end = first, first + length
    for at in range(start, stop):
        byte = data[at]
        if loose:
            if byte == 32 or byte == 45 or byte == 95:
                continue
            if 65 <= byte <= 90:
                byte += 32
        if place == end or keys[place] != byte:
            return False
        place += 1
    return place == end


@compile_loop(allocates=False)
def find_child(node: Any, data: Any, start: Any, stop: Any, tree: Any, keys: Any, loose: Any) -> Any:
    """Return the child node under a key, -1 without one."""
    if node < 0:
        return -1
    for child in range(tree[node, 0], tree[node, 1]):
        if is_key(data, start, stop, keys, tree[child, 2], tree[child, 3], loose):
            return child
    return -1


@compile_loop(allocates=False)
def read_line(
    data: Any,
    at: Any,
    stop: Any,
    tree: Any,
    keys: Any,
    loose: Any,
    nodes: Any,
    lists: Any,
    starts: Any,
    stops: Any,
    kinds: Any,
) -> int:
    """Read one line with one object; see ``read_lines``."""
    at = skip_spaces(data, at, stop)
    if at == stop or data[at] != 123:
        return NOT_JSON
    depth = 0
    nodes[0], lists[0] = 0, 0
    at = skip_spaces(data, at + 1, stop)
    fresh = True  # the object or list is still empty
    while True:
        if at == stop:
            return NOT_JSON
        closing = 93 if lists[depth] else 125
        if data[at] == closing:
            slot = tree[nodes[depth], 4] if nodes[depth] >= 0 else -1
            at += 1
            if slot >= 0:
                stops[slot] = at
            if depth == 0:
                return FINE if skip_spaces(data, at, stop) == stop else NOT_JSON
            depth -= 1
            fresh = False
            at = skip_spaces(data, at, stop)
            continue
        if not fresh:
            if data[at] != 44:
                return NOT_JSON
            at = skip_spaces(data, at + 1, stop)
        node = -1
        if not lists[depth]:
            if at == stop or data[at] != 34:
                return NOT_JSON
            end = skip_text(data, at + 1, stop)
            if end == -1:
                return NOT_JSON
            if end >= 0:
                node = find_child(nodes[depth], data, at + 1, end, tree, keys, loose)
            else:
                end = -end - 2
            at = skip_spaces(data, end + 1, stop)
            if at == stop or data[at] != 58:
                return NOT_JSON
            at = skip_spaces(data, at + 1, stop)
        if at == stop:
            return NOT_JSON
        slot = tree[node, 4] if node >= 0 else -1
        if slot >= 0:
            if kinds[slot] != ABSENT:
                return KEY_TWICE
            starts[slot] = at
        byte = data[at]
        fresh = False
        if byte == 123 or byte == 91:
            if slot >= 0:
                kinds[slot] = NESTED
            depth += 1
            if depth == MAX_DEPTH:
                return TOO_DEEP
            nodes[depth], lists[depth] = node, byte == 91
            fresh = True
            at = skip_spaces(data, at + 1, stop)
            continue
        if byte == 34:
            end = skip_text(data, at + 1, stop)
            if end == -1:
                return NOT_JSON
            kind = TEXT if end >= 0 else ESCAPED
            at = end + 1 if end >= 0 else -end - 1
            if slot >= 0 and kind == TEXT:
                starts[slot], stops[slot] = starts[slot] + 1, at - 1
            elif slot >= 0:
                stops[slot] = at
        elif byte == 45 or 48 <= byte <= 57:
            at, kind = skip_number(data, at, stop), NUMBER
        else:
            kind = NULL if byte == 110 else WORD
            at = skip_word(data, at, stop)
        if at == -1:
            return NOT_JSON
        if slot >= 0:
            kinds[slot] = kind
            if kind != TEXT and kind != ESCAPED:
                stops[slot] = at
        at = skip_spaces(data, at, stop)


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, _TABLE, BYTES, INT64, _TABLE, _TABLE, BYTE_ROWS_OUT, BYTES_OUT])
def read_lines(
    data: Any,
    begins: Any,
    ends: Any,
    tree: Any,
    keys: Any,
    loose: Any,
    starts: Any,
    stops: Any,
    kinds: Any,
    faults: Any,
) -> None:
    """Find values in JSON lines, one object a line; every line is checked against the grammar.

    Args:
        data: Bytes of all lines.
        begins: Begin of each line.
        ends: End of each line.
        tree: A row a path step: its children (begin, end), its key in ``keys`` (begin, length), and the column of its
            value, -1: none.
        keys: Bytes of all keys.
        loose: As of ``is_key``.
        starts: Output: begin of each value, shape (lines, columns).
        stops: Output: end of each value.
        kinds: Output: kind of each value, initially ``ABSENT``.
        faults: Output: result of each line.
    """
    nodes, lists = np.zeros(MAX_DEPTH, dtype=np.int64), np.zeros(MAX_DEPTH, dtype=np.int64)
    for row in range(len(begins)):
        faults[row] = read_line(
            data, begins[row], ends[row], tree, keys, loose, nodes, lists, starts[row], stops[row], kinds[row]
        )


@compile_loop(INT64, [BYTES, BYTES, ROWS_OUT])
def record_ends(data: Any, separator: Any, ends: Any) -> Any:
    """Find the ends of CSV records, with line ends in quoted fields; return their number.

    Args:
        data: Bytes of the records.
        separator: One byte between fields.
        ends: Output: ends of records. It has an entry for each line feed and carriage return (each of them alone ends a
            line), and a last one: 1 if a quote is open at the end, else 0.
    """
    count, quoted, fresh = 0, False, True
    for at in range(len(data)):
        byte = data[at]
        if quoted:
            if byte == 34:
                quoted = False  # a doubled quote reopens it
                fresh = True
            continue
        if byte == 34 and fresh:
            quoted = True
        elif byte == 10 or (byte == 13 and (at + 1 == len(data) or data[at + 1] != 10)):
            ends[count] = at + 1
            count += 1
            fresh = True
        else:
            fresh = byte == separator[0]
    ends[len(ends) - 1] = quoted
    return count


@compile_loop(allocates=False)
def is_hex(data: Any, at: Any, stop: Any) -> Any:
    """Return True if all bytes are hexadecimal digits."""
    for place in range(at, stop):
        byte = data[place]
        if not (48 <= byte <= 57 or 97 <= byte <= 102 or 65 <= byte <= 70):
            return False
    return True


@compile_loop(allocates=False)
def skip_zero_fraction(data: Any, at: Any, stop: Any) -> Any:
    """Return the end of a number without a zero fraction."""
    end = stop
    while end > at and data[end - 1] == 48:
        end -= 1
    if end < stop and end > at + 1 and data[end - 1] == 46:
        return end - 1
    return stop


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, BYTES, INT64, ROWS_OUT, BYTES_OUT])
def append_texts(data: Any, starts: Any, stops: Any, valid: Any, number: Any, ends: Any, out: Any) -> None:
    """Append a text to the content of each row.

    It is the length as four bytes, little-endian, and the bytes. Spaces around it are dropped. Hexadecimal digits after
    ``0x`` become lower case, and 40 or 64 of them get a missing prefix. A ``number`` loses ``+``, leading zeros and a
    zero fraction. ``ends``: end of each row's content so far.
    """
    for row in range(len(starts)):
        if not valid[row]:
            continue
        at, stop = strip_spaces(data, starts[row], stops[row])
        small = stop - at >= 2 and data[at] == 48 and (data[at + 1] == 120 or data[at + 1] == 88)
        bare = False
        if number and not small:
            if at < stop and data[at] == 43:
                at += 1
            while at < stop - 1 and data[at] == 48 and data[at + 1] != 46:
                at += 1
            stop = skip_zero_fraction(data, at, stop)
        elif stop - at == 40 or stop - at == 64:
            bare = is_hex(data, at, stop)
        length, end = stop - at + 2 * bare, ends[row]
        for byte in range(4):
            out[end + byte] = (length >> (8 * byte)) & 255
        end += 4
        if bare:
            out[end], out[end + 1] = 48, 120
            end += 2
            small = True
        # Unsigned positions need no test for negative indices, so that the loop is vectorized.
        count, begin, put = np.uint64(stop - at), np.uint64(at), np.uint64(end)
        if small:
            for place in range(count):
                byte = data[begin + place]
                out[put + place] = byte | _SMALL if _UPPER_A <= byte <= _UPPER_Z else byte
        else:
            for place in range(count):
                out[put + place] = data[begin + place]
        ends[row] = end + stop - at


@compile_loop(allocates=False)
def parse_digits_at(data: Any, at: Any, stop: Any, count: Any) -> Any:
    """Return the number of ``count`` digits, -1 for other bytes."""
    if stop - at < count:
        return -1
    value = 0
    for place in range(at, at + count):
        digit = data[place] - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@compile_loop(allocates=False)
def days_since_epoch(year: Any, month: Any, day: Any) -> Any:
    """Return the days from 1970-01-01 to a Gregorian date."""
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, ROWS_OUT, BYTES_OUT])
def parse_time_slices(data: Any, starts: Any, stops: Any, micros: Any, found: Any) -> None:
    """Parse ISO 8601 times: ``2022-01-11T12:00:00.5+01:00``; a date alone means its begin.

    Args:
        data: Bytes of all texts.
        starts: Begin of each text.
        stops: End of each text.
        micros: Output: microseconds since 1970-01-01 by the clock of the text, truncated.
        found: Output: 0 invalid, 1 without a zone, 2 with one (``micros`` is in UTC), 3 empty.
    """
    for row in range(len(starts)):
        at, stop = strip_spaces(data, starts[row], stops[row])
        micros[row], found[row] = 0, 3
        if at == stop:
            continue
        found[row] = 0
        year, month, day = (
            parse_digits_at(data, at, stop, 4),
            parse_digits_at(data, at + 5, stop, 2),
            parse_digits_at(data, at + 8, stop, 2),
        )
        if year < 1 or month < 1 or month > 12 or day < 1 or data[at + 4] != 45 or data[at + 7] != 45:
            continue
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        longest = 31 - (month in (4, 6, 9, 11))
        if month == 2:
            longest = 28 + leap
        if day > longest:
            continue
        value = days_since_epoch(year, month, day) * 86_400_000_000
        at += 10
        if at < stop:
            if data[at] != 84 and data[at] != 116 and data[at] != 32:
                continue
            hour, minute = parse_digits_at(data, at + 1, stop, 2), parse_digits_at(data, at + 4, stop, 2)
            if hour < 0 or hour > 23 or minute < 0 or minute > 59 or data[at + 3] != 58:
                continue
            value += (hour * 60 + minute) * 60_000_000
            at += 6
            if at < stop and data[at] == 58:
                second = parse_digits_at(data, at + 1, stop, 2)
                if second < 0 or second > 59:
                    continue
                value += second * 1_000_000
                at += 3
                if at < stop and (data[at] == 46 or data[at] == 44):
                    at += 1
                    begin, scale = at, 100_000
                    while at < stop and 48 <= data[at] <= 57:
                        value += (data[at] - 48) * scale
                        scale //= 10
                        at += 1
                    if at == begin:
                        continue
        while at < stop and data[at] == 32:
            at += 1
        if at == stop:
            micros[row], found[row] = value, 1
            continue
        if data[at] == 90 or data[at] == 122:
            if at + 1 == stop:
                micros[row], found[row] = value, 2
            continue
        if stop - at >= 3 and data[at] == 85 and data[at + 1] == 84 and data[at + 2] == 67:
            if at + 3 == stop:
                micros[row], found[row] = value, 2
            continue
        if data[at] != 43 and data[at] != 45:
            continue
        sign, hours = 1 if data[at] == 43 else -1, parse_digits_at(data, at + 1, stop, 2)
        rest, minutes = at + 3, 0
        if rest < stop:
            if data[rest] == 58:
                rest += 1
            minutes = parse_digits_at(data, rest, stop, 2)
            rest += 2
        if hours < 0 or hours > 23 or minutes < 0 or minutes > 59 or rest != stop:
            continue
        micros[row], found[row] = value - sign * (hours * 60 + minutes) * 60_000_000, 2
