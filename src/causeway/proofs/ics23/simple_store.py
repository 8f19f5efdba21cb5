"""The simple store: entries sorted by key under a tree of RFC 6962, ICS-23's TendermintSpec (specs/ibc.md 2.6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.ics23.columns import Mask, Part, choice, sparse
from causeway.proofs.ics23.entries import Entries, StoreError, apply_change, plan_change, rank, ranks
from causeway.proofs.ics23.levels import Levels, Positions
from causeway.proofs.ics23.range_proof import encode_range_proof
from causeway.proofs.ics23.row_proofs import Row, RowStore
from causeway.proofs.ics23.simple_leaves import leaf_digests
from causeway.proofs.ics23.store_proofs import INNER_HEAD, PATH, SUFFIX

SIMPLE_LEAF_OP = bytes.fromhex("09 0801 1801 2001 2a0100")
"""LeafOp of TendermintSpec, its length in front."""

INNER = b"\x01"
STEP_LEFT = PATH + b"\x25" + INNER_HEAD + b"\x21" + INNER
"""A step with a left sibling up to that sibling: the prefix is 01 and the sibling."""

STEP_RIGHT = PATH + b"\x27" + INNER_HEAD + b"\x01" + INNER + SUFFIX + b"\x20"
"""A step with a right sibling up to that sibling: the prefix is 01, the suffix the sibling."""


def sibling_steps(siblings: list[tuple[Positions, Digests]]) -> list[tuple[Part, ...]]:
    """Return the ``path`` fields of steps with inner prefix 01, from what ``Levels.siblings`` returns."""
    return [(choice([STEP_LEFT, STEP_RIGHT, b""], side), sparse(digests, side < 2)) for side, digests in siblings]


class SimpleStore(RowStore):
    """An immutable committed store; an update returns the next one, which shares what did not change.

    Attributes:
        entries: the entries, sorted by key.
        tree: all levels of the tree over them.
    """

    __slots__ = ("entries", "tree")

    def __init__(self, entries: Entries, tree: Levels) -> None:
        self.entries = entries
        self.tree = tree

    @classmethod
    def of(cls, keys: pa.BinaryArray, values: pa.BinaryArray) -> SimpleStore:
        """Commit to two columns of equal length, keys strictly ascending.

        Raises:
            EmptyKey: a key is empty.
            EmptyValue: a value is empty.
            UnsortedKeys: a key is not greater than the one before it.
        """
        return cls.over(Entries.of(keys, values))

    @classmethod
    def over(cls, entries: Entries) -> SimpleStore:
        """Commit to ``entries``."""
        return cls(entries, Levels.of(leaf_digests(entries)))

    @classmethod
    def empty(cls) -> SimpleStore:
        """Return the store without entries; its root is SHA-256 of nothing."""
        return cls(Entries.none(), Levels([]))

    def updated(self, upserts: Entries, deletions: pa.BinaryArray) -> SimpleStore:
        """Return the store with ``upserts`` set and the keys ``deletions`` (strictly ascending) deleted.

        Only the upserts' leaves are hashed. When every upsert replaces an entry and nothing is deleted, only their
        ancestors are; otherwise the inner nodes right of the first change are, and those left of it are taken over.

        Raises:
            UnknownKey: a key to delete is not there.
            ConflictingChange: a key is both set and deleted.
            UnsortedKeys: ``deletions`` are not strictly ascending.
        """
        if not len(upserts) and not len(deletions):
            return self
        change = plan_change(self.entries, upserts, deletions)
        entries = apply_change(self.entries, upserts, change)
        new_leaves = leaf_digests(upserts)
        if change.replaced is not None:
            return SimpleStore(entries, self.tree.with_replaced(change.replaced, new_leaves))
        old_leaves = self.tree.levels[0][change.first :] if len(self) else np.empty((0, DIGEST_BYTES), dtype=np.uint8)
        suffix = np.concatenate([old_leaves, new_leaves]).take(change.source - change.first, axis=0)
        return SimpleStore(entries, self.tree.with_suffix(change.first, suffix))

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes."""
        return self.tree.root

    def __len__(self) -> int:
        return len(self.entries)

    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        """Return for each key how many entries come before it, and whether the entry there is its own."""
        return ranks(self.entries.keys, keys)

    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order."""
        return self.entries.take(positions)

    def leaf_ops(self, positions: Positions) -> Part:
        """Return the one LeafOp of the spec."""
        return SIMPLE_LEAF_OP

    def steps(self, positions: Positions) -> list[tuple[Part, ...]]:
        """Return the steps from leaves to the root."""
        return sibling_steps(self.tree.siblings(positions))

    def find(self, key: bytes) -> tuple[int, bool]:
        """Return how many entries come before ``key``, and whether the entry there is its own."""
        return rank(self.entries.keys, key)

    def row(self, position: int) -> Row:
        """Return the entry at ``position`` with its way to the root."""
        path: list[bytes] = []
        place = position
        for level in self.tree.levels[:-1]:
            sibling = place ^ 1
            # Without a sibling, the node moves up unchanged.
            if sibling < len(level):
                path += (STEP_LEFT if place & 1 else STEP_RIGHT, level[sibling].tobytes())
            place >>= 1
        entries = self.entries
        return Row(entries.keys[position].as_py(), entries.values[position].as_py(), SIMPLE_LEAF_OP, b"".join(path))

    def range_proof(self, first: int, last: int) -> bytes:
        """Return the encoded RangeProof of the entries at positions ``first`` to ``last``, both included.

        Raises:
            StoreError: there is no such run.
        """
        if not 0 <= first <= last < len(self):
            raise StoreError(f"no run from {first} to {last} in a store of {len(self)} entries")
        return encode_range_proof(self.entries.slice(first, last + 1), self.tree, first)
