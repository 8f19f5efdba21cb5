"""When packets expire (IBC reference X-1, D-15): limits are of the receiving chain, its height and its time."""

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


def is_past_limits(runs: Frame, context: Context) -> Mask:
    """Return which packets, told by their runs or proofs, are past their limits on the zones that make this block."""
    now = np.uint64(context.height), np.uint64(context.time)
    return has_expired(runs["max_height"], runs["tick"], *now, context)


def expired_prefix_ends(state: State, lanes: Frame, begin: U64, seen: RelayerView, context: Context) -> U64:
    """Return for each of our send queues up to where all packets from ``begin`` on are past their limits, by the remote
    header under which relayers see the other side (``seen``); ``begin`` itself where the first of them is not.

    A later packet may expire before an earlier one: limits count from what was trusted when each was sent, and a
    recovery may lower that.
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
    """Return what of ranges (``begin``, ``end``) of our send queues is past its limits, by the same header: the row of
    each part's range, ascending, and its ends."""
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
"""(chain, counterparty, height, time) -> our packets in that queue that have expired by a header of the counterparty
with this height and time (ns)."""


def create_expiry_check(state: State, context: Context) -> Expired:
    """Return what says which of our packets in a queue have expired by a header of the counterparty."""

    @cache
    def runs_of() -> dict[tuple[int, ...], tuple[int, int]]:
        names = [state.runs[name] for name in LANE]
        groups = group_rows(*names)
        lanes = zip(*(column[groups.starts].tolist() for column in names), strict=True)
        spans = zip(groups.starts.tolist(), (groups.starts + groups.counts).tolist(), strict=True)
        return dict(zip(lanes, spans, strict=True))

    @cache  # as many time-outs as one likes may be submitted under one header
    def expired(chain: int, counterparty: int, height: int, time: int) -> Intervals:
        if not context.options.limited:
            return Intervals()
        runs = state.runs.slice(*runs_of().get((chain, counterparty, SEND), (0, 0)))
        now = np.uint64(height), np.uint64(time)
        late = runs.filter(has_expired(runs["max_height"], runs["tick"], *now, context))
        first, stop = late["first"], late["first"] + late["count"]
        apart = np.flatnonzero(first[1:] != stop[:-1])
        starts = np.append(np.zeros(min(1, len(first)), dtype=np.int64), apart + 1)
        return Intervals(first[starts].tolist(), np.append(stop[apart], stop[-1:]).tolist())

    return expired
