"""The hash functions of 32 bytes that commitments are made of, one value at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.work import BLAKE2B_256, KECCAK_256, SHA256, done

Digests = npt.NDArray[np.uint8]
"""Shape (n, 32)."""

DIGEST_BYTES = 32


class HashFunction(Enum):
    """A hash function with digests of 32 bytes."""

    SHA256 = "sha256"
    BLAKE2B_256 = "blake2b-256"
    KECCAK_256 = "keccak-256"
    """With the padding from before SHA-3 was fixed."""


def scalar_function(function: HashFunction) -> Callable[[bytes | memoryview], bytes]:
    """Return the function that hashes one value; who calls it for many counts them (``counted``)."""
    return _ONE[function]


def count_hashes(function: HashFunction, count: int) -> None:
    """Count so many hashes."""
    done[function.value] += count


def binary_rows(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the rows of a byte matrix as a bytes column."""
    length, width = rows.shape
    data = np.ascontiguousarray(rows)
    offsets = np.arange(0, (length + 1) * width, width, dtype=np.int32) if width else np.zeros(length + 1, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), length, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the SHA-256 digest of ``data``."""
    done[SHA256] += 1
    return hashlib.sha256(data).digest()


def blake2_256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the BLAKE2b digest of 32 bytes of ``data``."""
    done[BLAKE2B_256] += 1
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def keccak256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the Keccak-256 digest of ``data``."""
    done[KECCAK_256] += 1
    digest: bytes = _keccak()(digest_bits=256, data=data).digest()
    return digest


def _sha256(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def _blake2_256(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _keccak256(data: bytes | bytearray | memoryview) -> bytes:
    digest: bytes = _keccak()(digest_bits=256, data=data).digest()
    return digest


@cache
def _keccak() -> Any:
    """Return what hashes so. It is loaded when it is needed: with its compiler of declarations of C that takes longer
    than anything else here."""
    from Crypto.Hash import keccak

    return keccak.new


_ONE = {HashFunction.SHA256: _sha256, HashFunction.BLAKE2B_256: _blake2_256, HashFunction.KECCAK_256: _keccak256}
