"""``check_slice``: whether a slice that somebody brought is what comes next (IC reference 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import EVENTS_SCHEMA, Event, Kind
from causeway.protocols.contract import View
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import REJECTS_SCHEMA, State, reverse_lanes
from causeway.protocols.ic.streams.endpoint import ExpectedIndexes, expected_indexes, message_limits, slice_groups
from causeway.protocols.shared.checks import first_failed
from causeway.protocols.shared.events import event_rows, names_column
from causeway.protocols.shared.messages import LANE, blank_messages


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


def check_slices(
    state: State,
    slices: Frame,
    rejects: Frame,
    invalid: npt.NDArray[np.bool_],
    context: Context,
    expected_of: ExpectedIndexes | None = None,
) -> np.ndarray:
    """Return the ``SliceError`` of each row's slice; a slice fails whole (3.9, ``endpoint.slice_groups``).

    ``slices``: in order of (destination, source, substream); ``rejects``: the REJECT signals in them
    (``REJECTS_SCHEMA``); ``invalid``: which are not what their source has certified; ``expected_of``: what is expected,
    if not what ``state`` expects.
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
        (SliceError.LoopbackSlice, slices["source"] == slices["destination"]),
        (SliceError.UnknownSubnet, ~context.registry.has(slices["source"])),
        (SliceError.InvalidStream, invalid),
        (SliceError.InvalidStreamBounds, begin > end),
        (SliceError.UnexpectedMessages, (begin > expected) | (expected > end)),
    ]
    if options.empty_slice == "reject":
        checks.append((SliceError.EmptySlice, _least_of_slice(slices, empty & (signals_end == signal), options)))
    checks.append((SliceError.InvalidSliceBounds, ~empty & ((first < begin) | (stop > end))))
    checks.append((SliceError.UnexpectedMessages, wrong_start))
    if options.limits == "deployed":
        too_many = ~empty & (stop - first > message_limits(slices, expected_of, context))
        checks.append((SliceError.SliceAboveMessageLimit, too_many))
        checks.append((SliceError.TooManySignals, ~empty & (stop - begin > np.uint64(limit.max_signals))))
    if options.validate_signals == "on":
        # Which slices carry signals that cannot be true (check 12; D-12, D-16).
        signals_options, signals_end = context.options, slices["signals_end"]
        our_end = state.streams.read_counters("next_index", reverse_lanes(slices))
        wrong: np.ndarray = (signals_end < signal) | (signals_end > our_end)
        row = lookup_rows(slices, reverse_lanes(rejects), LANE, ordered=False)
        given, row = rejects.filter(row >= 0), row[row >= 0]
        if signals_options.limits == "deployed" and "oldest_reject" in slices:
            # Where carriers offer older slices: signals that their source has collected since.
            wrong |= signals_end - slices["oldest_reject"] > np.uint64(2 * signals_options.limit.max_signals)
        if len(given) == 0:
            unexpected_signals = wrong
        else:
            index, end = given["index"], signals_end[row]
            bad = index >= end
            bad[1:] |= (row[1:] == row[:-1]) & (index[1:] <= index[:-1])
            if signals_options.limits == "deployed":
                bad |= end - index > np.uint64(2 * signals_options.limit.max_signals)
            if not signals_options.rejects_exist:
                bad[:] = True
            wrong[row[bad]] = True
            unexpected_signals = wrong
        checks.append((SliceError.UnexpectedSignals, unexpected_signals))
    failed = first_failed([wrong for _, wrong in checks], len(slices))
    # The first check that fails in any substream of a slice is its error.
    errors = np.array([*(error for error, _ in checks), SliceError.ACCEPTED], dtype=np.uint8)
    found: np.ndarray = errors[_least_of_slice(slices, failed, options)]
    return found


def _least_of_slice(slices: Frame, values: np.ndarray, options: IcOptions) -> np.ndarray:
    """Return the least value of the rows of each row's slice."""
    groups = slice_groups(slices, options)
    return groups.spread(np.minimum.reduceat(values, groups.starts)) if len(slices) else values


def find_unknown_roots(slices: Frame, view: View) -> npt.NDArray[np.bool_]:
    """Return which slices do not carry a height that their source has made, and its source's root at that height.

    This is all that is asked of slices where subnets do not certify. Any height will do, also one older than one seen
    before: what is in the slice is checked (3.9).
    """
    if len(slices) == 0:
        return np.zeros(0, dtype=bool)
    headers = view.headers
    asked = Frame({"chain": slices["source"], "height": slices["source_height"]})
    row = lookup_rows(headers, asked, ("chain", "height"))
    unknown: npt.NDArray[np.bool_] = (row < 0) | (slices["root"] != headers["root"][np.maximum(row, 0)]).any(axis=1)
    return unknown


def read_carried_rejects(slices: Frame, view: View, context: Context) -> Frame:
    """Return the REJECT signals that uncertified slices carry, of those that are shown now (``REJECTS_SCHEMA``).

    A slice of an older height has only those below the end of its signals.
    """
    rejects = view.tables["rejects"]
    if len(rejects) == 0 or len(slices) == 0:
        return empty_frame(REJECTS_SCHEMA)
    row = lookup_rows(slices, reverse_lanes(rejects), LANE, ordered=False)
    older = slices["source_height"] < np.uint64(context.height - 1)
    return rejects.filter((row >= 0) & ~(older[row] & (rejects["index"] >= slices["signals_end"][row])))


def refusal_events(slices: Frame, errors: np.ndarray, options: IcOptions, causes: Sequence[str] | None = None) -> Frame:
    """Return one control event for every refused slice, with its error's name.

    ``causes``: of each slice that is ``InvalidStream`` the name of what is wrong with it, where it is known.
    """
    first = slice_groups(slices, options).starts
    refused = first[errors[first] > 0] if len(slices) else np.empty(0, dtype=np.int64)
    if len(refused) == 0:
        return empty_frame(EVENTS_SCHEMA)
    rows = slices.take(refused)
    control = blank_messages(
        len(rows),
        kind=int(Kind.CONTROL),
        **{name: rows[name] for name in LANE},
        index=rows["message_begin"],
    )
    if causes is None:
        reason = names_column(_NAMES, errors[refused])
    else:
        texts = [_named(errors[row], causes[row]) for row in refused.tolist()]
        reason = pa.array(texts, pa.string()).dictionary_encode()
    return event_rows(control, Event.REJECTED, chain=rows["destination"], on_lane=True, reason=reason)


def refused_payload_event(slices: Frame, errors: np.ndarray, causes: Sequence[str]) -> Frame:
    """Return the control event for a payload that is refused whole: ``InvalidXNetPayload``, with the error of the first
    slice that fails and that slice's lane."""
    row = int(np.flatnonzero(errors)[0])
    first = slices.slice(row, row + 1)
    lane = {name: first[name] for name in LANE}
    control = blank_messages(1, kind=int(Kind.CONTROL), **lane, index=first["message_begin"])
    reason = f"{INVALID_PAYLOAD}({_named(errors[row], causes[row])})"
    return event_rows(control, Event.REJECTED, chain=first["destination"], on_lane=True, reason=reason)


INVALID_PAYLOAD = "InvalidXNetPayload"
"""The reason of events about payloads that no notary takes, before the error's name in brackets."""


_NAMES = [SliceError(value).name if value in set(SliceError) else "" for value in range(max(SliceError) + 1)]


def _named(error: int, cause: str) -> str:
    return f"{_NAMES[error]}({cause})" if error == SliceError.InvalidStream and cause else _NAMES[error]
