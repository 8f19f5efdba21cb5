"""Digests of columns: slices of a buffer, rows of a matrix, values of a column, nodes of a tree's level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.proofs.hashing.functions import DIGEST_BYTES, Digests, HashFunction, one_by_one

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


def digest_slices(
    function: HashFunction,
    data: Bytes,
    starts: Offsets,
    stops: Offsets,
    *,
    prefix: bytes = b"",
    out: Digests | None = None,
) -> Digests:
    """Return the digest of ``prefix + data[starts[i] : stops[i]]`` for each i, shape (n, 32).

    Slices may overlap, lie in any order, and be empty. ``data``: shape (bytes,), contiguous; ``out``: where the digests
    are written, shape (n, 32), contiguous.

    Raises:
        ValueError: a slice lies outside of ``data`` or ends before it starts, or ``out`` has another shape.
    """
    if len(starts) != len(stops):
        raise ValueError(f"{len(starts)} starts and {len(stops)} stops: there must be as many of both")
    if len(starts) and not (starts.min() >= 0 and stops.max() <= len(data) and bool((starts <= stops).all())):
        raise ValueError(f"slices must lie inside of the data's {len(data)} bytes and end at or behind their starts")
    digests = _room(len(starts), out)
    one, content = one_by_one(function), np.ascontiguousarray(data).data
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    joined = b"".join([one(prefix + content[start:stop] if prefix else content[start:stop]) for start, stop in pairs])
    digests[:] = np.frombuffer(joined, dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    return digests


def digest_rows(function: HashFunction, rows: Bytes, *, prefix: bytes = b"", out: Digests | None = None) -> Digests:
    """Return the digest of ``prefix`` and each row of a byte matrix, shape (n, width) -> (n, 32)."""
    length, width = rows.shape
    starts = np.arange(length) * width
    return digest_slices(
        function, np.ascontiguousarray(rows).reshape(-1), starts, starts + width, prefix=prefix, out=out
    )


def digest_values(
    function: HashFunction, values: pa.Array, *, prefix: bytes = b"", out: Digests | None = None
) -> Digests:
    """Return the digest of ``prefix`` and each value of a column without nulls, shape (n, 32).

    The column is of bytes or text, with offsets of 32 or 64 bits or a fixed width.
    """
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    _, ends, content = values.buffers()
    if len(values) == 0:
        return _room(0, out)
    kind = np.int64 if wide else np.int32
    offsets = np.frombuffer(ends, dtype=kind)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(content if content is not None else b"", dtype=np.uint8)
    return digest_slices(function, data, offsets[:-1], offsets[1:], prefix=prefix, out=out)


def digest_pairs(
    function: HashFunction, prefix: bytes, left: Digests, right: Digests, *, out: Digests | None = None
) -> Digests:
    """Return the digest of ``prefix + left[i] + right[i]`` for each i, shapes (n, 32) and (n, 32) -> (n, 32)."""
    if left.shape != right.shape or left.shape[1:] != (DIGEST_BYTES,):
        raise ValueError(f"pairs have shapes {left.shape} and {right.shape}: both must be (n, {DIGEST_BYTES})")
    return digest_rows(function, np.concatenate([left, right], axis=1), prefix=prefix, out=out)


def _room(length: int, out: Digests | None) -> Digests:
    if out is None:
        return np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    if out.shape != (length, DIGEST_BYTES) or not out.flags.c_contiguous or out.dtype != np.uint8:
        raise ValueError(f"digests go to a contiguous array of shape ({length}, {DIGEST_BYTES}), not {out.shape}")
    return out
