"""The simple tree of 2.6."""

from collections.abc import Mapping
from hashlib import sha256

from tests.spec.ibc.keys import varint


def simple_root(entries: Mapping[bytes, bytes]) -> bytes:
    """The root over all (key, value), sorted by key."""
    return _root([_leaf(key, value) for key, value in sorted(entries.items())])


def _leaf(key: bytes, value: bytes) -> bytes:
    hashed = sha256(value).digest()
    return sha256(b"\x00" + varint(len(key)) + key + varint(len(hashed)) + hashed).digest()


def _root(leaves: list[bytes]) -> bytes:
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    left = 1
    while left * 2 < len(leaves):
        left *= 2
    return sha256(b"\x01" + _root(leaves[:left]) + _root(leaves[left:])).digest()
