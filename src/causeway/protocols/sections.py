"""A digest of each chain's rows of a table: how what is no queue enters a chain's root."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.joins import over
from causeway.model.order import bits_of, groups_of

EMPTY_DIGEST = hashlib.sha256(b"").digest()


def section_digests(frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32]) -> list[bytes]:
    """Return one digest for each of ``chains`` (ascending positions) over its rows; ``owner``: whose each row is.

    Hashed are the rows as they lie, numbers little-endian and for text and bytes the length; then, where there are such
    columns, the content of each, and the number of rows.
    """
    if len(frame) == 0:
        return [EMPTY_DIGEST] * len(chains)
    if not bool((owner[1:] >= owner[:-1]).all()):
        order = np.argsort(owner, kind="stable")
        frame, owner = frame.take(order), owner[order]
    starts = np.searchsorted(owner, chains, side="left")
    stops = np.searchsorted(owner, chains, side="right")
    texts = [_content(frame[name]) for name in frame.names if not isinstance(frame[name], np.ndarray)]
    packed = _packed(frame)
    rows, width = packed.reshape(-1).data, packed.shape[1]
    digests = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        if start == stop:
            digests.append(EMPTY_DIGEST)
            continue
        accumulated = hashlib.sha256(rows[start * width : stop * width])
        for data, offsets in texts:
            accumulated.update(data[offsets[start] : offsets[stop]])
        if texts:
            accumulated.update(int(stop - start).to_bytes(8, "big"))
        digests.append(accumulated.digest())
    return digests


def column_digests(frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32]) -> list[bytes]:
    """Return what ``section_digests`` does, for long tables of numbers, of which much fewer bytes are hashed.

    Hashed are the number of rows and then the columns, each as its width in bytes (of 0, 1, 2, 4, 8 the least that
    holds the largest number) and the numbers of that width, little-endian.
    """
    if len(frame) == 0:
        return [EMPTY_DIGEST] * len(chains)
    if not bool((owner[1:] >= owner[:-1]).all()):
        runs = groups_of(owner)
        order = np.argsort(owner[runs.starts], kind="stable")
        rows = over(runs.starts[order], runs.starts[order] + runs.counts[order])[1]
        frame, owner = frame.take(rows), owner[rows]
    starts = np.searchsorted(owner, chains, side="left").tolist()
    stops = np.searchsorted(owner, chains, side="right").tolist()
    columns = [frame[name] for name in frame.names]
    digests = []
    for start, stop in zip(starts, stops, strict=True):
        if start == stop:
            digests.append(EMPTY_DIGEST)
            continue
        accumulated = hashlib.sha256((stop - start).to_bytes(8, "big"))
        for column in columns:
            width = _width(column[start:stop])
            accumulated.update(bytes([width]))
            if width:
                accumulated.update(np.ascontiguousarray(column[start:stop], dtype=f"<u{width}").data)
        digests.append(accumulated.digest())
    return digests


def _width(numbers: npt.NDArray[Any]) -> int:
    """Return the bytes that the largest of some unsigned numbers takes: 0, 1, 2, 4 or 8."""
    bits = bits_of(numbers[:1] if numbers.strides[0] == 0 else numbers)
    return next(width for width in (0, 1, 2, 4, 8) if bits <= 8 * width)


def _packed(frame: Frame) -> npt.NDArray[np.uint8]:
    """Return the frame's rows as a byte matrix: each number as it lies, of text and bytes the length."""
    columns = []
    for name in frame.names:
        column = frame[name]
        if not isinstance(column, np.ndarray):
            column = np.diff(_content(column)[1]).astype(np.uint32)
        columns.append(np.ascontiguousarray(column).view(np.uint8).reshape(len(frame), -1))
    return np.concatenate(columns, axis=1)


def _content(column: Any) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """Return the joined values of a column of text or bytes, and where each begins (one more than there are)."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return memoryview(column.buffers()[2] or b""), offsets[column.offset : column.offset + len(column) + 1]
