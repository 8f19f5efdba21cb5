"""Columns of encodings as loops take them, and what a loop leaves to the decoder of single ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.proofs.arrays import whole
from causeway.proofs.errors import ProofError
from causeway.proofs.ic.versions import CertificationVersion

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


class ByteColumn:
    """The bytes and offsets of a column of bytes or text, as loops take them."""

    def __init__(self, values: pa.Array, name: str) -> None:
        if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
            values = values.cast(pa.binary())
        self.offsets = offsets_of(values)
        if len(self.offsets) != len(values) + 1:
            raise InvalidInput(f"a column of {name} is damaged: it has {len(self.offsets)} offsets for {len(values)}")
        content = values.buffers()[2]
        self.data = np.frombuffer(content if content is not None else b"", dtype=np.uint8)


def offsets_of(values: pa.BinaryArray) -> Offsets:
    """Return where each value starts in the column's bytes and, last, where the last one ends."""
    buffer = values.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int32)
    offsets = np.frombuffer(buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return np.require(offsets, requirements="A")


def refusal(
    decode: Callable[[bytes, CertificationVersion], Any], data: bytes, version: CertificationVersion
) -> ProofError:
    """Return the error with which ``decode`` refuses what a loop has not found canonical."""
    try:
        decode(data, version)
    except ProofError as error:
        return error
    raise RuntimeError(f"{decode.__name__} takes the {len(data)} bytes {data[:64].hex()}..., which its loop refuses")


def encodings_of(values: pa.BinaryArray, what: str) -> ByteColumn:
    """Return a column of encodings that somebody else made.

    Raises:
        InvalidInput: its offsets do not lie in its bytes, or it holds a null.
    """
    values = whole(values, what)
    if values.null_count:
        raise InvalidInput(f"a column of {what} holds a null, only byte strings are allowed")
    return ByteColumn(values, what)


def binary_array(data: Bytes, offsets: Offsets) -> pa.BinaryArray:
    """Return the column whose value ``i`` is ``data[offsets[i] : offsets[i + 1]]``; nothing is copied."""
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
