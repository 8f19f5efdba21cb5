"""BLAKE2b-256 in vectors, of as many messages as a vector has lanes. Source: RFC 7693."""

from __future__ import annotations

from math import isqrt

import numpy as np
from llvmlite import ir

from causeway.proofs.hashing.vectors import (
    DIGEST_BYTES,
    I64,
    Blocks,
    Emitter,
    Targets,
    Value,
    constant,
    emitted,
    vector_bytes,
)

BLOCK = 128

WORDS = 16

LANES = vector_bytes() // 8

VECTOR = ir.VectorType(I64, LANES)

ORDERS = [
    [int(digit, 16) for digit in order]
    for order in (
        "0123456789abcdef",
        "ea489fd61c02b753",
        "b8c052fdae367194",
        "7931dcbe265a40f8",
        "905724afe1bc683d",
        "2c6a0b834d75fe19",
        "c51fed4a0763928b",
        "db7ec13950f4862a",
        "6fe9b308c2d714a5",
        "a2847615fb9e3cd0",
        "0123456789abcdef",
        "ea489fd61c02b753",
    )
]
"""Of each round the order in which it takes the words of the block."""

MIXED = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
"""The words of the state that each step of a round mixes: its columns, then its diagonals."""

ROOTS = [isqrt(prime << 128) & 0xFFFFFFFFFFFFFFFF for prime in (2, 3, 5, 7, 11, 13, 17, 19)]

_PARAMETERS = 0x0101_0000 | DIGEST_BYTES
"""No key, a tree of one node."""

START = np.repeat(np.array([ROOTS[0] ^ _PARAMETERS, *ROOTS[1:]], np.uint64), LANES)


def blake2b_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Take in one block of each lane. State: 8 vectors."""
    builder = emit.builder
    blocks = Blocks(emit, lanes, prefix, LANES, BLOCK)
    words = blocks.words(VECTOR, WORDS, 0)
    before = [emit.read(state, row * 8 * LANES, VECTOR) for row in range(8)]
    now = [*before, *(constant(VECTOR, root) for root in ROOTS)]
    # The number of bytes up to the end of this block, and whether it is the last.
    end = emit.spread(builder.add(blocks.offset, ir.Constant(I64, BLOCK)), VECTOR)
    now[12] = builder.xor(now[12], builder.select(blocks.last, blocks.total, end))
    now[14] = builder.xor(now[14], blocks.in_last(constant(VECTOR, -1)))
    for order in ORDERS:
        for step, (a, b, c, d) in enumerate(MIXED):
            for word, first, second in ((words[order[2 * step]], 32, 24), (words[order[2 * step + 1]], 16, 63)):
                now[a] = emit.total(now[a], now[b], word)
                now[d] = emit.rotated_right(builder.xor(now[d], now[a]), first)
                now[c] = builder.add(now[c], now[d])
                now[b] = emit.rotated_right(builder.xor(now[b], now[c]), second)
    for row in range(8):
        after = emit.xor(before[row], now[row], now[row + 8])
        emit.write(builder.select(blocks.active, after, before[row]), state, row * 8 * LANES)


def blake2b_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of all lanes."""
    Targets(emit, lanes, LANES).write_words([emit.read(state, row * 8 * LANES, VECTOR) for row in range(4)])


absorb, finish = emitted(blake2b_absorb), emitted(blake2b_finish)
