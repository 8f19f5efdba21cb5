"""The hash functions of Substrate: BLAKE2b for nodes and topics, xxHash for storage prefixes.

Sources: XDM reference 2.4 (storage keys), ICMP reference 2.2 and 2.3 (H = BLAKE2b-256).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import xxhash

from causeway.proofs.hashing import DIGEST_BYTES, Digests

Hasher = Callable[[bytes], bytes]
"""What a storage map does with a key: bytes in, the bytes that follow the map's prefix out."""

_PIECE_VALUES = 4096
_PIECE_BYTES = 1 << 18
"""How much of a column is taken out at once to be hashed, at most; a longer value is taken out alone."""


def blake2_256(data: bytes | memoryview) -> bytes:
    """Return the BLAKE2b digest of 32 bytes: H of the references."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def blake2_128(data: bytes) -> bytes:
    """Return the BLAKE2b digest of 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def blake2_128_concat(data: bytes) -> bytes:
    """Return the BLAKE2b digest of 16 bytes, followed by ``data`` itself."""
    return blake2_128(data) + data


def twox_64(data: bytes) -> bytes:
    """Return xxHash64 with seed 0, little-endian: 8 bytes."""
    return _twox(data, 1)


def twox_128(data: bytes) -> bytes:
    """Return xxHash64 with seeds 0 and 1, each little-endian: 16 bytes."""
    return _twox(data, 2)


def twox_256(data: bytes) -> bytes:
    """Return xxHash64 with seeds 0 to 3, each little-endian: 32 bytes."""
    return _twox(data, 4)


def twox_64_concat(data: bytes) -> bytes:
    """Return ``twox_64`` of ``data``, followed by ``data`` itself."""
    return twox_64(data) + data


def identity(data: bytes) -> bytes:
    """Return ``data``: the hasher of maps whose keys are used as they are."""
    return data


def blake2_256_each(values: pa.LargeBinaryArray) -> Digests:
    """Return H of each value of a bytes column, shape (n, 32).

    The vectorised engines that hash columns know only the digest of 64 bytes, so this is a loop over the standard
    library's. A copy of a hasher costs half of what a new one with its parameters does, and values taken out of the
    column in small pieces are hashed while they are in the cache.
    """
    count = len(values)
    if not count:
        return np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    fresh = hashlib.blake2b(digest_size=DIGEST_BYTES).copy
    piece = max(1, min(_PIECE_VALUES, _PIECE_BYTES * count // (values.nbytes + 1)))
    digests = []
    for start in range(0, count, piece):
        for value in values[start : start + piece].to_pylist():
            hasher = fresh()
            hasher.update(value)
            digests.append(hasher.digest())
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _twox(data: bytes, words: int) -> bytes:
    return b"".join([xxhash.xxh64_intdigest(data, seed).to_bytes(8, "little") for seed in range(words)])
