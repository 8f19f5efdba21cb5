"""Loops that change tries: changes in the order of keys go down from the node where the last one ended.

While a change is made, the trie may hold branches with fewer than two reasons to be; a branch is put right when the
changes below it are done, which is when the next key leaves it. A node whose partial key the next key leaves is put
right first. Everything on the path of a change is held by the trie alone and is dirty; nothing else is touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BYTE_ROWS, BYTES, INT64, NOTHING, ROWS, ROWS_OUT, compiled
from causeway.proofs.substrate.node import WIDTH
from causeway.proofs.substrate.trie_arena import (
    BLOCK,
    DEAD_ENTRY,
    DEAD_NODE,
    DEAD_NODES,
    DIGEST,
    DIRTY,
    DIRTY_NODES,
    ENTRY,
    FIRST_DEAD_ENTRY,
    FIRST_DEAD_NODE,
    FREE_ENTRY,
    FREE_NODE,
    HEIGHT,
    HOLDERS,
    KEY_BYTES,
    KEY_ENTRY,
    NONE,
    OFFSET,
    START,
    STATE,
    STOP,
    USED_BLOCKS,
    USED_NODES,
    VALUE_BYTES,
)
from causeway.proofs.substrate.trie_node_loops import (
    ARENA,
    bury_node,
    free_block,
    new_block,
    new_entry,
    new_node,
    nibble_of,
    own,
    parting,
    release_entry,
)


@compiled(allocates=False)
def take_key(arena: Any, node: Any) -> None:
    """Take the key of a node's first child for its own, if it has one: what was below the node may be gone."""
    nodes = arena.nodes
    if nodes[node, BLOCK] != NONE:
        for nibble in range(WIDTH):
            child = np.int64(arena.children[nodes[node, BLOCK], nibble])
            if child != NONE:
                nodes[node, KEY_ENTRY] = nodes[child, KEY_ENTRY]
                return


@compiled(allocates=False)
def link(arena: Any, trie: Any, keys: Any, start: Any, level: Any, node: Any) -> None:
    """Hang a node (or none) where the path has its node at ``level``; the key at ``start`` leads there."""
    nodes = arena.nodes
    if level == 0:
        arena.roots[trie] = node
        return
    parent = np.int64(arena.path[level - 1])
    arena.children[nodes[parent, BLOCK], nibble_of(keys, start, np.int64(nodes[parent, STOP]))] = node
    if node != NONE:
        nodes[parent, HEIGHT] = max(nodes[parent, HEIGHT], nodes[node, HEIGHT] + 1)
        nodes[parent, KEY_ENTRY] = nodes[node, KEY_ENTRY]
    else:
        take_key(arena, parent)


@compiled(allocates=False)
def settle(arena: Any, trie: Any, keys: Any, start: Any, level: Any) -> None:
    """Put right a node below which all changes are made: it stays, goes, or its only child takes its place."""
    nodes = arena.nodes
    node = np.int64(arena.path[level])
    entry, block = np.int64(nodes[node, ENTRY]), np.int64(nodes[node, BLOCK])
    only: Any = NONE
    count = 0
    if block != NONE:
        for nibble in range(WIDTH):
            child = np.int64(arena.children[block, nibble])
            if child != NONE:
                only = child
                count += 1
        if count == 0:
            free_block(arena, block)
            nodes[node, BLOCK] = NONE
    kept: Any = node
    if entry != NONE:
        nodes[node, KEY_ENTRY] = entry
    elif count < 2:
        kept = NONE
        if count == 1:
            kept = own(arena, only)
            nodes[kept, START] = nodes[node, START]
            free_block(arena, block)
        bury_node(arena, node)
    link(arena, trie, keys, start, level, kept)


@compiled(allocates=False)
def leave(arena: Any, trie: Any, keys: Any, start: Any, height: Any, touched: Any, same: Any) -> Any:
    """Take the nodes off the path that start behind nibble ``same``; return the new ``height`` and ``touched``."""
    while height > 0 and arena.nodes[arena.path[height - 1], START] > same:
        height -= 1
        if height < touched:
            touched = height
            settle(arena, trie, keys, start, height)
    return height, touched


@compiled(allocates=False)
def touch(arena: Any, trie: Any, keys: Any, start: Any, height: Any, touched: Any) -> None:
    """Make the path's nodes from the level ``touched`` on this trie's own."""
    for level in range(touched, height):
        node = np.int64(arena.path[level])
        mine = own(arena, node)
        arena.path[level] = mine
        link(arena, trie, keys, start, level, mine)


@compiled(allocates=False)
def descend(arena: Any, trie: Any, keys: Any, start: Any, total: Any, height: Any) -> Any:
    """Follow a key down from the end of the path; return the path's new length and the nibble where the key leaves."""
    nodes, children, entries = arena.nodes, arena.children, arena.entries
    if height == 0:
        if arena.roots[trie] == NONE:
            return 0, 0
        arena.path[0] = arena.roots[trie]
        height = 1
    while True:
        node = arena.path[height - 1]
        first, stop = np.int64(nodes[node, START]), np.int64(nodes[node, STOP])
        left = min(stop, total)
        if first < left:
            left = parting(keys, start, arena.heap, entries[nodes[node, KEY_ENTRY], OFFSET], first, left)
        if left < stop or stop == total or nodes[node, BLOCK] == NONE:
            return height, left
        child = children[nodes[node, BLOCK], nibble_of(keys, start, stop)]
        if child == NONE:
            return height, left
        arena.path[height] = child
        height += 1


@compiled(allocates=False)
def same_value(arena: Any, entry: Any, values: Any, first: Any, last: Any) -> Any:
    """Return whether an entry has a value."""
    entries = arena.entries
    if entries[entry, VALUE_BYTES] != last - first:
        return False
    at = entries[entry, OFFSET] + entries[entry, KEY_BYTES] + entries[entry, DIGEST]
    for index in range(last - first):  # noqa: SIM110
        if arena.heap[at + index] != values[first + index]:
            return False
    return True


@compiled(INT64, [ARENA, ROWS, BYTES, ROWS, BYTES, ROWS, BYTES, BYTE_ROWS, ROWS, INT64], allocates=False)
def change(
    arena: Any,
    tries: Any,
    keys: Any,
    key_offsets: Any,
    values: Any,
    value_offsets: Any,
    present: Any,
    digests: Any,
    digest_rows: Any,
    first_row: Any,
) -> Any:
    """Store the values that are ``present`` and remove the keys of others, from ``first_row`` on.

    Return the row before which more room for nodes and blocks is needed, or the number of rows. The order of rows
    decides how fast this is, and which of several changes of one key is the last one; nothing else.
    """
    nodes, counters, path = arena.nodes, arena.counters, arena.path
    height = touched = 0
    for row in range(first_row, len(tries)):
        trie, start, stop = tries[row], key_offsets[row], key_offsets[row + 1]
        total = 2 * (stop - start)
        if row > first_row:
            before = key_offsets[row - 1]
            same = -1
            if tries[row - 1] == trie:
                same = parting(keys, start, keys, before, 0, min(total, 2 * (start - before)))
            height, touched = leave(arena, tries[row - 1], keys, before, height, touched, same)
        height, left = descend(arena, trie, keys, start, total, height)
        if height > 0 and height <= touched and left < nodes[path[height - 1], STOP]:
            # Nothing below this node is changed any more. What it is now may also start with another partial key.
            before = key_offsets[row - 1]
            height, touched = leave(
                arena, trie, keys, before, height, touched, np.int64(nodes[path[height - 1], START]) - 1
            )
            height, left = descend(arena, trie, keys, start, total, height)
        top = np.int64(path[height - 1]) if height else NONE
        entry: Any = NONE
        if height and left == total == nodes[top, STOP]:
            entry = np.int64(nodes[top, ENTRY])
        if not present[row] and entry == NONE:
            continue
        first, last = value_offsets[row], value_offsets[row + 1]
        if present[row] and entry != NONE and same_value(arena, entry, values, first, last):
            continue
        # As much is needed here and when the nodes of the path are left.
        room = 2 * height + 4
        if len(nodes) - counters[USED_NODES] < room or len(arena.children) - counters[USED_BLOCKS] < room:
            leave(arena, trie, keys, start, height, touched, -1)
            return row
        touch(arena, trie, keys, start, height, touched)
        touched = height
        top = np.int64(path[height - 1]) if height else NONE
        if not present[row]:
            nodes[top, ENTRY] = NONE
            take_key(arena, top)
            release_entry(arena, entry)
            arena.counts[trie] -= 1
            continue
        fresh = new_entry(arena, keys, start, stop, values, first, last, digests, digest_rows[row])
        if entry != NONE:
            nodes[top, ENTRY] = fresh
            release_entry(arena, entry)
            continue
        arena.counts[trie] += 1
        if height == 0:
            path[0] = new_node(arena, 0, total, fresh, fresh, NONE)
            arena.roots[trie] = path[0]
            height = touched = 1
            continue
        if left < nodes[top, STOP]:
            above, key_entry = np.int64(nodes[top, START]), np.int64(nodes[top, KEY_ENTRY])
            branch = new_node(arena, above, left, NONE, key_entry, new_block(arena))
            lower = nibble_of(arena.heap, arena.entries[key_entry, OFFSET], left)
            arena.children[nodes[branch, BLOCK], lower] = top
            nodes[top, START] = left + 1
            nodes[branch, HEIGHT] = nodes[top, HEIGHT] + 1
            path[height - 1] = branch
            link(arena, trie, keys, start, height - 1, branch)
            top = branch
        if left == total:
            nodes[top, ENTRY] = fresh
            continue
        if nodes[top, BLOCK] == NONE:
            nodes[top, BLOCK] = new_block(arena)
        link(arena, trie, keys, start, height, new_node(arena, left + 1, total, fresh, fresh, NONE))
    if len(tries) > first_row:
        leave(arena, tries[-1], keys, key_offsets[len(tries) - 1], height, touched, -1)
    return len(tries)


@compiled(NOTHING, [ARENA], allocates=False)
def free_dead(arena: Any) -> None:
    """Let the rows of dead nodes and entries be used again."""
    counters = arena.counters
    if counters[DEAD_NODE] != NONE:
        arena.nodes[counters[FIRST_DEAD_NODE], HEIGHT] = counters[FREE_NODE]
        counters[FREE_NODE] = counters[DEAD_NODE]
        counters[DEAD_NODE] = NONE
        counters[USED_NODES] -= counters[DEAD_NODES]
        counters[DEAD_NODES] = 0
    if counters[DEAD_ENTRY] != NONE:
        arena.entries[counters[FIRST_DEAD_ENTRY], VALUE_BYTES] = counters[FREE_ENTRY]
        counters[FREE_ENTRY] = counters[DEAD_ENTRY]
        counters[DEAD_ENTRY] = NONE


@compiled(INT64, [ARENA], allocates=False)
def highest_dirty(arena: Any) -> Any:
    """Return the largest height of a dirty node, -1 if there is none."""
    highest: Any = np.int64(-1)
    for node in arena.dirty[: arena.counters[DIRTY_NODES]]:
        if arena.nodes[node, STATE] == DIRTY:
            highest = max(highest, np.int64(arena.nodes[node, HEIGHT]))
    return highest


@compiled(NOTHING, [ARENA, ROWS_OUT, ROWS_OUT], allocates=False)
def take_dirty(arena: Any, ends: Any, taken: Any) -> None:
    """Write the dirty nodes by height, those of height h up to ``ends[h]`` (which are zeros before)."""
    nodes = arena.nodes
    dirty = arena.dirty[: arena.counters[DIRTY_NODES]]
    for node in dirty:
        if nodes[node, STATE] == DIRTY:
            ends[nodes[node, HEIGHT] + 1] += 1
    for height in range(1, len(ends)):
        ends[height] += ends[height - 1]
    for node in dirty:
        if nodes[node, STATE] == DIRTY:
            taken[ends[nodes[node, HEIGHT]]] = node
            ends[nodes[node, HEIGHT]] += 1


@compiled(NOTHING, [ARENA, ROWS], allocates=False)
def release_tries(arena: Any, tries: Any) -> None:
    """Empty some tries: what nobody else holds dies."""
    counters, nodes = arena.counters, arena.nodes
    for trie in tries:
        node = arena.roots[trie]
        arena.roots[trie] = NONE
        arena.counts[trie] = 0
        if node != NONE:
            nodes[node, HOLDERS] -= 1
            if nodes[node, HOLDERS] == 0:
                bury_node(arena, node)
        while counters[DEAD_NODE] != NONE:
            node = counters[DEAD_NODE]
            counters[DEAD_NODE] = nodes[node, HEIGHT]
            counters[DEAD_NODES] -= 1
            nodes[node, HEIGHT] = counters[FREE_NODE]
            counters[FREE_NODE] = node
            counters[USED_NODES] -= 1
            if nodes[node, ENTRY] != NONE:
                release_entry(arena, nodes[node, ENTRY])
            block = nodes[node, BLOCK]
            if block == NONE:
                continue
            for nibble in range(WIDTH):
                child = arena.children[block, nibble]
                if child != NONE:
                    nodes[child, HOLDERS] -= 1
                    if nodes[child, HOLDERS] == 0:
                        bury_node(arena, child)
            free_block(arena, block)


@compiled(NOTHING, [ARENA, ROWS, ROWS_OUT], allocates=False)
def share(arena: Any, tries: Any, copies: Any) -> None:
    """Give the empty tries ``copies`` the entries of others."""
    for index in range(len(tries)):
        node = arena.roots[tries[index]]
        arena.roots[copies[index]] = node
        arena.counts[copies[index]] = arena.counts[tries[index]]
        if node != NONE:
            arena.nodes[node, HOLDERS] += 1
