"""Storage keys: where a runtime keeps an item (XDM reference 2.4).

A key is ``twox128(pallet) || twox128(item)``, followed for a map by each of its keys under that key's hasher.

The hash functions of Substrate: BLAKE2b for nodes and topics, xxHash for storage prefixes.

Sources: XDM reference 2.4 (storage keys), ICMP reference 2.2 and 2.3 (H = BLAKE2b-256).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import xxhash

from causeway_proofs.hashing import blake2_256 as blake2_256
from causeway_proofs.substrate.byte_columns import LARGE_BINARY, concat_values

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


HASHERS: dict[str, Hasher] = {
    "Identity": identity,
    "Blake2_128": blake2_128,
    "Blake2_128Concat": blake2_128_concat,
    "Blake2_256": blake2_256,
    "Twox64Concat": twox_64_concat,
    "Twox128": twox_128,
    "Twox256": twox_256,
}
"""The hashers of storage maps, by the names they have in a runtime's metadata."""


@lru_cache(maxsize=1024)
def storage_prefix(pallet: str, item: str) -> bytes:
    """Return the 32 bytes with which all keys of an item start; they are the whole key of a plain value."""
    return twox_128(pallet.encode()) + twox_128(item.encode())


def storage_key(pallet: str, item: str, *keys: tuple[Hasher, bytes]) -> bytes:
    """Return the key of a plain value (no ``keys``), of an entry of a map (one), of a double map (two) and so on.

    Each of ``keys`` is a hasher and the SCALE encoding of what it is applied to.
    """
    return storage_prefix(pallet, item) + b"".join([hasher(key) for hasher, key in keys])


def storage_key_column(prefix: bytes, *hashed_keys: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the keys of many entries of a map: ``prefix`` and the hashed keys of each, as a bytes column."""
    if not hashed_keys:
        return pa.array([prefix], LARGE_BINARY)
    return concat_values([pa.repeat(pa.scalar(prefix, LARGE_BINARY), len(hashed_keys[0])), *hashed_keys])
