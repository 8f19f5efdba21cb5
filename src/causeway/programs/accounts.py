"""Balances of programs: what a round's answers and calls take from them and bring to them, exact to 128 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.ledger import Kind
from causeway.model.order import U64, Rows, groups_of, stable_order
from causeway.programs.outputs import WORD
from causeway.programs.scalar import MAX_BALANCE, BalanceOverflow, InsufficientFunds

COMING, GOING, TAKEN = 0, 1, 2
"""What moves for one input, in this order: a response's refund comes in, calls go out, what was accepted comes in."""

BALANCE = ("balance_over", "balance_high", "balance_low")
"""The words of a balance, the most significant first. The first is 0 but where refunds came to a full balance."""

SMALL = 2**62
"""Below this, sums of all that moves fit a signed word."""


def words_of(balance: int) -> tuple[int, int, int]:
    """Return the words of a balance (``BALANCE``)."""
    return balance // WORD**2, balance // WORD % WORD, balance % WORD


def balance_of(over: Any, high: Any, low: Any) -> int:
    """Return the balance of three words."""
    return (int(over) * WORD + int(high)) * WORD + int(low)


def settle(accounts: Frame, inputs: Frame, answers: Frame | None, calls: Frame | None) -> Frame:
    """Return the accounts after the inputs, in order: a refund comes in, calls go out, what was accepted comes in.

    ``inputs``: one instance's rows are neighbours, in order. ``answers`` and ``calls``: effects by row of the inputs.
    Raises ``InsufficientFunds`` when a call attaches more than there is at that point, and ``BalanceOverflow`` when
    what is accepted would raise a balance above 2**128 - 1. A refund is never refused: what is beyond 128 bits
    goes to ``balance_over``.
    """
    response = np.flatnonzero(inputs["kind"] == Kind.RESPONSE)
    parts = [_moving(response, inputs.select(["amount_high", "amount_low"]).take(response), "amount", COMING)]
    if calls is not None and "amount_low" in calls:
        parts.append(_moving(calls["row"], calls, "amount", GOING))
    if answers is not None and "accepted_low" in answers:
        parts.append(_moving(answers["row"], answers, "accepted", TAKEN))
    rows, step, high, low = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if len(rows) == 0:
        return accounts
    order = stable_order(rows.astype(np.uint64), step)
    account = np.searchsorted(accounts["program"], inputs["receiver"][rows[order]])
    return _moved(accounts, account, step[order], high[order], low[order])


def _moving(rows: Rows, frame: Frame, prefix: str, step: int) -> tuple[Rows, npt.NDArray[np.uint8], U64, U64]:
    """Return row, step, and the two halves of what moves, where it is not nothing."""
    high, low = frame[f"{prefix}_high"], frame[f"{prefix}_low"]
    some = np.flatnonzero((high > 0) | (low > 0))
    return rows[some], np.full(len(some), step, dtype=np.uint8), high[some], low[some]


def _moved(accounts: Frame, account: Rows, step: npt.NDArray[np.uint8], high: U64, low: U64) -> Frame:
    """Return the accounts after amounts went or came; rows of one account are neighbours, in order."""
    going = step == GOING
    groups = groups_of(account)
    first = account[groups.starts]
    over_after, high_after, low_after = (accounts[name].copy() for name in BALANCE)
    total = float(low.astype(np.float64).sum()) + float(low_after[first].max())
    if not high.any() and not high_after[first].any() and not over_after[first].any() and total < SMALL:
        signed = np.where(going, -low.astype(np.int64), low.astype(np.int64))
        running = np.cumsum(signed)
        start = running[groups.starts] - signed[groups.starts]
        balance = running + groups.spread(low_after[first].astype(np.int64) - start)
        if bool((balance < 0).any()):
            row = int(np.argmax(balance < 0))
            raise InsufficientFunds(f"balance {int(balance[row]) + int(low[row])}, attached {int(low[row])}")
        low_after[first] = balance[groups.starts + groups.counts - 1].astype(np.uint64)
        return accounts.with_columns(balance_high=high_after, balance_low=low_after)
    for place, start, count in zip(first.tolist(), groups.starts.tolist(), groups.counts.tolist(), strict=True):
        held = balance_of(over_after[place], high_after[place], low_after[place])
        for row in range(start, start + count):
            amount = int(high[row]) * WORD + int(low[row])
            if going[row] and amount > held:
                raise InsufficientFunds(f"balance {held}, attached {amount}")
            if step[row] == TAKEN and held + amount > MAX_BALANCE:
                raise BalanceOverflow(f"balance {held}, accepted {amount}, at most 2**128 - 1")
            held += -amount if going[row] else amount
        over_after[place], high_after[place], low_after[place] = words_of(held)
    return accounts.with_columns(balance_over=over_after, balance_high=high_after, balance_low=low_after)
