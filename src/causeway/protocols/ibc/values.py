"""What lies under a queue's keys: packets, receipts, and the positions of head and tail (IBC reference 2.4, plain).

The scalar forms read what a stranger brings; the columns write what programs send by the million. Both are one
encoding: tests hold them equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.proofs.hashing import binary_rows
from causeway.protocols.ibc.errors import IbcError, Refusal

FORM_PLAIN = 1
FORM_LIMITED = 2

NO_LIMIT = 2**64 - 1
"""A packet's max_height or max_time that never passes."""

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet: its type and data, and the receiving chain's height and time (ns) after which it has expired."""

    type: str
    data: bytes
    max_height: int = NO_LIMIT
    max_time: int = NO_LIMIT
    limited: bool = False

    def encode(self) -> bytes:
        """Return V_send; ``limited`` packets carry their limits."""
        head = bytes([FORM_PLAIN])
        if self.limited:
            head = bytes([FORM_LIMITED]) + self.max_height.to_bytes(8, "big") + self.max_time.to_bytes(8, "big")
        kind = self.type.encode()
        return head + len(kind).to_bytes(4, "big") + kind + len(self.data).to_bytes(4, "big") + self.data


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a packet: ``code`` 0 = success; the result may be empty."""

    code: int
    result: bytes

    def encode(self) -> bytes:
        """Return V_receipt."""
        code = self.code.to_bytes(4, "big", signed=True)
        return bytes([FORM_PLAIN]) + code + len(self.result).to_bytes(4, "big") + self.result


def decode_packet(value: bytes) -> Packet:
    """Return the packet that ``value`` encodes.

    Raises:
        IbcError: InvalidPacket, for anything else, also with a byte too many.
    """
    form = value[0] if value else 0
    offset = {FORM_PLAIN: 1, FORM_LIMITED: 17}.get(form, 0)
    if not offset or len(value) < offset:
        raise IbcError(
            Refusal.InvalidPacket, f"a packet begins with form 1 or 2, this with {value[:1].hex() or 'nothing'}"
        )
    kind, offset = _block(value, offset, "type")
    data, offset = _block(value, offset, "data")
    if offset != len(value):
        raise IbcError(Refusal.InvalidPacket, f"{len(value) - offset} bytes after the data")
    try:
        name = kind.decode("ascii")
    except UnicodeDecodeError:
        raise IbcError(Refusal.InvalidPacket, f"type {kind[:64].hex()} is not ASCII") from None
    if form == FORM_PLAIN:
        return Packet(name, data)
    return Packet(name, data, int.from_bytes(value[1:9], "big"), int.from_bytes(value[9:17], "big"), True)


def decode_receipt(value: bytes) -> Receipt:
    """Return the receipt that ``value`` encodes.

    Raises:
        IbcError: InvalidPacket, for anything else, also with a byte too many.
    """
    if len(value) < 5 or value[0] != FORM_PLAIN:
        raise IbcError(Refusal.InvalidPacket, "a receipt begins with form 1 and a code of four bytes")
    result, offset = _block(value, 5, "result")
    if offset != len(value):
        raise IbcError(Refusal.InvalidPacket, f"{len(value) - offset} bytes after the result")
    return Receipt(int.from_bytes(value[1:5], "big", signed=True), result)


def _block(value: bytes, offset: int, what: str) -> tuple[bytes, int]:
    """Return the bytes at ``offset`` that their length in four bytes precedes, and the offset after them."""
    start = offset + 4
    length = int.from_bytes(value[offset:start], "big")
    if start > len(value) or start + length > len(value):
        raise IbcError(Refusal.InvalidPacket, f"{what} ends before its length")
    return value[start : start + length], start + length


def encode_position(index: int) -> bytes:
    """Return the value of a queue's head or tail."""
    return index.to_bytes(8, "big")


def decode_position(value: bytes) -> int:
    """Return the head or tail that ``value`` encodes.

    Raises:
        IbcError: InvalidPacket, unless it has 8 bytes.
    """
    if len(value) != 8:
        raise IbcError(Refusal.InvalidPacket, f"a head or tail has 8 bytes, this has {len(value)}")
    return int.from_bytes(value, "big")


def packet_column(
    types: pa.DictionaryArray, data: pa.BinaryArray, max_height: U64 | None = None, max_time: U64 | None = None
) -> pa.BinaryArray:
    """Return V_send of each packet. ``types``: n names; with limits, of which both or none are given, in form 2."""
    if max_height is None or max_time is None:
        form = bytes([FORM_PLAIN])
        names = [form + len(name).to_bytes(4, "big") + name for name in _names(types)]
        return _joined(_chosen(names, types), _lengths(data), data)
    limits = np.stack([max_height, max_time], axis=1).astype(">u8").view(np.uint8).reshape(len(data), 16)
    form_column = np.full((len(data), 1), FORM_LIMITED, dtype=np.uint8)
    names = [len(name).to_bytes(4, "big") + name for name in _names(types)]
    head = binary_rows(np.concatenate([form_column, limits], axis=1))
    return _joined(head, _chosen(names, types), _lengths(data), data)


def receipt_column(codes: npt.NDArray[np.integer], results: pa.BinaryArray) -> pa.BinaryArray:
    """Return V_receipt of each result."""
    head = np.empty((len(results), 9), dtype=np.uint8)
    head[:, 0] = FORM_PLAIN
    head[:, 1:5] = np.ascontiguousarray(codes).astype(">i4").view(np.uint8).reshape(-1, 4)
    head[:, 5:9] = binary_lengths(results).astype(">u4").view(np.uint8).reshape(-1, 4)
    return _joined(binary_rows(head), results)


def binary_lengths(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the length of each value in bytes."""
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return np.diff(offsets).astype(np.int64)


def _names(types: pa.DictionaryArray) -> list[bytes]:
    return [name.as_py().encode() for name in types.dictionary]


def _chosen(names: list[bytes], types: pa.DictionaryArray) -> pa.BinaryArray:
    return pa.array(names, pa.binary()).take(types.indices)


def _lengths(data: pa.BinaryArray) -> pa.BinaryArray:
    return binary_rows(binary_lengths(data).astype(">u4").view(np.uint8).reshape(len(data), 4))


def _joined(*parts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
