"""Encodings of the Internet Computer: figures, and refusals with the texts of deployed decoders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import OverLimit
from causeway_proofs.ic.errors import DecodeError, EncodeError, NotCanonical
from causeway_proofs.ic.messages import (
    Data,
    RejectContext,
    RequestMetadata,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
    encode_stream_message,
)
from causeway_proofs.ic.packed_cbor import MAX_ITEM_BYTES
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.state_columns import SystemMetadata, encode_system_metadata
from causeway_proofs.ic.stream_columns import encode_in_pieces, encode_stream_messages
from causeway_proofs.ic.stream_header import (
    MAX_HEADER_BYTES,
    RejectReason,
    RejectSignal,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
)

from causeway.core.vocabulary import Kind
from tests.oracles.ic.encodings import (
    SubnetMetrics,
    decode_cycles,
    decode_funds,
    decode_payload,
    decode_refund,
    decode_reject_context,
    decode_request,
    decode_response,
    decode_subnet_metrics,
    decode_system_metadata,
    encode_cycles,
    encode_funds,
    encode_payload,
    encode_refund,
    encode_reject_context,
    encode_request,
    encode_response,
    encode_subnet_metrics,
)

V22, V23, V26 = CertificationVersion.V22, CertificationVersion.V23, CertificationVersion.V26

CANISTER = bytes.fromhex("00000000000000010101")
REQUEST = StreamRequest(
    CANISTER, bytes.fromhex("00000000000000020101"), 3, 4, "test", b"\x06", RequestMetadata(13, 101)
)
RESPONSE = StreamResponse(CANISTER, CANISTER, 3, 2, Data(b"\x01"))
REJECT = RejectContext(StreamRejectCode.SysFatal, "Oops")


def with_item(encoded: bytes, count: int, added: bytes) -> bytes:
    """Return the encoding of a map with ``count`` more entries."""
    assert encoded[0] & 0xE0 == 0xA0
    return bytes([encoded[0] + count]) + encoded[1:] + added


# Figures, transcribed.


def test_header_and_request_have_the_bytes_of_the_deployed_system() -> None:
    assert encode_stream_header(StreamHeader(23, 25, 256)).hex() == "a3001701181902190100"
    assert encode_stream_message(REQUEST).hex() == (
        "a100a7004a00000000000000010101014a00000000000000020101020304647465737405410606a1000407a2000d011865"
    )
    assert encode_stream_message(REQUEST, V22).hex() == (
        "a100a7004a00000000000000010101014a00000000000000020101020303a100a1000404647465737405410607a2000d011865"
    )


def test_cycles_of_128_bits_are_exact() -> None:
    amount = 123456789012345678901234567890
    assert encode_cycles(amount).hex() == "a2001bc373e0ee4e3f0ad2011b000000018ee90ff6"
    for exact in (0, 2**63, 2**64 - 1, 2**64, 2**128 - 1):
        assert decode_cycles(encode_cycles(exact)) == exact
        assert decode_funds(encode_funds(exact)) == exact
        assert decode_refund(encode_refund(StreamRefund(CANISTER, exact))).amount == exact
    with pytest.raises(EncodeError, match="allowed are 0 to"):
        encode_cycles(2**128)


def test_metrics_always_have_both_halves_and_a_hash_is_an_array() -> None:
    metrics = SubnetMetrics(5, 5242880, 250000000000, 4200)
    assert encode_subnet_metrics(metrics).hex() == "a40005011a0050000002a2001b0000003a35294400010003191068"
    assert decode_subnet_metrics(encode_subnet_metrics(metrics)) == metrics
    assert encode_system_metadata(SystemMetadata(b"\x0f\xff")).hex() == "a101820f18ff"
    for metadata in (SystemMetadata(), SystemMetadata(b""), SystemMetadata(bytes(32))):
        assert decode_system_metadata(encode_system_metadata(metadata)) == metadata


def test_deltas_count_back_from_the_end_of_signals_by_reason() -> None:
    signals = [(10, RejectReason.QueueFull), (12, RejectReason.CanisterMigrating), (15, RejectReason.QueueFull)]
    header = StreamHeader(0, 0, 20, tuple(RejectSignal(index, reason) for index, reason in reversed(signals)))
    assert [signal.index for signal in header.reject_signals] == [10, 12, 15]
    # 20 - 12 = 8 for the first reason; 15 - 10 = 5, 20 - 15 = 5 for the fifth.
    assert encode_stream_header(header).hex() == "a400000100021405a200810804820505"
    assert decode_stream_header(encode_stream_header(header)) == header


# Refusals, with the texts of the deployed decoders.

FIELD_COUNTS: list[tuple[bytes, Callable[[bytes], Any], int]] = [
    (encode_stream_header(StreamHeader(23, 25, 256)), decode_stream_header, 6),
    (encode_stream_message(REQUEST), decode_stream_message, 3),
    (encode_request(REQUEST), decode_request, 9),
    (encode_response(RESPONSE), decode_response, 7),
    (encode_refund(StreamRefund(CANISTER, 1)), decode_refund, 2),
    (encode_payload(Data(b"")), decode_payload, 2),
    (encode_reject_context(REJECT), decode_reject_context, 2),
    (encode_cycles(1), decode_cycles, 2),
    (encode_funds(1), decode_funds, 2),
    (encode_subnet_metrics(SubnetMetrics(1, 2, 3, 4)), decode_subnet_metrics, 4),
]


@pytest.mark.parametrize(("encoded", "decode", "count"), FIELD_COUNTS)
def test_unknown_fields_are_refused(encoded: bytes, decode: Callable[[bytes], Any], count: int) -> None:
    decode(encoded)
    for key in (b"\x19\x03\xe7", b"\x20", b"\x61a", bytes([count])):
        with pytest.raises(DecodeError, match=f"expected field index 0 <= i < {count}"):
            decode(with_item(encoded, 1, key + b"\x00"))


@pytest.mark.parametrize(
    ("missing", "decode", "text"),
    [
        ("a201181902190100", decode_stream_header, "missing field `begin`"),
        ("a20017011819", decode_stream_header, "missing field `signals_end`"),
        ("a0", decode_request, "missing field `receiver`"),
        ("a1004101", decode_request, "missing field `sender`"),
        ("a200410101 4102", decode_request, "missing field `sender_reply_callback`"),
        ("a300410101 41020203", decode_request, "missing field `cycles_payment`"),
        ("a400410101 4102020306a10000", decode_request, "missing field `method_name`"),
        ("a500410101 41020203046006a10000", decode_request, "missing field `method_payload`"),
        ("a300410101 41020203", decode_response, "missing field `cycles_refund`"),
        ("a400410101 4102020305a10000", decode_response, "missing field `response_payload`"),
        ("a0", decode_refund, "missing field `recipient`"),
        ("a1004101", decode_refund, "missing field `amount`"),
        ("a0", decode_cycles, "missing field `low`"),
        ("a0", decode_funds, "missing field `cycles`"),
        ("a10161 61", decode_reject_context, "missing field `code`"),
        ("a10001", decode_reject_context, "missing field `message`"),
        ("a0", decode_subnet_metrics, "missing field `num_canisters`"),
        (
            "a0",
            decode_stream_message,
            "StreamMessage: expected exactly one of `request`, `response` or `refund` to be `Some(_)`, got "
            "`StreamMessage { request: None, response: None, refund: None }`",
        ),
        (
            "a0",
            decode_payload,
            "Payload: expected exactly one of `data` or `reject` to be `Some(_)`, got "
            "`Payload { data: None, reject: None }`",
        ),
    ],
)
def test_missing_fields_are_named(missing: str, decode: Callable[[bytes], Any], text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(bytes.fromhex(missing))
    assert text in str(refused.value)


def test_cycle_fields_have_other_names_before_version_23() -> None:
    for decode, encoded, name in (
        (decode_request, encode_request(REQUEST), "payment"),
        (decode_response, encode_response(RESPONSE), "refund"),
    ):
        with pytest.raises(DecodeError, match=f"missing field `{name}`"):
            decode(encoded, V22)
    both = "a60041010141020203 03a100a10000 04a1004005a10000"
    for version in (V22, V23):
        with pytest.raises(DecodeError, match="is populated"):
            decode_response(bytes.fromhex(both), version)


@pytest.mark.parametrize("code", [0, 7, 255])
def test_reject_codes_are_one_to_six(code: int) -> None:
    encoded = b"\xa2\x00" + (bytes([code]) if code < 24 else bytes([0x18, code])) + b"\x01\x60"
    with pytest.raises(DecodeError, match=f"Value out of range for type RejectContext: {code}"):
        decode_reject_context(encoded)


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        ("a400170118190219010003190001", "field index 3 is populated: 1"),
        ("a40017011819021901000404", "unsupported flags: got `flags` 0b100, `supported_flags` 0b1"),
        ("a400170118190219010005a101830d0011", "CanisterNotFound found bad delta: `0` is not allowed"),
        ("a400170118190219010005a1068219010001", "Unknown reject signals are invalid, got `signals_end` 256"),
        ("a400170118190219010005a2028203 0f0382060c", "reject signals are invalid, got duplicates"),
        ("a400170118190219010005a1078101", "expected field index 0 <= i < 7"),
        ("a30020 01181902190100", "invalid value: integer `-1`, expected u64"),
        ("a300c24901000000000000000001181902190100", "tags are not allowed"),
        ("83171819190100", "invalid type: sequence, expected struct StreamHeader"),
        ("a300f501181902190100", "invalid type: boolean `true`"),
        ("bf001701181902190100ff", "indefinite"),
        ("a400170118190219010000 17", "Duplicate map key: 0"),
        ("a30017011819021901", "premature end"),
        ("", "premature end"),
    ],
)
def test_malformed_headers_are_refused(encoded: str, text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode_stream_header(bytes.fromhex(encoded))
    assert text in str(refused.value)


def test_version_26_has_one_more_reason() -> None:
    header = StreamHeader(0, 0, 9, (RejectSignal(1, RejectReason.EngineNotAllowed),))
    assert decode_stream_header(encode_stream_header(header, V26), V26) == header
    with pytest.raises(EncodeError, match="not one of certification version 25"):
        encode_stream_header(header)


@pytest.mark.parametrize(
    "encoded",
    [
        "a300181701181902190100",  # a number in two bytes that fits one
        "a301181900170 2190100",  # keys not ascending
        "a3001701181902190100 00",  # trailing bytes
        "b803001701181902190100",  # a padded count
        "a400170118190219010003 00",  # explicit defaults
        "a400170118190219010004 00",
        "a400170118190219010005 a0",
        "a400170118190219010005 a10080",
    ],
)
def test_other_encodings_of_the_same_header_are_refused(encoded: str) -> None:
    data = bytes.fromhex(encoded.replace(" ", ""))
    with pytest.raises(DecodeError):
        decode_stream_header(data)


def test_other_encodings_of_the_same_message_are_refused() -> None:
    encoded = encode_stream_message(RESPONSE)
    deadline = encoded.replace(b"\xa1\x01\xa5", b"\xa1\x01\xa6") + b"\x06\x00"
    assert deadline != encoded
    high = encoded[:-3] + b"\xa2\x00\x02\x01\x00"
    assert encoded.endswith(b"\xa1\x00\x02")
    for other in (deadline, high, encoded + b"\x00", b"\xd9\xd9\xf7" + encoded):
        with pytest.raises(DecodeError):
            decode_stream_message(other)
    with pytest.raises(NotCanonical):
        decode_stream_message(deadline)
    with pytest.raises(DecodeError, match="`icp` is populated"):
        decode_funds(bytes.fromhex("a200a100010105"))
    with pytest.raises(DecodeError, match="at most 29"):
        decode_refund(b"\xa2\x00\x58\x1e" + bytes(30) + b"\x01\xa1\x00\x00")


def test_values_out_of_range_have_no_encoding() -> None:
    for header in (
        StreamHeader(-1, 0, 0),
        StreamHeader(0, 2**64, 0),
        StreamHeader(0, 0, 5, (RejectSignal(5, RejectReason.Unknown),)),
        StreamHeader(0, 0, 5, (RejectSignal(4, RejectReason.Unknown), RejectSignal(4, RejectReason.QueueFull))),
    ):
        with pytest.raises(EncodeError):
            encode_stream_header(header)
    for message in (
        replace(REQUEST, deadline=2**32),
        replace(REQUEST, sender=bytes(30)),
        replace(REQUEST, method_name="\ud800"),
        replace(REQUEST, sender_reply_callback=2**64),
        replace(RESPONSE, payload=RejectContext(7, "")),  # type: ignore[arg-type]
    ):
        with pytest.raises(EncodeError):
            encode_stream_message(message)
    with pytest.raises(EncodeError, match="no refunds"):
        encode_stream_message(StreamRefund(CANISTER, 1), CertificationVersion.V21)
    with pytest.raises(DecodeError, match="no refunds"):
        decode_stream_message(encode_stream_message(StreamRefund(CANISTER, 1)), CertificationVersion.V21)


def test_deep_nesting_and_huge_lengths_are_refused_at_once() -> None:
    for data in (b"\x81" * 100_000, b"\x9b" + b"\xff" * 8, b"\xbb" + b"\x7f" * 8, b"\x5b" + b"\x7f" * 8):
        with pytest.raises(DecodeError):
            decode_stream_message(data)
    with pytest.raises(OverLimit):
        decode_stream_message(bytes(MAX_ITEM_BYTES + 1))
    with pytest.raises(OverLimit):
        decode_stream_header(bytes(MAX_HEADER_BYTES + 1))


def test_header_with_as_many_signals_as_subnets_allow() -> None:
    far = 1 << 60
    signals = tuple([RejectSignal(number << 40, RejectReason.Unknown) for number in range(20_000)])
    encoded = encode_stream_header(StreamHeader(0, 0, far, signals))
    assert len(encoded) < MAX_HEADER_BYTES // 4
    assert decode_stream_header(encoded).reject_signals == signals


# Columns.


def columns(length: int, **given: Any) -> dict[str, Any]:
    zeros = np.zeros(length, dtype=np.uint64)
    made: dict[str, Any] = {
        "kind": np.full(length, Kind.REQUEST, dtype=np.uint8),
        **dict.fromkeys(("sender", "receiver", "callback", "amount_high", "amount_low", "code", "deadline"), zeros),
        "method": pa.array([""] * length).dictionary_encode(),
        "payload": pa.array([b""] * length, pa.binary()),
    }
    return made | given


def test_columns_without_an_encoding_are_refused() -> None:
    responses = np.full(1, Kind.RESPONSE, dtype=np.uint8)
    with pytest.raises(EncodeError, match="kind 0"):
        encode_stream_messages(columns(1, kind=np.zeros(1, np.uint8)))
    with pytest.raises(EncodeError, match="kind 3"):
        encode_stream_messages(columns(1, kind=np.full(1, 3, np.uint8)), CertificationVersion.V21)
    with pytest.raises(EncodeError, match="reject code 7"):
        encode_stream_messages(columns(1, kind=responses, code=np.full(1, 7, np.uint8)))
    with pytest.raises(EncodeError, match="UTF-8"):
        encode_stream_messages(columns(1, kind=responses, code=np.ones(1, np.uint8), payload=pa.array([b"\xff"])))


def test_parts_are_bounded_by_rows_and_by_bytes() -> None:
    assert len(encode_stream_messages(columns(0))) == 0
    assert [len(piece) for piece in encode_in_pieces(columns(70_000))] == [1 << 15, 1 << 15, 70_000 - (1 << 16)]
    large = pa.array([bytes(20 << 20), bytes(20 << 20), b"", bytes(40 << 20), b""], pa.binary())
    pieces = list(encode_in_pieces(columns(5, payload=large)))
    assert [len(piece) for piece in pieces] == [1, 2, 1, 1]
