"""When packets expire (IBC reference X-1, D-15): limits are of the receiving chain, its height and its time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import U64, groups_of
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.state import SEND, State
from causeway.protocols.messages import LANE

Mask = npt.NDArray[np.bool_]


def limits_of(sent_height: U64, sent_time: U64, options: IbcOptions) -> tuple[U64, U64]:
    """Return the receiving chain's height and time (ns) after which packets sent at these have expired."""
    none = np.uint64(2**64 - 1)
    height = (
        sent_height + np.uint64(options.timeout_blocks) if options.timeout_blocks else np.full_like(sent_height, none)
    )
    lasting = np.uint64(options.timeout_ns)
    return height, sent_time + lasting if lasting else np.full_like(sent_time, none)


def is_expired(max_height: Any, max_time: Any, height: Any, time: Any, expiry: str) -> Any:
    """Return whether a chain's height and time (ns) are past limits: strictly, or already when equal (``expiry``).

    Numbers or columns of them.
    """
    if expiry == "strict":
        return (height > max_height) | (time > max_time)
    return (height >= max_height) | (time >= max_time)


def has_expired(sent_height: U64, sent_tick: U64, height: Any, time: Any, context: Context) -> Mask:
    """Return which packets, sent at these heights in these ticks, have expired at a chain's height and time (ns)."""
    sent_time = (sent_tick + np.uint64(1)) * np.uint64(context.tick_ns)
    limits = limits_of(sent_height, sent_time, context.options)
    passed: Mask = is_expired(*limits, height, time, context.options.expiry)
    return passed


def expired_until(state: State, lanes: Frame, height: int, times: dict[int, int], context: Context) -> U64:
    """Return for each of our send queues the end of the packets that are past their limits at the remote header.

    ``height``, ``times`` (by zone): of the remote headers. Packets of one queue expire in their order. 0 where none
    has.
    """
    runs = state.runs.filter(state.runs["substream"] == SEND)
    at = np.array([times.get(destination, 0) for destination in runs["destination"].tolist()], dtype=np.uint64)
    late = runs.filter(has_expired(runs["height"], runs["tick"], np.uint64(height), at, context))
    groups = groups_of(*(late[name] for name in LANE))
    last = late.take(groups.starts + groups.counts - 1)
    row = lookup(last, lanes, LANE)
    end: U64 = np.zeros(len(lanes), dtype=np.uint64)
    end[row >= 0] = (last["first"] + last["count"])[row[row >= 0]]
    return end


Expired = Callable[[int, int, int, int], int]
"""(chain, counterparty, height, time) -> the end of our packets in that queue that have expired by a header of the
counterparty with this height and time (ns)."""


def expiry_of(state: State, context: Context) -> Expired:
    """Return what says how far our packets in a queue have expired by a header of the counterparty."""

    @cache
    def runs_of() -> dict[tuple[int, ...], tuple[int, int]]:
        names = [state.runs[name] for name in LANE]
        groups = groups_of(*names)
        lanes = zip(*(column[groups.starts].tolist() for column in names), strict=True)
        spans = zip(groups.starts.tolist(), (groups.starts + groups.counts).tolist(), strict=True)
        return dict(zip(lanes, spans, strict=True))

    @cache  # as many time-outs as one likes may be submitted under one header
    def expired(chain: int, counterparty: int, height: int, time: int) -> int:
        if not context.options.limited:
            return 0
        runs = state.runs.slice(*runs_of().get((chain, counterparty, SEND), (0, 0)))
        now = np.uint64(height), np.uint64(time)
        late = np.flatnonzero(has_expired(runs["height"], runs["tick"], *now, context))
        return int(runs["first"][late[-1]] + runs["count"][late[-1]]) if len(late) else 0

    return expired
