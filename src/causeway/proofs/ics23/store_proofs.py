"""ICS-23 proofs of a committed store, encoded by columns: one CommitmentProof a row, without rebuilding anything.

A store that can be proven offers its leaves in the order of its spec, and for any of them the steps to the root. What
is here makes of that the deployed messages (specs/ibc.md 2.6): existence, non-existence by the two neighbours, and
batches, whose compressed form holds every inner step once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.proofs.ics23.columns import (
    Mask,
    Part,
    data_bytes,
    data_of,
    delimited,
    from_lengths,
    joined,
    lengths_of,
    offsets_of,
    require_room,
    spread,
    uvarints,
)
from causeway.proofs.ics23.entries import Entries, KnownKey, NothingToProve, StoreError, UnknownKey
from causeway.proofs.ics23.levels import Positions
from causeway.proofs.varints import uvarint

KEY = b"\x0a"
VALUE = b"\x12"
LEAF = b"\x1a"
PATH = b"\x22"
LEFT = b"\x12"
RIGHT = b"\x1a"
EXIST = b"\x0a"
NONEXIST = b"\x12"
BATCH = b"\x1a"
COMPRESSED = b"\x22"
ENTRY = b"\x0a"
LOOKUP_INNER = b"\x12"
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
        return joined(EXIST, *delimited(_existence(self, positions)))

    def absence_proofs(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the encoded CommitmentProof of the absence of each of ``keys``, in any order.

        Raises:
            KnownKey: a key is there.
            NothingToProve: the store is empty.
        """
        positions = self._positions_of_absent(keys)
        return joined(NONEXIST, *delimited(_absence(self, keys, positions)))

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

    def batch_proof(self, keys: pa.BinaryArray) -> bytes:
        """Return the encoded CommitmentProof with a BatchProof for ``keys``: of existence or absence, in their order.

        Raises:
            NothingToProve: the store is empty.
        """
        positions, there = self._positions(keys)
        exist = joined(EXIST, *delimited(_existence(self, positions[there])))
        absent = keys.filter(pa.array(~there))
        nonexist = joined(NONEXIST, *delimited(_absence(self, absent, positions[~there])))
        body = data_of(joined(ENTRY, *delimited(_interleaved(exist, nonexist, there))))
        return BATCH + uvarint(len(body)) + body

    def compressed_proof(self, keys: pa.BinaryArray) -> bytes:
        """Return the encoded CommitmentProof with a CompressedBatchProof for ``keys``, in their order.

        Every inner step stands in it once, however many of the paths go over it.

        Raises:
            NothingToProve: the store is empty.
        """
        positions, there = self._positions(keys)
        absent = keys.filter(pa.array(~there))
        left, right = _neighbours(self, positions[~there])
        wanted = np.unique(np.concatenate([positions[there], left[left >= 0], right[right >= 0]]))
        leaves, inners = _compressed_leaves(self, wanted)

        def of(positions: Positions) -> pa.BinaryArray:
            return leaves.take(pa.array(np.searchsorted(wanted, positions)))

        exist = joined(EXIST, *delimited(of(positions[there])))
        nonexist = joined(
            NONEXIST,
            *delimited(
                joined(
                    _named(self.names_of(absent)),
                    _optional(LEFT, of(left[left >= 0]), left >= 0),
                    _optional(RIGHT, of(right[right >= 0]), right >= 0),
                )
            ),
        )
        entries = joined(ENTRY, *delimited(_interleaved(exist, nonexist, there)))
        body = data_of(entries) + data_of(inners)
        return COMPRESSED + uvarint(len(body)) + body

    def _positions(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        offsets_of(keys)  # refuses nulls
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
    return joined(
        KEY,
        *delimited(entries.keys),
        VALUE,
        *delimited(entries.values),
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
    return joined(
        _named(store.names_of(keys)),
        _optional(LEFT, _existence(store, left[left >= 0]), left >= 0),
        _optional(RIGHT, _existence(store, right[right >= 0]), right >= 0),
    )


def _named(names: pa.BinaryArray) -> pa.BinaryArray:
    """Return the field with the key that each proof of absence names; protobuf leaves an empty one out."""
    named = lengths_of(names) > 0
    return _optional(KEY, names.filter(pa.array(named)), named)


def _optional(tag: bytes, messages: pa.BinaryArray, present: Mask) -> pa.BinaryArray:
    """Return a field with ``messages`` in the rows that are ``present``, in order, and nothing in the others."""
    return spread(joined(tag, *delimited(messages)), present)


def _interleaved(exist: pa.BinaryArray, nonexist: pa.BinaryArray, there: Mask) -> pa.BinaryArray:
    """Return one column of the rows of ``exist`` where ``there`` is true and those of ``nonexist`` where not."""
    rows = np.empty(len(there), dtype=np.int64)
    rows[there] = np.arange(len(exist))
    rows[~there] = len(exist) + np.arange(len(nonexist))
    return pa.concat_arrays([exist, nonexist]).take(pa.array(rows))


def _compressed_leaves(store: ProvableStore, positions: Positions) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return the CompressedExistenceProof of each position, and the lookup_inners fields that they refer to."""
    entries = store.entries_at(positions)
    steps = [joined(*parts) if len(parts) > 1 else parts[0] for parts in store.steps(positions)]
    if not steps or not len(positions):
        return joined(
            KEY, *delimited(entries.keys), VALUE, *delimited(entries.values), LEAF, store.leaf_ops(positions)
        ), pa.array([], pa.binary())
    # Row after row, and within a row from leaf to root: the inner steps are numbered as they are first met.
    require_room(sum(data_bytes(step) for step in steps))
    order = np.arange(len(steps) * len(positions)).reshape(len(steps), -1).T.reshape(-1)
    met = pa.concat_arrays(steps).take(pa.array(order))
    present = lengths_of(met) > 0
    numbered = pc.dictionary_encode(met.filter(pa.array(present)))
    indices = uvarints(numbered.indices.to_numpy(zero_copy_only=False))
    count = present.reshape(len(positions), len(steps)).sum(axis=1)
    bounds = np.concatenate([[0], np.cumsum(count)])
    width = lengths_of(indices)
    packed_bounds = np.concatenate([[0], np.cumsum(width)])[bounds]
    packed = from_lengths(np.diff(packed_bounds), data_of(indices))
    leaves = joined(
        KEY,
        *delimited(entries.keys),
        VALUE,
        *delimited(entries.values),
        LEAF,
        store.leaf_ops(positions),
        _optional(PATH, packed.filter(pa.array(count > 0)), count > 0),
    )
    inners = numbered.dictionary
    # The fields differ from those of a path in the tag alone.
    return leaves, pc.binary_replace_slice(inners, 0, 1, LOOKUP_INNER)
