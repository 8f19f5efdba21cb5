"""Messages of streams read into columns: the verdicts of ``decode_stream_message``, many at once (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.proofs.errors import ProofError
from causeway.proofs.ic.byte_columns import binary_array, encodings_of, refusal
from causeway.proofs.ic.cbor import MAX_ITEM_BYTES
from causeway.proofs.ic.errors import NotInColumns
from causeway.proofs.ic.messages import Refund, Request, StreamMessage, decode_stream_message
from causeway.proofs.ic.versions import CURRENT, CYCLES_FIELDS, REFUNDS, CertificationVersion

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
"""In the order of the rows of the loop's matrix."""

_ID_SUFFIX = b"\x01\x01"
_ID_BYTES = 10


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    """Messages that were read; of one that is refused every column has 0, or nothing.

    Attributes:
        columns: as ``Columns`` says, all of them; ``method`` is dictionary-encoded text (int32).
        errors: why a message is refused, by its row, ascending; ``str`` of it is the text.
    """

    columns: dict[str, Any]
    errors: dict[int, ProofError]


def decode_stream_messages(values: pa.BinaryArray, version: CertificationVersion = CURRENT) -> DecodedMessages:
    """Return the messages that ``values`` encode, and why the others are refused: as ``decode_stream_message`` does.

    Beside those, ``NotInColumns`` refuses what columns have no row for: ids of canisters that are not eight bytes and
    01 01, and requests without both numbers of the call tree.

    Raises:
        InvalidInput: the column's offsets do not lie in its bytes, or it holds a null.
    """
    from causeway.proofs.ic import message_read_loops as loops

    given = encodings_of(values, "messages")
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
    errors = {row: _refusal(values[row].as_py(), version) for row in np.flatnonzero(refused).tolist()}
    return DecodedMessages(columns, errors)


def _refusal(data: bytes, version: CertificationVersion) -> ProofError:
    """Return why a message is refused that the loop has not read."""
    return refusal(_decode_into_columns, data, version)


def _decode_into_columns(data: bytes, version: CertificationVersion) -> None:
    """Refuse ``data`` if it is no message, or one that columns have no row for."""
    message = decode_stream_message(data, version)
    for name, principal in _ids(message):
        if len(principal) != _ID_BYTES or not principal.endswith(_ID_SUFFIX):
            raise NotInColumns(
                f"{name}: columns have ids of canisters of eight bytes and {_ID_SUFFIX.hex()}, not {principal.hex()!r}"
            )
    if isinstance(message, Request):
        tree = message.metadata
        if tree is None or tree.call_tree_depth is None or tree.call_tree_start_time_nanos is None:
            raise NotInColumns("Request: metadata: columns have both of its numbers, of which one is left out")


def _ids(message: StreamMessage) -> list[tuple[str, bytes]]:
    """Return the ids of a message, and what they are called, in the order in which they are written."""
    if isinstance(message, Refund):
        return [("Refund: recipient", message.recipient)]
    if isinstance(message, Request):
        return [("Request: receiver", message.receiver), ("Request: sender", message.sender)]
    return [("Response: originator", message.originator), ("Response: respondent", message.respondent)]
