"""Sorted columns of entries: what a store commits to.

Keys order as bytes do (a key before its extensions), so the keys of one queue lie together, its indices ascending
(IBC reference 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import CausewayError
from causeway.proofs.ics23.columns import Mask, lengths_of, offsets_of
from causeway.proofs.ics23.levels import Positions


class StoreError(CausewayError):
    """Root of what a store refuses to hold or to do."""


class EmptyKey(StoreError):
    """An entry has an empty key, which ICS-23 cannot prove (IBC reference 2.6)."""


class EmptyValue(StoreError):
    """An entry has an empty value, which ICS-23 cannot prove (IBC reference D-5)."""


class UnsortedKeys(StoreError):
    """Keys are not strictly ascending."""


class UnknownKey(StoreError):
    """A key is to be deleted or proven to exist that the store does not hold."""


class KnownKey(StoreError):
    """A key is to be proven absent that the store holds."""


class NothingToProve(StoreError):
    """A store without entries has no neighbour that could show that a key is absent."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys and values of equal number, strictly ascending by key, none empty."""

    keys: pa.BinaryArray
    values: pa.BinaryArray

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray) -> Entries:
        """Check two columns and make entries of them.

        Raises:
            EmptyKey: a key is empty.
            EmptyValue: a value is empty.
            UnsortedKeys: a key is not greater than the one before it.
            InvalidInput: a column is not of type binary.
        """
        if len(keys) != len(values):
            raise StoreError(f"{len(keys)} keys, but {len(values)} values")
        refuse_empty(keys, EmptyKey, "key")
        refuse_empty(values, EmptyValue, "value")
        require_ascending(keys)
        return cls(keys, values)

    @classmethod
    def none(cls) -> Entries:
        """Return no entries."""
        empty = pa.array([], pa.binary())
        return cls(empty, empty)

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order (the caller answers for it being ascending)."""
        rows = pa.array(positions)
        return Entries(self.keys.take(rows), self.values.take(rows))

    def slice(self, start: int, stop: int) -> Entries:
        """Return the entries from ``start`` to ``stop``, not copied."""
        return Entries(self.keys[start:stop], self.values[start:stop])


def sorted_entries(keys: pa.BinaryArray, values: pa.BinaryArray) -> Entries:
    """Return entries of columns in any order, sorted by key.

    Raises:
        UnsortedKeys: a key occurs twice.
        EmptyKey: a key is empty.
        EmptyValue: a value is empty.
    """
    order = pc.sort_indices(keys)
    return Entries.of(keys.take(order), values.take(order))


def require_ascending(keys: pa.BinaryArray) -> None:
    """Refuse keys that are not strictly ascending.

    Raises:
        UnsortedKeys: a key is not greater than the one before it; the message names the first such position.
        InvalidInput: they are no bytes column, or there are nulls.
    """
    offsets_of(keys)
    if len(keys) < 2:
        return
    ascending = as_mask(pc.less(keys[:-1], keys[1:]))
    if not ascending.all():
        raise UnsortedKeys(f"key {int(np.argmin(ascending)) + 1} is not greater than the key before it")


def refuse_empty(column: pa.BinaryArray, error: type[StoreError], what: str) -> None:
    """Refuse a bytes column with nulls or empty values.

    Raises:
        StoreError: the subclass ``error``, when there is one.
    """
    if column.null_count:
        raise error(f"{column.null_count} entries have no {what}")
    lengths = lengths_of(column)
    if len(lengths) and not lengths.all():
        raise error(f"the {what} of entry {int(np.argmin(lengths))} is empty: no proof could show it")


def ranks(keys: pa.BinaryArray, wanted: pa.BinaryArray) -> tuple[Positions, Mask]:
    """Return for each of ``wanted`` how many of ascending ``keys`` are less, and whether it is among them."""
    low = np.zeros(len(wanted), dtype=np.int64)
    high = np.full(len(wanted), len(keys), dtype=np.int64)
    # All searches halve their ranges together; one that has ended looks at a row again, to no effect.
    for _ in range(len(keys).bit_length()):
        middle = np.minimum((low + high) // 2, len(keys) - 1)
        less = as_mask(pc.less(keys.take(pa.array(middle)), wanted)) & (low < high)
        low = np.where(less, middle + 1, low)
        high = np.where(less, high, np.minimum(middle, high))
    there = np.zeros(len(wanted), dtype=bool)
    inside = low < len(keys)
    there[inside] = as_mask(pc.equal(keys.take(pa.array(low[inside])), wanted.filter(pa.array(inside))))
    return low, there


def as_mask(column: Any) -> Mask:
    """Return an Arrow column of booleans as a NumPy mask."""
    mask: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return mask
