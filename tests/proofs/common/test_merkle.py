"""Merkle roots in columns against a recursive definition."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest
from causeway_proofs import merkle
from causeway_proofs.merkle import FEW, merkle_roots
from causeway_proofs.order import group_rows


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The tree hash of RFC 6962, over leaf hashes."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(b"\x01" + root(leaves[:left]) + root(leaves[left:]))


@pytest.mark.parametrize("few", [0, FEW])
def test_roots_of_many_ranges_at_once(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merkle, "FEW", few)
    sizes = [1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 1]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    leaves = [sha256(b"\x00" + bytes([place % 256])) for place in range(len(owner))]
    matrix = np.frombuffer(b"".join(leaves), dtype=np.uint8).reshape(-1, 32)
    roots = merkle_roots(matrix, group_rows(owner))
    expected = [root([leaf for leaf, of in zip(leaves, owner, strict=True) if of == run]) for run in range(len(sizes))]
    assert [bytes(found) for found in roots] == expected


def test_no_range_has_no_root() -> None:
    assert merkle_roots(np.empty((0, 32), dtype=np.uint8), group_rows(np.empty(0))).shape == (0, 32)
