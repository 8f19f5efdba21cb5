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
from causeway.model.order import U64, groups_of, stable_order
from causeway.protocols.draws import Draw, drawn
from causeway.protocols.ic.check_slice import SliceError, check_slices
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.endpoint import slice_groups
from causeway.protocols.ic.expected_indexes import Expected, expected_indexes
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.sizes import LEAST_BYTES, count_bytes, header_lengths
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
    turn: U64 | None = None,
) -> tuple[Frame, np.ndarray]:
    """Return the slices that go into the payload, and the ``SliceError`` of each of ``slices``.

    ``rejects``: the REJECT signals in them; ``invalid``: which of them their sources have not certified.
    ``past_payloads``: those agreed above the state, in order of height. ``size_limit``: bytes of a payload, 0 = any
    size; then ``sizes`` must be given. Of what is larger, headers with new signals come first, then each stream's
    messages, as many as fit, as long as there is room for ``LEAST_BYTES`` (X-5); what does not fit is left out
    (``PayloadTooLarge``). ``turn``: which of the slices to one destination comes first, ascending; without it they come
    in their order. ``validate_xnet_payload`` accepts the result. ``expected``: what state and past payloads expect,
    where that is known.
    """
    if expected is None:
        expected = expected_indexes(state, past_payloads, context.options.index_base)
    errors = check_slices(state, slices, rejects, invalid, context, expected)
    held = errors == 0
    accepted = slices.filter(held)
    if not size_limit or len(accepted) == 0:
        return accepted, errors
    assert sizes is not None
    _, signal = expected.of(accepted)
    signals = accepted["signals_end"] != signal
    order = np.arange(len(accepted), dtype=np.uint64) if turn is None else turn[held]
    stop, fits = _within(accepted, signals, order, rejects, sizes, size_limit, context.options)
    rows = np.flatnonzero(held)
    errors[rows[~fits]] = SliceError.PayloadTooLarge
    return accepted.with_columns(message_end=stop).filter(fits), errors


def turns(slices: Frame, context: Context) -> U64:
    """Return when the source of each slice has its turn at its destination: another order of the subnets at every
    height, drawn of seed, destination and height (X-5)."""
    found = np.zeros(len(slices), dtype=np.uint64)
    numbers = context.registry.subnets
    for chain in np.unique(slices["destination"]).tolist():
        words = drawn(Draw.TURNS, context.seed, int(numbers[chain]), context.height)
        order = np.argsort(np.random.Generator(words).random(len(numbers)), kind="stable")
        turn = np.empty(len(numbers), dtype=np.uint64)
        turn[order] = np.arange(len(numbers), dtype=np.uint64)
        mine = slices["destination"] == chain
        found[mine] = turn[slices["source"][mine]]
    return found


def payload_bytes(slices: Frame, rejects: Frame, sizes: MessageSizes) -> U64:
    """Return the size of each row's part of its payload. One that says it brings what is not in the stream brings
    none."""
    begin, stop = slices["message_begin"], slices["message_end"]
    inside = (stop > begin) & (begin >= slices["begin"]) & (stop <= slices["end"])
    counts: U64 = np.where(inside, stop - begin, np.uint64(0))
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
    expected: Expected | None = None,
) -> np.ndarray:
    """Return the ``SliceError`` of each row of payloads, one payload a destination; a payload is valid if all are 0.

    One that is too large is refused before its slices are looked at: ``PayloadTooLarge``. The arguments are those of
    ``get_xnet_payload``.
    """
    if expected is None:
        expected = expected_indexes(state, past_payloads, context.options.index_base)
    errors = check_slices(state, slices, rejects, invalid, context, expected)
    if size_limit and len(slices):
        assert sizes is not None
        payloads = groups_of(slices["destination"])
        total = np.add.reduceat(payload_bytes(slices, rejects, sizes), payloads.starts)
        errors[payloads.spread(total > np.uint64(size_limit))] = SliceError.PayloadTooLarge
    return errors


def _within(
    slices: Frame,
    signals: Mask,
    turn: U64,
    rejects: Frame,
    sizes: MessageSizes,
    size_limit: int,
    options: IcOptions,
) -> tuple[U64, Mask]:
    """Return where each slice's messages end so that the payload of its destination fits, and which slices are in it.

    ``signals``: which slices bring signals that are new, so that they are worth it without messages.
    """
    begin = slices["message_begin"]
    whole: U64 = np.maximum(slices["message_end"], begin)
    groups = slice_groups(slices, options)
    worth = groups.spread(np.logical_or.reduceat(signals | (whole > begin), groups.starts))
    payloads = groups_of(slices["destination"])
    total = np.add.reduceat(np.where(worth, payload_bytes(slices, rejects, sizes), np.uint64(0)), payloads.starts)
    small = payloads.spread(total + np.uint64(LEAST_BYTES) <= np.uint64(size_limit))
    if small.all():
        return whole, worth
    stop, fits = np.where(small, whole, begin), worth & small
    first, headers = sizes.starts(slices), header_lengths(slices, rejects)
    starts, counts = groups.starts.tolist(), groups.counts.tolist()
    large = np.flatnonzero((worth & ~small)[groups.starts])
    large = large[stable_order(slices["destination"][groups.starts][large], turn[groups.starts][large])]
    rows = {group: range(starts[group], starts[group] + counts[group]) for group in large.tolist()}
    left: dict[int, int] = {}
    bare: dict[int, int] = {}
    for group, its_rows in rows.items():
        chain = int(slices["destination"][its_rows[0]])
        size = sum(int(_sizes(slices, row, headers, sizes, first, 0)[0]) for row in its_rows)
        if signals[its_rows].any() and size <= left.setdefault(chain, size_limit):
            bare[group] = size
            left[chain] -= size
            fits[its_rows] = True
    for group, its_rows in rows.items():
        chain = int(slices["destination"][its_rows[0]])
        # A payload with nothing in it takes what fits, however small its limit.
        if left.setdefault(chain, size_limit) < min(LEAST_BYTES, size_limit):
            continue
        tables = [_sizes(slices, row, headers, sizes, first, int(whole[row] - begin[row])) for row in its_rows]
        room = left[chain] + bare.get(group, 0)
        taken, size = _longest(tables, room)
        if any(taken):
            stop[its_rows] = begin[its_rows] + np.array(taken, dtype=np.uint64)
            fits[its_rows] = True
            left[chain] = room - size
    return stop, fits


def _sizes(slices: Frame, row: int, headers: U64, sizes: MessageSizes, first: np.ndarray, most: int) -> U64:
    """Return the size of one substream's slice with its first 0, 1, 2, ..., ``most`` messages."""
    lengths = np.append(np.uint64(0), np.cumsum(sizes.lengths[first[row] : first[row] + most]))
    many = slices.select(["begin", "end", "message_begin"]).take(np.full(most + 1, row))
    counts = np.arange(most + 1, dtype=np.uint64)
    return count_bytes(many, np.full(most + 1, headers[row]), counts, lengths)


def _longest(tables: list[U64], room: int) -> tuple[list[int], int]:
    """Return how many messages of each substream fit, the first ones first, and their size; none where none fit."""
    counts = [len(table) - 1 for table in tables]
    for last in reversed(range(len(tables))):
        others = sum(int(table[count]) for table, count in zip(tables[:last], counts, strict=False))
        others += sum(int(table[0]) for table in tables[last + 1 :])
        fitting = np.flatnonzero(tables[last] <= np.uint64(max(room - others, 0)))
        if len(fitting):
            counts[last] = int(fitting[-1])
            return counts, others + int(tables[last][fitting[-1]])
        counts[last] = 0
    return counts, 0
