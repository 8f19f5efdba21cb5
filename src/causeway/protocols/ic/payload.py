"""XNetEndpoint and the checks of the XNetPayloadBuilder: what is served, ``get_stream`` (IC reference 3.10), and
``check_slice`` (3.9); then what an agreed payload means for a round.

A slice is one row a substream of the stream from ``remote`` (the source) to ``chain`` (the taker): the header
(``begin``, ``end``, ``signals_end``), the messages ``message_begin`` to ``message_end`` - 1, and the source's height
and state root.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from causeway.model.frame import Frame, concat, empty_frame, repeated
from causeway.model.ledger import EVENTS_SCHEMA, Event, Kind
from causeway.model.order import groups_of, lane_codes, pair_codes, positions_in, stable_order
from causeway.protocols.contract import Offers, Plan
from causeway.protocols.events import event_rows, names_column
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.expected_indexes import Expected, expected_indexes
from causeway.protocols.ic.state import REJECTS_SCHEMA, State

LANE = ["chain", "remote", "substream"]
RANGE = [*LANE, "begin", "end"]


class SliceError(IntEnum):
    """Why a slice is refused, in the order of the checks (3.9); 0 = accepted."""

    ACCEPTED = 0
    LoopbackSlice = 1
    UnknownSubnet = 2
    InvalidStream = 3
    InvalidStreamBounds = 4
    UnexpectedMessages = 5
    EmptySlice = 6
    InvalidSliceBounds = 7
    SliceAboveMessageLimit = 9
    TooManySignals = 10
    UnexpectedSignals = 12
    PayloadTooLarge = 13


def get_streams(expected_of: Expected, offers: Offers, context: Context) -> Frame:
    """Return what ``get_stream`` of all endpoints serves to ``context.chains``.

    One row a substream: from the expected index on, within the limits.
    """
    taker = np.isin(offers.lanes["remote"], context.chains) & (offers.lanes["chain"] != offers.lanes["remote"])
    lanes = offers.lanes.filter(taker)
    slices = Frame(
        {
            "chain": lanes["remote"],
            "remote": lanes["chain"],
            "substream": lanes["substream"],
            "begin": lanes["begin"],
            "end": lanes["next_index"],
            "signals_end": lanes["expected"],
        },
        len(lanes),
    )
    known = np.searchsorted(offers.headers["chain"], slices["remote"])
    root = offers.headers["root"][known] if len(slices) else np.empty((0, 32), dtype=np.uint8)
    expected, _ = expected_of.of(slices)
    end = slices["end"]
    stop = np.maximum(end, expected)
    if context.options.limits == "deployed":
        # Differences, not sums: an index may be so near 2**64 that a sum would wrap.
        limit = context.options.limit
        begin = slices["begin"]
        stop = np.minimum(stop, begin + np.minimum(end - begin, np.uint64(limit.max_signals)))
        stop = np.maximum(stop, expected)
        if limit.slice_messages:
            stop = expected + np.minimum(stop - expected, np.uint64(limit.slice_messages))
    height = np.uint64(context.height - 1)
    return slices.with_columns(message_begin=expected, message_end=stop, source_height=height, root=root)


def with_news(expected: Expected, slices: Frame) -> Frame:
    """Return the slices of streams that have messages or signals which their taker has not seen."""
    if len(slices) == 0:
        return slices
    _, signal = expected.of(slices)
    news: np.ndarray = (slices["message_end"] > slices["message_begin"]) | (slices["signals_end"] != signal)
    order = stable_order(slices["chain"], slices["remote"], slices["substream"])
    slices, news = slices.take(order), news[order]
    streams = groups_of(slices["chain"], slices["remote"])
    return slices.filter(streams.spread(np.maximum.reduceat(news, streams.starts)))


def check_slices(
    state: State, slices: Frame, offers: Offers, context: Context, expected_of: Expected | None = None
) -> np.ndarray:
    """Return the ``SliceError`` of each row's slice; a slice whose one substream fails fails whole (3.9).

    ``expected_of``: what is expected, if not what ``state`` expects.

    The slices are in order of (chain, remote, substream).
    """
    if len(slices) == 0:
        return np.empty(0, dtype=np.uint8)
    options, limit = context.options, context.options.limit
    expected_of = expected_of or expected_indexes(state, (), options.index_base)
    expected, signal = expected_of.of(slices)
    begin, end = slices["begin"], slices["end"]
    first, stop, signals_end = slices["message_begin"], slices["message_end"], slices["signals_end"]
    empty = stop <= first
    wrong_start = ~empty & (first != expected)
    checks: list[tuple[SliceError, Any]] = [
        (SliceError.LoopbackSlice, slices["chain"] == slices["remote"]),
        (SliceError.UnknownSubnet, slices["remote"] >= len(context.registry.subnets)),
        (SliceError.InvalidStream, ~_header_is_known(slices, offers, context)),
        (SliceError.InvalidStreamBounds, begin > end),
        (SliceError.UnexpectedMessages, (begin > expected) | (expected > end)),
    ]
    if options.empty_slice == "reject":
        checks.append((SliceError.EmptySlice, _whole_stream(slices, empty & (signals_end == signal), np.minimum)))
    checks.append((SliceError.InvalidSliceBounds, ~empty & ((first < begin) | (stop > end))))
    checks.append((SliceError.UnexpectedMessages, wrong_start))
    if options.limits == "deployed":
        if limit.slice_messages:
            too_many = ~empty & (stop - first > np.uint64(limit.slice_messages))
            checks.append((SliceError.SliceAboveMessageLimit, too_many))
        checks.append((SliceError.TooManySignals, ~empty & (stop - begin > np.uint64(limit.max_signals))))
    if options.validate_signals == "on":
        checks.append((SliceError.UnexpectedSignals, _unexpected_signals(state, slices, signal, offers, context)))
    failed = np.full(len(slices), len(checks), dtype=np.int64)
    for place in reversed(range(len(checks))):
        failed[checks[place][1]] = place
    # The first check that fails in any substream is the slice's error.
    errors = np.array([*(error for error, _ in checks), SliceError.ACCEPTED], dtype=np.uint8)
    found: np.ndarray = errors[_whole_stream(slices, failed, np.minimum)]
    return found


def _unexpected_signals(
    state: State, slices: Frame, signal: np.ndarray, offers: Offers, context: Context
) -> np.ndarray:
    """Return which slices carry signals that cannot be true (check 12; D-12, D-16)."""
    options, signals_end = context.options, slices["signals_end"]
    rows = state.lanes.positions(slices["chain"], slices["remote"], slices["substream"])
    our_end = np.full(len(slices), options.index_base, dtype=np.uint64)
    our_end[rows >= 0] = state.lanes.rows["next_index"][rows[rows >= 0]]
    wrong: np.ndarray = (signals_end < signal) | (signals_end > our_end)
    given = offers.details
    if len(given) == 0:
        return wrong
    own, asked = pair_codes(
        (lane_codes(slices["chain"], slices["remote"]), slices["substream"]),
        (lane_codes(given["remote"], given["chain"]), given["substream"]),
    )
    place = positions_in(own, asked)
    given, place = given.filter(place >= 0), place[place >= 0]
    index, end = given["index"], signals_end[place]
    bad = index >= end
    bad[1:] |= (place[1:] == place[:-1]) & (index[1:] <= index[:-1])
    if options.limits == "deployed":
        bad |= end - index > np.uint64(2 * options.limit.max_signals)
    if not options.rejects_exist:
        bad[:] = True
    wrong[place[bad]] = True
    return wrong


def _whole_stream(slices: Frame, values: np.ndarray, reduce: Any) -> np.ndarray:
    """Return one value a stream for each of its substreams' rows."""
    streams = groups_of(slices["chain"], slices["remote"])
    return streams.spread(reduce.reduceat(values, streams.starts)) if len(slices) else values


def _header_is_known(slices: Frame, offers: Offers, context: Context) -> np.ndarray:
    """Return whether a slice carries the height before this round, and its source's root at that height."""
    if len(slices) == 0:
        return np.zeros(0, dtype=bool)
    chains = offers.headers["chain"]
    row = np.minimum(np.searchsorted(chains, slices["remote"]), len(chains) - 1)
    known = (chains[row] == slices["remote"]) & (slices["source_height"] == np.uint64(context.height - 1))
    same: np.ndarray = known & (slices["root"] == offers.headers["root"][row]).all(axis=1)
    return same


def refusals(slices: Frame, errors: np.ndarray) -> Frame:
    """Return one control event for every refused slice, with its error's name."""
    streams = groups_of(slices["chain"], slices["remote"])
    refused = streams.starts[errors[streams.starts] > 0] if len(slices) else np.empty(0, dtype=np.int64)
    if len(refused) == 0:
        return empty_frame(EVENTS_SCHEMA)
    rows = slices.take(refused)
    zero = repeated(np.uint64(0), len(rows))
    control = Frame(
        {
            "kind": repeated(np.uint8(Kind.CONTROL), len(rows)),
            "remote": rows["remote"],
            "substream": rows["substream"],
            "index": rows["message_begin"],
            "sender": zero,
            "receiver": zero,
            "callback": zero,
        }
    )
    names = [SliceError(value).name if value in set(SliceError) else "" for value in range(max(SliceError) + 1)]
    reason = names_column(names, errors[refused])
    return event_rows(control, Event.REJECTED, chain=rows["chain"], on_lane=True, reason=reason)


def loopback_slices(state: State, context: Context) -> Frame:
    """Return the loopback streams of ``context.chains`` in the form of slices: all their messages (D-7)."""
    rows = state.lanes.rows
    own = (rows["chain"] == rows["remote"]) & (rows["next_index"] > rows["begin"])
    if context.options.loopback != "stream":
        own &= False
    lanes = rows.take(np.flatnonzero(own))
    return Frame(
        {
            "chain": lanes["chain"],
            "remote": lanes["remote"],
            "substream": lanes["substream"],
            "begin": lanes["begin"],
            "end": lanes["next_index"],
            "signals_end": lanes["begin"],
            "message_begin": lanes["begin"],
            "message_end": lanes["next_index"],
        },
        len(lanes),
    )


def make_plan(state: State, accepted: Frame, offers: Offers, events: Frame, context: Context) -> Plan:
    """Return what accepted slices and loopback streams bring, and which of our messages must be seen again."""
    header_columns = [*RANGE, "signals_end", "message_begin", "message_end"]
    empty = accepted["message_end"] <= accepted["message_begin"]
    if empty.any():
        # A slice without messages moves nothing, wherever it says it would begin.
        here, _ = expected_indexes(state, (), context.options.index_base).of(accepted)
        accepted = accepted.with_columns(
            message_begin=np.where(empty, here, accepted["message_begin"]),
            message_end=np.where(empty, here, accepted["message_end"]),
        )
    headers = concat([accepted.select(header_columns), loopback_slices(state, context).select(header_columns)])
    wanted = headers.filter(headers["message_end"] > headers["message_begin"])
    ranges = Frame(
        {
            "chain": wanted["remote"],
            "remote": wanted["chain"],
            "substream": wanted["substream"],
            "begin": wanted["message_begin"],
            "end": wanted["message_end"],
        },
        len(wanted),
    )
    rejects = _signalled_rejects(state, accepted, offers)
    recalled = _reject_ranges(rejects)
    if context.options.limits == "deployed":
        cut = _cut_runs(state, accepted)
        recalled = concat([cut, _outside(recalled, cut)])
    return Plan(headers, rejects, ranges, recalled, events)


def _signalled_rejects(state: State, accepted: Frame, offers: Offers) -> Frame:
    """Return the REJECT signals about messages that are still in our streams; ``chain`` is ours."""
    given = offers.details
    if len(given) == 0 or len(accepted) == 0:
        return empty_frame(REJECTS_SCHEMA)
    rejects = given.with_columns(chain=given["remote"], remote=given["chain"]).select(REJECTS_SCHEMA.names)
    codes, asked = pair_codes(
        (lane_codes(accepted["chain"], accepted["remote"]), accepted["substream"]),
        (lane_codes(rejects["chain"], rejects["remote"]), rejects["substream"]),
    )
    rejects = rejects.filter(positions_in(np.sort(codes), asked) >= 0)
    lane = state.lanes.positions(rejects["chain"], rejects["remote"], rejects["substream"])
    rejects = rejects.filter(lane >= 0)
    begin = state.lanes.rows["begin"][lane[lane >= 0]]
    return rejects.filter(rejects["index"] >= begin)


def _reject_ranges(rejects: Frame) -> Frame:
    index = rejects["index"]
    return rejects.select(LANE).with_columns(begin=index, end=index + np.uint64(1)).select(RANGE)


def _cut_runs(state: State, accepted: Frame) -> Frame:
    """Return the collected parts of runs that are not collected whole: their sizes are needed."""
    runs = state.runs
    codes, asked = pair_codes(
        (lane_codes(accepted["chain"], accepted["remote"]), accepted["substream"]),
        (lane_codes(runs["chain"], runs["remote"]), runs["substream"]),
    )
    order = np.argsort(codes)
    place = positions_in(codes[order], asked)
    touched = np.flatnonzero(place >= 0)
    end = accepted["signals_end"][order[place[touched]]]
    lane = state.lanes.positions(runs["chain"][touched], runs["remote"][touched], runs["substream"][touched])
    begin = np.maximum(runs["first"][touched], state.lanes.rows["begin"][lane])
    last = runs["first"][touched] + runs["count"][touched]
    cut = (end > begin) & (end < last)
    rows = runs.select(LANE).take(touched[cut])
    return rows.with_columns(begin=begin[cut], end=end[cut])


def _outside(ranges: Frame, cut: Frame) -> Frame:
    """Return the one-message ``ranges`` that no range of ``cut`` (at most one a lane) covers."""
    if len(cut) == 0 or len(ranges) == 0:
        return ranges
    codes, asked = pair_codes(
        (lane_codes(cut["chain"], cut["remote"]), cut["substream"]),
        (lane_codes(ranges["chain"], ranges["remote"]), ranges["substream"]),
    )
    order = np.argsort(codes)
    place = positions_in(codes[order], asked)
    row = order[np.maximum(place, 0)]
    inside = (place >= 0) & (ranges["begin"] >= cut["begin"][row]) & (ranges["begin"] < cut["end"][row])
    return ranges.filter(~inside)
