"""Compiled loops over single nodes, entries and nibbles of an arena, and over its heap."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.distinct_loops import copy_bytes
from causeway_proofs.jit import BYTES_OUT, INT64, NOTHING, ROWS_OUT, compile_loop, named_tuples, writable_arrays
from causeway_proofs.substrate import trie_arena as layout
from causeway_proofs.substrate.node import WIDTH
from causeway_proofs.substrate.trie_arena import Arena

ARENA = named_tuples(
    Arena,
    [
        writable_arrays("int32", 2),
        writable_arrays("uint8", 2),
        writable_arrays("uint8"),
        writable_arrays("int32", 2),
        writable_arrays("int64", 2),
        writable_arrays("uint8"),
        writable_arrays("int32"),
        writable_arrays("int64"),
        writable_arrays("int64"),
        writable_arrays("int32"),
        writable_arrays("int32"),
    ],
)

HALF = 4
LOW = 15


@compile_loop(allocates=False)
def read_nibble(data: Any, start: Any, position: Any) -> Any:
    """Return one nibble of the key that starts at ``start``."""
    byte = np.int64(data[start + (position >> 1)])
    return byte & LOW if position & 1 else byte >> HALF


@compile_loop(allocates=False)
def diverging_nibble(first: Any, first_start: Any, second: Any, second_start: Any, known: Any, limit: Any) -> Any:
    """Return the first differing nibble of two keys equal up to ``known``, at most ``limit``."""
    for index in range(known >> 1, (limit + 1) >> 1):
        difference = first[first_start + index] ^ second[second_start + index]
        if difference:
            return min(2 * index + (1 if difference <= LOW else 0), limit)
    return limit


@compile_loop(allocates=False)
def new_block(arena: Any) -> Any:
    """Return the number of a block without children."""
    counters, children = arena.counters, arena.children
    block = counters[layout.FREE_BLOCK]
    if block == layout.NONE:
        block = counters[layout.BLOCKS]
        counters[layout.BLOCKS] += 1
    else:
        counters[layout.FREE_BLOCK] = children[block, 0]
    counters[layout.USED_BLOCKS] += 1
    for nibble in range(WIDTH):
        children[block, nibble] = layout.NONE
    return block


@compile_loop(allocates=False)
def free_block(arena: Any, block: Any) -> None:
    """Release a block."""
    arena.children[block, 0] = arena.counters[layout.FREE_BLOCK]
    arena.counters[layout.FREE_BLOCK] = block
    arena.counters[layout.USED_BLOCKS] -= 1


@compile_loop(allocates=False)
def mark_dirty(arena: Any, node: Any) -> None:
    """Mark the reference of a node as stale."""
    if arena.nodes[node, layout.STATE] != layout.DIRTY:
        arena.nodes[node, layout.STATE] = layout.DIRTY
        arena.nodes[node, layout.HEIGHT] = 0
        arena.dirty[arena.counters[layout.DIRTY_NODES]] = node
        arena.counters[layout.DIRTY_NODES] += 1


@compile_loop(allocates=False)
def new_node(arena: Any, start: Any, stop: Any, entry: Any, key_entry: Any, block: Any) -> Any:
    """Create a dirty node and return its number."""
    counters, nodes = arena.counters, arena.nodes
    node = counters[layout.FREE_NODE]
    if node == layout.NONE:
        node = counters[layout.NODES]
        counters[layout.NODES] += 1
    else:
        counters[layout.FREE_NODE] = nodes[node, layout.HEIGHT]
    counters[layout.USED_NODES] += 1
    nodes[node, layout.START] = start
    nodes[node, layout.STOP] = stop
    nodes[node, layout.ENTRY] = entry
    nodes[node, layout.KEY_ENTRY] = key_entry
    nodes[node, layout.BLOCK] = block
    nodes[node, layout.HOLDERS] = 1
    nodes[node, layout.STATE] = layout.CLEAN
    mark_dirty(arena, node)
    return node


@compile_loop(allocates=False)
def bury_node(arena: Any, node: Any) -> None:
    """Mark a node as unreferenced."""
    counters = arena.counters
    arena.nodes[node, layout.HOLDERS] = 0
    arena.nodes[node, layout.STATE] = layout.DEAD
    arena.nodes[node, layout.HEIGHT] = counters[layout.DEAD_NODE]
    if counters[layout.DEAD_NODE] == layout.NONE:
        counters[layout.FIRST_DEAD_NODE] = node
    counters[layout.DEAD_NODE] = node
    counters[layout.DEAD_NODES] += 1


@compile_loop(allocates=False)
def entry_size(arena: Any, entry: Any) -> Any:
    """Return the heap bytes of an entry."""
    entries = arena.entries
    return entries[entry, layout.KEY_BYTES] + entries[entry, layout.DIGEST] + entries[entry, layout.VALUE_BYTES]


@compile_loop(allocates=False)
def new_entry(
    arena: Any, keys: Any, start: Any, stop: Any, values: Any, first: Any, last: Any, digests: Any, digest: Any
) -> Any:
    """Store a key and its value; ``digest`` is the row of the value's digest if stored by hash."""
    counters, entries, heap = arena.counters, arena.entries, arena.heap
    entry = counters[layout.FREE_ENTRY]
    if entry == layout.NONE:
        entry = counters[layout.ENTRIES]
        counters[layout.ENTRIES] += 1
    else:
        counters[layout.FREE_ENTRY] = entries[entry, layout.VALUE_BYTES]
    at = counters[layout.HEAP_END]
    entries[entry, layout.OFFSET] = at
    entries[entry, layout.KEY_BYTES] = stop - start
    entries[entry, layout.DIGEST] = 0 if digest == layout.NONE else digests.shape[1]
    entries[entry, layout.VALUE_BYTES] = last - first
    entries[entry, layout.ENTRY_HOLDERS] = 1
    copy_bytes(keys, start, heap, at, stop - start)
    at += stop - start
    if digest != layout.NONE:
        copy_bytes(digests[digest], 0, heap, at, digests.shape[1])
        at += digests.shape[1]
    copy_bytes(values, first, heap, at, last - first)
    counters[layout.HEAP_END] = at + last - first
    counters[layout.LIVE_BYTES] += entry_size(arena, entry)
    return entry


@compile_loop(allocates=False)
def release_entry(arena: Any, entry: Any) -> None:
    """Drop one reference to an entry."""
    arena.entries[entry, layout.ENTRY_HOLDERS] -= 1
    if arena.entries[entry, layout.ENTRY_HOLDERS] == 0:
        arena.counters[layout.LIVE_BYTES] -= entry_size(arena, entry)
        arena.entries[entry, layout.VALUE_BYTES] = arena.counters[layout.DEAD_ENTRY]
        if arena.counters[layout.DEAD_ENTRY] == layout.NONE:
            arena.counters[layout.FIRST_DEAD_ENTRY] = entry
        arena.counters[layout.DEAD_ENTRY] = entry


@compile_loop(allocates=False)
def copy_node(arena: Any, node: Any) -> Any:
    """Return a copy of a node for one of its owners."""
    nodes, children = arena.nodes, arena.children
    entry, block = np.int64(nodes[node, layout.ENTRY]), np.int64(nodes[node, layout.BLOCK])
    own_block = layout.NONE
    if block != layout.NONE:
        own_block = new_block(arena)
        for nibble in range(WIDTH):
            child = children[block, nibble]
            children[own_block, nibble] = child
            if child != layout.NONE:
                nodes[child, layout.HOLDERS] += 1
    if entry != layout.NONE:
        arena.entries[entry, layout.ENTRY_HOLDERS] += 1
    nodes[node, layout.HOLDERS] -= 1
    start, stop, key_entry = nodes[node, layout.START], nodes[node, layout.STOP], nodes[node, layout.KEY_ENTRY]
    return new_node(arena, np.int64(start), np.int64(stop), entry, np.int64(key_entry), own_block)


@compile_loop(allocates=False)
def own_node(arena: Any, node: Any) -> Any:
    """Return a dirty node with a single owner: the same one or a copy."""
    if arena.nodes[node, layout.HOLDERS] > 1:
        return copy_node(arena, node)
    mark_dirty(arena, node)
    return node


@compile_loop(NOTHING, [ARENA, BYTES_OUT], allocates=False)
def repack(arena: Any, heap: Any) -> None:
    """Copy the live entries to another heap, compacted."""
    entries = arena.entries
    at = 0
    for entry in range(arena.counters[layout.ENTRIES]):
        if entries[entry, layout.ENTRY_HOLDERS] > 0:
            offset, count = entries[entry, layout.OFFSET], entry_size(arena, entry)
            copy_bytes(arena.heap, offset, heap, at, count)
            entries[entry, layout.OFFSET] = at
            at += count
    arena.counters[layout.HEAP_END] = at


@compile_loop(NOTHING, [ARENA, INT64, ROWS_OUT], allocates=False)
def count_live_bytes(arena: Any, width: Any, live_sizes: Any) -> None:
    """Count the live bytes in each segment of ``width`` bytes of the heap."""
    entries = arena.entries
    for entry in range(arena.counters[layout.ENTRIES]):
        if entries[entry, layout.ENTRY_HOLDERS] > 0:
            at = entries[entry, layout.OFFSET]
            end = at + entry_size(arena, entry)
            while at < end:
                stop = min(end, (at // width + 1) * width)
                live_sizes[at // width] += stop - at
                at = stop


@compile_loop(NOTHING, [ARENA, INT64, INT64, ROWS_OUT], allocates=False)
def measure_window(arena: Any, first: Any, last: Any, found: Any) -> None:
    """Measure the heap bytes ``first`` to ``last``.

    Writes to ``found`` the end of an entry that reaches into them, and the bytes of the entries that begin in them.
    """
    entries = arena.entries
    found[0], found[1] = first, 0
    for entry in range(arena.counters[layout.ENTRIES]):
        if entries[entry, layout.ENTRY_HOLDERS] > 0 and entries[entry, layout.OFFSET] < last:
            count = entry_size(arena, entry)
            if entries[entry, layout.OFFSET] >= first:
                found[1] += count
            elif entries[entry, layout.OFFSET] + count > found[0]:
                found[0] = entries[entry, layout.OFFSET] + count


@compile_loop(NOTHING, [ARENA, INT64, INT64, INT64, BYTES_OUT], allocates=False)
def pack_window(arena: Any, first: Any, last: Any, start: Any, moved: Any) -> None:
    """Move the entries that begin in heap bytes ``first`` to ``last`` to ``start``, compacted."""
    entries = arena.entries
    at = 0
    for entry in range(arena.counters[layout.ENTRIES]):
        if entries[entry, layout.ENTRY_HOLDERS] > 0 and first <= entries[entry, layout.OFFSET] < last:
            count = entry_size(arena, entry)
            copy_bytes(arena.heap, entries[entry, layout.OFFSET], moved, at, count)
            entries[entry, layout.OFFSET] = start + at
            at += count
    copy_bytes(moved, 0, arena.heap, start, at)
    arena.counters[layout.HEAP_END] = start + at
