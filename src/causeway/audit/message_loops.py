"""Loops over the rows of messages: which rows of a message belong together, and what each message comes to.

Rows are sorted by message; message ``m`` has the rows ``starts[m]`` up to ``starts[m + 1]``. Heights, positions and
times that were not seen are the largest value of their type, so they come last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BYTES, BYTES_OUT, INT64, ROWS, ROWS_OUT, compiled, read, written

SENT, COMMITTED, RECEIVED, EXECUTED, ANSWERED, ACKNOWLEDGED, TIMED_OUT = 0, 1, 3, 4, 5, 6, 8
REVERTED, OBSERVED = 12, 13
EVENTS = 14
"""Events by their place in ``schema.Event``, and how many there are."""

SMALL = 16
"""Contents of a message of so many rows are compared with each other; of larger ones they were numbered before."""

MATCHED, UNSEEN, DIFFERS, NOT_SENT = 1, 2, 3, 4
"""What a received row is: its content is that of a sent row, cannot be compared, is another; nothing was sent."""

REUSED, TIMEOUT_OBSERVED = 1, 2
"""Flags of a message: its number was given to several contents; who observed it stopped waiting."""

AMOUNT_UNSEEN, ASSET_DIFFERS, MORE, LESS, REFUNDED_TOO, FROM_NOWHERE, EVEN = 1, 2, 3, 4, 5, 6, 7
"""What the value of a message comes to; 0: it has no sent and no received row."""

IN, OUT, BACK, PENDING = 0, 1, 2, 3
"""The four sums of a lane and an asset: sent, received, refunded, pending."""

LIMBS = 5
"""Words of a sum: amounts have four, and 2**64 amounts can be added."""

CODES, CODES_OUT = read("int32"), written("int32")
WORDS, WORD_ROWS = read("uint64"), read("uint64", 2)
U8 = np.uint8
NO_HEIGHT = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_TIME = np.int64(0x7FFFFFFFFFFFFFFF)
LOW = np.uint64(0xFFFFFFFF)


@compiled(INT64, [ROWS, BYTES, WORDS, CODES, written("int64")], allocates=False)
def message_starts(lane: Any, indexed: Any, index: Any, ident: Any, starts: Any) -> Any:
    """Write where each message begins, and the number of rows behind; return the number of messages."""
    count = 0
    for row in range(len(lane)):
        before = row - 1
        if (
            row == 0
            or lane[row] != lane[before]
            or indexed[row] != indexed[before]
            or (indexed[row] and index[row] != index[before])
            or (not indexed[row] and ident[row] != ident[before])
        ):
            starts[count] = row
            count += 1
    starts[count] = len(lane)
    return count


@compiled(allocates=False)
def earlier(height: Any, time: Any, one: Any, other: Any) -> Any:
    """Return whether a row was before another one, by height, then by time."""
    if height[one] != height[other]:
        return height[one] < height[other]
    return time[one] < time[other]


@compiled(allocates=False)
def add(total: Any, limbs: Any, row: Any) -> None:
    """Add an amount to a sum."""
    carry = np.uint64(0)
    for limb in range(4):
        before = total[limb]
        after = before + limbs[row, limb]
        over = np.uint64(after < before)
        total[limb] = after + carry
        carry = over + np.uint64(total[limb] < after)
    total[4] += carry


@compiled(allocates=False)
def compare(one: Any, other: Any) -> Any:
    """Return -1, 0 or 1: a sum is less than another one, equal, more."""
    for back in range(LIMBS):
        limb = LIMBS - 1 - back
        if one[limb] != other[limb]:
            return -1 if one[limb] < other[limb] else 1
    return 0


@compiled(allocates=False)
def difference(more: Any, less: Any) -> Any:
    """Return how much more one sum is, rounded."""
    found, scale, borrow = 0.0, 1.0, np.uint64(0)
    for limb in range(LIMBS):
        rest = more[limb] - less[limb] - borrow
        borrow = np.uint64(more[limb] < less[limb] or (more[limb] == less[limb] and borrow != np.uint64(0)))
        found += float(rest) * scale
        scale *= 18446744073709551616.0
    return found


_JUDGE = [
    *(ROWS, ROWS, BYTES, read("int8"), WORDS, ROWS, ROWS, BYTES, WORD_ROWS),
    *(CODES, BYTES, WORD_ROWS, BYTES, written("int64", 2)),
    *(BYTES_OUT, BYTES_OUT, written("int32", 2), BYTES_OUT, BYTES_OUT, written("float64"), CODES_OUT),
    *(ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, written("uint64", 3)),
]


@compiled(INT64, _JUDGE)
def judge(
    lane: Any,
    starts: Any,
    alive: Any,
    event: Any,
    height: Any,
    time: Any,
    codes: Any,
    has_content: Any,
    content: Any,
    asset: Any,
    has_amount: Any,
    limbs: Any,
    stopped_waiting: Any,
    first: Any,
    again: Any,
    status: Any,
    firsts: Any,
    flags: Any,
    value: Any,
    value_by: Any,
    value_row: Any,
    stamps: Any,
    slots: Any,
    slot_lane: Any,
    slot_asset: Any,
    sums: Any,
) -> Any:
    """Find what each message comes to; return how many pairs of lane and asset have sums.

    ``codes``: of rows of messages of more than ``SMALL`` rows the number of (message, content), of others not read;
    from ``SMALL`` on; ``first``: scratch of a row a number with -1 in it. Written are, of rows: ``again`` (another
    row of the same event with the same content was before it) and ``status`` (of received rows); of messages: the
    first row of every event (-1: none; of received ones whose content does not differ), ``flags``, ``value`` with the
    amount ``value_by`` which it is wrong and the row ``value_row`` that shows it. ``stamps``, ``slots``: scratch of an
    entry an asset, with -1 in ``stamps``; ``slot_lane``, ``slot_asset``, ``sums``: one a pair of lane and asset.
    """
    local = np.empty(SMALL, dtype=np.int64)
    sent_total, received_total, nothing = (
        np.zeros(LIMBS, dtype=np.uint64),
        np.zeros(LIMBS, dtype=np.uint64),
        np.zeros(LIMBS, dtype=np.uint64),
    )
    pairs = 0
    for message in range(len(starts) - 1):
        low, high = starts[message], starts[message + 1]
        small = high - low <= SMALL
        if small:
            for row in range(low, high):
                code = row - low
                for before in range(low, row):
                    if has_content[row] == has_content[before] and (
                        not has_content[row]
                        or (
                            content[row, 0] == content[before, 0]
                            and content[row, 1] == content[before, 1]
                            and content[row, 2] == content[before, 2]
                            and content[row, 3] == content[before, 3]
                        )
                    ):
                        code = local[before - low]
                        break
                local[row - low] = code
                for each in range(EVENTS):
                    first[row - low, each] = -1
        for each in range(EVENTS):
            firsts[message, each] = -1
        unseen_sent = False
        for row in range(low, high):
            if not alive[row]:
                continue
            code = local[row - low] if small else codes[row]
            kind = event[row]
            best = first[code, kind]
            if best < 0:
                first[code, kind] = row
            elif earlier(height, time, row, best):
                first[code, kind] = row
                again[best] = 1
            else:
                again[row] = 1
            if kind == SENT and not has_content[row]:
                unseen_sent = True
            if stopped_waiting[row]:
                flags[message] |= U8(TIMEOUT_OBSERVED)
        has_sent = False
        for row in range(low, high):
            if alive[row] and event[row] == SENT:
                has_sent = True
        sent_contents, received_contents, received_rows = 0, 0, 0
        for row in range(low, high):
            if not alive[row]:
                continue
            kind = event[row]
            code = local[row - low] if small else codes[row]
            if kind == RECEIVED:
                received_rows += 1
                if not has_sent:
                    status[row] = NOT_SENT
                elif not has_content[row]:
                    status[row] = UNSEEN
                elif first[code, SENT] >= 0:
                    status[row] = MATCHED
                else:
                    status[row] = UNSEEN if unseen_sent else DIFFERS
                if has_content[row] and not again[row]:
                    received_contents += 1
                if status[row] == DIFFERS:
                    continue
            elif kind == SENT and has_content[row] and not again[row]:
                sent_contents += 1
            best = firsts[message, kind]
            if best < 0 or earlier(height, time, row, best):
                firsts[message, kind] = row
        if sent_contents > 1 or (not has_sent and received_contents > 1):
            flags[message] |= U8(REUSED)
        # Value.
        value_row[message] = -1
        if not has_sent and received_rows == 0:
            continue
        receipt, timed_out = firsts[message, RECEIVED], firsts[message, TIMED_OUT]
        sent_total[:] = nothing
        received_total[:] = nothing
        base = firsts[message, SENT]
        unseen, other = False, False
        shown = base
        for row in range(low, high):
            if not alive[row] or (event[row] != SENT and event[row] != RECEIVED):
                continue
            if event[row] == SENT and again[row]:
                continue
            if event[row] == RECEIVED and (shown == base or row != receipt):
                shown = row
            if not has_amount[row] or asset[row] < 0:
                unseen = True
                continue
            if base >= 0 and has_amount[base] and asset[row] != asset[base]:
                other = True
            what = asset[row]
            if stamps[what] != lane[row]:
                stamps[what] = lane[row]
                slots[what] = pairs
                slot_lane[pairs] = lane[row]
                slot_asset[pairs] = what
                pairs += 1
            slot = slots[what]
            if event[row] == SENT:
                add(sent_total, limbs, row)
                add(sums[slot, IN], limbs, row)
                if receipt < 0 and timed_out >= 0:
                    add(sums[slot, BACK], limbs, row)
                elif receipt < 0:
                    add(sums[slot, PENDING], limbs, row)
            else:
                add(received_total, limbs, row)
                add(sums[slot, OUT], limbs, row)
        value_row[message] = shown
        if unseen:
            value[message] = AMOUNT_UNSEEN
        elif other:
            value[message] = ASSET_DIFFERS
        elif not has_sent:
            value[message] = FROM_NOWHERE
            value_by[message] = difference(received_total, nothing)
        else:
            expected = sent_total if receipt >= 0 else nothing
            order = compare(received_total, expected)
            value[message] = EVEN
            if order > 0:
                value[message] = MORE
                value_by[message] = difference(received_total, expected)
            elif order < 0:
                value[message] = LESS
                value_by[message] = difference(expected, received_total)
            elif receipt >= 0 and timed_out >= 0:
                value[message] = REFUNDED_TOO
                value_by[message] = difference(received_total, nothing)
                value_row[message] = timed_out
    return pairs
