"""Compiled loops over movements of value: sums, and outcomes of messages with payments."""

from __future__ import annotations

from typing import Any

import numpy as np
from causeway_proofs.jit import BYTES, BYTES_OUT, NOTHING, ROWS, compile_loop, read_only_arrays, writable_arrays

from causeway.audit.message_loops import (
    AMOUNT_UNSEEN,
    ASSET_DIFFERS,
    CODES,
    CODES_OUT,
    EVEN,
    FROM_NOWHERE,
    LESS,
    LIMBS,
    MORE,
    RECEIVED,
    REFUNDED_TOO,
    SENT,
    WORDS,
    add_amount,
    compare_sums,
    less_limb,
    rounded_difference,
)

MORE_PAID, LESS_UNSEEN = 8, 9
"""Further value outcomes: more is paid out than was sent; less is received and paid out than was sent, while more is
given back than paid out, so that a payment is unknown."""

SUMS, SUMS_OUT = read_only_arrays("uint64", 2), writable_arrays("uint64", 2)


@compile_loop(NOTHING, [ROWS, BYTES, WORDS, WORDS, WORDS, WORDS, SUMS_OUT, SUMS_OUT], allocates=False)
def add_rows(
    group: Any, other: Any, limb_0: Any, limb_1: Any, limb_2: Any, limb_3: Any, one_sums: Any, other_sums: Any
) -> None:
    """Add the amount of each row to the sum of its group (-1: none).

    Args:
        group: Group of each row.
        other: Rows that count for ``other_sums``.
        limb_0: Lowest limb of each amount.
        limb_1: Second limb.
        limb_2: Third limb.
        limb_3: Highest limb.
        one_sums: Output: sums of each group.
        other_sums: Output: sums of each group.
    """
    for row in range(len(group)):
        if group[row] < 0:
            continue
        if other[row]:
            add_amount(other_sums[group[row]], limb_0, limb_1, limb_2, limb_3, row)
        else:
            add_amount(one_sums[group[row]], limb_0, limb_1, limb_2, limb_3, row)


@compile_loop(allocates=False)
def add_sum(total: Any, more: Any) -> None:
    """Add a sum to another one."""
    carry = np.uint64(0)
    for limb in range(LIMBS):
        found = total[limb] + more[limb]
        over = np.uint64(found < more[limb])
        total[limb] = found + carry
        carry = over + np.uint64(total[limb] < carry)


@compile_loop(NOTHING, [ROWS, SUMS, SUMS_OUT], allocates=False)
def add_groups(slot: Any, sums: Any, totals: Any) -> None:
    """Add each sum to the total of its slot (-1: none)."""
    for group in range(len(slot)):
        if slot[group] >= 0:
            add_sum(totals[slot[group]], sums[group])


_DEDUCTION_TYPES = [
    *(ROWS, CODES, SUMS, SUMS, ROWS, BYTES, CODES, BYTES, CODES, BYTES, WORDS, WORDS, WORDS, WORDS, CODES, SUMS_OUT),
]


@compile_loop(NOTHING, _DEDUCTION_TYPES)
def subtract_payments(
    group_message: Any,
    group_asset: Any,
    paid: Any,
    given: Any,
    starts: Any,
    alive: Any,
    event: Any,
    again: Any,
    asset: Any,
    has_amount: Any,
    limb_0: Any,
    limb_1: Any,
    limb_2: Any,
    limb_3: Any,
    first_received: Any,
    taken: Any,
) -> None:
    """Write the deduction of each group from its message's sent amount of the asset.

    The deduction is ``paid`` minus ``given``, between nothing and the sent amount; only messages without receipt have
    one. Arguments are as of ``settle_messages``; a message is -1 for none.
    """
    sent, due = np.zeros(LIMBS, dtype=np.uint64), np.zeros(LIMBS, dtype=np.uint64)
    for group in range(len(group_message)):
        message = group_message[group]
        if message < 0 or first_received[message] >= 0 or compare_sums(paid[group], given[group]) <= 0:
            continue
        for limb in range(LIMBS):
            sent[limb], due[limb] = 0, given[group, limb]
        for row in range(starts[message], starts[message + 1]):
            counts = alive[row] and event[row] == SENT and not again[row]
            if counts and has_amount[row] and asset[row] == group_asset[group]:
                add_amount(sent, limb_0, limb_1, limb_2, limb_3, row)
        add_sum(due, sent)
        if compare_sums(paid[group], due) > 0:
            taken[group] = sent
            continue
        borrow = np.uint64(0)
        for limb in range(LIMBS):
            taken[group, limb], borrow = less_limb(paid[group, limb], given[group, limb], borrow)


_SETTLE_TYPES = [
    *(ROWS, ROWS, ROWS, CODES, BYTES, SUMS, SUMS),
    *(ROWS, BYTES, CODES, BYTES, CODES, BYTES, WORDS, WORDS, WORDS, WORDS),
    *(CODES, CODES, CODES, BYTES, BYTES_OUT, writable_arrays("float64"), CODES_OUT),
]


@compile_loop(NOTHING, _SETTLE_TYPES)
def settle_messages(
    messages: Any,
    begins: Any,
    ends: Any,
    group_asset: Any,
    unseen: Any,
    paid: Any,
    given: Any,
    starts: Any,
    alive: Any,
    event: Any,
    again: Any,
    asset: Any,
    has_amount: Any,
    limb_0: Any,
    limb_1: Any,
    limb_2: Any,
    limb_3: Any,
    first_sent: Any,
    first_received: Any,
    given_back: Any,
    undone: Any,
    value: Any,
    value_by: Any,
    value_row: Any,
) -> None:
    """Update the value outcomes of ``messages`` (-1: none) with payments.

    Args:
        messages: Message number of each paid message.
        begins: First group of each.
        ends: Group after the last one of each.
        group_asset: Asset of each group, as a code of the rows.
        unseen: Paid messages with an unknown amount or asset.
        paid: Paid sum of each group.
        given: Given back sum of each group.
        starts: As of ``message_loops.evaluate_messages``, also ``alive`` to ``limb_3``.
        alive: Rows that were not reverted.
        event: Event of each row.
        again: Duplicate rows.
        asset: Asset of each row.
        has_amount: Rows with a known amount.
        limb_0: Lowest limb of each amount.
        limb_1: Second limb.
        limb_2: Third limb.
        limb_3: Highest limb.
        first_sent: First sent row of each message.
        first_received: Counted receipt of each message.
        given_back: Row that returns the value of each message.
        undone: Messages whose receipt does not count.
        value: Output: value outcome of each message.
        value_by: Output: amount of the difference.
        value_row: Output: row that shows the value outcome.
    """
    received, arrived = np.zeros(LIMBS, dtype=np.uint64), np.zeros(LIMBS, dtype=np.uint64)
    sent, nothing = np.zeros(LIMBS, dtype=np.uint64), np.zeros(LIMBS, dtype=np.uint64)
    for place in range(len(messages)):
        message = messages[place]
        if message < 0:
            continue
        found = value[message]
        if found in (0, AMOUNT_UNSEEN, FROM_NOWHERE):
            continue
        base, receipt = first_sent[message], first_received[message]
        if base < 0:
            continue
        seen = receipt if receipt >= 0 else base
        if unseen[place]:
            value[message], value_by[message], value_row[message] = AMOUNT_UNSEEN, 0.0, seen
            continue
        if found == ASSET_DIFFERS:
            continue
        own, differs = -1, False
        for group in range(begins[place], ends[place]):
            if group_asset[group] == asset[base]:
                own = group
            elif compare_sums(paid[group], given[group]) > 0:
                differs = True
        if differs:
            value[message], value_by[message], value_row[message] = ASSET_DIFFERS, 0.0, seen
            continue
        if own < 0:
            continue
        for limb in range(LIMBS):
            received[limb], sent[limb] = 0, 0
        shown = base
        for row in range(starts[message], starts[message + 1]):
            if not alive[row]:
                continue
            if event[row] == SENT and not again[row]:
                add_amount(sent, limb_0, limb_1, limb_2, limb_3, row)
            elif event[row] == RECEIVED and not undone[message]:
                if shown == base or row != receipt:
                    shown = row
                add_amount(received, limb_0, limb_1, limb_2, limb_3, row)
        if receipt < 0 and compare_sums(received, nothing) > 0:
            continue
        for limb in range(LIMBS):
            arrived[limb] = received[limb]
        add_sum(received, paid[own])
        add_sum(sent, given[own])
        order = compare_sums(received, sent)
        value[message], value_by[message], value_row[message] = EVEN, 0.0, shown
        if order > 0:
            value[message] = MORE if receipt >= 0 else MORE_PAID
            value_by[message] = rounded_difference(received, sent)
            if receipt < 0:
                value_row[message] = base
        elif receipt >= 0 and order < 0:
            value[message] = LESS if compare_sums(paid[own], given[own]) >= 0 else LESS_UNSEEN
            value_by[message] = rounded_difference(sent, received)
        elif receipt >= 0 and given_back[message] >= 0:
            value[message] = REFUNDED_TOO
            value_by[message] = rounded_difference(arrived, nothing)
            value_row[message] = given_back[message]
