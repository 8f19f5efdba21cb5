"""32-byte hash functions of commitments, one value at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.work import BLAKE2B_256, KECCAK_256, SHA256, done

Digests = npt.NDArray[np.uint8]
"""Digests, uint8, shape (n, 32)."""

DIGEST_BYTES = 32


class HashFunction(Enum):
    """A hash function with digests of 32 bytes."""

    SHA256 = "sha256"
    BLAKE2B_256 = "blake2b-256"
    KECCAK_256 = "keccak-256"
    """Keccak with the padding from before the SHA-3 standard."""


def scalar_function(function: HashFunction) -> Callable[[bytes | memoryview], bytes]:
    """Return the uncounted function that hashes one value; callers count with ``count_hashes``."""
    return _ONE[function]


def count_hashes(function: HashFunction, count: int) -> None:
    """Add ``count`` hashes to this process's work counters.

    Args:
        function: the hash function.
        count: number of hashes.
    """
    done[function.value] += count


def binary_rows(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Convert the rows of a byte matrix to a byte column.

    Args:
        rows: uint8, shape (n, width).

    Returns:
        n values of ``width`` bytes.
    """
    length, width = rows.shape
    data = np.ascontiguousarray(rows)
    offsets = np.arange(0, (length + 1) * width, width, dtype=np.int32) if width else np.zeros(length + 1, np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), length, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def sha256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the SHA-256 digest of ``data``.

    Args:
        data: the preimage.

    Returns:
        32 bytes.
    """
    done[SHA256] += 1
    return hashlib.sha256(data).digest()


def blake2_256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the 32-byte BLAKE2b digest of ``data``.

    Args:
        data: the preimage.

    Returns:
        32 bytes.
    """
    done[BLAKE2B_256] += 1
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def keccak256(data: bytes | bytearray | memoryview) -> bytes:
    """Return the Keccak-256 digest of ``data``.

    Args:
        data: the preimage.

    Returns:
        32 bytes.
    """
    done[KECCAK_256] += 1
    digest: bytes = _keccak()(digest_bits=256, data=data).digest()
    return digest


@cache
def _keccak() -> Any:
    """Import the Keccak module on first use: importing its cffi dependency is slow."""
    from Crypto.Hash import keccak

    return keccak.new


_ONE: dict[HashFunction, Callable[[bytes | memoryview], bytes]] = {
    HashFunction.SHA256: lambda data: hashlib.sha256(data).digest(),
    HashFunction.BLAKE2B_256: lambda data: hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest(),
    HashFunction.KECCAK_256: lambda data: cast(bytes, _keccak()(digest_bits=256, data=data).digest()),
}
