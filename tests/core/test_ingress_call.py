"""Calls requested by users: encodings round-trip, and no user input raises."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import given
from hypothesis import strategies as st

from causeway.core.ingress_call import decode_calls, encode_calls

u64 = st.integers(0, 2**64 - 1)
names = st.text(max_size=40).filter(lambda name: len(name.encode()) <= 255)
calls = st.lists(st.tuples(u64, u64, u64, names, st.binary(max_size=80)), max_size=30)


def test_layout_matches_the_documentation() -> None:
    payload = encode_calls(np.array([258], np.uint64), 1, 2, "echo", pa.array([b"hi"], pa.binary()))
    expected = bytes.fromhex("00000000000001020000000000000001000000000000000204") + b"echohi"
    assert payload.to_pylist() == [expected]


@given(calls)
def test_encoded_calls_round_trip(rows: list[tuple[int, int, int, str, bytes]]) -> None:
    receivers, high, low = (np.array([row[i] for row in rows], np.uint64) for i in range(3))
    methods = pa.array([row[3] for row in rows], pa.string())
    bodies = pa.array([row[4] for row in rows], pa.binary())
    for given_methods in (methods, methods.dictionary_encode()):
        found = decode_calls(encode_calls(receivers, high, low, given_methods, bodies))
        assert found.valid.all()
        assert found.receivers.tolist() == receivers.tolist()
        assert found.amount_high.tolist() == high.tolist()
        assert found.amount_low.tolist() == low.tolist()
        assert found.methods.to_pylist() == methods.to_pylist()
        assert found.bodies.to_pylist() == bodies.to_pylist()


@given(calls, st.integers(0, 5), st.integers(0, 30))
def test_array_slice_decodes_like_the_array(
    rows: list[tuple[int, int, int, str, bytes]], start: int, size: int
) -> None:
    payloads = pa.array([_plain(row) for row in rows], pa.binary())
    whole, part = decode_calls(payloads), decode_calls(payloads.slice(start, size))
    assert part.bodies.to_pylist() == whole.bodies.to_pylist()[start : start + size]
    assert part.methods.to_pylist() == whole.methods.to_pylist()[start : start + size]
    assert part.receivers.tolist() == whole.receivers.tolist()[start : start + size]


well_formed = st.tuples(u64, u64, u64, names, st.binary(max_size=80)).map(lambda row: _plain(row))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), well_formed), max_size=20))
def test_any_bytes_decode_like_the_plain_reader(payloads: list[bytes | None]) -> None:
    found = decode_calls(pa.array(payloads, pa.binary()))
    rows = zip(
        found.receivers.tolist(),
        found.amount_high.tolist(),
        found.amount_low.tolist(),
        found.methods.to_pylist(),
        found.bodies.to_pylist(),
        found.valid.tolist(),
        strict=True,
    )
    assert list(rows) == [_plain_decode(payload) for payload in payloads]


@pytest.mark.parametrize(
    ("why", "payload"),
    [
        ("null", None),
        ("empty", b""),
        ("shorter than the header", b"\0" * 24),
        ("name longer than the payload", b"\0" * 24 + b"\5abcd"),
        ("name is not UTF-8", b"\0" * 24 + b"\2\xff\xfebody"),
    ],
)
def test_malformed_payloads_are_marked(why: str, payload: bytes | None) -> None:
    good = _plain((7, 0, 9, "echo", b"x"))
    found = decode_calls(pa.array([good, payload, good], pa.binary()))
    assert found.valid.tolist() == [True, False, True], why
    assert found.receivers.tolist() == [7, 0, 7]
    assert found.methods.to_pylist() == ["echo", "", "echo"]
    assert found.bodies.to_pylist() == [b"x", b"", b"x"]


def test_long_method_is_refused() -> None:
    with pytest.raises(InvalidInput, match="256 bytes is too long"):
        encode_calls(np.array([1], np.uint64), 0, 0, "m" * 256, pa.array([b""], pa.binary()))


def _plain(row: tuple[int, int, int, str, bytes]) -> bytes:
    receiver, high, low, method, body = row
    name = method.encode()
    return b"".join(n.to_bytes(8, "big") for n in (receiver, high, low)) + bytes([len(name)]) + name + body


def _plain_decode(payload: bytes | None) -> tuple[int, int, int, str, bytes, bool]:
    bad = (0, 0, 0, "", b"", False)
    if payload is None or len(payload) < 25 or len(payload) < 25 + payload[24]:
        return bad
    end = 25 + payload[24]
    try:
        method = payload[25:end].decode()
    except UnicodeDecodeError:
        return bad
    receiver, high, low = (int.from_bytes(payload[i : i + 8], "big") for i in (0, 8, 16))
    return receiver, high, low, method, payload[end:], True
