"""The hash functions of 32 bytes that commitments are made of, one value at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from Crypto.Hash import keccak

Digests = npt.NDArray[np.uint8]
"""Shape (n, 32)."""

DIGEST_BYTES = 32


class HashFunction(Enum):
    """A hash function with digests of 32 bytes."""

    SHA256 = "sha256"
    BLAKE2B_256 = "blake2b-256"
    KECCAK_256 = "keccak-256"
    """With the padding from before SHA-3 was fixed."""


def one_by_one(function: HashFunction) -> Callable[[bytes | memoryview], bytes]:
    """Return the function that hashes one value."""
    return _ONE[function]


def binary_rows(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the rows of a byte matrix as a bytes column."""
    length, width = rows.shape
    data = np.ascontiguousarray(rows)
    offsets = np.arange(0, (length + 1) * width, width, dtype=np.int32) if width else np.zeros(length + 1, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), length, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _sha256(value: bytes | memoryview) -> bytes:
    return hashlib.sha256(value).digest()


def _blake2b(value: bytes | memoryview) -> bytes:
    return hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest()


def _keccak(value: bytes | memoryview) -> bytes:
    return keccak.new(digest_bits=256, data=value).digest()


_ONE = {HashFunction.SHA256: _sha256, HashFunction.BLAKE2B_256: _blake2b, HashFunction.KECCAK_256: _keccak}
