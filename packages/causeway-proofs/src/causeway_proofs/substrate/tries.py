"""Store many tries in one set of columns, with bulk changes, reads and proofs.

A change touches only the nodes on its path. Touched nodes are encoded and hashed at the end of the update, bottom-up. A
copy of a trie shares its nodes; either copies a node before changing it.

**Heap.** Keys and values of entries are stored consecutively, in insertion order. Released entries leave holes. If
messages come and go in order, most holes are adjacent: such a window is reused and its few live entries are moved.
Without such a window, all entries are packed into another heap.

**Order.** Byte strings in columns are sorted by group, then byte by byte, eight bytes at a time.

Reference:
    XDM reference 2.4, ICMP reference 2.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.arrays import integer_array
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_slices
from causeway_proofs.order import Rows, stable_order
from causeway_proofs.substrate import trie_arena as layout
from causeway_proofs.substrate.byte_columns import (
    byte_column,
    column_data,
    column_from_buffers,
    column_offsets,
    offsets_from_lengths,
)
from causeway_proofs.substrate.node import EMPTY_ROOT, HASHED_VALUE_BYTES, MAX_KEY_BYTES, StateVersion
from causeway_proofs.substrate.trie_arena import Arena, empty_arena, with_entries, with_nodes, with_tries

SMALL_HEAP = 1 << 20
"""Bytes below which a full heap is packed as a whole."""

STRETCHES = 1 << 12
LEAST_WINDOW = 8
"""Number of segments in which live bytes of a larger heap are counted.

A window is at least one segment.

Finding a window scans all entries.
"""


def with_heap(arena: Arena, stop: int, heap_bytes: int) -> tuple[Arena, int]:
    """Make room for ``heap_bytes`` behind ``HEAP_END``; return the arena and the room's end.

    ``stop`` is the previous end.
    """
    from causeway_proofs.substrate import trie_node_loops

    if int(arena.counters[layout.HEAP_END]) + heap_bytes <= stop:
        return arena, stop
    if len(arena.heap) >= SMALL_HEAP and (window := _emptied_window(arena, heap_bytes)) is not None:
        return arena, window
    live = int(arena.counters[layout.LIVE_BYTES])
    heap = np.empty(live + live // 2 + heap_bytes + heap_bytes // 2, dtype=np.uint8)
    trie_node_loops.repack(arena, heap)
    return arena._replace(heap=heap), len(heap)


def _emptied_window(arena: Arena, heap_bytes: int) -> int | None:
    """Direct new entries to a mostly released window; return its end, or None."""
    from causeway_proofs.substrate import trie_node_loops

    size = len(arena.heap)
    stretch = size // STRETCHES + 1
    many = -(-max(2 * heap_bytes, size // LEAST_WINDOW) // stretch)
    live_sizes = np.zeros(-(-size // stretch), dtype=np.int64)
    if many >= len(live_sizes):
        return None
    trie_node_loops.count_live_bytes(arena, stretch, live_sizes)
    sums = np.concatenate([[0], np.cumsum(live_sizes)])
    first = int(np.argmin(sums[many:] - sums[:-many])) * stretch
    stop = min(first + many * stretch, size)
    found = np.empty(2, dtype=np.int64)
    trie_node_loops.measure_window(arena, first, stop, found)
    start, count = found.tolist()
    if 2 * count > stop - first or start + count + heap_bytes > stop:
        return None
    trie_node_loops.pack_window(arena, first, stop, start, np.empty(count, dtype=np.uint8))
    return stop


_ROUNDS = 3
"""Rounds of word sorting after the common prefix, before strings are merged singly."""


def ascending_order(groups: Rows, column: pa.LargeBinaryArray) -> Rows | None:
    """Return the rows ascending by group (non-negative), then by string, ties in row order.

    Returns None if the rows ascend already.
    """
    from causeway_proofs.substrate import byte_loops

    data, offsets, count = column_data(column), column_offsets(column), len(column)
    if byte_loops.is_ascending(groups, data, offsets):
        return None
    order = stable_order(groups.view(np.uint64))
    known, words, runs = np.empty(count, np.int64), np.empty(count, np.uint64), np.empty(count, np.int64)
    for _ in range(_ROUNDS):
        byte_loops.read_next_words(groups, data, offsets, order, known, words)
        order = stable_order(groups.view(np.uint64), words)
        found = byte_loops.number_runs(groups, words, order, runs)
        groups, runs = runs, np.empty(count, np.int64)
        if found == count:
            return order
    byte_loops.merge_runs(groups, data, offsets, known, order, np.empty(count, np.int64))
    return order


PIECE = 1 << 14
"""Nodes encoded at a time, so that encodings stay in the cache until hashed."""

_CLOSED = 0xFF
"""Version code of a closed trie."""


@dataclass(frozen=True, slots=True)
class KeyVisits:
    """The nodes and entries on the paths of keys.

    Attributes:
        counts: for each key, separately encoded nodes on its path; 0 for an empty trie.
        nodes: numbers of those nodes, key by key, root first.
        entries: entry number of each key, -1 if absent.
        stored_by_hash: True if the value is stored by hash.
    """

    counts: Rows
    nodes: Rows
    entries: Rows
    stored_by_hash: npt.NDArray[np.bool_]


class Tries:
    """Tries numbered from 0, each with a layout ``version``.

    V0 stores values in their nodes, V1 stores those of 33 bytes and more by hash. Not thread-safe. Trie numbers are
    int64 arrays, ``keys`` and ``values`` byte columns, ``roots`` has shape (n, 32).
    """

    def __init__(self) -> None:
        self._arena = empty_arena()
        self._heap_stop = 0
        self._versions = np.empty(0, dtype=np.uint8)
        self._closed: list[int] = []
        self._unused: deque[int] = deque()

    def open(self, count: int, version: StateVersion = StateVersion.V1) -> Rows:
        """Create ``count`` empty tries.

        Args:
            count: number of tries.
            version: their layout.

        Returns:
            Their numbers.

        Raises:
            InvalidInput: the layout is unknown, or the count is negative.
        """
        if count < 0 or version not in tuple(StateVersion):
            raise InvalidInput(f"{count} tries of layout {version}: no fewer than 0, of layout 0 or 1, can be opened")
        self._close_unused()
        again = [self._closed.pop() for _ in range(min(count, len(self._closed)))]
        have, fresh = len(self._versions), count - len(again)
        self._arena = with_tries(self._arena, fresh)
        self._versions = np.concatenate([self._versions, np.empty(fresh, dtype=np.uint8)])
        numbers = np.array([*again, *range(have, have + fresh)], dtype=np.int64)
        self._versions[numbers] = version
        return numbers

    def copy(self, tries: Rows) -> Rows:
        """Create tries with the entries of ``tries``, copying only their roots.

        Args:
            tries: trie numbers.

        Returns:
            The new numbers.
        """
        from causeway_proofs.substrate import trie_loops

        tries = self._known(tries)
        copies = self.open(len(tries))
        self._versions[copies] = self._versions[tries]
        trie_loops.share(self._arena, tries, copies)
        return copies

    def close(self, tries: Rows) -> None:
        """Release tries and the nodes that no other trie shares; the numbers are reused.

        Args:
            tries: trie numbers.
        """
        from causeway_proofs.substrate import trie_loops

        tries = self._known(tries)
        trie_loops.release_tries(self._arena, tries)
        trie_loops.free_dead(self._arena)
        self._versions[tries] = _CLOSED
        self._closed.extend(np.unique(tries).tolist())

    def release_later(self, trie: int) -> None:
        """Release a trie at the next opening or change of tries; callable at any moment.

        Args:
            trie: the trie's number.
        """
        self._unused.append(trie)

    def count(self, trie: int) -> int:
        """Return the number of entries of a trie.

        Args:
            trie: the trie's number.

        Returns:
            The number of entries.
        """
        return int(self._arena.counts[self._known([trie])[0]])

    @property
    def live_nodes(self) -> int:
        """Nodes of all tries, shared ones counted once."""
        return int(self._arena.counters[layout.USED_NODES])

    @property
    def live_entries(self) -> int:
        """Entries of all tries, shared ones counted once."""
        arena = self._arena
        return int((arena.entries[: arena.counters[layout.ENTRIES], layout.ENTRY_HOLDERS] > 0).sum())

    @property
    def live_bytes(self) -> int:
        """Bytes of the nodes and entries of all tries, with keys and values."""
        arena = self._arena
        node = sum(column[:1].nbytes for column in (arena.nodes, arena.references, arena.reference_bytes, arena.dirty))
        rows = self.live_nodes * node + self.live_entries * arena.entries[:1].nbytes
        blocks = int(arena.counters[layout.USED_BLOCKS]) * arena.children[:1].nbytes
        return rows + blocks + int(arena.counters[layout.LIVE_BYTES])

    def update(
        self, tries: Rows | int, keys: pa.Array | Iterable[bytes], values: pa.Array | Iterable[bytes | None]
    ) -> None:
        """Store each value under its key in its trie; a null value removes the key.

        Rows ascending by trie and then by key are processed in place, others are sorted first. The last of several
        changes of one key wins. Writing an equal value or removing an absent key changes nothing. An interrupted
        update, as by exhausted memory, may apply some of the changes; every root still matches its entries.

        Args:
            tries: trie number of each row, or one for all.
            keys: key of each row.
            values: value of each row, null to remove the key.

        Raises:
            InvalidInput: a trie number is unknown, a key is null or exceeds 32,767 bytes, a key or value is not a byte
                string, or lengths differ.
        """
        from causeway_proofs.substrate import trie_loops

        self._close_unused()
        numbers, keys = self._with_keys(tries, keys)
        values = byte_column(values, nulls=True)
        if len(keys) != len(values):
            raise InvalidInput(f"{len(keys)} keys are given with {len(values)} values, the same number is needed")
        if not len(keys):
            return
        order = ascending_order(numbers, keys)
        if order is not None:
            rows = pa.array(order)
            numbers, keys, values = numbers[order], keys.take(rows), values.take(rows)
        present = pc.is_valid(values).cast(pa.uint8()).to_numpy(zero_copy_only=False)
        key_offsets, value_offsets = column_offsets(keys), column_offsets(values)
        lengths = np.where(present, np.diff(value_offsets), 0)
        hashed = (lengths >= HASHED_VALUE_BYTES) & (self._versions[numbers] >= StateVersion.V1)
        long = np.flatnonzero(hashed)
        digests = digest_slices(
            HashFunction.BLAKE2B_256, column_data(values), value_offsets[:-1][long], value_offsets[1:][long]
        )
        digest_rows = np.where(hashed, np.cumsum(hashed) - 1, layout.NONE)
        self._make_room(
            int(present.sum()), int(key_offsets[-1] - key_offsets[0] + lengths.sum() + DIGEST_BYTES * len(long))
        )
        done, count = 0, len(keys)
        while True:
            done = trie_loops.change(
                self._arena, numbers, column_data(keys), key_offsets, column_data(values), value_offsets, present,
                digests, digest_rows, done,
            )  # fmt: skip
            if done == count:
                break
            self._arena = with_nodes(self._arena, 2 * (count - done) + len(self._arena.path))
        self._hash()

    def roots(self, tries: Rows) -> Digests:
        """Return the root of each trie.

        Args:
            tries: trie numbers, shape (n,).

        Returns:
            Roots, shape (n, 32).
        """
        tries, arena = self._known(tries), self._arena
        tops = arena.roots[tries].astype(np.int64)
        full = tops != layout.NONE
        roots = np.empty((len(tries), DIGEST_BYTES), dtype=np.uint8)
        roots[:] = np.frombuffer(EMPTY_ROOT, dtype=np.uint8)
        roots[full] = arena.references[tops[full]]
        # A root is hashed even if its encoding is short.
        short = np.flatnonzero(full)[arena.reference_bytes[tops[full]] < DIGEST_BYTES]
        starts = np.arange(len(short)) * DIGEST_BYTES
        roots[short] = digest_slices(
            HashFunction.BLAKE2B_256,
            arena.references[tops[short]].reshape(-1),
            starts,
            starts + arena.reference_bytes[tops[short]],
        )
        return roots

    def get(self, tries: Rows | int, keys: pa.Array | Iterable[bytes]) -> pa.LargeBinaryArray:
        """Return the value under each key in its trie, null if absent.

        Args:
            tries: trie number of each key, or one for all.
            keys: the keys.

        Returns:
            The values.

        Raises:
            InvalidInput: as for ``update``.
        """
        numbers, keys = self._with_keys(tries, keys)
        return self.values(self._find(numbers, keys)[1])

    def items(self, trie: int, prefix: bytes = b"") -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
        """Return the entries with keys that start with ``prefix``, ascending by key.

        Args:
            trie: the trie's number.
            prefix: common prefix of the keys.

        Returns:
            Keys and values.

        Raises:
            InvalidInput: the trie number is unknown.
        """
        from causeway_proofs.substrate import trie_loops

        number = int(self._known([trie])[0])
        found = np.empty(self.count(number), dtype=np.int64)
        under = np.frombuffer(prefix, dtype=np.uint8)
        following = np.empty(len(self._arena.path), dtype=np.uint8)
        found = found[: trie_loops.entries_below(self._arena, number, under, following, found)]
        ends = offsets_from_lengths(self._arena.entries[found, layout.KEY_BYTES])
        content = np.empty(ends[-1], dtype=np.uint8)
        trie_loops.copy_keys(self._arena, found, ends, content)
        return column_from_buffers(content, ends), self.values(found)

    def visit(self, tries: Rows | int, keys: pa.Array | Iterable[bytes]) -> KeyVisits:
        """Return the nodes and entries on the paths of keys.

        Args:
            tries: trie number of each key, or one for all.
            keys: the keys.

        Returns:
            The visits.

        Raises:
            InvalidInput: as for ``update``.
        """
        from causeway_proofs.substrate import trie_loops

        numbers, keys = self._with_keys(tries, keys)
        counts, entries = self._find(numbers, keys)
        nodes = np.empty(int(counts.sum()), dtype=np.int64)
        if len(nodes):
            trie_loops.visit(
                self._arena,
                numbers,
                column_data(keys),
                column_offsets(keys),
                offsets_from_lengths(counts),
                counts,
                nodes,
                entries,
            )
        there = entries != layout.NONE
        stored_by_hash = np.zeros(len(entries), dtype=bool)
        stored_by_hash[there] = self._arena.entries[entries[there], layout.DIGEST] > 0
        return KeyVisits(counts, nodes, entries, stored_by_hash)

    def encodings(self, nodes: Rows) -> pa.LargeBinaryArray:
        """Return the encodings of nodes.

        Args:
            nodes: node numbers from ``visit`` since the last change.

        Returns:
            The encodings.

        Raises:
            InvalidInput: a number is not from ``visit`` since the last change.
        """
        from causeway_proofs.substrate import trie_loops

        nodes = integer_array(nodes, "numbers of nodes", np.int64, 0, int(self._arena.counters[layout.NODES]) - 1)
        if bool((self._arena.nodes[nodes, layout.STATE] == layout.DEAD).any()):
            raise InvalidInput("a trie has no such nodes any more: it was changed since they were visited")
        ends = np.empty(len(nodes) + 1, dtype=np.int64)
        room = trie_loops.room_for_encodings(self._arena, nodes)
        out = np.empty(room, dtype=np.uint8)
        trie_loops.encode(self._arena, nodes, out, ends)
        return column_from_buffers(out[: ends[-1]], ends)

    def _find(self, numbers: Rows, keys: pa.LargeBinaryArray) -> tuple[Rows, Rows]:
        """Return the number of encoded nodes on each key's path, and its entry or ``NONE``."""
        from causeway_proofs.substrate import trie_loops

        counts, found = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
        nothing = np.empty(0, dtype=np.int64)
        trie_loops.visit(self._arena, numbers, column_data(keys), column_offsets(keys), nothing, counts, nothing, found)
        return counts, found

    def values(self, entries: Rows) -> pa.LargeBinaryArray:
        """Return the values of entries, null for -1.

        Args:
            entries: entry numbers from ``visit`` since the last change.

        Returns:
            The values.

        Raises:
            InvalidInput: a number is not from ``visit`` since the last change.
        """
        from causeway_proofs.substrate import trie_loops

        entries = integer_array(
            entries, "numbers of entries", np.int64, layout.NONE, int(self._arena.counters[layout.ENTRIES]) - 1
        )
        there = entries != layout.NONE
        if not bool((self._arena.entries[entries[there], layout.ENTRY_HOLDERS] > 0).all()):
            raise InvalidInput("a trie has no such entries any more: it was changed since they were visited")
        lengths = np.zeros(len(entries), dtype=np.int64)
        lengths[there] = self._arena.entries[entries[there], layout.VALUE_BYTES]
        ends = offsets_from_lengths(lengths)
        content = np.empty(ends[-1], dtype=np.uint8)
        trie_loops.copy_values(self._arena, entries, ends, content)
        return column_from_buffers(content, ends, there)

    def _hash(self) -> None:
        """Compute stale references level by level, then free dead rows."""
        from causeway_proofs.substrate import trie_loops

        arena = self._arena
        ends = np.zeros(trie_loops.highest_dirty(arena) + 2, dtype=np.int64)
        dirty = np.empty(arena.counters[layout.DIRTY_NODES], dtype=np.int64)
        trie_loops.take_dirty(arena, ends, dirty)
        for first, last in zip([0, *ends[:-2].tolist()], ends[:-1].tolist(), strict=False):
            for start in range(first, last, PIECE):
                self._refer(dirty[start : min(start + PIECE, last)])
        # Clear the list last, so that an interrupted pass is repeated.
        arena.nodes[dirty[: ends[-1]], layout.STATE] = layout.CLEAN
        arena.counters[layout.DIRTY_NODES] = 0
        trie_loops.free_dead(arena)

    def _refer(self, nodes: Rows) -> None:
        """Write the references of nodes whose children have valid ones."""
        from causeway_proofs.substrate import trie_loops

        arena = self._arena
        ends = np.empty(len(nodes) + 1, dtype=np.int64)
        encodings = np.empty(trie_loops.room_for_encodings(arena, nodes), dtype=np.uint8)
        trie_loops.encode(arena, nodes, encodings, ends)
        rows = np.empty(len(nodes), dtype=np.int64)
        rows = rows[: trie_loops.refer_to_short(arena, nodes, encodings, ends, rows)]
        arena.references[nodes[rows]] = digest_slices(HashFunction.BLAKE2B_256, encodings, ends[rows], ends[rows + 1])

    def _make_room(self, entries: int, heap_bytes: int) -> None:
        """Allocate room for new entries, and for the usual number of nodes that they take."""
        arena = with_entries(with_nodes(self._arena, 2 * entries), entries)
        self._arena, self._heap_stop = with_heap(arena, self._heap_stop, heap_bytes)

    def _close_unused(self) -> None:
        unused = [self._unused.popleft() for _ in range(len(self._unused))]
        if unused:
            self.close(np.array(unused, dtype=np.int64))

    def _with_keys(self, tries: Rows | int, keys: pa.Array | Iterable[bytes]) -> tuple[Rows, pa.LargeBinaryArray]:
        keys = byte_column(keys)
        numbers = self._known(np.full(len(keys), tries) if isinstance(tries, int | np.integer) else tries)
        if len(numbers) != len(keys):
            raise InvalidInput(f"{len(numbers)} tries are given with {len(keys)} keys, the same number is needed")
        longest = int(np.diff(column_offsets(keys)).max(initial=0))
        if longest > MAX_KEY_BYTES:
            raise InvalidInput(f"a key has {longest} bytes, at most {MAX_KEY_BYTES} are allowed")
        return numbers, keys

    def _known(self, tries: npt.NDArray[np.integer] | Sequence[int]) -> Rows:
        if self._arena.counters[layout.DIRTY_NODES]:
            # An earlier change was interrupted.
            self._hash()
        numbers = integer_array(tries, "numbers of tries", np.int64, 0, len(self._versions) - 1)
        closed = self._versions[numbers] == _CLOSED
        if closed.any():
            raise InvalidInput(f"the trie {numbers[np.argmax(closed)]} was closed")
        return numbers
