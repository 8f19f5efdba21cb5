"""SHA-256 in vectors: of as many messages as a vector has lanes, or of two by a processor's own instructions for it.

Source: FIPS 180-4.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from llvmlite import ir

from causeway.proofs.hashing.vectors import (
    I32,
    I64,
    Blocks,
    Emitter,
    Targets,
    Value,
    constant,
    emitted,
    has_feature,
    vector_bytes,
)

BLOCK = 64

WORDS = 16

LANES = vector_bytes() // 4

VECTOR = ir.VectorType(I32, LANES)

PAIR = 2
"""Messages that the processor's own instructions are given side by side: one waits while the other is worked on."""

FOUR = ir.VectorType(I32, 4)

HAS_INSTRUCTIONS = has_feature("sha") and has_feature("sse4.1")


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def _cube_root_bits(number: int) -> int:
    """Return the first 32 bits behind the point of a cube root."""
    low, high = 0, number << 32
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= number << 96 else (low, middle - 1)
    return low & 0xFFFFFFFF


CONSTANTS = [_cube_root_bits(prime) for prime in _primes(64)]

_START = [isqrt(prime << 64) & 0xFFFFFFFF for prime in _primes(8)]

START = np.repeat(np.array(_START, np.uint32), LANES)

_A, _B, _C, _D, _E, _F, _G, _H = _START

PAIR_START = np.tile(np.array([_F, _E, _B, _A, _H, _G, _D, _C], np.uint32), PAIR)
"""The order in which the instructions take the eight words."""


def sha256_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Take in one block of each lane. State: 8 vectors."""
    builder = emit.builder
    blocks = Blocks(emit, lanes, prefix, LANES, BLOCK)
    words = [emit.swapped(word) for word in blocks.words(VECTOR, WORDS, 0x80)]
    bits = blocks.in_last(builder.shl(blocks.total, constant(blocks.kind, 3)))
    words[14] = builder.or_(words[14], builder.trunc(builder.lshr(bits, constant(blocks.kind, 32)), VECTOR))
    words[15] = builder.or_(words[15], builder.trunc(bits, VECTOR))
    before = [emit.read(state, row * 4 * LANES, VECTOR) for row in range(8)]
    done = emit.repeated(3, [*before, *words], lambda turn, values: _sixteen_rounds(emit, turn, values, True))
    done = _sixteen_rounds(emit, ir.Constant(I64, 3), done, False)
    for row in range(8):
        after = builder.select(blocks.active, builder.add(before[row], done[row]), before[row])
        emit.write(after, state, row * 4 * LANES)


def _sixteen_rounds(emit: Emitter, turn: Value, values: list[Value], more: bool) -> list[Value]:
    """Do 16 rounds, and make the words of the 16 after them."""
    builder = emit.builder
    a, b, c, d, e, f, g, h, *words = values
    keys = emit.table("sha256_constants", CONSTANTS, I32)
    base = builder.mul(turn, ir.Constant(I64, 4 * WORDS))
    for number in range(WORDS):
        key = emit.spread(emit.read(keys, builder.add(base, ir.Constant(I64, 4 * number)), I32), VECTOR)
        chosen = emit.xor(g, builder.and_(e, emit.xor(f, g)))
        added = emit.total(h, builder.add(words[number], key), chosen, _turned(emit, e, 6, 11, 25))
        most = builder.or_(builder.and_(a, b), builder.and_(c, builder.or_(a, b)))
        a, b, c, d, e, f, g, h = (
            emit.total(added, _turned(emit, a, 2, 13, 22), most), a, b, c, builder.add(d, added), e, f, g
        )  # fmt: skip
        if more:
            near, far = words[(number + 1) % WORDS], words[(number + 14) % WORDS]
            words[number] = emit.total(
                words[number],
                words[(number + 9) % WORDS],
                emit.xor(_turned(emit, near, 7, 18), builder.lshr(near, constant(VECTOR, 3))),
                emit.xor(_turned(emit, far, 17, 19), builder.lshr(far, constant(VECTOR, 10))),
            )
    return [a, b, c, d, e, f, g, h, *words]


def _turned(emit: Emitter, word: Value, *turns: int) -> Value:
    return emit.xor(*(emit.rotated_right(word, bits) for bits in turns))


def sha256_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of all lanes."""
    words = [emit.swapped(emit.read(state, row * 4 * LANES, VECTOR)) for row in range(8)]
    Targets(emit, lanes, LANES).write_words(words)


def sha256_pair_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Take in one block of each of two messages by the processor's instructions. State: words F E B A, H G D C of each.

    Every 4 words are a vector; each of the instructions does two rounds.
    """
    builder = emit.builder
    keys = [ir.Constant(FOUR, [ir.Constant(I32, key) for key in CONSTANTS[at : at + 4]]) for at in range(0, 64, 4)]
    before = [[emit.read(state, 32 * lane + 16 * half, FOUR) for half in range(2)] for lane in range(PAIR)]
    blocks = Blocks(emit, lanes, prefix, PAIR, BLOCK)
    words = _vectors_of_four(emit, blocks)
    now = [list(halves) for halves in before]
    for step in range(16):
        for lane in range(PAIR):
            taken = builder.add(words[lane][step % 4], keys[step])
            later = emit.shuffled(taken, taken, [2, 3, 0, 0])
            first, second = now[lane]
            second = emit.intrinsic("llvm.x86.sha256rnds2", FOUR, [second, first, taken])
            first = emit.intrinsic("llvm.x86.sha256rnds2", FOUR, [first, second, later])
            now[lane] = [first, second]
            if step < 12:
                oldest, old, new, newest = (words[lane][(step + number) % 4] for number in range(4))
                made = emit.intrinsic("llvm.x86.sha256msg1", FOUR, [oldest, old])
                made = builder.add(made, emit.shuffled(new, newest, [1, 2, 3, 4]))
                words[lane][step % 4] = emit.intrinsic("llvm.x86.sha256msg2", FOUR, [made, newest])
    for lane in range(PAIR):
        active = builder.extract_element(blocks.active, ir.Constant(I32, lane))
        for half in range(2):
            after = builder.add(before[lane][half], now[lane][half])
            emit.write(builder.select(active, after, before[lane][half]), state, 32 * lane + 16 * half)


def _vectors_of_four(emit: Emitter, blocks: Blocks) -> list[list[Value]]:
    """Load the 16 words of each of the two blocks."""
    builder, found = emit.builder, []
    bits = blocks.in_last(builder.shl(blocks.total, constant(blocks.kind, 3)))
    for lane, window in enumerate(blocks.windows(0, BLOCK, 0x80)):
        block = builder.bitcast(window, ir.VectorType(I32, WORDS))
        words = [emit.swapped(emit.shuffled(block, block, range(at, at + 4))) for at in range(0, WORDS, 4)]
        length = builder.extract_element(bits, ir.Constant(I32, lane))
        last = constant(FOUR, 0)
        for position, part in ((2, builder.lshr(length, ir.Constant(I64, 32))), (3, length)):
            last = builder.insert_element(last, builder.trunc(part, I32), ir.Constant(I32, position))
        words[3] = builder.or_(words[3], last)
        found.append(words)
    return found


def sha256_pair_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of two messages."""
    targets = Targets(emit, lanes, PAIR)
    for lane in range(PAIR):
        first, second = (emit.read(state, 32 * lane + 16 * half, FOUR) for half in range(2))
        targets.write(emit.swapped(emit.shuffled(first, second, [3, 2, 7, 6])), lane, 0)
        targets.write(emit.swapped(emit.shuffled(first, second, [1, 0, 5, 4])), lane, 16)


absorb, finish = emitted(sha256_absorb), emitted(sha256_finish)
# Without the instructions nobody calls these, yet they have to compile to something.
pair_absorb = emitted(sha256_pair_absorb if HAS_INSTRUCTIONS else sha256_absorb)
pair_finish = emitted(sha256_pair_finish if HAS_INSTRUCTIONS else sha256_finish)
