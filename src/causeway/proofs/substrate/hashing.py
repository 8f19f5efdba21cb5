"""The hash functions of Substrate: BLAKE2b for nodes and topics, xxHash for storage prefixes.

Sources: XDM reference 2.4 (storage keys), ICMP reference 2.2 and 2.3 (H = BLAKE2b-256).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import xxhash

from causeway.proofs.hashing import blake2_256 as blake2_256

Hasher = Callable[[bytes], bytes]
"""What a storage map does with a key: bytes in, the bytes that follow the map's prefix out."""


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


def _twox(data: bytes, words: int) -> bytes:
    return b"".join([xxhash.xxh64_intdigest(data, seed).to_bytes(8, "little") for seed in range(words)])
