"""ICS-20 packets and denominations: canonical decoding and rejection of other input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causeway.programs.bundled.tokens import (
    MAX_ADDRESS_BYTES,
    MAX_AMOUNT,
    MAX_DENOM_BYTES,
    MAX_MEMO_BYTES,
    MAX_PACKET_BYTES,
    NotFlat,
    PacketDialect,
    Refused,
    TokenPacket,
    decode_packet,
    denom_prefix,
    read_object,
    split_denom,
)

PLAIN = {"denom": "uatom", "amount": "5", "sender": "1", "receiver": "2"}


def packet(**members: Any) -> bytes:
    return json.dumps({name: value for name, value in {**PLAIN, **members}.items() if value is not None}).encode()


SPECIAL = '<a & b>\u2028\u2029"\\/\b\f\n\r\t\x01\x7fé\U0001f600'
ESCAPED = '\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7fé\U0001f600'
GO_SPECIAL = r"\u003ca \u0026 b\u003e\u2028\u2029" + ESCAPED
RUST_SPECIAL = "<a & b>\u2028\u2029" + ESCAPED
WITHOUT_MEMO = TokenPacket("transfer/channel-7/uatom", 12, "1", "2")
WITH_MEMO = TokenPacket("uatom", MAX_AMOUNT, "1", "2", SPECIAL)

WRITTEN = [
    (
        PacketDialect.IBC_GO_10,
        WITHOUT_MEMO,
        '{"denom":"transfer/channel-7/uatom","amount":"12","sender":"1","receiver":"2"}',
    ),
    (
        PacketDialect.IBC_GO_8,
        WITHOUT_MEMO,
        '{"amount":"12","denom":"transfer/channel-7/uatom","receiver":"2","sender":"1"}',
    ),
    (
        PacketDialect.IBC_RS,
        WITHOUT_MEMO,
        '{"denom":"transfer/channel-7/uatom","amount":"12","sender":"1","receiver":"2","memo":""}',
    ),
    (
        PacketDialect.IBC_GO_10,
        WITH_MEMO,
        f'{{"denom":"uatom","amount":"{MAX_AMOUNT}","sender":"1","receiver":"2","memo":"{GO_SPECIAL}"}}',
    ),
    (
        PacketDialect.IBC_GO_8,
        WITH_MEMO,
        f'{{"amount":"{MAX_AMOUNT}","denom":"uatom","memo":"{GO_SPECIAL}","receiver":"2","sender":"1"}}',
    ),
    (
        PacketDialect.IBC_RS,
        WITH_MEMO,
        f'{{"denom":"uatom","amount":"{MAX_AMOUNT}","sender":"1","receiver":"2","memo":"{RUST_SPECIAL}"}}',
    ),
]
"""What ibc-go 10.7.0 and 8.8.0 (GetBytes, Go 1.26) and ibc-rs 0.57.0 (serde_json) wrote of these packets."""


@pytest.mark.parametrize(("dialect", "known", "text"), WRITTEN)
def test_packet_has_the_bytes_of_each_library(dialect: PacketDialect, known: TokenPacket, text: str) -> None:
    assert known.encode(dialect) == text.encode()
    assert decode_packet(text.encode()) == known


def test_packets_are_encoded_like_the_latest_library() -> None:
    assert WITH_MEMO.encode() == WITH_MEMO.encode(PacketDialect.IBC_GO_10)


@pytest.mark.parametrize(
    "payload",
    [
        packet(memo=""),
        b' { "receiver" : "2", "sender":"\\u0031" ,\n"denom":"u\\u0061tom","amount":"5"\t} ',
        json.dumps(dict(reversed(PLAIN.items()))).encode(),
    ],
)
def test_other_encodings_of_one_packet(payload: bytes) -> None:
    assert decode_packet(payload) == TokenPacket("uatom", 5, "1", "2")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "InvalidPacket"),
        (b"{}", "InvalidPacket"),
        (b"[]", "InvalidPacket"),
        (b"[" * MAX_PACKET_BYTES, "InvalidPacket"),
        (b'{"denom":' * 20_000, "InvalidPacket"),
        (b"{" + b'"a":"",' * 30_000, "InvalidPacket"),
        (packet() + b"x", "InvalidPacket"),
        (packet()[:-1], "InvalidPacket"),
        (packet().replace(b'"uatom"', b'"uatom",'), "InvalidPacket"),
        (packet().replace(b"}", b",}"), "InvalidPacket"),
        (packet().replace(b"}", b', "denom": "b"}'), "InvalidPacket"),
        (packet(more="x"), "InvalidPacket"),
        (packet(denom=None), "InvalidPacket"),
        (packet(amount=5), "InvalidPacket"),
        (packet(receiver=["2"]), "InvalidPacket"),
        (packet(sender=""), "InvalidPacket"),
        (packet(sender="x" * (MAX_ADDRESS_BYTES + 1)), "InvalidPacket"),
        (packet().replace(b"uatom", b"\xff"), "InvalidPacket"),
        (packet().replace(b"uatom", b"\\ud800"), "InvalidPacket"),
        (packet().replace(b"uatom", b"a\nb"), "InvalidPacket"),
        (packet(memo="x" * MAX_PACKET_BYTES), "InvalidPacket"),
        (packet(memo="x" * (MAX_MEMO_BYTES + 1)), "InvalidMemo"),
        (packet(memo="é" * (MAX_MEMO_BYTES // 2 + 1)), "InvalidMemo"),
        (packet(receiver=""), "InvalidReceiver"),
        (packet(receiver="x" * (MAX_ADDRESS_BYTES + 1)), "InvalidReceiver"),
        *((packet(amount=amount), "InvalidAmount") for amount in ("", "0", "-1", "+1", "01", "1.0", "1e3", " 1", "٣")),
        (packet(amount=str(MAX_AMOUNT + 1)), "InvalidAmount"),
        (packet(amount="9" * 5_000), "InvalidAmount"),
        *((packet(denom=denom), "InvalidDenom") for denom in ("", "/a", "a b", "é", "transfer/channel-1/", "a" * 129)),
        (packet(denom=denom_prefix(1) * 200 + "a"), "InvalidDenom"),
        # One library reads a native token, another a voucher.
        (packet(denom="transfer/channel-0/transfer/channel-1"), "InvalidDenom"),
        (packet(denom="transfer/07-tendermint-0/uatom"), "InvalidDenom"),
        (packet(denom="transfer/09-localhost/uatom"), "InvalidDenom"),
        (packet(denom="transfer/channel-00/uatom"), "InvalidDenom"),
        (packet(denom="transfer/channel-+5/uatom"), "InvalidDenom"),
        (packet(denom="other/channel-0/uatom"), "InvalidDenom"),
        (packet(denom=f"p/{'c' * 99}-{'1' * 20}/uatom"), "InvalidDenom"),
    ],
)
def test_invalid_packets(payload: bytes, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        decode_packet(payload)
    assert refused.value.reason == reason
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_bounds_are_inclusive() -> None:
    longest = denom_prefix(12) * ((MAX_DENOM_BYTES - 128) // len(denom_prefix(12)))
    full = {"denom": longest + "a" * 128, "memo": "m" * MAX_MEMO_BYTES, "receiver": "r" * MAX_ADDRESS_BYTES}
    decoded = decode_packet(packet(**full, amount=str(MAX_AMOUNT)))
    assert (decoded.denom, decoded.memo, decoded.receiver, decoded.amount) == (*full.values(), MAX_AMOUNT)


def test_denomination_traces() -> None:
    assert split_denom("uatom") == ([], "uatom")
    assert split_denom("gamm/pool/1") == ([], "gamm/pool/1")
    assert split_denom("transfer/channel-3/transfer/channel-0/uatom") == ([3, 0], "uatom")
    assert split_denom("transfer/channel-03/uatom") == ([], "transfer/channel-03/uatom")
    assert split_denom(f"transfer/channel-{2**64}/u") == ([], f"transfer/channel-{2**64}/u")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(st.sampled_from(["denom", "memo", "to"]), texts, min_size=1), st.booleans())
def test_flat_objects_are_parsed_like_json(given_members: dict[str, str], ascii_only: bool) -> None:
    members: dict[str, Any] = {**given_members, "to": 2**64 - 1} if "to" in given_members else dict(given_members)
    kinds: dict[str, type[str] | type[int]] = {"denom": str, "memo": str, "to": int}
    data = json.dumps(members, ensure_ascii=ascii_only, indent=1).encode()
    assert read_object(data, kinds, most_bytes=10_000) == members


@given(st.binary(max_size=60) | texts.map(lambda text: ('{"denom":"' + text + '"}').encode()))
def test_arbitrary_input_is_decoded_or_rejected(data: bytes) -> None:
    try:
        found = read_object(data, {"denom": str}, most_bytes=100)
    except NotFlat:
        return
    assert json.loads(data) == found
