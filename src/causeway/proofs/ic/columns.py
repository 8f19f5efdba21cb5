"""Messages of streams encoded by columns: the bytes of ``encode_stream_message``, many at once (IC reference 2.9).

A compiled loop writes them, piece by piece: the numbers of a piece are a matrix that stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.arrays import whole
from causeway.proofs.ic.byte_columns import ByteColumn, Bytes, binary_array, offsets_of
from causeway.proofs.ic.errors import EncodeError
from causeway.proofs.ic.messages import RejectCode
from causeway.proofs.ic.versions import CURRENT, CYCLES_FIELDS, REFUNDS, CertificationVersion
from causeway.proofs.kinds import Kind

PIECE_ROWS = 1 << 15
"""Messages that a column of encodings is made of at a time."""

PIECE_BYTES = 32 << 20
"""Payload bytes of a piece, unless one message has more."""

MAX_COLUMN_BYTES = 2**31 - 1
"""What a ``BinaryArray`` holds."""

LOOP_ROWS = 1 << 12
"""Messages that go through the loop at a time."""


Columns = Mapping[str, Any]
"""Columns of messages, by name, all of one length.

``kind`` (``Kind.REQUEST``, ``RESPONSE`` or ``REFUND``), ``sender``, ``receiver`` (numbers of canisters), ``callback``,
``amount_high``, ``amount_low``, ``code``, ``deadline``: NumPy columns of unsigned numbers. ``method``: Arrow text or
dictionary-encoded text. ``payload``: Arrow bytes. If there are columns ``call_tree_depth`` and ``call_tree_start`` they
are the requests' metadata, otherwise that is zeros. Of a response, ``sender`` is the respondent, ``receiver`` the
originator, ``cycles`` the refund; ``code`` 0 means that ``payload`` is data, else it is the text of the reject. Of a
refund, ``receiver`` is the recipient, and only ``cycles`` counts besides.
"""

_NUMBERS = (
    "kind", "sender", "receiver", "callback", "amount_high", "amount_low", "code", "deadline",
    "call_tree_depth", "call_tree_start",
)  # fmt: skip
"""In the order of the rows of the loop's matrix; the last one is the number of the method's name."""


def encode_stream_messages(columns: Columns, version: CertificationVersion = CURRENT) -> pa.BinaryArray:
    """Return the canonical encoding of each message.

    Raises:
        EncodeError: a kind or code is not known, or not to the version; a reject's text is not UTF-8; a request has no
            method; or all together have more bytes than a column holds, and must be taken piece by piece.
        InvalidInput: a column's offsets do not lie in its bytes.
    """
    pieces = list(encode_in_pieces(columns, version))
    if sum(piece.nbytes for piece in pieces) > MAX_COLUMN_BYTES:
        raise EncodeError(f"{len(columns['kind'])} messages have more bytes than a column: encode them in pieces")
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def encode_in_pieces(columns: Columns, version: CertificationVersion = CURRENT) -> Iterator[pa.BinaryArray]:
    """Yield the encodings of the messages in order, some at a time, in memory of the size of a piece.

    Raises:
        EncodeError, InvalidInput: as of ``encode_stream_messages``.
    """
    offsets = offsets_of(columns["payload"])
    encoder = MessageEncoder(columns, version)
    start = 0
    while start < encoder.count:
        # The last row whose payload ends within the piece; at least one row.
        fitting = int(np.searchsorted(offsets, int(offsets[start]) + PIECE_BYTES, side="right")) - 1
        stop = min(encoder.count, start + PIECE_ROWS, max(fitting, start + 1))
        yield encoder.encode(start, stop)
        start = stop


class MessageEncoder:
    """Writes the encodings of messages, given as columns, into buffers.

    Args:
        columns: the messages; kept, not copied.
        version: certification version.

    Raises:
        EncodeError: a payload or a method that is encoded is null.
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
            EncodeError, InvalidInput: as of ``encode_stream_messages``.
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
        """Write the encodings of the messages from ``start`` on one behind the other.

        Writes at most ``LOOP_ROWS`` messages, not beyond ``stop``, and as many as there is room for.

        Args:
            start, stop: rows.
            out: where the encodings go, from ``ends[0]`` on.
            ends: set to where each encoding begins and, behind it, where the last one ends.

        Returns:
            How many were written; 0 if ``out`` has too little room for one.

        Raises:
            EncodeError, InvalidInput: as of ``encode_stream_messages``.
        """
        from causeway.proofs.ic import message_write_loops as loops

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
        """Raise the error of what the loop does not write: the first one of the rows that are still to come."""
        rows = {name: self._columns[name][start:stop] for name in ("kind", "code", "payload")}
        _require_known(np.asarray(rows["kind"]), np.asarray(rows["code"]), rows["payload"], self._version)
        whole(self._columns["payload"], "payloads")
        whole(self._columns["method"], "methods")
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
    if worst > max(RejectCode):
        raise EncodeError(f"a response has the reject code {worst}, allowed are 1 to {max(RejectCode):d}")
    try:
        payload.filter(pa.array(rejects)).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise EncodeError("the text of a reject response is not UTF-8") from error


def _require_present(column: pa.Array, wanted: npt.NDArray[np.bool_], name: str) -> None:
    if column.null_count and bool((wanted & np.asarray(pc.is_null(column))).any()):
        raise EncodeError(f"a message has no {name}: that column is null")


def _indices(method: pa.DictionaryArray) -> Any:
    indices = method.indices
    return (indices.fill_null(0) if indices.null_count else indices).to_numpy()
