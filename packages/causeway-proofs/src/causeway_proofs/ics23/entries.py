"""Build and check sorted columns of store entries, and hash them as leaves.

- Byte columns assembled from parts: varints, heads and bodies of protobuf fields, one value a row.
- ``Entries``: keys and values, strictly ascending by key. Keys sort as bytes, a key before its extensions, so the keys
  of one queue are adjacent, with ascending indices (IBC reference 2.3).
- Leaf digests of ICS-23's TendermintSpec (IBC reference 2.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.errors import CausewayError, InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, binary_rows, digest_chunks, digest_values
from causeway_proofs.merkle import LEAF_PREFIX, Positions
from causeway_proofs.varints import MORE, PAYLOAD_BITS

Part = Any
"""A bytes column, or one bytes value for all rows."""

MAX_COLUMN_BYTES = 2**31 - 1
"""Largest size of a byte column with 32-bit offsets."""

Mask = npt.NDArray[np.bool_]


def concat_columns(*parts: Part) -> pa.BinaryArray:
    """Concatenate parts row by row into one column; at least one part is a column.

    Raises:
        InvalidInput: the result would exceed ``MAX_COLUMN_BYTES``.
    """
    rows = next(len(part) for part in parts if not isinstance(part, bytes))
    total = sum(rows * len(part) if isinstance(part, bytes) else data_bytes(part) for part in parts)
    require_column_size(total)
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(
        *(pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts), b""
    )


def require_column_size(total: int) -> None:
    """Reject a column of ``total`` bytes above ``MAX_COLUMN_BYTES``.

    Raises:
        InvalidInput: ``total`` is above the limit.
    """
    if total > MAX_COLUMN_BYTES:
        raise InvalidInput(f"{total} bytes do not go into one column of {MAX_COLUMN_BYTES}: take fewer rows at once")


def data_bytes(column: pa.BinaryArray) -> int:
    """Return the total length of a byte column's values."""
    ends = value_offsets(column)
    return int(ends[-1] - ends[0])


def value_offsets(column: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return the offsets of a column's values in its buffer, and the last end, shape (n + 1,).

    Raises:
        InvalidInput: the column is not a byte column with 32-bit offsets, or has nulls.
    """
    if not isinstance(column, pa.BinaryArray):
        raise InvalidInput(f"a column must be an Arrow array of type binary, not {type(column).__name__}")
    if column.null_count:
        raise InvalidInput(f"{column.null_count} values of a bytes column are null, none may be")
    if len(column) == 0:
        return np.zeros(1, dtype=np.int32)
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]


def value_lengths(column: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the length of each value of a byte column."""
    return np.diff(value_offsets(column)).astype(np.int64)


def value_data(column: pa.BinaryArray) -> bytes:
    """Return the concatenated values of a byte column."""
    ends = value_offsets(column)
    buffer = column.buffers()[2]
    return bytes(memoryview(buffer)[int(ends[0]) : int(ends[-1])]) if buffer is not None else b""


def from_lengths(lengths: npt.NDArray[np.integer[Any]], data: bytes | npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the column of consecutive values in ``data`` with these ``lengths``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffer = pa.py_buffer(np.ascontiguousarray(data) if isinstance(data, np.ndarray) else data)
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), buffer])


def place_rows(rows: npt.NDArray[np.uint8], present: Mask) -> pa.BinaryArray:
    """Scatter byte rows to the true positions of ``present``, empty values elsewhere.

    Shapes: ``rows`` (number of true, width), ``present`` (n,).
    """
    return from_lengths(np.where(present, rows.shape[1], 0), rows.reshape(-1))


def place_values(column: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    """Scatter values to the true positions of ``present``, empty values elsewhere."""
    lengths = np.zeros(len(present), dtype=np.int64)
    lengths[present] = value_lengths(column)
    offsets = np.zeros(len(present) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = column.buffers()[2]
    if data is not None:
        data = data.slice(int(value_offsets(column)[0]))
    return pa.BinaryArray.from_buffers(pa.binary(), len(present), [None, pa.py_buffer(offsets), data])


def take_values(values: list[bytes], indices: npt.NDArray[np.integer[Any]]) -> pa.BinaryArray:
    """Return the column of ``values[which]``."""
    return pa.array(values, pa.binary()).take(pa.array(indices))


def uvarints(values: npt.NDArray[Any]) -> pa.BinaryArray:
    """Encode each non-negative value as an unsigned varint: seven bits a byte, low bits first."""
    remaining = values.astype(np.uint64)
    width = max(1, -(-int(remaining.max()).bit_length() // PAYLOAD_BITS)) if len(remaining) else 1
    digits = np.empty((len(remaining), width), dtype=np.uint8)
    used = np.ones((len(remaining), width), dtype=bool)
    for position in range(width):
        if position:
            used[:, position] = remaining > 0
        low = (remaining & np.uint64(MORE - 1)).astype(np.uint8)
        remaining >>= np.uint64(PAYLOAD_BITS)
        digits[:, position] = np.where(remaining > 0, low | MORE, low)
    if width == 1:
        return from_lengths(np.ones(len(digits), dtype=np.int64), digits.reshape(-1))
    return from_lengths(used.sum(axis=1), digits[used])


def prefix_lengths(column: pa.BinaryArray) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return the parts of a column in which the length precedes each value, as unsigned varint."""
    return uvarints(value_lengths(column)), column


class StoreError(CausewayError):
    """Base class of a store's errors."""


class EmptyKey(StoreError):
    """An entry has an empty key, and ICS-23 cannot prove empty keys (IBC reference 2.6)."""


class EmptyValue(StoreError):
    """An entry has an empty value, and ICS-23 cannot prove empty values (IBC reference D-5)."""


class UnsortedKeys(StoreError):
    """Keys are not strictly ascending."""


class UnknownKey(StoreError):
    """The store does not hold a key that is to be deleted or proven."""


class KnownKey(StoreError):
    """The store holds a key that is to be proven absent."""


class NothingToProve(StoreError):
    """An empty store has no neighbor to prove absence with."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys and values of equal number, strictly ascending by key, none empty.

    Attributes:
        keys: byte column with 32-bit offsets.
        values: byte column with 32-bit offsets.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray) -> Entries:
        """Validate two columns and return them as entries.

        Args:
            keys: strictly ascending keys.
            values: one a key.

        Returns:
            The entries; nothing is copied.

        Raises:
            EmptyKey: a key is empty.
            EmptyValue: a value is empty.
            UnsortedKeys: a key is not greater than its predecessor.
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
        """Return the entries at ``positions``; the caller guarantees ascending order."""
        rows = pa.array(positions)
        return Entries(self.keys.take(rows), self.values.take(rows))

    def slice(self, start: int, stop: int) -> Entries:
        """Return the entries from ``start`` to ``stop`` without a copy."""
        return Entries(self.keys[start:stop], self.values[start:stop])


def sorted_entries(keys: pa.BinaryArray, values: pa.BinaryArray) -> Entries:
    """Sort columns by key into entries.

    Args:
        keys: keys in any order.
        values: one a key.

    Returns:
        The entries.

    Raises:
        UnsortedKeys: a key occurs twice.
        EmptyKey: a key is empty.
        EmptyValue: a value is empty.
    """
    order = pc.sort_indices(keys)
    return Entries.of(keys.take(order), values.take(order))


def require_ascending(keys: pa.BinaryArray) -> None:
    """Reject keys that are not strictly ascending.

    Raises:
        UnsortedKeys: a key is not greater than its predecessor; the message names the first position.
        InvalidInput: ``keys`` is not a byte column, or has nulls.
    """
    value_offsets(keys)
    if len(keys) < 2:
        return
    ascending = as_mask(pc.less(keys[:-1], keys[1:]))
    if not ascending.all():
        raise UnsortedKeys(f"key {int(np.argmin(ascending)) + 1} is not greater than the key before it")


def refuse_empty(column: pa.BinaryArray, error: type[StoreError], noun: str) -> None:
    """Reject a byte column with nulls or empty values.

    Raises:
        StoreError: the subclass ``error``, if a value is null or empty.
    """
    if column.null_count:
        raise error(f"{column.null_count} entries have no {noun}")
    lengths = value_lengths(column)
    if len(lengths) and not lengths.all():
        raise error(f"the {noun} of entry {int(np.argmin(lengths))} is empty: no proof could show it")


def ranks(keys: pa.BinaryArray, targets: pa.BinaryArray) -> tuple[Positions, Mask]:
    """Return the ranks of ``targets`` in the ascending ``keys``, and a mask of exact matches."""
    low = np.zeros(len(targets), dtype=np.int64)
    high = np.full(len(targets), len(keys), dtype=np.int64)
    # All binary searches step together; a finished one repeats a comparison without effect.
    for _ in range(len(keys).bit_length()):
        middle = np.minimum((low + high) // 2, len(keys) - 1)
        less = as_mask(pc.less(keys.take(pa.array(middle)), targets)) & (low < high)
        low = np.where(less, middle + 1, low)
        high = np.where(less, high, np.minimum(middle, high))
    there = np.zeros(len(targets), dtype=bool)
    inside = low < len(keys)
    there[inside] = as_mask(pc.equal(keys.take(pa.array(low[inside])), targets.filter(pa.array(inside))))
    return low, there


def as_mask(column: Any) -> Mask:
    """Convert an Arrow boolean column to a NumPy mask."""
    mask: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
    return mask


def leaf_digests(entries: Entries) -> Digests:
    """Return the leaf digest of each entry, shape (n, 32).

    It is SHA-256(00 || uvarint(len key) || key || uvarint(32) || SHA-256(value)).
    """

    def preimages(start: int, stop: int) -> pa.BinaryArray:
        piece = entries.slice(start, stop)
        hashed = binary_rows(digest_values(HashFunction.SHA256, piece.values))
        return concat_columns(LEAF_PREFIX, *prefix_lengths(piece.keys), bytes([DIGEST_BYTES]), hashed)

    return digest_chunks(HashFunction.SHA256, len(entries), preimages)
