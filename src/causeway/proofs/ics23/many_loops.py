"""Loops over columns of existence proofs: reading their bytes, and writing out what is hashed.

A proof is read where it lies. Steps are those of ``InnerOp`` in canonical protobuf with lengths of one byte each,

    22 length 08 01 12 length prefix [1a length suffix]

so that the position of a step is all that has to be kept of it. Bounds are not checked here beyond what the bytes of a
proof say: ``starts`` and ``stops`` lie inside of the data.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.compiled import (
    BOOL,
    BYTE_ROWS,
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS,
    ROWS_OUT,
    compiled,
)

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]

UNREADABLE = -1
"""Depth of a proof of another form."""

STEP_HEAD = 6
"""Bytes of a step before its prefix."""

SUFFIX_HEAD = 2
"""Bytes of a step between prefix and suffix."""

ONE_BYTE = 0x80
"""Lengths and numbers below this have one byte."""

NUMBER_BYTES = 9
"""Bytes of a number that surely fits 64 bits."""

HASH_BYTES = 32
WORD = 16
"""Bytes that are compared at once."""

BLOCK = 64
"""Bytes that are copied at once where there is room."""

PROBES = 4
"""Slots of the table in which a preimage is looked up."""


@compiled()
def length_at(data: Bytes, at: int, stop: int) -> int:
    """Return the length at ``at`` (one to three bytes, in its shortest form) times 4, plus its bytes; -1 for none."""
    length = 0
    for used in range(3):
        if at + used >= stop:
            return -1
        byte = int(data[at + used])
        length |= (byte & 0x7F) << 7 * used
        if byte < ONE_BYTE:
            return -1 if used > 0 and byte == 0 else length << 2 | used + 1
    return -1


@compiled()
def number_end(data: Bytes, at: int, stop: int, least: int) -> int:
    """Return where the signed varint at ``at`` ends, -1 if there is none, or one less than ``least`` (0 or more)."""
    number = 0
    for used in range(NUMBER_BYTES):
        if at + used >= stop:
            return -1
        byte = int(data[at + used])
        number |= (byte & 0x7F) << 7 * used
        if byte < ONE_BYTE:
            # Zigzag: negative numbers are odd.
            return -1 if number & 1 or number >> 1 < least else at + used + 1
    return -1


@compiled()
def numbers_end(data: Bytes, at: int, stop: int, layer: int) -> int:
    """Return where height (at least ``layer``), size and version end, -1 if they are not there."""
    at = number_end(data, at, stop, layer)
    if at < 0:
        return -1
    stop = min(stop, at + NUMBER_BYTES)
    found, first = 0, True
    while at < stop:
        byte = data[at]
        at += 1
        # Zigzag: negative numbers are odd.
        if first and byte & 1:
            return -1
        first = byte < ONE_BYTE
        found += first
        if found == 2:
            return at
    return -1


@compiled()
def same(data: Bytes, at: int, other: Bytes, other_at: int, length: int) -> bool:
    """Return whether two runs of bytes are equal."""
    # Indices into slices are never negative, and known not to be: such loops become vector instructions.
    one, two = data[at : at + length], other[other_at : other_at + length]
    whole = length // WORD
    for word in range(whole):
        left, right = one[word * WORD : (word + 1) * WORD], two[word * WORD : (word + 1) * WORD]
        different = np.uint8(0)
        for position in range(WORD):
            different |= left[position] ^ right[position]
        if different:
            return False
    for position in range(whole * WORD, length):  # noqa: SIM110
        if one[position] != two[position]:
            return False
    return True


@compiled()
def part_end(data: Bytes, at: int, stop: int, tag: int, other: Bytes, start: int, end: int) -> int:
    """Return where the field at ``at`` ends if it is ``tag`` with the bytes other[start:end], at least one; else -1."""
    if at >= stop or data[at] != tag or start == end:
        return -1
    found = length_at(data, at + 1, stop)
    begin = at + 1 + (found & 3)
    if found < 0 or found >> 2 != end - start or begin + (found >> 2) > stop:
        return -1
    return begin + (found >> 2) if same(data, begin, other, start, end - start) else -1


@compiled()
def leaf_end(data: Bytes, at: int, stop: int, operation: Bytes, iavl: bool) -> int:
    """Return where the leaf operation at ``at`` ends if it begins with ``operation`` and is the spec's; else -1."""
    prefix = at + 2 + len(operation) + 1
    if prefix >= stop or data[at] != 0x1A or not same(data, at + 2, operation, 0, len(operation)):
        return -1
    length, size = int(data[at + 1]), int(data[prefix - 1])
    end = prefix + size
    if size == 0 or length >= ONE_BYTE or length != end - at - 2 or end > stop or data[prefix] != 0:
        return -1
    # Height 0, size 1, and a version.
    if iavl and (size < 3 or data[prefix + 1] != 2 or number_end(data, prefix + 2, end, 0) != end):
        return -1
    return end


@compiled()
def step_end(data: Bytes, at: int, stop: int, layer: int, iavl: bool, strict: bool, sizes: Rows) -> int:
    """Return where the step at ``at`` ends if it is one that the spec allows in ``layer``, else -1.

    ``sizes``: shortest and longest prefix, and bytes of a child. ``strict``: the rules of Tendermint's trees apply.
    """
    prefix = at + STEP_HEAD
    if prefix >= stop or data[at] != 0x22 or data[at + 2] != 8 or data[at + 3] != 1 or data[at + 4] != 0x12:
        return -1
    length, size = int(data[at + 1]), int(data[at + 5])
    suffix, end = prefix + size, at + 2 + length
    if length >= ONE_BYTE or end > stop or suffix > end or size < sizes[0] or size > sizes[1]:
        return -1
    if data[prefix] == 0:
        return -1
    if suffix < end:
        content = end - suffix - SUFFIX_HEAD
        if content < 1 or data[suffix] != 0x1A or data[suffix + 1] != content or content % sizes[2] != 0:
            return -1
    if iavl:
        rest = numbers_end(data, prefix, suffix, layer)
        # After the numbers a length; or a length, the left child and a length.
        if rest < 0 or (suffix - rest != 1 and suffix - rest != 2 + HASH_BYTES):
            return -1
    elif strict and (data[prefix] != 1 or (suffix < end and size != 1)):
        return -1
    return end


@compiled(
    INT64,
    [
        BYTES, ROWS, ROWS, BYTES, ROWS, ROWS, BYTES, ROWS, ROWS, BYTES, BOOL, BOOL, ROWS, INT64, INT64,
        ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT,
    ],
)  # fmt: skip
def read_proofs(
    data: Bytes, starts: Rows, stops: Rows,
    keys: Bytes, key_starts: Rows, key_stops: Rows,
    values: Bytes, value_starts: Rows, value_stops: Rows,
    operation: Bytes, iavl: bool, strict: bool, sizes: Rows, longest: int, deepest: int,
    key_at: Rows, leaves: Rows, depths: Rows, first_steps: Rows, steps: Rows,
) -> int:  # fmt: skip
    """Read encoded CommitmentProofs and return how many steps they have together.

    Args:
        data, starts, stops: the proofs, one a row.
        keys, key_starts, key_stops, values, value_starts, value_stops: what each must be about.
        operation: a leaf operation up to the length of its prefix.
        iavl, strict, sizes: see ``step_end``.
        longest: most bytes of a proof.
        deepest: most steps of a proof.
        key_at: written: where the length of the key stands.
        leaves: written: where the leaf operation's prefix begins; its length is before it.
        depths: written: the number of steps; ``UNREADABLE`` where a proof has not the expected form.
        first_steps: written: the first step's row in ``steps``.
        steps: written: where the steps begin; room for a step every seven bytes.
    """
    used = 0
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        depths[row] = UNREADABLE
        first_steps[row] = used
        if stop - at > longest or at >= stop or data[at] != 0x0A:
            continue
        whole = length_at(data, at + 1, stop)
        if whole < 0 or at + 1 + (whole & 3) + (whole >> 2) != stop:
            continue
        at += 1 + (whole & 3)
        key_at[row] = at + 1
        at = part_end(data, at, stop, 0x0A, keys, key_starts[row], key_stops[row])
        if at < 0:
            continue
        at = part_end(data, at, stop, 0x12, values, value_starts[row], value_stops[row])
        if at < 0:
            continue
        leaves[row] = at + 2 + len(operation) + 1
        at = leaf_end(data, at, stop, operation, iavl)
        depth = 0
        while 0 <= at < stop and depth < deepest:
            steps[used + depth] = at
            depth += 1
            at = step_end(data, at, stop, depth, iavl, strict, sizes)
        if at == stop:
            depths[row] = depth
            used += depth
    return used


@compiled()
def copied(data: Bytes, at: int, length: int, out: Bytes, end: int) -> int:
    """Copy ``length`` bytes to out[end:] and return where they end; up to 64 bytes of ``out`` may be overwritten."""
    source, target = data[at:], out[end:]
    if length <= BLOCK and len(source) >= BLOCK:
        # A fixed number of bytes is copied in a few instructions.
        for position in range(BLOCK):
            target[position] = source[position]
    else:
        for position in range(length):
            target[position] = source[position]
    return end + length


@compiled()
def copied_hash(hashes: Bytes, row: int, out: Bytes, end: int) -> int:
    """Copy the hash of ``row`` to out[end:] and return where it ends."""
    source, target = hashes[row], out[end:]
    for position in range(HASH_BYTES):
        target[position] = source[position]
    return end + HASH_BYTES


@compiled(NOTHING, [BYTES, ROWS, ROWS, ROWS, BYTE_ROWS, BYTE_ROWS, BOOL, ROWS, BYTES_OUT])
def write_leaves(
    data: Bytes, rows: Rows, key_at: Rows, leaves: Rows, key_hashes: Bytes, value_hashes: Bytes, hashed: bool,
    starts: Rows, out: Bytes,
) -> None:  # fmt: skip
    """Write what leaves are hashes of: prefix, length and key, length and hash of the value; or both hashes alone.

    Args:
        data: the proofs.
        rows: which of them are written.
        key_at, leaves: see ``read_proofs``.
        key_hashes, value_hashes: of each of ``rows``; the first is not read unless ``hashed``.
        hashed: the key's hash is written, and no lengths.
        starts: where each begins in ``out``, in order; then the end of the last, 64 bytes before that of ``out``.
    """
    for number in range(len(rows)):
        row, end = rows[number], starts[number]
        prefix = leaves[row]
        end = copied(data, prefix, int(data[prefix - 1]), out, end)
        if hashed:
            end = copied_hash(key_hashes, number, out, end)
        else:
            end = copied(data, key_at[row], starts[number + 1] - end - 1 - HASH_BYTES, out, end)
            out[end] = HASH_BYTES
            end += 1
        copied_hash(value_hashes, number, out, end)


@compiled(
    INT64,
    [
        BYTES, ROWS, ROWS, ROWS, ROWS, INT64, BYTE_ROWS, BYTE_ROWS,
        ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, ROWS_OUT, BYTES_OUT,
    ],
)  # fmt: skip
def write_nodes(
    data: Bytes, stops: Rows, steps: Rows, first_steps: Rows, depths: Rows, level: int, leaves: Bytes, below: Bytes,
    nodes: Rows, leaders: Rows, owners: Rows, table: Rows, ends: Rows, out: Bytes,
) -> int:  # fmt: skip
    """Write what the nodes of one level are hashes of, each distinct one once, and return how many there are.

    A proof that has come to the node of another one, and goes on as that one does to its end, is left to it.

    Args:
        data, stops: the proofs, and where each ends.
        steps, first_steps, depths: see ``read_proofs``.
        level: 1 for roots; a proof takes part if it has as many steps or more.
        leaves: the hash of each proof's leaf, shape (n, 32).
        below: hashes of the distinct nodes of the level below, shape (m, 32).
        nodes: each proof's row in ``below``, -1 where its leaf is there; written: its node's row in this level.
        leaders: the proof to which one is left, -1 for none; written.
        owners: overwritten: by node of this level, the first proof that has come to it.
        table: overwritten; its length is a power of 2.
        ends: written: where each distinct preimage ends in ``out``; the first begins at 0.
        out: written: preimages, with room for 155 bytes a proof and 64 more.
    """
    table[:] = -1
    count, begin = 0, 0
    for row in range(len(depths)):
        if depths[row] < level or leaders[row] >= 0:
            continue
        at = steps[first_steps[row] + depths[row] - level]
        length, size, child = int(data[at + 1]), int(data[at + 5]), nodes[row]
        end = copied(data, at + STEP_HEAD, size, out, begin)
        end = copied_hash(leaves, row, out, end) if child < 0 else copied_hash(below, child, out, end)
        suffix = length - STEP_HEAD + 2 - size
        if suffix > 0:
            end = copied(data, at + STEP_HEAD + size + SUFFIX_HEAD, suffix - SUFFIX_HEAD, out, end)
        # The last bytes are of a hash: of this child or of the last of its siblings.
        slot = 0
        for position in range(4):
            slot = slot << 8 | int(out[end - 1 - position])
        known = -1
        for _ in range(PROBES):
            slot &= len(table) - 1
            known = table[slot]
            if known < 0:
                break
            before = 0 if known == 0 else ends[known - 1]
            if ends[known] - before == end - begin and same(out, before, out, begin, end - begin):
                break
            known = -1
            slot += 1
        if known < 0:
            known = count
            # Where all slots are taken, the last is given to the newest.
            table[slot & (len(table) - 1)] = count
            owners[count] = row
            ends[count] = end
            begin = end
            count += 1
        else:
            owner = owners[known]
            other = steps[first_steps[owner] + depths[owner] - level]
            at, other = at + 2 + length, other + 2 + int(data[other + 1])
            rest = stops[row] - at
            if stops[owner] - other == rest and same(data, at, data, other, rest):
                leaders[row] = owner
        nodes[row] = known
    return count
