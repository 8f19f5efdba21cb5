"""XNetPayloadBuilder: build and validate payloads of slices (IC reference 3.8, 3.9).

Both are functions of the state at the reference height, the payloads agreed since, and the slices, so all notaries
agree. Slices are rows as in ``endpoint``, ascending by (destination, source, substream). The destination builds, so one
call serves any set of subnets.

The size of a slice is exact without encoding it: ``count_bytes`` (IC reference 2.9, 2.10). Builder and validator
compute the same number, so no honest payload is refused for its size. Each substream of a slice counts as a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.ic.primitives import CYCLES_FIELDS, CertificationVersion
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.core.frame import Frame
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import Kind
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import State, reverse_lanes
from causeway.protocols.ic.streams.check_slice import SliceError, check_slices
from causeway.protocols.ic.streams.endpoint import ExpectedIndexes, slice_groups
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, method_lengths, payload_lengths
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words

CERTIFICATION_BYTES = 8 + 32 + 48
"""Height, hash, and a signature of 48 bytes (D-3)."""

PRUNED, KNOWN, FORK, MESSAGES_LABEL = 36, 16, 7, 10
"""Bytes of witness parts: pruned node, known node with index, fork, label ``messages``."""

HEADER_WITNESS = 214

LEAST_BYTES = 1 << 10
"""Minimum remaining bytes that justify a request, or messages in a payload (X-5, X-15)."""

CANISTER_FIELD = 1 + 1 + 10
"""Bytes of a canister id field: key, length and ten bytes."""

FUNDS_MAP = 1 + 1
"""Bytes of the one-key map around cycles before they had fields of their own."""

CALL_TREE_FIELD = 1 + 1 + 2 + 2
"""Bytes of a request's field for its position in a call tree; always depth 0 at time 0 here."""


def count_bytes(slices: Frame, header_bytes: U64, counts: U64, message_bytes: U64) -> U64:
    """Return the size of each slice (one substream a row): payload, witness and certification.

    Args:
        slices: ``begin`` and ``end`` of the stream, and ``message_begin``.
        header_bytes: The size of the encoded header.
        counts: The number of messages from ``message_begin`` on.
        message_bytes: The total size of these messages, encoded.
    """
    some = counts > 0
    payload = np.where(some, 71 + header_bytes + message_bytes + np.uint64(16) * counts, 49 + header_bytes)
    begin, end, first = slices["begin"], slices["end"], slices["message_begin"]
    total, right = end - begin, end - first - counts
    # `R` of 2.10, whose ones are the pruned subtrees right of the messages.
    one = np.uint64(1)
    rem = total - right
    length = _bit_length(total ^ rem)
    power = np.where(length < 64, one << np.minimum(length, np.uint64(63)), np.uint64(0))
    zeros = np.bitwise_count((total & (~total + one)) - one)  # ctz; 64 for 0
    is_full = zeros + (np.uint64(64) - _bit_length(right)) >= 64
    found: U64 = np.where(is_full, right, power - (rem & (power - one)))
    pruned = np.bitwise_count(first - begin).astype(np.uint64) + np.bitwise_count(found)
    nodes = np.uint64(PRUNED) * pruned + np.uint64(KNOWN) * counts + np.uint64(FORK) * (pruned + counts - np.uint64(1))
    bare = (counts == 0) | (total == 0)
    sizes: U64 = (
        payload
        + CERTIFICATION_BYTES
        + np.where(bare, np.uint64(HEADER_WITNESS), HEADER_WITNESS - PRUNED + MESSAGES_LABEL + nodes)
    )
    return sizes


def _bit_length(numbers: U64) -> U64:
    filled = numbers.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(shift)
    return np.bitwise_count(filled).astype(np.uint64)


def number_bytes(numbers: npt.NDArray[Any]) -> U64:
    """Return the size of each number, or length, in packed CBOR."""
    return np.array([1, 2, 3, 5, 9], dtype=np.uint64)[
        np.searchsorted(np.array([24, 2**8, 2**16, 2**32], dtype=np.uint64), numbers, side="right")
    ]


def header_lengths(slices: Frame, rejects: Frame) -> U64:
    """Return the length of each slice's encoded header.

    Args:
        slices: ``begin``, ``end`` and ``signals_end`` by lane.
        rejects: REJECT signals in streams, about reverse messages (``REJECTS_SCHEMA``).
    """
    lengths: U64 = np.full(len(slices), 1 + 3, dtype=np.uint64)  # a map, and three keys
    for name in ("begin", "end", "signals_end"):
        lengths = lengths + number_bytes(slices[name])
    rows = lookup_rows(slices, reverse_lanes(rejects), LANE, ordered=False)
    signals = rejects.filter(rows >= 0)
    if len(signals) == 0:
        return lengths
    row = rows[rows >= 0]
    by_reason = stable_order(row.astype(np.uint64), signals["reason"], signals["index"])
    row, reason, index = row[by_reason], signals["reason"][by_reason], signals["index"][by_reason]
    last = np.ones(len(row), dtype=bool)
    last[:-1] = (row[1:] != row[:-1]) | (reason[1:] != reason[:-1])
    following = np.where(last, slices["signals_end"][row], np.append(index[1:], np.uint64(0)))
    added = np.zeros(len(slices), dtype=np.uint64)
    np.add.at(added, row, number_bytes(following - index))
    ends = np.flatnonzero(last)
    counts = np.diff(np.append(np.int64(-1), ends)).astype(np.uint64)
    np.add.at(added, row[ends], np.uint64(1) + number_bytes(counts))  # a key and an array for each reason
    return lengths + np.where(added > 0, added + np.uint64(2), np.uint64(0))  # the key of the field, and a map


def message_lengths(messages: Frame, version: CertificationVersion) -> U64:
    """Return the length of each encoded message of a stream (``MESSAGE_COLUMNS``)."""
    request = messages["kind"] == Kind.REQUEST
    body = payload_lengths(messages)
    data = body + number_bytes(body)
    high, low, code = messages["amount_high"], messages["amount_low"], messages["code"].astype(np.uint64)
    cycles = 1 + 1 + number_bytes(low) + np.where(high > 0, 1 + number_bytes(high), np.uint64(0))
    if version < CYCLES_FIELDS:
        cycles = cycles + np.uint64(FUNDS_MAP)
    shared = 3 + 2 * CANISTER_FIELD + 1 + number_bytes(messages["callback"]) + 1 + cycles
    deadline = messages["deadline"].astype(np.uint64)
    shared = shared + np.where(deadline > 0, 1 + number_bytes(deadline), np.uint64(0))
    method_bytes = method_lengths(messages)
    request_bytes = 1 + method_bytes + number_bytes(method_bytes) + 1 + data + CALL_TREE_FIELD
    response_bytes = 1 + 1 + 1 + np.where(code > 0, 1 + 1 + number_bytes(code) + 1 + data, data)
    lengths: U64 = shared + np.where(request, request_bytes, response_bytes)
    return lengths


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MessageSizes:
    """Lengths of encoded messages that slices may contain.

    Attributes:
        messages: Rows by lane and ``index``.
        lengths: The length of each row.
    """

    messages: Frame
    lengths: U64

    def starts(self, slices: Frame) -> np.ndarray:
        """Return the row of each slice's first message; its other messages follow."""
        first_messages = slices.select(LANE).with_columns(index=slices["message_begin"])
        keys, first = encode_keys(LANE_COLUMNS, self.messages, first_messages)
        return np.searchsorted(keys, first)


def get_xnet_payload(
    state: State,
    slices: Frame,
    rejects: Frame,
    invalid: Mask,
    context: Context,
    expected: ExpectedIndexes,
    size_limit: int = 0,
    sizes: MessageSizes | None = None,
    turn: U64 | None = None,
) -> tuple[Frame, np.ndarray]:
    """Build payloads from slices.

    With a size limit, headers with new signals come first, then messages, stream by stream, as many as fit while
    ``LEAST_BYTES`` remain (X-5). The rest is left out (``PayloadTooLarge``). ``validate_xnet_payload`` accepts the
    result.

    Args:
        state: The state at the reference height.
        slices: The candidate slices.
        rejects: The REJECT signals in them.
        invalid: Mask of the slices that their sources have not certified.
        context: The metadata of the round.
        expected: The expected indexes.
        size_limit: Bytes of a payload; 0 for no limit.
        sizes: The sizes of messages, required with a limit.
        turn: The rank of each slice at its destination; None for the order of rows.

    Returns:
        The slices of the payloads, and the ``SliceError`` of each candidate.
    """
    errors = check_slices(state, slices, rejects, invalid, context, expected)
    is_valid = errors == 0
    accepted = slices.filter(is_valid)
    if not size_limit or len(accepted) == 0:
        return accepted, errors
    assert sizes is not None
    _, signal = expected.of(accepted)
    signals = accepted["signals_end"] != signal
    order = np.arange(len(accepted), dtype=np.uint64) if turn is None else turn[is_valid]
    stop, fits = _truncate_to_limit(accepted, signals, order, rejects, sizes, size_limit, context.options)
    rows = np.flatnonzero(is_valid)
    errors[rows[~fits]] = SliceError.PayloadTooLarge
    return accepted.with_columns(message_end=stop).filter(fits), errors


def source_turns(slices: Frame, context: Context) -> U64:
    """Return the rank of each slice's source at its destination.

    The order of sources is drawn from seed, destination and height (X-5).
    """
    found = np.zeros(len(slices), dtype=np.uint64)
    numbers = context.registry.subnets
    for chain in np.unique(slices["destination"]).tolist():
        words = draw_words(DrawPurpose.TURNS, context.seed, int(numbers[chain]), context.height)
        order = np.argsort(np.random.Generator(words).random(len(numbers)), kind="stable")
        turn = np.empty(len(numbers), dtype=np.uint64)
        turn[order] = np.arange(len(numbers), dtype=np.uint64)
        mine = slices["destination"] == chain
        found[mine] = turn[slices["source"][mine]]
    return found


def payload_bytes(slices: Frame, rejects: Frame, sizes: MessageSizes) -> U64:
    """Return the size of each row's part of its payload.

    Messages outside the stream do not count.
    """
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
    expected: ExpectedIndexes,
    size_limit: int = 0,
    sizes: MessageSizes | None = None,
) -> np.ndarray:
    """Return the ``SliceError`` of each row of payloads, one payload per destination.

    A payload is valid if all are 0.

    A payload that exceeds the size limit is ``PayloadTooLarge`` as a whole. The arguments are those of
    ``get_xnet_payload``.
    """
    errors = check_slices(state, slices, rejects, invalid, context, expected)
    if size_limit and len(slices):
        assert sizes is not None
        payloads = group_rows(slices["destination"])
        total = np.add.reduceat(payload_bytes(slices, rejects, sizes), payloads.starts)
        errors[payloads.spread(total > np.uint64(size_limit))] = SliceError.PayloadTooLarge
    return errors


def _truncate_to_limit(
    slices: Frame, signals: Mask, turn: U64, rejects: Frame, sizes: MessageSizes, size_limit: int, options: IcOptions
) -> tuple[U64, Mask]:
    """Truncate slices to the size limit of payloads.

    Args:
        slices: The valid slices.
        signals: Mask of the slices with new signals, which are useful without messages.
        turn: The rank of each slice.
        rejects: The REJECT signals.
        sizes: The sizes of messages.
        size_limit: Bytes of a payload.
        options: The protocol options.

    Returns:
        The end of each slice's messages, and a mask of the included slices.
    """
    begin = slices["message_begin"]
    full_end: U64 = np.maximum(slices["message_end"], begin)
    groups = slice_groups(slices, options)
    worth = groups.spread(np.logical_or.reduceat(signals | (full_end > begin), groups.starts))
    payloads = group_rows(slices["destination"])
    total = np.add.reduceat(np.where(worth, payload_bytes(slices, rejects, sizes), np.uint64(0)), payloads.starts)
    small = payloads.spread(total + np.uint64(LEAST_BYTES) <= np.uint64(size_limit))
    if small.all():
        return full_end, worth
    stop, fits = np.where(small, full_end, begin), worth & small
    first, headers = sizes.starts(slices), header_lengths(slices, rejects)
    starts, counts = groups.starts.tolist(), groups.counts.tolist()
    large = np.flatnonzero((worth & ~small)[groups.starts])
    large = large[stable_order(slices["destination"][groups.starts][large], turn[groups.starts][large])]
    rows = {group: range(starts[group], starts[group] + counts[group]) for group in large.tolist()}
    remaining: dict[int, int] = {}
    bare: dict[int, int] = {}
    for group, its_rows in rows.items():
        chain = int(slices["destination"][its_rows[0]])
        size = sum(int(_sizes(slices, row, headers, sizes, first, 0)[0]) for row in its_rows)
        if signals[its_rows].any() and size <= remaining.setdefault(chain, size_limit):
            bare[group] = size
            remaining[chain] -= size
            fits[its_rows] = True
    for group, its_rows in rows.items():
        chain = int(slices["destination"][its_rows[0]])
        # An empty payload accepts anything that fits, however small its limit.
        if remaining.setdefault(chain, size_limit) < min(LEAST_BYTES, size_limit):
            continue
        tables = [_sizes(slices, row, headers, sizes, first, int(full_end[row] - begin[row])) for row in its_rows]
        available = remaining[chain] + bare.get(group, 0)
        message_counts, size = _longest(tables, available)
        if any(message_counts):
            stop[its_rows] = begin[its_rows] + np.array(message_counts, dtype=np.uint64)
            fits[its_rows] = True
            remaining[chain] = available - size
    return stop, fits


def _sizes(slices: Frame, row: int, headers: U64, sizes: MessageSizes, first: np.ndarray, most: int) -> U64:
    """Return the size of one substream's slice with its first 0, 1, 2, ..., ``most`` messages."""
    lengths = np.append(np.uint64(0), np.cumsum(sizes.lengths[first[row] : first[row] + most]))
    many = slices.select(["begin", "end", "message_begin"]).take(np.full(most + 1, row))
    counts = np.arange(most + 1, dtype=np.uint64)
    return count_bytes(many, np.full(most + 1, headers[row]), counts, lengths)


def _longest(tables: list[U64], room: int) -> tuple[list[int], int]:
    """Return the number of messages of each substream that fit, in order, and their size.

    All numbers are 0 if none fit.
    """
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
