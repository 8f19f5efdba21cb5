"""Compiled loops over the heap of tries (``trie_heap``): what of it is held, and moving that."""

from __future__ import annotations

from typing import Any

from causeway.model.compiled import BYTES_OUT, INT64, NOTHING, ROWS_OUT, compiled
from causeway.proofs.distinct.loops import copy_bytes
from causeway.proofs.substrate.trie_arena import ENTRIES, ENTRY_HOLDERS, HEAP_END, OFFSET
from causeway.proofs.substrate.trie_node_loops import ARENA, bytes_of


@compiled(NOTHING, [ARENA, BYTES_OUT], allocates=False)
def repack(arena: Any, heap: Any) -> None:
    """Write the entries that are held into another heap, one behind the other."""
    entries = arena.entries
    at = 0
    for entry in range(arena.counters[ENTRIES]):
        if entries[entry, ENTRY_HOLDERS] > 0:
            offset, count = entries[entry, OFFSET], bytes_of(arena, entry)
            copy_bytes(arena.heap, offset, heap, at, count)
            entries[entry, OFFSET] = at
            at += count
    arena.counters[HEAP_END] = at


@compiled(NOTHING, [ARENA, INT64, ROWS_OUT], allocates=False)
def count_held(arena: Any, width: Any, held: Any) -> None:
    """Count the bytes that are held in each stretch of ``width`` bytes of the heap."""
    entries = arena.entries
    for entry in range(arena.counters[ENTRIES]):
        if entries[entry, ENTRY_HOLDERS] > 0:
            at = entries[entry, OFFSET]
            end = at + bytes_of(arena, entry)
            while at < end:
                stop = min(end, (at // width + 1) * width)
                held[at // width] += stop - at
                at = stop


@compiled(NOTHING, [ARENA, INT64, INT64, ROWS_OUT], allocates=False)
def measure_window(arena: Any, first: Any, last: Any, found: Any) -> None:
    """Find where in the bytes ``first`` to ``last`` of the heap those end that an entry before them reaches, and how
    many bytes the entries that begin in them take."""
    entries = arena.entries
    found[0], found[1] = first, 0
    for entry in range(arena.counters[ENTRIES]):
        if entries[entry, ENTRY_HOLDERS] > 0 and entries[entry, OFFSET] < last:
            count = bytes_of(arena, entry)
            if entries[entry, OFFSET] >= first:
                found[1] += count
            elif entries[entry, OFFSET] + count > found[0]:
                found[0] = entries[entry, OFFSET] + count


@compiled(NOTHING, [ARENA, INT64, INT64, INT64, BYTES_OUT], allocates=False)
def pack_window(arena: Any, first: Any, last: Any, start: Any, moved: Any) -> None:
    """Move the entries that begin in the bytes ``first`` to ``last`` of the heap to ``start``, one behind the other."""
    entries = arena.entries
    at = 0
    for entry in range(arena.counters[ENTRIES]):
        if entries[entry, ENTRY_HOLDERS] > 0 and first <= entries[entry, OFFSET] < last:
            count = bytes_of(arena, entry)
            copy_bytes(arena.heap, entries[entry, OFFSET], moved, at, count)
            entries[entry, OFFSET] = start + at
            at += count
    copy_bytes(moved, 0, arena.heap, start, at)
    arena.counters[HEAP_END] = start + at
