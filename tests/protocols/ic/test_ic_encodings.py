"""Encodings of arbitrary values: round trips, and rejection of other bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.ic.errors import DecodeError
from causeway_proofs.ic.messages import (
    Data,
    Payload,
    RejectContext,
    RequestMetadata,
    StreamMessage,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
    encode_stream_message,
)
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.state_columns import SystemMetadata, encode_system_metadata
from causeway_proofs.ic.stream_columns import encode_in_pieces, encode_stream_messages
from causeway_proofs.ic.stream_header import (
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind
from causeway.protocols.ic.streams.payload_builder import header_lengths, message_lengths
from tests.oracles.ic.encodings import (
    SubnetMetrics,
    decode_subnet_metrics,
    decode_system_metadata,
    encode_subnet_metrics,
)
from tests.support.ic.ic_messages import draw_columns, row_message
from tests.tiers import sized

SETTINGS = settings(max_examples=sized(27, 300), deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])

VERSIONS = st.sampled_from(CertificationVersion)
U64 = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1), st.sampled_from([23, 24, 2**16, 2**32 - 1, 2**64 - 1]))
CYCLES = st.one_of(U64, st.integers(0, 2**128 - 1))
IDS = st.binary(max_size=29)
DEADLINES = st.one_of(st.just(0), st.integers(0, 2**32 - 1))
BLOBS = st.one_of(st.binary(max_size=40), st.sampled_from([bytes(255), bytes(256), bytes(70_000)]))

METADATA = st.builds(RequestMetadata, st.none() | U64, st.none() | U64)
REQUESTS = st.builds(StreamRequest, IDS, IDS, U64, CYCLES, st.text(max_size=30), BLOBS, st.none() | METADATA, DEADLINES)
PAYLOADS: st.SearchStrategy[Payload] = st.one_of(
    st.builds(Data, BLOBS), st.builds(RejectContext, st.sampled_from(StreamRejectCode), st.text(max_size=30))
)
RESPONSES = st.builds(StreamResponse, IDS, IDS, U64, CYCLES, PAYLOADS, DEADLINES)
REFUNDS = st.builds(StreamRefund, IDS, CYCLES)
METRICS = st.builds(SubnetMetrics, U64, U64, CYCLES, U64)


@st.composite
def headers(draw: st.DrawFn, version: CertificationVersion = CertificationVersion.V25) -> StreamHeader:
    end = draw(U64)
    below = st.integers(max(0, end - 400), max(0, end - 1))
    indices = draw(st.sets(below, max_size=12)) if end else set()
    reasons = st.sampled_from(list(RejectReason)[: None if version >= CertificationVersion.V26 else -1])
    signals = tuple(RejectSignal(index, draw(reasons)) for index in indices)
    return StreamHeader(draw(U64), draw(U64), end, signals, StreamFlags(draw(st.integers(0, 1))))


@st.composite
def messages(draw: st.DrawFn) -> tuple[StreamMessage, CertificationVersion]:
    version = draw(VERSIONS)
    kinds: list[st.SearchStrategy[StreamMessage]] = [REQUESTS, RESPONSES]
    if version >= CertificationVersion.V22:
        kinds.append(REFUNDS)
    return draw(st.one_of(*kinds)), version


def flip_bit(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


def check_unique_encoding(data: bytes, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> None:
    """Check that altered bytes are rejected or decode to a value with exactly this encoding."""
    changes = [flip_bit(data, bit) for bit in range(0, 8 * min(len(data), 60), 3)]
    changes += [data[:-1], data + b"\x00", data + data, data[1:]]
    for changed in changes:
        try:
            value = decode(changed)
        except DecodeError:
            continue
        assert encode(value) == changed


@SETTINGS
@given(st.data(), VERSIONS)
def test_headers(data: st.DataObject, version: CertificationVersion) -> None:
    header = data.draw(headers(version))
    encoded = encode_stream_header(header, version)
    assert decode_stream_header(encoded, version) == header
    check_unique_encoding(
        encoded, lambda value: encode_stream_header(value, version), lambda some: decode_stream_header(some, version)
    )


@SETTINGS
@given(messages())
def test_messages(given_: tuple[StreamMessage, CertificationVersion]) -> None:
    message, version = given_
    encoded = encode_stream_message(message, version)
    assert decode_stream_message(encoded, version) == message
    check_unique_encoding(
        encoded,
        lambda value: encode_stream_message(value, version),
        lambda some: decode_stream_message(some, version),
    )


@SETTINGS
@given(METRICS, st.none() | st.binary(max_size=32))
def test_metadata(metrics: SubnetMetrics, digest: bytes | None) -> None:
    encoded = encode_subnet_metrics(metrics)
    assert decode_subnet_metrics(encoded) == metrics
    check_unique_encoding(encoded, encode_subnet_metrics, decode_subnet_metrics)
    encoded = encode_system_metadata(SystemMetadata(digest))
    assert decode_system_metadata(encoded) == SystemMetadata(digest)
    check_unique_encoding(encoded, encode_system_metadata, decode_system_metadata)


# Columns.


@pytest.mark.parametrize("version", CertificationVersion)
@pytest.mark.parametrize("with_call_tree", [False, True])
def test_columns_encode_like_the_scalar_encoder(version: CertificationVersion, with_call_tree: bool) -> None:
    columns = draw_columns(int(version), 300, version)
    if with_call_tree:
        columns["call_tree_depth"] = np.arange(300, dtype=np.uint64) ** 3
        columns["call_tree_start"] = np.arange(300, dtype=np.uint64) ** 7
        columns["method"] = columns["method"].dictionary_decode()
    encoded = encode_stream_messages(columns, version)
    assert encoded.to_pylist() == [encode_stream_message(row_message(columns, row), version) for row in range(300)]
    for row in range(0, 300, 29):
        assert decode_stream_message(encoded[row].as_py(), version) == row_message(columns, row)


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.RESPONSE, Kind.REFUND])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_columns_of_one_kind(kind: Kind, length: int) -> None:
    columns = draw_columns(length, length, CertificationVersion.V25) | {"kind": np.full(length, kind, dtype=np.uint8)}
    encoded = encode_stream_messages(columns).to_pylist()
    assert encoded == [encode_stream_message(row_message(columns, row)) for row in range(length)]


def test_chunks_and_slices_of_columns_encode_equally() -> None:
    columns = draw_columns(1, 40_000, CertificationVersion.V25)
    whole = encode_stream_messages(columns)
    assert pa.chunked_array(list(encode_in_pieces(columns))).combine_chunks().to_pylist() == whole.to_pylist()
    part = {name: column[39_000:39_100] for name, column in columns.items()}
    assert encode_stream_messages(part).to_pylist() == whole[39_000:39_100].to_pylist()


@pytest.mark.parametrize("version", [CertificationVersion.V22, CertificationVersion.V23, CertificationVersion.V25])
def test_sizes_counted_by_the_kernel_equal_the_encodings(version: CertificationVersion) -> None:
    """Check the parts of count_bytes: lengths known without encoding (IC reference 2.10)."""
    columns = draw_columns(3, 500, version)
    columns["kind"] = np.where(columns["kind"] == Kind.REFUND, Kind.REQUEST, columns["kind"]).astype(np.uint8)
    encoded = encode_stream_messages(columns, version)
    assert message_lengths(Frame(columns), version).tolist() == [len(message) for message in encoded.to_pylist()]


@SETTINGS
@given(st.lists(headers(), min_size=1, max_size=5))
def test_header_lengths_counted_by_the_kernel_equal_the_encodings(given_: list[StreamHeader]) -> None:
    count = len(given_)
    slices = Frame(
        {
            "source": np.arange(1, count + 1, dtype=np.uint32),
            "destination": np.zeros(count, dtype=np.uint32),
            "substream": np.zeros(count, dtype=np.uint64),
            **{
                name: np.array([getattr(header, name) for header in given_], dtype=np.uint64)
                for name in ("begin", "end", "signals_end")
            },
        }
    )
    rows = [(place + 1, signal) for place, header in enumerate(given_) for signal in header.reject_signals]
    rejects = Frame(
        {
            "destination": np.array([place for place, _ in rows], dtype=np.uint32),
            "source": np.zeros(len(rows), dtype=np.uint32),
            "substream": np.zeros(len(rows), dtype=np.uint64),
            "index": np.array([signal.index for _, signal in rows], dtype=np.uint64),
            "reason": np.array([signal.reason for _, signal in rows], dtype=np.uint8),
        }
    )
    bare = [
        StreamHeader(header.begin, header.end, header.signals_end, header.reject_signals, StreamFlags(0))
        for header in given_
    ]
    assert header_lengths(slices, rejects).tolist() == [len(encode_stream_header(header)) for header in bare]
