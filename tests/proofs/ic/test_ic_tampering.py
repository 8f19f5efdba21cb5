"""Alterations of slices by faulty carriers and block makers, column by column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.ic.primitives import CURRENT
from causeway_proofs.ic.slice import Certification, decode_certification, encode_certification
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header, encode_stream_header

from causeway.core.frame import Frame
from causeway.protocols.ic.faults import TAMPERED, alter_messages, alter_slices, propose_slices

HEADERS = [StreamHeader(3, 9, 4), StreamHeader(5, 5, 2**64 - 1)]
CERTIFIED = [Certification(6, b"\1" * 32, b"\2" * 48), Certification(2, b"\3" * 32, b"\4" * 48, None, b"witness")]


def u64(*values: int) -> Any:
    return np.array(values, dtype=np.uint64)


def binary(*values: bytes) -> Any:
    return pa.array(values, pa.binary())


def slices(**columns: Any) -> Frame:
    """Messages 6 and 7 of the stream from 1 to 0, whose newest run begins at 5, and the header of the one from 2."""
    found = {
        "source": np.array([1, 2], dtype=np.uint32),
        "destination": np.array([0, 0], dtype=np.uint32),
        "substream": u64(0, 0),
        "receiver": np.array([0, 0], dtype=np.uint32),
        "begin": u64(3, 5),
        "end": u64(9, 5),
        "signals_end": u64(4, 2**64 - 1),
        "message_begin": u64(6, 5),
        "message_end": u64(8, 5),
        "anchor": u64(5, 5),
        "number": u64(6, 2),
        "header": binary(*(encode_stream_header(header) for header in HEADERS)),
        "siblings": binary(b"\5" * 64, b"\6" * 32),
        "path": binary(b"\0\1\0" + b"\7" * 32, b"\1\1" + b"\0" * 33 + b"\1" + b"\7" * 32),
        "certification": binary(*(encode_certification(item) for item in CERTIFIED)),
    }
    return Frame({**found, **columns}, 2)


def values(column: Any) -> Any:
    return column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()


def changed_columns(before: Frame, after: Frame) -> dict[str, list[int]]:
    """Return the differing columns and their rows."""
    found: dict[str, list[int]] = {}
    for name in after.names:
        old = values(before[name]) if name in before else [None, None]
        found[name] = [row for row, value in enumerate(values(after[name])) if value != old[row]]
    return {name: rows for name, rows in found.items() if rows}


@pytest.mark.parametrize(
    ("part", "columns"),
    [
        ("payload", {TAMPERED: [0, 1]}),
        ("sibling", {"siblings": [0], "path": [1]}),
        ("signature", {"certification": [0, 1]}),
        ("destination", {"receiver": [0, 1]}),
        ("height", {"certification": [0, 1], "number": [0, 1]}),
        ("header", {"header": [0], "signals_end": [0]}),
    ],
)
def test_carrier_alters_one_part_and_no_other(part: str, columns: dict[str, list[int]]) -> None:
    assert changed_columns(slices(), alter_slices(slices(), part, CURRENT)) == columns


def test_altered_slices_stay_readable() -> None:
    headers = [decode_stream_header(data) for data in alter_slices(slices(), "header", CURRENT)["header"].to_pylist()]
    assert headers == [replace(HEADERS[0], signals_end=5), HEADERS[1]], "an index is 64 bits at most"
    signed = [
        decode_certification(data) for data in alter_slices(slices(), "signature", CURRENT)["certification"].to_pylist()
    ]
    assert signed == [
        replace(item, signature=item.signature[:-1] + bytes([item.signature[-1] ^ 1])) for item in CERTIFIED
    ]
    higher = alter_slices(slices(), "height", CURRENT)
    assert [decode_certification(data).height for data in higher["certification"].to_pylist()] == [7, 3]
    assert higher["number"].tolist() == [7, 3]


@pytest.mark.parametrize(("first", "stop"), [(4, 8), (6, 6)])
def test_unneeded_sibling_is_not_altered(first: int, stop: int) -> None:
    given = slices(message_begin=u64(first, 5), message_end=u64(stop, 5))
    assert changed_columns(given, alter_slices(given, "sibling", CURRENT)) == {"path": [0, 1]}


@pytest.mark.parametrize(
    ("does", "begins", "ends"),
    [
        ("gap", [7, 5], [9, 5]),
        ("replay", [3, 5], [9, 5]),
        ("stale", [3, 5], [9, 5]),
        ("oversized", [6, 5], [9, 5]),
        ("foreign", [6, 5], [8, 5]),
        ("reorder", [6, 5], [8, 5]),
    ],
)
def test_faulty_block_maker_proposals(does: str, begins: list[int], ends: list[int]) -> None:
    older = slices(number=u64(5, 1))
    found = propose_slices(slices(), slices(), older, does)
    assert (found["message_begin"].tolist(), found["message_end"].tolist()) == (begins, ends)
    assert found["number"].tolist() == ([5, 1] if does == "stale" else [6, 2])
    assert found["receiver"].tolist() == ([1, 2] if does == "foreign" else [0, 0])


def test_unserved_slices_stay_as_proposed() -> None:
    found = propose_slices(slices(), slices(), slices(number=u64(5, 1)).slice(0, 1), "stale")
    assert found["number"].tolist() == [5, 2]
    assert found["message_begin"].tolist() == [3, 5]


def messages(*rows: tuple[int, int, bytes]) -> Frame:
    """Rows of (source, index, payload) to chain 0, each with its payload's length as its callback."""
    return Frame(
        {
            "source": np.array([source for source, _, _ in rows], dtype=np.uint32),
            "destination": np.zeros(len(rows), dtype=np.uint32),
            "substream": np.zeros(len(rows), dtype=np.uint64),
            "index": u64(*(index for _, index, _ in rows)),
            "callback": u64(*(len(payload) for _, _, payload in rows)),
            "payload": binary(*(payload for _, _, payload in rows)),
        },
        len(rows),
    )


ROWS = ((3, 6, b"other"), (1, 7, b"seven7"), (1, 5, b"five"), (1, 6, b""), (1, 8, b"eight"))


def test_bit_of_the_first_message_is_flipped() -> None:
    found = alter_messages(messages(*ROWS), alter_slices(slices(), "payload", CURRENT))
    assert found["payload"].to_pylist() == [b"other", b"seven7", b"five", b"\1", b"eight"]
    rows = ((1, 6, b"six"), *ROWS[1:3])
    found = alter_messages(messages(*rows), alter_slices(slices(), "payload", CURRENT))
    assert found["payload"].to_pylist() == [b"rix", b"seven7", b"five"]


def test_first_two_messages_are_exchanged() -> None:
    marked = propose_slices(slices(), slices(), slices(), "reorder")
    found = alter_messages(messages(*ROWS), marked)
    assert found["payload"].to_pylist() == [b"other", b"", b"five", b"seven7", b"eight"]
    assert found["callback"].tolist() == [5, 0, 4, 6, 5], "whole messages are exchanged"
    assert found["index"].tolist() == [6, 7, 5, 6, 8], "each at the other's position"
    one = propose_slices(slices(message_end=u64(7, 5)), slices(), slices(), "reorder")
    assert alter_messages(messages(*ROWS), one)["payload"].to_pylist() == [payload for _, _, payload in ROWS]


def test_messages_of_unmarked_slices_are_unchanged() -> None:
    before = messages(*ROWS)
    assert alter_messages(before, slices()) is before
    bare = alter_slices(slices(message_end=u64(6, 5)), "payload", CURRENT)
    assert alter_messages(before, bare) is before, "a header alone has no message to alter"
