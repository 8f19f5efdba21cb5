"""SHA-256 over columns: one digest a value, without a Python loop on a bulk path."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.proofs.hashing.functions import DIGEST_BYTES, Digests, binary_rows

VECTOR_THRESHOLD = 800
"""Below this many values a plain loop over hashlib is faster than the fixed cost of a query."""

PIECE = 1 << 17
"""Values are hashed in pieces of this many: what is hashed is made, used and forgotten while it is in the cache."""

_LOCAL = threading.local()
_TABLE = "piece"


def sha256_each(values: pa.BinaryArray) -> Digests:
    """Return the SHA-256 digest of each value of a bytes column, shape (n, 32)."""
    return sha256_in_pieces(len(values), lambda start, stop: values[start:stop])


def sha256_rows(rows: npt.NDArray[np.uint8]) -> Digests:
    """Return the SHA-256 digest of each row of a byte matrix, shape (n, width) -> (n, 32)."""
    return sha256_in_pieces(len(rows), lambda start, stop: binary_rows(rows[start:stop]))


def sha256_in_pieces(length: int, values: Callable[[int, int], pa.BinaryArray]) -> Digests:
    """Return the SHA-256 digest of each of ``length`` values, shape (n, 32); ``values(start, stop)`` makes some."""
    if length < VECTOR_THRESHOLD:
        if length == 0:
            return np.empty((0, DIGEST_BYTES), dtype=np.uint8)
        few = values(0, length)
        # The values lie one behind the other: a slice of all of them costs less than a scalar and its buffer.
        width = np.int64 if pa.types.is_large_binary(few.type) else np.int32
        ends = np.frombuffer(few.buffers()[1], dtype=width)[few.offset : few.offset + length + 1].tolist()
        content = memoryview(few.buffers()[2] or b"")
        joined = b"".join([hashlib.sha256(content[start:end]).digest() for start, end in pairwise(ends)])
        return np.frombuffer(joined, dtype=np.uint8).reshape(length, DIGEST_BYTES)
    digests = np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    for start in range(0, length, PIECE):
        done = start
        for chunk in _digest(values(start, min(start + PIECE, length))).chunks:
            digests[done : done + len(chunk)] = _bytes_of(chunk)
            done += len(chunk)
    return digests


def _digest(values: pa.BinaryArray) -> pa.ChunkedArray:
    context, query = _engine()
    try:
        frame = context.from_arrow(pa.table({"value": values}), name=_TABLE)
        return frame.select(query).to_arrow_table().column(0)
    finally:
        # The engine keeps what it is given until told otherwise.
        context.deregister_table(_TABLE)


def _bytes_of(chunk: pa.Array) -> Digests:
    if len(chunk) == 0:
        return np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    buffer = chunk.buffers()[1 if pa.types.is_fixed_size_binary(chunk.type) else 2]
    data = np.frombuffer(buffer, dtype=np.uint8)
    start = chunk.offset * DIGEST_BYTES
    return data[start : start + len(chunk) * DIGEST_BYTES].reshape(len(chunk), DIGEST_BYTES)


def _engine() -> tuple[Any, Any]:
    """Return this thread's query engine and the digest expression (imported late: small rounds never need it)."""
    if not hasattr(_LOCAL, "engine"):
        from datafusion import SessionConfig, SessionContext, col, functions

        context = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(PIECE))
        _LOCAL.engine = (context, functions.digest(col("value"), "sha256").alias("digest"))
    engine: tuple[Any, Any] = _LOCAL.engine
    return engine
