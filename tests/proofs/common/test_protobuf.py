"""Untrusted protobuf: exactly the encodings that deployed decoders read as one message."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import MalformedProof, OverLimit
from causeway_proofs.protobuf import is_canonical, parse, parse_canonical
from causeway_proofs.wire.ics23_pb2 import (
    BatchEntry,
    CommitmentProof,
    CompressedExistenceProof,
    ExistenceProof,
    NonExistenceProof,
)

PROOF = ExistenceProof(key=b"k", value=b"v")
WHOLE = CommitmentProof(exist=PROOF)
PATH = CompressedExistenceProof(path=[1, 300])
KEY, VALUE = b"\x0a\x01k", b"\x12\x01v"

SAME = {
    "turned": VALUE + KEY,
    "a padded length": b"\x0a\x81\x00k" + VALUE,
    "a length padded as far as it goes": b"\x0a\x81" + b"\x80" * 8 + b"\x00k" + VALUE,
    "a padded tag": b"\x8a\x80\x80\x80\x80\x80\x00\x01k" + VALUE,
    "overwritten": b"\x0a\x01j" + KEY + VALUE,
    "an unknown number": KEY + b"\xa0\x06\x05" + VALUE,
    "unknown bytes": KEY + b"\xa2\x06\x01." + VALUE,
    "unknown words": KEY + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + VALUE,
    "an unknown group": KEY + b"\xa3\x06\xab\x06\x0a\x01x\xac\x06\xa4\x06" + VALUE,
}


@pytest.mark.parametrize("case", SAME)
def test_other_encodings_yield_the_same_message(case: str) -> None:
    found = parse(ExistenceProof, SAME[case], "proof")
    assert found == PROOF and found.SerializeToString() == KEY + VALUE
    assert not is_canonical(found, SAME[case])
    with pytest.raises(MalformedProof):
        parse_canonical(ExistenceProof, SAME[case], "proof")


def test_packed_and_split_lists_of_numbers_are_read() -> None:
    for encoded in (b"\x22\x03\x01\xac\x02", b"\x20\x01\x20\xac\x02", b"\x22\x02\x81\x00\x20\xac\x82\x00"):
        assert parse(CompressedExistenceProof, encoded, "proof") == PATH


def test_repeated_messages_are_merged_and_the_last_of_a_oneof_counts() -> None:
    merged = parse(NonExistenceProof, b"\x12\x03" + KEY + b"\x12\x03" + VALUE, "proof")
    assert merged == NonExistenceProof(left=PROOF)
    exist, absent = b"\x0a\x06" + KEY + VALUE, b"\x12\x00"
    assert parse(BatchEntry, absent + exist, "entry") == BatchEntry(exist=PROOF)
    assert parse(BatchEntry, exist + absent + exist, "entry") == BatchEntry(exist=PROOF)
    assert parse(BatchEntry, exist + absent, "entry") == BatchEntry(nonexist=NonExistenceProof())


REFUSED = {
    "a choice that follows itself": (b"\x0a\x03" + KEY + b"\x0a\x03" + VALUE, "CommitmentProof.exist twice"),
    "bytes as a number": (b"\x0a\x02\x08\x05", "ExistenceProof.key in wire type 0, not 2"),
    "a message as a group": (b"\x0b\x0c", "CommitmentProof.exist in wire type 3, not 2"),
    "field 0": (b"\x02\x00", "a field with the number 0"),
    "a field of a large number": (b"\x80\x80\x80\x80\x10\x00", "a field with the number 536870912"),
    "no such wire type": (b"\xa6\x06", "wire type 6"),
    "longer than it is": (b"\x0a\x05\x0a\x01", "ends within a field"),
    "words cut off": (b"\xa1\x06\x00", "ends within a field"),
    "a number cut off": (b"\x0a\x80", "a number that does not end"),
    "a number of eleven bytes": (b"\x0a" + b"\x80" * 10 + b"\x00", "more than 64 bits"),
    "a number of 65 bits": (b"\xa0\x06" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
    "a group that is not open": (b"\xa4\x06", "ends a group that is not open"),
    "a group that ends as another": (b"\xa3\x06\xac\x06", "ends a group that is not open"),
    "a group without an end": (b"\xa3\x06", "ends within a group"),
    "deep groups": (b"\xa3\x06" * 101 + b"\xa4\x06" * 101, "nested in more than 100 levels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_encodings_that_deployed_decoders_reject_are_refused(case: str) -> None:
    data, text = REFUSED[case]
    with pytest.raises(
        MalformedProof, match=r"^proof is no protobuf message cosmos\.ics23\.v1\.CommitmentProof: "
    ) as error:
        parse(CommitmentProof, data, "proof")
    assert text in str(error.value)


def test_oversized_encodings_are_not_parsed() -> None:
    assert parse(CommitmentProof, WHOLE.SerializeToString(), "proof", 8) == WHOLE
    with pytest.raises(OverLimit):
        parse(CommitmentProof, WHOLE.SerializeToString(), "proof", 7)
