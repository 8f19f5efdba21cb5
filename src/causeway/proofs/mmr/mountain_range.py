"""The hashes of a Merkle mountain range (XDM reference 2.4): of a leaf, and of the root over the peaks."""

from __future__ import annotations

from collections.abc import Sequence

from causeway.proofs.hashing import keccak256
from causeway.proofs.mmr.errors import GetRootOnEmpty


def leaf_hash(encoded_leaf: bytes) -> bytes:
    """Return the node of a data leaf: Keccak-256 of its SCALE encoding (XDM reference 2.4)."""
    return keccak256(encoded_leaf)


def bag_peaks(peaks: Sequence[bytes]) -> bytes:
    """Return the root over peaks given left to right: from the right, the right one first (XDM reference 2.4).

    Raises:
        GetRootOnEmpty: there are none.
    """
    if not peaks:
        raise GetRootOnEmpty("a range without leaves has no root")
    bagged = peaks[-1]
    for peak in reversed(peaks[:-1]):
        bagged = keccak256(bagged + peak)
    return bagged
