"""The engines that hash many messages side by side in vectors: importing this loads compiled code, or compiles it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from causeway.proofs.hashing import blake2b_vectors, keccak_vectors, lanes_loops, sha256_vectors
from causeway.proofs.hashing.functions import DIGEST_BYTES, Digests, HashFunction
from causeway.proofs.hashing.vectors import KINDS

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_NO_BYTES = np.empty(0, dtype=np.uint8)
_NO_OFFSETS = np.empty(0, dtype=np.int64)
_NO_DIGESTS = np.empty((0, DIGEST_BYTES), dtype=np.uint8)


@dataclass(frozen=True)
class Lanes:
    """A hash function over ``count`` messages side by side.

    ``number``: which one it is for the loop; ``block``: bytes that it takes in at once; ``initial``: the state of all
    lanes before that.
    """

    name: str
    number: int
    count: int
    block: int
    initial: Bytes = field(repr=False, compare=False)

    @property
    def longest_prefix(self) -> int:
        """Return how many bytes a prefix may have."""
        return self.block

    @property
    def longest(self) -> int:
        """Return how many bytes prefix and message may have together."""
        return (lanes_loops.MOST_BLOCKS - 2) * self.block

    def longest_of(self, starts: Offsets, stops: Offsets, size: int) -> int:
        """Return the length of the longest slice of ``size`` bytes, -1 if one lies outside or ends before it starts."""
        found: int = lanes_loops.longest(starts, stops, size)
        return found

    def slices(self, data: Bytes, starts: Offsets, stops: Offsets, prefix: bytes, out: Digests) -> None:
        """Hash slices of a buffer; they must lie in it."""
        self._digest(lanes_loops.SLICES, data, starts, stops, 0, _NO_DIGESTS, _NO_DIGESTS, prefix, out)

    def rows(self, rows: Bytes, prefix: bytes, out: Digests) -> None:
        """Hash the rows of a contiguous matrix."""
        data, width = rows.reshape(-1), rows.shape[1]
        none = _NO_OFFSETS
        self._digest(lanes_loops.MATRIX, data, none, none, width, _NO_DIGESTS, _NO_DIGESTS, prefix, out)

    def pairs(self, prefix: bytes, left: Digests, right: Digests, out: Digests) -> None:
        """Hash pairs of digests, the bytes of each of which lie one behind the other."""
        self._digest(lanes_loops.PAIRS, _NO_BYTES, _NO_OFFSETS, _NO_OFFSETS, 0, left, right, prefix, out)

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
        lanes_loops.digest(
            self.number, self.block, kind, data, starts, stops, width, left, right, own, len(prefix), out,
            self.initial,
            np.empty(len(self.initial), dtype=np.uint8),
            np.empty((KINDS, self.count), dtype=np.int64),
            np.zeros(self.count * self.block, dtype=np.uint8),
            np.empty(2 * DIGEST_BYTES * lanes_loops.PIECE if kind == lanes_loops.PAIRS else 0, dtype=np.uint8),
            np.empty((5, lanes_loops.PIECE), dtype=np.int64),
        )  # fmt: skip


def engines(function: HashFunction) -> list[Lanes]:
    """Return the engines of a hash function that this processor has."""
    made = _ENGINES[function]
    return made if sha256_vectors.HAS_INSTRUCTIONS else made[:1]


def _bytes(words: npt.NDArray[np.uint32] | npt.NDArray[np.uint64]) -> Bytes:
    return words.view(np.uint8)


_ENGINES = {
    HashFunction.SHA256: [
        Lanes(
            f"{sha256_vectors.LANES} lanes",
            lanes_loops.SHA256,
            sha256_vectors.LANES,
            sha256_vectors.BLOCK,
            _bytes(sha256_vectors.START),
        ),
        Lanes(
            "SHA instructions",
            lanes_loops.SHA256_PAIR,
            sha256_vectors.PAIR,
            sha256_vectors.BLOCK,
            _bytes(sha256_vectors.PAIR_START),
        ),
    ],
    HashFunction.BLAKE2B_256: [
        Lanes(
            f"{blake2b_vectors.LANES} lanes",
            lanes_loops.BLAKE2B,
            blake2b_vectors.LANES,
            blake2b_vectors.BLOCK,
            _bytes(blake2b_vectors.START),
        )
    ],
    HashFunction.KECCAK_256: [
        Lanes(
            f"{keccak_vectors.LANES} lanes",
            lanes_loops.KECCAK,
            keccak_vectors.LANES,
            keccak_vectors.BLOCK,
            _bytes(keccak_vectors.START),
        )
    ],
}
