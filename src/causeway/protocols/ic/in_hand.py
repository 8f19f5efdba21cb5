"""Requests in hand: what canisters took from their input queues and have not answered.

When a canister is removed they are rejected, so that every caller has an answer and its cycles.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.ledger import Kind
from causeway.model.order import groups_of, stable_order
from causeway.protocols.execution import Execution

IN_HAND_KEYS = ("respondent", "originator", "callback", "amount_high", "amount_low", "deadline")

IN_HAND_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.uint64(), nullable=False) for name in IN_HAND_KEYS[:-1]),
        pa.field("deadline", pa.uint32(), nullable=False),
        pa.field("count", pa.uint64(), nullable=False),
    ]
)
"""``count`` requests of ``originator`` that ``respondent`` executed and did not answer: one, unless some are forged.
The amount is what is still attached: what ``respondent`` accepted is in its balance, the rest belongs to nobody."""


def in_hand_after(in_hand: Frame, inputs: Frame, execution: Execution) -> Frame:
    """Return the requests in hand (``IN_HAND_SCHEMA``) after ``inputs`` were executed: the table itself if, as mostly,
    every request had its answer at once."""
    produced, asked, accepted = execution.produced, execution.asked, execution.accepted
    opened = inputs["kind"] == Kind.REQUEST
    late = asked["late"] > 0
    opened[execution.origins[(produced["kind"] == Kind.RESPONSE) & ~late]] = False
    taken, given = np.flatnonzero(opened), np.flatnonzero(late)
    if len(taken) == len(given) == len(accepted) == 0:
        return in_hand
    requests = inputs.select(["receiver", "sender", "callback", "amount_high", "amount_low", "deadline"]).take(taken)
    answers = produced.select(["sender", "receiver", "callback", "deadline"]).take(given)
    amounts = asked.select(["asked_high", "asked_low"]).take(given)
    added = _rows(requests, "receiver", "sender", requests["amount_high"], requests["amount_low"])
    closed = _rows(answers, "sender", "receiver", amounts["asked_high"], amounts["asked_low"])
    less, more = (
        _rows(accepted, "program", "sender", accepted[f"{when}_high"], accepted[f"{when}_low"])
        for when in ("before", "after")
    )
    rows = concat([in_hand, added, more, closed, less])
    change = rows["count"].astype(np.int64)
    change[len(in_hand) + len(taken) + len(accepted) :] = -1
    order = stable_order(*(rows[name] for name in IN_HAND_KEYS))
    rows = rows.take(order)
    groups = groups_of(*(rows[name] for name in IN_HAND_KEYS))
    count = np.add.reduceat(change[order], groups.starts)
    left = rows.take(groups.starts).with_columns(count=count.astype(np.uint64))
    return left.filter(count > 0)


def _rows(messages: Frame, respondent: str, originator: str, high: np.ndarray, low: np.ndarray) -> Frame:
    """Return one row for each of some messages."""
    deadline = messages["deadline"].astype(np.uint32, copy=False)
    columns = (messages[respondent], messages[originator], messages["callback"], high, low, deadline)
    return Frame(dict(zip(IN_HAND_KEYS, columns, strict=True)), len(messages)).with_columns(count=np.uint64(1))
