"""Digests of slices, rows, values and pairs against the standard library and pycryptodome."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.hashing import (
    HashFunction,
    columns,
    digest_pairs,
    digest_rows,
    digest_slices,
    digest_values,
    vector_engines,
)
from Crypto.Hash import keccak

ORACLES: dict[HashFunction, Callable[[bytes], bytes]] = {
    HashFunction.SHA256: lambda value: hashlib.sha256(value).digest(),
    HashFunction.BLAKE2B_256: lambda value: hashlib.blake2b(value, digest_size=32).digest(),
    HashFunction.KECCAK_256: lambda value: keccak.new(digest_bits=256, data=value).digest(),
}

VECTORS = {
    HashFunction.SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    HashFunction.BLAKE2B_256: "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
    HashFunction.KECCAK_256: "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45",
}
"""Digests of "abc" as published: FIPS 180-4, the authors of BLAKE2, the authors of Keccak."""

ENGINES = [
    pytest.param((function, engine), id=f"{function.value}, {engine.name if engine else 'one by one'}")
    for function in HashFunction
    for engine in [None, *vector_engines.engines(function)]
]
"""Every engine of this machine."""


@pytest.fixture(params=ENGINES)
def function(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HashFunction:
    """A hash function computed by one engine."""
    function: HashFunction
    function, engine = request.param
    monkeypatch.setattr(columns, "engine_for", lambda of, count: engine if of is function else None)
    return function


def listed(digests: np.ndarray) -> list[bytes]:
    return [bytes(digest) for digest in digests]


def test_published_digests(function: HashFunction) -> None:
    assert digest_values(function, pa.array([b"abc"]))[0].tobytes().hex() == VECTORS[function]
    assert ORACLES[function](b"abc").hex() == VECTORS[function]


@pytest.mark.parametrize("prefix", [b"", b"\x01", b"\x10ic-hashtree-fork"])
def test_slices_of_every_length_in_any_order(function: HashFunction, prefix: bytes) -> None:
    random = np.random.default_rng(7)
    data = random.integers(0, 256, 2000, dtype=np.uint8)
    lengths = random.permutation(701)
    starts = random.integers(0, len(data) - lengths + 1)
    digests = digest_slices(function, data, starts, starts + lengths, prefix=prefix)
    expected = [
        ORACLES[function](prefix + data[start : start + length].tobytes())
        for start, length in zip(starts, lengths, strict=True)
    ]
    assert listed(digests) == expected


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary(5)])
def test_values_of_a_part_of_a_column(function: HashFunction, kind: pa.DataType) -> None:
    values = [f"{number:05}" for number in range(40)]
    column = pa.array(values if kind in (pa.string(), pa.large_string()) else [v.encode() for v in values], kind)
    out = np.empty((30, 32), dtype=np.uint8)
    assert digest_values(function, column[7:37], out=out) is out
    assert listed(out) == [ORACLES[function](value.encode()) for value in values[7:37]]
    assert digest_values(function, column[3:3]).shape == (0, 32)


def test_rows_and_pairs(function: HashFunction) -> None:
    matrix = np.arange(9 * 65, dtype=np.uint16).astype(np.uint8).reshape(9, 65)
    assert listed(digest_rows(function, matrix[::2, 1:])) == [ORACLES[function](bytes(row[1:])) for row in matrix[::2]]
    left, right = matrix[1:, :32], matrix[:-1, 33:]
    expected = [ORACLES[function](b"\x02" + bytes(one) + bytes(other)) for one, other in zip(left, right, strict=True)]
    assert listed(digest_pairs(function, b"\x02", left, right)) == expected
    assert digest_rows(function, matrix[:0]).shape == (0, 32)
    assert listed(digest_rows(function, matrix[:, :0])) == [ORACLES[function](b"")] * 9


def test_consecutive_values_of_all_lengths(function: HashFunction) -> None:
    """Slices that begin and end with the data, so that whole blocks cannot be read there."""
    random = np.random.default_rng(11)
    for count in (1, 2, 15, 16, 17, 33, 700):
        lengths = random.integers(0, 300, count)
        ends = np.cumsum(lengths)
        data = random.integers(0, 256, int(ends[-1]), dtype=np.uint8)
        expected = [
            ORACLES[function](data[end - length : end].tobytes()) for end, length in zip(ends, lengths, strict=True)
        ]
        assert listed(digest_slices(function, data, ends - lengths, ends)) == expected


def test_long_values_and_long_prefixes(function: HashFunction) -> None:
    data = np.arange(40_000, dtype=np.uint32).view(np.uint8)
    lengths = np.array([0, 40_000, 17, 16_000, 16_384, 160_000, 32_513, 32_512, 33, 34_500])
    for prefix in (b"", b"\x01" * 64, b"\x01" * 128, b"\x01" * 137):
        expected = [ORACLES[function](prefix + data[:length].tobytes()) for length in lengths]
        assert listed(digest_slices(function, data, 0 * lengths, lengths, prefix=prefix)) == expected
        rows = data[: 2 * 40_001].reshape(2, 40_001)
        assert listed(digest_rows(function, rows, prefix=prefix)) == [
            ORACLES[function](prefix + bytes(row)) for row in rows
        ]
        pair = digest_pairs(function, prefix, rows[:, :32], rows[:, 64:0:-2])
        assert listed(pair) == [ORACLES[function](prefix + bytes(row[:32]) + bytes(row[64:0:-2])) for row in rows]


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 11), (11, 11)])
def test_slice_outside_of_the_data_is_an_error(function: HashFunction, start: int, stop: int) -> None:
    data = np.zeros(10, dtype=np.uint8)
    with pytest.raises(ValueError, match="inside of the data's 10 bytes"):
        digest_slices(function, data, np.array([0, start]), np.array([10, stop]))


def test_mismatched_shapes_are_errors() -> None:
    data, ends = np.zeros(10, dtype=np.uint8), np.zeros(3, dtype=np.int64)
    with pytest.raises(ValueError, match="3 starts and 2 stops"):
        digest_slices(HashFunction.SHA256, data, ends, ends[1:])
    with pytest.raises(ValueError, match=r"shape \(3, 32\), not \(2, 32\)"):
        digest_slices(HashFunction.SHA256, data, ends, ends, out=np.empty((2, 32), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"uint8 in the shape \(n, width\), not int64 in \(8, 4\)"):
        digest_rows(HashFunction.SHA256, np.zeros((8, 4), np.int64))
    with pytest.raises(ValueError, match=r"both must be \(n, 32\)"):
        digest_pairs(HashFunction.SHA256, b"", np.zeros((2, 32), np.uint8), np.zeros((3, 32), np.uint8))


def test_engine_with_wrong_digests_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_chosen", {})
    found = columns.engine_for(HashFunction.KECCAK_256, 10)
    assert found is not None, "side by side is ten times as fast"
    monkeypatch.setattr(columns, "_chosen", {})
    monkeypatch.setattr(vector_engines.VectorHasher, "rows", lambda engine, rows, prefix, out: out.fill(0))
    assert columns.engine_for(HashFunction.KECCAK_256, 10) is None


@pytest.mark.parametrize("prepared", [True, False], ids=["compiled before", "never compiled"])
def test_compiled_code_is_loaded_if_it_saves_time(monkeypatch: pytest.MonkeyPatch, prepared: bool) -> None:
    monkeypatch.setattr(columns, "_chosen", {})
    monkeypatch.setattr(columns, "_spent", 0)
    monkeypatch.setattr(columns, "_LOADED", "a module that was not loaded")
    monkeypatch.setattr(columns, "is_prepared", lambda: prepared)
    function = HashFunction.SHA256
    half = (columns.ENOUGH if prepared else columns.ENOUGH_TO_COMPILE) // 2
    assert [columns.engine_for(function, count) is None for count in (half, half - 1, 1, 7, 8)] == [True] * 4 + [False]
