"""Storage keys: where a runtime keeps an item (XDM reference 2.4).

A key is ``twox128(pallet) || twox128(item)``, followed for a map by each of its keys under that key's hasher.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from causeway.proofs.substrate.byte_columns import LARGE_BINARY, join
from causeway.proofs.substrate.hashing import (
    Hasher,
    blake2_128,
    blake2_128_concat,
    blake2_256,
    identity,
    twox_64_concat,
    twox_128,
    twox_256,
)

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
    return join([pa.repeat(pa.scalar(prefix, LARGE_BINARY), len(hashed_keys[0])), *hashed_keys])
