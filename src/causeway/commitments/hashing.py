"""SHA-256 over columns: one digest a value, without a Python loop on a bulk path."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Digests = npt.NDArray[np.uint8]
"""Shape (n, 32)."""

DIGEST_BYTES = 32

VECTOR_THRESHOLD = 512
"""Below this many values a plain loop over hashlib is faster than the fixed cost of a query."""

_LOCAL = threading.local()


def sha256_each(values: pa.BinaryArray) -> Digests:
    """Return the SHA-256 digest of each value of a bytes column, shape (n, 32)."""
    if len(values) < VECTOR_THRESHOLD:
        joined = b"".join([hashlib.sha256(value.as_buffer()).digest() for value in values])
        return np.frombuffer(joined, dtype=np.uint8).reshape(len(values), DIGEST_BYTES)
    context, query = _engine()
    table = context.from_arrow(pa.table({"value": values})).select(query).to_arrow_table()
    parts = [_bytes_of(chunk) for chunk in table.column(0).chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def sha256_rows(rows: npt.NDArray[np.uint8]) -> Digests:
    """Return the SHA-256 digest of each row of a byte matrix, shape (n, width) -> (n, 32)."""
    length, width = rows.shape
    data = np.ascontiguousarray(rows)
    offsets = np.arange(0, (length + 1) * width, width, dtype=np.int32)
    return sha256_each(
        pa.BinaryArray.from_buffers(pa.binary(), length, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    )


def _bytes_of(chunk: pa.Array) -> Digests:
    if len(chunk) == 0:
        return np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    if pa.types.is_fixed_size_binary(chunk.type):
        start = chunk.offset * DIGEST_BYTES
        data = np.frombuffer(chunk.buffers()[1], dtype=np.uint8)
    else:
        data = np.frombuffer(chunk.buffers()[2], dtype=np.uint8)
        start = chunk.offset * DIGEST_BYTES
    return data[start : start + len(chunk) * DIGEST_BYTES].reshape(len(chunk), DIGEST_BYTES)


def _engine() -> tuple[Any, Any]:
    """Return this thread's query engine and the digest expression (imported late: small rounds never need it)."""
    if not hasattr(_LOCAL, "engine"):
        from datafusion import SessionConfig, SessionContext, col, functions

        context = SessionContext(SessionConfig().with_target_partitions(1).with_batch_size(65_536))
        _LOCAL.engine = (context, functions.digest(col("value"), "sha256").alias("digest"))
    engine: tuple[Any, Any] = _LOCAL.engine
    return engine
