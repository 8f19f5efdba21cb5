"""Compiled loops of ``proof_columns``: index of nodes by digest, walks from roots to keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway_proofs.distinct_loops import copy_bytes, word_at
from causeway_proofs.jit import BYTES, NOTHING, ROWS, ROWS_OUT, compile_loop, read_only_arrays, writable_arrays

VALUE, ABSENT, INCOMPLETE, INVALID, OVER_LIMIT = range(5)
"""Results of reading a key: the numbers of ``KeyStatus``."""

DIGEST = 32
LEAST_HASHED = 33
"""Length from which values are nodes of their own in layout V1."""

MOST_NIBBLES = 0xFFFF

MALFORMED, EMPTY, LEAF, BRANCH = range(4)
"""Forms of nodes."""


@compile_loop(allocates=False)
def same_digest(data: Any, at: Any, other: Any, begin: Any) -> Any:
    """Return True if the digests at two positions are equal."""
    differ = np.uint64(0)
    for word in range(0, DIGEST, 8):
        differ |= word_at(data, at + word) ^ word_at(other, begin + word)
    return differ == np.uint64(0)


@compile_loop(allocates=False)
def slot_of(data: Any, at: Any, secret: Any, mask: Any) -> Any:
    """Return the first slot to probe for the digest at ``at``.

    A digest's bits can be chosen by trial, a few dozen at most. A sum with secret odd factors still spreads such
    digests.
    """
    mix = np.uint64(0)
    for word in range(4):
        mix += word_at(data, at + 8 * word) * secret[word]
    return np.int64(mix >> np.uint64(24)) & mask


@compile_loop(NOTHING, [BYTES, read_only_arrays("uint64"), ROWS_OUT, ROWS_OUT], allocates=False)
def index_digests(digests: Any, secret: Any, table: Any, same: Any) -> None:
    """Fill ``table`` with the numbers of digests.

    ``table``: -1 in every slot; its size is a power of two, at least twice the number of digests. ``digests``:
    consecutive, 32 bytes each. Writes ``same[number]``, the first number with an equal digest.
    """
    mask = len(table) - 1
    for number in range(len(same)):
        at = DIGEST * number
        slot = slot_of(digests, at, secret, mask)
        while table[slot] >= 0 and not same_digest(digests, at, digests, DIGEST * table[slot]):
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = number
        same[number] = table[slot]


@compile_loop(allocates=False)
def find(data: Any, at: Any, digests: Any, secret: Any, table: Any) -> Any:
    """Return the number of the node with the digest at ``at`` in ``data``, -1 if none."""
    mask = len(table) - 1
    slot = slot_of(data, at, secret, mask)
    while table[slot] >= 0:
        if same_digest(data, at, digests, DIGEST * table[slot]):
            return table[slot]
        slot = (slot + 1) & mask
    return -1


@compile_loop(allocates=False)
def nibble_count(data: Any, start: Any, stop: Any, most: Any) -> Any:
    """Return a header's nibble count, -1 if malformed, and the header's end."""
    count = np.int64(data[start]) & most
    at = start + 1
    if count < most:
        return count, at
    while at < stop and count <= MOST_NIBBLES:
        byte = np.int64(data[at])
        at += 1
        count += byte
        if byte < 0xFF:
            return (count if count <= MOST_NIBBLES else -1), at
    return -1, at


@compile_loop(allocates=False)
def length_at(data: Any, at: Any, stop: Any) -> Any:
    """Return the length encoded by the compact integer at ``at``, and its end; -1 if malformed.

    The four-byte mode and longer ones are malformed unless in their shortest form and shorter than any node.
    """
    if at >= stop:
        return -1, at
    mode = data[at] & 3
    width = 1 if mode == 0 else 2 if mode == 1 else 4
    if mode == 3 or at + width > stop:
        return -1, at
    number = np.int64(0)
    for position in range(width):
        number |= np.int64(data[at + position]) << (8 * position)
    number >>= 2
    if (mode == 1 and number < 1 << 6) or (mode == 2 and number < 1 << 14):
        return -1, at
    return number, at + width


@compile_loop(allocates=False)
def node_at(data: Any, start: Any, stop: Any) -> Any:
    """Parse ``data[start:stop]`` as a node, by the rules of ``decode_node``.

    Returns eight numbers: form; nibble count and start; start and stop of the value, -1 for none; 1 if the value is a
    hash, else 0; bitmap and start of the children.
    """
    malformed = MALFORMED, 0, 0, -1, -1, 0, 0, 0
    if start == stop:
        return malformed
    first = np.int64(data[start])
    if first == 0 and stop == start + 1:
        return EMPTY, 0, 0, -1, -1, 0, 0, 0
    hashed, form, most, valued = 0, LEAF, 0x3F, 1
    if first >= 0x80:
        form, valued = BRANCH, 1 if first >= 0xC0 else 0
    elif first < 0x40:
        hashed = 1
        if first >= 0x20:
            most = 0x1F
        elif first >= 0x10:
            form, most = BRANCH, 0x0F
        else:
            return malformed
    count, partial = nibble_count(data, start, stop, most)
    at = partial + (count + 1) // 2
    if count < 0 or at > stop or (count & 1 and data[partial] >= 0x10):
        return malformed
    bitmap = np.int64(0)
    if form == BRANCH:
        if at + 2 > stop:
            return malformed
        bitmap = np.int64(data[at]) | np.int64(data[at + 1]) << 8
        at += 2
    value, value_stop = -1, -1
    if valued:
        length = DIGEST
        if not hashed:
            length, at = length_at(data, at, stop)
        if length < 0 or at + length > stop:
            return malformed
        value, value_stop = at, at + length
        at = value_stop
    children = at
    count_of_children = 0
    for nibble in range(16):
        if bitmap >> nibble & 1:
            # Bytes other than these are not the shortest form of 1 to 32.
            if at >= stop or data[at] & 3 or not 4 <= data[at] <= DIGEST << 2:
                return malformed
            at += 1 + (data[at] >> 2)
            count_of_children += 1
    if at != stop or (form == BRANCH and count_of_children < 2 - valued):
        return malformed
    return form, count, partial, value, value_stop, hashed, bitmap, children


@compile_loop(allocates=False)
def matches(data: Any, partial: Any, count: Any, keys: Any, begin: Any, nibbles: Any, done: Any) -> Any:
    """Return True if a node's nibbles equal the key's from nibble ``done`` on."""
    if done + count > nibbles:
        return False
    skipped = count & 1
    for position in range(count):
        own, key_nibble = skipped + position, done + position
        left = data[partial + (own >> 1)] >> (0 if own & 1 else 4) & 0x0F
        right = keys[begin + (key_nibble >> 1)] >> (0 if key_nibble & 1 else 4) & 0x0F
        if left != right:
            return False
    return True


@compile_loop(allocates=False)
def child_at(data: Any, bitmap: Any, children: Any, nibble: Any) -> Any:
    """Return the start and stop of a child's reference."""
    at = children
    for before in range(nibble):
        if bitmap >> before & 1:
            at += 1 + (data[at] >> 2)
    return at + 1, at + 1 + (data[at] >> 2)


@compile_loop(
    NOTHING,
    [
        BYTES, ROWS, ROWS, BYTES, read_only_arrays("uint64"), ROWS,
        BYTES, BYTES, read_only_arrays("uint8"), read_only_arrays("uint8"), ROWS, ROWS,
        BYTES, ROWS, ROWS, ROWS,
        writable_arrays("uint8"), ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT,
    ],
    allocates=False,
)  # fmt: skip
def read_keys(
    data: Any, starts: Any, stops: Any, digests: Any, secret: Any, table: Any,
    empty_root: Any, roots: Any, open_: Any, only_plain: Any, offsets: Any, members: Any,
    keys: Any, key_starts: Any, key_stops: Any, key_offsets: Any,
    status: Any, value_starts: Any, value_stops: Any, repeated: Any, unused: Any,
    given: Any, visited: Any,
) -> None:  # fmt: skip
    """Walk from each proof's root to each of its keys, with the proof's nodes only.

    Nodes: ``data[starts[d]:stops[d]]`` with consecutive ``digests``, indexed by ``table``. Proof ``p`` has the nodes
    ``members[offsets[p]:offsets[p + 1]]`` and the keys ``key_offsets[p]`` up to the next offset. ``open_`` selects the
    proofs to read, ``only_plain`` those that reject values stored by hash.

    Writes for each key its status and value in ``data``, and for each proof its number of duplicated and of unvisited
    nodes. ``given`` and ``visited`` start as -1 for each node; they store the last proof with the node, and the last
    one to visit it.
    """
    for proof in range(len(open_)):
        if not open_[proof]:
            continue
        for member in range(offsets[proof], offsets[proof + 1]):
            node = members[member]
            if given[node] == proof:
                repeated[proof] += 1
            given[node] = proof
        left = offsets[proof + 1] - offsets[proof] - repeated[proof]
        is_empty = same_digest(roots, DIGEST * proof, empty_root, 0)
        root = find(roots, DIGEST * proof, digests, secret, table)
        if root >= 0 and given[root] != proof:
            root = -1
        for key in range(key_offsets[proof], key_offsets[proof + 1]):
            begin, nibbles, done = key_starts[key], 2 * (key_stops[key] - key_starts[key]), 0
            if nibbles > MOST_NIBBLES:
                status[key] = OVER_LIMIT
                continue
            number, inline = root, False
            start = stop = np.int64(0)
            at_root = True
            outcome, value, value_stop = INCOMPLETE, np.int64(0), np.int64(0)
            while True:
                if not inline:
                    if number < 0:
                        # The empty trie needs no node as root, and is invalid as a child.
                        if at_root and is_empty:
                            outcome = ABSENT
                        break
                    start, stop = starts[number], stops[number]
                    if visited[number] != proof:
                        visited[number] = proof
                        left -= 1
                form, count, partial, value, value_stop, hashed, bitmap, children = node_at(data, start, stop)
                if form == MALFORMED or (not at_root and form == EMPTY):
                    outcome = INVALID
                    break
                if not inline and not at_root and stop - start < DIGEST:
                    outcome = INVALID
                    break
                if hashed and only_plain[proof]:
                    outcome = INVALID
                    break
                if form == EMPTY or not matches(data, partial, count, keys, begin, nibbles, done):
                    outcome = ABSENT
                    break
                done += count
                if done == nibbles:
                    outcome = ABSENT if value < 0 else VALUE
                    if hashed:
                        number = find(data, value, digests, secret, table)
                        if number < 0 or given[number] != proof:
                            outcome = INCOMPLETE
                            break
                        value, value_stop = starts[number], stops[number]
                        if value_stop - value < LEAST_HASHED:
                            outcome = INVALID
                            break
                        if visited[number] != proof:
                            visited[number] = proof
                            left -= 1
                    break
                nibble = keys[begin + (done >> 1)] >> (0 if done & 1 else 4) & 0x0F
                if not bitmap >> nibble & 1:
                    outcome = ABSENT
                    break
                start, stop = child_at(data, bitmap, children, nibble)
                done += 1
                inline = stop - start < DIGEST
                at_root = False
                if not inline:
                    number = find(data, start, digests, secret, table)
                    if number >= 0 and given[number] != proof:
                        number = -1
                    if number < 0 and same_digest(data, start, empty_root, 0):
                        outcome = INVALID
                        break
            status[key] = outcome
            if outcome == VALUE:
                value_starts[key], value_stops[key] = value, value_stop
        unused[proof] = left


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, BYTES, ROWS, ROWS, writable_arrays("uint8")], allocates=False)
def compare_slices(
    data: Any, starts: Any, stops: Any, others: Any, other_starts: Any, other_stops: Any, same: Any
) -> None:
    """Write a flag for each row with two equal slices."""
    for row in range(len(starts)):
        length = stops[row] - starts[row]
        equal = other_stops[row] - other_starts[row] == length
        position = 0
        while equal and position < length:
            equal = data[starts[row] + position] == others[other_starts[row] + position]
            position += 1
        same[row] = equal


@compile_loop(NOTHING, [BYTES, ROWS, ROWS, ROWS, writable_arrays("uint8")], allocates=False)
def gather_slices(data: Any, starts: Any, stops: Any, offsets: Any, out: Any) -> None:
    """Copy each slice to ``out[offsets[row] : offsets[row + 1]]``."""
    for row in range(len(starts)):
        copy_bytes(data, starts[row], out, offsets[row], stops[row] - starts[row])
