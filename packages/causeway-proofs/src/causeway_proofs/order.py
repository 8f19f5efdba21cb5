"""Stable orders and groups of key columns, the two primitives of the queue algebra.

All functions work on unsigned 64-bit key columns. A stable order by several keys packs the keys and the row number into
one 64-bit word and sorts these words, an order of magnitude faster than a sort by columns. If the bits do not suffice,
the columns are sorted one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
Codes = npt.NDArray[Any]
"""Search keys: numbers, or byte strings of one length."""

Rows = npt.NDArray[np.int64]

Scalar = TypeVar("Scalar", bound=np.generic)

WORD_BITS = 64

SMALL_COLUMN = 400
"""Rows up to which a single call of a column sort is faster."""


def bit_width(values: npt.NDArray[np.unsignedinteger]) -> int:
    """Return the bit width of the largest value (0 for an empty or all-zero column)."""
    return int(np.maximum.reduce(values)).bit_length() if len(values) else 0


def stable_order(*keys: npt.NDArray[np.unsignedinteger]) -> Rows:
    """Return the row numbers in ascending order of ``keys``, ties in row order.

    Args:
        keys: unsigned columns of equal length, most significant first.

    Returns:
        Row numbers, int64, shape (n,).
    """
    length = len(keys[0])
    if length <= SMALL_COLUMN:
        return np.lexsort(keys[::-1]).astype(np.int64, copy=False)
    widths = [bit_width(key) for key in keys]
    room = WORD_BITS - (length - 1).bit_length()
    fitting = 0
    while fitting < len(keys) and sum(widths[: fitting + 1]) <= room:
        fitting += 1
    if fitting == 0:
        return _order_by_parts(keys, widths, WORD_BITS)
    leading = _pack(keys[:fitting], widths[:fitting])
    rest = keys[fitting:]
    if not rest:
        return _order_of_packed(leading)[0]
    if sum(widths[fitting:]) <= WORD_BITS:
        order, leading = _order_of_packed(leading)
        # Usually the other keys ascend already, because each lane delivers in order.
        following = _pack(rest, widths[fitting:])[order]
        if bool(((following[1:] >= following[:-1]) | (leading[1:] != leading[:-1])).all()):
            return order
    return _order_by_parts(keys, widths, room)


def _order_of_packed(packed: U64) -> tuple[Rows, U64]:
    """Return the stable order of words with free upper bits, and the sorted words.

    Overwrites ``packed``.
    """
    length = len(packed)
    if bool((packed[1:] >= packed[:-1]).all()):
        return np.arange(length, dtype=np.int64), packed
    row_bits = np.uint64((length - 1).bit_length())
    packed <<= row_bits
    packed |= np.arange(length, dtype=np.uint64)
    packed.sort()
    ordered = packed >> row_bits
    packed &= (np.uint64(1) << row_bits) - np.uint64(1)
    return packed.view(np.int64), ordered


def _order_by_parts(keys: Sequence[npt.NDArray[np.unsignedinteger]], widths: Sequence[int], room: int) -> Rows:
    """Sort by the least significant keys first, packing adjacent keys up to ``room`` bits."""
    length = len(keys[0])
    order = np.arange(length, dtype=np.int64)
    remaining = list(zip(keys, widths, strict=True))
    while remaining:
        batch = [remaining.pop()]
        while remaining and sum(width for _, width in batch) + remaining[-1][1] <= room:
            batch.insert(0, remaining.pop())
        packed = _pack([key for key, _ in batch], [width for _, width in batch])[order]
        wide = sum(width for _, width in batch) + (length - 1).bit_length() > WORD_BITS
        order = order[np.argsort(packed, kind="stable") if wide else _order_of_packed(packed)[0]]
    return order


def _pack(keys: Sequence[npt.NDArray[np.unsignedinteger]], widths: Sequence[int]) -> U64:
    packed = keys[0].astype(np.uint64)
    for key, width in zip(keys[1:], widths[1:], strict=True):
        if width:
            packed <<= np.uint64(width)
            packed |= key.astype(np.uint64, copy=False)
    return packed


@dataclass(frozen=True)
class Groups:
    """Runs of equal keys in a sorted column.

    Attributes:
        starts: first row of each run, in row order.
        counts: length of each run.
        total: number of rows.
    """

    starts: Rows
    counts: Rows
    total: int

    def __len__(self) -> int:
        return len(self.starts)

    def spread(self, values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Repeat one value a group for each of its rows."""
        return values.repeat(self.counts)

    def ranks(self) -> Rows:
        """Return each row's position in its group, from 0."""
        return np.arange(self.total, dtype=np.int64) - self.starts.repeat(self.counts)


def group_rows(*keys: npt.NDArray[np.generic]) -> Groups:
    """Group adjacent rows with equal keys.

    Args:
        keys: columns of equal length; rows with equal keys must be adjacent.

    Returns:
        The groups.
    """
    total = len(keys[0])
    if total == 0:
        empty = np.empty(0, dtype=np.int64)
        return Groups(empty, empty, 0)
    change = np.empty(total, dtype=bool)
    change[0] = True
    within = change[1:]
    np.not_equal(keys[0][1:], keys[0][:-1], out=within)
    for key in keys[1:]:
        within |= key[1:] != key[:-1]
    starts = change.nonzero()[0]
    counts = np.empty(len(starts), dtype=np.int64)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = total - starts[-1]
    return Groups(starts, counts, total)


def distinct(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Return the distinct values, ascending; sorting is several times as fast as ``np.unique``."""
    if len(values) == 0:
        return values
    ordered = np.sort(values)
    first = np.empty(len(ordered), dtype=bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def distinct_with_codes(values: U64) -> tuple[U64, Rows]:
    """Return the ``distinct`` values, and the index of each value among them."""
    order = stable_order(values)
    ordered = values[order]
    groups = group_rows(ordered)
    places = np.empty(len(values), dtype=np.int64)
    places[order] = groups.spread(np.arange(len(groups), dtype=np.int64))
    return ordered[groups.starts], places


def find_positions(sorted_codes: Codes, codes: Codes) -> Rows:
    """Return each code's position in ``sorted_codes``, -1 if absent.

    Args:
        sorted_codes: ascending and unique.
        codes: the codes to find.

    Returns:
        Positions, int64.
    """
    if len(sorted_codes) == 0:
        return np.full(len(codes), -1, dtype=np.int64)
    if (
        sorted_codes.dtype == codes.dtype == np.uint64
        and int(sorted_codes[-1] - sorted_codes[0]) == len(sorted_codes) - 1
    ):
        # Without gaps no search is needed; codes below the first wrap around.
        offset = codes - sorted_codes[0]
        inside = offset < np.uint64(len(sorted_codes))
        return offset.view(np.int64) if inside.all() else np.where(inside, offset.view(np.int64), -1)
    positions = np.searchsorted(sorted_codes, codes)
    positions[positions == len(sorted_codes)] = 0
    return np.where(sorted_codes[positions] == codes, positions, -1)
