"""Hash columns: slices of a buffer, rows of a matrix, values, pairs of tree nodes.

Many messages are hashed one by one, or in vectors by an engine. Loading the compiled engines takes a third of a second,
so a process that hashes little does not load them. They are loaded after about that much hashing, or at once by
``load_engines``; the engines of this machine are then timed for some milliseconds. An engine whose digests differ from
the single-message functions is never used, so the choice changes no digest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.hashing.functions import DIGEST_BYTES, Digests, HashFunction, count_hashes, scalar_function
from causeway_proofs.jit_cache import is_prepared

if TYPE_CHECKING:
    from causeway_proofs.hashing.vector_engines import VectorHasher

FEW = 8
"""Below this many messages, single calls are faster than a call of compiled code."""

ENOUGH = 500_000
"""Single hashes that take about as long as loading the compiled engines."""

ENOUGH_TO_COMPILE = 20 * ENOUGH
"""The same for compiling, on a machine without a cache of compiled code."""

_TIMES = {HashFunction.SHA256: 1, HashFunction.BLAKE2B_256: 1, HashFunction.KECCAK_256: 10}
"""Relative time of one single hash."""

TRIAL = 256
"""Messages in a timing trial of the engines."""

TRIAL_BYTES = 64

TRIALS = 3

_LOADED = "causeway_proofs.hashing.vector_engines"

_chosen: dict[HashFunction, VectorHasher | None] = {}
_spent = 0


def engine_for(function: HashFunction, count: int) -> VectorHasher | None:
    """Return the engine for ``count`` messages, or None if single calls are faster."""
    global _spent
    if count < FEW and function is not HashFunction.KECCAK_256:
        return None
    if function not in _chosen:
        if _LOADED not in sys.modules:
            _spent += count * _TIMES[function]
            if _spent < ENOUGH or (_spent < ENOUGH_TO_COMPILE and not is_prepared()):
                return None
        _chosen[function] = _fastest(function)
    return _chosen[function]


def load_engines(*functions: HashFunction) -> None:
    """Load the engines and choose among them now, so that no later call waits.

    Does nothing on a machine without a cache of compiled code: every process would compile.

    Args:
        functions: hash functions to load; all if empty.
    """
    if not is_prepared():
        return
    from causeway_proofs.hashing import vector_engines  # noqa: F401

    for function in functions or HashFunction:
        engine_for(function, FEW)


def _fastest(function: HashFunction) -> VectorHasher | None:
    from causeway_proofs.hashing import vector_engines

    one = scalar_function(function)
    rows = np.arange(TRIAL * TRIAL_BYTES // 4, dtype=np.uint32).view(np.uint8).reshape(TRIAL, TRIAL_BYTES)
    values = [row.tobytes() for row in rows]
    found, expected, fastest = None, b"", float("inf")
    for _ in range(TRIALS):
        begin = perf_counter()
        expected = b"".join([one(value) for value in values])
        fastest = min(fastest, perf_counter() - begin)
    for engine in vector_engines.engines(function):
        digests = np.empty((TRIAL, DIGEST_BYTES), dtype=np.uint8)
        for _ in range(TRIALS):
            begin = perf_counter()
            engine.rows(rows, b"", digests)
            seconds = perf_counter() - begin
            if seconds < fastest and digests.tobytes() == expected:
                found, fastest = engine, seconds
    return found


Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

PIECE = 1 << 15
"""Values generated and hashed at a time."""


def digest_slices(
    function: HashFunction,
    data: Bytes,
    starts: Offsets,
    stops: Offsets,
    *,
    prefix: bytes = b"",
    out: Digests | None = None,
) -> Digests:
    """Return the digest of ``prefix + data[starts[i] : stops[i]]`` for each i.

    Args:
        function: the hash function.
        data: uint8, shape (bytes,), contiguous.
        starts: start of each slice, shape (n,). Slices may overlap, lie in any order and be empty.
        stops: end of each slice, shape (n,).
        prefix: bytes in front of each slice.
        out: destination, shape (n, 32), contiguous, disjoint from ``data``; allocated by default.

    Returns:
        Digests, shape (n, 32).

    Raises:
        ValueError: a slice is out of bounds or reversed, or ``out`` has another shape.
    """
    if len(starts) != len(stops):
        raise ValueError(f"{len(starts)} starts and {len(stops)} stops: there must be as many of both")
    digests = _room(len(starts), out)
    count_hashes(function, len(starts))
    engine = engine_for(function, len(starts))
    if engine is None:
        _one_by_one(function, data, starts, stops, prefix, digests)
        return digests
    data = np.ascontiguousarray(data)
    starts, stops = np.ascontiguousarray(starts, dtype=np.int64), np.ascontiguousarray(stops, dtype=np.int64)
    longest = engine.longest_slice_length(starts, stops, len(data))
    if longest < 0:
        raise _outside(len(data))
    if len(prefix) > engine.block:
        _one_by_one(function, data, starts, stops, prefix, digests)
    elif longest + len(prefix) <= engine.longest:
        engine.slices(data, starts, stops, prefix, digests)
    else:
        few = stops - starts + len(prefix) > engine.longest
        for rows, hashed in ((np.flatnonzero(few), False), (np.flatnonzero(~few), True)):
            some = np.empty((len(rows), DIGEST_BYTES), dtype=np.uint8)
            if hashed:
                engine.slices(data, starts[rows], stops[rows], prefix, some)
            else:
                _one_by_one(function, data, starts[rows], stops[rows], prefix, some)
            digests[rows] = some
    return digests


def digest_rows(function: HashFunction, rows: Bytes, *, prefix: bytes = b"", out: Digests | None = None) -> Digests:
    """Return the digest of ``prefix`` and each row of a byte matrix.

    Args:
        function: the hash function.
        rows: uint8, shape (n, width).
        prefix: bytes in front of each row.
        out: destination, shape (n, 32); allocated by default.

    Returns:
        Digests, shape (n, 32).

    Raises:
        ValueError: ``rows`` is not a byte matrix, or ``out`` has another shape.
    """
    if rows.ndim != 2 or rows.dtype != np.uint8:
        raise ValueError(f"rows to hash are uint8 in the shape (n, width), not {rows.dtype} in {rows.shape}")
    length, width = rows.shape
    digests = _room(length, out)
    count_hashes(function, length)
    engine = engine_for(function, length)
    if engine is None or len(prefix) > engine.block or width + len(prefix) > engine.longest:
        ends = np.arange(length + 1) * width
        _one_by_one(function, rows.reshape(-1), ends[:-1], ends[1:], prefix, digests)
    else:
        engine.rows(np.ascontiguousarray(rows), prefix, digests)
    return digests


def digest_values(
    function: HashFunction, values: pa.Array, *, prefix: bytes = b"", out: Digests | None = None
) -> Digests:
    """Return the digest of ``prefix`` and each value of a column without nulls.

    Args:
        function: the hash function.
        values: bytes or text, with 32-bit or 64-bit offsets or a fixed width; n values.
        prefix: bytes in front of each value.
        out: destination, shape (n, 32); allocated by default.

    Returns:
        Digests, shape (n, 32).
    """
    if len(values) == 0:
        return _room(0, out)
    if pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        content = np.frombuffer(values.buffers()[1], dtype=np.uint8)
        rows = content[values.offset * width : (values.offset + len(values)) * width]
        return digest_rows(function, rows.reshape(len(values), width), prefix=prefix, out=out)
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    _, ends, content = values.buffers()
    kind = np.int64 if wide else np.int32
    offsets = np.frombuffer(ends, dtype=kind)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(content if content is not None else b"", dtype=np.uint8)
    return digest_slices(function, data, offsets[:-1], offsets[1:], prefix=prefix, out=out)


def digest_chunks(function: HashFunction, length: int, values: Callable[[int, int], pa.Array]) -> Digests:
    """Return the digest of each of ``length`` generated values.

    Values are generated, hashed and dropped in pieces, so that they stay in the cache.

    Args:
        function: the hash function.
        length: number of values, n.
        values: returns the values from ``start`` to ``stop``.

    Returns:
        Digests, shape (n, 32).
    """
    digests = np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    for start in range(0, length, PIECE):
        stop = min(start + PIECE, length)
        digest_values(function, values(start, stop), out=digests[start:stop])
    return digests


def digest_pairs(
    function: HashFunction, prefix: bytes, left: Digests, right: Digests, *, out: Digests | None = None
) -> Digests:
    """Return the digest of ``prefix + left[i] + right[i]`` for each i.

    The 32 bytes of a row must be contiguous, the rows need not be: every other row of a tree level is a valid operand.

    Args:
        function: the hash function.
        prefix: bytes in front of each pair.
        left: digests, shape (n, 32).
        right: digests, shape (n, 32).
        out: destination, shape (n, 32); allocated by default.

    Returns:
        Digests, shape (n, 32).
    """
    if left.shape != right.shape or left.shape[1:] != (DIGEST_BYTES,):
        raise ValueError(f"pairs have shapes {left.shape} and {right.shape}: both must be (n, {DIGEST_BYTES})")
    engine = engine_for(function, len(left))
    if engine is None or len(prefix) > engine.block:
        return digest_rows(function, np.concatenate([left, right], axis=1), prefix=prefix, out=out)
    digests = _room(len(left), out)
    count_hashes(function, len(left))
    left, right = (side if side.strides[1] == 1 else np.ascontiguousarray(side) for side in (left, right))
    engine.pairs(prefix, left, right, digests)
    return digests


def _one_by_one(
    function: HashFunction, data: Bytes, starts: Offsets, stops: Offsets, prefix: bytes, out: Digests
) -> None:
    one, content, found = scalar_function(function), np.ascontiguousarray(data).data, []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        if not 0 <= start <= stop <= len(content):
            raise _outside(len(content))
        found.append(one(prefix + content[start:stop] if prefix else content[start:stop]))
    out[:] = np.frombuffer(b"".join(found), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _outside(size: int) -> ValueError:
    return ValueError(f"slices must lie inside of the data's {size} bytes and end at or behind their starts")


def _room(length: int, out: Digests | None) -> Digests:
    if out is None:
        return np.empty((length, DIGEST_BYTES), dtype=np.uint8)
    if out.shape != (length, DIGEST_BYTES) or not out.flags.c_contiguous or out.dtype != np.uint8:
        raise ValueError(f"digests go to a contiguous array of shape ({length}, {DIGEST_BYTES}), not {out.shape}")
    return out
