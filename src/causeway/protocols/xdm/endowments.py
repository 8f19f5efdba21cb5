"""The endowments of programs (ours): they pay fees and deposits, and are attached to no call.

An account holds a program's own value and what is left of its endowment: fees and deposits (``COSTS``) come out of that
first. Handlers see the program's own value alone, as under protocols without fees.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64, Rows, positions_in
from causeway.protocols.execution import credited
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.money import Money, joined, split
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import COSTS_SCHEMA


def costs_after(state: State, money: Money) -> Frame:
    """Return the costs of programs (``COSTS_SCHEMA``) after what a block has moved so far."""
    before, paid = state["costs"], money.costs()
    programs = np.array(sorted(paid), dtype=np.uint64)
    at = positions_in(before["program"], programs)
    if not (at >= 0).any():
        return before
    totals = joined(before, "amount")
    for row, program in zip(at.tolist(), programs.tolist(), strict=True):
        if row >= 0:
            totals[row] += paid[program]
    high, low = split(totals)
    return before.with_columns(amount_high=high, amount_low=low).select(COSTS_SCHEMA.names)


class Endowments:
    """What is left of endowments while a block's handlers run."""

    def __init__(self, state: State, money: Money, context: Context) -> None:
        costs = costs_after(state, money)
        given, low = np.uint64(context.options.endowment), costs["amount_low"]
        spent = (costs["amount_high"] > 0) | (low > given)
        self._left: U64 = np.where(spent, np.uint64(0), given - np.minimum(low, given))
        self._rows: Rows = positions_in(state["accounts"]["program"], costs["program"])

    def taken_off(self, accounts: Frame) -> Frame:
        """Return accounts with each program's own value alone."""
        if len(self._rows) == 0:
            return accounts
        over, high, low = (accounts[f"balance_{word}"].copy() for word in ("over", "high", "low"))
        one, zero = np.uint64(1), np.uint64(0)
        less = np.zeros(len(accounts), dtype=np.uint64)
        less[self._rows] = self._left
        borrow = low < less
        low -= less
        over -= np.where(borrow & (high == zero), one, zero)
        high -= np.where(borrow, one, zero)
        return accounts.with_columns(balance_over=over, balance_high=high, balance_low=low)

    def put_back(self, accounts: Frame) -> Frame:
        """Return accounts with what is left of endowments again."""
        if len(self._rows) == 0:
            return accounts
        return credited(accounts, self._rows, np.zeros(len(self._rows), dtype=np.uint64), self._left)
