"""The IAVL store: versions of an IAVL+ tree, each with its root and its proofs (IBC reference 2.6).

A node's hash is over its height, size and version, the version being the one whose commit last changed it; then over a
leaf's key and value digest, or an inner node's two children. Every commit makes a version, the first one version 1.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, binary_rows, digest_chunks, digest_values
from causeway_proofs.ics23.entries import (
    Entries,
    Mask,
    Part,
    StoreError,
    UnknownKey,
    concat_columns,
    place_values,
    prefix_lengths,
    require_ascending,
    take_values,
    uvarints,
    value_lengths,
)
from causeway_proofs.ics23.store_proofs import INNER_HEAD, PATH, ProvableStore
from causeway_proofs.merkle import EMPTY_ROOT, Positions
from causeway_proofs.varints import uvarint

from tests.oracles.ics23.iavl_bulk import ascending_tree
from tests.oracles.ics23.iavl_tree import NONE, IavlEditor, IavlNodes

CHILD_HEAD = bytes([DIGEST_BYTES])
"""The length byte in front of every digest in a node."""

LEAF_OP_HEAD = bytes.fromhex("0801 1801 2001 2a")
"""LeafOp of IavlSpec up to its prefix: hash SHA256, prehash of the value SHA256, length VAR_PROTO."""

LEAF_HEIGHT_AND_SIZE = b"\x00\x02"

RIGHT_SIBLING = CHILD_HEAD + b"\x1a\x21" + CHILD_HEAD
"""Between a prefix's numbers and a right sibling: the child's length byte, then the suffix with the sibling's."""


def varints(values: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return each value (not negative) as a signed varint: zigzag, so twice the value."""
    return uvarints(values.astype(np.uint64) << np.uint64(1))


class ConflictingChange(StoreError):
    """One update both sets and deletes a key."""


class IavlStore:
    """All versions of one tree that are kept; for one thread at a time, its versions included.

    Attributes:
        version: the last committed version, 0 before the first commit.
    """

    __slots__ = ("_digests", "_nodes", "_roots", "version")

    def __init__(self) -> None:
        self._nodes = IavlNodes()
        self._digests: Digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)
        self._roots: dict[int, int] = {0: NONE}
        self.version = 0

    def commit(self, upserts: Entries, deletions: pa.BinaryArray) -> IavlVersion:
        """Set ``upserts`` and delete ``deletions`` (strictly ascending), in one ascending order of keys, and commit.

        The shape of an AVL tree depends on the order of changes; ascending is the order in which deployed chains write
        what a block has changed.

        Raises:
            UnknownKey: a key to delete is not there.
            ConflictingChange: a key is both set and deleted.
            UnsortedKeys: ``deletions`` are not strictly ascending.
        """
        committed = len(self._nodes)
        root = self._roots[self.version]
        require_ascending(deletions)
        if root == NONE and len(upserts) and not len(deletions):
            root = ascending_tree(self._nodes, upserts)
        else:
            root = self._edited(root, upserts, deletions.to_pylist())
        self.version += 1
        self._roots[self.version] = root
        self._finish(root, committed)
        return self.at(self.version)

    def at(self, version: int) -> IavlVersion:
        """Return a committed version (0 is the empty store).

        Raises:
            StoreError: it is not kept, or was never committed.
        """
        if version not in self._roots:
            raise StoreError(
                f"version {version} is not kept: the oldest is {min(self._roots)}, the last {self.version}"
            )
        return IavlVersion(self._nodes, self._digests, self._roots[version], version)

    def forget_before(self, version: int) -> None:
        """Forget the versions before ``version`` and the nodes of theirs alone; versions already returned stay valid.

        Raises:
            StoreError: ``version`` is not kept.
        """
        self.at(version)
        self._roots = {number: root for number, root in self._roots.items() if number >= version}
        old = self._nodes
        kept = np.zeros(len(old), dtype=bool)
        left, right, height = _view(old.left), _view(old.right), _view(old.height)
        frontier = np.unique(np.array([root for root in self._roots.values() if root != NONE], dtype=np.int64))
        while len(frontier):
            kept[frontier] = True
            inner = frontier[height[frontier] > 0]
            children = np.unique(np.concatenate([left[inner], right[inner]]))
            frontier = children[~kept[children]]
        rows = np.flatnonzero(kept)
        entries = np.unique(_view(old.entry)[rows])
        number = np.cumsum(kept) - 1
        new = IavlNodes()
        new.keys = [old.keys[entry] for entry in entries]
        new.values = [old.values[entry] for entry in entries]
        is_inner = height[rows] > 0
        for column, values in (
            (new.left, np.where(is_inner, number[left[rows]], NONE)),
            (new.right, np.where(is_inner, number[right[rows]], NONE)),
            (new.height, height[rows]),
            (new.entry, np.searchsorted(entries, _view(old.entry)[rows])),
            (new.size, _view(old.size)[rows]),
            (new.version, _view(old.version)[rows]),
        ):
            column.frombytes(values.tobytes())
        self._nodes = new
        self._digests = self._digests[rows]
        self._roots = {n: int(number[root]) if root != NONE else NONE for n, root in self._roots.items()}

    def _edited(self, root: int, upserts: Entries, deletions: list[bytes]) -> int:
        keys = upserts.keys.to_pylist()
        both = set(keys).intersection(deletions)
        if both:
            raise ConflictingChange(f"key {min(both).hex()} is both set and deleted")
        for key in deletions:
            if self._nodes.find(root, key) == NONE:
                raise UnknownKey(f"key {key.hex()} is to be deleted and not there")
        editor = IavlEditor(self._nodes, root)
        if not deletions:
            for key, value in zip(keys, upserts.values.to_pylist(), strict=True):
                editor.set(key, value)
            return editor.root
        changes: list[tuple[bytes, bytes | None]] = list(zip(keys, upserts.values.to_pylist(), strict=True))
        changes += [(key, None) for key in deletions]
        changes.sort()
        for key, value in changes:
            if value is None:
                editor.delete(key)
            else:
                editor.set(key, value)
        return editor.root

    def _finish(self, root: int, committed: int) -> None:
        """Give the nodes of the new version that no earlier one has their size, version and digest, leaves first."""
        nodes = self._nodes
        if len(nodes) > len(self._digests):
            digests = np.empty((max(len(nodes), 2 * len(self._digests)), DIGEST_BYTES), dtype=np.uint8)
            digests[:committed] = self._digests[:committed]
            self._digests = digests
        left, right, height = _view(nodes.left), _view(nodes.right), _view(nodes.height)
        size, version = _view(nodes.size), _view(nodes.version)
        fresh = []
        frontier = np.array([root] if root >= committed else [], dtype=np.int64)
        while len(frontier):
            fresh.append(frontier)
            inner = frontier[height[frontier] > 0]
            children = np.concatenate([left[inner], right[inner]])
            frontier = children[children >= committed]
        if not fresh:
            return
        rows = np.concatenate(fresh)
        heights = height[rows]
        version[rows] = self.version
        leaves = np.sort(rows[heights == 0])
        self._digests[leaves] = self._leaf_digests(leaves)
        for level in np.unique(heights[heights > 0]).tolist():
            inner = np.sort(rows[heights == level])
            size[inner] = size[left[inner]] + size[right[inner]]
            self._digests[inner] = self._inner_digests(level, size[inner], left[inner], right[inner])

    def _leaf_digests(self, leaves: Positions) -> Digests:
        nodes = self._nodes
        rows = _view(nodes.entry)[leaves].tolist()
        keys = pa.array([nodes.keys[row] for row in rows], pa.binary())
        values = pa.array([nodes.values[row] for row in rows], pa.binary())
        head = LEAF_HEIGHT_AND_SIZE + uvarint(2 * self.version)

        def preimages(start: int, stop: int) -> pa.BinaryArray:
            hashed = binary_rows(digest_values(HashFunction.SHA256, values[start:stop]))
            return concat_columns(head, *prefix_lengths(keys[start:stop]), CHILD_HEAD, hashed)

        return digest_chunks(HashFunction.SHA256, len(leaves), preimages)

    def _inner_digests(self, height: int, size: Positions, left: Positions, right: Positions) -> Digests:
        head, version = uvarint(2 * height), uvarint(2 * self.version)

        def preimages(start: int, stop: int) -> pa.BinaryArray:
            children = np.empty((stop - start, 2, 1 + DIGEST_BYTES), dtype=np.uint8)
            children[:, :, 0] = DIGEST_BYTES
            children[:, 0, 1:] = self._digests.take(left[start:stop], axis=0)
            children[:, 1, 1:] = self._digests.take(right[start:stop], axis=0)
            return concat_columns(
                head, varints(size[start:stop]), version, binary_rows(children.reshape(stop - start, -1))
            )

        return digest_chunks(HashFunction.SHA256, len(size), preimages)


class IavlVersion(ProvableStore):
    """A committed version of a tree; it stays as it is whatever is committed later.

    Attributes:
        version: its number.
    """

    __slots__ = ("_digests", "_nodes", "_root", "version")

    def __init__(self, nodes: IavlNodes, digests: Digests, root: int, version: int) -> None:
        self._nodes = nodes
        self._digests = digests
        self._root = root
        self.version = version

    @property
    def root(self) -> bytes:
        """Return the root, 32 bytes; that of the empty tree is SHA-256 of nothing."""
        return EMPTY_ROOT if self._root == NONE else self._digests[self._root].tobytes()

    @property
    def height(self) -> int:
        """Return the number of steps of the longest path."""
        return 0 if self._root == NONE else self._nodes.height[self._root]

    def __len__(self) -> int:
        return 0 if self._root == NONE else self._nodes.size[self._root]

    def locate(self, keys: pa.BinaryArray) -> tuple[Positions, Mask]:
        """Return for each key how many entries come before it, and whether the entry there is its own."""
        places, there = np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
        for row, key in enumerate(keys.to_pylist()):
            places[row], there[row] = self.find(key)
        return places, there

    def find(self, key: bytes) -> tuple[int, bool]:
        """Return how many entries come before ``key``, and whether the entry there is its own."""
        nodes = self._nodes
        if self._root == NONE:
            return 0, False
        node, place = self._root, 0
        while nodes.height[node]:
            if key < nodes.keys[nodes.entry[node]]:
                node = nodes.left[node]
            else:
                place += nodes.size[nodes.left[node]]
                node = nodes.right[node]
        here = nodes.keys[nodes.entry[node]]
        return place + (here < key), here == key

    def entries_at(self, positions: Positions) -> Entries:
        """Return the entries at ``positions``, in that order."""
        nodes = self._nodes
        rows = _view(nodes.entry)[self._leaves(positions)].tolist() if len(positions) else []
        return Entries(
            pa.array([nodes.keys[row] for row in rows], pa.binary()),
            pa.array([nodes.values[row] for row in rows], pa.binary()),
        )

    def leaf_ops(self, positions: Positions) -> Part:
        """Return the leaves' LeafOps, which differ in the version at the end of the prefix."""
        version = varints(_view(self._nodes.version)[self._leaves(positions)] if len(positions) else positions)
        prefix_length = value_lengths(version) + len(LEAF_HEIGHT_AND_SIZE)
        return concat_columns(
            binary_rows((prefix_length + len(LEAF_OP_HEAD) + 1).astype(np.uint8).reshape(-1, 1)),
            LEAF_OP_HEAD,
            binary_rows(prefix_length.astype(np.uint8).reshape(-1, 1)),
            LEAF_HEIGHT_AND_SIZE,
            version,
        )

    def steps(self, positions: Positions) -> list[tuple[Part, ...]]:
        """Return the steps from leaves to the root; rows with shorter paths have their first steps later."""
        descent, _ = self._descent(positions)
        return [(self._step_fields(*step),) for step in reversed(descent)]

    def _leaves(self, positions: Positions) -> Positions:
        return self._descent(positions)[1]

    def _descent(self, positions: Positions) -> tuple[list[tuple[Positions, Mask, Mask]], Positions]:
        """Return (node, whether the way goes right, whether it goes on) of each depth, and the leaves."""
        if not len(positions):
            return [], positions
        nodes = self._nodes
        left, right, height, size = (_view(c) for c in (nodes.left, nodes.right, nodes.height, nodes.size))
        node = np.full(len(positions), self._root, dtype=np.int64)
        remaining = positions.astype(np.int64)
        descent: list[tuple[Positions, Mask, Mask]] = []
        while True:
            inner = height[node] > 0
            if not inner.any():
                return descent, node
            child = left[node]
            passed = np.where(inner, size[child], 0)
            goes_right = inner & (remaining >= passed)
            descent.append((node, goes_right, inner))
            remaining = np.where(goes_right, remaining - passed, remaining)
            node = np.where(inner, np.where(goes_right, right[node], child), node)

    def _step_fields(self, node: Positions, goes_right: Mask, present: Mask) -> pa.BinaryArray:
        """Return the ``path`` fields of one step, empty where it is not ``present``."""
        nodes = self._nodes
        node, goes_right = node[present], goes_right[present]
        numbers = concat_columns(
            *(varints(_view(column)[node]) for column in (nodes.height, nodes.size, nodes.version))
        )
        prefix_length = value_lengths(numbers) + np.where(goes_right, 2 + DIGEST_BYTES, 1)
        suffix_length = np.where(goes_right, 0, 3 + DIGEST_BYTES)
        head = np.empty((len(node), 6), dtype=np.uint8)
        head[:, 0] = PATH[0]
        head[:, 1] = len(INNER_HEAD) + 1 + prefix_length + suffix_length
        head[:, 2:5] = np.frombuffer(INNER_HEAD, dtype=np.uint8)
        head[:, 5] = prefix_length
        sibling = np.where(goes_right, _view(nodes.left)[node], _view(nodes.right)[node])
        side = goes_right.astype(np.int64)
        fields = concat_columns(
            binary_rows(head),
            numbers,
            take_values([RIGHT_SIBLING, CHILD_HEAD], side),
            binary_rows(self._digests.take(sibling, axis=0)),
            take_values([b"", CHILD_HEAD], side),
        )
        return place_values(fields, present)


def _view(column: array[int]) -> npt.NDArray[Any]:
    """Return a column of nodes as NumPy array; while it is held, no node can be added."""
    return np.frombuffer(column, dtype=np.dtype(column.typecode))
