"""What Causeway's programs put into packets and receipts: a call between programs, and its answer.

Data of a packet, all numbers big-endian::

    8 bytes   number of the calling program
    8 bytes   number of the program called
    8 bytes   the caller's callback id
    16 bytes  units of value attached
    1 byte    length of the method's name
    n bytes   the method's name, UTF-8
    rest      the payload

Result of a receipt: 16 bytes of units that come back, then the payload of the answer, or the text of a refusal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame
from causeway.proofs.hashing import binary_rows
from causeway.protocols.ibc.errors import IbcError, Refusal

CALL_BYTES = 41
ANSWER_BYTES = 16
MAX_METHOD_BYTES = 255
WORD = 2**64


def call_column(messages: Frame) -> pa.BinaryArray:
    """Return the data of a packet for each request; no method's name has more than 255 bytes."""
    method = messages["method"]
    names = method.dictionary.cast(pa.binary())
    lengths = np.array([len(name.as_py()) for name in names], dtype=np.int64)  # longer ones may stand there unused
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
"""Codes of receipts whose result is empty: unknown type, timed out (IBC reference 3.3). Everything comes back."""


def answer_column(messages: Frame) -> pa.BinaryArray:
    """Return the result of a receipt for each response."""
    fixed = np.empty((len(messages), ANSWER_BYTES), dtype=np.uint8)
    fixed[:, :8] = _words(messages["amount_high"])
    fixed[:, 8:] = _words(messages["amount_low"])
    results = pc.binary_join_element_wise(binary_rows(fixed), messages["payload"], pa.scalar(b"", pa.binary()))
    empty = without_result(messages["code"])
    return pc.if_else(pa.array(empty), pa.scalar(b"", pa.binary()), results) if empty.any() else results


def without_result(codes: Any) -> Any:
    """Return which receipts, by their codes, have an empty result."""
    return (codes == WITHOUT_RESULT[0]) | (codes == WITHOUT_RESULT[1])


def decode_call(data: bytes) -> dict[str, Any]:
    """Return the message columns that a packet's data gives, of one request.

    Raises:
        IbcError: InvalidPacket, when the data is shorter than it says, or the method is no UTF-8.
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
    """Return the upper and lower word of what comes back, and the payload.

    Raises:
        IbcError: InvalidPacket, when there are fewer than 16 bytes.
    """
    if len(result) < ANSWER_BYTES:
        raise IbcError(Refusal.InvalidPacket, f"a result of {len(result)} bytes ends within its refund")
    high, low = int.from_bytes(result[:8], "big"), int.from_bytes(result[8:16], "big")
    return high, low, result[16:]


def _words(column: Any) -> Any:
    return np.ascontiguousarray(column).astype(">u8").view(np.uint8).reshape(len(column), 8)
