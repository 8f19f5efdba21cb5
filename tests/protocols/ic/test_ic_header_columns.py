"""Columns of stream headers: bytes, values and rejections equal the scalar form."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, OverLimit
from causeway_proofs.ic.errors import EncodeError
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.stream_columns import decode_stream_headers, encode_stream_headers
from causeway_proofs.ic.stream_header import (
    MAX_HEADER_BYTES,
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
    reject_reasons,
)

from tests.fuzz.mutations import mutations
from tests.support.ic.ic_messages import one_by_one
from tests.tiers import sized

VERSIONS = list(CertificationVersion)
BOUNDS = ("begin", "end", "signals_end")


def header_columns(headers: list[StreamHeader]) -> dict[str, Any]:
    """Return headers in the form of their encoder."""
    signals = [(row, signal) for row, header in enumerate(headers) for signal in header.reject_signals]
    return {
        **{name: np.array([getattr(header, name) for header in headers], dtype=np.uint64) for name in BOUNDS},
        "reject_row": np.array([row for row, _ in signals], dtype=np.int64),
        "reject_index": np.array([signal.index for _, signal in signals], dtype=np.uint64),
        "reject_reason": np.array([signal.reason for _, signal in signals], dtype=np.uint8),
    }


def draw_headers(seed: int, count: int, version: CertificationVersion) -> list[StreamHeader]:
    """Sample headers with numbers of every length, up to the maximum, and signals near and far."""
    random = Random(seed)

    def number() -> int:
        return random.choice((2**64 - 1, random.getrandbits(64) >> random.randrange(64)))

    drawn = []
    for row in range(count):
        end = number()
        span = min(end, random.choice((10, 1 << 20, 1 << 63)))
        indices = {end - 1 - random.randrange(span) for _ in range(random.choice((0, 1, 5, 40)))} if span else set()
        reasons = random.sample(reject_reasons(version), random.choice((1, 2, len(reject_reasons(version)))))
        signals = tuple(RejectSignal(index, random.choice(reasons)) for index in sorted(indices))
        drawn.append(StreamHeader(number(), number(), end, signals, StreamFlags(row % 5 == 0)))
    return drawn


def decoded_headers(values: list[bytes], version: CertificationVersion) -> list[Any]:
    """Return each header, or kind and text of its error, decoded by columns."""
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


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_equal_scalar_decoding(version: CertificationVersion) -> None:
    headers = draw_headers(int(version), 200, version)
    values = [encode_stream_header(header, version) for header in headers]
    assert decoded_headers(values, version) == headers
    bare = [replace(header, flags=StreamFlags(0)) for header in headers]
    expected = [encode_stream_header(header, version) for header in bare]
    assert encode_stream_headers(**header_columns(bare), version=version).to_pylist() == expected


@pytest.mark.parametrize("count", [10_000, pytest.param(sized(30_000, 100_000), marks=pytest.mark.slow)])
def test_altered_headers_have_scalar_verdicts(count: int) -> None:
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
def test_headers_without_an_encoding_are_rejected_as_scalar(
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
def test_columns_other_than_headers_are_rejected(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        encode_stream_headers(**(TWO | given))


def test_corrupted_header_columns_are_rejected() -> None:
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
