"""The encode routine of the state manager: slices, and refusals by name (IC reference 2.8)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certified_streams import InvalidSliceBegin, InvalidSliceIndices, NoStreamForSubnet
from causeway_proofs.ic.hash_tree import NestedTree
from causeway_proofs.ic.messages import StreamRefund, encode_stream_message
from causeway_proofs.ic.primitives import encode_leb128
from causeway_proofs.ic.slice import decode_certified_stream, encode_certified_stream_slice
from causeway_proofs.ic.stream_header import StreamHeader, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree

from tests.oracles.ic.certified_streams import CertifiedStreams, StoredStream

KEY = SecretKey.derive(b"a subnet that serves slices")
OWN, OTHER, EMPTY = (bytes([number]) + bytes(7) + b"\xfc\x01" for number in (7, 8, 9))
BEGIN, END, HEIGHT = 250, 261, 300
HEADER = StreamHeader(BEGIN, END, 9)
ENCODED = [encode_stream_message(StreamRefund(b"canister", 10**index)) for index in range(END - BEGIN)]


def stored_stream(header: StreamHeader = HEADER, messages: list[bytes] = ENCODED) -> StoredStream:
    column = pa.array(messages, pa.binary())
    return StoredStream(StreamTree(encode_stream_header(header), header.begin, column), column)


def certified(height: int = HEIGHT) -> CertifiedStreams:
    streams = {
        OWN: stored_stream(),
        OTHER: stored_stream(replace(HEADER, signals_end=3)),
        EMPTY: stored_stream(StreamHeader(4, 4, 0), []),
    }
    contents: NestedTree = {
        b"metadata": {b"height": encode_leb128(HEIGHT), b"prev_state_hash": bytes(32)},
        b"time": b"\x01",
    }
    return CertifiedStreams(streams, contents, height, KEY.sign)


def test_every_requested_range_is_served_and_verified() -> None:
    streams = certified()
    for begin in (None, BEGIN, BEGIN + 3, END - 1, END):
        for limit in (None, 0, 1, 4, 100):
            found = streams.encode_certified_stream_slice(OWN, msg_begin=begin, msg_limit=limit)
            first = BEGIN if begin is None else begin
            last = END if limit is None else min(first + limit, END)
            read = decode_certified_stream(OWN, OTHER, encode_certified_stream_slice(found), KEY.public_key())
            assert read.header == HEADER and found.witness_begin() == found.payload.messages_begin
            assert read.messages == tuple(
                (index, StreamRefund(b"canister", 10 ** (index - BEGIN))) for index in range(first, last)
            )
            assert [step.operation for step in found.verify_root()][2] == "height"
    nothing = streams.encode_certified_stream_slice(EMPTY)
    assert nothing.payload.messages == () and nothing.verify_root()


def test_slices_are_cut_by_the_bytes_of_their_messages() -> None:
    streams = certified()
    for count in range(1, END - BEGIN + 1):
        size = sum(map(len, ENCODED[:count]))
        for limit, expected in ((size, count), (size - 1, max(count - 1, 1))):  # the first is never too long
            found = streams.encode_certified_stream_slice(OWN, byte_limit=limit)
            assert len(found.payload.messages) == expected
            found.verify_root()
    assert len(streams.encode_certified_stream_slice(OWN, byte_limit=0).payload.messages) == 1
    assert streams.encode_certified_stream_slice(OWN, msg_limit=0, byte_limit=10**9).payload.messages == ()
    assert len(streams.encode_certified_stream_slice(OWN, msg_limit=2, byte_limit=10**9).payload.messages) == 2
    suffix = streams.encode_certified_stream_slice(OWN, witness_begin=BEGIN, msg_begin=BEGIN + 1, byte_limit=1)
    assert suffix.payload.messages == () and suffix.witness_begin() == BEGIN


def test_slice_with_an_earlier_witness_is_appended() -> None:
    streams = certified()
    suffix = streams.encode_certified_stream_slice(OWN, witness_begin=BEGIN + 2, msg_begin=BEGIN + 5, msg_limit=3)
    assert suffix.payload.messages_begin == BEGIN + 5 != suffix.witness_begin()
    prefix = streams.encode_certified_stream_slice(OWN, msg_begin=BEGIN + 2, msg_limit=3)
    whole = prefix.append(suffix)
    whole.verify_root()
    assert whole == streams.encode_certified_stream_slice(OWN, msg_begin=BEGIN + 2, msg_limit=6)


def test_requests_beyond_the_state_are_refused_by_name() -> None:
    streams = certified()
    with pytest.raises(NoStreamForSubnet):
        streams.encode_certified_stream_slice(b"another")
    for begin in (BEGIN - 1, END + 1):
        with pytest.raises(InvalidSliceBegin) as outside:
            streams.encode_certified_stream_slice(OWN, msg_begin=begin)
        error = outside.value
        assert (error.slice_begin, error.stream_begin, error.stream_end) == (begin, BEGIN, END)
    with pytest.raises(InvalidSliceBegin):
        streams.encode_certified_stream_slice(OWN, witness_begin=BEGIN - 1, msg_begin=BEGIN)
    with pytest.raises(InvalidSliceIndices) as late:
        streams.encode_certified_stream_slice(OWN, witness_begin=BEGIN + 2, msg_begin=BEGIN + 1)
    assert (late.value.witness_begin, late.value.msg_begin) == (BEGIN + 2, BEGIN + 1)
    with pytest.raises(InvalidSliceIndices, match="messages from nowhere"):
        streams.encode_certified_stream_slice(OWN, witness_begin=BEGIN)
    assert streams.subnets_with_certified_streams() == [OWN, OTHER, EMPTY]
    for limits in ({"msg_limit": -1}, {"byte_limit": -1}):
        with pytest.raises(InvalidInput, match="is -1, 0 or more is allowed"):
            streams.encode_certified_stream_slice(OWN, **limits)


def test_growing_stream_differs_from_the_certified_one() -> None:
    held = stored_stream()
    streams = CertifiedStreams({OWN: held}, {b"time": b"\x01"}, HEIGHT, KEY.sign)
    assert [step.operation for step in streams.encode_certified_stream_slice(OWN).verify_root()] == [
        "payload", "witness", "certified",
    ]  # fmt: skip
    held.tree.messages.append([b"one more"])
    with pytest.raises(InvalidInput, match="not the one committed to"):
        streams.encode_certified_stream_slice(OWN)
    with pytest.raises(InvalidInput, match="under a header of"):
        CertifiedStreams({OWN: held}, {}, HEIGHT, KEY.sign)
    with pytest.raises(InvalidInput, match="beside the streams given"):
        CertifiedStreams({}, {b"streams": {}}, HEIGHT, KEY.sign)


def test_height_missing_from_the_state_has_no_witness() -> None:
    assert certified().certification.height_witness is not None
    assert certified(HEIGHT + 1).certification.height_witness is None
