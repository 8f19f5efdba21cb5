"""The columns that tries are kept in: nodes, blocks of children, entries, and one heap of bytes.

A node is a number. Its partial key is a range of nibbles of any key below it, so that a node that is cut or joined gets
another range and no bytes are moved. Whoever holds a node (a parent, a root) is counted, as in a file system with
snapshots: what one trie alone holds is changed where it lies, everything else is copied first.
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
"""In the place of a node, a block or an entry: there is none."""

START, STOP, ENTRY, KEY_ENTRY, BLOCK, HOLDERS, STATE, HEIGHT = range(8)
"""Columns of ``nodes``: first and last nibble (exclusive) of the partial key; the entry stored here; an entry below,
whose key has the partial key in it; the block of the children; how many parents and roots hold the node; whether its
reference is right; and, where it is not, how many such nodes lie one below the other under it."""

CLEAN, DIRTY, DEAD = range(3)
"""States of a node: its reference is right; it is wrong; nobody holds it (``HEIGHT`` is then the next such node)."""

OFFSET, KEY_BYTES, VALUE_BYTES, DIGEST, ENTRY_HOLDERS = range(5)
"""Columns of ``entries``: where in the heap the key lies; its length; the value's; the bytes of the value's digest (32
where the value is stored by its hash, or 0), which lies between the two; how many nodes hold the entry. Of an entry
that nobody holds, ``VALUE_BYTES`` is the next such entry."""

(
    NODES, USED_NODES, FREE_NODE, DEAD_NODE, BLOCKS, USED_BLOCKS, FREE_BLOCK, ENTRIES, FREE_ENTRY, DEAD_ENTRY,
    HEAP_END, LIVE_BYTES, DIRTY_NODES, DEAD_NODES, FIRST_DEAD_NODE, FIRST_DEAD_ENTRY,
) = range(16)  # fmt: skip
"""Counters: how many rows were ever used, how many are, and the last of each list of rows that are not. What dies in a
change is used again after it only: until then its key may be read, and its number stands in lists. Of the lists of the
dead the first ones are known too, so that they are joined to those of the free."""

_LISTS = [FREE_NODE, DEAD_NODE, FREE_BLOCK, FREE_ENTRY, DEAD_ENTRY]

_MOST_ROWS = np.iinfo(np.int32).max


class Arena(NamedTuple):
    """Tries in columns.

    Attributes:
        nodes: shape (capacity, 8).
        references: how a parent refers to a node: a digest, or an encoding of fewer than 32 bytes; (capacity, 32).
        reference_bytes: how many bytes of it count; (capacity,).
        children: numbers of nodes by nibble; (blocks, 16).
        entries: shape (entries, 5).
        heap: key, digest and value of each entry, one behind the other.
        roots: the top node of each trie.
        counts: how many entries each trie has.
        counters: see above.
        path: the nodes from the root down to where a change is made.
        dirty: the nodes whose references are wrong, in any order.
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
    """Return the arena with room for ``more`` entries behind those that were ever used."""
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
    # Memory that was never written to is not taken from the system.
    return present if needed <= present else min(_MOST_ROWS, needed + needed // 2)


def _longer(column: npt.NDArray[Scalar], rows: int) -> npt.NDArray[Scalar]:
    if rows == len(column):
        return column
    longer = np.empty((rows, *column.shape[1:]), dtype=column.dtype)
    longer[: len(column)] = column
    return longer
