"""Compiled loops that read and write SCALE columns by a program (``scale_program``).

Reading takes two passes over the rows. The first only validates and counts, so that the caller can allocate the
columns; the second writes them. One function does both, so both passes apply the same rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.distinct_loops import copy_bytes
from causeway_proofs.jit import BOOL, BYTES, BYTES_OUT, INT64, NOTHING, ROWS, ROWS_OUT, compile_loop, read_only_arrays
from causeway_proofs.order import Rows
from causeway_proofs.substrate import scale_shapes as shapes
from causeway_proofs.substrate.byte_columns import Bytes

TABLE = read_only_arrays("int64", 2)

HUGE = 1 << 62
"""Stands for any compact integer above 2**53: longer than any input."""


@compile_loop()
def count_levels(slots: Rows) -> int:
    """Return the number of column levels; lists cannot nest deeper."""
    levels = 1
    for slot in range(slots.shape[0]):
        if slots[slot, 0] >= levels:
            levels = slots[slot, 0] + 1
    return levels


@compile_loop()
def compact_at(data: Bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Return the compact integer at ``at``, its length in bytes, and READ, ENDS or NOT_SHORTEST."""
    if at >= stop:
        return 0, 0, shapes.ENDS
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
        return 0, 0, shapes.ENDS
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
        return number, length, shapes.NOT_SHORTEST
    return number, length, shapes.READ


@compile_loop()
def string_ascends(data: Bytes, before: int, before_stop: int, begin: int, stop: int) -> bool:
    """Return True if one string sorts below another."""
    length = min(before_stop - before, stop - begin)
    for byte in range(length):
        if data[before + byte] != data[begin + byte]:
            return bool(data[before + byte] < data[begin + byte])
    return before_stop - before < stop - begin


@compile_loop()
def number_ascends(data: Bytes, before: int, begin: int, stop: int, tagged: int) -> bool:
    """Return True if one little-endian number, possibly tagged, is below another."""
    if tagged and data[before] != data[begin]:
        return bool(data[before] < data[begin])
    for byte in range(stop - begin - 1, -1, -1):
        if data[before + byte] != data[begin + byte]:
            return bool(data[before + byte] < data[begin + byte])
    return False


@compile_loop()
def close_element(slots: Rows, level: int, row: int, sizes: Rows, offsets: Rows) -> None:
    """Write the ends of an element's variable-length values."""
    for slot in range(slots.shape[0]):
        if slots[slot, 0] == level and slots[slot, 2] >= 0:
            offsets[slots[slot, 5] + row + 1] = sizes[slots[slot, 2]]


@compile_loop(
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
    """Read rows ``data[edges[i] : edges[i + 1]]`` of at most ``most`` bytes.

    Without ``writing``, sets ``codes`` to each row's fault, ``positions`` to its byte, ``faults`` to its step, and
    ``sizes`` to the bytes and elements of all variable-length columns. With ``writing``, writes the rows with code READ
    into columns allocated by ``sizes``.
    """
    levels = count_levels(slots)
    index = np.zeros(levels, dtype=np.int64)
    lists = np.zeros((levels, 5), dtype=np.int64)
    before = np.zeros(len(sizes), dtype=np.int64)
    for row in range(len(edges) - 1):
        row_start, stop = edges[row], edges[row + 1]
        if writing and codes[row] != shapes.READ:
            close_element(slots, 0, row, sizes, offsets)
            continue
        for number in range(len(sizes)):
            before[number] = sizes[number]
        index[0] = row
        at = row_start
        depth = 0
        step = 0
        content = row_start
        code: int = shapes.READ
        if stop - row_start > most:
            code = shapes.TOO_LONG
        while code == shapes.READ:
            kind, slot = steps[step, 0], steps[step, 1]
            here = 0
            if slot >= 0:
                here = index[slots[slot, 0]]
            if kind == shapes.FIXED:
                width = steps[step, 2]
                if width > stop - at:
                    code = shapes.ENDS
                    break
                if writing:
                    to = slots[slot, 3] + here * width
                    copy_bytes(data, at, values, to, width)
                    present[slots[slot, 4] + here] = 1
                at += width
                step += 1
            elif kind == shapes.ENUM:
                if at >= stop:
                    code = shapes.ENDS
                    break
                tag = np.int64(data[at])
                if tag >= steps[step, 2]:
                    code = shapes.NO_VARIANT
                    break
                if writing and slot >= 0:
                    values[slots[slot, 3] + here] = tag
                    present[slots[slot, 4] + here] = 1
                at += 1
                step = jumps[steps[step, 3] + tag]
            elif kind == shapes.JUMP:
                step = steps[step, 2]
            elif kind == shapes.OPTION:
                if at >= stop:
                    code = shapes.ENDS
                    break
                if data[at] > 1:
                    code = steps[step, 3]
                    break
                step = steps[step, 2] if data[at] == 0 else step + 1
                at += 1
            elif kind == shapes.STRING:
                length, width_read, wrong = compact_at(data, at, stop)
                if wrong != shapes.READ:
                    code = wrong
                    break
                if length > stop - at - width_read:
                    code = shapes.ENDS
                    break
                at += width_read
                content = at
                number = slots[slot, 2]
                if writing:
                    to = slots[slot, 3] + sizes[number]
                    copy_bytes(data, at, values, to, length)
                    present[slots[slot, 4] + here] = 1
                sizes[number] += length
                at += length
                step += 1
            elif kind == shapes.LIST:
                count, width_read, wrong = compact_at(data, at, stop)
                if wrong != shapes.READ:
                    code = wrong
                    break
                if count > steps[step, 2]:
                    code = shapes.OVER_LIMIT
                    break
                if writing:
                    present[slots[slot, 4] + here] = 1
                at += width_read
                if count == 0:
                    step = steps[step, 4]
                else:
                    depth += 1
                    lists[depth, 0], lists[depth, 1], lists[depth, 2], lists[depth, 3] = step, count, at, -1
                    number = slots[slot, 2]
                    index[steps[step, 3]] = sizes[number]
                    sizes[number] += 1
                    step += 1
            elif kind == shapes.NEXT:
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
            elif kind == shapes.COMPACT:
                _, width_read, wrong = compact_at(data, at, stop)
                if wrong != shapes.READ:
                    code = wrong
                    break
                width = steps[step, 2]
                if (data[at] & 3) < 3:
                    small: Any = 0
                    for byte in range(width_read):
                        small |= np.int64(data[at + byte]) << (8 * byte)
                    small >>= 2
                    if width < 4 and small >> (8 * width):
                        code = shapes.TOO_LARGE
                        break
                    if writing:
                        to = slots[slot, 3] + here * width
                        for byte in range(min(width, 4)):
                            values[to + byte] = small >> (8 * byte) & 255
                else:
                    if width_read - 1 > width:
                        code = shapes.TOO_LARGE
                        break
                    if writing:
                        to = slots[slot, 3] + here * width
                        copy_bytes(data, at + 1, values, to, width_read - 1)
                if writing:
                    present[slots[slot, 4] + here] = 1
                at += width_read
                step += 1
            elif kind == shapes.KEY:
                begin = content if steps[step, 2] == 1 else lists[depth, 2]
                if lists[depth, 3] >= 0:
                    if steps[step, 2]:
                        ascends = string_ascends(data, lists[depth, 3], lists[depth, 4], begin, at)
                    else:
                        ascends = number_ascends(data, lists[depth, 3], begin, at, steps[step, 3])
                    if not ascends:
                        code = shapes.NOT_ASCENDING
                        at = lists[depth, 2]
                        break
                lists[depth, 3], lists[depth, 4] = begin, at
                step += 1
            elif kind == shapes.END:
                if at != stop:
                    code = shapes.TRAILING
                break
        if not writing:
            codes[row] = code
            positions[row] = at - row_start
            faults[row] = step
            if code != shapes.READ:
                for number in range(len(sizes)):
                    sizes[number] = before[number]
        else:
            close_element(slots, 0, row, sizes, offsets)


@compile_loop()
def put_compact(out: Bytes, at: int, number: int) -> int:
    """Write a compact integer below 2**62; return its length in bytes."""
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


@compile_loop()
def put_wide(out: Bytes, at: int, values: Bytes, begin: int, width: int) -> int:
    """Write a number of ``width`` bytes in compact form; return its length in bytes."""
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


@compile_loop(allocates=False)
def put_fixed(values: Any, begin: Any, out: Any, at: Any, width: Any) -> None:
    """Write ``width`` bytes. A width known at compile time moves all bytes at once."""
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


@compile_loop()
def unwanted_slot(slots: Rows, level: int, element: int, present: Bytes, stamps: Rows) -> int:
    """Return the first column of the level with a value that no step has read, -1 for none."""
    for slot in range(slots.shape[0]):
        if slots[slot, 0] == level and present[slots[slot, 4] + element] and stamps[slot] != element + 1:
            return slot
    return -1


@compile_loop(INT64, [INT64, TABLE, ROWS, TABLE, BYTES, BYTES, ROWS, ROWS_OUT, BYTES_OUT, ROWS_OUT])
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
    """Write ``count`` rows into the large enough ``out``; row ``i`` ends at ``edges[i + 1]``.

    Returns:
        The first invalid row, or -1; ``fault`` then holds the fault, the step, the column and its element.
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
        code = shapes.READ
        while True:
            kind, slot = steps[step, 0], steps[step, 1]
            here = 0
            there = True
            if slot >= 0 and kind != shapes.NEXT:
                here = index[slots[slot, 0]]
                there = present[slots[slot, 4] + here] != 0
                stamps[slot] = here + 1
                if not there and kind != shapes.OPTION:
                    code = shapes.ABSENT
                    break
            if kind == shapes.FIXED:
                width = steps[step, 2]
                put_fixed(values, slots[slot, 3] + here * width, out, at, width)
                at += width
                step += 1
            elif kind == shapes.ENUM:
                tag: Any = 0
                if slot >= 0:
                    tag = np.int64(values[slots[slot, 3] + here])
                if tag >= steps[step, 2]:
                    code = shapes.NO_VARIANT
                    break
                out[at] = tag
                at += 1
                step = jumps[steps[step, 3] + tag]
            elif kind == shapes.JUMP:
                step = steps[step, 2]
            elif kind == shapes.OPTION:
                out[at] = there
                at += 1
                step = step + 1 if there else steps[step, 2]
            elif kind == shapes.STRING:
                begin, stop = offsets[slots[slot, 5] + here], offsets[slots[slot, 5] + here + 1]
                at += put_compact(out, at, stop - begin)
                copy_bytes(values, slots[slot, 3] + begin, out, at, stop - begin)
                at += stop - begin
                step += 1
            elif kind == shapes.LIST:
                begin, stop = offsets[slots[slot, 5] + here], offsets[slots[slot, 5] + here + 1]
                if stop - begin > steps[step, 2]:
                    code = shapes.OVER_LIMIT
                    break
                at += put_compact(out, at, stop - begin)
                if stop == begin:
                    step = steps[step, 4]
                else:
                    depth += 1
                    lists[depth, 0], lists[depth, 1] = step, stop
                    index[steps[step, 3]] = begin
                    step += 1
            elif kind == shapes.NEXT:
                level = steps[step, 2]
                spare = unwanted_slot(slots, level, index[level], present, stamps)
                if spare >= 0:
                    code, slot, here = shapes.UNWANTED, spare, index[level]
                    break
                index[level] += 1
                if index[level] < lists[depth, 1]:
                    step = lists[depth, 0] + 1
                else:
                    step = steps[lists[depth, 0], 4]
                    depth -= 1
            elif kind == shapes.COMPACT:
                width = steps[step, 2]
                at += put_wide(out, at, values, slots[slot, 3] + here * width, width)
                step += 1
            elif kind == shapes.KEY:
                step += 1
            else:
                spare = unwanted_slot(slots, 0, row, present, stamps)
                if spare >= 0:
                    code, slot, here = shapes.UNWANTED, spare, row
                break
        if code != shapes.READ:
            fault[0], fault[1], fault[2], fault[3] = code, step, slot, here
            return row
        edges[row + 1] = at
    return -1
