"""The hash of a block (XDM reference 2.4): that of its header."""

from __future__ import annotations

from causeway.proofs.substrate.compact import encode_compact
from causeway.proofs.substrate.hashing import blake2_256


def block_hash(parent: bytes, number: int, state_root: bytes, extrinsics_root: bytes) -> bytes:
    """Return the hash of a block: Blake2b-256 of its header in SCALE, with an empty digest."""
    return blake2_256(parent + encode_compact(number) + state_root + extrinsics_root + encode_compact(0))
