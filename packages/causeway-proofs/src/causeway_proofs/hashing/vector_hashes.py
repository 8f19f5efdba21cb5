"""Emit BLAKE2b-256, Keccak-256 and SHA-256 in vectors, one message a lane.

SHA-256 also has a form for two messages that uses the processor's own SHA instructions.

Sources: RFC 7693 (BLAKE2b); the Keccak reference 3.0 (with the padding from before the SHA-3 standard; word x + 5y of
the state is its lane (x, y)); FIPS 180-4 (SHA-256).
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from llvmlite import ir

from causeway_proofs.hashing.vector_instructions import (
    DIGEST_BYTES,
    I32,
    I64,
    Emitter,
    LaneBlocks,
    Targets,
    Value,
    compile_emitter,
    constant,
    has_feature,
    vector_bytes,
)

BLAKE2B_BLOCK = 128

BLAKE2B_WORDS = 16

BLAKE2B_LANES = vector_bytes() // 8

BLAKE2B_VECTOR = ir.VectorType(I64, BLAKE2B_LANES)

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
"""Order of the block's words in each round."""

MIXED = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
"""State words mixed by each step of a round: columns, then diagonals."""

ROOTS = [isqrt(prime << 128) & 0xFFFFFFFFFFFFFFFF for prime in (2, 3, 5, 7, 11, 13, 17, 19)]

_PARAMETERS = 0x0101_0000 | DIGEST_BYTES
"""Parameter block: no key, a tree of one node."""

BLAKE2B_START = np.repeat(np.array([ROOTS[0] ^ _PARAMETERS, *ROOTS[1:]], np.uint64), BLAKE2B_LANES)


def blake2b_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Absorb one block of each lane. State: 8 vectors."""
    builder = emit.builder
    blocks = LaneBlocks(emit, lanes, prefix, BLAKE2B_LANES, BLAKE2B_BLOCK)
    words = blocks.words(BLAKE2B_VECTOR, BLAKE2B_WORDS, 0)
    before = [emit.read(state, row * 8 * BLAKE2B_LANES, BLAKE2B_VECTOR) for row in range(8)]
    now = [*before, *(constant(BLAKE2B_VECTOR, root) for root in ROOTS)]
    # Byte count up to the end of this block, and the flag of the last block.
    end = emit.spread(builder.add(blocks.offset, ir.Constant(I64, BLAKE2B_BLOCK)), BLAKE2B_VECTOR)
    now[12] = builder.xor(now[12], builder.select(blocks.last, blocks.total, end))
    now[14] = builder.xor(now[14], blocks.in_last(constant(BLAKE2B_VECTOR, -1)))
    for order in ORDERS:
        for step, (a, b, c, d) in enumerate(MIXED):
            for word, first, second in ((words[order[2 * step]], 32, 24), (words[order[2 * step + 1]], 16, 63)):
                now[a] = emit.total(now[a], now[b], word)
                now[d] = emit.rotate_right(builder.xor(now[d], now[a]), first)
                now[c] = builder.add(now[c], now[d])
                now[b] = emit.rotate_right(builder.xor(now[b], now[c]), second)
    for row in range(8):
        after = emit.xor(before[row], now[row], now[row + 8])
        emit.write(builder.select(blocks.active, after, before[row]), state, row * 8 * BLAKE2B_LANES)


def blake2b_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of all lanes."""
    Targets(emit, lanes, BLAKE2B_LANES).write_words(
        [emit.read(state, row * 8 * BLAKE2B_LANES, BLAKE2B_VECTOR) for row in range(4)]
    )


absorb, finish = compile_emitter(blake2b_absorb), compile_emitter(blake2b_finish)


KECCAK_BLOCK = 136
"""Rate in bytes: 200 bytes of state less twice the digest's 32."""

KECCAK_WORDS = 17

STATE_WORDS = 25

ROUNDS = 24

KECCAK_LANES = vector_bytes() // 8

KECCAK_VECTOR = ir.VectorType(I64, KECCAK_LANES)

KECCAK_START = np.zeros(STATE_WORDS * KECCAK_LANES, np.uint64)

_LAST_BIT = 1 << 63
"""Final bit of the padding, the last bit of the block."""


def _rotations() -> list[int]:
    """Return the left rotation of each word in step rho."""
    turns = [0] * STATE_WORDS
    x, y = 1, 0
    for step in range(24):
        turns[x + 5 * y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return turns


def _round_constants() -> list[int]:
    """Return the constant of each round for word 0: bits of an LFSR.

    Its polynomial is x^8 + x^6 + x^5 + x^4 + 1.
    """
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
    """Absorb one block of each lane. State: 25 vectors."""
    builder = emit.builder
    blocks = LaneBlocks(emit, lanes, prefix, KECCAK_LANES, KECCAK_BLOCK)
    words = blocks.words(KECCAK_VECTOR, KECCAK_WORDS, 1)
    words[-1] = builder.xor(words[-1], blocks.in_last(constant(KECCAK_VECTOR, _LAST_BIT)))
    before = [emit.read(state, row * 8 * KECCAK_LANES, KECCAK_VECTOR) for row in range(STATE_WORDS)]
    mixed = [builder.xor(*pair) for pair in zip(before, words, strict=False)] + before[KECCAK_WORDS:]
    done = emit.repeated(ROUNDS, mixed, lambda turn, values: _round(emit, turn, values))
    for row in range(STATE_WORDS):
        emit.write(builder.select(blocks.active, done[row], before[row]), state, row * 8 * KECCAK_LANES)


def _round(emit: Emitter, turn: Value, words: list[Value]) -> list[Value]:
    builder = emit.builder
    # Theta.
    columns = [emit.xor(*words[x::5]) for x in range(5)]
    added = [emit.xor(columns[(x + 4) % 5], emit.rotate_left(columns[(x + 1) % 5], 1)) for x in range(5)]
    words = [builder.xor(word, added[number % 5]) for number, word in enumerate(words)]
    # Rho and pi.
    moved = list(words)
    for y in range(5):
        for x in range(5):
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = emit.rotate_left(words[x + 5 * y], TURNS[x + 5 * y])
    # Chi and iota.
    ones = constant(KECCAK_VECTOR, -1)
    done = []
    for number in range(STATE_WORDS):
        row = number - number % 5
        near, far = moved[row + (number + 1) % 5], moved[row + (number + 2) % 5]
        done.append(builder.xor(moved[number], builder.and_(builder.xor(near, ones), far)))
    key = emit.read(emit.table("keccak_constants", CONSTANTS, I64), builder.mul(turn, ir.Constant(I64, 8)), I64)
    done[0] = builder.xor(done[0], emit.spread(key, KECCAK_VECTOR))
    return done


def keccak_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of all lanes."""
    Targets(emit, lanes, KECCAK_LANES).write_words(
        [emit.read(state, row * 8 * KECCAK_LANES, KECCAK_VECTOR) for row in range(4)]
    )


keccak_vectors_absorb, keccak_vectors_finish = compile_emitter(keccak_absorb), compile_emitter(keccak_finish)


SHA256_BLOCK = 64

SHA256_WORDS = 16

SHA256_LANES = vector_bytes() // 4

SHA256_VECTOR = ir.VectorType(I32, SHA256_LANES)

PAIR = 2
"""Messages interleaved by the SHA instructions, to hide their latency."""

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
    """Return the first 32 fractional bits of a cube root."""
    low, high = 0, number << 32
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= number << 96 else (low, middle - 1)
    return low & 0xFFFFFFFF


SHA256_VECTORS_CONSTANTS = [_cube_root_bits(prime) for prime in _primes(64)]

_START = [isqrt(prime << 64) & 0xFFFFFFFF for prime in _primes(8)]

SHA256_START = np.repeat(np.array(_START, np.uint32), SHA256_LANES)

_A, _B, _C, _D, _E, _F, _G, _H = _START

PAIR_START = np.tile(np.array([_F, _E, _B, _A, _H, _G, _D, _C], np.uint32), PAIR)
"""Initial state in the word order of the SHA instructions."""


def sha256_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Absorb one block of each lane. State: 8 vectors."""
    builder = emit.builder
    blocks = LaneBlocks(emit, lanes, prefix, SHA256_LANES, SHA256_BLOCK)
    words = [emit.swapped(word) for word in blocks.words(SHA256_VECTOR, SHA256_WORDS, 0x80)]
    bits = blocks.in_last(builder.shl(blocks.total, constant(blocks.kind, 3)))
    words[14] = builder.or_(words[14], builder.trunc(builder.lshr(bits, constant(blocks.kind, 32)), SHA256_VECTOR))
    words[15] = builder.or_(words[15], builder.trunc(bits, SHA256_VECTOR))
    before = [emit.read(state, row * 4 * SHA256_LANES, SHA256_VECTOR) for row in range(8)]
    done = emit.repeated(3, [*before, *words], lambda turn, values: _sixteen_rounds(emit, turn, values, True))
    done = _sixteen_rounds(emit, ir.Constant(I64, 3), done, False)
    for row in range(8):
        after = builder.select(blocks.active, builder.add(before[row], done[row]), before[row])
        emit.write(after, state, row * 4 * SHA256_LANES)


def _sixteen_rounds(emit: Emitter, turn: Value, values: list[Value], more: bool) -> list[Value]:
    """Emit 16 rounds and the message schedule of the next 16."""
    builder = emit.builder
    a, b, c, d, e, f, g, h, *words = values
    keys = emit.table("sha256_constants", SHA256_VECTORS_CONSTANTS, I32)
    base = builder.mul(turn, ir.Constant(I64, 4 * SHA256_WORDS))
    for number in range(SHA256_WORDS):
        key = emit.spread(emit.read(keys, builder.add(base, ir.Constant(I64, 4 * number)), I32), SHA256_VECTOR)
        chosen = emit.xor(g, builder.and_(e, emit.xor(f, g)))
        added = emit.total(h, builder.add(words[number], key), chosen, _rotate_and_xor(emit, e, 6, 11, 25))
        most = builder.or_(builder.and_(a, b), builder.and_(c, builder.or_(a, b)))
        a, b, c, d, e, f, g, h = (
            emit.total(added, _rotate_and_xor(emit, a, 2, 13, 22), most), a, b, c, builder.add(d, added), e, f, g
        )  # fmt: skip
        if more:
            near, far = words[(number + 1) % SHA256_WORDS], words[(number + 14) % SHA256_WORDS]
            words[number] = emit.total(
                words[number],
                words[(number + 9) % SHA256_WORDS],
                emit.xor(_rotate_and_xor(emit, near, 7, 18), builder.lshr(near, constant(SHA256_VECTOR, 3))),
                emit.xor(_rotate_and_xor(emit, far, 17, 19), builder.lshr(far, constant(SHA256_VECTOR, 10))),
            )
    return [a, b, c, d, e, f, g, h, *words]


def _rotate_and_xor(emit: Emitter, word: Value, *turns: int) -> Value:
    return emit.xor(*(emit.rotate_right(word, bits) for bits in turns))


def sha256_finish(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Write the digests of all lanes."""
    words = [emit.swapped(emit.read(state, row * 4 * SHA256_LANES, SHA256_VECTOR)) for row in range(8)]
    Targets(emit, lanes, SHA256_LANES).write_words(words)


def sha256_pair_absorb(emit: Emitter, state: Value, lanes: Value, prefix: Value) -> None:
    """Absorb one block of two messages with the SHA instructions.

    State: words F E B A, H G D C of each.

    Every 4 words form a vector; each instruction performs two rounds.
    """
    builder = emit.builder
    keys = [
        ir.Constant(FOUR, [ir.Constant(I32, key) for key in SHA256_VECTORS_CONSTANTS[at : at + 4]])
        for at in range(0, 64, 4)
    ]
    before = [[emit.read(state, 32 * lane + 16 * half, FOUR) for half in range(2)] for lane in range(PAIR)]
    blocks = LaneBlocks(emit, lanes, prefix, PAIR, SHA256_BLOCK)
    words = _vectors_of_four(emit, blocks)
    now = [list(halves) for halves in before]
    for step in range(16):
        for lane in range(PAIR):
            sums = builder.add(words[lane][step % 4], keys[step])
            later = emit.shuffled(sums, sums, [2, 3, 0, 0])
            first, second = now[lane]
            second = emit.intrinsic("llvm.x86.sha256rnds2", FOUR, [second, first, sums])
            first = emit.intrinsic("llvm.x86.sha256rnds2", FOUR, [first, second, later])
            now[lane] = [first, second]
            if step < 12:
                oldest, old, new, newest = (words[lane][(step + number) % 4] for number in range(4))
                schedule = emit.intrinsic("llvm.x86.sha256msg1", FOUR, [oldest, old])
                schedule = builder.add(schedule, emit.shuffled(new, newest, [1, 2, 3, 4]))
                words[lane][step % 4] = emit.intrinsic("llvm.x86.sha256msg2", FOUR, [schedule, newest])
    for lane in range(PAIR):
        active = builder.extract_element(blocks.active, ir.Constant(I32, lane))
        for half in range(2):
            after = builder.add(before[lane][half], now[lane][half])
            emit.write(builder.select(active, after, before[lane][half]), state, 32 * lane + 16 * half)


def _vectors_of_four(emit: Emitter, blocks: LaneBlocks) -> list[list[Value]]:
    """Load the 16 words of both blocks."""
    builder, found = emit.builder, []
    bits = blocks.in_last(builder.shl(blocks.total, constant(blocks.kind, 3)))
    for lane, window in enumerate(blocks.windows(0, SHA256_BLOCK, 0x80)):
        block = builder.bitcast(window, ir.VectorType(I32, SHA256_WORDS))
        words = [emit.swapped(emit.shuffled(block, block, range(at, at + 4))) for at in range(0, SHA256_WORDS, 4)]
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


sha256_vectors_absorb, sha256_vectors_finish = compile_emitter(sha256_absorb), compile_emitter(sha256_finish)
# Without SHA instructions these are never called, but they still have to compile.
pair_absorb = compile_emitter(sha256_pair_absorb if HAS_INSTRUCTIONS else sha256_absorb)
pair_finish = compile_emitter(sha256_pair_finish if HAS_INSTRUCTIONS else sha256_finish)
