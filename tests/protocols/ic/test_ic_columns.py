"""Columns of stream messages: bytes, digests, values and rejections equal the scalar form."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, OverLimit
from causeway_proofs.ic.digest_columns import ENCODED_BYTES, stream_digests
from causeway_proofs.ic.errors import EncodeError, NotInColumns
from causeway_proofs.ic.hash_tree import labeled_digest, leaf_digest
from causeway_proofs.ic.messages import (
    Data,
    RequestMetadata,
    StreamMessage,
    StreamRefund,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
    encode_stream_message,
)
from causeway_proofs.ic.packed_cbor import MAX_ITEM_BYTES
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.stream_columns import decode_stream_messages, encode_stream_messages
from causeway_proofs.ic.stream_tree import index_label

from causeway.core.vocabulary import Kind
from tests.fuzz.mutations import mutations
from tests.support.ic.ic_messages import canister, draw_columns, one_by_one, row_message
from tests.tiers import sized

VERSIONS = list(CertificationVersion)
HERE = canister(7)


def digests_one_by_one(columns: dict[str, Any], indexes: Any, version: CertificationVersion) -> list[bytes]:
    return [
        labeled_digest(index_label(index), leaf_digest(encode_stream_message(row_message(columns, row), version)))
        for row, index in enumerate(indexes.tolist())
    ]


def maximum_messages(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the messages with maximum numbers."""
    most = {"deadline": 2**32 - 1}
    wide = ("sender", "receiver", "callback", "amount_high", "amount_low", "deadline", "call_tree_depth")
    full = {name: np.full(len(columns["kind"]), most.get(name, 2**64 - 1), dtype=np.uint64) for name in wide}
    return columns | full | {"call_tree_start": full["call_tree_depth"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_message_digests_equal_scalar_ones(version: CertificationVersion) -> None:
    columns = draw_columns(int(version), 150, version)
    indexes = np.arange(150, dtype=np.uint64) * np.uint64(2**57 + 1)
    for given in (columns, maximum_messages(columns)):
        assert [row.tobytes() for row in stream_digests(given, indexes, version)] == digests_one_by_one(
            given, indexes, version
        )


def test_digests_over_many_chunks_and_of_messages_longer_than_a_chunk() -> None:
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


def test_columns_other_than_messages_are_rejected() -> None:
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
    # Unencoded fields may be null.
    refunds = np.full(40, Kind.REFUND, dtype=np.uint8)
    nothing = {name: pa.nulls(40, columns[name].type) for name in ("method", "payload")}
    assert (stream_digests(columns | nothing | {"kind": refunds}, indexes) == stream_digests(
        columns | {"kind": refunds}, indexes
    )).all()  # fmt: skip


@pytest.mark.parametrize("offsets", [[0, 3, 2], [0, 9, 4], [0, -1, 4]])
def test_offsets_outside_a_columns_bytes_are_rejected(offsets: list[int]) -> None:
    columns = draw_columns(1, 2, CertificationVersion.V25) | {"kind": np.full(2, Kind.REQUEST, dtype=np.uint8)}
    buffers = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), pa.py_buffer(bytes(4))]
    damaged = pa.BinaryArray.from_buffers(pa.binary(), 2, buffers)
    for given in (columns | {"payload": damaged}, columns | {"method": damaged}):
        with pytest.raises(InvalidInput, match="damaged"):
            stream_digests(given, np.arange(2, dtype=np.uint64))
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 3], pa.int32()), ["a", "b"], safe=False)
    with pytest.raises(InvalidInput, match="damaged"):
        stream_digests(columns | {"method": numbers}, np.arange(2, dtype=np.uint64))


def decoded_messages(values: list[bytes], version: CertificationVersion) -> list[Any]:
    """Return each message, or kind and text of its error, decoded by columns."""
    found = decode_stream_messages(pa.array(values, pa.binary()), version)
    shown = found.columns | {"method": found.columns["method"].dictionary_decode()}
    rows: list[Any] = []
    for row in range(len(values)):
        error = found.errors.get(row)
        if error is None:
            rows.append(row_message(shown, row))
        else:
            assert not any(int(column[row]) for name, column in shown.items() if name not in ("method", "payload"))
            assert (shown["method"][row].as_py(), shown["payload"][row].as_py()) == ("", b"")
            rows.append((type(error), str(error)))
    return rows


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_equal_scalar_decoding(version: CertificationVersion) -> None:
    columns = draw_columns(int(version), 150, version)
    columns |= {name: columns["callback"] >> np.uint64(3) for name in ("call_tree_depth", "call_tree_start")}
    for given in (columns, maximum_messages(columns)):
        encoded = encode_stream_messages(given, version)
        messages = [row_message(given, row) for row in range(150)]
        assert decoded_messages(encoded.to_pylist(), version) == messages
        found = decode_stream_messages(encoded, version).columns
        assert encode_stream_messages(found, version).equals(encoded)
        assert {name: found[name].dtype for name in ("kind", "code", "deadline", "sender")} == {
            "kind": np.uint8, "code": np.uint8, "deadline": np.uint32, "sender": np.uint64,
        }  # fmt: skip
        assert found["method"].type == pa.dictionary(pa.int32(), pa.string())
        part = decode_stream_messages(encoded[140:], version).columns
        assert part["payload"].equals(found["payload"][140:])


@pytest.mark.parametrize("count", [10_000, pytest.param(sized(30_000, 100_000), marks=pytest.mark.slow)])
def test_altered_messages_have_scalar_verdicts(count: int) -> None:
    for version in (CertificationVersion.V19, CertificationVersion.V22, CertificationVersion.V25):
        columns = draw_columns(7, 40, version)
        columns["payload"] = pa.array([value[:30] for value in columns["payload"].to_pylist()], pa.binary())
        seeds = encode_stream_messages(columns, version).to_pylist()
        values = seeds + list(mutations(seeds, count // 3, Random(count)))
        found = decoded_messages(values, version)
        expected = one_by_one(decode_stream_message, values, version)
        outside = [row for row, one in enumerate(found) if isinstance(one, tuple) and one[0] is NotInColumns]
        assert [expected[row] for row in outside] == [one for one in expected if not in_columns(one)]
        assert [one for row, one in enumerate(found) if row not in set(outside)] == [
            one for one in expected if in_columns(one)
        ]


def near_valid_messages(version: CertificationVersion) -> list[bytes]:
    """Return messages and variants with one error: extra fields, defaults, numbers out of range."""
    funds = {0: {0: 1, 1: 2}}
    early = version < CertificationVersion.V23
    ids: dict[int, Any] = {0: HERE, 1: HERE, 2: 3} | ({3: funds} if early else {})
    cycles: dict[int, Any] = {} if early else funds[0]
    request = ids | {4: "name", 5: b"p"} | ({} if early else {6: cycles}) | {7: {0: 4, 1: 5}, 8: 6}
    reject = ids | {4: {1: {0: 1, 1: "text"}}} | ({} if early else {5: cycles}) | {6: 7}
    refund: dict[int, Any] = {0: HERE, 1: {0: 5, 1: 6}}
    amount = {3: {0: {0: 1, 1: 0}}} if early else {6: {0: 1, 1: 0}}
    requests = [
        request, request | {8: 2**32 - 1}, request | {8: 2**32}, request | {8: 0}, request | amount, request | {9: 1},
        request | {7: {0: 4, 1: 5, 2: 6}}, request | {7: {0: 4}}, request | {7: {1: 4}}, request | {7: {}},
        request | {3: {0: {0: 1}, 1: 0}}, request | {6: {0: 1, 1: 1, 2: 1}}, request | {3: {}}, request | {4: b"name"},
        request | {5: "p"}, request | {2: -1}, request | {2: 2**64}, request | {0: "text"}, ids, {},
    ]  # fmt: skip
    responses = [
        reject, reject | {6: 2**32 - 1}, reject | {6: 2**32}, reject | {6: 0}, reject | {7: 1},
        *(reject | {4: {1: {0: code, 1: "text"}}} for code in (0, 6, 7, 24, 256)),
        reject | {4: {1: {0: 1, 1: b"text"}}},
        reject | {4: {1: {0: 1, 1: "text", 2: 0}}}, reject | {4: {0: b"", 1: {0: 1, 1: "text"}}}, reject | {4: {}},
        reject | {4: {0: "data"}}, reject | {4: {1: {0: 1}}}, reject | {4: {2: b""}}, reject | {4: {0: b"data"}},
        reject | {3 if early else 5: {0: 1, 1: 0}},
    ]  # fmt: skip
    refunds: list[dict[int, Any]] = [
        refund,
        refund | {1: {0: 5, 1: 0}},
        refund | {1: {1: 5}},
        refund | {2: 1},
        {0: HERE},
    ]
    groups: list[list[dict[int, Any]]] = [requests, responses, refunds]
    items: list[Any] = [
        *({kind: item} for kind, group in enumerate(groups) for item in group),
        {}, {3: refund}, {0: request, 1: reject}, [request], request,
    ]  # fmt: skip
    encoded = [cbor2.dumps(item) for item in items]
    return (
        encoded
        + [value + b"\x00" for value in encoded[:1]]
        + [value[:end] for value in encoded[:1] for end in range(90)]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_near_valid_messages_have_scalar_verdicts(version: CertificationVersion) -> None:
    values = near_valid_messages(version)
    expected = one_by_one(decode_stream_message, values, version)
    found = decoded_messages(values, version)
    for row, one in enumerate(expected):
        assert found[row] == one if in_columns(one) else found[row][0] is NotInColumns, values[row].hex()
    assert sum(not isinstance(one, tuple) for one in found) >= 5


def in_columns(message: Any) -> bool:
    """Return whether a message fits into columns, or is none."""
    match message:
        case StreamRequest(receiver, sender, metadata=RequestMetadata(depth, start)):
            return depth is not None and start is not None and ten_bytes(receiver) and ten_bytes(sender)
        case StreamRequest():
            return False
        case StreamResponse(originator, respondent):
            return ten_bytes(originator) and ten_bytes(respondent)
        case StreamRefund(recipient):
            return ten_bytes(recipient)
    return True


def ten_bytes(principal: bytes) -> bool:
    return len(principal) == 10 and principal[8:] == b"\x01\x01"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (StreamRequest(b"", HERE, 0, 0, "", b""), "Request: receiver: .*, not ''"),
        (StreamRequest(HERE, HERE[:8] + b"\x01\x02", 0, 0, "", b""), "Request: sender: .*, not '00000000000000070102'"),
        (StreamRequest(HERE, HERE, 0, 0, "", b"", None), "call tree|left out"),
        (StreamRequest(HERE, HERE, 0, 0, "", b"", RequestMetadata(None, 0)), "left out"),
        (StreamRequest(HERE, HERE, 0, 0, "", b"", RequestMetadata(0, None)), "left out"),
        (StreamResponse(bytes(29), HERE, 0, 0, Data(b"")), "Response: originator"),
        (StreamResponse(HERE, HERE + b"\x01", 0, 0, Data(b"")), "Response: respondent"),
        (StreamRefund(HERE[1:], 0), "Refund: recipient: columns have ids of canisters of eight bytes and 0101"),
    ],
)
def test_messages_not_representable_in_columns_are_named(message: StreamMessage, text: str) -> None:
    good = encode_stream_message(StreamRefund(HERE, 5))
    found = decode_stream_messages(pa.array([good, encode_stream_message(message), good], pa.binary()))
    assert found.columns["amount_low"].tolist() == [5, 0, 5]
    assert list(found.errors) == [1]
    assert isinstance(found.errors[1], NotInColumns)
    assert re.search(text, str(found.errors[1]))


def test_corrupted_message_columns_are_rejected() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 9, 4], dtype=np.int32)), pa.py_buffer(bytes(4))]
    with pytest.raises(InvalidInput, match="damaged"):
        decode_stream_messages(pa.BinaryArray.from_buffers(pa.binary(), 2, buffers))
    with pytest.raises(InvalidInput, match="null"):
        decode_stream_messages(pa.array([None], pa.binary()))
    long = encode_stream_message(StreamResponse(HERE, HERE, 0, 0, Data(bytes(MAX_ITEM_BYTES))))
    assert [type(error) for error in decode_stream_messages(pa.array([long])).errors.values()] == [OverLimit]
    empty = decode_stream_messages(pa.array([], pa.binary())).columns
    assert {len(column) for column in empty.values()} == {0}


TEXTS = [
    b"", b"ascii", "é€😀".encode(), b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80",
    b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2\x7f", b"\xc2\xc0",
    b"\xe0\x9f\xbf", b"\xe0\xa0", b"\xed\xa0\x80", b"\xef\xbf", b"\xef\xbf\xc0", b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"a\xe2\x82", b"\xf1\x80\x80\x41", b"\xe1\x41\x80",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_reject_texts_are_validated_as_utf8(text: bytes) -> None:
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
        (encoded,) = encode_stream_messages(columns).to_pylist()
        assert encoded == encode_stream_message(row_message(columns, 0))
        assert decoded_messages([encoded], CertificationVersion.V25) == [row_message(columns, 0)]


@pytest.mark.parametrize("text", TEXTS)
def test_methods_are_validated_as_utf8(text: bytes) -> None:
    encoded = encode_stream_message(StreamRequest(HERE, HERE, 1, 1, "m" * len(text), b"")).replace(
        b"m" * len(text), text
    )
    version = CertificationVersion.V25
    assert decoded_messages([encoded], version) == one_by_one(decode_stream_message, [encoded], version)
