"""XNetPayloadBuilder: which slices make up a payload, and whether a payload is valid (IC reference 3.8, 3.9).

Both are functions of the state at the reference height, the payloads agreed since, and the slices; every notary
decides alike. Slices are rows as in ``endpoint``, in order of (destination, source, substream); the destination is the
subnet that builds, so one call serves any set of subnets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.joins import codes
from causeway.model.order import U64, groups_of
from causeway.protocols.ic.check_slice import SliceError, check_slices
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.expected_indexes import Expected, expected_indexes
from causeway.protocols.ic.sizes import count_bytes, header_lengths
from causeway.protocols.ic.state import State
from causeway.protocols.messages import LANE, LANE_COLUMNS

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MessageSizes:
    """Lengths of encoded messages in streams, as far as slices may bring them.

    ``messages``: rows in order of the lane and ``index``; ``lengths``: one a row.
    """

    messages: Frame
    lengths: U64

    def starts(self, slices: Frame) -> np.ndarray:
        """Return the row of each slice's first message; those that follow it are the rows below."""
        asked = slices.select(LANE).with_columns(index=slices["message_begin"])
        keys, first = codes(LANE_COLUMNS, self.messages, asked)
        return np.searchsorted(keys, first)


def get_xnet_payload(
    state: State,
    slices: Frame,
    rejects: Frame,
    invalid: Mask,
    context: Context,
    past_payloads: Sequence[Frame] = (),
    size_limit: int = 0,
    sizes: MessageSizes | None = None,
    expected: Expected | None = None,
) -> tuple[Frame, np.ndarray]:
    """Return the slices that go into the payload, and the ``SliceError`` of each of ``slices``.

    ``rejects``: the REJECT signals in them; ``invalid``: which of them their sources have not certified.
    ``past_payloads``: those agreed above the state, in order of height. ``size_limit``: bytes of a payload, 0 = any
    size; then ``sizes`` must be given. A slice that does not fit is cut, to its longest beginning that does and that
    brings anything, or left out (``PayloadTooLarge``). ``validate_xnet_payload`` accepts the result. ``expected``: what
    state and past payloads expect, where that is known.
    """
    if expected is None:
        expected = expected_indexes(state, past_payloads, context.options.index_base)
    errors = check_slices(state, slices, rejects, invalid, context, expected)
    accepted = slices.filter(errors == 0)
    if not size_limit or len(accepted) == 0:
        return accepted, errors
    assert sizes is not None
    _, signal = expected.of(accepted)
    signals = accepted["signals_end"] != signal
    stop, fits = _within(accepted, signals, header_lengths(accepted, rejects), sizes, size_limit)
    rows = np.flatnonzero(errors == 0)
    errors[rows[~fits]] = SliceError.PayloadTooLarge
    return accepted.with_columns(message_end=stop).filter(fits), errors


def payload_bytes(slices: Frame, rejects: Frame, sizes: MessageSizes) -> U64:
    """Return the size of each row's part of its payload."""
    counts = np.maximum(slices["message_end"], slices["message_begin"]) - slices["message_begin"]
    total = np.append(np.uint64(0), np.cumsum(sizes.lengths))
    first = sizes.starts(slices)
    lengths = total[np.minimum(first + counts.astype(np.int64), len(total) - 1)] - total[first]
    return count_bytes(slices, header_lengths(slices, rejects), counts, lengths)


def validate_xnet_payload(
    state: State,
    slices: Frame,
    rejects: Frame,
    invalid: Mask,
    context: Context,
    past_payloads: Sequence[Frame] = (),
    size_limit: int = 0,
    sizes: MessageSizes | None = None,
) -> np.ndarray:
    """Return the ``SliceError`` of each row of payloads, one payload a destination; a payload is valid if all are 0.

    One that is too large is refused before its slices are looked at: ``PayloadTooLarge``.
    """
    expected = expected_indexes(state, past_payloads, context.options.index_base)
    errors = check_slices(state, slices, rejects, invalid, context, expected)
    if size_limit and len(slices):
        assert sizes is not None
        payloads = groups_of(slices["destination"])
        total = np.add.reduceat(payload_bytes(slices, rejects, sizes), payloads.starts)
        errors[payloads.spread(total > np.uint64(size_limit))] = SliceError.PayloadTooLarge
    return errors


def _within(
    slices: Frame, signals: np.ndarray, headers: U64, sizes: MessageSizes, size_limit: int
) -> tuple[U64, np.ndarray]:
    """Return where each slice's messages end so that the payload of its destination fits, and which slices are in it.

    ``signals``: which slices bring signals that are new, so that they are worth it without messages.
    """
    stop = np.maximum(slices["message_end"], slices["message_begin"])
    fits = np.ones(len(slices), dtype=bool)
    first = sizes.starts(slices)
    used: dict[int, int] = {}
    streams = groups_of(slices["destination"], slices["source"])
    for start, count in zip(streams.starts.tolist(), streams.counts.tolist(), strict=True):
        chain = int(slices["destination"][start])
        rows = range(start, start + count)
        tables = [
            _sizes_by_count(slices.slice(row, row + 1), headers[row], sizes, first[row], stop[row]) for row in rows
        ]
        counts, size = _longest(tables, size_limit - used.get(chain, 0))
        if not any(counts) and not signals[start : start + count].any():
            size = None
        for row, taken in zip(rows, counts, strict=True):
            stop[row] = slices["message_begin"][row] + np.uint64(taken)
            fits[row] = size is not None
        used[chain] = used.get(chain, 0) + (size or 0)
    return stop, fits


def _sizes_by_count(one: Frame, header: np.uint64, sizes: MessageSizes, first: np.int64, stop: np.uint64) -> list[int]:
    """Return the size of one substream's slice with its first 0, 1, 2, ... messages."""
    most = int(stop - one["message_begin"][0])
    lengths = np.append(np.uint64(0), np.cumsum(sizes.lengths[first : first + most]))
    many = one.select(["begin", "end", "message_begin"]).take(np.zeros(most + 1, dtype=np.int64))
    counts = np.arange(most + 1, dtype=np.uint64)
    found: list[int] = count_bytes(many, np.full(most + 1, header), counts, lengths).tolist()
    return found


def _longest(tables: list[list[int]], room: int) -> tuple[list[int], int | None]:
    """Return how many messages of each substream are taken, the first ones first, and their size; None if none fits."""
    counts = [len(table) - 1 for table in tables]
    for last in reversed(range(len(tables))):
        others = sum(table[count] for table, count in zip(tables, counts, strict=True)) - tables[last][counts[last]]
        while True:
            size = others + tables[last][counts[last]]
            if size <= room:
                return counts, size
            if counts[last] == 0:
                break
            counts[last] -= 1
    return counts, None
