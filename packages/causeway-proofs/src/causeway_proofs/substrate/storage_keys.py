"""Storage keys of a Substrate runtime, and the hash functions in them.

A key is ``twox128(pallet) || twox128(item)``, followed for a map by each of its keys under that key's hasher. BLAKE2b
hashes nodes and topics, xxHash storage prefixes.

Reference:
    XDM reference 2.4 (storage keys), ICMP reference 2.2 and 2.3 (H = BLAKE2b-256).
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
"""Hasher of a storage map's key: maps the key to the bytes that follow the map's prefix."""


def blake2_128(data: bytes) -> bytes:
    """Return the 16-byte BLAKE2b digest.

    Args:
        data: the preimage.

    Returns:
        16 bytes.
    """
    return hashlib.blake2b(data, digest_size=16).digest()


def blake2_128_concat(data: bytes) -> bytes:
    """Return the 16-byte BLAKE2b digest followed by ``data``.

    Args:
        data: the SCALE encoding of a key.

    Returns:
        16 bytes and ``data``.
    """
    return blake2_128(data) + data


def twox_64(data: bytes) -> bytes:
    """Return xxHash64 with seed 0, little-endian.

    Args:
        data: the preimage.

    Returns:
        8 bytes.
    """
    return _twox(data, 1)


def twox_128(data: bytes) -> bytes:
    """Return xxHash64 with seeds 0 and 1, each little-endian.

    Args:
        data: the preimage.

    Returns:
        16 bytes.
    """
    return _twox(data, 2)


def twox_256(data: bytes) -> bytes:
    """Return xxHash64 with seeds 0 to 3, each little-endian.

    Args:
        data: the preimage.

    Returns:
        32 bytes.
    """
    return _twox(data, 4)


def twox_64_concat(data: bytes) -> bytes:
    """Return ``twox_64`` of ``data`` followed by ``data``.

    Args:
        data: the SCALE encoding of a key.

    Returns:
        8 bytes and ``data``.
    """
    return twox_64(data) + data


def identity(data: bytes) -> bytes:
    """Return ``data``: the hasher of maps with unhashed keys.

    Args:
        data: the SCALE encoding of a key.

    Returns:
        ``data``.
    """
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
"""Hashers of storage maps, by their names in a runtime's metadata."""


@lru_cache(maxsize=1024)
def storage_prefix(pallet: str, item: str) -> bytes:
    """Return the common prefix of an item's keys, the whole key of a plain value.

    Args:
        pallet: name of the pallet.
        item: name of the item.

    Returns:
        32 bytes.
    """
    return twox_128(pallet.encode()) + twox_128(item.encode())


def storage_key(pallet: str, item: str, *keys: tuple[Hasher, bytes]) -> bytes:
    """Return the key of a plain value, or of an entry of a map of any depth.

    Args:
        pallet: name of the pallet.
        item: name of the item.
        keys: hasher and SCALE encoding of each map key.

    Returns:
        The storage key.
    """
    return storage_prefix(pallet, item) + b"".join([hasher(key) for hasher, key in keys])


def storage_key_column(prefix: bytes, *hashed_keys: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the keys of many entries of a map.

    Args:
        prefix: the map's prefix.
        hashed_keys: columns of hashed map keys, in order, one row an entry.

    Returns:
        The storage keys.
    """
    if not hashed_keys:
        return pa.array([prefix], LARGE_BINARY)
    return concat_values([pa.repeat(pa.scalar(prefix, LARGE_BINARY), len(hashed_keys[0])), *hashed_keys])
