"""Messages and headers of streams by columns: the same bytes, digests, values and refusals as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.model.errors import InvalidInput
from causeway.model.ledger import Kind
from causeway.proofs.ic.columns import encode_stream_messages
from causeway.proofs.ic.digest_columns import ENCODED_BYTES, stream_digests
from causeway.proofs.ic.digests import labeled_digest, leaf_digest
from causeway.proofs.ic.errors import EncodeError
from causeway.proofs.ic.messages import encode_stream_message
from causeway.proofs.ic.stream_tree import index_label
from causeway.proofs.ic.versions import CertificationVersion
from tests.property.ic_messages import draw_columns, row_message

VERSIONS = list(CertificationVersion)


def digests_one_by_one(columns: dict[str, Any], indexes: Any, version: CertificationVersion) -> list[bytes]:
    return [
        labeled_digest(index_label(index), leaf_digest(encode_stream_message(row_message(columns, row), version)))
        for row, index in enumerate(indexes.tolist())
    ]


def widest(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the messages with every number as large as it may be."""
    most = {"deadline": 2**32 - 1}
    wide = ("sender", "receiver", "callback", "amount_high", "amount_low", "deadline", "call_tree_depth")
    full = {name: np.full(len(columns["kind"]), most.get(name, 2**64 - 1), dtype=np.uint64) for name in wide}
    return columns | full | {"call_tree_start": full["call_tree_depth"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_digests_of_messages_are_those_of_one_by_one(version: CertificationVersion) -> None:
    columns = draw_columns(int(version), 150, version)
    indexes = np.arange(150, dtype=np.uint64) * np.uint64(2**57 + 1)
    for given in (columns, widest(columns)):
        assert [row.tobytes() for row in stream_digests(given, indexes, version)] == digests_one_by_one(
            given, indexes, version
        )


def test_digests_over_many_pieces_and_of_messages_longer_than_a_piece() -> None:
    columns = draw_columns(5, 9_000, CertificationVersion.V25)
    long = bytes(ENCODED_BYTES * 3)
    columns["payload"] = pa.array(
        [long if row in (0, 5_000, 8_999) else value for row, value in enumerate(columns["payload"].to_pylist())],
        pa.binary(),
    )
    names = columns["method"].dictionary_decode().to_pylist()
    columns["method"] = pa.array(["m" * 2**21 if row == 4_500 else name for row, name in enumerate(names)])
    columns["kind"][[0, 4_500, 5_000]] = Kind.REQUEST
    indexes = np.arange(2**64 - 9_000, 2**64, dtype=np.uint64)
    found = stream_digests(columns, indexes)
    values = encode_stream_messages(columns)
    for row in (0, 1, 4_095, 4_096, 4_499, 4_500, 4_501, 5_000, 5_001, 8_998, 8_999):
        assert values[row].as_py() == encode_stream_message(row_message(columns, row))
        label = index_label(int(indexes[row]))
        assert found[row].tobytes() == labeled_digest(label, leaf_digest(values[row].as_py()))


def test_columns_that_are_no_messages_are_refused() -> None:
    columns = draw_columns(1, 40, CertificationVersion.V25)
    indexes = np.arange(40, dtype=np.uint64)
    with pytest.raises(ValueError, match="39 indexes and 40 messages"):
        stream_digests(columns, indexes[1:])
    late = columns["kind"].copy()
    late[39] = Kind.CONTROL
    with pytest.raises(EncodeError, match="kind 4"):
        stream_digests(columns | {"kind": late}, indexes)
    requests = np.full(40, Kind.REQUEST, dtype=np.uint8)
    for name in ("method", "payload"):
        empty = pa.nulls(40, columns[name].type)
        with pytest.raises(EncodeError, match=f"has no {name}"):
            stream_digests(columns | {"kind": requests, name: empty}, indexes)
    # Where they are not encoded, they may be null.
    refunds = np.full(40, Kind.REFUND, dtype=np.uint8)
    nothing = {name: pa.nulls(40, columns[name].type) for name in ("method", "payload")}
    assert (stream_digests(columns | nothing | {"kind": refunds}, indexes) == stream_digests(
        columns | {"kind": refunds}, indexes
    )).all()  # fmt: skip


@pytest.mark.parametrize("offsets", [[0, 3, 2], [0, 9, 4], [0, -1, 4]])
def test_offsets_outside_of_a_columns_bytes_are_refused(offsets: list[int]) -> None:
    columns = draw_columns(1, 2, CertificationVersion.V25) | {"kind": np.full(2, Kind.REQUEST, dtype=np.uint8)}
    buffers = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), pa.py_buffer(bytes(4))]
    damaged = pa.BinaryArray.from_buffers(pa.binary(), 2, buffers)
    for given in (columns | {"payload": damaged}, columns | {"method": damaged}):
        with pytest.raises(InvalidInput, match="damaged"):
            stream_digests(given, np.arange(2, dtype=np.uint64))
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 3], pa.int32()), ["a", "b"], safe=False)
    with pytest.raises(InvalidInput, match="damaged"):
        stream_digests(columns | {"method": numbers}, np.arange(2, dtype=np.uint64))


TEXTS = [
    b"", b"ascii", "é€😀".encode(), b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80",
    b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2\x7f", b"\xc2\xc0",
    b"\xe0\x9f\xbf", b"\xe0\xa0", b"\xed\xa0\x80", b"\xef\xbf", b"\xef\xbf\xc0", b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"a\xe2\x82", b"\xf1\x80\x80\x41", b"\xe1\x41\x80",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_rejects_are_utf8_as_elsewhere(text: bytes) -> None:
    columns = draw_columns(1, 1, CertificationVersion.V25) | {
        "kind": np.full(1, Kind.RESPONSE, dtype=np.uint8),
        "code": np.ones(1, dtype=np.uint8),
        "payload": pa.array([text], pa.binary()),
    }
    try:
        text.decode()
    except UnicodeDecodeError:
        with pytest.raises(EncodeError, match="UTF-8"):
            encode_stream_messages(columns)
    else:
        assert encode_stream_messages(columns).to_pylist() == [encode_stream_message(row_message(columns, 0))]
