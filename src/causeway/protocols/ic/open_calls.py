"""The table of open calls: what canisters asked and has not been answered (IC reference 1.1, X-2 push_input).

A call opens when its request enters an output queue and closes when a response to it enters an input queue, whatever
way that came. A response that names no open call is not enqueued: so a caller has one answer to a call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, repeated
from causeway.model.joins import lookup
from causeway.model.order import U64, Groups, Rows, groups_of, positions_in, stable_order

OPEN_CALLS_SCHEMA = pa.schema(
    [
        pa.field("originator", pa.uint64(), nullable=False),
        pa.field("callback", pa.uint64(), nullable=False),
        pa.field("respondent", pa.uint64(), nullable=False),
        pa.field("deadline", pa.uint32(), nullable=False),
    ]
)
"""A call of ``originator`` under ``callback`` to ``respondent``; ascending by the first two, which name it for ever."""

OPEN_CALLS_KEYS = ("originator", "callback")

SPARSE = 4
"""Slots a call up to which open calls are found through one slot for every callback from the oldest to the newest."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class OpenCalls:
    """The open calls of any set of canisters.

    ``held``: calls in their order, of which those under ``closed`` (if any) have been answered since.
    """

    held: Frame
    closed: Mask | None = None

    @cached_property
    def rows(self) -> Frame:
        """Return the open calls (``OPEN_CALLS_SCHEMA``)."""
        return self.held if self.closed is None else self.held.filter(~self.closed)

    @cached_property
    def _groups(self) -> Groups:
        return groups_of(self.held["originator"])

    @cached_property
    def _originators(self) -> U64:
        originators: U64 = self.held["originator"][self._groups.starts]
        return originators

    def answered_by(self, responses: Frame) -> tuple[Mask, OpenCalls]:
        """Close the calls that ``responses`` (message columns) answer, the first response of each.

        Returns which responses do, and the calls that are open after them.
        """
        if len(responses) == 0 or len(self.held) == 0:
            return np.zeros(len(responses), dtype=bool), self
        row = self._rows_of(responses)
        held = self.held
        matching = (row >= 0) & (held["respondent"][row] == responses["sender"])
        if not (
            (len(held["deadline"]) == 0 or (held["deadline"].strides[0] == 0 and not held["deadline"][0]))
            and (
                len(responses["deadline"]) == 0
                or (responses["deadline"].strides[0] == 0 and not responses["deadline"][0])
            )
        ):
            matching &= held["deadline"][row] == responses["deadline"]
        closed = np.zeros(len(held), dtype=bool) if self.closed is None else self.closed.copy()
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
        return matching, OpenCalls(held, closed) if len(chosen) else self

    def _rows_of(self, responses: Frame) -> Rows:
        """Return the row of the call that each response names by originator and callback, -1 where there is none."""
        callback, groups = self.held["callback"], self._groups
        first = callback[groups.starts]
        last = callback[groups.starts + groups.counts - 1]
        span = last - first
        if float(span.astype(np.float64).sum()) > SPARSE * len(callback):
            asked = Frame({"originator": responses["receiver"], "callback": responses["callback"]})
            return lookup(self.held, asked, OPEN_CALLS_KEYS)
        # One slot for every callback of an originator from its oldest open call to its newest.
        length = (span + np.uint64(1)).view(np.int64)
        start = np.cumsum(length) - length
        shift = start.view(np.uint64) - first
        slots = np.full(int(start[-1] + length[-1]), -1, dtype=np.int32)
        slots[(callback + groups.spread(shift)).view(np.int64)] = np.arange(len(callback), dtype=np.int32)
        asking = groups_of(responses["receiver"])
        of = positions_in(self._originators, responses["receiver"][asking.starts])
        position = responses["callback"] - asking.spread(first[of])
        inside = position <= asking.spread(np.where(of >= 0, span[of], np.uint64(0)))
        inside &= asking.spread(of >= 0)
        slot = position + asking.spread(start[of].view(np.uint64))
        if not inside.all():
            slot = np.where(inside, slot, np.uint64(0))
            return np.where(inside, slots[slot.view(np.int64)], np.int32(-1))
        found: Rows = slots[slot.view(np.int64)]
        return found

    def opened_by(self, requests: Frame) -> OpenCalls:
        """Return the open calls with those that ``requests`` (message columns) make, which are newer than all."""
        if len(requests) == 0:
            return self
        order = stable_order(requests["sender"], requests["callback"])
        if not bool((order[1:] > order[:-1]).all()):
            requests = requests.take(order)
        made = Frame(
            {
                "originator": requests["sender"],
                "callback": requests["callback"],
                "respondent": requests["receiver"],
                "deadline": requests["deadline"],
            }
        )
        if len(self.held) == 0:
            return OpenCalls(made)
        return self._merged(made)

    def _merged(self, made: Frame) -> OpenCalls:
        """Return the calls that are still open and behind them, canister by canister, those just made."""
        groups, new = self._groups, groups_of(made["originator"])
        counts = groups.counts
        kept: Any = slice(None)
        if self.closed is not None:
            open_ = ~self.closed
            counts = np.add.reduceat(open_, groups.starts, dtype=np.int64)
            kept = np.flatnonzero(open_)
        old_names, new_names = self._originators, made["originator"][new.starts]
        # What lies before a canister's calls: the other table's calls of all canisters below it, and for new ones its
        # own old ones.
        new_before = np.append(0, np.cumsum(new.counts))[np.searchsorted(new_names, old_names)]
        old_before = np.append(0, np.cumsum(counts))[np.searchsorted(old_names, new_names, side="right")]
        at_new = np.arange(len(made)) + new.spread(old_before)
        total = int(counts.sum()) + len(made)
        at_old = np.arange(total - len(made)) + np.repeat(new_before, counts)
        columns: dict[str, Any] = {}
        for name in OPEN_CALLS_SCHEMA.names:
            ours, theirs = self.held[name], made[name]
            if (len(ours) == 0 or (ours.strides[0] == 0 and not ours[0])) and (
                len(theirs) == 0 or (theirs.strides[0] == 0 and not theirs[0])
            ):
                columns[name] = repeated(ours.dtype.type(0), total)
                continue
            column = np.empty(total, dtype=ours.dtype)
            column[at_old] = ours[kept]
            column[at_new] = theirs
            columns[name] = column
        return OpenCalls(Frame(columns, total))

    def without(self, originators: Mask) -> OpenCalls:
        """Forget the calls where a mask over ``rows`` is true."""
        kept = self.rows.filter(~originators)
        return self if kept is self.held else replace(self, held=kept, closed=None)
