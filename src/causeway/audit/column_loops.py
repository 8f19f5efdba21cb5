"""Loops over the rows of a part: codes of names, lanes, and where messages begin."""

from __future__ import annotations

from typing import Any

from causeway_proofs.jit import (
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS_OUT,
    compile_loop,
    read_only_arrays,
    writable_arrays,
)

CODES, CODES_OUT = read_only_arrays("int32"), writable_arrays("int32")


@compile_loop(NOTHING, [CODES, BYTES, read_only_arrays("int64"), CODES, CODES_OUT], allocates=False)
def code_rows(indices: Any, valid: Any, offset: Any, table: Any, codes: Any) -> None:
    """Write the code of each row, ``table[index]``, -1 where it is null.

    ``valid``: a bit a row, the first one at bit ``offset[0]``; empty: no row is null.
    """
    if len(valid) == 0:
        for row in range(len(indices)):
            codes[row] = table[indices[row]]
        return
    for row in range(len(indices)):
        bit = offset[0] + row
        codes[row] = table[indices[row]] if valid[bit >> 3] >> (bit & 7) & 1 else -1


@compile_loop(NOTHING, [CODES, BYTES, read_only_arrays("int64"), BYTES_OUT], allocates=False)
def mark_used(indices: Any, valid: Any, offset: Any, used: Any) -> None:
    """Write 1 for each entry of a dictionary that a row has; ``valid`` and ``offset`` as of ``code_rows``."""
    for row in range(len(indices)):
        bit = offset[0] + row
        if len(valid) == 0 or valid[bit >> 3] >> (bit & 7) & 1:
            used[indices[row]] = 1


@compile_loop(INT64, [CODES, CODES, CODES, CODES, CODES_OUT, ROWS_OUT], allocates=False)
def lane_runs(one: Any, two: Any, three: Any, four: Any, lane: Any, firsts: Any) -> Any:
    """Number the runs of rows that agree in four codes: write each row's number, and the first row of each run, as far
    as there is room for it; return how many runs there are."""
    count = 0
    for row in range(len(lane)):
        before = row - 1
        if (
            row == 0
            or four[row] != four[before]
            or three[row] != three[before]
            or two[row] != two[before]
            or one[row] != one[before]
        ):
            if count < len(firsts):
                firsts[count] = row
            count += 1
        lane[row] = count - 1
    return count


@compile_loop(INT64, [CODES, BYTES, read_only_arrays("uint64"), CODES, ROWS_OUT], allocates=False)
def message_starts(lane: Any, indexed: Any, index: Any, ident: Any, starts: Any) -> Any:
    """Write where each message begins, and the number of rows behind; return the number of messages, or -1 - row: that
    one is not in the order of the ledger.

    ``ident``: empty where every row has an index.
    """
    count = 0
    for row in range(len(lane)):
        before = row - 1
        if row == 0 or lane[row] != lane[before]:
            starts[count] = row
            count += 1
        elif indexed[row]:
            if not indexed[before] or index[row] < index[before]:
                return -1 - row
            if index[row] != index[before]:
                starts[count] = row
                count += 1
        elif indexed[before] or ident[row] != ident[before]:
            starts[count] = row
            count += 1
    starts[count] = len(lane)
    return count


@compile_loop(NOTHING, [CODES, CODES, CODES, BYTES, CODES, CODES, BYTES_OUT], allocates=False)
def mark_elsewhere(lane: Any, event: Any, chain: Any, alive: Any, side: Any, ends: Any, marked: Any) -> None:
    """Write 1 for each row that counts and is on another chain than the one at an end of its lane.

    ``side``: of each event at which end it happens, 0 or 1, -1: anywhere; ``ends``: the chains at both ends of each
    lane, one lane after the other, -1: unknown.
    """
    for row in range(len(lane)):
        at = side[event[row]]
        if at >= 0 and alive[row] and chain[row] >= 0:
            end = ends[2 * lane[row] + at]
            if end >= 0 and end != chain[row]:
                marked[row] = 1
