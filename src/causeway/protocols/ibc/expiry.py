"""Expiry of packets: limits are heights and times of the receiving chain.

See IBC reference X-1, D-15.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, Rows, group_rows

from causeway.core.frame import Frame
from causeway.core.joins import Intervals, encode_keys, expand_ranges, lookup_rows
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.packets import NO_LIMIT
from causeway.protocols.ibc.relayer_view import RelayerView
from causeway.protocols.ibc.state import SEND, State, connection_rows
from causeway.protocols.shared.messages import LANE

Mask = npt.NDArray[np.bool_]


def height_limits(sent: Frame, connections: Frame, options: IbcOptions) -> U64:
    """Return the receiving chain's height after which each pushed message (lane) has expired.

    It counts from the newest header of that chain that the sender's client trusts. ``NO_LIMIT`` without timeouts by
    blocks, for receipts and for local messages.
    """
    limits = np.full(len(sent), NO_LIMIT, dtype=np.uint64)
    if not (options.limited and options.timeout_blocks):
        return limits
    packets = np.flatnonzero((sent["substream"] == SEND) & (sent["source"] != sent["destination"]))
    rows = connection_rows(connections, sent["source"][packets], sent["destination"][packets])
    limits[packets] = connections["latest"][rows] + np.uint64(options.timeout_blocks)
    return limits


def time_limits(sent_tick: U64, tick_ns: int, options: IbcOptions) -> U64:
    """Return the receiving chain's time (ns) of expiry of packets sent in these ticks."""
    timeout = np.uint64(options.timeout_ns)
    if not timeout:
        return np.full_like(sent_tick, NO_LIMIT)
    return (sent_tick + np.uint64(1)) * np.uint64(tick_ns) + timeout


def is_expired(max_height: Any, max_time: Any, height: Any, time: Any, expiry: str) -> Any:
    """Return True if a chain's height or time is past a limit.

    All numbers may be columns; then a mask is returned.

    Args:
        max_height: The limit of height.
        max_time: The limit of time (ns).
        height: The chain's height.
        time: The chain's time (ns).
        expiry: ``strict``, or ``inclusive`` to count an equal value as past.
    """
    if expiry == "strict":
        return (height > max_height) | (time > max_time)
    return (height >= max_height) | (time >= max_time)


def has_expired(max_height: U64, sent_tick: U64, height: Any, time: Any, context: Context) -> Mask:
    """Return a mask of the packets that have expired at a chain's height and time (ns)."""
    max_time = time_limits(sent_tick, context.tick_ns, context.options)
    passed: Mask = is_expired(max_height, max_time, height, time, context.options.expiry)
    return passed


def is_past_limits(runs: Frame, context: Context) -> Mask:
    """Return a mask of the packets (runs or proofs) past their limits in this block."""
    now = np.uint64(context.height), np.uint64(context.time)
    return has_expired(runs["max_height"], runs["tick"], *now, context)


def expired_prefix_ends(state: State, lanes: Frame, begin: U64, seen: RelayerView, context: Context) -> U64:
    """Return the end of the expired packets from ``begin`` on in each own send queue.

    They have expired by the remote header of the relayers' view (``seen``). A later packet may expire before an earlier
    one: limits count from the trusted header at sending, and a recovery may lower that.
    """
    runs = _sent_runs(state)
    in_time = runs.filter(~_late(runs, seen, context))
    row = lookup_rows(lanes, in_time, LANE, ordered=False)
    found = np.flatnonzero(row >= 0)
    found = found[(in_time["first"] + in_time["count"])[found] > begin[row[found]]]
    end: U64 = state.queues.read_counters("next_index", lanes).copy()
    np.minimum.at(end, row[found], in_time["first"][found])
    return np.maximum(end, begin)


def expired_parts(state: State, ranges: Frame, seen: RelayerView, context: Context) -> tuple[Rows, U64, U64]:
    """Return the expired parts of ranges (``begin``, ``end``) of own send queues.

    They have expired by the same header as in ``expired_prefix_ends``.

    Returns:
        The row of each part's range, ascending, and the part's begin and end.
    """
    runs = _sent_runs(state)
    late = runs.filter(_late(runs, seen, context))
    stops, begins = encode_keys(
        (*LANE, "at"), late.with_columns(at=late["first"] + late["count"]), _at(ranges, "begin")
    )
    firsts, ends = encode_keys((*LANE, "at"), _at(late, "first"), _at(ranges, "end"))
    row, run = expand_ranges(np.searchsorted(stops, begins, side="right"), np.searchsorted(firsts, ends))
    begin = np.maximum(late["first"][run], ranges["begin"][row])
    return row, begin, np.minimum((late["first"] + late["count"])[run], ranges["end"][row])


def _sent_runs(state: State) -> Frame:
    return state.runs.filter((state.runs["substream"] == SEND) & (state.runs["source"] != state.runs["destination"]))


def _late(runs: Frame, seen: RelayerView, context: Context) -> Mask:
    now = seen.headers_of(runs["source"], runs["destination"], context)
    return has_expired(runs["max_height"], runs["tick"], *now, context)


def _at(rows: Frame, name: str) -> Frame:
    return rows.select([*LANE, name]).with_columns(at=rows[name])


Expired = Callable[[int, int, int, int], Intervals]
"""A function (chain, counterparty, height, time) -> expired own packets.

They are the packets in that queue that have expired by a header of the counterparty with this height and time (ns).
"""


def create_expiry_check(state: State, context: Context) -> Expired:
    """Return the function of own packets that have expired by a counterparty's header."""

    @cache
    def runs_of() -> dict[tuple[int, ...], tuple[int, int]]:
        names = [state.runs[name] for name in LANE]
        groups = group_rows(*names)
        lanes = zip(*(column[groups.starts].tolist() for column in names), strict=True)
        spans = zip(groups.starts.tolist(), (groups.starts + groups.counts).tolist(), strict=True)
        return dict(zip(lanes, spans, strict=True))

    @cache  # many timeouts may be submitted under one header
    def expired(chain: int, counterparty: int, height: int, time: int) -> Intervals:
        if not context.options.limited:
            return Intervals()
        runs = state.runs.slice(*runs_of().get((chain, counterparty, SEND), (0, 0)))
        now = np.uint64(height), np.uint64(time)
        late = runs.filter(has_expired(runs["max_height"], runs["tick"], *now, context))
        first, stop = late["first"], late["first"] + late["count"]
        gaps = np.flatnonzero(first[1:] != stop[:-1])
        starts = np.append(np.zeros(min(1, len(first)), dtype=np.int64), gaps + 1)
        return Intervals(first[starts].tolist(), np.append(stop[gaps], stop[-1:]).tolist())

    return expired
