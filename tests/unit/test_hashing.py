"""Digests and Merkle roots in columns against hashlib and a recursive definition."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from causeway.model.order import groups_of
from causeway.proofs import merkle
from causeway.proofs.hashing import VECTOR_THRESHOLD, sha256_each, sha256_rows
from causeway.proofs.merkle import FEW, merkle_roots


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """The tree hash of RFC 6962, over leaf hashes."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(b"\x01" + root(leaves[:left]) + root(leaves[left:]))


@pytest.mark.parametrize("count", [0, 1, 3, VECTOR_THRESHOLD - 1, VECTOR_THRESHOLD, 2 * VECTOR_THRESHOLD + 1])
def test_each_value_has_its_own_digest(count: int) -> None:
    values = [bytes([number % 251]) * (number % 70) for number in range(count)]
    digests = sha256_each(pa.array(values, pa.binary()))
    assert digests.shape == (count, 32)
    assert [bytes(digest) for digest in digests] == [sha256(value) for value in values]


@pytest.mark.parametrize("count", [5, VECTOR_THRESHOLD + 5])
def test_a_part_of_a_column_has_the_digests_of_its_values(count: int) -> None:
    values = [str(number).encode() for number in range(count + 7)]
    digests = sha256_each(pa.array(values, pa.binary())[3 : 3 + count])
    assert [bytes(digest) for digest in digests] == [sha256(value) for value in values[3 : 3 + count]]


def test_rows_of_a_byte_matrix() -> None:
    matrix = np.arange(7 * 65, dtype=np.uint8).reshape(7, 65)
    assert [bytes(digest) for digest in sha256_rows(matrix)] == [sha256(bytes(row)) for row in matrix]
    part = matrix[::2, 1:]
    assert [bytes(digest) for digest in sha256_rows(part)] == [sha256(bytes(row)) for row in part]


@pytest.mark.parametrize("few", [0, FEW])
def test_roots_of_many_runs_at_once(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merkle, "FEW", few)
    sizes = [1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 1]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    leaves = [sha256(b"\x00" + bytes([place % 256])) for place in range(len(owner))]
    matrix = np.frombuffer(b"".join(leaves), dtype=np.uint8).reshape(-1, 32)
    roots = merkle_roots(matrix, groups_of(owner))
    expected = [root([leaf for leaf, of in zip(leaves, owner, strict=True) if of == run]) for run in range(len(sizes))]
    assert [bytes(found) for found in roots] == expected


def test_no_run_no_root() -> None:
    assert merkle_roots(np.empty((0, 32), dtype=np.uint8), groups_of(np.empty(0))).shape == (0, 32)
