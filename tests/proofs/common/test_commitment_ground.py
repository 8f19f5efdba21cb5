"""Common code of the proofs: one canonical protobuf form, and bounds."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import MalformedProof, OverLimit
from causeway_proofs.limits import MAX_PROOF_BYTES, require_length
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.wire import ics23_pb2, range_proof_pb2, tendermint_types_pb2, xnet_pb2
from google.protobuf.message import Message

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = 0, 1, 2, 3, 4, 5


def varint(value: int, padding: int = 0) -> bytes:
    """A base-128 integer with ``padding`` redundant bytes."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    if padding:
        encoded[-1] |= 0x80
        encoded += b"\x80" * (padding - 1) + b"\x00"
    return bytes(encoded)


def tag(number: int, kind: int, padding: int = 0) -> bytes:
    return varint(number << 3 | kind, padding)


def number(field: int, value: int, padding: int = 0) -> bytes:
    return tag(field, VARINT) + varint(value, padding)


def part(field: int, data: bytes, padding: int = 0) -> bytes:
    return tag(field, BYTES) + varint(len(data), padding) + data


INNER_OP = number(1, 1) + part(2, b"prefix") + part(3, b"suffix")
EXISTENCE = part(1, b"key") + part(2, b"value") + part(3, number(1, 1)) + part(4, INNER_OP) + part(4, INNER_OP)
NON_EXISTENCE = part(1, b"key") + part(2, EXISTENCE)

ACCEPTED: dict[str, tuple[type[Message], bytes]] = {
    "nothing": (ics23_pb2.CommitmentProof, b""),
    "a proof": (ics23_pb2.CommitmentProof, part(1, EXISTENCE)),
    "a message that is there and empty": (ics23_pb2.CommitmentProof, part(1, b"")),
    "a packed list": (range_proof_pb2.RangeProof, part(1, varint(3) + varint(300))),
    "zeros in a packed list": (range_proof_pb2.RangeProof, part(1, b"\x00\x00")),
    "a negative number": (ics23_pb2.InnerSpec, number(2, 2**64 - 1)),
    "a number of an enumeration that has no name": (ics23_pb2.InnerOp, number(1, 77)),
    "text": (tendermint_types_pb2.Header, part(2, "zürich-1".encode())),
    "a field that may be absent, there and empty": (xnet_pb2.Certification, part(4, b"")),
}

REFUSED: dict[str, tuple[type[Message], bytes]] = {
    "a scalar twice": (ics23_pb2.InnerOp, number(1, 2) + number(1, 1)),
    "a scalar twice, the same": (ics23_pb2.InnerOp, number(1, 1) + number(1, 1)),
    "bytes twice": (ics23_pb2.InnerOp, part(2, b"a") + part(2, b"b")),
    "a message twice, to be merged": (ics23_pb2.ExistenceProof, part(3, number(1, 1)) + part(3, number(2, 1))),
    "two of a choice": (ics23_pb2.CommitmentProof, part(2, NON_EXISTENCE) + part(1, EXISTENCE)),
    "one of a choice in two pieces": (ics23_pb2.CommitmentProof, part(1, part(1, b"key")) + part(1, part(2, b"v"))),
    "a zero that is left out otherwise": (ics23_pb2.InnerOp, number(1, 0)),
    "empty bytes that are left out otherwise": (ics23_pb2.InnerOp, part(2, b"")),
    "a zero deep inside": (ics23_pb2.CommitmentProof, part(1, part(3, number(2, 0)))),
    "fields in another order": (ics23_pb2.InnerOp, part(3, b"suffix") + part(2, b"prefix")),
    "fields in another order inside": (ics23_pb2.CommitmentProof, part(1, part(2, b"value") + part(1, b"key"))),
    "a list with another field in between": (
        ics23_pb2.NonExistenceProof,
        part(2, part(4, INNER_OP) + part(1, b"key") + part(4, INNER_OP)),
    ),
    "an unknown field": (ics23_pb2.InnerOp, INNER_OP + part(9, b"?")),
    "an unknown field inside": (ics23_pb2.CommitmentProof, part(1, EXISTENCE + number(100, 1))),
    "an unknown field in an element of a list": (ics23_pb2.ExistenceProof, part(4, INNER_OP + number(15, 1))),
    "an unknown group": (ics23_pb2.InnerOp, INNER_OP + tag(9, GROUP) + tag(9, GROUP_END)),
    "a group without an end": (ics23_pb2.InnerOp, INNER_OP + tag(9, GROUP)),
    "the end of no group": (ics23_pb2.InnerOp, INNER_OP + tag(9, GROUP_END)),
    "a known field of another kind": (ics23_pb2.InnerOp, tag(2, FIXED32) + bytes(4)),
    "a number as a fixed one": (ics23_pb2.InnerOp, tag(1, FIXED64) + (1).to_bytes(8, "little")),
    "field number 0": (ics23_pb2.InnerOp, number(0, 1)),
    "wire type 7": (ics23_pb2.InnerOp, b"\x0f\x01"),
    "a padded number": (ics23_pb2.InnerOp, number(1, 1, padding=1)),
    "a padded length": (ics23_pb2.InnerOp, part(2, b"prefix", padding=2)),
    "a padded tag": (ics23_pb2.InnerOp, tag(1, VARINT, padding=1) + varint(1)),
    "a padded number in a packed list": (range_proof_pb2.RangeProof, part(1, varint(3, padding=1))),
    "a number of eleven bytes": (ics23_pb2.InnerOp, tag(1, VARINT) + b"\x80" * 10 + b"\x01"),
    "a number past 64 bits": (ics23_pb2.InnerSpec, tag(2, VARINT) + b"\xff" * 9 + b"\x7f"),
    "a negative number in 32 bits": (ics23_pb2.InnerSpec, number(2, 2**32 - 1)),
    "a number past 32 bits": (ics23_pb2.InnerSpec, number(2, 2**32 + 5)),
    "an unsigned number past 32 bits": (range_proof_pb2.RangeProof, part(1, varint(2**32 + 5))),
    "a boolean of 2": (ics23_pb2.ProofSpec, number(5, 2)),
    "a list one by one that is packed otherwise": (range_proof_pb2.RangeProof, number(1, 3) + number(1, 300)),
    "a packed list in two pieces": (range_proof_pb2.RangeProof, part(1, varint(3)) + part(1, varint(300))),
    "an empty packed list": (range_proof_pb2.RangeProof, part(1, b"")),
    "a packed list that ends early": (range_proof_pb2.RangeProof, part(1, b"\x80")),
    "text that is none": (tendermint_types_pb2.Header, part(2, b"\xff\xfe")),
    "text with a padded letter": (tendermint_types_pb2.Header, part(2, b"\xc1\x81")),
    "a length past the end": (ics23_pb2.InnerOp, tag(2, BYTES) + varint(7) + b"prefix"),
    "a length of 2^63": (ics23_pb2.InnerOp, tag(2, BYTES) + varint(1 << 63) + b"prefix"),
    "a length past the message it is in": (ics23_pb2.CommitmentProof, part(1, tag(1, BYTES) + b"\x04ke") + b"y"),
    "a tag alone": (ics23_pb2.InnerOp, tag(2, BYTES)),
    "a byte after the end": (ics23_pb2.InnerOp, INNER_OP + b"\x00"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_canonical_form_is_read(case: str) -> None:
    message_type, data = ACCEPTED[case]
    assert parse_canonical(message_type, data, "it").SerializeToString(deterministic=True) == data


@pytest.mark.parametrize("case", REFUSED)
def test_other_forms_are_refused(case: str) -> None:
    message_type, data = REFUSED[case]
    with pytest.raises(MalformedProof, match=r"^it is "):
        parse_canonical(message_type, data, "it")


def test_truncated_proofs_are_malformed() -> None:
    whole = part(1, EXISTENCE)
    for length in range(1, len(whole)):
        with pytest.raises(MalformedProof):
            parse_canonical(ics23_pb2.CommitmentProof, whole[:length], "it")


def nested(depth: int) -> bytes:
    """A witness of ``depth`` forks, each two messages, down its left side."""
    data = b""
    for _ in range(depth):
        data = part(1, part(1, data))
    return data


@pytest.mark.parametrize("depth", [51, 60, 128, 5_000])
def test_deep_messages_are_refused(depth: int) -> None:
    with pytest.raises(MalformedProof):
        parse_canonical(xnet_pb2.Witness, nested(depth), "it")


def test_messages_up_to_the_depth_limit_of_the_library_are_read() -> None:
    """Two parsers and one writer count levels; none of them fails on what another one accepts."""
    for depth in range(40, 60):
        data = nested(depth)
        try:
            parse_canonical(xnet_pb2.Witness, data, "it")
        except MalformedProof:
            assert depth > 45


@pytest.mark.parametrize("depth", [99, 200, 100_000])
def test_deep_groups_of_unknown_fields_are_refused(depth: int) -> None:
    groups = tag(9, GROUP) * depth + tag(9, GROUP_END) * depth
    with pytest.raises(MalformedProof):
        parse_canonical(ics23_pb2.InnerOp, groups, "it")


def test_oversized_messages_are_not_parsed() -> None:
    with pytest.raises(OverLimit, match="it has 11 bytes, at most 10 are read"):
        parse_canonical(ics23_pb2.InnerOp, b"\xff" * 11, "it", limit=10)
    with pytest.raises(OverLimit):
        require_length(bytes(MAX_PROOF_BYTES + 1), "it")
    require_length(bytes(MAX_PROOF_BYTES), "it")


def test_memoryview_is_measured_in_bytes() -> None:
    view = memoryview(bytes(16)).cast("Q")
    assert len(view) == 2
    with pytest.raises(OverLimit, match="it has 16 bytes"):
        require_length(view, "it", 10)
