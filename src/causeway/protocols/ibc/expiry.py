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
from causeway.protocols.ibc.seen import Seen
from causeway.protocols.ibc.state import SEND, State, connection_rows
from causeway.protocols.ibc.values import NO_LIMIT
from causeway.protocols.messages import LANE

Mask = npt.NDArray[np.bool_]


def height_limits(sent: Frame, connections: Frame, options: IbcOptions) -> U64:
    """Return the height of the receiving chain after which each message that is pushed now (lane) has expired.

    So many blocks after the newest header of that chain that the sender's client trusts. ``NO_LIMIT`` without time-outs
    by blocks, and for receipts and what stays on its zone.
    """
    limits = np.full(len(sent), NO_LIMIT, dtype=np.uint64)
    if not (options.limited and options.timeout_blocks):
        return limits
    packets = np.flatnonzero((sent["substream"] == SEND) & (sent["source"] != sent["destination"]))
    rows = connection_rows(connections, sent["source"][packets], sent["destination"][packets])
    limits[packets] = connections["latest"][rows] + np.uint64(options.timeout_blocks)
    return limits


def time_limits(sent_tick: U64, tick_ns: int, options: IbcOptions) -> U64:
    """Return the time (ns) of the receiving chain after which packets sent in these ticks have expired."""
    lasting = np.uint64(options.timeout_ns)
    if not lasting:
        return np.full_like(sent_tick, NO_LIMIT)
    return (sent_tick + np.uint64(1)) * np.uint64(tick_ns) + lasting


def is_expired(max_height: Any, max_time: Any, height: Any, time: Any, expiry: str) -> Any:
    """Return whether a chain's height and time (ns) are past limits: strictly, or already when equal (``expiry``).

    Numbers or columns of them.
    """
    if expiry == "strict":
        return (height > max_height) | (time > max_time)
    return (height >= max_height) | (time >= max_time)


def has_expired(max_height: U64, sent_tick: U64, height: Any, time: Any, context: Context) -> Mask:
    """Return which packets, with these limits and sent in these ticks, have expired at a chain's height and time
    (ns)."""
    max_time = time_limits(sent_tick, context.tick_ns, context.options)
    passed: Mask = is_expired(max_height, max_time, height, time, context.options.expiry)
    return passed


def is_past(runs: Frame, context: Context) -> Mask:
    """Return which packets, told by their runs or proofs, are past their limits on the zones that make this block."""
    now = np.uint64(context.height), np.uint64(context.time)
    return has_expired(runs["max_height"], runs["tick"], *now, context)


def expired_until(state: State, lanes: Frame, seen: Seen, context: Context) -> U64:
    """Return for each of our send queues the end of the packets that are past their limits at the remote header under
    which relayers see the other side (``seen``).

    Packets of one queue expire in their order. 0 where none has.
    """
    runs = state.runs.filter(state.runs["substream"] == SEND)
    now = seen.headers_of(runs["source"], runs["destination"], context)
    late = runs.filter(has_expired(runs["max_height"], runs["tick"], *now, context))
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
        late = np.flatnonzero(has_expired(runs["max_height"], runs["tick"], *now, context))
        return int(runs["first"][late[-1]] + runs["count"][late[-1]]) if len(late) else 0

    return expired
