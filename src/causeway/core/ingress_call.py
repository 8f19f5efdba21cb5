"""Payload of ingress method ``call``: a user orders a caller to call another program.

Layout, all numbers big-endian::

    8 bytes   number of the program to call
    16 bytes  amount attached to the call
    1 byte    length of the method's name
    n bytes   the method's name, UTF-8
    rest      the body passed to the method

The format is Causeway's own: the Internet Computer leaves the argument of an ingress message to the canister.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64

CALL_METHOD = "call"
"""Ingress method of caller programs with these payloads."""

HEADER_BYTES = 25
MAX_METHOD_BYTES = 255
_MAX_TOTAL_BYTES = 2**31 - 1


class DecodedCalls(NamedTuple):
    """Result of ``decode_calls``, one element a payload; invalid ones are zero or empty."""

    receivers: U64
    amount_high: U64
    amount_low: U64
    methods: pa.StringArray
    bodies: pa.BinaryArray
    valid: npt.NDArray[np.bool_]


def encode_calls(
    receivers: U64,
    amount_high: U64 | int,
    amount_low: U64 | int,
    method: str | pa.Array,
    bodies: pa.BinaryArray,
) -> pa.BinaryArray:
    """Encode the payloads of n calls.

    Args:
        receivers: Program numbers, uint64 array of n.
        amount_high: Upper 64 bits of the amounts, n or one for all.
        amount_low: Lower 64 bits of the amounts, n or one for all.
        method: One name for all, or n names (string or dictionary of string).
        bodies: n byte strings.

    Returns:
        Binary array of n payloads.

    Raises:
        InvalidInput: A name exceeds 255 bytes, or the payloads exceed 2**31 - 1 bytes, the limit of an Arrow binary
            array.
    """
    count = len(receivers)
    names = _names(method, count)
    name_bytes = _lengths(names)
    longest = int(name_bytes.max()) if count else 0
    if longest > MAX_METHOD_BYTES:
        raise InvalidInput(f"method: a name of {longest} bytes is too long; at most {MAX_METHOD_BYTES} are allowed")
    total = HEADER_BYTES * count + int(name_bytes.sum()) + int(_lengths(bodies).sum())
    if total > _MAX_TOTAL_BYTES:
        raise InvalidInput(f"payloads: {total} bytes in one array; at most {_MAX_TOTAL_BYTES} fit, encode in parts")
    header = np.empty((count, HEADER_BYTES), dtype=np.uint8)
    for start, column in ((0, receivers), (8, amount_high), (16, amount_low)):
        words = np.ascontiguousarray(np.broadcast_to(np.asarray(column, dtype=np.uint64), (count,)).astype(">u8"))
        header[:, start : start + 8] = words.view(np.uint8).reshape(count, 8)
    header[:, 24] = name_bytes
    return pc.binary_join_element_wise(_fixed_rows(header), names, bodies, pa.scalar(b"", pa.binary()))


def decode_calls(payloads: pa.BinaryArray) -> DecodedCalls:
    """Decode payloads.

    A payload is malformed if it is null, shorter than header and name, or its name is not UTF-8. Users can send any
    bytes, so no content raises.

    Args:
        payloads: Binary array of n payloads.

    Returns:
        The parts, with a mask of the valid payloads.
    """
    count = len(payloads)
    valid = np.ones(count, dtype=np.bool_)
    if payloads.null_count:
        valid = np.asarray(payloads.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    sizes = _lengths(payloads)
    valid = valid & (sizes >= HEADER_BYTES)
    header = np.zeros((count, HEADER_BYTES), dtype=np.uint8)
    long_enough = payloads if valid.all() else payloads.filter(pa.array(valid))
    header[valid] = _rows(pc.binary_slice(long_enough, 0, HEADER_BYTES), HEADER_BYTES)
    name_bytes = header[:, 24].astype(np.int64)
    valid = valid & (sizes >= HEADER_BYTES + name_bytes)
    names, bodies = _split(payloads, np.where(valid, name_bytes, -1))
    methods, readable = _as_text(names)
    if not readable.all():
        valid = valid & readable
        bodies = pc.if_else(pa.array(valid), bodies, pa.scalar(b"", pa.binary()))
    words = np.ascontiguousarray(header[:, :24]).view(">u8").astype(np.uint64)
    words[~valid] = 0
    return DecodedCalls(words[:, 0].copy(), words[:, 1].copy(), words[:, 2].copy(), methods, bodies, valid)


def _names(method: str | pa.Array, count: int) -> pa.BinaryArray:
    """Return ``method`` as ``count`` byte strings."""
    if isinstance(method, str):
        return pa.repeat(pa.scalar(method.encode(), pa.binary()), count)
    return method.cast(pa.string()).cast(pa.binary())


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the length in bytes of each element, 0 for null."""
    lengths = pc.binary_length(array)
    lengths = (pc.fill_null(lengths, 0) if array.null_count else lengths).to_numpy(zero_copy_only=False)
    return np.asarray(lengths, dtype=np.int64)


def _fixed_rows(rows: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the rows of a (n, width) byte matrix as n byte strings."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers: list[Any] = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _rows(array: pa.BinaryArray, width: int) -> npt.NDArray[np.uint8]:
    """Return n byte strings of equal width as a (n, width) matrix."""
    if not len(array):
        return np.zeros((0, width), dtype=np.uint8)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    start = int(offsets[array.offset])
    data = np.frombuffer(array.buffers()[2], dtype=np.uint8)
    return data[start : start + len(array) * width].reshape(len(array), width)


def _split(payloads: pa.BinaryArray, name_bytes: npt.NDArray[np.int64]) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Split payloads into names and bodies; name length -1: malformed, both empty.

    Payloads are grouped by name length, of which there are at most 257, then restored to order.
    """
    if len(name_bytes) and not np.count_nonzero(name_bytes != name_bytes[0]):
        kinds, kind_of = name_bytes[:1], np.zeros(len(name_bytes), dtype=np.int64)
    else:
        kinds, kind_of = np.unique(name_bytes, return_inverse=True)
    names, bodies = [], []
    for position, size in enumerate(kinds.tolist()):
        group = payloads if len(kinds) == 1 else payloads.filter(pa.array(kind_of == position))
        if size < 0:
            empty = pa.repeat(pa.scalar(b"", pa.binary()), len(group))
            names.append(empty)
            bodies.append(empty)
        else:
            names.append(pc.binary_slice(group, HEADER_BYTES, HEADER_BYTES + size))
            bodies.append(pc.binary_slice(group, HEADER_BYTES + size, _MAX_TOTAL_BYTES))  # without a stop, 26.0 fails
    if len(kinds) == 1:
        return names[0], bodies[0]
    order = np.argsort(kind_of, kind="stable")
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    places = pa.array(inverse)
    empty_column = [pa.array([], pa.binary())]
    return pa.concat_arrays(names or empty_column).take(places), pa.concat_arrays(bodies or empty_column).take(places)


def _as_text(names: pa.BinaryArray) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """Decode names, empty where they are not UTF-8, and return a mask of the decodable ones.

    Distinct names are checked one by one only if some name is bad.
    """
    try:
        return names.cast(pa.string()), np.ones(len(names), dtype=np.bool_)
    except pa.ArrowInvalid:
        encoded = names.dictionary_encode()
        good = np.array([_is_utf8(name) for name in encoded.dictionary.to_pylist()], dtype=np.bool_)
        readable = good[encoded.indices.to_numpy()]
        valid_names = pc.if_else(pa.array(readable), names, pa.scalar(b"", pa.binary()))
        return valid_names.cast(pa.string()), readable


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
