"""Keccak-256 of whole columns in NumPy, which the engine in vectors is measured beside.

Lane ``x + 5y`` of every sponge lies in one row of a (25, n) array, so that one operation does a step of the permutation
for n values of one length.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.hashing.vector_hashes import CONSTANTS, KECCAK_BLOCK, STATE_WORDS, TURNS

PIECE_BYTES = 1 << 21
"""Padded input hashed at a time: about 16 thousand sponges of one block, whose state stays in the cache."""

_Lanes = npt.NDArray[np.uint64]

# Step pi: the lane that goes to each position, with its turn of step rho.
_MOVES = [
    (y + 5 * ((2 * x + 3 * y) % 5), x + 5 * y, np.uint64(TURNS[x + 5 * y]), np.uint64(64 - TURNS[x + 5 * y]))
    for y in range(5)
    for x in range(5)
]
_ONE, _REST = np.uint64(1), np.uint64(63)


def digests_of(rows: npt.NDArray[np.uint8]) -> Digests:
    """Return the Keccak-256 digest of each row of a byte matrix, shape (n, width) -> (n, 32)."""
    length, width = rows.shape
    blocks = width // KECCAK_BLOCK + 1
    digests = np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    piece = max(PIECE_BYTES // (blocks * KECCAK_BLOCK), 1)
    for start in range(0, length, piece):
        part = rows[start : start + piece]
        padded = np.zeros((len(part), blocks * KECCAK_BLOCK), dtype=np.uint8)
        padded[:, :width] = part
        padded[:, width] = 1
        padded[:, -1] |= 0x80
        digests[start : start + piece] = _sponges(padded)
    return digests


def _sponges(padded: npt.NDArray[np.uint8]) -> Digests:
    length, width = padded.shape
    state = np.zeros((STATE_WORDS, length), dtype=np.uint64)
    lanes = padded.view("<u8").reshape(length, width // KECCAK_BLOCK, KECCAK_BLOCK // 8)
    permutation = _Permutation(length)
    for block in range(width // KECCAK_BLOCK):
        state[: KECCAK_BLOCK // 8] ^= lanes[:, block].T
        permutation(state)
    return np.ascontiguousarray(state[: DIGEST_BYTES // 8].T.astype("<u8")).view(np.uint8)


class _Permutation:
    """keccak-f[1600] over (25, n) lanes in place; the room it works in is kept between calls."""

    def __init__(self, length: int) -> None:
        self.parity = np.empty((7, length), dtype=np.uint64)
        self.turned = np.empty((5, length), dtype=np.uint64)
        self.rest = np.empty((5, length), dtype=np.uint64)
        self.moved = np.empty((STATE_WORDS, length), dtype=np.uint64)

    def __call__(self, state: _Lanes) -> None:
        length = state.shape[1]
        planes = state.reshape(5, 5, length)
        moved_planes = self.moved.reshape(5, 5, length)
        rest = self.rest[0]
        for constant in CONSTANTS:
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
            state[0] ^= np.uint64(constant)

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
