"""A trie that is kept: built in bulk by columns, then changed entry by entry, proved at any time.

A node is either a number in the columns that the trie was built from, or an object of its own. A change takes the
nodes on its path out of the columns (or out of what a snapshot shares) and forgets their references; the next root
hashes those and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.proofs.substrate.byte_columns import byte_column
from causeway.proofs.substrate.columns import TrieColumns, build_columns, sorted_entries
from causeway.proofs.substrate.hashing import blake2_256
from causeway.proofs.substrate.nibbles import MAX_KEY_BYTES, common_length, from_nibbles, to_nibbles
from causeway.proofs.substrate.node import EMPTY_ROOT, WIDTH, StateVersion, encode_node, reference_of

REBUILD_SHARE = 20
"""From one changed entry in this many on, the trie is rebuilt by columns, which is that much faster."""

REBUILD_LEAST = 512
"""Below this many changes the columns' fixed cost is not worth it."""


class TrieNode:
    """A node outside the columns: ``owner`` is the trie that may change it, ``reference`` None while it is unknown."""

    __slots__ = ("children", "owner", "partial", "reference", "value")

    def __init__(self, owner: object, partial: bytes, value: bytes | None, children: list[Link | None] | None) -> None:
        self.owner = owner
        self.partial = partial
        self.value = value
        self.children = children
        self.reference: bytes | None = None


Link = int | TrieNode
"""Where a node is: its number in the columns, or itself."""


class Trie:
    """The entries of a state or a queue under one root.

    ``version`` is the layout: V0 keeps values in their nodes, V1 those of 33 bytes and more by their hash.
    """

    def __init__(self, version: StateVersion = StateVersion.V1) -> None:
        self.version = StateVersion(version)
        self._columns: TrieColumns | None = None
        self._root: Link | None = None
        self._count = 0
        self._owner = object()

    @classmethod
    def build(
        cls,
        keys: pa.Array | Iterable[bytes],
        values: pa.Array | Iterable[bytes],
        version: StateVersion = StateVersion.V1,
    ) -> Trie:
        """Return the trie of the entries; of entries with the same key, the last one given.

        Raises:
            InvalidInput: a null, more keys than values or the other way round, or a key of more than 32,767 bytes.
        """
        trie = cls(version)
        trie._rebuild(byte_column(keys), byte_column(values))
        return trie

    def __len__(self) -> int:
        return self._count

    def snapshot(self) -> Trie:
        """Return a trie with the same entries that does not change when this one does; nothing is copied."""
        same = Trie(self.version)
        same._columns, same._root, same._count = self._columns, self._root, self._count
        # From now on the nodes belong to neither, so either copies those that it changes.
        self._owner = object()
        return same

    @property
    def root(self) -> bytes:
        """The root of the entries: 32 bytes."""
        if self._root is None:
            return EMPTY_ROOT
        reference = self.reference(self._root)
        return reference if len(reference) == len(EMPTY_ROOT) else blake2_256(reference)

    def walk(self, key: bytes) -> tuple[list[Link], bytes | None]:
        """Return the nodes that a read of ``key`` visits, from the root down, and its value (None: there is none)."""
        nibbles, done, visited, link = to_nibbles(key), 0, [], self._root
        while link is not None:
            visited.append(link)
            partial, value, children = self.parts(link)
            if nibbles[done : done + len(partial)] != partial:
                break
            done += len(partial)
            if done == len(nibbles):
                return visited, value
            link = None if children is None else children[nibbles[done]]
            done += 1
        return visited, None

    def get(self, key: bytes) -> bytes | None:
        """Return the value under ``key``, None where there is none."""
        return self.walk(key)[1]

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose keys start with ``prefix``, in ascending order of the keys."""
        for run in self._runs(prefix):
            if isinstance(run, range):
                assert self._columns is not None
                for row in run:
                    yield self._columns.key(row), self._columns.value(row)
            else:
                yield run

    def insert(self, key: bytes, value: bytes) -> None:
        """Store ``value`` under ``key``, in place of what was there.

        Raises:
            InvalidInput: the key has more than 32,767 bytes.
        """
        if len(key) > MAX_KEY_BYTES:
            raise InvalidInput(f"a key has {len(key)} bytes, at most {MAX_KEY_BYTES} are allowed")
        nibbles, done = to_nibbles(key), 0
        parent, position, link = None, 0, self._root
        while link is not None:
            node = self._own(link, parent, position)
            common = common_length(node.partial, nibbles[done : done + len(node.partial)])
            if common < len(node.partial):
                node = self._split(node, common, parent, position)
            done += common
            if done == len(nibbles):
                self._count += node.value is None
                node.value = value
                return
            if node.children is None:
                node.children = [None] * WIDTH
            parent, position = node, nibbles[done]
            link = node.children[position]
            done += 1
        self._attach(TrieNode(self._owner, nibbles[done:], value, None), parent, position)
        self._count += 1

    def delete(self, key: bytes) -> bool:
        """Remove the entry of ``key``; return whether there was one."""
        if self.get(key) is None:
            return False
        path = self._own_path(to_nibbles(key))
        path[-1][0].value = None
        self._close_up(path)
        self._count -= 1
        return True

    def clear_prefix(self, prefix: bytes) -> int:
        """Remove all entries whose keys start with ``prefix``; return how many there were."""
        removed = sum(len(run) if isinstance(run, range) else 1 for run in self._runs(prefix))
        if removed:
            path = self._own_path(to_nibbles(prefix))
            path[-1][0].value, path[-1][0].children = None, None
            self._close_up(path)
            self._count -= removed
        return removed

    def update(self, keys: pa.Array | Iterable[bytes], values: pa.Array | Iterable[bytes]) -> None:
        """Store many entries: one by one while they are few, by a rebuild when they are many.

        Raises:
            InvalidInput: as for ``build``.
        """
        keys, values = byte_column(keys), byte_column(values)
        if len(keys) != len(values) or self._are_many(len(keys)):
            self._rebuild(keys, values)
            return
        for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
            self.insert(key, value)

    def remove(self, keys: pa.Array | Iterable[bytes]) -> int:
        """Remove the entries of many keys, as ``update`` stores them; return how many there were.

        Raises:
            InvalidInput: a key is null or no byte string.
        """
        before, keys = self._count, byte_column(keys)
        if self._are_many(len(keys)):
            self._rebuild(byte_column([]), byte_column([]), without=keys)
        else:
            for key in keys.to_pylist():
                self.delete(key)
        return before - self._count

    def parts(self, link: Link) -> tuple[bytes, bytes | None, list[Link | None] | None]:
        """Return a node's partial key (nibbles, one a byte), its value, and its children by nibble."""
        if isinstance(link, TrieNode):
            return link.partial, link.value, link.children
        assert self._columns is not None
        partial, value, children = self._columns.parts(link)
        return partial, value, None if children is None else list(children)

    def reference(self, link: Link) -> bytes:
        """Return how a parent refers to a node: a digest, or its encoding if that has fewer than 32 bytes."""
        if isinstance(link, int):
            assert self._columns is not None
            return self._columns.reference(link)
        self._settle(link)
        assert link.reference is not None
        return link.reference

    def encoding(self, link: Link) -> bytes:
        """Return the encoding of a node."""
        if isinstance(link, int):
            assert self._columns is not None
            return self._columns.encoding(link)
        children = link.children
        below = None if children is None else [None if child is None else self.reference(child) for child in children]
        return encode_node(link.partial, link.value, below, self.version)

    def _settle(self, top: TrieNode) -> None:
        """Find the references of all nodes from ``top`` down that have none, children first."""
        stack = [top]
        while stack:
            node = stack[-1]
            if node.reference is None:
                children = node.children or ()
                open_ones = [child for child in children if isinstance(child, TrieNode) and child.reference is None]
                if open_ones:
                    stack.extend(open_ones)
                    continue
                node.reference = reference_of(self.encoding(node))
            stack.pop()

    def _own(self, link: Link, parent: TrieNode | None, position: int) -> TrieNode:
        """Return a node as one that may be changed, and whose reference is unknown from now on."""
        if isinstance(link, TrieNode) and link.owner is self._owner:
            link.reference = None
            return link
        partial, value, children = self.parts(link)
        node = TrieNode(self._owner, partial, value, None if children is None else list(children))
        self._attach(node, parent, position)
        return node

    def _attach(self, node: Link | None, parent: TrieNode | None, position: int) -> None:
        if parent is None:
            self._root = node
        else:
            assert parent.children is not None
            parent.children[position] = node

    def _split(self, node: TrieNode, common: int, parent: TrieNode | None, position: int) -> TrieNode:
        """Return a new branch where ``node``'s partial key parts after ``common`` nibbles; ``node`` hangs below it."""
        children: list[Link | None] = [None] * WIDTH
        children[node.partial[common]] = node
        branch = TrieNode(self._owner, node.partial[:common], None, children)
        node.partial = node.partial[common + 1 :]
        self._attach(branch, parent, position)
        return branch

    def _own_path(self, nibbles: bytes) -> list[tuple[TrieNode, TrieNode | None, int]]:
        """Return the nodes down to the first one at or below ``nibbles``, each with its parent and position there."""
        path: list[tuple[TrieNode, TrieNode | None, int]] = []
        parent, position, link, done = None, 0, self._root, 0
        while True:
            assert link is not None
            node = self._own(link, parent, position)
            path.append((node, parent, position))
            done += len(node.partial)
            if done >= len(nibbles):
                return path
            assert node.children is not None
            parent, position = node, nibbles[done]
            link = node.children[position]
            done += 1

    def _close_up(self, path: list[tuple[TrieNode, TrieNode | None, int]]) -> None:
        """Take away nodes that have no reason to be any more, from the end of ``path`` upwards."""
        for node, parent, position in reversed(path):
            below = [nibble for nibble, child in enumerate(node.children or ()) if child is not None]
            if node.value is not None:
                if not below:
                    node.children = None
                return
            if len(below) > 1:
                return
            if below:
                assert node.children is not None
                only = node.children[below[0]]
                assert only is not None
                child = self._own(only, node, below[0])
                child.partial = node.partial + bytes(below) + child.partial
                self._attach(child, parent, position)
                return
            self._attach(None, parent, position)

    def _runs(self, prefix: bytes) -> Iterator[range | tuple[bytes, bytes]]:
        """Yield the entries under ``prefix``: rows of the columns in runs, others one by one; ascending by key."""
        wanted = to_nibbles(prefix)
        stack: list[tuple[Link, bytes]] = [] if self._root is None else [(self._root, b"")]
        while stack:
            link, path = stack.pop()
            if path[: len(wanted)] != wanted[: len(path)]:
                continue
            if isinstance(link, int) and len(path) >= len(wanted):
                assert self._columns is not None
                shape = self._columns.shape
                yield range(int(shape.first_keys[link]), int(shape.last_keys[link]) + 1)
                continue
            partial, value, children = self.parts(link)
            path += partial
            if path[: len(wanted)] != wanted[: len(path)]:
                continue
            if value is not None and len(path) >= len(wanted):
                yield from_nibbles(path), value
            below = [
                (child, path + bytes([nibble])) for nibble, child in enumerate(children or ()) if child is not None
            ]
            stack.extend(reversed(below))

    def _are_many(self, changes: int) -> bool:
        return changes >= max(REBUILD_LEAST, self._count // REBUILD_SHARE)

    def _rebuild(
        self, keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray, without: pa.LargeBinaryArray | None = None
    ) -> None:
        """Build the columns of the stored entries ``without`` some keys, and of ``keys`` with ``values`` after them."""
        parts = list(self._column_parts())
        if parts:
            old_keys = pa.concat_arrays([part[0] for part in parts])
            old_values = pa.concat_arrays([part[1] for part in parts])
            if without is not None:
                kept = pc.invert(pc.is_in(old_keys, value_set=without))
                old_keys, old_values = old_keys.filter(kept), old_values.filter(kept)
            if len(keys) or len(values):
                old_keys, old_values = pa.concat_arrays([old_keys, keys]), pa.concat_arrays([old_values, values])
            keys, values = old_keys, old_values
        keys, values = sorted_entries(keys, values)
        self._count = len(keys)
        self._columns = build_columns(keys, values, self.version) if len(keys) else None
        self._root = None if self._columns is None else int(self._columns.shape.roots[0])

    def _column_parts(self) -> Iterator[tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]]:
        """Yield the entries as columns, ascending by key."""
        single: list[tuple[bytes, bytes]] = []
        for run in self._runs(b""):
            if not isinstance(run, range):
                single.append(run)
                continue
            if single:
                yield byte_column([key for key, _ in single]), byte_column([value for _, value in single])
                single = []
            assert self._columns is not None
            yield self._columns.keys[run.start : run.stop], self._columns.values[run.start : run.stop]
        if single:
            yield byte_column([key for key, _ in single]), byte_column([value for _, value in single])
