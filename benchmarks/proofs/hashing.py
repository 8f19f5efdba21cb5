"""Hashes of columns, beside plain loops over the same values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pyarrow as pa
from Crypto.Hash import keccak

from benchmarks.proofs.timing import OURS, Row, compared, require_same, timed
from benchmarks.proofs.workload import random_rows
from causeway.proofs.hashing import DIGEST_BYTES, Digests, binary_rows, sha256_each
from causeway.proofs.keccak import keccak256_each
from causeway.proofs.substrate.hashing import blake2_256_each

WIDTHS = (32, 64, 200)

MOST_VALUES = 200_000
MOST_KECCAK_VALUES = 50_000


def _sha256(values: list[bytes]) -> list[bytes]:
    return [hashlib.sha256(value).digest() for value in values]


def _keccak(values: list[bytes]) -> list[bytes]:
    return [keccak.new(digest_bits=256, data=value).digest() for value in values]


def _blake2(values: list[bytes]) -> list[bytes]:
    return [hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest() for value in values]


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure the three hash functions that commitments are made of."""
    rows = []
    for name, most, column, ours, loop_name, loop in (
        ("SHA-256", MOST_VALUES, pa.binary(), sha256_each, "hashlib loop", _sha256),
        ("Keccak-256", MOST_KECCAK_VALUES, pa.binary(), keccak256_each, "pycryptodome loop", _keccak),
        ("BLAKE2b-256", MOST_VALUES, pa.large_binary(), blake2_256_each, "hashlib loop", _blake2),
    ):
        for width in WIDTHS:
            values = binary_rows(random_rows(min(size, most), width))
            what = f"{name}, {width} bytes"
            rows.append(_measure(what, values.cast(column), ours, loop_name, loop, repeats))
    return rows


def _measure(
    what: str,
    values: pa.Array,
    ours: Callable[[pa.Array], Digests],
    loop_name: str,
    loop: Callable[[list[bytes]], list[bytes]],
    repeats: int,
) -> Row:
    plain = values.to_pylist()
    require_same(ours(values).tobytes(), b"".join(loop(plain)), what)
    contenders = {
        OURS: (timed(lambda: ours(values)), len(plain)),
        loop_name: (timed(lambda: loop(plain)), len(plain)),
    }
    return compared("hash", what, "hashes", contenders, repeats)
