"""Engines that hash many messages in vectors; importing this module loads or compiles them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway_proofs.hashing import vector_hashes as hashes
from causeway_proofs.hashing import vector_loops
from causeway_proofs.hashing.functions import DIGEST_BYTES, Digests, HashFunction
from causeway_proofs.hashing.vector_instructions import KINDS

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_NO_BYTES = np.empty(0, dtype=np.uint8)
_NO_OFFSETS = np.empty(0, dtype=np.int64)
_NO_DIGESTS = np.empty((0, DIGEST_BYTES), dtype=np.uint8)


@dataclass(frozen=True)
class VectorHasher:
    """A hash function over ``count`` messages side by side.

    Attributes:
        number: index of the engine in the compiled loop.
        block: bytes absorbed at once.
        initial: initial state of all lanes.
    """

    number: int
    count: int
    block: int
    initial: npt.NDArray[Any] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name of the engine for people."""
        return "SHA instructions" if self.number == vector_loops.SHA256_PAIR else f"{self.count} lanes"

    @property
    def longest(self) -> int:
        """Return the most bytes of prefix and message."""
        return (vector_loops.MOST_BLOCKS - 2) * self.block

    def longest_slice_length(self, starts: Offsets, stops: Offsets, size: int) -> int:
        """Return the length of the longest slice, -1 if one is out of ``size`` bytes or reversed."""
        found: int = vector_loops.longest_slice(starts, stops, size)
        return found

    def slices(self, data: Bytes, starts: Offsets, stops: Offsets, prefix: bytes, out: Digests) -> None:
        """Hash slices of a buffer; the caller checks their bounds."""
        self._digest(vector_loops.SLICES, data, starts, stops, 0, _NO_DIGESTS, _NO_DIGESTS, prefix, out)

    def rows(self, rows: Bytes, prefix: bytes, out: Digests) -> None:
        """Hash the rows of a contiguous matrix."""
        data, width = rows.reshape(-1), rows.shape[1]
        none = _NO_OFFSETS
        self._digest(vector_loops.MATRIX, data, none, none, width, _NO_DIGESTS, _NO_DIGESTS, prefix, out)

    def pairs(self, prefix: bytes, left: Digests, right: Digests, out: Digests) -> None:
        """Hash pairs of digests; the bytes of each digest are contiguous."""
        self._digest(vector_loops.PAIRS, _NO_BYTES, _NO_OFFSETS, _NO_OFFSETS, 0, left, right, prefix, out)

    def _digest(
        self,
        kind: int,
        data: Bytes,
        starts: Offsets,
        stops: Offsets,
        width: int,
        left: Digests,
        right: Digests,
        prefix: bytes,
        out: Digests,
    ) -> None:
        own = np.zeros(2 * self.block, dtype=np.uint8)
        own[: len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
        vector_loops.digest(
            self.number, self.block, kind, data, starts, stops, width, left, right, own, len(prefix), out,
            self.initial.view(np.uint8),
            np.empty(self.initial.nbytes, dtype=np.uint8),
            np.empty((KINDS, self.count), dtype=np.int64),
            np.zeros(self.count * self.block, dtype=np.uint8),
            np.empty(2 * DIGEST_BYTES * vector_loops.PIECE if kind == vector_loops.PAIRS else 0, dtype=np.uint8),
            np.empty((5, vector_loops.PIECE), dtype=np.int64),
        )  # fmt: skip


def engines(function: HashFunction) -> list[VectorHasher]:
    """Return the engines of a hash function that this processor supports."""
    hashers = _ENGINES[function]
    return hashers if hashes.HAS_INSTRUCTIONS else hashers[:1]


_ENGINES = {
    HashFunction.SHA256: [
        VectorHasher(vector_loops.SHA256, hashes.SHA256_LANES, hashes.SHA256_BLOCK, hashes.SHA256_START),
        VectorHasher(vector_loops.SHA256_PAIR, hashes.PAIR, hashes.SHA256_BLOCK, hashes.PAIR_START),
    ],
    HashFunction.BLAKE2B_256: [
        VectorHasher(vector_loops.BLAKE2B, hashes.BLAKE2B_LANES, hashes.BLAKE2B_BLOCK, hashes.BLAKE2B_START)
    ],
    HashFunction.KECCAK_256: [
        VectorHasher(vector_loops.KECCAK, hashes.KECCAK_LANES, hashes.KECCAK_BLOCK, hashes.KECCAK_START)
    ],
}
