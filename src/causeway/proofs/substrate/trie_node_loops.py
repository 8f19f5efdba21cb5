"""Loops over single nodes and entries of an arena: made, copied, given up; the nibbles of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import compiled, named, written
from causeway.proofs.distinct.loops import copy_bytes
from causeway.proofs.substrate.node import WIDTH
from causeway.proofs.substrate.trie_arena import (
    BLOCK,
    BLOCKS,
    CLEAN,
    DEAD,
    DEAD_ENTRY,
    DEAD_NODE,
    DEAD_NODES,
    DIGEST,
    DIRTY,
    DIRTY_NODES,
    ENTRIES,
    ENTRY,
    ENTRY_HOLDERS,
    FIRST_DEAD_ENTRY,
    FIRST_DEAD_NODE,
    FREE_BLOCK,
    FREE_ENTRY,
    FREE_NODE,
    HEAP_END,
    HEIGHT,
    HOLDERS,
    KEY_BYTES,
    KEY_ENTRY,
    LIVE_BYTES,
    NODES,
    NONE,
    OFFSET,
    START,
    STATE,
    STOP,
    USED_BLOCKS,
    USED_NODES,
    VALUE_BYTES,
    Arena,
)

ARENA = named(
    Arena,
    [
        written("int32", 2),
        written("uint8", 2),
        written("uint8"),
        written("int32", 2),
        written("int64", 2),
        written("uint8"),
        written("int32"),
        written("int64"),
        written("int64"),
        written("int32"),
        written("int32"),
    ],
)

HALF = 4
LOW = 15


@compiled(allocates=False)
def nibble_of(data: Any, start: Any, position: Any) -> Any:
    """Return one nibble of the key that starts at ``start``."""
    byte = np.int64(data[start + (position >> 1)])
    return byte & LOW if position & 1 else byte >> HALF


@compiled(allocates=False)
def parting(first: Any, first_start: Any, second: Any, second_start: Any, known: Any, limit: Any) -> Any:
    """Return the nibble at which two keys part, ``limit`` if not before; they are the same up to ``known``."""
    for index in range(known >> 1, (limit + 1) >> 1):
        difference = first[first_start + index] ^ second[second_start + index]
        if difference:
            return min(2 * index + (1 if difference <= LOW else 0), limit)
    return limit


@compiled(allocates=False)
def new_block(arena: Any) -> Any:
    """Return the number of a block without children."""
    counters, children = arena.counters, arena.children
    block = counters[FREE_BLOCK]
    if block == NONE:
        block = counters[BLOCKS]
        counters[BLOCKS] += 1
    else:
        counters[FREE_BLOCK] = children[block, 0]
    counters[USED_BLOCKS] += 1
    for nibble in range(WIDTH):
        children[block, nibble] = NONE
    return block


@compiled(allocates=False)
def free_block(arena: Any, block: Any) -> None:
    """Let a block be used again."""
    arena.children[block, 0] = arena.counters[FREE_BLOCK]
    arena.counters[FREE_BLOCK] = block
    arena.counters[USED_BLOCKS] -= 1


@compiled(allocates=False)
def mark(arena: Any, node: Any) -> None:
    """Note that the reference of a node is wrong."""
    if arena.nodes[node, STATE] != DIRTY:
        arena.nodes[node, STATE] = DIRTY
        arena.nodes[node, HEIGHT] = 0
        arena.dirty[arena.counters[DIRTY_NODES]] = node
        arena.counters[DIRTY_NODES] += 1


@compiled(allocates=False)
def new_node(arena: Any, start: Any, stop: Any, entry: Any, key_entry: Any, block: Any) -> Any:
    """Return the number of a new, dirty node."""
    counters, nodes = arena.counters, arena.nodes
    node = counters[FREE_NODE]
    if node == NONE:
        node = counters[NODES]
        counters[NODES] += 1
    else:
        counters[FREE_NODE] = nodes[node, HEIGHT]
    counters[USED_NODES] += 1
    nodes[node, START] = start
    nodes[node, STOP] = stop
    nodes[node, ENTRY] = entry
    nodes[node, KEY_ENTRY] = key_entry
    nodes[node, BLOCK] = block
    nodes[node, HOLDERS] = 1
    nodes[node, STATE] = CLEAN
    mark(arena, node)
    return node


@compiled(allocates=False)
def bury_node(arena: Any, node: Any) -> None:
    """Note that nobody holds a node."""
    counters = arena.counters
    arena.nodes[node, HOLDERS] = 0
    arena.nodes[node, STATE] = DEAD
    arena.nodes[node, HEIGHT] = counters[DEAD_NODE]
    if counters[DEAD_NODE] == NONE:
        counters[FIRST_DEAD_NODE] = node
    counters[DEAD_NODE] = node
    counters[DEAD_NODES] += 1


@compiled(allocates=False)
def bytes_of(arena: Any, entry: Any) -> Any:
    """Return how many bytes of the heap an entry takes."""
    entries = arena.entries
    return entries[entry, KEY_BYTES] + entries[entry, DIGEST] + entries[entry, VALUE_BYTES]


@compiled(allocates=False)
def new_entry(
    arena: Any, keys: Any, start: Any, stop: Any, values: Any, first: Any, last: Any, digests: Any, digest: Any
) -> Any:
    """Store a key and its value; ``digest`` is the row of the value's digest, where it is stored by its hash."""
    counters, entries, heap = arena.counters, arena.entries, arena.heap
    entry = counters[FREE_ENTRY]
    if entry == NONE:
        entry = counters[ENTRIES]
        counters[ENTRIES] += 1
    else:
        counters[FREE_ENTRY] = entries[entry, VALUE_BYTES]
    at = counters[HEAP_END]
    entries[entry, OFFSET] = at
    entries[entry, KEY_BYTES] = stop - start
    entries[entry, DIGEST] = 0 if digest == NONE else digests.shape[1]
    entries[entry, VALUE_BYTES] = last - first
    entries[entry, ENTRY_HOLDERS] = 1
    copy_bytes(keys, start, heap, at, stop - start)
    at += stop - start
    if digest != NONE:
        copy_bytes(digests[digest], 0, heap, at, digests.shape[1])
        at += digests.shape[1]
    copy_bytes(values, first, heap, at, last - first)
    counters[HEAP_END] = at + last - first
    counters[LIVE_BYTES] += bytes_of(arena, entry)
    return entry


@compiled(allocates=False)
def release_entry(arena: Any, entry: Any) -> None:
    """Note that one node less holds an entry."""
    arena.entries[entry, ENTRY_HOLDERS] -= 1
    if arena.entries[entry, ENTRY_HOLDERS] == 0:
        arena.counters[LIVE_BYTES] -= bytes_of(arena, entry)
        arena.entries[entry, VALUE_BYTES] = arena.counters[DEAD_ENTRY]
        if arena.counters[DEAD_ENTRY] == NONE:
            arena.counters[FIRST_DEAD_ENTRY] = entry
        arena.counters[DEAD_ENTRY] = entry


@compiled(allocates=False)
def copied(arena: Any, node: Any) -> Any:
    """Return a copy of a node, for one of those who hold it."""
    nodes, children = arena.nodes, arena.children
    entry, block = np.int64(nodes[node, ENTRY]), np.int64(nodes[node, BLOCK])
    own_block = NONE
    if block != NONE:
        own_block = new_block(arena)
        for nibble in range(WIDTH):
            child = children[block, nibble]
            children[own_block, nibble] = child
            if child != NONE:
                nodes[child, HOLDERS] += 1
    if entry != NONE:
        arena.entries[entry, ENTRY_HOLDERS] += 1
    nodes[node, HOLDERS] -= 1
    start, stop, key_entry = nodes[node, START], nodes[node, STOP], nodes[node, KEY_ENTRY]
    return new_node(arena, np.int64(start), np.int64(stop), entry, np.int64(key_entry), own_block)


@compiled(allocates=False)
def own(arena: Any, node: Any) -> Any:
    """Return a node, dirty, that one parent alone holds: the same one or a copy."""
    if arena.nodes[node, HOLDERS] > 1:
        return copied(arena, node)
    mark(arena, node)
    return node
