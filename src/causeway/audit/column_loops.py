"""Compiled loops over the rows of a part: codes of names, lanes, and starts of messages."""

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
    """Write the code of each row, ``table[index]``, -1 for null.

    ``valid``: a bit a row, the first one at bit ``offset[0]``; empty: no nulls.
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
    """Mark the used entries of a dictionary; ``valid`` and ``offset`` as of ``code_rows``."""
    for row in range(len(indices)):
        bit = offset[0] + row
        if len(valid) == 0 or valid[bit >> 3] >> (bit & 7) & 1:
            used[indices[row]] = 1


@compile_loop(INT64, [CODES, CODES, CODES, CODES, CODES_OUT, ROWS_OUT], allocates=False)
def lane_runs(one: Any, two: Any, three: Any, four: Any, lane: Any, firsts: Any) -> Any:
    """Assign numbers to the runs of rows with four equal codes; return the number of runs.

    Writes the run of each row, and the first row of each run as far as ``firsts`` has space.
    """
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
    """Write the first row of each message, followed by the number of rows.

    Returns the number of messages, or ``-1 - row`` for a row out of ledger order. ``ident`` is empty if every row has
    an index.
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
    """Mark each live row on a chain other than its lane's end.

    Args:
        lane: Lane of each row.
        event: Event of each row.
        chain: Chain of each row, -1: unknown.
        alive: Rows that were not reverted.
        side: Lane end of each event, 0 or 1, -1: any.
        ends: Chains at both ends of each lane, -1: unknown.
        marked: Output: 1 for marked rows.
    """
    for row in range(len(lane)):
        at = side[event[row]]
        if at >= 0 and alive[row] and chain[row] >= 0:
            end = ends[2 * lane[row] + at]
            if end >= 0 and end != chain[row]:
                marked[row] = 1
