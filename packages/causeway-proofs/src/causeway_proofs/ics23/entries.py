"""Sorted columns of entries: what a store commits to.

Keys order as bytes do (a key before its extensions), so the keys of one queue lie together, its indices ascending
(IBC reference 2.3).

Bytes columns put together from parts: varints, heads and bodies of protobuf fields, one value a row.

Leaves of ICS-23's TendermintSpec, hashed by columns (IBC reference 2.6).
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
"""What the 32-bit offsets of one bytes column reach."""

Mask = npt.NDArray[np.bool_]


def concat_columns(*parts: Part) -> pa.BinaryArray:
    """Return the column whose rows are the parts' rows one after the other; at least one part is a column.

    Raises:
        InvalidInput: the column would be longer than ``MAX_COLUMN_BYTES``.
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
    """Refuse to make a column of ``total`` bytes when that is more than ``MAX_COLUMN_BYTES``.

    Raises:
        InvalidInput: it is.
    """
    if total > MAX_COLUMN_BYTES:
        raise InvalidInput(f"{total} bytes do not go into one column of {MAX_COLUMN_BYTES}: take fewer rows at once")


def data_bytes(column: pa.BinaryArray) -> int:
    """Return how many bytes the values of a bytes column have together."""
    ends = value_offsets(column)
    return int(ends[-1] - ends[0])


def value_offsets(column: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return where the values begin in the column's buffer, and where the last one ends, shape (n + 1,).

    Raises:
        InvalidInput: it is no bytes column with 32-bit offsets, or has nulls.
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
    """Return the length of each value of a bytes column."""
    return np.diff(value_offsets(column)).astype(np.int64)


def value_data(column: pa.BinaryArray) -> bytes:
    """Return the values of a bytes column one after the other."""
    ends = value_offsets(column)
    buffer = column.buffers()[2]
    return bytes(memoryview(buffer)[int(ends[0]) : int(ends[-1])]) if buffer is not None else b""


def from_lengths(lengths: npt.NDArray[np.integer[Any]], data: bytes | npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the column of values with ``lengths`` that lie one after the other in ``data``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffer = pa.py_buffer(np.ascontiguousarray(data) if isinstance(data, np.ndarray) else data)
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), buffer])


def place_rows(rows: npt.NDArray[np.uint8], present: Mask) -> pa.BinaryArray:
    """Return the column with the rows of a byte matrix where ``present`` is true, in order, and empty values elsewhere.

    Shapes: ``rows`` (number of true, width), ``present`` (n,).
    """
    return from_lengths(np.where(present, rows.shape[1], 0), rows.reshape(-1))


def place_values(column: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    """Return the column with the values of ``column`` where ``present`` is true, in order, and empty ones elsewhere."""
    lengths = np.zeros(len(present), dtype=np.int64)
    lengths[present] = value_lengths(column)
    offsets = np.zeros(len(present) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = column.buffers()[2]
    if data is not None:
        data = data.slice(int(value_offsets(column)[0]))
    return pa.BinaryArray.from_buffers(pa.binary(), len(present), [None, pa.py_buffer(offsets), data])


def take_values(values: list[bytes], which: npt.NDArray[np.integer[Any]]) -> pa.BinaryArray:
    """Return the column of ``values[which]``."""
    return pa.array(values, pa.binary()).take(pa.array(which))


def uvarints(values: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return each value (not negative) as an unsigned varint: seven bits a byte, the low ones first."""
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
    """Return the parts of each value with its length in front, as unsigned varint."""
    return uvarints(value_lengths(column)), column


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
    value_offsets(keys)
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
    lengths = value_lengths(column)
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


def leaf_digests(entries: Entries) -> Digests:
    """Return SHA-256(00 || uvarint(len key) || key || uvarint(32) || SHA-256(value)) of each entry, shape (n, 32)."""

    def preimages(start: int, stop: int) -> pa.BinaryArray:
        piece = entries.slice(start, stop)
        hashed = binary_rows(digest_values(HashFunction.SHA256, piece.values))
        return concat_columns(LEAF_PREFIX, *prefix_lengths(piece.keys), bytes([DIGEST_BYTES]), hashed)

    return digest_chunks(HashFunction.SHA256, len(entries), preimages)
