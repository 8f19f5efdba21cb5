"""Hashes of columns: every engine of this machine, beside DataFusion, NumPy and plain loops over the same values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import (
    DIGEST_BYTES,
    Digests,
    HashFunction,
    binary_rows,
    columns,
    digest_pairs,
    digest_rows,
    digest_values,
    vector_engines,
)
from causeway_proofs.hashing.functions import scalar_function
from datafusion import Expr, SessionConfig, SessionContext, col, functions

from benchmarks.proofs import numpy_sponge
from benchmarks.proofs.timing import OURS, Clocked, Row, compared, require_same, timed
from benchmarks.proofs.workload import random_rows

WIDTHS = (32, 64, 200)

MIXED = (20, 300)
"""Least length, and the one below which all are, of values of many lengths."""

MOST_VALUES = 200_000
MOST_BY_NUMPY = 50_000

NAMES = {
    HashFunction.SHA256: "SHA-256",
    HashFunction.BLAKE2B_256: "BLAKE2b-256",
    HashFunction.KECCAK_256: "Keccak-256",
}

LOOP = "loop over single values"
DATAFUSION = "DataFusion"
NUMPY = "NumPy"

Work = Callable[[], Digests]


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure the three hash functions that commitments are made of."""
    rows = []
    for function in HashFunction:
        for width in WIDTHS:
            matrix = random_rows(min(size, MOST_VALUES), width)
            values = binary_rows(matrix)
            rows.append(_measure(function, f"{width} bytes", functools.partial(digest_rows, function, matrix),
                                 _others(function, values, matrix), repeats))  # fmt: skip
        values = _mixed(min(size, MOST_VALUES))
        ours = functools.partial(digest_values, function, values)
        rows.append(_measure(function, "20 to 299 bytes", ours, _others(function, values, None), repeats))
        left, right = (random_rows(min(size, MOST_VALUES), DIGEST_BYTES) for _ in range(2))
        pairs = np.concatenate([left, right], axis=1)
        ours = functools.partial(digest_pairs, function, b"", left, right)
        rows.append(_measure(function, "pairs of digests", ours, _others(function, binary_rows(pairs), pairs), repeats))
    return rows


def _mixed(count: int) -> pa.BinaryArray:
    lengths = np.random.default_rng(1).integers(*MIXED, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = random_rows(1, int(offsets[-1]))
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _others(
    function: HashFunction, values: pa.BinaryArray, matrix: npt.NDArray[np.uint8] | None
) -> Mapping[str, tuple[Work, int]]:
    """Return what else hashes these values: its work, and how many of them it is given."""
    plain = values.to_pylist()
    one = scalar_function(function)
    found: dict[str, tuple[Work, int]] = {
        LOOP: (lambda: _joined([one(value) for value in plain]), len(plain)),
    }
    if function is HashFunction.SHA256:
        found[DATAFUSION] = (functools.partial(_by_datafusion, values), len(plain))
    if function is HashFunction.KECCAK_256 and matrix is not None:
        some = matrix[:MOST_BY_NUMPY]
        found[NUMPY] = (functools.partial(numpy_sponge.digests_of, some), len(some))
    return found


def _joined(digests: list[bytes]) -> Digests:
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _by_datafusion(values: pa.BinaryArray) -> Digests:
    context, query = _datafusion()
    try:
        frame = context.from_arrow(pa.table({"value": values}), name="values")
        chunks = frame.select(query).to_arrow_table().column(0).chunks
    finally:
        context.deregister_table("values")
    return _joined([chunk.buffers()[-1].to_pybytes() for chunk in chunks])


@functools.cache
def _datafusion() -> tuple[SessionContext, Expr]:
    context = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(MOST_VALUES))
    return context, functions.digest(col("value"), "sha256").alias("digest")


def _measure(
    function: HashFunction, what: str, ours: Work, others: Mapping[str, tuple[Work, int]], repeats: int
) -> Row:
    name = f"{NAMES[function]}, {what}"
    expected = ours()
    contenders: dict[str, tuple[Clocked, int]] = {OURS: (timed(ours), len(expected))}
    for engine in vector_engines.engines(function):
        work = functools.partial(_by_engine, engine, ours)
        require_same(work().tobytes(), expected.tobytes(), name)
        contenders[f"{OURS}, {engine.name}"] = (timed(work), len(expected))
    for other, (theirs, count) in others.items():
        require_same(theirs().tobytes(), expected[:count].tobytes(), name)
        contenders[other] = (timed(theirs), count)
    return compared("hash", name, "hashes", contenders, repeats)


def _by_engine(engine: vector_engines.VectorHasher, ours: Work) -> Digests:
    with patch.object(columns, "engine_for", lambda function, count: engine):
        return ours()
