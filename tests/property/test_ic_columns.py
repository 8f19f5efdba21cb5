"""Messages and headers of streams by columns: the same bytes, digests, values and refusals as one by one."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.model.errors import InvalidInput
from causeway.model.ledger import Kind
from causeway.proofs.errors import OverLimit, ProofError
from causeway.proofs.ic.columns import encode_stream_messages
from causeway.proofs.ic.digest_columns import ENCODED_BYTES, stream_digests
from causeway.proofs.ic.digests import labeled_digest, leaf_digest
from causeway.proofs.ic.errors import EncodeError
from causeway.proofs.ic.header_columns import decode_stream_headers, encode_stream_headers
from causeway.proofs.ic.messages import encode_stream_message
from causeway.proofs.ic.stream_header import (
    MAX_HEADER_BYTES,
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
    reasons_of,
)
from causeway.proofs.ic.stream_tree import index_label
from causeway.proofs.ic.versions import CertificationVersion
from tests.fuzz.mutations import mutations
from tests.property.ic_messages import draw_columns, row_message

VERSIONS = list(CertificationVersion)
BOUNDS = ("begin", "end", "signals_end")


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


def header_columns(headers: list[StreamHeader]) -> dict[str, Any]:
    """Return headers as their encoder takes them."""
    signals = [(row, signal) for row, header in enumerate(headers) for signal in header.reject_signals]
    return {
        **{name: np.array([getattr(header, name) for header in headers], dtype=np.uint64) for name in BOUNDS},
        "reject_row": np.array([row for row, _ in signals], dtype=np.int64),
        "reject_index": np.array([signal.index for _, signal in signals], dtype=np.uint64),
        "reject_reason": np.array([signal.reason for _, signal in signals], dtype=np.uint8),
    }


def draw_headers(seed: int, count: int, version: CertificationVersion) -> list[StreamHeader]:
    """Return headers with numbers of every length, up to the largest ones, and signals from near and far."""
    random = Random(seed)

    def number() -> int:
        return random.choice((2**64 - 1, random.getrandbits(64) >> random.randrange(64)))

    drawn = []
    for row in range(count):
        end = number()
        span = min(end, random.choice((10, 1 << 20, 1 << 63)))
        indices = {end - 1 - random.randrange(span) for _ in range(random.choice((0, 1, 5, 40)))} if span else set()
        reasons = random.sample(reasons_of(version), random.choice((1, 2, len(reasons_of(version)))))
        signals = tuple(RejectSignal(index, random.choice(reasons)) for index in sorted(indices))
        drawn.append(StreamHeader(number(), number(), end, signals, StreamFlags(row % 5 == 0)))
    return drawn


def decoded_headers(values: list[bytes], version: CertificationVersion) -> list[Any]:
    """Return each header, or the kind and text of its error, as they are decoded by columns."""
    found = decode_stream_headers(pa.array(values, pa.binary()), version)
    edges = np.searchsorted(found.reject_row, np.arange(len(values) + 1))
    rows: list[Any] = []
    for row in range(len(values)):
        part = slice(edges[row], edges[row + 1])
        given = zip(found.reject_index[part].tolist(), found.reject_reason[part].tolist(), strict=True)
        signals = tuple(RejectSignal(index, RejectReason(reason)) for index, reason in given)
        bounds = (int(found.begin[row]), int(found.end[row]), int(found.signals_end[row]))
        header = StreamHeader(*bounds, signals, StreamFlags(found.flags[row]))
        assert header.reject_signals == signals
        error = found.errors.get(row)
        assert error is None or header == StreamHeader(0, 0, 0)
        rows.append(header if error is None else (type(error), str(error)))
    return rows


def one_by_one(decode: Any, values: list[bytes], version: CertificationVersion) -> list[Any]:
    """Return what each value is decoded to, or the kind and text of its error."""
    rows = []
    for value in values:
        try:
            rows.append(decode(value, version))
        except ProofError as error:
            rows.append((type(error), str(error)))
    return rows


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_are_those_of_one_by_one(version: CertificationVersion) -> None:
    headers = draw_headers(int(version), 200, version)
    values = [encode_stream_header(header, version) for header in headers]
    assert decoded_headers(values, version) == headers
    bare = [replace(header, flags=StreamFlags(0)) for header in headers]
    expected = [encode_stream_header(header, version) for header in bare]
    assert encode_stream_headers(**header_columns(bare), version=version).to_pylist() == expected


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_changed_headers_have_the_verdicts_of_one_by_one(count: int) -> None:
    for version in (CertificationVersion.V19, CertificationVersion.V26):
        seeds = [encode_stream_header(header, version) for header in draw_headers(7, 60, version)]
        values = seeds + list(mutations(seeds, count // 2, Random(count)))
        assert decoded_headers(values, version) == one_by_one(decode_stream_header, values, version)


@pytest.mark.parametrize(
    ("given", "signals"),
    [
        ({"reject_index": [3, 9]}, [(3, RejectReason.QueueFull), (9, RejectReason.Unknown)]),
        ({"reject_index": [3, 3]}, [(3, RejectReason.QueueFull), (3, RejectReason.Unknown)]),
        ({"reject_reason": [8, 7]}, [(3, RejectReason.EngineNotAllowed), (4, RejectReason.Unknown)]),
        ({"reject_reason": [0, 7]}, [(3, 0), (4, RejectReason.Unknown)]),
        ({"reject_reason": [5, 9]}, [(3, RejectReason.QueueFull), (4, 9)]),
    ],
)
def test_headers_without_an_encoding_are_refused_as_one_by_one(
    given: dict[str, list[int]], signals: list[tuple[int, Any]]
) -> None:
    columns = TWO | {name: [*TWO[name][:2].tolist(), *second] for name, second in given.items()}
    with pytest.raises(EncodeError) as one:
        encode_stream_header(StreamHeader(1, 2, 9, tuple(RejectSignal(*signal) for signal in signals)))
    with pytest.raises(EncodeError) as many:
        encode_stream_headers(**columns)
    assert str(one.value) == str(many.value)


TWO = header_columns(
    [StreamHeader(1, 2, 9, (RejectSignal(3, RejectReason.QueueFull), RejectSignal(4, RejectReason.Unknown)))] * 2
)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"reject_index": [3, 4, 4, 3]}, ValueError, "header 1 must be in ascending order"),
        ({"reject_row": [1, 1, 0, 0]}, ValueError, "in the order of their headers"),
        ({"reject_row": [0, 0, 1]}, ValueError, "reject signals have 3 rows"),
        ({"reject_row": [0, 0, 1, 2]}, InvalidInput, "reject_row must be from 0 to 1"),
        ({"reject_row": [-1, 0, 1, 1]}, InvalidInput, "reject_row must be from 0 to 1"),
        ({"begin": [1]}, ValueError, "1, 2, 2 rows"),
        ({"end": [1, -1]}, InvalidInput, "end must be from 0"),
    ],
)
def test_columns_that_are_no_headers_are_refused(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        encode_stream_headers(**(TWO | given))


def test_columns_of_headers_that_are_damaged_are_refused() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 9, 4], dtype=np.int32)), pa.py_buffer(bytes(4))]
    with pytest.raises(InvalidInput, match="damaged"):
        decode_stream_headers(pa.BinaryArray.from_buffers(pa.binary(), 2, buffers))
    with pytest.raises(InvalidInput, match="null"):
        decode_stream_headers(pa.array([b"", None]))
    long = encode_stream_header(StreamHeader(1, 2, 3)) + bytes(MAX_HEADER_BYTES)
    assert [type(error) for error in decode_stream_headers(pa.array([long])).errors.values()] == [OverLimit]
    part = pa.array([b"", encode_stream_header(StreamHeader(1, 2, 3))], pa.binary()).slice(1)
    assert decode_stream_headers(part).end.tolist() == [2]
    assert len(decode_stream_headers(pa.array([], pa.binary())).begin) == 0


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
