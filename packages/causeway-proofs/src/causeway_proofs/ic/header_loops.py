"""Compiled loops that write and read encoded stream headers (IC reference 2.9)."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.ic.cbor_loops import (
    LIST,
    MAP,
    NOT_FOUND,
    NUMBER,
    address_of,
    get_field,
    get_head,
    put_byte,
    put_head,
)
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

BEGIN, END, SIGNALS_END = range(3)
"""Rows of the matrix of bounds."""

FLAGS_FIELD, SIGNALS_FIELD = 4, 5

MOST_REASONS = 8

ROOM = 160
"""Most bytes of a header without signals: fields, heads of eight lists, a trailing word."""

SIGNAL_ROOM = 9

OFFSETS = read_only_arrays("int32")
NUMBERS, NUMBERS_OUT = read_only_arrays("uint64"), writable_arrays("uint64")
TABLE, TABLE_OUT = read_only_arrays("uint64", 2), writable_arrays("uint64", 2)


@compile_loop(INT64, [TABLE, ROWS, NUMBERS, BYTES, INT64, BYTES_OUT, ROWS_OUT])
def write_headers(bounds: Any, edges: Any, indexes: Any, reasons: Any, known: Any, out: Any, ends: Any) -> Any:
    """Write headers; the reject signals of row ``i`` are ``edges[i]`` to ``edges[i + 1]`` - 1.

    ``known``: number of reasons in the version. ``out`` has ``ROOM`` for each row and ``SIGNAL_ROOM`` for each signal.
    ``ends[0]`` is 0; the others are set to the end of each header.

    Returns:
        The first row without an encoding (unknown reason, or indices that do not ascend to below ``signals_end``), or
        -1.
    """
    base = address_of(out)
    counts = np.zeros(MOST_REASONS + 1, dtype=np.int64)
    for row in range(bounds.shape[1]):
        first, last, signals_end = edges[row], edges[row + 1], bounds[SIGNALS_END, row]
        counts[:] = 0
        lists = 0
        for signal in range(first, last):
            own = np.int64(reasons[signal])
            if own < 1 or own > known or indexes[signal] >= signals_end:
                return row
            if signal > first and indexes[signal] <= indexes[signal - 1]:
                return row
            lists += counts[own] == 0
            counts[own] += 1
        at = base + ends[row]
        put_byte(at, np.uint64(MAP + 3 + (last > first)))
        at += 1
        for field in range(3):
            put_byte(at, np.uint64(field))
            at = put_head(at + 1, NUMBER, bounds[field, row])
        if lists:
            put_byte(at, np.uint64(SIGNALS_FIELD))
            at = put_head(at + 1, MAP, np.uint64(lists))
            for reason in range(1, MOST_REASONS + 1):
                if counts[reason] == 0:
                    continue
                put_byte(at, np.uint64(reason - 1))
                at = put_head(at + 1, LIST, np.uint64(counts[reason]))
                before = -1
                for signal in range(first, last):
                    if np.int64(reasons[signal]) == reason:
                        if before >= 0:
                            at = put_head(at, NUMBER, indexes[signal] - indexes[before])
                        before = signal
                at = put_head(at, NUMBER, signals_end - indexes[before])
        ends[row + 1] = at - base
    return -1


@compile_loop()
def read_signals(
    data: Any, at: Any, end: Any, signals_end: Any, known: Any, found: Any, indexes: Any, reasons: Any
) -> Any:
    """Read the lists of reject signals by reason; with ``found`` >= 0, write them from there on.

    Returns:
        The number of signals and of lists; negative if not canonical.
    """
    lists, at = get_head(data, at, end, MAP)
    total: Any = 0
    field: Any = -1
    if at < 0 or lists == np.uint64(0) or lists > np.uint64(known):
        return NOT_FOUND, 0
    for _ in range(np.int64(lists)):
        if at >= end or np.int64(data[at]) <= field or np.int64(data[at]) >= known:
            return NOT_FOUND, 0
        field = np.int64(data[at])
        count, at = get_head(data, at + 1, end, LIST)
        # Each signal takes at least one byte.
        if at < 0 or count == np.uint64(0) or count > np.uint64(end - at):
            return NOT_FOUND, 0
        left = signals_end
        for number in range(np.int64(count)):
            distance, at = get_head(data, at, end, NUMBER)
            if at < 0 or distance == np.uint64(0) or distance > left:
                return NOT_FOUND, 0
            left -= distance
            if found >= 0:
                # Distance to the next signal; summed up from the end once all are known.
                indexes[found + total + number] = distance
                reasons[found + total + number] = field + 1
        if found >= 0:
            index = signals_end
            for number in range(found + total + np.int64(count) - 1, found + total - 1, -1):
                index -= indexes[number]
                indexes[number] = index
        total += np.int64(count)
    return (total, np.int64(lists)) if at == end else (NOT_FOUND, 0)


@compile_loop(INT64, [BYTES, OFFSETS, INT64, INT64, TABLE_OUT, BYTES_OUT, ROWS_OUT, ROWS_OUT])
def read_headers(
    data: Any, ends: Any, longest: Any, known: Any, bounds: Any, flags: Any, counts: Any, positions: Any
) -> Any:
    """Read bounds, flags, and number and position of reject signals of each header.

    The number is -1 if a header is not canonical.

    Returns:
        True if a header has signals of several reasons.
    """
    nothing, none, mixed = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint8), False
    for row in range(len(ends) - 1):
        start, end = np.int64(ends[row]), np.int64(ends[row + 1])
        counts[row] = NOT_FOUND
        if end - start > longest:
            continue
        fields, at = get_head(data, start, end, MAP)
        for field in range(3):
            at = get_field(data, at, end, field)
            bounds[field, row], at = get_head(data, at, end, NUMBER)
        if at < 0:
            continue
        left = np.int64(fields) - 3
        if left > 0 and at < end and data[at] == FLAGS_FIELD:
            flag, at = get_head(data, at + 1, end, NUMBER)
            if at < 0 or flag != np.uint64(1):
                continue
            flags[row] = 1
            left -= 1
        if left == 0:
            if at == end:
                counts[row] = 0
            continue
        if left == 1 and get_field(data, at, end, SIGNALS_FIELD) > 0:
            signals_end, positions[row] = bounds[SIGNALS_END, row], at + 1
            total, lists = read_signals(data, at + 1, end, signals_end, known, np.int64(-1), nothing, none)
            counts[row] = total
            mixed |= lists > 1
    return mixed


@compile_loop(NOTHING, [BYTES, OFFSETS, INT64, NUMBERS, ROWS, ROWS, NUMBERS_OUT, BYTES_OUT])
def read_all_signals(
    data: Any, ends: Any, known: Any, signals_ends: Any, positions: Any, edges: Any, indexes: Any, reasons: Any
) -> None:
    """Read each header's reject signals, list by list; row ``i`` starts at ``edges[i]``."""
    for row in range(len(positions)):
        if edges[row] < edges[row + 1]:
            end = np.int64(ends[row + 1])
            read_signals(data, positions[row], end, signals_ends[row], known, edges[row], indexes, reasons)
