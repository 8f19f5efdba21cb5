"""Proofs of few entries, each put together as bytes: for one proof the fixed costs of columns are most of the work."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from causeway.proofs.ics23.columns import offsets_of, require_room
from causeway.proofs.ics23.entries import KnownKey, NothingToProve, StoreError, UnknownKey
from causeway.proofs.ics23.levels import Positions
from causeway.proofs.ics23.store_proofs import (
    BATCH,
    EMPTY_STORE,
    ENTRY,
    EXIST,
    KEY,
    LEAF,
    LEFT,
    NONEXIST,
    RIGHT,
    VALUE,
    ProvableStore,
)
from causeway.proofs.varints import uvarint


@dataclass(frozen=True, slots=True)
class Row:
    """An entry and its way to the root.

    Attributes:
        key, value: the entry.
        leaf_op: its LeafOp message, with its length in front.
        path: its ``path`` fields, from leaf to root.
    """

    key: bytes
    value: bytes
    leaf_op: bytes
    path: bytes

    def existence(self) -> bytes:
        """Return the ExistenceProof message."""
        return b"".join([_field(KEY, self.key), _field(VALUE, self.value), LEAF, self.leaf_op, self.path])


class RowStore(ProvableStore):
    """A store whose entries can be proven one by one; what is asked of many goes by columns, to the same bytes.

    Attributes:
        few: up to this many proofs are made one by one, which is then faster.
    """

    __slots__ = ()
    few = 32

    @abstractmethod
    def find(self, key: bytes) -> tuple[int, bool]:
        """Return how many leaves come before ``key``, and whether the leaf there is its own."""

    @abstractmethod
    def row(self, position: int) -> Row:
        """Return the entry at a position that there is, with its way to the root."""

    def name_of(self, key: bytes) -> bytes:
        """Return what a non-existence proof calls ``key``: the key itself."""
        return key

    def existence_proofs(self, positions: Positions) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of each entry at ``positions``, which need no order.

        Raises:
            StoreError: there is no such position.
            InvalidInput: the proofs do not go into one column, which holds some two million of small entries.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise StoreError(f"positions from {positions.min()} to {positions.max()} of {len(self)} entries")
        if len(positions) > self.few:
            return super().existence_proofs(positions)
        return _column([self._exists(position) for position in positions.tolist()])

    def absence_proofs(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of the absence of each of ``keys``, in any order.

        Raises:
            KnownKey: a key is there.
            NothingToProve: the store is empty.
        """
        # Of an absent key, two neighbours are proven.
        if 2 * len(keys) > self.few:
            return super().absence_proofs(keys)
        offsets_of(keys)
        found = [(key, *self._found(key)) for key in keys.to_pylist()]
        for key, _, there in found:
            if there:
                raise KnownKey(f"key {key.hex()} is in the store")
        return _column([self._is_absent(key, place) for key, place, _ in found])

    def prove(self, key: bytes) -> bytes:
        """Return the encoded CommitmentProof that ``key`` exists with its value, or that it does not exist.

        Raises:
            NothingToProve: the store is empty.
        """
        place, there = self._found(key)
        return self._exists(place) if there else self._is_absent(key, place)

    def prove_existence(self, key: bytes) -> bytes:
        """Return the encoded CommitmentProof that ``key`` exists with its value.

        Raises:
            UnknownKey: it is not there.
        """
        place, there = self.find(key)
        if not there:
            raise UnknownKey(f"key {key.hex()} is not in the store")
        return self._exists(place)

    def batch_proof(self, keys: pa.BinaryArray) -> bytes:
        """Return the encoded CommitmentProof with a BatchProof for ``keys``: of existence or absence, in their order.

        Raises:
            NothingToProve: the store is empty.
        """
        if 2 * len(keys) > self.few:
            return super().batch_proof(keys)
        offsets_of(keys)
        if not len(self):
            raise NothingToProve(EMPTY_STORE)
        # The entries of a batch are what a proof of one key is: existence in field 1, non-existence in field 2.
        return _field(BATCH, b"".join([_field(ENTRY, self.prove(key)) for key in keys.to_pylist()]))

    def _found(self, key: bytes) -> tuple[int, bool]:
        if not len(self):
            raise NothingToProve(EMPTY_STORE)
        return self.find(key)

    def _exists(self, position: int) -> bytes:
        return _field(EXIST, self.row(position).existence())

    def _is_absent(self, key: bytes, place: int) -> bytes:
        """Return the proof that ``key``, which would stand at ``place``, is absent."""
        left = _field(LEFT, self.row(place - 1).existence()) if place else b""
        right = _field(RIGHT, self.row(place).existence()) if place < len(self) else b""
        name = self.name_of(key)
        return _field(NONEXIST, (_field(KEY, name) if name else b"") + left + right)


def _field(tag: bytes, content: bytes) -> bytes:
    return b"".join([tag, uvarint(len(content)), content])


def _column(values: list[bytes]) -> pa.BinaryArray:
    require_room(sum(map(len, values)))
    return pa.array(values, pa.binary())
