"""The simple store: entries sorted by key under a tree of RFC 6962, ICS-23's TendermintSpec (IBC reference 2.6)."""

from __future__ import annotations

import pyarrow as pa

from causeway.proofs.hashing import Digests
from causeway.proofs.ics23.columns import Mask, Part, choice, sparse
from causeway.proofs.ics23.entries import Entries, StoreError, ranks
from causeway.proofs.ics23.levels import Levels, Positions
from causeway.proofs.ics23.range_proof import encode_range_proof
from causeway.proofs.ics23.simple_leaves import leaf_digests
from causeway.proofs.ics23.store_proofs import INNER_HEAD, PATH, SUFFIX, ProvableStore

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


class SimpleStore(ProvableStore):
    """An immutable committed store.

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

    def range_proof(self, first: int, last: int) -> bytes:
        """Return the encoded RangeProof of the entries at positions ``first`` to ``last``, both included.

        Raises:
            StoreError: there is no such run.
        """
        if not 0 <= first <= last < len(self):
            raise StoreError(f"no run from {first} to {last} in a store of {len(self)} entries")
        return encode_range_proof(self.entries.slice(first, last + 1), self.tree, first)
