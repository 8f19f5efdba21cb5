"""Encode ICS-23 proofs of a committed store by columns, without rebuilding the tree.

A provable store exposes its leaves in the order of its spec and the steps from any leaf to the root. ``ProvableStore``
turns these into the deployed messages: existence proofs, and non-existence proofs with both neighbors.

Reference:
    IBC reference 2.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from causeway_proofs.ics23.entries import (
    Entries,
    KnownKey,
    Mask,
    NothingToProve,
    Part,
    StoreError,
    UnknownKey,
    concat_columns,
    place_values,
    prefix_lengths,
    value_lengths,
    value_offsets,
)
from causeway_proofs.merkle import Positions

KEY = b"\x0a"
VALUE = b"\x12"
LEAF = b"\x1a"
PATH = b"\x22"
LEFT = b"\x12"
RIGHT = b"\x1a"
EXIST = b"\x0a"
NONEXIST = b"\x12"
"""Tags of the encoded fields: field number and wire type 2, one byte each."""

INNER_HEAD = b"\x08\x01\x12"
"""Bytes of an InnerOp up to its prefix: hash SHA256, then the tag of the prefix."""

SUFFIX = b"\x1a"

EMPTY_STORE = "the store is empty: its root says so, and no proof can"


class ProvableStore(ABC):
    """A committed store as a sequence of leaves in the key order of its proof spec."""

    __slots__ = ()

    @property
    @abstractmethod
    def root(self) -> bytes:
        """Return the root, 32 bytes."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of leaves."""

    @abstractmethod
    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        """Return the rank of each key among the leaves, and a mask of keys present at their rank.

        Args:
            keys: keys in any order.

        Returns:
            Positions, shape (n,), and the mask, shape (n,).
        """

    @abstractmethod
    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order."""

    @abstractmethod
    def leaf_ops(self, positions: Positions) -> Part:
        """Return the leaves' LeafOp messages with a length prefix: one for all, or a column."""

    @abstractmethod
    def steps(self, positions: Positions) -> list[tuple[Part, ...]]:
        """Return the InnerOps from leaf to root as parts of tagged ``path`` columns.

        A row without a step is empty in all parts.
        """

    def names_of(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the name of each key in a non-existence proof: the key itself."""
        return keys

    def existence_proofs(self, positions: Positions) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of each entry at ``positions``.

        Args:
            positions: positions of leaves, in any order.

        Returns:
            One proof a position.

        Raises:
            StoreError: a position is out of range.
            InvalidInput: the proofs exceed one column, which holds about two million proofs of small entries.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise StoreError(f"positions from {positions.min()} to {positions.max()} of {len(self)} entries")
        return concat_columns(EXIST, *prefix_lengths(_existence(self, positions)))

    def absence_proofs(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of the absence of each key.

        Args:
            keys: absent keys, in any order.

        Returns:
            One proof a key.

        Raises:
            KnownKey: the store holds a key.
            NothingToProve: the store is empty.
        """
        value_offsets(keys)  # refuses nulls
        if not len(self):
            raise NothingToProve(EMPTY_STORE)
        positions, there = self.locate(keys)
        if there.any():
            raise KnownKey(f"key {keys[int(np.argmax(there))].as_py().hex()} is in the store")
        return concat_columns(NONEXIST, *prefix_lengths(_absence(self, keys, positions)))

    def prove(self, key: bytes) -> bytes:
        """Return the encoded CommitmentProof of the existence or absence of ``key``.

        Args:
            key: the key.

        Returns:
            The proof.

        Raises:
            NothingToProve: the store is empty.
        """
        keys = pa.array([key], pa.binary())
        positions, there = self.locate(keys)
        proofs = self.existence_proofs(positions) if there[0] else self.absence_proofs(keys)
        proof: bytes = proofs[0].as_py()
        return proof

    def prove_existence(self, key: bytes) -> bytes:
        """Return the encoded CommitmentProof of the existence of ``key``.

        Args:
            key: the key.

        Returns:
            The proof.

        Raises:
            UnknownKey: the store does not hold ``key``.
        """
        positions, there = self.locate(pa.array([key], pa.binary()))
        if not there[0]:
            raise UnknownKey(f"key {key.hex()} is not in the store")
        proof: bytes = self.existence_proofs(positions)[0].as_py()
        return proof


def _existence(store: ProvableStore, positions: Positions) -> pa.BinaryArray:
    """Return the ExistenceProof message of each position."""
    entries = store.entries_at(positions)
    steps = store.steps(positions)
    return concat_columns(
        KEY,
        *prefix_lengths(entries.keys),
        VALUE,
        *prefix_lengths(entries.values),
        LEAF,
        store.leaf_ops(positions),
        *(part for step in steps for part in step),
    )


def _absence(store: ProvableStore, keys: pa.BinaryArray, positions: Positions) -> pa.BinaryArray:
    """Return the NonExistenceProof of each key; ``positions`` are the insertion points."""
    left, right = positions - 1, np.where(positions < len(store), positions, -1)
    names = store.names_of(keys)
    named = value_lengths(names) > 0
    return concat_columns(
        _optional(KEY, names.filter(pa.array(named)), named),
        _optional(LEFT, _existence(store, left[left >= 0]), left >= 0),
        _optional(RIGHT, _existence(store, right[right >= 0]), right >= 0),
    )


def _optional(tag: bytes, messages: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    """Return a field with ``messages`` in the ``present`` rows, empty elsewhere."""
    return place_values(concat_columns(tag, *prefix_lengths(messages)), present)
