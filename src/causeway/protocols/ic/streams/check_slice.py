"""``check_slice``: check that a delivered slice is the next one of its stream.

Reference:
    IC reference 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import EVENTS_SCHEMA, Event, Kind
from causeway.protocols.contract import View
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import REJECTS_SCHEMA, State, reverse_lanes
from causeway.protocols.ic.streams.endpoint import ExpectedIndexes, message_limits, slice_groups
from causeway.protocols.shared.checks import first_failed
from causeway.protocols.shared.events import event_rows, names_column
from causeway.protocols.shared.messages import LANE, blank_messages


class SliceError(IntEnum):
    """The reason of refusing a slice, in the order of the checks (3.9); 0 = accepted."""

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
    expected_of: ExpectedIndexes,
) -> np.ndarray:
    """Return the ``SliceError`` of each row's slice.

    A slice fails as a whole (3.9, ``endpoint.slice_groups``).

    Args:
        state: The state.
        slices: The slices, ascending by (destination, source, substream).
        rejects: The REJECT signals in them (``REJECTS_SCHEMA``).
        invalid: Mask of the slices that their source has not certified.
        context: The metadata of the round.
        expected_of: The expected indexes.
    """
    if len(slices) == 0:
        return np.empty(0, dtype=np.uint8)
    options, limit = context.options, context.options.limit
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
    whole = slice_groups(slices, options)
    if options.empty_slice == "reject":
        bare = empty & (signals_end == signal)
        checks.append((SliceError.EmptySlice, whole.spread(np.minimum.reduceat(bare, whole.starts))))
    checks.append((SliceError.InvalidSliceBounds, ~empty & ((first < begin) | (stop > end))))
    checks.append((SliceError.UnexpectedMessages, wrong_start))
    if options.limits == "deployed":
        too_many = ~empty & (stop - first > message_limits(slices, expected_of, context))
        checks.append((SliceError.SliceAboveMessageLimit, too_many))
        checks.append((SliceError.TooManySignals, ~empty & (stop - begin > np.uint64(limit.max_signals))))
    if options.validate_signals == "on":
        checks.append((SliceError.UnexpectedSignals, _unexpected_signals(state, slices, rejects, signal, options)))
    failed = first_failed([wrong for _, wrong in checks], len(slices))
    # The error of a slice is the first check that any of its substreams fails.
    errors = np.array([*(error for error, _ in checks), SliceError.ACCEPTED], dtype=np.uint8)
    found: np.ndarray = errors[whole.spread(np.minimum.reduceat(failed, whole.starts))]
    return found


def _unexpected_signals(
    state: State, slices: Frame, rejects: Frame, expected_signal: U64, options: IcOptions
) -> npt.NDArray[np.bool_]:
    """Return a mask of the slices with impossible signals (check 12; D-12, D-16)."""
    signals_end, most = slices["signals_end"], np.uint64(2 * options.limit.max_signals)
    our_end = state.streams.read_counters("next_index", reverse_lanes(slices))
    unexpected: npt.NDArray[np.bool_] = (signals_end < expected_signal) | (signals_end > our_end)
    row = lookup_rows(slices, reverse_lanes(rejects), LANE, ordered=False)
    signals, row = rejects.filter(row >= 0), row[row >= 0]
    if options.limits == "deployed" and "oldest_reject" in slices:
        # Older slices may contain signals that their source has collected since.
        unexpected |= signals_end - slices["oldest_reject"] > most
    if len(signals) == 0:
        return unexpected
    index, end = signals["index"], signals_end[row]
    is_invalid = index >= end
    is_invalid[1:] |= (row[1:] == row[:-1]) & (index[1:] <= index[:-1])
    if options.limits == "deployed":
        is_invalid |= end - index > most
    if not options.rejects_exist:
        is_invalid[:] = True
    unexpected[row[is_invalid]] = True
    return unexpected


def find_unknown_roots(slices: Frame, view: View) -> npt.NDArray[np.bool_]:
    """Return a mask of the slices without a known height and root of their source.

    This is the only check of slices without certification. Any height is accepted, even one older than a previous
    slice's: the content of the slice is checked (3.9).
    """
    if len(slices) == 0:
        return np.zeros(0, dtype=bool)
    headers = view.headers
    keys = Frame({"chain": slices["source"], "height": slices["source_height"]})
    row = lookup_rows(headers, keys, ("chain", "height"))
    unknown: npt.NDArray[np.bool_] = (row < 0) | (slices["root"] != headers["root"][np.maximum(row, 0)]).any(axis=1)
    return unknown


def read_carried_rejects(slices: Frame, view: View, context: Context) -> Frame:
    """Return the visible REJECT signals that uncertified slices carry (``REJECTS_SCHEMA``).

    A slice of an older height has only those below the end of its signals.
    """
    rejects = view.tables["rejects"]
    if len(rejects) == 0 or len(slices) == 0:
        return empty_frame(REJECTS_SCHEMA)
    row = lookup_rows(slices, reverse_lanes(rejects), LANE, ordered=False)
    older = slices["source_height"] < np.uint64(context.height - 1)
    return rejects.filter((row >= 0) & ~(older[row] & (rejects["index"] >= slices["signals_end"][row])))


def refusal_events(slices: Frame, errors: np.ndarray, options: IcOptions, causes: Sequence[str] | None = None) -> Frame:
    """Return one control event for every refused slice, with the name of its error.

    Args:
        slices: The slices.
        errors: The error of each row.
        options: The protocol options.
        causes: The detailed error of each ``InvalidStream`` slice, if known.
    """
    first = slice_groups(slices, options).starts
    refused = first[errors[first] > 0] if len(slices) else np.empty(0, dtype=np.int64)
    if len(refused) == 0:
        return empty_frame(EVENTS_SCHEMA)
    rows = slices.take(refused)
    control = blank_messages(
        len(rows), kind=int(Kind.CONTROL), **{name: rows[name] for name in LANE}, index=rows["message_begin"]
    )
    if causes is None:
        reason = names_column(_NAMES, errors[refused])
    else:
        texts = [error_text(errors[row], causes[row]) for row in refused.tolist()]
        reason = pa.array(texts, pa.string()).dictionary_encode()
    return event_rows(control, Event.REJECTED, chain=rows["destination"], on_lane=True, reason=reason)


def refused_payload_event(slices: Frame, errors: np.ndarray, causes: Sequence[str]) -> Frame:
    """Return the control event of a payload that is refused as a whole.

    Its reason is ``InvalidXNetPayload`` with the error of the first failing slice, and its lane is that slice's.
    """
    row = int(np.flatnonzero(errors)[0])
    first = slices.slice(row, row + 1)
    lane = {name: first[name] for name in LANE}
    control = blank_messages(1, kind=int(Kind.CONTROL), **lane, index=first["message_begin"])
    reason = f"{INVALID_PAYLOAD}({error_text(errors[row], causes[row])})"
    return event_rows(control, Event.REJECTED, chain=first["destination"], on_lane=True, reason=reason)


INVALID_PAYLOAD = "InvalidXNetPayload"
"""The reason of events of refused payloads, before the name of the error in brackets."""


_NAMES = [SliceError(value).name if value in set(SliceError) else "" for value in range(max(SliceError) + 1)]


def error_text(error: int, cause: str) -> str:
    """Return the name of a ``SliceError``; an invalid stream adds its cause."""
    return f"{_NAMES[error]}({cause})" if error == SliceError.InvalidStream and cause else _NAMES[error]
