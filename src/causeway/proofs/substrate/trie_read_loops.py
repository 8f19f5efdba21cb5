"""Loops that read tries: entries of keys and of prefixes, the nodes that a read visits, the encodings of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.compiled import BYTES, BYTES_OUT, INT64, NOTHING, ROWS, ROWS_OUT, compiled
from causeway.proofs.distinct.loops import copy_bytes
from causeway.proofs.substrate.node import WIDTH, Kind
from causeway.proofs.substrate.trie_arena import (
    BLOCK,
    DIGEST,
    ENTRY,
    KEY_BYTES,
    KEY_ENTRY,
    NONE,
    OFFSET,
    START,
    STOP,
    VALUE_BYTES,
)
from causeway.proofs.substrate.trie_node_loops import ARENA, nibble_of, parting

LEAF, LEAF_MOST = int(Kind.LEAF), Kind.LEAF.most
BRANCH, BRANCH_MOST = int(Kind.BRANCH), Kind.BRANCH.most
BRANCH_WITH_VALUE, BRANCH_WITH_VALUE_MOST = int(Kind.BRANCH_WITH_VALUE), Kind.BRANCH_WITH_VALUE.most
LEAF_HASHED, LEAF_HASHED_MOST = int(Kind.LEAF_HASHED), Kind.LEAF_HASHED.most
BRANCH_HASHED, BRANCH_HASHED_MOST = int(Kind.BRANCH_HASHED), Kind.BRANCH_HASHED.most

DIGEST_BYTES = 32
MOST_FIXED_BYTES = 16
"""The header's first byte and its last one, half a byte of the partial key, the bitmap, the length of the value."""


@compiled(NOTHING, [ARENA, ROWS, BYTES, ROWS, ROWS, ROWS_OUT, ROWS_OUT, ROWS_OUT], allocates=False)
def visit(
    arena: Any, tries: Any, keys: Any, key_offsets: Any, ends: Any, counts: Any, visited: Any, found: Any
) -> None:
    """Find the entry of each key, and the nodes on the way there that are encoded on their own.

    ``counts`` is how many nodes those are; where there is room, they are written to ``visited`` from ``ends[row]`` on.
    """
    nodes, children, entries = arena.nodes, arena.children, arena.entries
    for row in range(len(tries)):
        start = key_offsets[row]
        total = 2 * (key_offsets[row + 1] - start)
        node = np.int64(arena.roots[tries[row]])
        count = 0
        found[row] = NONE
        while node != NONE:
            if count == 0 or arena.reference_bytes[node] == DIGEST_BYTES:
                if len(visited):
                    visited[ends[row] + count] = node
                count += 1
            first, stop = np.int64(nodes[node, START]), np.int64(nodes[node, STOP])
            left = min(stop, total)
            if first < left:
                left = parting(keys, start, arena.heap, entries[nodes[node, KEY_ENTRY], OFFSET], first, left)
            if left < stop:
                break
            if stop == total:
                found[row] = nodes[node, ENTRY]
                break
            if nodes[node, BLOCK] == NONE:
                break
            node = np.int64(children[nodes[node, BLOCK], nibble_of(keys, start, stop)])
        counts[row] = count


@compiled(INT64, [ARENA, INT64, BYTES, BYTES_OUT, ROWS_OUT], allocates=False)
def entries_below(arena: Any, trie: Any, prefix: Any, following: Any, found: Any) -> Any:
    """Write the entries whose keys start with ``prefix``, ascending by key; return how many there are.

    ``following`` has room for one number a level: which child of the path's node there is read next.
    """
    nodes = arena.nodes
    total = 2 * len(prefix)
    node: Any = np.int64(arena.roots[trie])
    while node != NONE:
        stop = np.int64(nodes[node, STOP])
        offset = arena.entries[nodes[node, KEY_ENTRY], OFFSET]
        limit = min(stop, total)
        if parting(prefix, 0, arena.heap, offset, np.int64(nodes[node, START]), limit) < limit:
            return 0
        if stop >= total:
            break
        if nodes[node, BLOCK] == NONE:
            return 0
        node = np.int64(arena.children[nodes[node, BLOCK], nibble_of(prefix, 0, stop)])
    if node == NONE:
        return 0
    path = arena.path
    path[0], following[0] = node, 0
    height: Any = 1
    count = 0
    while height:
        node = np.int64(path[height - 1])
        nibble: Any = np.int64(following[height - 1])
        if nibble == 0 and nodes[node, ENTRY] != NONE:
            found[count] = nodes[node, ENTRY]
            count += 1
        block = np.int64(nodes[node, BLOCK])
        while block != NONE and nibble < WIDTH and arena.children[block, nibble] == NONE:
            nibble += 1
        if block == NONE or nibble == WIDTH:
            height -= 1
            continue
        following[height - 1] = nibble + 1
        path[height], following[height] = arena.children[block, nibble], 0
        height += 1
    return count


@compiled(INT64, [ARENA, ROWS], allocates=False)
def room_for_encodings(arena: Any, numbers: Any) -> Any:
    """Return as many bytes as the encodings of some nodes take at most."""
    nodes, entries = arena.nodes, arena.entries
    room: Any = 0
    for node in numbers:
        nibbles = np.int64(nodes[node, STOP]) - np.int64(nodes[node, START])
        room += MOST_FIXED_BYTES + nibbles // 2 + nibbles // 255
        entry = nodes[node, ENTRY]
        if entry != NONE:
            room += entries[entry, DIGEST] if entries[entry, DIGEST] else entries[entry, VALUE_BYTES]
        if nodes[node, BLOCK] != NONE:
            room += WIDTH * (1 + DIGEST_BYTES)
    return room


@compiled(allocates=False)
def write_header(out: Any, at: Any, mark: Any, most: Any, count: Any) -> Any:
    """Write the header of a node with ``count`` nibbles; return where it ends."""
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


@compiled(allocates=False)
def write_partial(out: Any, at: Any, key: Any, offset: Any, start: Any, stop: Any) -> Any:
    """Write the nibbles ``start`` to ``stop`` of a key: an odd one first, then pairs."""
    if (stop - start) & 1:
        out[at] = nibble_of(key, offset, start)
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


@compiled(allocates=False)
def write_compact(out: Any, at: Any, number: Any) -> Any:
    """Write a compact integer; return where it ends."""
    if number < 1 << 6:
        out[at] = number << 2
        return at + 1
    count, shown, mode = 2, number << 2, 1
    if number >= 1 << 30:
        count, shown = 4, number
        while number >> 8 * count:
            count += 1
        out[at] = (count - 4) << 2 | 3
        at += 1
        mode = 0
    elif number >= 1 << 14:
        count, mode = 4, 2
    shown |= mode
    for index in range(count):
        out[at + index] = shown >> 8 * index & 255
    return at + count


@compiled(allocates=False)
def write_node(arena: Any, node: Any, out: Any, at: Any) -> Any:
    """Write the encoding of a node whose children have their references; return where it ends."""
    nodes, entries, heap = arena.nodes, arena.entries, arena.heap
    start, stop = np.int64(nodes[node, START]), np.int64(nodes[node, STOP])
    entry, block = np.int64(nodes[node, ENTRY]), np.int64(nodes[node, BLOCK])
    hashed = entry != NONE and entries[entry, DIGEST] > 0
    if block == NONE:
        mark, most = (LEAF_HASHED, LEAF_HASHED_MOST) if hashed else (LEAF, LEAF_MOST)
    elif hashed:
        mark, most = BRANCH_HASHED, BRANCH_HASHED_MOST
    elif entry == NONE:
        mark, most = BRANCH, BRANCH_MOST
    else:
        mark, most = BRANCH_WITH_VALUE, BRANCH_WITH_VALUE_MOST
    at = write_header(out, at, mark, most, stop - start)
    if start < stop:
        at = write_partial(out, at, heap, entries[nodes[node, KEY_ENTRY], OFFSET], start, stop)
    bitmap_at = at
    if block != NONE:
        at += 2
    if entry != NONE:
        offset = entries[entry, OFFSET] + entries[entry, KEY_BYTES]
        count = entries[entry, DIGEST]
        if not hashed:
            count = entries[entry, VALUE_BYTES]
            at = write_compact(out, at, count)
        copy_bytes(heap, offset, out, at, count)
        at += count
    if block != NONE:
        bitmap = 0
        for nibble in range(WIDTH):
            child = np.int64(arena.children[block, nibble])
            if child != NONE:
                bitmap |= 1 << nibble
                count = np.int64(arena.reference_bytes[child])
                out[at] = count << 2
                at += 1
                # All bytes that a reference has room for: those that are too many are written over.
                copy_bytes(arena.references[child], 0, out, at, DIGEST_BYTES)
                at += count
        out[bitmap_at] = bitmap & 255
        out[bitmap_at + 1] = bitmap >> 8
    return at


@compiled(NOTHING, [ARENA, ROWS, BYTES_OUT, ROWS_OUT], allocates=False)
def encode(arena: Any, numbers: Any, out: Any, ends: Any) -> None:
    """Write the encodings of nodes one behind the other; ``ends[i + 1]`` is where the one of ``numbers[i]`` ends."""
    at = np.int64(0)
    ends[0] = at
    for row in range(len(numbers)):
        at = write_node(arena, numbers[row], out, at)
        ends[row + 1] = at


@compiled(INT64, [ARENA, ROWS, BYTES, ROWS, ROWS_OUT], allocates=False)
def refer_to_short(arena: Any, numbers: Any, encodings: Any, ends: Any, others: Any) -> Any:
    """Let those nodes whose encodings are short be their own references; return how many ``others`` there are."""
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


@compiled(NOTHING, [ARENA, ROWS, ROWS, BYTES_OUT], allocates=False)
def copy_values(arena: Any, entries: Any, ends: Any, out: Any) -> None:
    """Write the values of entries; ``ends[i]`` is where the one of ``entries[i]`` (``NONE``: nothing) starts."""
    for row in range(len(entries)):
        entry = entries[row]
        if entry != NONE:
            offset = arena.entries[entry, OFFSET] + arena.entries[entry, KEY_BYTES] + arena.entries[entry, DIGEST]
            copy_bytes(arena.heap, offset, out, ends[row], arena.entries[entry, VALUE_BYTES])


@compiled(NOTHING, [ARENA, ROWS, ROWS, BYTES_OUT], allocates=False)
def copy_keys(arena: Any, entries: Any, ends: Any, out: Any) -> None:
    """Write the keys of entries, as ``copy_values`` does the values."""
    for row in range(len(entries)):
        offset = arena.entries[entries[row], OFFSET]
        copy_bytes(arena.heap, offset, out, ends[row], arena.entries[entries[row], KEY_BYTES])
