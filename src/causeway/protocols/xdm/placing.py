"""Which channel each message of a block takes where some of their senders cannot pay (XDM reference 3.3): each call is
made or refused in its turn, and what one that is refused does not take, the next may.

The turn of a message comes when those before it to the same chain, and those before it of the same sender, had theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.ledger import Kind
from causeway.model.order import Groups, Rows, stable_order


def in_turn(
    queued: Frame,
    groups: Groups,
    offers: Sequence[Sequence[tuple[int, int]]],
    able: npt.NDArray[np.bool_],
    fees: Mapping[int, int | None],
    balances: Mapping[int, int],
) -> tuple[Rows, Rows, Rows]:
    """Return the row of the channel that each message takes, -1 for none, and which calls would take one and cost too
    much, or cannot be paid.

    Args:
        queued: messages by source and destination, of each in their order.
        groups: those of one source and destination.
        offers: of each group the channels, in the order in which they are taken, and how many messages each takes.
        able: messages that may take a channel at all.
        fees: what a call costs its sender, who stays alive (3.3 step 4), on each channel; None where it is too much.
        balances: of senders.
    """
    group = groups.spread(np.arange(len(groups))).tolist()
    left = [[[channel, room] for channel, room in offer if room > 0][::-1] for offer in offers]
    has = dict(balances)
    row_of, costly, poor = np.full(len(queued), -1, dtype=np.int64), [], []
    senders, is_call = queued["sender"].tolist(), (queued["kind"] == Kind.REQUEST).tolist()
    for row in _turns(queued, groups):
        places = left[group[row]]
        if not places or not able[row]:
            continue
        fee = fees[places[-1][0]] if is_call[row] else 0
        if fee is None:
            costly.append(row)
            continue
        if fee:
            if has[senders[row]] - fee < 1:
                poor.append(row)
                continue
            has[senders[row]] -= fee
        row_of[row] = places[-1][0]
        places[-1][1] -= 1
        if not places[-1][1]:
            places.pop()
    return row_of, np.array(costly, dtype=np.int64), np.array(poor, dtype=np.int64)


def _turns(queued: Frame, groups: Groups) -> list[int]:
    """Return the rows in an order in which each comes behind those of its group and of its sender that are before it.

    A program's calls are numbered in their order (``callback``); its answers cost nothing, and wait for none.
    """
    count = len(queued)
    before = np.arange(-1, count - 1)
    before[groups.starts] = -1
    calls = np.flatnonzero(queued["kind"] == Kind.REQUEST)
    calls = calls[stable_order(queued["sender"][calls], queued["callback"][calls])]
    earlier = np.full(count, -1, dtype=np.int64)
    same = queued["sender"][calls][1:] == queued["sender"][calls][:-1]
    earlier[calls[1:][same]] = calls[:-1][same]
    waits = list(zip(before.tolist(), earlier.tolist(), strict=True))
    found, done = list[int](), [False] * count
    for first in range(count):
        stack = [first]
        while stack:
            row = stack[-1]
            open_ones = [] if done[row] else [one for one in waits[row] if one >= 0 and not done[one]]
            if open_ones:
                stack += open_ones
                continue
            stack.pop()
            if not done[row]:
                done[row] = True
                found.append(row)
    return found
