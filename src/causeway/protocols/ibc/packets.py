"""Values of queues' entries: packets, receipts, heads and tails; calls of programs.

See IBC reference 2.4, plain.

The scalar functions decode untrusted bytes; the column functions encode the messages of programs in bulk. Both use one
encoding, and tests compare them.

The data of a packet is a call between programs, all numbers big-endian::

    8 bytes   number of the calling program
    8 bytes   number of the program called
    8 bytes   the caller's callback id
    16 bytes  units of value attached
    1 byte    length of the method's name
    n bytes   the method's name, UTF-8
    rest      the payload

The result of a receipt is its answer: 16 bytes of refunded units, then the payload, or the text of a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import binary_rows
from causeway_proofs.order import U64

from causeway.core.frame import Frame
from causeway.protocols.ibc.errors import IbcError, Refusal

FORM_PLAIN = 1
FORM_LIMITED = 2

NO_LIMIT = 2**64 - 1
"""A max_height or max_time that never passes."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet: type, data, and its limits of the receiving chain's height and time (ns)."""

    type: str
    data: bytes
    max_height: int = NO_LIMIT
    max_time: int = NO_LIMIT
    limited: bool = False

    def encode(self) -> bytes:
        """Return V_send; ``limited`` packets contain their limits."""
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
    """Decode a packet.

    Raises:
        IbcError: InvalidPacket, for any other bytes, even with one trailing byte.
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
    """Decode a receipt.

    Raises:
        IbcError: InvalidPacket, for any other bytes, even with one trailing byte.
    """
    if len(value) < 5 or value[0] != FORM_PLAIN:
        raise IbcError(Refusal.InvalidPacket, "a receipt begins with form 1 and a code of four bytes")
    result, offset = _block(value, 5, "result")
    if offset != len(value):
        raise IbcError(Refusal.InvalidPacket, f"{len(value) - offset} bytes after the result")
    return Receipt(int.from_bytes(value[1:5], "big", signed=True), result)


def _block(value: bytes, offset: int, name: str) -> tuple[bytes, int]:
    """Return the bytes at ``offset`` after their four-byte length, and the next offset."""
    start = offset + 4
    length = int.from_bytes(value[offset:start], "big")
    if start > len(value) or start + length > len(value):
        raise IbcError(Refusal.InvalidPacket, f"{name} ends before its length")
    return value[start : start + length], start + length


def encode_position(index: int) -> bytes:
    """Return the value of a queue's head or tail."""
    return index.to_bytes(8, "big")


def decode_position(value: bytes) -> int:
    """Decode a queue's head or tail.

    Raises:
        IbcError: InvalidPacket, unless it has 8 bytes.
    """
    if len(value) != 8:
        raise IbcError(Refusal.InvalidPacket, f"a head or tail has 8 bytes, this has {len(value)}")
    return int.from_bytes(value, "big")


def packet_column(
    types: pa.DictionaryArray, data: pa.BinaryArray, max_height: U64 | None = None, max_time: U64 | None = None
) -> pa.BinaryArray:
    """Return V_send of each packet.

    Args:
        types: The names of types.
        data: The data.
        max_height: The limits of height; with limits, packets have form 2.
        max_time: The limits of time (ns); given if ``max_height`` is.
    """
    if max_height is None or max_time is None:
        form = bytes([FORM_PLAIN])
        names = [form + len(name).to_bytes(4, "big") + name for name in _names(types)]
        return _joined(_names_column(names, types), _lengths(data), data)
    limits = np.stack([max_height, max_time], axis=1).astype(">u8").view(np.uint8).reshape(len(data), 16)
    form_column = np.full((len(data), 1), FORM_LIMITED, dtype=np.uint8)
    names = [len(name).to_bytes(4, "big") + name for name in _names(types)]
    head = binary_rows(np.concatenate([form_column, limits], axis=1))
    return _joined(head, _names_column(names, types), _lengths(data), data)


def receipt_column(codes: npt.NDArray[np.integer], results: pa.BinaryArray) -> pa.BinaryArray:
    """Return V_receipt of each result."""
    head = np.empty((len(results), 9), dtype=np.uint8)
    head[:, 0] = FORM_PLAIN
    head[:, 1:5] = np.ascontiguousarray(codes).astype(">i4").view(np.uint8).reshape(-1, 4)
    head[:, 5:9] = binary_lengths(results).astype(">u4").view(np.uint8).reshape(-1, 4)
    return _joined(binary_rows(head), results)


def binary_lengths(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Return the length of each value in bytes, int64."""
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return np.diff(offsets).astype(np.int64)


def _names(types: pa.DictionaryArray) -> list[bytes]:
    return [name.as_py().encode() for name in types.dictionary]


def _names_column(names: list[bytes], types: pa.DictionaryArray) -> pa.BinaryArray:
    return pa.array(names, pa.binary()).take(types.indices)


def _lengths(data: pa.BinaryArray) -> pa.BinaryArray:
    return binary_rows(binary_lengths(data).astype(">u4").view(np.uint8).reshape(len(data), 4))


def _joined(*parts: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


CALL_BYTES = 41
ANSWER_BYTES = 16
MAX_METHOD_BYTES = 255
WORD = 2**64


def call_column(messages: Frame) -> pa.BinaryArray:
    """Return the packet data of each request; methods' names have at most 255 bytes."""
    method = messages["method"]
    names = method.dictionary.cast(pa.binary())
    lengths = np.array([len(name.as_py()) for name in names], dtype=np.int64)  # unused names may be longer
    codes = method.indices.to_numpy(zero_copy_only=False)
    fixed = np.empty((len(messages), CALL_BYTES), dtype=np.uint8)
    words = ("sender", "receiver", "callback", "amount_high", "amount_low")
    for offset, name in enumerate(words):
        fixed[:, 8 * offset : 8 * offset + 8] = _words(messages[name])
    fixed[:, CALL_BYTES - 1] = lengths[codes].astype(np.uint8) if len(lengths) else 0
    return pc.binary_join_element_wise(
        binary_rows(fixed), names.take(method.indices), messages["payload"], pa.scalar(b"", pa.binary())
    )


WITHOUT_RESULT = (1, 2)
"""Receipt codes with an empty result, which refund everything: unknown type, timeout.

Reference:
    IBC reference 3.3.
"""


def answer_column(messages: Frame) -> pa.BinaryArray:
    """Return the receipt result of each response."""
    fixed = np.empty((len(messages), ANSWER_BYTES), dtype=np.uint8)
    fixed[:, :8] = _words(messages["amount_high"])
    fixed[:, 8:] = _words(messages["amount_low"])
    results = pc.binary_join_element_wise(binary_rows(fixed), messages["payload"], pa.scalar(b"", pa.binary()))
    empty = is_empty_result(messages["code"])
    return pc.if_else(pa.array(empty), pa.scalar(b"", pa.binary()), results) if empty.any() else results


def is_empty_result(codes: Any) -> Any:
    """Return a mask of the receipt codes with an empty result."""
    return (codes == WITHOUT_RESULT[0]) | (codes == WITHOUT_RESULT[1])


def decode_call(data: bytes) -> dict[str, Any]:
    """Decode the data of a packet to the message columns of one request.

    Raises:
        IbcError: InvalidPacket, if the data is truncated, or the method is not UTF-8.
    """
    if len(data) < CALL_BYTES or len(data) < CALL_BYTES + data[CALL_BYTES - 1]:
        raise IbcError(Refusal.InvalidPacket, f"data of {len(data)} bytes ends within a call")
    end = CALL_BYTES + data[CALL_BYTES - 1]
    try:
        method = data[CALL_BYTES:end].decode()
    except UnicodeDecodeError:
        raise IbcError(Refusal.InvalidPacket, f"method {data[CALL_BYTES:end].hex()} is not UTF-8") from None
    numbers = [int.from_bytes(data[offset : offset + 8], "big") for offset in range(0, 40, 8)]
    names = ("sender", "receiver", "callback", "amount_high", "amount_low")
    return {**dict(zip(names, numbers, strict=True)), "method": method, "payload": data[end:]}


def decode_answer(result: bytes) -> tuple[int, int, bytes]:
    """Decode the result of a receipt to the upper and lower word of the refund, and the payload.

    Raises:
        IbcError: InvalidPacket, if there are fewer than 16 bytes.
    """
    if len(result) < ANSWER_BYTES:
        raise IbcError(Refusal.InvalidPacket, f"a result of {len(result)} bytes ends within its refund")
    high, low = int.from_bytes(result[:8], "big"), int.from_bytes(result[8:16], "big")
    return high, low, result[16:]


def _words(column: Any) -> Any:
    return np.ascontiguousarray(column).astype(">u8").view(np.uint8).reshape(len(column), 8)
