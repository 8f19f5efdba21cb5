"""Compiled loop around the vector hash functions, one message a lane."""

from __future__ import annotations

from typing import Any

from causeway_proofs.hashing import vector_hashes
from causeway_proofs.hashing.vector_instructions import (
    ADDRESS,
    INDEX,
    LAST,
    OWN,
    SHARED,
    TOTAL,
    address_of,
    copy,
    copy_digest,
    fetch,
)
from causeway_proofs.jit import (
    BYTE_ROWS_OUT,
    BYTES,
    BYTES_OUT,
    INT64,
    NOTHING,
    ROWS,
    compile_loop,
    strided_arrays,
    writable_arrays,
)

SHA256, SHA256_PAIR, BLAKE2B, KECCAK = range(4)

SLICES, MATRIX, PAIRS = range(3)
"""Forms of messages: slices of the data, fixed-width rows of the data, pairs of digests."""

PIECE = 512
"""Messages sorted by block count at a time; they and their digests stay in the cache."""

MOST_BLOCKS = 256
"""Most blocks of a message with prefix and padding."""

PREFETCH_BYTES = 512
"""Bytes of a message to prefetch before its piece is hashed; hardware does the rest."""

DIGEST = 32

STRIDED = strided_arrays("uint8", 2)

TABLE_OUT = writable_arrays("int64", 2)

sha256_absorb, sha256_finish = vector_hashes.sha256_vectors_absorb, vector_hashes.sha256_vectors_finish
pair_absorb, pair_finish = vector_hashes.pair_absorb, vector_hashes.pair_finish
blake2b_absorb, blake2b_finish = vector_hashes.absorb, vector_hashes.finish
keccak_absorb, keccak_finish = vector_hashes.keccak_vectors_absorb, vector_hashes.keccak_vectors_finish


@compile_loop(INT64, [ROWS, ROWS, INT64])
def longest_slice(starts: Any, stops: Any, size: Any) -> Any:
    """Return the length of the longest slice, -1 if one is out of bounds or reversed."""
    most, outside = 0, False
    for row in range(len(starts)):
        start, stop = starts[row], stops[row]
        outside |= start < 0 or stop > size or stop < start
        most = max(most, stop - start)
    return -1 if outside else most


@compile_loop()
def count_blocks(engine: Any, total: Any) -> Any:
    """Return the number of blocks of a padded message."""
    if engine <= SHA256_PAIR:
        return (total + 8) // 64 + 1
    if engine == BLAKE2B:
        return max((total + 127) // 128, 1)
    return total // 136 + 1


@compile_loop()
def sort_by_blocks(engine: Any, starts: Any, stops: Any, own: Any, blocks: Any, order: Any, ends: Any) -> None:
    """Write the block count of each message, and their order by it."""
    most, least = 0, MOST_BLOCKS
    for row in range(len(starts)):
        blocks[row] = count_blocks(engine, own + stops[row] - starts[row])
        most, least = max(most, blocks[row]), min(least, blocks[row])
    if most == least:
        for row in range(len(starts)):
            order[row] = row
        return
    for number in range(most + 2):
        ends[number] = 0
    for row in range(len(starts)):
        ends[blocks[row] + 1] += 1
    for number in range(1, most + 2):
        ends[number] += ends[number - 1]
    for row in range(len(starts)):
        order[ends[blocks[row]]] = row
        ends[blocks[row]] += 1


@compile_loop()
def absorb(engine: Any, state: Any, table: Any, prefix: Any) -> None:
    """Absorb one block of each lane."""
    if engine == SHA256:
        sha256_absorb(state, table, prefix)
    elif engine == SHA256_PAIR:
        pair_absorb(state, table, prefix)
    elif engine == BLAKE2B:
        blake2b_absorb(state, table, prefix)
    else:
        keccak_absorb(state, table, prefix)


@compile_loop()
def finish(engine: Any, state: Any, table: Any, prefix: Any) -> None:
    """Write the digest of each lane."""
    if engine == SHA256:
        sha256_finish(state, table, prefix)
    elif engine == SHA256_PAIR:
        pair_finish(state, table, prefix)
    elif engine == BLAKE2B:
        blake2b_finish(state, table, prefix)
    else:
        keccak_finish(state, table, prefix)


@compile_loop()
def digest_piece(
    engine: Any,
    block: Any,
    data_at: Any,
    size: Any,
    starts: Any,
    stops: Any,
    order: Any,
    blocks: Any,
    prefix: Any,
    own: Any,
    out_at: Any,
    initial: Any,
    state: Any,
    table: Any,
    edges: Any,
) -> None:
    """Write the digests of one piece: slices at an address, in ``order`` of block counts."""
    count, lanes, edges_at = len(starts), table.shape[1], address_of(edges)
    for group in range(0, count, lanes):
        # Surplus lanes repeat the last message.
        most = blocks[order[min(group + lanes, count) - 1]]
        low, high = size, -own
        for lane in range(lanes):
            row = order[min(group + lane, count - 1)]
            start = starts[row] - own
            table[ADDRESS, lane] = data_at + start
            table[TOTAL, lane] = stops[row] - start
            table[LAST, lane] = blocks[row] - 1
            low, high = min(low, start), max(high, start)
        for byte in range(len(initial)):
            state[byte] = initial[byte]
        for index in range(most):
            table[SHARED, INDEX] = index
            offset = index * block
            if low + offset >= 0 and high + offset + block <= size:
                absorb(engine, state, table, prefix)
                continue
            # Copy the readable part of a block that extends beyond the data.
            for lane in range(lanes):
                start = table[ADDRESS, lane] - data_at + offset
                if start < 0 or start + block > size:
                    edge = edges_at + lane * block
                    begin, end = (
                        max(start, start + own - offset),
                        min(start + block, start - offset + table[TOTAL, lane]),
                    )
                    if begin < end:
                        copy(edge + begin - start, data_at + begin, end - begin)
                    table[ADDRESS, lane] = edge - offset
            absorb(engine, state, table, prefix)
            for lane in range(lanes):
                table[ADDRESS, lane] = data_at + starts[order[min(group + lane, count - 1)]] - own
        for lane in range(lanes):
            table[ADDRESS, lane] = out_at + DIGEST * order[min(group + lane, count - 1)]
        finish(engine, state, table, prefix)


@compile_loop(
    NOTHING,
    [
        INT64, INT64, INT64, BYTES, ROWS, ROWS, INT64, STRIDED, STRIDED, BYTES, INT64, BYTE_ROWS_OUT,
        BYTES, BYTES_OUT, TABLE_OUT, BYTES_OUT, BYTES_OUT, TABLE_OUT,
    ],
)  # fmt: skip
def digest(
    engine: Any,
    block: Any,
    kind: Any,
    data: Any,
    starts: Any,
    stops: Any,
    width: Any,
    left: Any,
    right: Any,
    prefix: Any,
    own: Any,
    out: Any,
    initial: Any,
    state: Any,
    table: Any,
    edges: Any,
    joined: Any,
    work: Any,
) -> None:
    """Write the digest of the prefix and each message, as many as ``out`` has rows.

    ``own``: bytes of the prefix, at most a block, in an array of two blocks. Parameters after ``out`` are work space:
    ``state`` is as large as ``initial``, ``table`` has a column a lane, ``edges`` holds a block, ``joined`` a piece of
    pairs, ``work`` a column for each message of a piece.
    """
    table[SHARED, OWN] = own
    for first in range(0, len(out), PIECE):
        count = min(PIECE, len(out) - first)
        begins, ends, order, blocks = work[0, :count], work[1, :count], work[2, :count], work[3, :count]
        data_at, size = address_of(data), len(data)
        if kind == SLICES:
            for row in range(count):
                begins[row], ends[row] = starts[first + row], stops[first + row]
        elif kind == MATRIX:
            for row in range(count):
                begins[row], ends[row] = (first + row) * width, (first + row + 1) * width
        else:
            data_at, size = address_of(joined), len(joined)
            for row in range(count):
                begins[row], ends[row] = 2 * DIGEST * row, 2 * DIGEST * (row + 1)
                at = data_at + begins[row]
                copy_digest(at, address_of(left) + (first + row) * left.strides[0])
                copy_digest(at + DIGEST, address_of(right) + (first + row) * right.strides[0])
        if kind == SLICES:
            for row in range(count):
                for at in range(begins[row], min(ends[row], begins[row] + PREFETCH_BYTES), 64):
                    fetch(data_at + at)
        sort_by_blocks(engine, begins, ends, own, blocks, order, work[4])
        digest_piece(
            engine, block, data_at, size, begins, ends, order, blocks, prefix, own,
            address_of(out) + DIGEST * first, initial, state, table, edges,
        )  # fmt: skip
