"""Compiled loops that change and read tries.

Changes come in key order, and each descends from the node where the last one ended. During an update the trie may hold
branches with fewer than two children or values; a branch is repaired when the next key leaves it, after all changes
below it. A node whose partial key the next key leaves is repaired first. The nodes on the path of a change are owned by
the trie alone and dirty; no other node is touched.

Reads find the entries of keys and of prefixes, the nodes on their paths, and the encodings of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.distinct_loops import copy_bytes
from causeway_proofs.jit import BYTE_ROWS, BYTES, BYTES_OUT, INT64, NOTHING, ROWS, ROWS_OUT, compile_loop
from causeway_proofs.substrate import trie_arena as layout
from causeway_proofs.substrate.node import WIDTH, NodeKind
from causeway_proofs.substrate.trie_node_loops import (
    ARENA,
    bury_node,
    diverging_nibble,
    free_block,
    new_block,
    new_entry,
    new_node,
    own_node,
    read_nibble,
    release_entry,
)


@compile_loop(allocates=False)
def take_key(arena: Any, node: Any) -> None:
    """Adopt the key of a node's first child, if any: the node's own key entry may be released."""
    nodes = arena.nodes
    if nodes[node, layout.BLOCK] != layout.NONE:
        for nibble in range(WIDTH):
            child = np.int64(arena.children[nodes[node, layout.BLOCK], nibble])
            if child != layout.NONE:
                nodes[node, layout.KEY_ENTRY] = nodes[child, layout.KEY_ENTRY]
                return


@compile_loop(allocates=False)
def link(arena: Any, trie: Any, keys: Any, start: Any, level: Any, node: Any) -> None:
    """Attach a node (or none) at ``level`` of the path of the key at ``start``."""
    nodes = arena.nodes
    if level == 0:
        arena.roots[trie] = node
        return
    parent = np.int64(arena.path[level - 1])
    arena.children[nodes[parent, layout.BLOCK], read_nibble(keys, start, np.int64(nodes[parent, layout.STOP]))] = node
    if node != layout.NONE:
        nodes[parent, layout.HEIGHT] = max(nodes[parent, layout.HEIGHT], nodes[node, layout.HEIGHT] + 1)
        nodes[parent, layout.KEY_ENTRY] = nodes[node, layout.KEY_ENTRY]
    else:
        take_key(arena, parent)


@compile_loop(allocates=False)
def settle(arena: Any, trie: Any, keys: Any, start: Any, level: Any) -> None:
    """Repair a node after the changes below: keep it, drop it, or lift its only child."""
    nodes = arena.nodes
    node = np.int64(arena.path[level])
    entry, block = np.int64(nodes[node, layout.ENTRY]), np.int64(nodes[node, layout.BLOCK])
    only: Any = layout.NONE
    count = 0
    if block != layout.NONE:
        for nibble in range(WIDTH):
            child = np.int64(arena.children[block, nibble])
            if child != layout.NONE:
                only = child
                count += 1
        if count == 0:
            free_block(arena, block)
            nodes[node, layout.BLOCK] = layout.NONE
    replacement: Any = node
    if entry != layout.NONE:
        nodes[node, layout.KEY_ENTRY] = entry
    elif count < 2:
        replacement = layout.NONE
        if count == 1:
            replacement = own_node(arena, only)
            nodes[replacement, layout.START] = nodes[node, layout.START]
            free_block(arena, block)
        bury_node(arena, node)
    link(arena, trie, keys, start, level, replacement)


@compile_loop(allocates=False)
def leave(arena: Any, trie: Any, keys: Any, start: Any, height: Any, touched: Any, same: Any) -> Any:
    """Pop the path's nodes behind nibble ``same``; return ``height`` and ``touched``."""
    while height > 0 and arena.nodes[arena.path[height - 1], layout.START] > same:
        height -= 1
        if height < touched:
            touched = height
            settle(arena, trie, keys, start, height)
    return height, touched


@compile_loop(allocates=False)
def touch(arena: Any, trie: Any, keys: Any, start: Any, height: Any, touched: Any) -> None:
    """Make the trie the only owner of the path's nodes from level ``touched`` on."""
    for level in range(touched, height):
        node = np.int64(arena.path[level])
        mine = own_node(arena, node)
        arena.path[level] = mine
        link(arena, trie, keys, start, level, mine)


@compile_loop(allocates=False)
def descend(arena: Any, trie: Any, keys: Any, start: Any, total: Any, height: Any) -> Any:
    """Follow a key from the path's end; return the path's length and the divergent nibble."""
    nodes, children, entries = arena.nodes, arena.children, arena.entries
    if height == 0:
        if arena.roots[trie] == layout.NONE:
            return 0, 0
        arena.path[0] = arena.roots[trie]
        height = 1
    while True:
        node = arena.path[height - 1]
        first, stop = np.int64(nodes[node, layout.START]), np.int64(nodes[node, layout.STOP])
        left = min(stop, total)
        if first < left:
            left = diverging_nibble(
                keys, start, arena.heap, entries[nodes[node, layout.KEY_ENTRY], layout.OFFSET], first, left
            )
        if left < stop or stop == total or nodes[node, layout.BLOCK] == layout.NONE:
            return height, left
        child = children[nodes[node, layout.BLOCK], read_nibble(keys, start, stop)]
        if child == layout.NONE:
            return height, left
        arena.path[height] = child
        height += 1


@compile_loop(allocates=False)
def same_value(arena: Any, entry: Any, values: Any, first: Any, last: Any) -> Any:
    """Return True if an entry has the given value."""
    entries = arena.entries
    if entries[entry, layout.VALUE_BYTES] != last - first:
        return False
    at = entries[entry, layout.OFFSET] + entries[entry, layout.KEY_BYTES] + entries[entry, layout.DIGEST]
    for index in range(last - first):  # noqa: SIM110
        if arena.heap[at + index] != values[first + index]:
            return False
    return True


@compile_loop(INT64, [ARENA, ROWS, BYTES, ROWS, BYTES, ROWS, BYTES, BYTE_ROWS, ROWS, INT64], allocates=False)
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
    """Store the ``present`` values and remove the other keys, from ``first_row`` on.

    Returns the row before which more room for nodes and blocks is needed, or the number of rows. The order of rows
    affects the speed and which of several changes of a key is the last, nothing else.
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
                same = diverging_nibble(keys, start, keys, before, 0, min(total, 2 * (start - before)))
            height, touched = leave(arena, tries[row - 1], keys, before, height, touched, same)
        height, left = descend(arena, trie, keys, start, total, height)
        if height > 0 and height <= touched and left < nodes[path[height - 1], layout.STOP]:
            # The changes below this node are done; the repaired node may have another partial key.
            before = key_offsets[row - 1]
            height, touched = leave(
                arena, trie, keys, before, height, touched, np.int64(nodes[path[height - 1], layout.START]) - 1
            )
            height, left = descend(arena, trie, keys, start, total, height)
        top = np.int64(path[height - 1]) if height else layout.NONE
        entry: Any = layout.NONE
        if height and left == total == nodes[top, layout.STOP]:
            entry = np.int64(nodes[top, layout.ENTRY])
        if not present[row] and entry == layout.NONE:
            continue
        first, last = value_offsets[row], value_offsets[row + 1]
        if present[row] and entry != layout.NONE and same_value(arena, entry, values, first, last):
            continue
        # Room for this row and for leaving the nodes of the path.
        room = 2 * height + 4
        if len(nodes) - counters[layout.USED_NODES] < room or len(arena.children) - counters[layout.USED_BLOCKS] < room:
            leave(arena, trie, keys, start, height, touched, -1)
            return row
        touch(arena, trie, keys, start, height, touched)
        touched = height
        top = np.int64(path[height - 1]) if height else layout.NONE
        if not present[row]:
            nodes[top, layout.ENTRY] = layout.NONE
            take_key(arena, top)
            release_entry(arena, entry)
            arena.counts[trie] -= 1
            continue
        fresh = new_entry(arena, keys, start, stop, values, first, last, digests, digest_rows[row])
        if entry != layout.NONE:
            nodes[top, layout.ENTRY] = fresh
            release_entry(arena, entry)
            continue
        arena.counts[trie] += 1
        if height == 0:
            path[0] = new_node(arena, 0, total, fresh, fresh, layout.NONE)
            arena.roots[trie] = path[0]
            height = touched = 1
            continue
        if left < nodes[top, layout.STOP]:
            above, key_entry = np.int64(nodes[top, layout.START]), np.int64(nodes[top, layout.KEY_ENTRY])
            branch = new_node(arena, above, left, layout.NONE, key_entry, new_block(arena))
            lower = read_nibble(arena.heap, arena.entries[key_entry, layout.OFFSET], left)
            arena.children[nodes[branch, layout.BLOCK], lower] = top
            nodes[top, layout.START] = left + 1
            nodes[branch, layout.HEIGHT] = nodes[top, layout.HEIGHT] + 1
            path[height - 1] = branch
            link(arena, trie, keys, start, height - 1, branch)
            top = branch
        if left == total:
            nodes[top, layout.ENTRY] = fresh
            continue
        if nodes[top, layout.BLOCK] == layout.NONE:
            nodes[top, layout.BLOCK] = new_block(arena)
        link(arena, trie, keys, start, height, new_node(arena, left + 1, total, fresh, fresh, layout.NONE))
    if len(tries) > first_row:
        leave(arena, tries[-1], keys, key_offsets[len(tries) - 1], height, touched, -1)
    return len(tries)


@compile_loop(NOTHING, [ARENA], allocates=False)
def free_dead(arena: Any) -> None:
    """Move the rows of dead nodes and entries to the free lists."""
    counters = arena.counters
    if counters[layout.DEAD_NODE] != layout.NONE:
        arena.nodes[counters[layout.FIRST_DEAD_NODE], layout.HEIGHT] = counters[layout.FREE_NODE]
        counters[layout.FREE_NODE] = counters[layout.DEAD_NODE]
        counters[layout.DEAD_NODE] = layout.NONE
        counters[layout.USED_NODES] -= counters[layout.DEAD_NODES]
        counters[layout.DEAD_NODES] = 0
    if counters[layout.DEAD_ENTRY] != layout.NONE:
        arena.entries[counters[layout.FIRST_DEAD_ENTRY], layout.VALUE_BYTES] = counters[layout.FREE_ENTRY]
        counters[layout.FREE_ENTRY] = counters[layout.DEAD_ENTRY]
        counters[layout.DEAD_ENTRY] = layout.NONE


@compile_loop(INT64, [ARENA], allocates=False)
def highest_dirty(arena: Any) -> Any:
    """Return the largest height of a dirty node, -1 if there is none."""
    highest: Any = np.int64(-1)
    for node in arena.dirty[: arena.counters[layout.DIRTY_NODES]]:
        if arena.nodes[node, layout.STATE] == layout.DIRTY:
            highest = max(highest, np.int64(arena.nodes[node, layout.HEIGHT]))
    return highest


@compile_loop(NOTHING, [ARENA, ROWS_OUT, ROWS_OUT], allocates=False)
def take_dirty(arena: Any, ends: Any, dirty_nodes: Any) -> None:
    """Write the dirty nodes by height, those of height h up to ``ends[h]`` (initially zeros)."""
    nodes = arena.nodes
    dirty = arena.dirty[: arena.counters[layout.DIRTY_NODES]]
    for node in dirty:
        if nodes[node, layout.STATE] == layout.DIRTY:
            ends[nodes[node, layout.HEIGHT] + 1] += 1
    for height in range(1, len(ends)):
        ends[height] += ends[height - 1]
    for node in dirty:
        if nodes[node, layout.STATE] == layout.DIRTY:
            dirty_nodes[ends[nodes[node, layout.HEIGHT]]] = node
            ends[nodes[node, layout.HEIGHT]] += 1


@compile_loop(NOTHING, [ARENA, ROWS], allocates=False)
def release_tries(arena: Any, tries: Any) -> None:
    """Empty tries; nodes without other references die."""
    counters, nodes = arena.counters, arena.nodes
    for trie in tries:
        node = arena.roots[trie]
        arena.roots[trie] = layout.NONE
        arena.counts[trie] = 0
        if node != layout.NONE:
            nodes[node, layout.HOLDERS] -= 1
            if nodes[node, layout.HOLDERS] == 0:
                bury_node(arena, node)
        while counters[layout.DEAD_NODE] != layout.NONE:
            node = counters[layout.DEAD_NODE]
            counters[layout.DEAD_NODE] = nodes[node, layout.HEIGHT]
            counters[layout.DEAD_NODES] -= 1
            nodes[node, layout.HEIGHT] = counters[layout.FREE_NODE]
            counters[layout.FREE_NODE] = node
            counters[layout.USED_NODES] -= 1
            if nodes[node, layout.ENTRY] != layout.NONE:
                release_entry(arena, nodes[node, layout.ENTRY])
            block = nodes[node, layout.BLOCK]
            if block == layout.NONE:
                continue
            for nibble in range(WIDTH):
                child = arena.children[block, nibble]
                if child != layout.NONE:
                    nodes[child, layout.HOLDERS] -= 1
                    if nodes[child, layout.HOLDERS] == 0:
                        bury_node(arena, child)
            free_block(arena, block)


@compile_loop(NOTHING, [ARENA, ROWS, ROWS_OUT], allocates=False)
def share(arena: Any, tries: Any, copies: Any) -> None:
    """Give the empty tries ``copies`` the entries of ``tries``."""
    for index in range(len(tries)):
        node = arena.roots[tries[index]]
        arena.roots[copies[index]] = node
        arena.counts[copies[index]] = arena.counts[tries[index]]
        if node != layout.NONE:
            arena.nodes[node, layout.HOLDERS] += 1


LEAF, LEAF_MOST = int(NodeKind.LEAF), NodeKind.LEAF.most
BRANCH, BRANCH_MOST = int(NodeKind.BRANCH), NodeKind.BRANCH.most
BRANCH_WITH_VALUE, BRANCH_WITH_VALUE_MOST = int(NodeKind.BRANCH_WITH_VALUE), NodeKind.BRANCH_WITH_VALUE.most
LEAF_HASHED, LEAF_HASHED_MOST = int(NodeKind.LEAF_HASHED), NodeKind.LEAF_HASHED.most
BRANCH_HASHED, BRANCH_HASHED_MOST = int(NodeKind.BRANCH_HASHED), NodeKind.BRANCH_HASHED.most

DIGEST_BYTES = 32
MOST_FIXED_BYTES = 16
"""First and last header byte, odd nibble, bitmap, and length of the value."""


@compile_loop(NOTHING, [ARENA, ROWS, BYTES, ROWS, ROWS, ROWS_OUT, ROWS_OUT, ROWS_OUT], allocates=False)
def visit(
    arena: Any, tries: Any, keys: Any, key_offsets: Any, ends: Any, counts: Any, visited: Any, found: Any
) -> None:
    """Find the entry of each key, and the separately encoded nodes on its path.

    ``counts``: number of these nodes; they are written to ``visited`` from ``ends[row]`` on, if it has room.
    """
    nodes, children, entries = arena.nodes, arena.children, arena.entries
    for row in range(len(tries)):
        start = key_offsets[row]
        total = 2 * (key_offsets[row + 1] - start)
        node = np.int64(arena.roots[tries[row]])
        count = 0
        found[row] = layout.NONE
        while node != layout.NONE:
            if count == 0 or arena.reference_bytes[node] == DIGEST_BYTES:
                if len(visited):
                    visited[ends[row] + count] = node
                count += 1
            first, stop = np.int64(nodes[node, layout.START]), np.int64(nodes[node, layout.STOP])
            left = min(stop, total)
            if first < left:
                left = diverging_nibble(
                    keys, start, arena.heap, entries[nodes[node, layout.KEY_ENTRY], layout.OFFSET], first, left
                )
            if left < stop:
                break
            if stop == total:
                found[row] = nodes[node, layout.ENTRY]
                break
            if nodes[node, layout.BLOCK] == layout.NONE:
                break
            node = np.int64(children[nodes[node, layout.BLOCK], read_nibble(keys, start, stop)])
        counts[row] = count


@compile_loop(INT64, [ARENA, INT64, BYTES, BYTES_OUT, ROWS_OUT], allocates=False)
def entries_below(arena: Any, trie: Any, prefix: Any, following: Any, found: Any) -> Any:
    """Write the entries with keys under ``prefix``, ascending by key; return their count.

    ``following`` has one number a level: the next child to read of the path's node there.
    """
    nodes = arena.nodes
    total = 2 * len(prefix)
    node: Any = np.int64(arena.roots[trie])
    while node != layout.NONE:
        stop = np.int64(nodes[node, layout.STOP])
        offset = arena.entries[nodes[node, layout.KEY_ENTRY], layout.OFFSET]
        limit = min(stop, total)
        if diverging_nibble(prefix, 0, arena.heap, offset, np.int64(nodes[node, layout.START]), limit) < limit:
            return 0
        if stop >= total:
            break
        if nodes[node, layout.BLOCK] == layout.NONE:
            return 0
        node = np.int64(arena.children[nodes[node, layout.BLOCK], read_nibble(prefix, 0, stop)])
    if node == layout.NONE:
        return 0
    path = arena.path
    path[0], following[0] = node, 0
    height: Any = 1
    count = 0
    while height:
        node = np.int64(path[height - 1])
        nibble: Any = np.int64(following[height - 1])
        if nibble == 0 and nodes[node, layout.ENTRY] != layout.NONE:
            found[count] = nodes[node, layout.ENTRY]
            count += 1
        block = np.int64(nodes[node, layout.BLOCK])
        while block != layout.NONE and nibble < WIDTH and arena.children[block, nibble] == layout.NONE:
            nibble += 1
        if block == layout.NONE or nibble == WIDTH:
            height -= 1
            continue
        following[height - 1] = nibble + 1
        path[height], following[height] = arena.children[block, nibble], 0
        height += 1
    return count


@compile_loop(INT64, [ARENA, ROWS], allocates=False)
def room_for_encodings(arena: Any, numbers: Any) -> Any:
    """Return an upper bound of the size of nodes' encodings."""
    nodes, entries = arena.nodes, arena.entries
    room: Any = 0
    for node in numbers:
        nibbles = np.int64(nodes[node, layout.STOP]) - np.int64(nodes[node, layout.START])
        room += MOST_FIXED_BYTES + nibbles // 2 + nibbles // 255
        entry = nodes[node, layout.ENTRY]
        if entry != layout.NONE:
            room += (
                entries[entry, layout.DIGEST] if entries[entry, layout.DIGEST] else entries[entry, layout.VALUE_BYTES]
            )
        if nodes[node, layout.BLOCK] != layout.NONE:
            room += WIDTH * (1 + DIGEST_BYTES)
    return room


@compile_loop(allocates=False)
def write_header(out: Any, at: Any, mark: Any, most: Any, count: Any) -> Any:
    """Write the header of a node with ``count`` nibbles; return its end."""
    if count < most:
        out[at] = mark | count
        return at + 1
    out[at] = mark | most
    at += 1
    count -= most
    while count >= 255:
        out[at] = 255
        at += 1
        count -= 255
    out[at] = count
    return at + 1


@compile_loop(allocates=False)
def write_partial(out: Any, at: Any, key: Any, offset: Any, start: Any, stop: Any) -> Any:
    """Write the nibbles ``start`` to ``stop`` of a key: an odd one first, then pairs."""
    if (stop - start) & 1:
        out[at] = read_nibble(key, offset, start)
        at += 1
        start += 1
    count = (stop - start) >> 1
    offset += start >> 1
    if start & 1:
        first, target = np.uint64(offset), np.uint64(at)
        for index in range(np.uint64(count)):
            out[target + index] = (key[first + index] & 15) << 4 | key[first + index + np.uint64(1)] >> 4
    else:
        copy_bytes(key, offset, out, at, count)
    return at + count


@compile_loop(allocates=False)
def write_compact(out: Any, at: Any, number: Any) -> Any:
    """Write a compact integer; return its end."""
    if number < 1 << 6:
        out[at] = number << 2
        return at + 1
    count, encoded, mode = 2, number << 2, 1
    if number >= 1 << 30:
        count, encoded = 4, number
        while number >> 8 * count:
            count += 1
        out[at] = (count - 4) << 2 | 3
        at += 1
        mode = 0
    elif number >= 1 << 14:
        count, mode = 4, 2
    encoded |= mode
    for index in range(count):
        out[at + index] = encoded >> 8 * index & 255
    return at + count


@compile_loop(allocates=False)
def write_node(arena: Any, node: Any, out: Any, at: Any) -> Any:
    """Write the encoding of a node with referenced children; return its end."""
    nodes, entries, heap = arena.nodes, arena.entries, arena.heap
    start, stop = np.int64(nodes[node, layout.START]), np.int64(nodes[node, layout.STOP])
    entry, block = np.int64(nodes[node, layout.ENTRY]), np.int64(nodes[node, layout.BLOCK])
    hashed = entry != layout.NONE and entries[entry, layout.DIGEST] > 0
    if block == layout.NONE:
        mark, most = (LEAF_HASHED, LEAF_HASHED_MOST) if hashed else (LEAF, LEAF_MOST)
    elif hashed:
        mark, most = BRANCH_HASHED, BRANCH_HASHED_MOST
    elif entry == layout.NONE:
        mark, most = BRANCH, BRANCH_MOST
    else:
        mark, most = BRANCH_WITH_VALUE, BRANCH_WITH_VALUE_MOST
    at = write_header(out, at, mark, most, stop - start)
    if start < stop:
        at = write_partial(out, at, heap, entries[nodes[node, layout.KEY_ENTRY], layout.OFFSET], start, stop)
    bitmap_at = at
    if block != layout.NONE:
        at += 2
    if entry != layout.NONE:
        offset = entries[entry, layout.OFFSET] + entries[entry, layout.KEY_BYTES]
        count = entries[entry, layout.DIGEST]
        if not hashed:
            count = entries[entry, layout.VALUE_BYTES]
            at = write_compact(out, at, count)
        copy_bytes(heap, offset, out, at, count)
        at += count
    if block != layout.NONE:
        bitmap = 0
        for nibble in range(WIDTH):
            child = np.int64(arena.children[block, nibble])
            if child != layout.NONE:
                bitmap |= 1 << nibble
                count = np.int64(arena.reference_bytes[child])
                out[at] = count << 2
                at += 1
                # Copy the full width; surplus bytes are overwritten.
                copy_bytes(arena.references[child], 0, out, at, DIGEST_BYTES)
                at += count
        out[bitmap_at] = bitmap & 255
        out[bitmap_at + 1] = bitmap >> 8
    return at


@compile_loop(NOTHING, [ARENA, ROWS, BYTES_OUT, ROWS_OUT], allocates=False)
def encode(arena: Any, numbers: Any, out: Any, ends: Any) -> None:
    """Write the encodings of nodes; the one of ``numbers[i]`` ends at ``ends[i + 1]``."""
    at = np.int64(0)
    ends[0] = at
    for row in range(len(numbers)):
        at = write_node(arena, numbers[row], out, at)
        ends[row + 1] = at


@compile_loop(INT64, [ARENA, ROWS, BYTES, ROWS, ROWS_OUT], allocates=False)
def refer_to_short(arena: Any, numbers: Any, encodings: Any, ends: Any, others: Any) -> Any:
    """Make short encodings their nodes' references; return the number of ``others``."""
    count = 0
    for row in range(len(numbers)):
        start, stop = ends[row], ends[row + 1]
        if stop - start >= DIGEST_BYTES:
            arena.reference_bytes[numbers[row]] = DIGEST_BYTES
            others[count] = row
            count += 1
            continue
        arena.reference_bytes[numbers[row]] = stop - start
        for index in range(stop - start):
            arena.references[numbers[row], index] = encodings[start + index]
    return count


@compile_loop(NOTHING, [ARENA, ROWS, ROWS, BYTES_OUT], allocates=False)
def copy_values(arena: Any, entries: Any, ends: Any, out: Any) -> None:
    """Write the values of entries; the one of ``entries[i]`` starts at ``ends[i]``.

    ``NONE`` writes nothing.
    """
    for row in range(len(entries)):
        entry = entries[row]
        if entry != layout.NONE:
            offset = (
                arena.entries[entry, layout.OFFSET]
                + arena.entries[entry, layout.KEY_BYTES]
                + arena.entries[entry, layout.DIGEST]
            )
            copy_bytes(arena.heap, offset, out, ends[row], arena.entries[entry, layout.VALUE_BYTES])


@compile_loop(NOTHING, [ARENA, ROWS, ROWS, BYTES_OUT], allocates=False)
def copy_keys(arena: Any, entries: Any, ends: Any, out: Any) -> None:
    """Write the keys of entries, as ``copy_values``."""
    for row in range(len(entries)):
        offset = arena.entries[entries[row], layout.OFFSET]
        copy_bytes(arena.heap, offset, out, ends[row], arena.entries[entries[row], layout.KEY_BYTES])
