"""Loops over the rows of messages: what each message comes to.

Rows are sorted by message; message ``m`` has the rows ``starts[m]`` up to ``starts[m + 1]``. Heights, positions and
times that were not seen are the largest value of their type, so they come last.

A loop over events and the ``reverted`` rows that speak of them: which events are taken back.

A loop over requests that were replied to in their own lanes: which replies were in time.
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
"""Events by their place in ``schema.Event``, and how many there are."""

NEEDED = (SENT, RECEIVED, ACKNOWLEDGED, TIMED_OUT, REFUNDED)
"""Events that have a place among ``firsts``, whether there are any or not."""

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

FAILURES = 1 << OutcomeInput.FAILED | 1 << OutcomeInput.ERRED
"""Events, as bits, with which the effects of a message are undone."""

LIMBS = 5
"""Words of a sum: amounts have four, and 2**64 amounts can be added."""

CODES, CODES_OUT = read_only_arrays("int32"), writable_arrays("int32")
WORDS, WORD_ROWS = read_only_arrays("uint64"), read_only_arrays("uint64", 2)
U8 = np.uint8
NO_HEIGHT = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_TIME = np.int64(0x7FFFFFFFFFFFFFFF)
LOW = np.uint64(0xFFFFFFFF)
MAX_TIME_DIFFERENCE = np.int64(0x7FFFFFFFFFFFFFFF)
MIN_TIME_DIFFERENCE = np.int64(-0x8000000000000000)


@compile_loop(allocates=False)
def is_restarted(chain: Any, height: Any, time: Any, restarts: Any, one: Any, other: Any) -> Any:
    """Return whether the times of two rows contradict their heights, on a chain whose heights began anew."""
    if chain[one] != chain[other] or not restarts[chain[one]]:
        return False
    if height[one] == NO_HEIGHT or height[other] == NO_HEIGHT or time[one] == NO_TIME or time[other] == NO_TIME:
        return False
    return (height[one] < height[other] and time[one] > time[other]) or (
        height[one] > height[other] and time[one] < time[other]
    )


@compile_loop(allocates=False)
def is_earlier(chain: Any, height: Any, time: Any, restarts: Any, one: Any, other: Any) -> Any:
    """Return whether a row was before another one: by height, then by time; by time where heights began anew."""
    if height[one] != height[other] and not is_restarted(chain, height, time, restarts, one, other):
        return height[one] < height[other]
    return time[one] < time[other]


@compile_loop(INT64, [INT64, INT64], allocates=False)
def time_between(one: Any, other: Any) -> Any:
    """Return how many microseconds lie from one time to another, at most ``MOST``, at least ``LEAST``."""
    # Compared before: a compiled difference that overflows may be taken for anything.
    if one < 0 and other > MAX_TIME_DIFFERENCE + one:
        return MAX_TIME_DIFFERENCE
    if one > 0 and other < MIN_TIME_DIFFERENCE + one:
        return MIN_TIME_DIFFERENCE
    return other - one


@compile_loop(allocates=False)
def is_sooner(one: Any, other: Any, least: Any, time: Any) -> Any:
    """Return whether a row is less than so many microseconds (at least 0) after another one; not where a time was not
    seen."""
    if time[one] == NO_TIME or time[other] == NO_TIME:
        return False
    return time_between(time[one], time[other]) < least


FINE, TOO_SOON, NO_PLACE = 1, 2, 3
"""What a pair of rows of a message is: in order, the effect before its cause, not comparable."""


@compile_loop(allocates=False)
def is_before_cause(one: Any, other: Any, chain: Any, height: Any, time: Any, restarts: Any, tolerance: Any) -> Any:
    """Return whether an effect, ``other``, is before its cause: by height on one chain, unless its heights began anew
    in between, else by time, give or take the tolerances of the two chains."""
    if chain[one] == chain[other] and chain[one] >= 0 and height[one] != NO_HEIGHT and height[other] != NO_HEIGHT:
        below = height[other] < height[one] and not is_restarted(chain, height, time, restarts, one, other)
        return TOO_SOON if below else FINE
    if time[one] == NO_TIME or time[other] == NO_TIME:
        return NO_PLACE
    if chain[one] != chain[other] or chain[one] < 0:
        # The entry of a chain that was not seen, -1, is the last one.
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
    """Return the receipt among the rows from ``low`` up to ``high``, or -1: a received row whose content does not
    differ. Rather one that is not on another chain (``elsewhere``), of these one that is not before the first ``sent``
    row, of these one that is not sooner after it than ``least`` (-1: none is), of these the first."""
    for others in range(2):
        first, found, final = -1, -1, -1
        for row in range(low, high):
            if not alive[row] or event[row] != RECEIVED or status[row] == DIFFERS or elsewhere[row] != others:
                continue
            if first < 0 or is_earlier(chain, height, time, restarts, row, first):
                first = row
            if is_before_cause(sent, row, chain, height, time, restarts, tolerance) == TOO_SOON:
                continue
            if found < 0 or is_earlier(chain, height, time, restarts, row, found):
                found = row
            if (
                least >= 0
                and not is_sooner(sent, row, least, time)
                and (final < 0 or is_earlier(chain, height, time, restarts, row, final))
            ):
                final = row
        if first >= 0:
            return final if final >= 0 else (found if found >= 0 else first)
    return -1


@compile_loop(allocates=False)
def add_amount(total: Any, one: Any, two: Any, three: Any, four: Any, row: Any) -> None:
    """Add an amount to a sum."""
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
    """Return -1, 0 or 1: a sum is less than another one, equal, more."""
    for back in range(LIMBS):
        limb = LIMBS - 1 - back
        if one[limb] != other[limb]:
            return -1 if one[limb] < other[limb] else 1
    return 0


@compile_loop(allocates=False)
def less_limb(more: Any, less: Any, borrow: Any) -> Any:
    """Return a limb of a sum less that of another one and what was borrowed from it, and what is borrowed from the
    next."""
    rest = more - less - borrow
    return rest, np.uint64(more < less or (more == less and borrow != np.uint64(0)))


@compile_loop(allocates=False)
def rounded_difference(more: Any, less: Any) -> Any:
    """Return how much more one sum is, rounded."""
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
    """Find what each message comes to; return how many pairs of lane and asset have sums.

    ``final_after``: of lanes, how many microseconds they promise (-1: none); ``undoes``: of lanes, whether a failure
    gives the value of a message back; ``restarts``: of chains, whether their heights began anew; ``tolerance``: of
    chains, how many microseconds their clocks may be wrong; ``elsewhere``: of rows, whether they are on another chain
    than they can be; ``codes``: of rows of messages of more than ``SMALL`` rows
    the number of (message, content), of others not read; from ``SMALL`` on; ``stopped_waiting``, ``errors`` (rows with
    an error code): empty where no row is one; ``event_bits``: ``outcomes.EVENT_BITS``; ``place``: of each event the row
    of ``firsts`` that it has; ``first``: scratch of a row a number with -1 in it. Written are, of rows: ``again``
    (another row of the same event with the same content was before it, or is the receipt; or, where it is not seen with
    what content the message was sent, a received one with whatever content) and ``status`` (of received rows); of
    messages: how many received rows there are, the first row of every event (-1: none; of received ones the receipt),
    the ``earliest`` received row whose content does not differ, the events that count as ``bits``, ``flags``, of one
    whose number was given to several contents how many (``contents``), ``value`` with the amount ``value_by`` which it
    is wrong and the row ``value_row`` that shows it. ``stamps``, ``slots``: scratch of an entry an asset, with -1 in
    ``stamps``; ``slot_lane``, ``slot_asset``, ``sums``: one a pair of lane and asset.
    """
    local = np.empty(SMALL, dtype=np.int64)
    sent_total, received_total, nothing = (
        np.zeros(LIMBS, dtype=np.uint64),
        np.zeros(LIMBS, dtype=np.uint64),
        np.zeros(LIMBS, dtype=np.uint64),
    )
    sent_at, received_at, timed_out_at, refunded_at = place[SENT], place[RECEIVED], place[TIMED_OUT], place[REFUNDED]
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
                if code == row - low:
                    for each in range(EVENTS):
                        first[code, each] = -1
        unseen_sent, has_sent = False, False
        for row in range(low, high):
            if not alive[row]:
                continue
            code = local[row - low] if small else codes[row]
            kind = event[row]
            best = first[code, kind]
            if best < 0:
                first[code, kind] = row
            elif is_earlier(chain, height, time, restarts, row, best):
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
                    if first_received < 0 or is_earlier(chain, height, time, restarts, row, first_received):
                        first_received = row
                if status[row] == DIFFERS:
                    continue
                alike += 1
            elif kind == SENT and has_content[row] and not again[row]:
                sent_contents += 1
            known |= event_bits[kind, 1 if len(errors) and errors[row] else 0]
            best = firsts[place[kind], message]
            if best < 0 or is_earlier(chain, height, time, restarts, row, best):
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
            kept = receipt if has_content[receipt] else first_received
            for row in range(low, high):
                if alive[row] and event[row] == RECEIVED and has_content[row] and row != kept:
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
        came = receipt >= 0 and not failed
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
            what = asset[row]
            if stamps[what] != lane[row]:
                stamps[what] = lane[row]
                slots[what] = pairs
                slot_lane[pairs] = lane[row]
                slot_asset[pairs] = what
                pairs += 1
            slot = slots[what]
            if event[row] == SENT:
                add_amount(sent_total, limb_0, limb_1, limb_2, limb_3, row)
                add_amount(sums[slot, IN], limb_0, limb_1, limb_2, limb_3, row)
                if not came and (back >= 0 or failed):
                    add_amount(sums[slot, BACK], limb_0, limb_1, limb_2, limb_3, row)
                elif not came:
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
            expected = sent_total if came else nothing
            order = compare_sums(received_total, expected)
            value[message] = EVEN
            if order > 0:
                value[message] = MORE
                value_by[message] = rounded_difference(received_total, expected)
            elif order < 0:
                value[message] = LESS
                value_by[message] = rounded_difference(expected, received_total)
            elif came and back >= 0:
                value[message] = REFUNDED_TOO
                value_by[message] = rounded_difference(received_total, nothing)
                value_row[message] = back
    return pairs


@compile_loop(NOTHING, [CODES, CODES, CODES, WORDS, ROWS, BYTES, ROWS, BYTES_OUT], allocates=False)
def compare_pairs(
    cause: Any, effect: Any, chain: Any, height: Any, time: Any, restarts: Any, tolerance: Any, found: Any
) -> None:
    """Write of each message whether its effect is before its cause (``compare_rows``); 0 where one of the two rows is
    -1."""
    for message in range(len(cause)):
        one, other = cause[message], effect[message]
        if one < 0 or other < 0:
            found[message] = 0
        else:
            found[message] = is_before_cause(one, other, chain, height, time, restarts, tolerance)


@compile_loop(allocates=False)
def push_heap(heap: Any, size: Any, value: Any) -> None:
    """Put a number into a heap of so many, of which the least is first."""
    at = size
    while at > 0 and heap[(at - 1) >> 1] > value:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = value


@compile_loop(allocates=False)
def pop_heap(heap: Any, size: Any) -> Any:
    """Take the least number out of a heap of so many."""
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
    """Write 1 for each event that a ``reverted`` row takes back.

    Each group, from its start up to the next one, has the events of one kind, message and chain, in their order, and
    behind them the rows that take them back (``back``), by time, unseen last. In their order each of these takes back
    the first event that is left and not of a later time, where both times were seen.
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
    """Write what is found of each message that was asked and has a reply, and after how many microseconds it came.

    ``limits``: of each lane, in microseconds, -1: none; ``sent``, ``reply``: the rows of each message, -1: none;
    ``late``, ``without_time``: what is written.
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
