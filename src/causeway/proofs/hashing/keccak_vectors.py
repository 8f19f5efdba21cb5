"""Keccak-256 (the padding before SHA-3 was fixed) in vectors, of as many messages as a vector has lanes.

Source: The Keccak reference 3.0. Word x + 5y of the state is its lane (x, y).
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from causeway.proofs.hashing.vectors import I64, Blocks, Emitter, Targets, Value, constant, emitted, vector_bytes

BLOCK = 136
"""Bytes absorbed by one permutation: 200 of the state less twice the digest's 32."""

WORDS = 17

STATE_WORDS = 25

ROUNDS = 24

LANES = vector_bytes() // 8

VECTOR = ir.VectorType(I64, LANES)

START = np.zeros(STATE_WORDS * LANES, np.uint64)

_LAST_BIT = 1 << 63
"""The padding's last bit is the last of the block."""


def _rotations() -> list[int]:
    """Return by how many bits each word turns left in the step rho."""
    turns = [0] * STATE_WORDS
    x, y = 1, 0
    for step in range(24):
        turns[x + 5 * y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return turns


def _round_constants() -> list[int]:
    """Return what each round adds to word 0: bits of a shift register over x^8 + x^6 + x^5 + x^4 + 1."""
    constants, register = [], 1
    for _ in range(ROUNDS):
        number = 0
        for bit in range(7):
            if register & 1:
                number |= 1 << ((1 << bit) - 1)
            register <<= 1
            if register & 0x100:
                register ^= 0x171
        constants.append(number)
    return constants


CONSTANTS, TURNS = _round_constants(), _rotations()


def keccak_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Take in one block of each lane. State: 25 vectors."""
    builder = emit.builder
    blocks = Blocks(emit, lanes, prefix, LANES, BLOCK)
    words = blocks.words(VECTOR, WORDS, 1)
    words[-1] = builder.xor(words[-1], blocks.in_last(constant(VECTOR, _LAST_BIT)))
    before = [emit.read(state, row * 8 * LANES, VECTOR) for row in range(STATE_WORDS)]
    mixed = [builder.xor(*pair) for pair in zip(before, words, strict=False)] + before[WORDS:]
    done = emit.repeated(ROUNDS, mixed, lambda turn, values: _round(emit, turn, values))
    for row in range(STATE_WORDS):
        emit.write(builder.select(blocks.active, done[row], before[row]), state, row * 8 * LANES)


def _round(emit: Emitter, turn: Value, words: list[Value]) -> list[Value]:
    builder = emit.builder
    # Theta.
    columns = [emit.xor(*words[x::5]) for x in range(5)]
    added = [emit.xor(columns[(x + 4) % 5], emit.rotated_left(columns[(x + 1) % 5], 1)) for x in range(5)]
    words = [builder.xor(word, added[number % 5]) for number, word in enumerate(words)]
    # Rho and pi.
    moved = list(words)
    for y in range(5):
        for x in range(5):
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = emit.rotated_left(words[x + 5 * y], TURNS[x + 5 * y])
    # Chi and iota.
    ones = constant(VECTOR, -1)
    done = []
    for number in range(STATE_WORDS):
        row = number - number % 5
        near, far = moved[row + (number + 1) % 5], moved[row + (number + 2) % 5]
        done.append(builder.xor(moved[number], builder.and_(builder.xor(near, ones), far)))
    key = emit.read(emit.table("keccak_constants", CONSTANTS, I64), builder.mul(turn, ir.Constant(I64, 8)), I64)
    done[0] = builder.xor(done[0], emit.spread(key, VECTOR))
    return done


def keccak_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of all lanes."""
    Targets(emit, lanes, LANES).write_words([emit.read(state, row * 8 * LANES, VECTOR) for row in range(4)])


absorb, finish = emitted(keccak_absorb), emitted(keccak_finish)
