"""SCALE by whole columns: the loop that reads encodings, following a program (``scale_program``) row by row.

It goes over the rows twice. The first time it only validates and counts, so that the caller can make the columns as
long as they will be; the second time it writes them. One text does both, so that both times the same rules hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BOOL, BYTES, BYTES_OUT, INT64, NOTHING, ROWS, ROWS_OUT, compiled, read
from causeway.model.order import Rows
from causeway.proofs.distinct.loops import copy_bytes
from causeway.proofs.substrate.byte_columns import Bytes
from causeway.proofs.substrate.scale_steps_loops import (
    COMPACT,
    END,
    ENDS,
    ENUM,
    FIXED,
    JUMP,
    KEY,
    LIST,
    NEXT,
    NO_VARIANT,
    NOT_ASCENDING,
    NOT_SHORTEST,
    OPTION,
    OVER_LIMIT,
    READ,
    STRING,
    TOO_LARGE,
    TOO_LONG,
    TRAILING,
)

TABLE = read("int64", 2)

HUGE = 1 << 62
"""What stands for any compact integer above 2**53: longer than any bytes."""


@compiled()
def count_levels(slots: Rows) -> int:
    """Return how many levels the columns have: no lists can be nested deeper."""
    levels = 1
    for slot in range(slots.shape[0]):
        if slots[slot, 0] >= levels:
            levels = slots[slot, 0] + 1
    return levels


@compiled()
def compact_at(data: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Return the compact integer at ``at``, how many bytes it takes, and READ, ENDS or NOT_SHORTEST."""
    if at >= stop:
        return 0, 0, ENDS
    first: Any = np.int64(data[at])
    mode = first & 3
    length: Any = 1
    least = 0
    if mode == 1:
        length = 2
        least = 1 << 6
    elif mode == 2:
        length = 4
        least = 1 << 14
    elif mode == 3:
        length = 5 + (first >> 2)
        least = 1 << 30
    if length > stop - at:
        return 0, 0, ENDS
    number: Any = 0
    if mode < 3:
        for byte in range(length):
            number |= np.int64(data[at + byte]) << (8 * byte)
        number >>= 2
    else:
        for byte in range(length - 1, 0, -1):
            number = number << 8 | np.int64(data[at + byte])
            if number >= 1 << 53:
                number = HUGE
                break
    if number < least or (length > 5 and data[at + length - 1] == 0):
        return number, length, NOT_SHORTEST
    return number, length, READ


@compiled()
def string_ascends(data: Bytes, before: int, before_stop: int, begin: int, stop: int) -> bool:
    """Return whether one string lies below another one."""
    length = min(before_stop - before, stop - begin)
    for byte in range(length):
        if data[before + byte] != data[begin + byte]:
            return bool(data[before + byte] < data[begin + byte])
    return before_stop - before < stop - begin


@compiled()
def number_ascends(data: Bytes, before: int, begin: int, stop: int, tagged: int) -> bool:
    """Return whether one little-endian number, behind a tag or none, lies below another one."""
    if tagged and data[before] != data[begin]:
        return bool(data[before] < data[begin])
    for byte in range(stop - begin - 1, -1, -1):
        if data[before + byte] != data[begin + byte]:
            return bool(data[before + byte] < data[begin + byte])
    return False


@compiled()
def close_element(slots: Rows, level: int, row: int, sizes: Rows, offsets: Rows) -> None:
    """Write where the values of variable length of one element end."""
    for slot in range(slots.shape[0]):
        if slots[slot, 0] == level and slots[slot, 2] >= 0:
            offsets[slots[slot, 5] + row + 1] = sizes[slots[slot, 2]]


@compiled(
    NOTHING,
    [BYTES, ROWS, INT64, TABLE, ROWS, TABLE, BOOL, *[ROWS_OUT] * 4, BYTES_OUT, BYTES_OUT, ROWS_OUT],
)
def read_rows(
    data: Bytes,
    edges: Rows,
    most: int,
    steps: Rows,
    jumps: Rows,
    slots: Rows,
    writing: bool,
    codes: Rows,
    positions: Rows,
    faults: Rows,
    sizes: Rows,
    values: Bytes,
    present: Bytes,
    offsets: Rows,
) -> None:
    """Read row ``i``, ``data[edges[i] : edges[i + 1]]``, of at most ``most`` bytes.

    Without ``writing``, sets ``codes`` to what is wrong with each row, ``positions`` to the byte of the row at which,
    ``faults`` to the step in which, and ``sizes`` to the bytes and elements of all columns of variable length. With
    it, writes the rows whose code is READ, into columns that ``sizes`` has room for.
    """
    levels = count_levels(slots)
    index = np.zeros(levels, dtype=np.int64)
    lists = np.zeros((levels, 5), dtype=np.int64)
    before = np.zeros(len(sizes), dtype=np.int64)
    for row in range(len(edges) - 1):
        begun, stop = edges[row], edges[row + 1]
        if writing and codes[row] != READ:
            close_element(slots, 0, row, sizes, offsets)
            continue
        for number in range(len(sizes)):
            before[number] = sizes[number]
        index[0] = row
        at = begun
        depth = 0
        step = 0
        content = begun
        code: int = READ
        if stop - begun > most:
            code = TOO_LONG
        while code == READ:
            kind, slot = steps[step, 0], steps[step, 1]
            here = 0
            if slot >= 0:
                here = index[slots[slot, 0]]
            if kind == FIXED:
                width = steps[step, 2]
                if width > stop - at:
                    code = ENDS
                    break
                if writing:
                    to = slots[slot, 3] + here * width
                    copy_bytes(data, at, values, to, width)
                    present[slots[slot, 4] + here] = 1
                at += width
                step += 1
            elif kind == ENUM:
                if at >= stop:
                    code = ENDS
                    break
                tag = np.int64(data[at])
                if tag >= steps[step, 2]:
                    code = NO_VARIANT
                    break
                if writing and slot >= 0:
                    values[slots[slot, 3] + here] = tag
                    present[slots[slot, 4] + here] = 1
                at += 1
                step = jumps[steps[step, 3] + tag]
            elif kind == JUMP:
                step = steps[step, 2]
            elif kind == OPTION:
                if at >= stop:
                    code = ENDS
                    break
                if data[at] > 1:
                    code = steps[step, 3]
                    break
                step = steps[step, 2] if data[at] == 0 else step + 1
                at += 1
            elif kind == STRING:
                length, taken, wrong = compact_at(data, at, stop)
                if wrong != READ:
                    code = wrong
                    break
                if length > stop - at - taken:
                    code = ENDS
                    break
                at += taken
                content = at
                number = slots[slot, 2]
                if writing:
                    to = slots[slot, 3] + sizes[number]
                    copy_bytes(data, at, values, to, length)
                    present[slots[slot, 4] + here] = 1
                sizes[number] += length
                at += length
                step += 1
            elif kind == LIST:
                count, taken, wrong = compact_at(data, at, stop)
                if wrong != READ:
                    code = wrong
                    break
                if count > steps[step, 2]:
                    code = OVER_LIMIT
                    break
                if writing:
                    present[slots[slot, 4] + here] = 1
                at += taken
                if count == 0:
                    step = steps[step, 4]
                else:
                    depth += 1
                    lists[depth, 0], lists[depth, 1], lists[depth, 2], lists[depth, 3] = step, count, at, -1
                    number = slots[slot, 2]
                    index[steps[step, 3]] = sizes[number]
                    sizes[number] += 1
                    step += 1
            elif kind == NEXT:
                level = steps[step, 2]
                if writing:
                    close_element(slots, level, index[level], sizes, offsets)
                lists[depth, 1] -= 1
                lists[depth, 2] = at
                if lists[depth, 1] > 0:
                    number = slots[slot, 2]
                    index[level] = sizes[number]
                    sizes[number] += 1
                    step = lists[depth, 0] + 1
                else:
                    step = steps[lists[depth, 0], 4]
                    depth -= 1
            elif kind == COMPACT:
                _, taken, wrong = compact_at(data, at, stop)
                if wrong != READ:
                    code = wrong
                    break
                width = steps[step, 2]
                if (data[at] & 3) < 3:
                    small: Any = 0
                    for byte in range(taken):
                        small |= np.int64(data[at + byte]) << (8 * byte)
                    small >>= 2
                    if width < 4 and small >> (8 * width):
                        code = TOO_LARGE
                        break
                    if writing:
                        to = slots[slot, 3] + here * width
                        for byte in range(min(width, 4)):
                            values[to + byte] = small >> (8 * byte) & 255
                else:
                    if taken - 1 > width:
                        code = TOO_LARGE
                        break
                    if writing:
                        to = slots[slot, 3] + here * width
                        copy_bytes(data, at + 1, values, to, taken - 1)
                if writing:
                    present[slots[slot, 4] + here] = 1
                at += taken
                step += 1
            elif kind == KEY:
                begin = content if steps[step, 2] == 1 else lists[depth, 2]
                if lists[depth, 3] >= 0:
                    if steps[step, 2]:
                        ascends = string_ascends(data, lists[depth, 3], lists[depth, 4], begin, at)
                    else:
                        ascends = number_ascends(data, lists[depth, 3], begin, at, steps[step, 3])
                    if not ascends:
                        code = NOT_ASCENDING
                        at = lists[depth, 2]
                        break
                lists[depth, 3], lists[depth, 4] = begin, at
                step += 1
            elif kind == END:
                if at != stop:
                    code = TRAILING
                break
        if not writing:
            codes[row] = code
            positions[row] = at - begun
            faults[row] = step
            if code != READ:
                for number in range(len(sizes)):
                    sizes[number] = before[number]
        else:
            close_element(slots, 0, row, sizes, offsets)
