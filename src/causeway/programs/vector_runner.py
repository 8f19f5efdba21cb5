"""Runs the vectorised programs of a round: one handler call for all instances, with a way back to one message at a time.

When a handler raises, the round does not: the instances are run one by one, and the one that fails message by message, so that
just the message at fault is rejected. The result is thus what handling each message alone would give, whichever instances share a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated
from causeway.model.ledger import Kind
from causeway.model.order import groups_of
from causeway.programs.accounts import Insufficient, settle
from causeway.programs.outputs import (
    HANDLER_FAILED,
    NO_FAILURES,
    Outcome,
    answer_rows,
    by_production,
    failures,
)
from causeway.programs.scalar_runner import failure_text
from causeway.programs.vector import Effects, VectorProgram


class VectorRunner:
    """All instances of one vectorised program class."""

    def __init__(self, program: type[VectorProgram], options: Mapping[int, Mapping[str, Any]]) -> None:
        self._program = program(options)
        self.schema: pa.Schema = program.schema

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return the state of new ``instances`` (ascending numbers)."""
        return self._program.initial_state(instances)

    def run(self, inputs: Frame, rows: npt.NDArray[np.int64], accounts: Frame, state: Frame) -> Outcome:
        """Run the inputs (one instance's are neighbours, in order); ``rows`` are their rows in the whole round's inputs."""
        try:
            return self._at_once(inputs, rows, accounts, state)
        except Exception:  # whatever a program raises: find out which message it is about
            return self._by_instance(inputs, rows, accounts, state)

    def _at_once(self, inputs: Frame, rows: npt.NDArray[np.int64], accounts: Frame, state: Frame) -> Outcome:
        effects = self._program.handle(inputs, state)
        return _outcome(inputs, rows, accounts, effects)

    def _by_instance(self, inputs: Frame, rows: npt.NDArray[np.int64], accounts: Frame, state: Frame) -> Outcome:
        outcomes = []
        groups = groups_of(inputs["receiver"])
        for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
            mine = inputs.slice(start, start + count), rows[start : start + count]
            number = int(mine[0]["receiver"][0])
            own_accounts = accounts.filter(accounts["canister"] == number)
            own_state = state.filter(state["canister"] == number)
            try:
                outcome = self._at_once(*mine, own_accounts, own_state)
            except Exception:
                outcome = self._by_message(*mine, own_accounts, own_state)
            accounts = _replaced(accounts, outcome.accounts)
            state = _replaced(state, outcome.state)
            outcomes.append(outcome)
        return Outcome(
            by_production([outcome.outputs for outcome in outcomes]),
            concat([outcome.failures for outcome in outcomes]),
            accounts,
            state,
        )

    def _by_message(self, inputs: Frame, rows: npt.NDArray[np.int64], accounts: Frame, state: Frame) -> Outcome:
        outputs, failed = [], [NO_FAILURES]
        for place in range(len(inputs)):
            one, row = inputs.slice(place, place + 1), rows[place : place + 1]
            try:
                outcome = self._at_once(one, row, accounts, state)
                accounts, state = outcome.accounts, outcome.state
                outputs.append(outcome.outputs)
            except Exception as error:  # the message at fault
                text = failure_text(error)
                if one["kind"][0] == Kind.REQUEST:
                    payload = pa.array([text.encode()], pa.binary())
                    answer = answer_rows(one, np.zeros(1, dtype=np.int64), HANDLER_FAILED, payload)
                    outputs.append(answer.with_columns(row=row))
                else:
                    accounts = settle(accounts, one, None, None)
                    failed.append(failures([int(row[0])], [text], [False]))
        return Outcome(by_production(outputs), concat(failed), accounts, state)


def _replaced(whole: Frame, part: Frame) -> Frame:
    """Return ``whole`` with the rows of the canisters in ``part`` replaced, ascending by canister."""
    rest = whole.filter(~np.isin(whole["canister"], part["canister"]))
    joined = concat([rest, part.select(whole.names)])
    return joined.take(np.argsort(joined["canister"], kind="stable"))


def _outcome(inputs: Frame, rows: npt.NDArray[np.int64], accounts: Frame, effects: Effects) -> Outcome:
    parts = []
    if effects.answers is not None and len(effects.answers):
        parts.append(_responses(inputs, effects.answers))
    accounts = settle(accounts, inputs, effects.answers, effects.calls)
    if effects.calls is not None and len(effects.calls):
        calls, accounts = _requests(inputs, effects.calls, accounts)
        parts.append(calls)
    outputs = by_production(parts)
    return Outcome(outputs.with_columns(row=rows[outputs["row"]]), NO_FAILURES, accounts, effects.state)


def _responses(inputs: Frame, answers: Frame) -> Frame:
    rows = answers["row"]
    if not bool((inputs["kind"][rows] == Kind.REQUEST).all()) or not bool((rows[1:] > rows[:-1]).all()):
        raise ValueError("answers must name each request at most once, in ascending order of rows")
    refund = None
    if "accepted_low" in answers:
        low, high = inputs["cycles_low"][rows], inputs["cycles_high"][rows]
        refund_low = low - answers["accepted_low"]
        borrow = (answers["accepted_low"] > low).astype(np.uint64)
        refund = (high - answers["accepted_high"] - borrow, refund_low)
    return answer_rows(inputs, rows, answers["code"], answers["payload"], refund)


def _requests(inputs: Frame, calls: Frame, accounts: Frame) -> tuple[Frame, Frame]:
    """Return the calls as requests with their callback ids, and the accounts with ``next_callback`` moved on."""
    rows, length = calls["row"], len(calls)
    if not bool((rows[1:] >= rows[:-1]).all()):
        raise ValueError("calls must be in ascending order of rows")
    sender = inputs["receiver"][rows]
    groups = groups_of(sender)
    account = np.searchsorted(accounts["canister"], sender[groups.starts])
    next_callback = accounts["next_callback"].copy()
    callback = groups.spread(next_callback[account]) + groups.ranks().astype(np.uint64)
    next_callback[account] += groups.counts.astype(np.uint64)
    zero = repeated(np.uint64(0), length)
    requests = Frame(
        {
            "row": rows,
            "kind": repeated(np.uint8(Kind.REQUEST), length),
            "sender": sender,
            "receiver": calls["receiver"],
            "callback": callback,
            "cycles_high": calls["cycles_high"] if "cycles_high" in calls else zero,
            "cycles_low": calls["cycles_low"] if "cycles_low" in calls else zero,
            "code": repeated(np.uint8(0), length),
            "deadline": repeated(np.uint32(0), length),
            "method": calls["method"],
            "payload": calls["payload"],
        },
        length,
    )
    return requests, accounts.with_columns(next_callback=next_callback)


__all__ = ["Insufficient", "VectorRunner"]
