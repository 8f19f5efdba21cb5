"""Messages of streams encoded by columns: the bytes of ``encode_stream_message``, many at once (IC reference 2.9).

A message is four runs of short fields with the method's name and the payload between them. The runs of all messages of
a piece are laid out as a matrix of bytes with a mask of those that are used, which are then taken out in one go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.ledger import Kind
from causeway.model.order import U64
from causeway.proofs.ic.errors import EncodeError
from causeway.proofs.ic.messages import RejectCode
from causeway.proofs.ic.versions import CURRENT, CYCLES_FIELDS, REFUNDS, CertificationVersion

PIECE_ROWS = 1 << 15
"""Messages are encoded in pieces of this many, so that the matrices stay in the cache."""

PIECE_BYTES = 32 << 20
"""Payload bytes of a piece, unless one message has more."""

MAX_COLUMN_BYTES = 2**31 - 1
"""What a ``BinaryArray`` holds."""

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

_MAP, _BYTES, _TEXT = 0xA0, 0x40, 0x60
_ID_BYTES = 10
_ID_SUFFIX = (0x01, 0x01)
_BOUNDS = np.array([24, 1 << 8, 1 << 16, 1 << 32], dtype=np.uint64)

Columns = Mapping[str, Any]
"""Columns of messages, by name, all of one length.

``kind`` (``Kind.REQUEST``, ``RESPONSE`` or ``REFUND``), ``sender``, ``receiver`` (numbers of canisters), ``callback``,
``amount_high``, ``amount_low``, ``code``, ``deadline``: NumPy columns of unsigned numbers. ``method``: Arrow text or
dictionary-encoded text. ``payload``: Arrow bytes. If there are columns ``call_tree_depth`` and ``call_tree_start`` they
are the requests' metadata, otherwise that is zeros. Of a response, ``sender`` is the respondent, ``receiver`` the
originator, ``cycles`` the refund; ``code`` 0 means that ``payload`` is data, else it is the text of the reject. Of a
refund, ``receiver`` is the recipient, and only ``cycles`` counts besides.
"""


def encode_stream_messages(columns: Columns, version: CertificationVersion = CURRENT) -> pa.BinaryArray:
    """Return the canonical encoding of each message.

    Raises:
        EncodeError: a kind or code is not known, or not to the version; a reject's text is not UTF-8; or all together
            have more bytes than a column holds, and must be taken piece by piece.
    """
    pieces = list(encode_in_pieces(columns, version))
    if sum(piece.nbytes for piece in pieces) > MAX_COLUMN_BYTES:
        raise EncodeError(f"{len(columns['kind'])} messages have more bytes than a column: encode them in pieces")
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


def encode_in_pieces(columns: Columns, version: CertificationVersion = CURRENT) -> Iterator[pa.BinaryArray]:
    """Yield the encodings of the messages in order, some at a time, in memory of the size of a piece.

    Raises:
        EncodeError: as of ``encode_stream_messages``.
    """
    offsets = _offsets(columns["payload"])
    length = len(columns["kind"])
    start = 0
    while start < length:
        # The last row whose payload ends within the piece; at least one row.
        fitting = int(np.searchsorted(offsets, int(offsets[start]) + PIECE_BYTES, side="right")) - 1
        stop = min(length, start + PIECE_ROWS, max(fitting, start + 1))
        yield encode_rows(columns, start, stop, version)
        start = stop


def encode_rows(columns: Columns, start: int, stop: int, version: CertificationVersion = CURRENT) -> pa.BinaryArray:
    """Return the encodings of the messages ``start`` to ``stop`` - 1; for ``hashing.digest_in_pieces``.

    Raises:
        EncodeError: as of ``encode_stream_messages``.
    """
    rows = {name: column[start:stop] for name, column in columns.items()}
    kinds = np.asarray(rows["kind"])
    _require_known(kinds, np.asarray(rows["code"]), rows["payload"], version)
    requests, refunds = kinds == Kind.REQUEST, kinds == Kind.REFUND
    method = rows["method"]
    if pa.types.is_dictionary(method.type):
        method = method.dictionary.cast(pa.binary()).take(method.indices)
    method, payload = method.cast(pa.binary()), rows["payload"]
    if refunds.any() or not requests.all():
        method = pc.if_else(pa.array(requests), method, b"")
    if refunds.any():
        payload = pc.if_else(pa.array(~refunds), payload, b"")
    parts = [_head(rows, requests, refunds, version, _lengths(method))]
    if requests.any():
        parts.append(method)
    parts += [_middle(rows, requests, refunds, _lengths(payload)), payload]
    parts.append(_tail(rows, requests, refunds, version))
    return pc.binary_join_element_wise(*parts, b"")


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


def _head(
    rows: Columns, requests: Flags, refunds: Flags, version: CertificationVersion, method_bytes: U64
) -> pa.BinaryArray:
    """Return what stands before the method's name: up to its length, or before the payload of a response."""
    messages = ~refunds
    deadline = np.asarray(rows["deadline"]) > 0
    run = _Run(len(requests), 80)
    # One message in a map, by kind; then the map of its fields.
    run.constant(_MAP | 1)
    run.byte(np.where(requests, 0, np.where(refunds, 2, 1)))
    run.byte(_MAP | np.where(refunds, 2, np.where(requests, 7, 5) + deadline))
    run.constant(0, _BYTES | _ID_BYTES)
    run.canister(rows["receiver"])
    run.constant(1, _BYTES | _ID_BYTES, where=messages)
    run.canister(rows["sender"], where=messages)
    run.constant(2, where=messages)
    run.number(np.asarray(rows["callback"]), where=messages)
    if version < CYCLES_FIELDS:
        run.constant(3, _MAP | 1, 0, where=messages)
        run.cycles(rows, where=messages)
    run.constant(4, where=messages)
    run.number(method_bytes, _TEXT, where=requests)
    return run.taken()


def _middle(rows: Columns, requests: Flags, refunds: Flags, payload_bytes: U64) -> pa.BinaryArray:
    """Return what stands between the method's name and the payload, or before the payload of a response."""
    responses = ~(requests | refunds)
    codes = np.asarray(rows["code"])
    rejects = responses & (codes > 0)
    run = _Run(len(requests), 24)
    run.constant(5, where=requests)
    run.constant(_MAP | 1, where=responses)
    run.constant(0, where=responses & ~rejects)
    run.constant(1, _MAP | 2, 0, where=rejects)
    run.byte(codes, where=rejects)
    run.constant(1, where=rejects)
    run.number(payload_bytes, np.where(rejects, _TEXT, _BYTES), where=~refunds)
    return run.taken()


def _tail(rows: Columns, requests: Flags, refunds: Flags, version: CertificationVersion) -> pa.BinaryArray:
    """Return what stands behind the payload."""
    messages = ~refunds
    deadline = np.asarray(rows["deadline"])
    run = _Run(len(requests), 64)
    if version >= CYCLES_FIELDS:
        run.byte(np.where(requests, 6, np.where(refunds, 1, 5)))
        run.cycles(rows)
    else:
        run.constant(1, where=refunds)
        run.cycles(rows, where=refunds)
    run.constant(7, _MAP | 2, 0, where=requests)
    for key, name in enumerate(("call_tree_depth", "call_tree_start")):
        if key:
            run.constant(key, where=requests)
        if name in rows:
            run.number(np.asarray(rows[name]), where=requests)
        else:
            run.constant(0, where=requests)
    dated = messages & (deadline > 0)
    run.byte(np.where(requests, 8, 6), where=dated)
    run.number(deadline, where=dated)
    return run.taken()


class _Run:
    """Neighbouring short fields of many messages: bytes by row, with gaps where a message does not have one."""

    def __init__(self, length: int, width: int) -> None:
        # By column, so that a field is written at one go.
        self._bytes: Bytes = np.zeros((width, length), dtype=np.uint8)
        self._used: Flags = np.zeros((width, length), dtype=np.bool_)
        self._width = 0

    def byte(self, values: Any, where: Any = True) -> None:
        """Add a byte, one for each message."""
        self._bytes[self._width] = values
        self._used[self._width] = where
        self._width += 1

    def constant(self, *values: int, where: Any = True) -> None:
        """Add bytes that are the same for all messages."""
        for value in values:
            self.byte(value, where)

    def number(self, values: Any, major: Any = 0, where: Any = True) -> None:
        """Add a number in the shortest form: its first byte, with the type ``major``, and up to eight more."""
        values = values.astype(np.uint64)
        wide = np.searchsorted(_BOUNDS, values, side="right").astype(np.uint8)
        self.byte(major | np.where(wide == 0, values.astype(np.uint8), wide + np.uint8(23)), where)
        widest = int(wide.max(initial=0))
        if widest:
            digits = values.astype(">u8").view(np.uint8).reshape(-1, 8)
            for position in range(8 - (1 << (widest - 1)), 8):
                # Of 1, 2, 4 or 8 bytes this is one of the last 8 - position.
                least = (8 - position - 1).bit_length() + 1
                self.byte(digits[:, position], (wide >= least) & where)

    def canister(self, values: Any, where: Any = True) -> None:
        """Add the ids of canisters: eight bytes, and two that are the same for all."""
        digits = np.asarray(values).astype(">u8").view(np.uint8).reshape(-1, 8)
        for position in range(8):
            self.byte(digits[:, position], where)
        self.constant(*_ID_SUFFIX, where=where)

    def cycles(self, rows: Columns, where: Any = True) -> None:
        """Add amounts of cycles: one or two halves."""
        high = np.asarray(rows["amount_high"])
        large = high > 0
        self.byte(_MAP | (1 + large), where)
        self.constant(0, where=where)
        self.number(np.asarray(rows["amount_low"]), where=where)
        if large.any():
            self.constant(1, where=large & where)
            self.number(high, where=large & where)

    def taken(self) -> pa.BinaryArray:
        """Return the bytes in use of each message."""
        used = np.ascontiguousarray(self._used[: self._width].T)
        data = np.ascontiguousarray(self._bytes[: self._width].T)[used]
        offsets = np.zeros(len(used) + 1, dtype=np.int32)
        np.cumsum(used.sum(axis=1, dtype=np.int32), out=offsets[1:])
        return pa.BinaryArray.from_buffers(pa.binary(), len(used), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _offsets(values: pa.BinaryArray) -> npt.NDArray[np.int32]:
    if len(values) == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]


def _lengths(values: pa.BinaryArray) -> U64:
    return np.diff(_offsets(values)).astype(np.uint64)
