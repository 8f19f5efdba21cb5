"""ICS-23 proofs of a committed store, encoded by columns: one CommitmentProof a row, without rebuilding anything.

A store that can be proven offers its leaves in the order of its spec, and for any of them the steps to the root. What
is here makes of that the deployed messages (IBC reference 2.6): existence, and non-existence by the two neighbours.
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
"""Tags of the fields that are put together here: field number and wire type 2, one byte each."""

INNER_HEAD = b"\x08\x01\x12"
"""An InnerOp up to its prefix: hash SHA256, then the tag of the prefix."""

SUFFIX = b"\x1a"

EMPTY_STORE = "the store is empty: its root says so, and no proof can"


class ProvableStore(ABC):
    """A committed store, seen as a row of leaves in the order in which its proof spec compares keys."""

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
        """Return for each key how many leaves come before it, and whether the leaf there is its own."""

    @abstractmethod
    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order."""

    @abstractmethod
    def leaf_ops(self, positions: Positions) -> Part:
        """Return the leaves' LeafOp messages with their length in front: one for all, or a column."""

    @abstractmethod
    def steps(self, positions: Positions) -> list[tuple[Part, ...]]:
        """Return the InnerOps from leaf to root: for each step the parts of a column of ``path`` fields, tag included.

        A row without a step is empty in all parts.
        """

    def names_of(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return what a non-existence proof calls each of ``keys``: the key itself."""
        return keys

    def existence_proofs(self, positions: Positions) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of each entry at ``positions``, which need no order.

        Raises:
            StoreError: there is no such position.
            InvalidInput: the proofs do not go into one column, which holds some two million of small entries.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise StoreError(f"positions from {positions.min()} to {positions.max()} of {len(self)} entries")
        return concat_columns(EXIST, *prefix_lengths(_existence(self, positions)))

    def absence_proofs(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of the absence of each of ``keys``, in any order.

        Raises:
            KnownKey: a key is there.
            NothingToProve: the store is empty.
        """
        positions = self._positions_of_absent(keys)
        return concat_columns(NONEXIST, *prefix_lengths(_absence(self, keys, positions)))

    def prove(self, key: bytes) -> bytes:
        """Return the encoded CommitmentProof that ``key`` exists with its value, or that it does not exist.

        Raises:
            NothingToProve: the store is empty.
        """
        keys = pa.array([key], pa.binary())
        positions, there = self.locate(keys)
        proofs = self.existence_proofs(positions) if there[0] else self.absence_proofs(keys)
        proof: bytes = proofs[0].as_py()
        return proof

    def prove_existence(self, key: bytes) -> bytes:
        """Return the encoded CommitmentProof that ``key`` exists with its value.

        Raises:
            UnknownKey: it is not there.
        """
        positions, there = self.locate(pa.array([key], pa.binary()))
        if not there[0]:
            raise UnknownKey(f"key {key.hex()} is not in the store")
        proof: bytes = self.existence_proofs(positions)[0].as_py()
        return proof

    def _positions(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        value_offsets(keys)  # refuses nulls
        if not len(self):
            raise NothingToProve(EMPTY_STORE)
        return self.locate(keys)

    def _positions_of_absent(self, keys: pa.BinaryArray) -> Positions:
        positions, there = self._positions(keys)
        if there.any():
            raise KnownKey(f"key {keys[int(np.argmax(there))].as_py().hex()} is in the store")
        return positions


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


def _neighbours(store: ProvableStore, positions: Positions) -> tuple[Positions, Positions]:
    """Return the positions left and right of absent keys, -1 where there is no neighbour."""
    return positions - 1, np.where(positions < len(store), positions, -1)


def _absence(store: ProvableStore, keys: pa.BinaryArray, positions: Positions) -> pa.BinaryArray:
    """Return the NonExistenceProof message of each of ``keys``, which would stand at ``positions``."""
    left, right = _neighbours(store, positions)
    return concat_columns(
        _named(store.names_of(keys)),
        _optional(LEFT, _existence(store, left[left >= 0]), left >= 0),
        _optional(RIGHT, _existence(store, right[right >= 0]), right >= 0),
    )


def _named(names: pa.BinaryArray) -> pa.BinaryArray:
    """Return the field with the key that each proof of absence names; protobuf leaves an empty one out."""
    named = value_lengths(names) > 0
    return _optional(KEY, names.filter(pa.array(named)), named)


def _optional(tag: bytes, messages: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    """Return a field with ``messages`` in the rows that are ``present``, in order, and nothing in the others."""
    return place_values(concat_columns(tag, *prefix_lengths(messages)), present)
