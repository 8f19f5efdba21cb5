"""Compiled loops that compute roots of ordered lists without a trie.

Compact integers are prefix-free, so entries are leaves and branches have no values. A piece of lists is laid out at
once. Nodes are numbered: the leaves of the piece's values first, then branches. A key is a 32-bit word with its first
nibble highest; lists have fewer than 2**30 values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.distinct_loops import copy_bytes
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.jit import (
    BYTE_ROWS,
    BYTE_ROWS_OUT,
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS,
    ROWS_OUT,
    compile_loop,
    writable_arrays,
)
from causeway_proofs.substrate.node import HASHED_VALUE_BYTES, WIDTH, NodeKind
from causeway_proofs.substrate.trie_loops import write_compact

TABLE_OUT = writable_arrays("int64", 2)

LEAF, LEAF_HASHED, BRANCH = int(NodeKind.LEAF), int(NodeKind.LEAF_HASHED), int(NodeKind.BRANCH)

KEY, START, STOP, HEIGHT, COUNT, BITMAP = range(6)
"""Columns of a branch.

- KEY: a key below it.
- START, STOP: nibbles of its partial key.
- HEIGHT: distance to its deepest leaf.
- COUNT, BITMAP: number and nibbles of its children.
"""

BRANCH_FIELDS = 6

KEY_NIBBLES = 8

LEAF_BYTES = 14
"""Most bytes of a leaf besides its value: header, four bytes of the key, the length."""

BRANCH_BYTES = 7 + WIDTH * (1 + DIGEST_BYTES)
"""Most bytes of a branch: header, four bytes of the key, bitmap, children."""


@compile_loop(allocates=False)
def index_key(index: Any) -> Any:
    """Return the key of an index, and its number of nibbles."""
    if index < 1 << 6:
        return index << 26, 2
    if index < 1 << 14:
        word = index << 2 | 1
        return (word & 255) << 24 | (word >> 8) << 16, 4
    word = index << 2 | 2
    return (word & 255) << 24 | (word >> 8 & 255) << 16 | (word >> 16 & 255) << 8 | word >> 24, 8


@compile_loop(allocates=False)
def sort_indexes(count: Any, order: Any) -> None:
    """Write the indices below ``count`` in key order: lowest six bits, mode, higher bytes."""
    at = 0
    for low in range(min(count, 64)):
        most = (count - 1 - low) >> 6
        for high in range(min(most + 1, 256)):
            order[at] = low | high << 6
            at += 1
        if most >= 256:
            for second in range(256):
                for third in range(min(most >> 8, 255) + 1):
                    for fourth in range((most >> 16) + 1):
                        high = second | third << 8 | fourth << 16
                        if 256 <= high <= most:
                            order[at] = low | high << 6
                            at += 1


@compile_loop(allocates=False)
def add_child(branches: Any, children: Any, branch: Any, node: Any, height: Any, key: Any) -> None:
    """Append a node to a branch's children."""
    own = branches[branch]
    children[branch, own[COUNT]] = node
    own[COUNT] += 1
    own[BITMAP] |= 1 << (key >> 4 * (KEY_NIBBLES - 1 - own[STOP]) & 15)
    own[HEIGHT] = max(own[HEIGHT], height + 1)


@compile_loop(INT64, [ROWS, ROWS, INT64, ROWS_OUT, ROWS_OUT, TABLE_OUT, TABLE_OUT, ROWS_OUT], allocates=False)
def lay_out(
    starts: Any, counts: Any, total: Any, order: Any, begins: Any, branches: Any, children: Any, roots: Any
) -> Any:
    """Lay out the tries of lists of ``counts`` values; return the number of branches.

    Writes ``begins``, the start of each leaf's partial key; the branches (initially zeros) with their children; and the
    root node of each list, -1 for an empty one. ``order`` has room for the longest list.
    """
    branch_count = 0
    for number in range(len(counts)):
        count = counts[number]
        if count == 0:
            roots[number] = -1
            continue
        sort_indexes(count, order)
        top: Any = np.int64(-1)
        before: Any = np.int64(-1)
        key, _ = index_key(order[0])
        for place in range(count):
            node: Any = starts[number] + order[place]
            height: Any = np.int64(0)
            common: Any = np.int64(-1)
            following: Any = key
            if place + 1 < count:
                following, _ = index_key(order[place + 1])
                apart = key ^ following
                common = np.int64(0)
                while apart >> 4 * (KEY_NIBBLES - 1 - common) == 0:
                    common += 1
            begins[node] = max(before, common) + 1
            # Close the branches without further keys. START of an open branch links its parent.
            while top >= 0 and branches[top, STOP] > common:
                add_child(branches, children, top, node, height, key)
                above = branches[top, START] - 1
                upper: Any = np.int64(-1)
                if above >= 0:
                    upper = np.int64(branches[above, STOP])
                node, height = total + top, np.int64(branches[top, HEIGHT])
                branches[top, START] = max(upper, common) + 1
                top = above
            if common < 0:
                roots[number] = node
            else:
                if top < 0 or branches[top, STOP] < common:
                    branches[branch_count, KEY], branches[branch_count, STOP], branches[branch_count, START] = (
                        key,
                        common,
                        top + 1,
                    )
                    top = branch_count
                    branch_count += 1
                add_child(branches, children, top, node, height, key)
            before, key = common, following
    return branch_count


@compile_loop(NOTHING, [TABLE_OUT, ROWS_OUT, ROWS_OUT], allocates=False)
def sort_by_height(branches: Any, ends: Any, order: Any) -> None:
    """Write branch numbers by height; those of height h end at ``ends[h]`` (initially zeros)."""
    for row in range(len(branches)):
        ends[branches[row, HEIGHT] + 1] += 1
    for height in range(1, len(ends)):
        ends[height] += ends[height - 1]
    for row in range(len(branches)):
        height = branches[row, HEIGHT]
        order[ends[height]] = row
        ends[height] += 1


@compile_loop(allocates=False)
def write_start(out: Any, at: Any, mark: Any, key: Any, start: Any, stop: Any) -> Any:
    """Write the header and the partial key of a node; return their end."""
    out[at] = mark | (stop - start)
    at += 1
    size = (stop - start + 1) >> 1
    partial = key >> 4 * (KEY_NIBBLES - stop) & ((1 << 4 * (stop - start)) - 1)
    for index in range(size):
        out[at + index] = partial >> 8 * (size - 1 - index) & 255
    return at + size


@compile_loop(NOTHING, [ROWS, ROWS, ROWS, BYTES, ROWS, INT64, BYTE_ROWS, BYTES_OUT, ROWS_OUT], allocates=False)
def write_leaves(
    starts: Any, counts: Any, begins: Any, data: Any, offsets: Any, by_hash: Any, digests: Any, out: Any, ends: Any
) -> None:
    """Write the encodings of all leaves; the one of value ``i`` ends at ``ends[i + 1]``.

    ``by_hash``: store values of 33 bytes and more by hash; ``digests`` holds these hashes in order.
    """
    at: Any = np.int64(0)
    ends[0] = 0
    row: Any = np.int64(0)
    for number in range(len(counts)):
        for index in range(counts[number]):
            value = starts[number] + index
            first = offsets[value]
            length = offsets[value + 1] - first
            key, nibbles = index_key(index)
            if by_hash and length >= HASHED_VALUE_BYTES:
                at = write_start(out, at, LEAF_HASHED, key, begins[value], nibbles)
                copy_bytes(digests[row], 0, out, at, DIGEST_BYTES)
                at += DIGEST_BYTES
                row += 1
            else:
                at = write_start(out, at, LEAF, key, begins[value], nibbles)
                at = write_compact(out, at, length)
                copy_bytes(data, first, out, at, length)
                at += length
            ends[value + 1] = at


@compile_loop(NOTHING, [ROWS, TABLE_OUT, TABLE_OUT, ROWS, BYTE_ROWS, BYTES, BYTES_OUT, ROWS_OUT], allocates=False)
def write_branches(
    numbers: Any,
    branches: Any,
    children: Any,
    places: Any,
    references: Any,
    sizes: Any,
    out: Any,
    ends: Any,
) -> None:
    """Write the encodings of branches with referenced children, as ``write_leaves``.

    ``places``: position of each node's reference.
    """
    at: Any = np.int64(0)
    ends[0] = 0
    for row in range(len(numbers)):
        number = numbers[row]
        own = branches[number]
        at = write_start(out, at, BRANCH, own[KEY], own[START], own[STOP])
        out[at], out[at + 1] = own[BITMAP] & 255, own[BITMAP] >> 8
        at += 2
        for child in range(own[COUNT]):
            node = children[number, child]
            place = places[node]
            size = np.int64(sizes[place])
            out[at] = size << 2
            # Copy the full width; surplus bytes are overwritten.
            copy_bytes(references[place], 0, out, at + 1, DIGEST_BYTES)
            at += 1 + size
        ends[row + 1] = at


@compile_loop(NOTHING, [BYTES, ROWS, BYTE_ROWS_OUT, BYTES_OUT], allocates=False)
def keep_short(encodings: Any, ends: Any, references: Any, sizes: Any) -> None:
    """Replace the digest of each node with an encoding below 32 bytes by the encoding itself."""
    for row in range(len(sizes)):
        size = ends[row + 1] - ends[row]
        sizes[row] = min(size, DIGEST_BYTES)
        if size < DIGEST_BYTES:
            copy_bytes(encodings, ends[row], references[row], 0, size)
