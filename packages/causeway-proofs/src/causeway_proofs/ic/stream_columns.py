"""Encode and decode stream messages and headers in columns (IC reference 2.9).

The bytes and verdicts are those of ``encode_stream_message``, ``decode_stream_message`` and ``stream_header``, for many
rows at once. Compiled loops process the columns piece by piece, so that a piece's numbers stay in the cache. Rows that
a loop does not find canonical go to the single decoder for their error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.arrays import contiguous_column, integer_array
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.errors import EncodeError, NotInColumns
from causeway_proofs.ic.messages import (
    StreamMessage,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    decode_stream_message,
)
from causeway_proofs.ic.packed_cbor import MAX_ITEM_BYTES
from causeway_proofs.ic.primitives import CURRENT, CYCLES_FIELDS, REFUNDS, CertificationVersion
from causeway_proofs.ic.stream_header import (
    MAX_HEADER_BYTES,
    RejectReason,
    RejectSignal,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
    reject_reasons,
)
from causeway_proofs.kinds import Kind
from causeway_proofs.order import U64, Rows

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


class ByteColumn:
    """Bytes and offsets of a byte or text column, for loops."""

    def __init__(self, values: pa.Array, name: str) -> None:
        if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
            values = values.cast(pa.binary())
        self.offsets = value_offsets(values)
        if len(self.offsets) != len(values) + 1:
            raise InvalidInput(f"a column of {name} is damaged: it has {len(self.offsets)} offsets for {len(values)}")
        content = values.buffers()[2]
        self.data = np.frombuffer(content if content is not None else b"", dtype=np.uint8)


def value_offsets(values: pa.BinaryArray) -> Offsets:
    """Return the start of each value in the column's bytes and, last, the end."""
    buffer = values.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int32)
    offsets = np.frombuffer(buffer, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return np.require(offsets, requirements="A")


def decoding_error(
    decode: Callable[[bytes, CertificationVersion], Any], data: bytes, version: CertificationVersion
) -> ProofError:
    """Return the error of ``decode`` for bytes that a loop did not find canonical."""
    try:
        decode(data, version)
    except ProofError as error:
        return error
    raise RuntimeError(f"{decode.__name__} takes the {len(data)} bytes {data[:64].hex()}..., which its loop refuses")


def binary_values(values: pa.BinaryArray, noun: str) -> ByteColumn:
    """Validate an untrusted column of encodings.

    Raises:
        InvalidInput: offsets are out of bounds, or a value is null.
    """
    values = contiguous_column(values, noun)
    if values.null_count:
        raise InvalidInput(f"a column of {noun} holds a null, only byte strings are allowed")
    return ByteColumn(values, noun)


def binary_array(data: Bytes, offsets: Offsets) -> pa.BinaryArray:
    """Return the column with values ``data[offsets[i] : offsets[i + 1]]``, without a copy."""
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


PIECE_ROWS = 1 << 15
"""Messages encoded into one column at a time."""

PIECE_BYTES = 32 << 20
"""Most payload bytes of a piece, unless one message has more."""

MAX_COLUMN_BYTES = 2**31 - 1
"""Capacity of a ``BinaryArray``."""

LOOP_ROWS = 1 << 12
"""Messages of one loop call."""


Columns = Mapping[str, Any]
"""Columns of messages by name, all of one length.

- ``kind``: ``Kind.REQUEST``, ``RESPONSE`` or ``REFUND``.
- ``sender``, ``receiver``: numbers of canisters. Of a response, the respondent and the originator; of a refund,
  ``receiver`` is the recipient.
- ``callback``, ``code``, ``deadline``: NumPy columns of unsigned numbers. ``code`` 0 marks ``payload`` as data, else it
  is the text of the reject.
- ``amount_high``, ``amount_low``: halves of the cycles; of a response, the refund. A refund has no other columns.
- ``method``: Arrow text, possibly dictionary-encoded.
- ``payload``: Arrow bytes.
- ``call_tree_depth``, ``call_tree_start``: metadata of requests; zeros if missing.
"""

_NUMBERS = (
    "kind", "sender", "receiver", "callback", "amount_high", "amount_low", "code", "deadline",
    "call_tree_depth", "call_tree_start",
)  # fmt: skip
"""Columns in the row order of the loop's matrix, the index of the method name last."""


def encode_stream_messages(columns: Columns, version: CertificationVersion = CURRENT) -> pa.BinaryArray:
    """Encode each message canonically.

    Args:
        columns: the messages.
        version: certification version.

    Returns:
        One encoding a message.

    Raises:
        EncodeError: a kind or code is unknown to the version, a reject's text is not UTF-8, a request has no method, or
            the encodings exceed one column (encode them in pieces).
        InvalidInput: a column's offsets are out of bounds.
    """
    pieces = list(encode_in_pieces(columns, version))
    if sum(piece.nbytes for piece in pieces) > MAX_COLUMN_BYTES:
        raise EncodeError(f"{len(columns['kind'])} messages have more bytes than a column: encode them in pieces")
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def encode_in_pieces(columns: Columns, version: CertificationVersion = CURRENT) -> Iterator[pa.BinaryArray]:
    """Yield the encodings of the messages in order, in the memory of one piece.

    Raises:
        EncodeError, InvalidInput: as ``encode_stream_messages``.
    """
    offsets = value_offsets(columns["payload"])
    encoder = MessageEncoder(columns, version)
    start = 0
    while start < encoder.count:
        # The last row whose payload ends within the piece; at least one row.
        fitting = int(np.searchsorted(offsets, int(offsets[start]) + PIECE_BYTES, side="right")) - 1
        stop = min(encoder.count, start + PIECE_ROWS, max(fitting, start + 1))
        yield encoder.encode(start, stop)
        start = stop


class MessageEncoder:
    """Writes encodings of messages into buffers.

    Args:
        columns: the messages; referenced, not copied.
        version: certification version.

    Raises:
        EncodeError: a payload or method to encode is null.
    """

    def __init__(self, columns: Columns, version: CertificationVersion = CURRENT) -> None:
        self.count = len(columns["kind"])
        self._columns, self._version = columns, version
        self._payload = ByteColumn(columns["payload"], "payloads")
        method = columns["method"]
        self._indices: Any = None
        if pa.types.is_dictionary(method.type):
            self._indices = _indices(method)
            method = method.dictionary
        self._method = ByteColumn(method, "methods")
        self._numbers = np.zeros((len(_NUMBERS) + 1, min(self.count, LOOP_ROWS)), dtype=np.uint64)
        self._varying: list[tuple[int, str]] = []
        for row, name in enumerate(_NUMBERS):
            if name in columns and self.count:
                if isinstance(columns[name], np.ndarray) and columns[name].strides[0] == 0:
                    self._numbers[row] = columns[name][0]  # one value repeated is the same in every piece
                else:
                    self._varying.append((row, name))
        kinds = np.asarray(columns["kind"])
        _require_present(columns["payload"], kinds != Kind.REFUND, "payload")
        _require_present(columns["method"], kinds == Kind.REQUEST, "method")

    def encode(self, start: int, stop: int) -> pa.BinaryArray:
        """Return the encodings of the messages ``start`` to ``stop`` - 1.

        Raises:
            EncodeError, InvalidInput: as ``encode_stream_messages``.
        """
        edges = self._payload.offsets
        out = np.empty(int(edges[stop] - edges[start]) + (stop - start) * 256 + 4096, dtype=np.uint8)
        ends = np.zeros(stop - start + 1, dtype=np.int64)
        done = start
        while done < stop:
            written = self.write(done, stop, out, ends[done - start :])
            done += written
            if not written:
                longer = np.empty(2 * len(out), dtype=np.uint8)
                longer[: ends[done - start]] = out[: ends[done - start]]
                out = longer
        if int(ends[-1]) > MAX_COLUMN_BYTES:
            raise EncodeError(f"{stop - start} messages have more bytes than a column: encode them in pieces")
        return binary_array(out[: ends[-1]], ends.astype(np.int32))

    def write(self, start: int, stop: int, out: Bytes, ends: Rows) -> int:
        """Write the encodings of the messages from ``start`` on.

        Writes at most ``LOOP_ROWS`` messages, not beyond ``stop``, and as many as fit.

        Args:
            start: first row.
            stop: row after the last.
            out: destination, from ``ends[0]`` on.
            ends: set to the start of each encoding and, last, the end.

        Returns:
            The number of written messages; 0 if ``out`` is too small for one.

        Raises:
            EncodeError, InvalidInput: as ``encode_stream_messages``.
        """
        from causeway_proofs.ic import message_loops as loops

        count, numbers = min(stop - start, LOOP_ROWS), self._numbers
        piece = slice(start, start + count)
        for row, name in self._varying:
            np.copyto(numbers[row, :count], self._columns[name][piece], casting="unsafe")
        if self._indices is None:
            numbers[loops.METHOD, :count] = np.arange(start, start + count)
        else:
            np.copyto(numbers[loops.METHOD, :count], self._indices[piece], casting="unsafe")
        written: int = loops.write_messages(
            count,
            numbers,
            self._version >= REFUNDS,
            self._version >= CYCLES_FIELDS,
            self._method.data,
            self._method.offsets,
            self._payload.data,
            self._payload.offsets[start : start + count + 1],
            out,
            ends[: count + 1],
        )
        if written < 0:
            self._refuse(start, stop)
        return written

    def _refuse(self, start: int, stop: int) -> NoReturn:
        """Raise the error of the first remaining row that the loop does not write."""
        rows = {name: self._columns[name][start:stop] for name in ("kind", "code", "payload")}
        _require_known(np.asarray(rows["kind"]), np.asarray(rows["code"]), rows["payload"], self._version)
        contiguous_column(self._columns["payload"], "payloads")
        contiguous_column(self._columns["method"], "methods")
        raise InvalidInput("a message's method or payload does not lie in its column's bytes")


def _require_known(kinds: Any, codes: Any, payload: pa.BinaryArray, version: CertificationVersion) -> None:
    known = (kinds == Kind.REQUEST) | (kinds == Kind.RESPONSE)
    if version >= REFUNDS:
        known |= kinds == Kind.REFUND
    if not known.all():
        kind = int(kinds[np.flatnonzero(~known)[0]])
        raise EncodeError(f"a message of kind {kind} has no encoding in a stream at certification version {version:d}")
    rejects = (kinds == Kind.RESPONSE) & (codes > 0)
    if not rejects.any():
        return
    worst = int(codes[rejects].max())
    if worst > max(StreamRejectCode):
        raise EncodeError(f"a response has the reject code {worst}, allowed are 1 to {max(StreamRejectCode):d}")
    try:
        payload.filter(pa.array(rejects)).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise EncodeError("the text of a reject response is not UTF-8") from error


def _require_present(column: pa.Array, required: npt.NDArray[np.bool_], name: str) -> None:
    if column.null_count and bool((required & np.asarray(pc.is_null(column))).any()):
        raise EncodeError(f"a message has no {name}: that column is null")


def _indices(method: pa.DictionaryArray) -> Any:
    indices = method.indices
    return (indices.fill_null(0) if indices.null_count else indices).to_numpy()


_TYPES = {
    "kind": np.uint8,
    "sender": np.uint64,
    "receiver": np.uint64,
    "callback": np.uint64,
    "amount_high": np.uint64,
    "amount_low": np.uint64,
    "code": np.uint8,
    "deadline": np.uint32,
    "call_tree_depth": np.uint64,
    "call_tree_start": np.uint64,
}
"""Dtypes in the row order of the loop's matrix."""

_ID_SUFFIX = b"\x01\x01"
_ID_BYTES = 10


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """Decoded messages; an invalid one has 0 or empty values in every column.

    Attributes:
        columns: all columns of ``Columns``; ``method`` is dictionary-encoded text (int32).
        errors: error of each invalid message by row, ascending; ``str`` of it is the text.
    """

    columns: dict[str, Any]
    errors: dict[int, ProofError]


def decode_stream_messages(values: pa.BinaryArray, version: CertificationVersion = CURRENT) -> DecodedMessages:
    """Decode messages by columns, with the errors of ``decode_stream_message``.

    ``NotInColumns`` additionally rejects messages without a row form: canister ids other than eight bytes and 01 01,
    and requests without both numbers of the call tree.

    Args:
        values: one encoding a message.
        version: certification version.

    Returns:
        The messages and errors.

    Raises:
        InvalidInput: the column's offsets are out of bounds, or a value is null.
    """
    from causeway_proofs.ic import message_loops as loops

    given = binary_values(values, "messages")
    count, size = len(values), int(given.offsets[-1] - given.offsets[0])
    numbers = np.empty((len(_TYPES), count), dtype=np.uint64)
    refused = np.empty(count, dtype=np.uint8)
    methods, payloads = np.empty(size, dtype=np.uint8), np.empty(size, dtype=np.uint8)
    method_ends, payload_ends = np.zeros(count + 1, dtype=np.int32), np.zeros(count + 1, dtype=np.int32)
    loops.read_messages(
        given.data,
        given.offsets,
        MAX_ITEM_BYTES,
        version >= REFUNDS,
        version >= CYCLES_FIELDS,
        numbers,
        methods,
        method_ends,
        payloads,
        payload_ends,
        refused,
    )
    columns: dict[str, Any] = {
        name: numbers[row].astype(kind, copy=False) for row, (name, kind) in enumerate(_TYPES.items())
    }
    names = binary_array(methods[: method_ends[-1]].copy(), method_ends).cast(pa.string())
    columns["method"] = names.dictionary_encode()
    columns["payload"] = binary_array(payloads[: payload_ends[-1]], payload_ends)
    errors = {
        row: decoding_error(_decode_into_columns, values[row].as_py(), version)
        for row in np.flatnonzero(refused).tolist()
    }
    return DecodedMessages(columns, errors)


def _decode_into_columns(data: bytes, version: CertificationVersion) -> None:
    """Raise the error of ``data`` if it is not a message, or has no row form."""
    message = decode_stream_message(data, version)
    for name, principal in _ids(message):
        if len(principal) != _ID_BYTES or not principal.endswith(_ID_SUFFIX):
            raise NotInColumns(
                f"{name}: columns have ids of canisters of eight bytes and {_ID_SUFFIX.hex()}, not {principal.hex()!r}"
            )
    if isinstance(message, StreamRequest):
        tree = message.metadata
        if tree is None or tree.call_tree_depth is None or tree.call_tree_start_time_nanos is None:
            raise NotInColumns("Request: metadata: columns have both of its numbers, of which one is left out")


def _ids(message: StreamMessage) -> list[tuple[str, bytes]]:
    """Return the ids of a message with their names, in encoding order."""
    if isinstance(message, StreamRefund):
        return [("Refund: recipient", message.recipient)]
    if isinstance(message, StreamRequest):
        return [("Request: receiver", message.receiver), ("Request: sender", message.sender)]
    return [("Response: originator", message.originator), ("Response: respondent", message.respondent)]


Reasons = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DecodedHeaders:
    """Decoded headers; an invalid one has zero bounds and no signals.

    Attributes:
        begin, end, signals_end: bounds (uint64), a row a header.
        flags: ``StreamFlags`` (uint8), a row a header.
        reject_row: header of each reject signal, ascending.
        reject_index: message index of each signal (uint64), ascending in each header.
        reject_reason: ``RejectReason`` (uint8).
        errors: error of each invalid header by row, ascending; ``str`` of it is the text.
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
    """Encode each header canonically, without flags.

    Args:
        begin: index of the first message, one a header.
        end: index after the last message.
        signals_end: index after the last signal.
        reject_row: header of each reject signal, ascending.
        reject_index: message index of each signal, ascending in each header.
        reject_reason: reason of each signal.
        version: certification version.

    Returns:
        One encoding a header.

    Raises:
        EncodeError: as ``encode_stream_header``, or the encodings exceed one column.
        InvalidInput: a number is negative or not an integer, or ``reject_row`` names no header.
        ValueError: related columns differ in length, or the signals are not in order.
    """
    from causeway_proofs.ic import header_loops as loops

    bounds = _bounds(begin, end, signals_end)
    count = bounds.shape[1]
    rows = integer_array(reject_row, "reject_row", np.int64, 0, count - 1)
    indexes = integer_array(reject_index, "reject_index", np.uint64)
    reasons = integer_array(reject_reason, "reject_reason", np.uint8)
    if not len(rows) == len(indexes) == len(reasons):
        raise ValueError(f"reject signals have {len(rows)} rows, {len(indexes)} indexes and {len(reasons)} reasons")
    if bool((rows[1:] < rows[:-1]).any()):
        raise ValueError("reject signals must be in the order of their headers")
    edges = np.searchsorted(rows, np.arange(count + 1))
    out = np.empty(count * loops.ROOM + len(rows) * loops.SIGNAL_ROOM, dtype=np.uint8)
    ends = np.zeros(count + 1, dtype=np.int64)
    wrong = loops.write_headers(bounds, edges, indexes, reasons, len(reject_reasons(version)), out, ends)
    if wrong >= 0:
        part = slice(edges[wrong], edges[wrong + 1])
        given = zip(indexes[part].tolist(), reasons[part].tolist(), strict=True)
        signals = [RejectSignal(index, _reason(reason)) for index, reason in given]
        first, last, signals_last = bounds[:, wrong].tolist()
        # The encoder accepts any order, so an error-free result means that the signals are unordered.
        encode_stream_header(StreamHeader(first, last, signals_last, tuple(signals)), version)
        raise ValueError(f"the reject signals of header {wrong} must be in ascending order")
    if int(ends[-1]) > MAX_COLUMN_BYTES:
        raise EncodeError(f"{count} headers have more bytes than a column: encode them in pieces")
    return binary_array(out[: ends[-1]].copy(), ends.astype(np.int32))


def decode_stream_headers(
    values: pa.BinaryArray, version: CertificationVersion = CURRENT, most_bytes: int = MAX_HEADER_BYTES
) -> DecodedHeaders:
    """Decode headers by columns, with the errors of ``decode_stream_header``.

    Only the size limit differs.

    Args:
        values: one encoding a header.
        version: certification version.
        most_bytes: most bytes of a header.

    Returns:
        The headers and errors.

    Raises:
        InvalidInput: the column's offsets are out of bounds, or a value is null.
    """
    from causeway_proofs.ic import header_loops as loops

    column = binary_values(values, "headers")
    count, known = len(values), len(reject_reasons(version))
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
        # Merge lists of several reasons by index; an index is unique.
        order = np.lexsort((indexes, rows))
        rows, indexes, reasons = rows[order], indexes[order], reasons[order]
        refused[rows[1:][(rows[1:] == rows[:-1]) & (indexes[1:] == indexes[:-1])]] = True
        accepted = ~refused[rows]
        rows, indexes, reasons = rows[accepted], indexes[accepted], reasons[accepted]
    bounds[:, refused], flags[refused] = 0, 0
    errors = {
        row: decoding_error(decode_stream_header, values[row].as_py(), version)
        for row in np.flatnonzero(refused).tolist()
    }
    return DecodedHeaders(bounds[0], bounds[1], bounds[2], flags, rows, indexes, reasons, errors)


def _reason(number: int) -> RejectReason:
    """Convert a number to a reason; an unknown one stays a number, which the encoder rejects."""
    known: Any = number
    return RejectReason(number) if number in set(RejectReason) else known


def _bounds(*columns: U64) -> npt.NDArray[np.uint64]:
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"begin, end and signals_end have {', '.join(str(len(column)) for column in columns)} rows")
    names = ("begin", "end", "signals_end")
    return np.stack([integer_array(column, name, np.uint64) for name, column in zip(names, columns, strict=True)])
