"""Decoding of scalar program states from untrusted files."""

from __future__ import annotations

import cbor2
import pytest

from causeway.cli.commands.state import format_cell
from causeway.explorer.height_page import _bytes
from causeway.programs.state_values import UnreadableState, read_state_value


def nested_lists(times: int) -> bytes:
    """Build a list of ten times one that is ten times one, and so on, in about 30 bytes each."""
    content = b"\xd8\x1c\x8a" + 10 * b"\x63lol"
    for number in range(times):
        content += b"\xd8\x1c\x8a" + 10 * (b"\xd8\x1d" + cbor2.dumps(number))
    return b"\x81\x98" + bytes([times + 1]) + content


HOSTILE = {
    "references": nested_lists(12),
    "a cycle": b"\xd8\x1c\x82\x01\xd8\x1d\x00",
    "a pattern": cbor2.dumps(cbor2.CBORTag(35, "(")),
    "a decimal": b"\xc4\x82\x1b\x7f" + 7 * b"\xff" + b"\x01",
    "a tag": cbor2.dumps(cbor2.CBORTag(9_999, 1)),
    "depth": 100_000 * b"\x81" + b"\x01",
    "a length": b"\x9b\x7f" + 7 * b"\xff",
    "no text": b"\x62\xff\xff",
    "nothing": b"",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_invalid_program_states_are_rejected(content: bytes) -> None:
    with pytest.raises(UnreadableState, match="the state of a program is not what one keeps: "):
        read_state_value(content)
    assert format_cell("state", content)[:40] == content.hex()[:40]
    assert _bytes("state", content)[:40] == content.hex()[:40]


@pytest.mark.parametrize("value", [[{"a": [1, None, b"x", True]}, {3: "note"}, {(1, 2, 3, 4): 1}], 2**200, -(2**200)])
def test_program_states_are_decoded(value: object) -> None:
    assert read_state_value(cbor2.dumps(value, canonical=True)) == value
