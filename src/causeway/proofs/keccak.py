"""Keccak-256 (the padding before SHA-3 was fixed): one value, or a column of them.

A column is hashed with all its sponges side by side: lane ``x + 5y`` of every sponge lies in one row of a (25, n)
array, so that one NumPy operation does a step of the permutation for n values. Few values are faster one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from Crypto.Hash import keccak

from causeway.proofs.hashing import DIGEST_BYTES, Digests

RATE = 136
"""Bytes absorbed by one permutation: 200 of the state less twice the digest's 32."""

VECTOR_THRESHOLD = 512
"""Below this many values a plain loop is faster than the fixed cost of some two thousand NumPy calls."""

PIECE_BYTES = 1 << 21
"""Padded input hashed at a time: about 16 thousand sponges of one block, whose state stays in the cache."""

LONG_BLOCKS = 256
"""Values of more blocks than this are hashed one by one: the loop in C is then as fast."""

_ROUNDS = 24
_LANES = 25
_Lanes = npt.NDArray[np.uint64]


def keccak256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the Keccak-256 digest of ``data``, 32 bytes."""
    return keccak.new(digest_bits=256, data=data).digest()


def keccak256_rows(rows: npt.NDArray[np.uint8]) -> Digests:
    """Return the Keccak-256 digest of each row of a byte matrix, shape (n, width) -> (n, 32)."""
    length, width = rows.shape
    blocks = width // RATE + 1
    if length < VECTOR_THRESHOLD or blocks > LONG_BLOCKS:
        return _one_by_one([row.tobytes() for row in rows])
    digests = np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    piece = max(PIECE_BYTES // (blocks * RATE), 1)
    for start in range(0, length, piece):
        part = rows[start : start + piece]
        padded = np.zeros((len(part), blocks * RATE), dtype=np.uint8)
        padded[:, :width] = part
        padded[:, width] = 1
        padded[:, -1] |= 0x80
        digests[start : start + piece] = _sponges(padded)
    return digests


def keccak256_each(values: pa.BinaryArray) -> Digests:
    """Return the Keccak-256 digest of each value of a bytes column (no nulls), shape (n, 32)."""
    length = len(values)
    digests = np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    if length == 0:
        return digests
    offsets, data = _buffers(values)
    starts, sizes = offsets[:-1], np.diff(offsets)
    blocks = sizes // RATE + 1
    order = np.argsort(blocks, kind="stable")
    counts, firsts = np.unique(blocks[order], return_index=True)
    for count, first, last in zip(counts.tolist(), firsts, [*firsts[1:], length], strict=True):
        same = order[first:last]
        if len(same) < VECTOR_THRESHOLD or count > LONG_BLOCKS:
            parts = zip(starts[same].tolist(), sizes[same].tolist(), strict=True)
            digests[same] = _one_by_one([data[start : start + size].tobytes() for start, size in parts])
            continue
        piece = max(PIECE_BYTES // (count * RATE), 1)
        for start in range(0, len(same), piece):
            some = same[start : start + piece]
            digests[some] = _sponges(_padded(data, starts[some], sizes[some], count))
    return digests


def _one_by_one(values: list[bytes]) -> Digests:
    joined = b"".join([keccak256(value) for value in values])
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(values), DIGEST_BYTES)


def _buffers(values: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the ends of each value (n + 1 of them) and the bytes that they point into."""
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    _, ends, data = values.buffers()
    kind = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    offsets = np.frombuffer(ends, dtype=kind)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return offsets, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def _padded(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], blocks: int
) -> npt.NDArray[np.uint8]:
    column = np.arange(blocks * RATE)
    inside = column < sizes[:, None]
    padded = np.zeros(inside.shape, dtype=np.uint8)
    padded[inside] = data[(starts[:, None] + column)[inside]]
    padded[np.arange(len(sizes)), sizes] = 1
    padded[:, -1] |= 0x80
    return padded


def _sponges(padded: npt.NDArray[np.uint8]) -> Digests:
    """Absorb each row of whole blocks in a sponge of its own, shape (n, blocks x RATE) -> (n, 32)."""
    length, width = padded.shape
    state = np.zeros((_LANES, length), dtype=np.uint64)
    lanes = padded.view("<u8").reshape(length, width // RATE, RATE // 8)
    permutation = _Permutation(length)
    for block in range(width // RATE):
        state[: RATE // 8] ^= lanes[:, block].T
        permutation(state)
    return np.ascontiguousarray(state[: DIGEST_BYTES // 8].T.astype("<u8")).view(np.uint8)


def _rotations() -> list[int]:
    """Return by how many bits each lane turns left in the step rho."""
    turns = [0] * _LANES
    x, y = 1, 0
    for step in range(24):
        turns[x + 5 * y] = (step + 1) * (step + 2) // 2 % 64
        x, y = y, (2 * x + 3 * y) % 5
    return turns


def _round_constants() -> list[np.uint64]:
    """Return what each round adds to lane 0: bits of a shift register over x^8 + x^6 + x^5 + x^4 + 1."""
    constants, register = [], 1
    for _ in range(_ROUNDS):
        constant = 0
        for bit in range(7):
            if register & 1:
                constant |= 1 << ((1 << bit) - 1)
            register <<= 1
            if register & 0x100:
                register ^= 0x171
        constants.append(np.uint64(constant))
    return constants


_CONSTANTS = _round_constants()
_TURNS = _rotations()
# Step pi: the lane that goes to each position, with its turn of step rho.
_MOVES = [
    (y + 5 * ((2 * x + 3 * y) % 5), x + 5 * y, np.uint64(_TURNS[x + 5 * y]), np.uint64(64 - _TURNS[x + 5 * y]))
    for y in range(5)
    for x in range(5)
]
_ONE, _REST = np.uint64(1), np.uint64(63)


class _Permutation:
    """keccak-f[1600] over (25, n) lanes in place; the room it works in is kept between calls."""

    def __init__(self, length: int) -> None:
        self.parity = np.empty((7, length), dtype=np.uint64)
        self.turned = np.empty((5, length), dtype=np.uint64)
        self.rest = np.empty((5, length), dtype=np.uint64)
        self.moved = np.empty((_LANES, length), dtype=np.uint64)

    def __call__(self, state: _Lanes) -> None:
        length = state.shape[1]
        planes = state.reshape(5, 5, length)
        moved_planes = self.moved.reshape(5, 5, length)
        rest = self.rest[0]
        for constant in _CONSTANTS:
            self._theta(planes)
            for target, source, left, right in _MOVES:
                moved = self.moved[target]
                if not left:
                    moved[:] = state[source]
                    continue
                np.left_shift(state[source], left, out=moved)
                np.right_shift(state[source], right, out=rest)
                np.bitwise_or(moved, rest, out=moved)
            # Step chi, one column of all five planes at a time.
            for x in range(5):
                lanes = planes[:, x]
                np.invert(moved_planes[:, (x + 1) % 5], out=lanes)
                np.bitwise_and(lanes, moved_planes[:, (x + 2) % 5], out=lanes)
                np.bitwise_xor(lanes, moved_planes[:, x], out=lanes)
            state[0] ^= constant

    def _theta(self, planes: _Lanes) -> None:
        # Columns -1..5, so that both neighbours of every column are slices.
        columns = self.parity[1:6]
        np.bitwise_xor(planes[0], planes[1], out=columns)
        for y in range(2, 5):
            np.bitwise_xor(columns, planes[y], out=columns)
        self.parity[0], self.parity[6] = self.parity[5], self.parity[1]
        np.left_shift(self.parity[2:], _ONE, out=self.turned)
        np.right_shift(self.parity[2:], _REST, out=self.rest)
        np.bitwise_or(self.turned, self.rest, out=self.turned)
        np.bitwise_xor(self.turned, self.parity[:5], out=self.turned)
        np.bitwise_xor(planes, self.turned, out=planes)
