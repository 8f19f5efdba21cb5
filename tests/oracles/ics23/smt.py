"""The sparse Merkle store of ICS-23's SmtSpec (IBC reference 2.6): the way to a leaf is the hash of its key.

A subtree with one leaf is that leaf, so a leaf stands just below where its way parts from its neighbours'; a subtree
without leaves is 32 zero bytes. Neighbours are neighbours by hashed key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, binary_rows, digest_pairs, digest_values
from causeway_proofs.ics23.entries import (
    EmptyKey,
    EmptyValue,
    Entries,
    Mask,
    Part,
    StoreError,
    place_rows,
    ranks,
    refuse_empty,
    take_values,
)
from causeway_proofs.ics23.simple_store import STEP_LEFT, STEP_RIGHT
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.merkle import LEAF_PREFIX, Positions, hash_pairs

SMT_LEAF_OP = bytes.fromhex("09 0801 1001 1801 2a0100")
"""LeafOp of SmtSpec, its length in front."""

EMPTY_CHILD = bytes(DIGEST_BYTES)

BYTE_BITS = 8


@dataclass(frozen=True, slots=True)
class Depth:
    """The nodes at one depth (the root's is 0), from left to right.

    Attributes:
        starts: position of each node's first leaf.
        digests: shape (n, 32).
        sibling: row of each node's sibling, -1 where that is empty.
    """

    starts: Positions
    digests: Digests
    sibling: Positions


class SmtStore(ProvableStore):
    """An immutable committed store, its entries in the order of their hashed keys."""

    __slots__ = ("_depths", "_leaf_depth", "_path_keys", "_root", "_ways", "entries")

    def __init__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        """Commit to two columns of equal length, in any order.

        Raises:
            EmptyKey: a key is empty.
            EmptyValue: a value is empty.
            StoreError: a key occurs twice.
        """
        if len(keys) != len(values):
            raise StoreError(f"{len(keys)} keys, but {len(values)} values")
        refuse_empty(keys, EmptyKey, "key")
        refuse_empty(values, EmptyValue, "value")
        hashed = binary_rows(digest_values(HashFunction.SHA256, keys))
        order = pc.sort_indices(hashed)
        self.entries = Entries(keys.take(order), values.take(order))
        self._path_keys = hashed.take(order)
        self._ways = np.frombuffer(self._path_keys.buffers()[2] or b"", dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        common = _common_bits(self._ways)
        if len(common) and common.max() == BYTE_BITS * DIGEST_BYTES:
            raise StoreError(f"key {self.entries.keys[int(common.argmax())].as_py().hex()} occurs twice")
        hashed_values = digest_values(HashFunction.SHA256, self.entries.values)
        leaves = digest_pairs(HashFunction.SHA256, LEAF_PREFIX, self._ways, hashed_values)
        self._leaf_depth = _leaf_depths(common, len(keys))
        self._depths, self._root = _build(self._ways, common, self._leaf_depth, leaves)

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes; that of the empty store is 32 zero bytes."""
        return self._root

    def __len__(self) -> int:
        return len(self.entries)

    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        """Return for each key how many hashed keys are less than its own, and whether its own is stored."""
        return ranks(self._path_keys, binary_rows(digest_values(HashFunction.SHA256, keys)))

    def names_of(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the hash of each key: deployed proofs of absence name what they compare."""
        return binary_rows(digest_values(HashFunction.SHA256, keys))

    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order."""
        return self.entries.take(positions)

    def leaf_ops(self, positions: Positions) -> Part:
        """Return the one LeafOp of the spec."""
        return SMT_LEAF_OP

    def steps(self, positions: Positions) -> list[tuple[Part, ...]]:
        """Return the steps from leaves to the root; rows with shorter paths have their first steps later."""
        deepest = int(self._leaf_depth[positions].max()) if len(positions) else 0
        steps: list[tuple[Part, ...]] = []
        for depth in range(deepest, 0, -1):
            present = self._leaf_depth[positions] >= depth
            inside = positions[present]
            level = self._depths[depth - 1]
            sibling = level.sibling[np.searchsorted(level.starts, inside, side="right") - 1]
            digests = level.digests.take(sibling, axis=0)
            digests[sibling < 0] = 0
            kind = np.full(len(positions), 2)
            kind[present] = 1 - _bit(self._ways, inside, depth - 1)
            steps.append((take_values([STEP_LEFT, STEP_RIGHT, b""], kind), place_rows(digests, present)))
        return steps


def _build(ways: Digests, common: Positions, leaf_depth: Positions, leaves: Digests) -> tuple[list[Depth], bytes]:
    """Return the depths from 1 on and the root; ``common`` are the bits that each leaf shares with the next."""
    if not len(leaves):
        return [], EMPTY_CHILD
    by_depth = np.argsort(leaf_depth, kind="stable")
    bounds = np.searchsorted(leaf_depth[by_depth], np.arange(int(leaf_depth.max()) + 2))
    depths: list[Depth] = []
    starts = np.empty(0, dtype=np.int64)
    digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    for depth in range(int(leaf_depth.max()), 0, -1):
        entering = by_depth[bounds[depth] : bounds[depth + 1]]
        starts = np.concatenate([starts, entering])
        order = np.argsort(starts, kind="stable")
        starts = starts[order]
        digests = np.concatenate([digests, leaves[entering]]).take(order, axis=0)
        # A node's left neighbour is its sibling when the leaves on both sides of the border agree up to the parent.
        second = np.zeros(len(starts), dtype=bool)
        second[1:] = common[starts[1:] - 1] >= depth - 1
        sibling = np.full(len(starts), -1, dtype=np.int64)
        rows = np.flatnonzero(second)
        sibling[rows], sibling[rows - 1] = rows - 1, rows
        depths.append(Depth(starts, digests, sibling))
        parent = np.cumsum(~second) - 1
        pairs = np.zeros((len(starts) - len(rows), 2, DIGEST_BYTES), dtype=np.uint8)
        pairs[parent, _bit(ways, starts, depth - 1)] = digests
        starts = starts[~second]
        digests = hash_pairs(pairs.reshape(-1, 2 * DIGEST_BYTES))
    root = digests[0] if len(digests) else leaves[0]
    return depths[::-1], root.tobytes()


def _bit(ways: Digests, positions: Positions, depth: int) -> npt.NDArray[np.int64]:
    """Return which way each leaf goes from its ancestor at ``depth``: 0 left, 1 right."""
    column = ways[positions, depth // BYTE_BITS]
    bits: npt.NDArray[np.int64] = (column >> (BYTE_BITS - 1 - depth % BYTE_BITS) & 1).astype(np.int64)
    return bits


def _common_bits(ways: Digests) -> Positions:
    """Return how many leading bits each row shares with the next, shape (n - 1,)."""
    different = ways[1:] ^ ways[:-1]
    place = (different != 0).argmax(axis=1) if len(different) else np.empty(0, dtype=np.int64)
    byte = different[np.arange(len(different)), place]
    leading = BYTE_BITS - np.ceil(np.log2(byte.astype(np.float64) + 1)).astype(np.int64)
    return np.where(byte == 0, BYTE_BITS * DIGEST_BYTES, BYTE_BITS * place + leading)


def _leaf_depths(common: Positions, count: int) -> Positions:
    """Return the depth of each leaf: one more than the bits it shares with the nearer of its neighbours."""
    if count < 2:
        return np.zeros(count, dtype=np.int64)
    edge = np.array([-1])
    depths: Positions = 1 + np.maximum(np.concatenate([edge, common]), np.concatenate([common, edge]))
    return depths
