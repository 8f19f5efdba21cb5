"""Compiled loops over message rows: outcome, value, reverted events and late replies.

Rows are sorted by message; message ``m`` has the rows ``starts[m]`` up to ``starts[m + 1]``. Unknown heights, positions
and times are the maximum of their type, so that they sort last.
"""

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

from causeway.ledger.outcomes import OutcomeInput

__all__ = ["mark_reverted"]

SENT, COMMITTED, RECEIVED, EXECUTED, ANSWERED, ACKNOWLEDGED, TIMED_OUT = 0, 1, 3, 4, 5, 6, 8
REVERTED, OBSERVED, FAILED, REFUNDED = 12, 13, 14, 15
EVENTS = 18
"""Number of events; the codes above are positions in ``schema.LedgerEvent``."""

NEEDED = (SENT, RECEIVED, ACKNOWLEDGED, TIMED_OUT, REFUNDED)
"""Events that always have a row in ``firsts``."""

SMALL = 16
"""Maximum number of rows of a message for a pairwise comparison; larger ones have content codes."""

MATCHED, UNSEEN, DIFFERS, NOT_SENT = 1, 2, 3, 4
"""Status of a received row: content matches a sent row, is incomparable, differs; or nothing was sent."""

REUSED, TIMEOUT_OBSERVED = 1, 2
"""Flags of a message: several contents share its number; an observer stopped waiting."""

AMOUNT_UNSEEN, ASSET_DIFFERS, MORE, LESS, REFUNDED_TOO, FROM_NOWHERE, EVEN = 1, 2, 3, 4, 5, 6, 7
"""Value outcomes of a message; 0: it has neither a sent nor a received row."""

IN, OUT, BACK, PENDING = 0, 1, 2, 3
"""Indices of the four sums of a lane and an asset: sent, received, refunded, pending."""

FAILURES = 1 << OutcomeInput.FAILED | 1 << OutcomeInput.ERRED
"""Event bits that undo the effects of a message."""

LIMBS = 5
"""Words of a sum: amounts have four, and the fifth allows 2**64 additions."""

CODES, CODES_OUT = read_only_arrays("int32"), writable_arrays("int32")
WORDS, WORD_ROWS = read_only_arrays("uint64"), read_only_arrays("uint64", 2)
U8 = np.uint8
NO_HEIGHT = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_TIME = np.int64(0x7FFFFFFFFFFFFFFF)
MAX_TIME_DIFFERENCE = np.int64(0x7FFFFFFFFFFFFFFF)
MIN_TIME_DIFFERENCE = np.int64(-0x8000000000000000)


@compile_loop(allocates=False)
def is_restarted(chain: Any, height: Any, time: Any, restarts: Any, one: Any, other: Any) -> Any:
    """Return True if times contradict heights of two rows on a restarted chain."""
    if chain[one] != chain[other] or not restarts[chain[one]]:
        return False
    if height[one] == NO_HEIGHT or height[other] == NO_HEIGHT or time[one] == NO_TIME or time[other] == NO_TIME:
        return False
    return (height[one] < height[other] and time[one] > time[other]) or (
        height[one] > height[other] and time[one] < time[other]
    )


@compile_loop(allocates=False)
def is_earlier(height: Any, time: Any, restarted: Any, one: Any, other: Any) -> Any:
    """Return True if a row precedes another of its message: by height, then time.

    Where a chain of the message restarted, by time, then height: comparing some pairs by height and others by time
    would be no order of three rows.
    """
    if restarted and time[one] != time[other]:
        return time[one] < time[other]
    return height[one] < height[other] if height[one] != height[other] else time[one] < time[other]


@compile_loop(allocates=False)
def has_restarted(low: Any, high: Any, alive: Any, chain: Any, restarts: Any) -> Any:
    """Return True if a row of ``low`` up to ``high`` that was not reverted is on a restarted chain."""
    found = False
    for row in range(low, high):
        if alive[row] and restarts[chain[row]]:
            found = True
    return found


@compile_loop(INT64, [INT64, INT64], allocates=False)
def time_between(one: Any, other: Any) -> Any:
    """Return the time from one row to another in microseconds, saturated.

    The bounds are ``MIN_TIME_DIFFERENCE`` and ``MAX_TIME_DIFFERENCE``.
    """
    # Test before subtracting: overflow of a compiled difference is undefined.
    if one < 0 and other > MAX_TIME_DIFFERENCE + one:
        return MAX_TIME_DIFFERENCE
    if one > 0 and other < MIN_TIME_DIFFERENCE + one:
        return MIN_TIME_DIFFERENCE
    return other - one


@compile_loop(allocates=False)
def is_sooner(one: Any, other: Any, least: Any, time: Any) -> Any:
    """Return True if a row follows another by less than ``least`` (>= 0) microseconds."""
    if time[one] == NO_TIME or time[other] == NO_TIME:
        return False
    return time_between(time[one], time[other]) < least


FINE, TOO_SOON, NO_PLACE = 1, 2, 3
"""Order of two rows of a message: in order, effect before its cause, incomparable."""


@compile_loop(allocates=False)
def is_before_cause(one: Any, other: Any, chain: Any, height: Any, time: Any, restarts: Any, tolerance: Any) -> Any:
    """Compare an effect (``other``) with its cause.

    On one chain the heights decide, unless the chain restarted in between. Otherwise the times decide, within the clock
    tolerances of both chains.

    Returns:
        ``FINE``, ``TOO_SOON`` or ``NO_PLACE``.
    """
    if chain[one] == chain[other] and chain[one] >= 0 and height[one] != NO_HEIGHT and height[other] != NO_HEIGHT:
        below = height[other] < height[one] and not is_restarted(chain, height, time, restarts, one, other)
        return TOO_SOON if below else FINE
    if time[one] == NO_TIME or time[other] == NO_TIME:
        return NO_PLACE
    if chain[one] != chain[other] or chain[one] < 0:
        # An unknown chain, -1, uses the last entry.
        slack = tolerance[chain[one]] + tolerance[chain[other]]
        return FINE if is_sooner(other, one, slack + 1, time) else TOO_SOON
    return TOO_SOON if time[other] < time[one] else FINE


@compile_loop()
def find_receipt(
    low: Any,
    high: Any,
    sent: Any,
    least: Any,
    alive: Any,
    event: Any,
    status: Any,
    elsewhere: Any,
    chain: Any,
    height: Any,
    time: Any,
    restarts: Any,
    tolerance: Any,
) -> Any:
    """Return the receipt of a message among rows ``low`` up to ``high``, or -1.

    Candidates are received rows whose content does not differ. Preference: not on another chain (``elsewhere``), not
    before the first ``sent`` row, at least ``least`` microseconds after it (-1: no minimum), earliest.
    """
    restarted = has_restarted(low, high, alive, chain, restarts)
    for others in range(2):
        first, found, final = -1, -1, -1
        for row in range(low, high):
            if not alive[row] or event[row] != RECEIVED or status[row] == DIFFERS or elsewhere[row] != others:
                continue
            if first < 0 or is_earlier(height, time, restarted, row, first):
                first = row
            if is_before_cause(sent, row, chain, height, time, restarts, tolerance) == TOO_SOON:
                continue
            if found < 0 or is_earlier(height, time, restarted, row, found):
                found = row
            if (
                least >= 0
                and not is_sooner(sent, row, least, time)
                and (final < 0 or is_earlier(height, time, restarted, row, final))
            ):
                final = row
        if first >= 0:
            return final if final >= 0 else (found if found >= 0 else first)
    return -1


@compile_loop(allocates=False)
def add_amount(total: Any, one: Any, two: Any, three: Any, four: Any, row: Any) -> None:
    """Add the amount of a row to a sum."""
    low = total[0] + one[row]
    carry = np.uint64(low < one[row])
    total[0] = low
    for limb in range(1, 4):
        word = two[row] if limb == 1 else (three[row] if limb == 2 else four[row])
        found = total[limb] + word
        over = np.uint64(found < word)
        total[limb] = found + carry
        carry = over + np.uint64(total[limb] < carry)
    total[4] += carry


@compile_loop(allocates=False)
def compare_sums(one: Any, other: Any) -> Any:
    """Compare two sums: -1, 0 or 1."""
    for back in range(LIMBS):
        limb = LIMBS - 1 - back
        if one[limb] != other[limb]:
            return -1 if one[limb] < other[limb] else 1
    return 0


@compile_loop(allocates=False)
def less_limb(more: Any, less: Any, borrow: Any) -> Any:
    """Subtract a limb and a borrow; return the difference and the next borrow."""
    rest = more - less - borrow
    return rest, np.uint64(more < less or (more == less and borrow != np.uint64(0)))


@compile_loop(allocates=False)
def rounded_difference(more: Any, less: Any) -> Any:
    """Return the difference of two sums as a float."""
    found, scale, borrow = 0.0, 1.0, np.uint64(0)
    for limb in range(LIMBS):
        rest, borrow = less_limb(more[limb], less[limb], borrow)
        found += float(rest) * scale
        scale *= 18446744073709551616.0
    return found


_JUDGE = [
    *(CODES, ROWS, BYTES, BYTES, ROWS, ROWS, BYTES, BYTES, CODES, CODES, WORDS, ROWS, ROWS, BYTES, WORD_ROWS),
    *(
        CODES,
        BYTES,
        WORDS,
        WORDS,
        WORDS,
        WORDS,
        BYTES,
        BYTES,
        read_only_arrays("int32", 2),
        ROWS,
        writable_arrays("int64", 2),
    ),
    *(
        BYTES_OUT,
        BYTES_OUT,
        CODES_OUT,
        writable_arrays("int32", 2),
        CODES_OUT,
        CODES_OUT,
        BYTES_OUT,
        BYTES_OUT,
        CODES_OUT,
    ),
    *(BYTES_OUT, writable_arrays("float64"), CODES_OUT),
    *(ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, writable_arrays("uint64", 3)),
]


@compile_loop(INT64, _JUDGE)
def evaluate_messages(
    lane: Any,
    final_after: Any,
    undoes: Any,
    restarts: Any,
    tolerance: Any,
    starts: Any,
    alive: Any,
    elsewhere: Any,
    event: Any,
    chain: Any,
    height: Any,
    time: Any,
    codes: Any,
    has_content: Any,
    content: Any,
    asset: Any,
    has_amount: Any,
    limb_0: Any,
    limb_1: Any,
    limb_2: Any,
    limb_3: Any,
    stopped_waiting: Any,
    errors: Any,
    event_bits: Any,
    place: Any,
    first: Any,
    again: Any,
    status: Any,
    receives: Any,
    firsts: Any,
    earliest: Any,
    bits: Any,
    undone: Any,
    flags: Any,
    contents: Any,
    value: Any,
    value_by: Any,
    value_row: Any,
    stamps: Any,
    slots: Any,
    slot_lane: Any,
    slot_asset: Any,
    sums: Any,
) -> Any:
    """Evaluate each message; return the number of (lane, asset) pairs with sums.

    Args:
        lane: Lane of each row.
        final_after: Guaranteed finality of each lane, microseconds; -1: none.
        undoes: Lanes in which a failure returns the value.
        restarts: Chains whose heights restarted.
        tolerance: Clock tolerance of each chain, microseconds.
        starts: First row of each message.
        alive: Rows that were not reverted.
        elsewhere: Rows on a chain where their event cannot happen.
        event: Event code of each row.
        chain: Chain of each row.
        height: Height of each row.
        time: Time of each row.
        codes: Number of (message, content) for rows of messages above ``SMALL`` rows, from ``SMALL``.
        has_content: Rows with a known content.
        content: Content digest of each row, four words.
        asset: Asset of each row, -1: unknown.
        has_amount: Rows with a known amount.
        limb_0: Lowest limb of each amount.
        limb_1: Second limb.
        limb_2: Third limb.
        limb_3: Highest limb.
        stopped_waiting: Rows of an observer that stopped waiting; empty if there are none.
        errors: Rows with an error code; empty if there are none.
        event_bits: ``outcomes.EVENT_BITS``.
        place: Row of ``firsts`` for each event.
        first: Scratch, a row a content number, filled with -1.
        again: Output: duplicates of an earlier row of the same event and content, or of the receipt. If the sent
            content is unknown, further received rows of any content count as duplicates.
        status: Output: status of received rows.
        receives: Output: number of received rows of each message.
        firsts: Output: first row of each event, -1: none; for received rows the receipt.
        earliest: Output: earliest received row whose content does not differ.
        bits: Output: events of each message as bits.
        undone: Output: messages whose effects were undone.
        flags: Output: flags of each message.
        contents: Output: number of contents of a reused message number.
        value: Output: value outcome of each message.
        value_by: Output: amount of the difference.
        value_row: Output: row that shows the value outcome.
        stamps: Scratch, an entry an asset, filled with -1.
        slots: Scratch, an entry an asset.
        slot_lane: Output: lane of each pair.
        slot_asset: Output: asset of each pair.
        sums: Output: four sums of each pair.
    """
    local = np.empty(SMALL, dtype=np.int64)
    sent_total, received_total, nothing = (
        np.zeros(LIMBS, dtype=np.uint64),
        np.zeros(LIMBS, dtype=np.uint64),
        np.zeros(LIMBS, dtype=np.uint64),
    )
    sent_at, received_at, timed_out_at, refunded_at = place[SENT], place[RECEIVED], place[TIMED_OUT], place[REFUNDED]
    pairs, any_restarts = 0, restarts.any()
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
                if code == row - low:
                    for each in range(EVENTS):
                        first[code, each] = -1
        unseen_sent, has_sent = False, False
        restarted = any_restarts and has_restarted(low, high, alive, chain, restarts)
        for row in range(low, high):
            if not alive[row]:
                continue
            code = local[row - low] if small else codes[row]
            kind = event[row]
            best = first[code, kind]
            if best < 0:
                first[code, kind] = row
            elif is_earlier(height, time, restarted, row, best):
                first[code, kind] = row
                again[best] = 1
            else:
                again[row] = 1
            if kind == SENT:
                has_sent = True
                unseen_sent |= not has_content[row]
            elif len(stopped_waiting) and stopped_waiting[row]:
                flags[message] |= U8(TIMEOUT_OBSERVED)
        sent_contents, received_contents, received_rows, first_received, alike, known = 0, 0, 0, -1, 0, 0
        for row in range(low, high):
            if not alive[row]:
                continue
            kind = event[row]
            if kind == RECEIVED:
                code = local[row - low] if small else codes[row]
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
                    if first_received < 0 or is_earlier(height, time, restarted, row, first_received):
                        first_received = row
                if status[row] == DIFFERS:
                    continue
                alike += 1
            elif kind == SENT and has_content[row] and not again[row]:
                sent_contents += 1
            known |= event_bits[kind, 1 if len(errors) and errors[row] else 0]
            best = firsts[place[kind], message]
            if best < 0 or is_earlier(height, time, restarted, row, best):
                firsts[place[kind], message] = row
        bits[message] = known
        receives[message] = received_rows
        receipt = firsts[received_at, message]
        earliest[message] = receipt
        if alike > 1 and has_sent:
            sent, least = firsts[sent_at, message], final_after[lane[low]]
            chosen = find_receipt(
                low, high, sent, least, alive, event, status, elsewhere, chain, height, time, restarts, tolerance
            )
            if chosen >= 0 and chosen != receipt:
                receipt = chosen
                firsts[received_at, message] = receipt
                again[first[local[receipt - low] if small else codes[receipt], RECEIVED]] = 1
                again[receipt] = 0
        if sent_contents > 1:
            flags[message] |= U8(REUSED)
            contents[message] = sent_contents
        elif sent_contents == 0 and received_contents > 1:
            flags[message] |= U8(REUSED)
            contents[message] = received_contents
            counted = receipt if has_content[receipt] else first_received
            for row in range(low, high):
                if alive[row] and event[row] == RECEIVED and has_content[row] and row != counted:
                    again[row] = 1
        # Value.
        value_row[message] = -1
        if not has_sent and received_rows == 0:
            continue
        back = firsts[timed_out_at, message]
        if back < 0:
            back = firsts[refunded_at, message]
        failed = undoes[lane[low]] and known & FAILURES != 0
        undone[message] = failed
        arrived = receipt >= 0 and not failed
        for limb in range(LIMBS):
            sent_total[limb] = 0
            received_total[limb] = 0
        base = firsts[sent_at, message]
        unseen, other = False, False
        shown = base
        for row in range(low, high):
            if not alive[row] or (event[row] != SENT and event[row] != RECEIVED):
                continue
            if event[row] == SENT and again[row]:
                continue
            if event[row] == RECEIVED and (shown == base or row != receipt):
                shown = row
            if failed and event[row] == RECEIVED:
                continue
            if not has_amount[row] or asset[row] < 0:
                unseen = True
                continue
            if base >= 0 and has_amount[base] and asset[row] != asset[base]:
                other = True
            asset_code = asset[row]
            if stamps[asset_code] != lane[row]:
                stamps[asset_code] = lane[row]
                slots[asset_code] = pairs
                slot_lane[pairs] = lane[row]
                slot_asset[pairs] = asset_code
                pairs += 1
            slot = slots[asset_code]
            if event[row] == SENT:
                add_amount(sent_total, limb_0, limb_1, limb_2, limb_3, row)
                add_amount(sums[slot, IN], limb_0, limb_1, limb_2, limb_3, row)
                if not arrived and (back >= 0 or failed):
                    add_amount(sums[slot, BACK], limb_0, limb_1, limb_2, limb_3, row)
                elif not arrived:
                    add_amount(sums[slot, PENDING], limb_0, limb_1, limb_2, limb_3, row)
            else:
                add_amount(received_total, limb_0, limb_1, limb_2, limb_3, row)
                add_amount(sums[slot, OUT], limb_0, limb_1, limb_2, limb_3, row)
        value_row[message] = shown
        if unseen:
            value[message] = AMOUNT_UNSEEN
        elif other:
            value[message] = ASSET_DIFFERS
        elif not has_sent:
            value[message] = FROM_NOWHERE
            value_by[message] = rounded_difference(received_total, nothing)
        else:
            expected = sent_total if arrived else nothing
            order = compare_sums(received_total, expected)
            value[message] = EVEN
            if order > 0:
                value[message] = MORE
                value_by[message] = rounded_difference(received_total, expected)
            elif order < 0:
                value[message] = LESS
                value_by[message] = rounded_difference(expected, received_total)
            elif arrived and back >= 0:
                value[message] = REFUNDED_TOO
                value_by[message] = rounded_difference(received_total, nothing)
                value_row[message] = back
    return pairs


@compile_loop(NOTHING, [CODES, CODES, CODES, WORDS, ROWS, BYTES, ROWS, BYTES_OUT], allocates=False)
def compare_pairs(
    cause: Any, effect: Any, chain: Any, height: Any, time: Any, restarts: Any, tolerance: Any, found: Any
) -> None:
    """Write the order of effect and cause of each message; 0 without both rows (-1)."""
    for message in range(len(cause)):
        one, other = cause[message], effect[message]
        if one < 0 or other < 0:
            found[message] = 0
        else:
            found[message] = is_before_cause(one, other, chain, height, time, restarts, tolerance)


@compile_loop(allocates=False)
def push_heap(heap: Any, size: Any, value: Any) -> None:
    """Push a number onto a min-heap of ``size`` numbers."""
    at = size
    while at > 0 and heap[(at - 1) >> 1] > value:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = value


@compile_loop(allocates=False)
def pop_heap(heap: Any, size: Any) -> Any:
    """Pop the least number from a min-heap of ``size`` numbers."""
    found, value = heap[0], heap[size - 1]
    at, child = 0, 1
    while child < size - 1:
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value
    return found


@compile_loop(NOTHING, [ROWS, BYTES, ROWS, BYTES_OUT])
def mark_reverted(starts: Any, back: Any, time: Any, gone: Any) -> None:
    """Mark each event that a ``reverted`` row reverts.

    Each group, from its start up to the next one, has the events of one kind, message and chain in order. The
    ``reverted`` rows (``back``) follow by time, unknown times last. Each of them reverts the first remaining event that
    is not later, where both times are known.

    Args:
        starts: First row of each group.
        back: Rows that revert an event.
        time: Time of each row.
        gone: Output: 1 for each reverted event.
    """
    for group in range(len(starts) - 1):
        low, high = starts[group], starts[group + 1]
        row = low
        while row < high and not back[row]:
            row += 1
        left = row - low
        if left == 0 or row == high:
            continue
        times = np.empty(left, dtype=np.int64)
        for each in range(left):
            seen = time[low + each] != NO_TIME
            times[each] = time[low + each] if seen else np.int64(-0x8000000000000000)
        order = np.argsort(times)
        heap = np.empty(left, dtype=np.int64)
        size, reached = 0, 0
        while row < high:
            while reached < left and times[order[reached]] <= time[row]:
                push_heap(heap, size, low + order[reached])
                size += 1
                reached += 1
            if size > 0:
                gone[pop_heap(heap, size)] = 1
                size -= 1
            row += 1


@compile_loop(
    NOTHING,
    [BYTES, CODES, ROWS, CODES, CODES, ROWS, BYTES_OUT, writable_arrays("float64"), INT64, INT64],
    allocates=False,
)
def judge_replies(
    asked: Any,
    lane: Any,
    limits: Any,
    sent: Any,
    reply: Any,
    time: Any,
    outcome: Any,
    magnitude: Any,
    late: Any,
    without_time: Any,
) -> None:
    """Write the outcome and the delay of each expected reply.

    Args:
        asked: Messages that expect a reply.
        lane: Lane of each message.
        limits: Reply deadline of each lane, microseconds; -1: none.
        sent: Row of each request, -1: none.
        reply: Row of each reply, -1: none.
        time: Time of each row.
        outcome: Output: ``late``, ``without_time`` or unchanged.
        magnitude: Output: delay in microseconds.
        late: Code of a late reply.
        without_time: Code of an unknown time.
    """
    for message in range(len(asked)):
        limit = limits[lane[message]]
        if not asked[message] or limit < 0 or reply[message] < 0:
            continue
        one, other = time[sent[message]], time[reply[message]]
        if one == NO_TIME or other == NO_TIME:
            outcome[message] = without_time
        else:
            delay = time_between(one, other)
            magnitude[message] = delay
            if delay > limit:
                outcome[message] = late
