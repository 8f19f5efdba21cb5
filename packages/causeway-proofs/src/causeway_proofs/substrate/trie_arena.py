"""Columns that store tries: nodes, blocks of children, entries, and a heap of bytes.

A node is a number. Its partial key is a range of nibbles of any key below it, so splitting or joining nodes changes
ranges and moves no bytes. References from parents and roots are counted, as in a file system with snapshots: a node
with one reference is changed in place, any other is copied first.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.substrate.node import MAX_KEY_BYTES, WIDTH

Numbers = npt.NDArray[np.int32]
Scalar = TypeVar("Scalar", bound=np.generic)

NONE = -1
"""Marks the absence of a node, a block or an entry."""

START, STOP, ENTRY, KEY_ENTRY, BLOCK, HOLDERS, STATE, HEIGHT = range(8)
"""Columns of ``nodes``.

- START, STOP: first and last nibble (exclusive) of the partial key.
- ENTRY: entry stored at the node.
- KEY_ENTRY: an entry below the node, whose key contains the partial key.
- BLOCK: block of the children.
- HOLDERS: number of parents and roots that reference the node.
- STATE: ``CLEAN``, ``DIRTY`` or ``DEAD``.
- HEIGHT: for a dirty node, the depth of dirty nodes below it.
"""

CLEAN, DIRTY, DEAD = range(3)
"""States of a node: valid reference, stale reference, unreferenced.

``HEIGHT`` of a dead node links the next one.
"""

OFFSET, KEY_BYTES, VALUE_BYTES, DIGEST, ENTRY_HOLDERS = range(5)
"""Columns of ``entries``.

- OFFSET: offset of the key in the heap.
- KEY_BYTES: length of the key.
- VALUE_BYTES: length of the value; for an unreferenced entry, the next such entry.
- DIGEST: length of the value's digest between key and value: 32 if the value is stored by hash, else 0.
- ENTRY_HOLDERS: number of nodes that reference the entry.
"""

(
    NODES, USED_NODES, FREE_NODE, DEAD_NODE, BLOCKS, USED_BLOCKS, FREE_BLOCK, ENTRIES, FREE_ENTRY, DEAD_ENTRY,
    HEAP_END, LIVE_BYTES, DIRTY_NODES, DEAD_NODES, FIRST_DEAD_NODE, FIRST_DEAD_ENTRY,
) = range(16)  # fmt: skip
"""Counters: rows ever used, rows in use, and the last row of each free list.

Rows that die during a change are reused only after it: until then their keys may be read and their numbers are in
lists. The first rows of the dead lists are tracked, too, to splice these lists to the free lists.
"""

_LISTS = [FREE_NODE, DEAD_NODE, FREE_BLOCK, FREE_ENTRY, DEAD_ENTRY]

_MOST_ROWS = np.iinfo(np.int32).max


class Arena(NamedTuple):
    """Tries in columns.

    Attributes:
        nodes: shape (capacity, 8).
        references: a parent's reference to each node: a digest, or an encoding below 32 bytes; shape (capacity, 32).
        reference_bytes: length of each reference, shape (capacity,).
        children: node numbers by nibble, shape (blocks, 16).
        entries: shape (entries, 5).
        heap: concatenated key, digest and value of each entry.
        roots: top node of each trie.
        counts: number of entries of each trie.
        counters: see the counter names above.
        path: nodes from the root down to the current change.
        dirty: nodes with stale references, in any order.
    """

    nodes: Numbers
    references: npt.NDArray[np.uint8]
    reference_bytes: npt.NDArray[np.uint8]
    children: Numbers
    entries: npt.NDArray[np.int64]
    heap: npt.NDArray[np.uint8]
    roots: Numbers
    counts: npt.NDArray[np.int64]
    counters: npt.NDArray[np.int64]
    path: Numbers
    dirty: Numbers


def empty_arena() -> Arena:
    """Return an arena without tries."""
    counters = np.zeros(16, dtype=np.int64)
    counters[_LISTS] = NONE
    return Arena(
        np.empty((0, 8), dtype=np.int32),
        np.empty((0, DIGEST_BYTES), dtype=np.uint8),
        np.empty(0, dtype=np.uint8),
        np.empty((0, WIDTH), dtype=np.int32),
        np.empty((0, 5), dtype=np.int64),
        np.empty(0, dtype=np.uint8),
        np.empty(0, dtype=np.int32),
        np.empty(0, dtype=np.int64),
        counters,
        np.empty(2 * MAX_KEY_BYTES + 2, dtype=np.int32),
        np.empty(0, dtype=np.int32),
    )


def with_nodes(arena: Arena, more: int) -> Arena:
    """Return the arena with room for ``more`` nodes and as many blocks of children."""
    nodes = _capacity(len(arena.nodes), int(arena.counters[USED_NODES]) + more)
    blocks = _capacity(len(arena.children), int(arena.counters[USED_BLOCKS]) + more)
    return arena._replace(
        nodes=_longer(arena.nodes, nodes),
        references=_longer(arena.references, nodes),
        reference_bytes=_longer(arena.reference_bytes, nodes),
        dirty=_longer(arena.dirty, nodes),
        children=_longer(arena.children, blocks),
    )


def with_entries(arena: Arena, more: int) -> Arena:
    """Return the arena with room for ``more`` entries behind those ever used."""
    return arena._replace(
        entries=_longer(arena.entries, _capacity(len(arena.entries), int(arena.counters[ENTRIES]) + more))
    )


def with_tries(arena: Arena, more: int) -> Arena:
    """Return the arena with ``more`` empty tries."""
    return arena._replace(
        roots=np.concatenate([arena.roots, np.full(more, NONE, dtype=np.int32)]),
        counts=np.concatenate([arena.counts, np.zeros(more, dtype=np.int64)]),
    )


def _capacity(present: int, needed: int) -> int:
    if needed > _MOST_ROWS:
        raise InvalidInput(f"tries in one arena would have {needed} nodes or entries, at most {_MOST_ROWS} have room")
    # Untouched pages use no physical memory.
    return present if needed <= present else min(_MOST_ROWS, needed + needed // 2)


def _longer(column: npt.NDArray[Scalar], rows: int) -> npt.NDArray[Scalar]:
    if rows == len(column):
        return column
    longer = np.empty((rows, *column.shape[1:]), dtype=column.dtype)
    longer[: len(column)] = column
    return longer
