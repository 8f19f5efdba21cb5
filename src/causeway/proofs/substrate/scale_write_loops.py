"""SCALE by whole columns: the loop that writes encodings, following a program (``scale_program``) row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BYTES, BYTES_OUT, INT64, ROWS, ROWS_OUT, compiled
from causeway.model.order import Rows
from causeway.proofs.distinct.loops import copy_bytes
from causeway.proofs.substrate.byte_columns import Bytes
from causeway.proofs.substrate.scale_read_loops import TABLE, count_levels
from causeway.proofs.substrate.scale_steps_loops import (
    ABSENT,
    COMPACT,
    ENUM,
    FIXED,
    JUMP,
    KEY,
    LIST,
    NEXT,
    NO_VARIANT,
    OPTION,
    OVER_LIMIT,
    READ,
    STRING,
    UNWANTED,
)


@compiled()
def put_compact(out: Bytes, at: int, number: int) -> int:
    """Write a compact integer below 2**62 and return how many bytes it takes."""
    if number < 1 << 6:
        out[at] = number << 2
        return 1
    if number < 1 << 14:
        out[at], out[at + 1] = (number << 2 | 1) & 255, number >> 6
        return 2
    length, word = 4, number << 2 | 2
    if number >= 1 << 30:
        while length < 8 and number >> (8 * length):
            length += 1
        out[at] = (length - 4) << 2 | 3
        for byte in range(length):
            out[at + 1 + byte] = number >> (8 * byte) & 255
        return 1 + length
    for byte in range(length):
        out[at + byte] = word >> (8 * byte) & 255
    return length


@compiled()
def put_wide(out: Bytes, at: int, values: Bytes, begin: int, width: int) -> int:
    """Write the number of ``width`` bytes in compact form and return how many bytes it takes."""
    used = width
    while used > 0 and values[begin + used - 1] == 0:
        used -= 1
    if used < 4 or (used == 4 and values[begin + 3] < 64):
        number: Any = 0
        for byte in range(used):
            number |= np.int64(values[begin + byte]) << (8 * byte)
        return put_compact(out, at, number)
    out[at] = (used - 4) << 2 | 3
    copy_bytes(values, begin, out, at + 1, used)
    return 1 + used


@compiled(allocates=False)
def put_fixed(values: Any, begin: Any, out: Any, at: Any, width: Any) -> None:
    """Write ``width`` bytes. Of a width that is known when this is compiled, the bytes move at once."""
    if width == 8:
        copy_bytes(values, begin, out, at, 8)
    elif width == 1:
        out[at] = values[begin]
    elif width == 4:
        copy_bytes(values, begin, out, at, 4)
    elif width == 16:
        copy_bytes(values, begin, out, at, 16)
    elif width == 32:
        copy_bytes(values, begin, out, at, 32)
    else:
        copy_bytes(values, begin, out, at, width)


@compiled()
def unwanted_slot(slots: Rows, level: int, element: int, present: Bytes, stamps: Rows) -> int:
    """Return the first column of the level that has a value though nothing has asked for it, -1 for none."""
    for slot in range(slots.shape[0]):
        if slots[slot, 0] == level and present[slots[slot, 4] + element] and stamps[slot] != element + 1:
            return slot
    return -1


@compiled(INT64, [INT64, TABLE, ROWS, TABLE, BYTES, BYTES, ROWS, ROWS_OUT, BYTES_OUT, ROWS_OUT])
def write_rows(
    count: int,
    steps: Rows,
    jumps: Rows,
    slots: Rows,
    values: Bytes,
    present: Bytes,
    offsets: Rows,
    edges: Rows,
    out: Bytes,
    fault: Rows,
) -> int:
    """Write ``count`` rows out of columns one behind the other into ``out``, which has ``room``; row ``i`` ends at
    ``edges[i + 1]``.

    Returns:
        The first row that is no value, or -1; ``fault`` is then set to what is wrong, the step, the column and its
        element.
    """
    levels = count_levels(slots)
    index = np.zeros(levels, dtype=np.int64)
    lists = np.zeros((levels, 2), dtype=np.int64)
    stamps = np.zeros(slots.shape[0], dtype=np.int64)
    at = 0
    edges[0] = 0
    for row in range(count):
        index[0] = row
        depth = 0
        step = 0
        code = READ
        while True:
            kind, slot = steps[step, 0], steps[step, 1]
            here = 0
            there = True
            if slot >= 0 and kind != NEXT:
                here = index[slots[slot, 0]]
                there = present[slots[slot, 4] + here] != 0
                stamps[slot] = here + 1
                if not there and kind != OPTION:
                    code = ABSENT
                    break
            if kind == FIXED:
                width = steps[step, 2]
                put_fixed(values, slots[slot, 3] + here * width, out, at, width)
                at += width
                step += 1
            elif kind == ENUM:
                tag: Any = 0
                if slot >= 0:
                    tag = np.int64(values[slots[slot, 3] + here])
                if tag >= steps[step, 2]:
                    code = NO_VARIANT
                    break
                out[at] = tag
                at += 1
                step = jumps[steps[step, 3] + tag]
            elif kind == JUMP:
                step = steps[step, 2]
            elif kind == OPTION:
                out[at] = there
                at += 1
                step = step + 1 if there else steps[step, 2]
            elif kind == STRING:
                begin, stop = offsets[slots[slot, 5] + here], offsets[slots[slot, 5] + here + 1]
                at += put_compact(out, at, stop - begin)
                copy_bytes(values, slots[slot, 3] + begin, out, at, stop - begin)
                at += stop - begin
                step += 1
            elif kind == LIST:
                begin, stop = offsets[slots[slot, 5] + here], offsets[slots[slot, 5] + here + 1]
                if stop - begin > steps[step, 2]:
                    code = OVER_LIMIT
                    break
                at += put_compact(out, at, stop - begin)
                if stop == begin:
                    step = steps[step, 4]
                else:
                    depth += 1
                    lists[depth, 0], lists[depth, 1] = step, stop
                    index[steps[step, 3]] = begin
                    step += 1
            elif kind == NEXT:
                level = steps[step, 2]
                spare = unwanted_slot(slots, level, index[level], present, stamps)
                if spare >= 0:
                    code, slot, here = UNWANTED, spare, index[level]
                    break
                index[level] += 1
                if index[level] < lists[depth, 1]:
                    step = lists[depth, 0] + 1
                else:
                    step = steps[lists[depth, 0], 4]
                    depth -= 1
            elif kind == COMPACT:
                width = steps[step, 2]
                at += put_wide(out, at, values, slots[slot, 3] + here * width, width)
                step += 1
            elif kind == KEY:
                step += 1
            else:
                spare = unwanted_slot(slots, 0, row, present, stamps)
                if spare >= 0:
                    code, slot, here = UNWANTED, spare, row
                break
        if code != READ:
            fault[0], fault[1], fault[2], fault[3] = code, step, slot, here
            return row
        edges[row + 1] = at
    return -1
