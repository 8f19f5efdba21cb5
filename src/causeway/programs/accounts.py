"""Balances of programs: what a round's answers and calls take from them and bring to them, exact to 128 bits."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.ledger import Kind
from causeway.model.order import groups_of
from causeway.programs.outputs import WORD
from causeway.programs.scalar import InsufficientCycles

Insufficient = InsufficientCycles


def settle(accounts: Frame, inputs: Frame, answers: Frame | None, calls: Frame | None) -> Frame:
    """Return the accounts after the inputs, in order: a response's refund comes in, calls go out, what was accepted comes in.

    ``inputs``: one instance's rows are neighbours, in order. ``answers`` and ``calls``: effects by row of the inputs. Raises
    ``InsufficientCycles`` when a call attaches more than there is at that point.
    """
    attached = calls is not None and "cycles_low" in calls and _any(calls, "cycles")
    accepted = answers is not None and "accepted_low" in answers and _any(answers, "accepted")
    response = inputs["kind"] == Kind.RESPONSE
    refunded = bool(((inputs["cycles_low"] > 0) & response).any() or ((inputs["cycles_high"] > 0) & response).any())
    if not (attached or accepted or refunded):
        return accounts
    coming, going, taken = ({}, {}, {})  # type: tuple[dict[int, int], dict[int, int], dict[int, int]]
    if refunded:
        coming = _by_row(np.flatnonzero(response), inputs.filter(response), "cycles")
    if attached and calls is not None:
        going = _by_row(calls["row"], calls, "cycles")
    if accepted and answers is not None:
        taken = _by_row(answers["row"], answers, "accepted")
    high, low = accounts["balance_high"].copy(), accounts["balance_low"].copy()
    receivers = inputs["receiver"]
    touched = np.array(sorted(coming.keys() | going.keys() | taken.keys()), dtype=np.int64)
    groups = groups_of(receivers[touched])
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        account = int(np.searchsorted(accounts["canister"], receivers[touched[start]]))
        balance = int(high[account]) * WORD + int(low[account])
        for row in touched[start : start + count].tolist():
            balance += coming.get(row, 0)
            if going.get(row, 0) > balance:
                raise InsufficientCycles(f"balance {balance}, attached {going[row]}")
            balance += taken.get(row, 0) - going.get(row, 0)
        high[account], low[account] = balance // WORD, balance % WORD
    return accounts.with_columns(balance_high=high, balance_low=low)


def _any(frame: Frame, prefix: str) -> bool:
    return bool(frame[f"{prefix}_low"].any() or frame[f"{prefix}_high"].any())


def _by_row(rows: np.ndarray, frame: Frame, prefix: str) -> dict[int, int]:
    """Return the sum of a 128-bit column by row, rows without any left out."""
    sums: dict[int, int] = {}
    nonzero = np.flatnonzero((frame[f"{prefix}_low"] > 0) | (frame[f"{prefix}_high"] > 0))
    highs, lows = frame[f"{prefix}_high"][nonzero].tolist(), frame[f"{prefix}_low"][nonzero].tolist()
    for row, high, low in zip(rows[nonzero].tolist(), highs, lows, strict=True):
        sums[row] = sums.get(row, 0) + high * WORD + low
    return sums
