"""Open calls, and unanswered requests, of canisters (IC reference 1.1, X-2 push_input).

A call opens when its request enters an output queue, and closes when a response to it enters an input queue. A response
without an open call is not enqueued, so each caller has one answer to a call.

Unanswered requests were popped from input queues and wait for an answer. They are rejected when their canister is
removed, so every caller gets its answer and its cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import UINT32, UINT64, table_schema
from causeway.protocols.shared.execution import Execution

OPEN_CALLS_SCHEMA = table_schema(originator=UINT64, callback=UINT64, respondent=UINT64, deadline=UINT32)
"""A call of ``originator`` under ``callback`` to ``respondent``.

The first two are the unique key.
"""

OPEN_CALLS_KEYS = ("originator", "callback")

_REQUEST_COLUMNS = {"originator": "sender", "callback": "callback", "respondent": "receiver", "deadline": "deadline"}
"""The column of a request that gives each column of its call."""

SPARSE = 4
"""Maximum callbacks per open call for a dense table from oldest to newest callback."""

Mask = npt.NDArray[np.bool_]


def _is_zero(column: npt.NDArray[np.generic]) -> bool:
    """Return True if a column repeats 0 without storing it."""
    return len(column) == 0 or (column.strides[0] == 0 and not column[0])


@dataclass(frozen=True)
class OpenCalls:
    """The open calls of any set of canisters.

    Attributes:
        held: Calls in order.
        closed: Mask of the calls that were answered since; None for none.
    """

    held: Frame
    closed: Mask | None = None

    @cached_property
    def rows(self) -> Frame:
        """Return the open calls (``OPEN_CALLS_SCHEMA``)."""
        return self.held if self.closed is None else self.held.filter(~self.closed)

    def close_answered(self, responses: Frame) -> tuple[Mask, OpenCalls]:
        """Close the calls that ``responses`` (message columns) answer.

        The first response to a call counts.

        Returns:
            A mask of the answering responses, and the remaining open calls.
        """
        if len(responses) == 0 or len(self.held) == 0:
            return np.zeros(len(responses), dtype=bool), self
        row = self._rows_of(responses)
        calls = self.held
        matching = (row >= 0) & (calls["respondent"][row] == responses["sender"])
        if not (_is_zero(calls["deadline"]) and _is_zero(responses["deadline"])):
            matching &= calls["deadline"][row] == responses["deadline"]
        closed = np.zeros(len(calls), dtype=bool) if self.closed is None else self.closed.copy()
        if self.closed is not None:
            matching &= ~closed[row]
        before = int(np.count_nonzero(closed))
        chosen = row if matching.all() else row[matching]
        closed[chosen] = True
        if int(np.count_nonzero(closed)) - before < len(chosen):
            # Several responses to one call: the first counts.
            found = np.flatnonzero(matching)
            matching = np.zeros(len(responses), dtype=bool)
            matching[found[np.unique(chosen, return_index=True)[1]]] = True
        return matching, OpenCalls(calls, closed) if len(chosen) else self

    def _rows_of(self, responses: Frame) -> Rows:
        """Return the row of each response's call by originator and callback, or -1."""
        callback, groups = self.held["callback"], group_rows(self.held["originator"])
        first = callback[groups.starts]
        last = callback[groups.starts + groups.counts - 1]
        span = last - first
        if float(span.astype(np.float64).sum()) > SPARSE * len(callback):
            keys = Frame({"originator": responses["receiver"], "callback": responses["callback"]})
            return lookup_rows(self.held, keys, OPEN_CALLS_KEYS)
        # One slot for every callback of an originator from its oldest open call to its newest.
        length = (span + np.uint64(1)).view(np.int64)
        start = np.cumsum(length) - length
        shift = start.view(np.uint64) - first
        slots = np.full(int(start[-1] + length[-1]), -1, dtype=np.int32)
        slots[(callback + groups.spread(shift)).view(np.int64)] = np.arange(len(callback), dtype=np.int32)
        originators = group_rows(responses["receiver"])
        of = find_positions(self.held["originator"][groups.starts], responses["receiver"][originators.starts])
        position = responses["callback"] - originators.spread(first[of])
        inside = position <= originators.spread(np.where(of >= 0, span[of], np.uint64(0)))
        inside &= originators.spread(of >= 0)
        slot = position + originators.spread(start[of].view(np.uint64))
        if not inside.all():
            slot = np.where(inside, slot, np.uint64(0))
            return np.where(inside, slots[slot.view(np.int64)], np.int32(-1))
        found: Rows = slots[slot.view(np.int64)]
        return found

    def opened_by(self, requests: Frame) -> OpenCalls:
        """Add the calls of ``requests`` (message columns), which are newer than all others."""
        if len(requests) == 0:
            return self
        order = stable_order(requests["sender"], requests["callback"])
        if not bool((order[1:] > order[:-1]).all()):
            requests = requests.take(order)
        opened = Frame({name: requests[column] for name, column in _REQUEST_COLUMNS.items()})
        if len(self.held) == 0:
            return OpenCalls(opened)
        # Append the new calls to the open ones, canister by canister.
        groups, new = group_rows(self.held["originator"]), group_rows(opened["originator"])
        counts = groups.counts
        open_rows: Any = slice(None)
        if self.closed is not None:
            open_ = ~self.closed
            counts = np.add.reduceat(open_, groups.starts, dtype=np.int64)
            open_rows = np.flatnonzero(open_)
        old_names, new_names = self.held["originator"][groups.starts], opened["originator"][new.starts]
        # A canister's calls follow those of all lower canisters in the other table; new calls also its own old ones.
        new_before = np.append(0, np.cumsum(new.counts))[np.searchsorted(new_names, old_names)]
        old_before = np.append(0, np.cumsum(counts))[np.searchsorted(old_names, new_names, side="right")]
        at_new = np.arange(len(opened)) + new.spread(old_before)
        total = int(counts.sum()) + len(opened)
        at_old = np.arange(total - len(opened)) + np.repeat(new_before, counts)
        columns: dict[str, Any] = {}
        for name in OPEN_CALLS_SCHEMA.names:
            ours, theirs = self.held[name], opened[name]
            if _is_zero(ours) and _is_zero(theirs):
                columns[name] = repeat_value(ours.dtype.type(0), total)
                continue
            column = np.empty(total, dtype=ours.dtype)
            column[at_old] = ours[open_rows]
            column[at_new] = theirs
            columns[name] = column
        return OpenCalls(Frame(columns, total))

    def without(self, originators: Mask) -> OpenCalls:
        """Remove the calls of a mask over ``rows``."""
        remaining = self.rows.filter(~originators)
        return self if remaining is self.held else replace(self, held=remaining, closed=None)


IN_HAND_KEYS = ("respondent", "originator", "callback", "amount_high", "amount_low", "deadline")

IN_HAND_SCHEMA = table_schema(**dict.fromkeys(IN_HAND_KEYS[:-1], UINT64), deadline=UINT32, count=UINT64)
"""``count`` requests of ``originator`` that ``respondent`` executed and did not answer.

The count is one, unless some are forged.

The amount is the rest still attached; the accepted part is in the balance of ``respondent``.
"""


def update_inflight(in_hand: Frame, inputs: Frame, execution: Execution) -> Frame:
    """Return the unanswered requests (``IN_HAND_SCHEMA``) after the execution of ``inputs``.

    The table itself is returned if every request was answered at once, the usual case.
    """
    produced, asked, accepted = execution.produced, execution.asked, execution.accepted
    opened = inputs["kind"] == Kind.REQUEST
    late = asked["late"] > 0
    opened[execution.origins[(produced["kind"] == Kind.RESPONSE) & ~late]] = False
    unanswered, answered_late = np.flatnonzero(opened), np.flatnonzero(late)
    if len(unanswered) == len(answered_late) == len(accepted) == 0:
        return in_hand
    requests = inputs.select(["receiver", "sender", "callback", "amount_high", "amount_low", "deadline"]).take(
        unanswered
    )
    answers = produced.select(["sender", "receiver", "callback", "deadline"]).take(answered_late)
    amounts = asked.select(["asked_high", "asked_low"]).take(answered_late)
    added = _rows(requests, "receiver", "sender", requests["amount_high"], requests["amount_low"])
    closed = _rows(answers, "sender", "receiver", amounts["asked_high"], amounts["asked_low"])
    less, more = (
        _rows(accepted, "program", "sender", accepted[f"{when}_high"], accepted[f"{when}_low"])
        for when in ("before", "after")
    )
    rows = concat([in_hand, added, more, closed, less])
    change = rows["count"].astype(np.int64)
    change[len(in_hand) + len(unanswered) + len(accepted) :] = -1
    order = stable_order(*(rows[name] for name in IN_HAND_KEYS))
    rows = rows.take(order)
    groups = group_rows(*(rows[name] for name in IN_HAND_KEYS))
    count = np.add.reduceat(change[order], groups.starts)
    left = rows.take(groups.starts).with_columns(count=count.astype(np.uint64))
    return left.filter(count > 0)


def _rows(messages: Frame, respondent: str, originator: str, high: np.ndarray, low: np.ndarray) -> Frame:
    """Return one row for each message."""
    deadline = messages["deadline"].astype(np.uint32, copy=False)
    columns = (messages[respondent], messages[originator], messages["callback"], high, low, deadline)
    return Frame(dict(zip(IN_HAND_KEYS, columns, strict=True)), len(messages)).with_columns(count=np.uint64(1))
