"""Headers of streams by columns: the bytes and the verdicts of ``stream_header``, many at once (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.order import U64, Rows
from causeway.proofs.arrays import integers
from causeway.proofs.errors import ProofError
from causeway.proofs.ic.byte_columns import binary_array, encodings_of, refusal
from causeway.proofs.ic.columns import MAX_COLUMN_BYTES
from causeway.proofs.ic.errors import EncodeError
from causeway.proofs.ic.stream_header import (
    MAX_HEADER_BYTES,
    RejectReason,
    RejectSignal,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
    reasons_of,
)
from causeway.proofs.ic.versions import CURRENT, CertificationVersion

Reasons = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DecodedHeaders:
    """Headers that were read; of those that are refused all bounds are 0, and there are no signals.

    Attributes:
        begin, end, signals_end: bounds (uint64), a row a header.
        flags: ``StreamFlags`` (uint8), a row a header.
        reject_row: which header a reject signal is of, ascending.
        reject_index: which message it is about (uint64), ascending in each header.
        reject_reason: ``RejectReason`` (uint8).
        errors: why a header is refused, by its row, ascending; ``str`` of it is the text.
    """

    begin: U64
    end: U64
    signals_end: U64
    flags: npt.NDArray[np.uint8]
    reject_row: Rows
    reject_index: U64
    reject_reason: Reasons
    errors: dict[int, ProofError]


def encode_stream_headers(
    begin: U64,
    end: U64,
    signals_end: U64,
    reject_row: Rows,
    reject_index: U64,
    reject_reason: Reasons,
    version: CertificationVersion = CURRENT,
) -> pa.BinaryArray:
    """Return the canonical encoding of each header, without flags.

    Args:
        begin, end, signals_end: bounds, one a header.
        reject_row, reject_index, reject_reason: the reject signals by header and index, ascending.
        version: certification version.

    Raises:
        EncodeError: as of ``encode_stream_header``, or all together have more bytes than a column holds.
        InvalidInput: a number is negative or the columns are no integers, or ``reject_row`` names no header.
        ValueError: columns that go together are not of one length, or the signals are not in order.
    """
    from causeway.proofs.ic import header_loops as loops

    bounds = _bounds(begin, end, signals_end)
    count = bounds.shape[1]
    rows = integers(reject_row, "reject_row", np.int64, 0, count - 1)
    indexes = integers(reject_index, "reject_index", np.uint64)
    reasons = integers(reject_reason, "reject_reason", np.uint8)
    if not len(rows) == len(indexes) == len(reasons):
        raise ValueError(f"reject signals have {len(rows)} rows, {len(indexes)} indexes and {len(reasons)} reasons")
    if bool((rows[1:] < rows[:-1]).any()):
        raise ValueError("reject signals must be in the order of their headers")
    edges = np.searchsorted(rows, np.arange(count + 1))
    out = np.empty(count * loops.ROOM + len(rows) * loops.SIGNAL_ROOM, dtype=np.uint8)
    ends = np.zeros(count + 1, dtype=np.int64)
    wrong = loops.write_headers(bounds, edges, indexes, reasons, len(reasons_of(version)), out, ends)
    if wrong >= 0:
        part = slice(edges[wrong], edges[wrong + 1])
        given = zip(indexes[part].tolist(), reasons[part].tolist(), strict=True)
        signals = [RejectSignal(index, _reason(reason)) for index, reason in given]
        first, last, signals_last = bounds[:, wrong].tolist()
        # In order or not, it takes them: what it does not refuse is not in order.
        encode_stream_header(StreamHeader(first, last, signals_last, tuple(signals)), version)
        raise ValueError(f"the reject signals of header {wrong} must be in ascending order")
    if int(ends[-1]) > MAX_COLUMN_BYTES:
        raise EncodeError(f"{count} headers have more bytes than a column: encode them in pieces")
    return binary_array(out[: ends[-1]].copy(), ends.astype(np.int32))


def decode_stream_headers(
    values: pa.BinaryArray, version: CertificationVersion = CURRENT, most_bytes: int = MAX_HEADER_BYTES
) -> DecodedHeaders:
    """Return the headers that ``values`` encode, and why the others are refused: as ``decode_stream_header`` does, but
    for the limit of a header's bytes, ``most_bytes``.

    Raises:
        InvalidInput: the column's offsets do not lie in its bytes, or it holds a null.
    """
    from causeway.proofs.ic import header_loops as loops

    column = encodings_of(values, "headers")
    count, known = len(values), len(reasons_of(version))
    bounds, flags = np.empty((3, count), dtype=np.uint64), np.zeros(count, dtype=np.uint8)
    counts, positions = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    data, ends = column.data, column.offsets
    mixed = loops.read_headers(data, ends, most_bytes, known, bounds, flags, counts, positions)
    refused = counts < 0
    edges = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.maximum(counts, 0), out=edges[1:])
    indexes, reasons = np.empty(int(edges[-1]), dtype=np.uint64), np.empty(int(edges[-1]), dtype=np.uint8)
    loops.read_all_signals(data, ends, known, bounds[2], positions, edges, indexes, reasons)
    rows = np.repeat(np.arange(count), np.diff(edges))
    if mixed:
        # Lists of several reasons: signals by index, none twice.
        order = np.lexsort((indexes, rows))
        rows, indexes, reasons = rows[order], indexes[order], reasons[order]
        refused[rows[1:][(rows[1:] == rows[:-1]) & (indexes[1:] == indexes[:-1])]] = True
        kept = ~refused[rows]
        rows, indexes, reasons = rows[kept], indexes[kept], reasons[kept]
    bounds[:, refused], flags[refused] = 0, 0
    errors = {
        row: refusal(decode_stream_header, values[row].as_py(), version) for row in np.flatnonzero(refused).tolist()
    }
    return DecodedHeaders(bounds[0], bounds[1], bounds[2], flags, rows, indexes, reasons, errors)


def _reason(number: int) -> RejectReason:
    """Return a reason; one that is unknown stays a number, which the encoder refuses."""
    known: Any = number
    return RejectReason(number) if number in set(RejectReason) else known


def _bounds(*columns: U64) -> npt.NDArray[np.uint64]:
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"begin, end and signals_end have {', '.join(str(len(column)) for column in columns)} rows")
    names = ("begin", "end", "signals_end")
    return np.stack([integers(column, name, np.uint64) for name, column in zip(names, columns, strict=True)])
