"""Amounts, codes, buckets and order of the ledger, against plain Python."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.ledger.encodings import (
    DigitsStatus,
    NameCodes,
    amount_limbs,
    amount_texts,
    drop_unused_names,
    limb_columns,
    parse_numbers,
    rank_names,
)
from causeway.ledger.row_order import EVENTS, ledger_order, message_bucket, message_buckets
from causeway.ledger.schema import LANE, LEDGER_SCHEMA
from tests.tiers import sized

EDGES = [0, 1, 9, 10**9 - 1, 10**9, 2**32, 2**63, 2**64 - 1, 2**64, 10**19, 2**128 - 1, 10**77, 2**256 - 1]
TEXTS = st.one_of(
    st.none(),
    st.integers(-5, 2**260).map(str),
    st.sampled_from(EDGES).map(str),
    st.integers(0, 2**260).map(hex),
    st.text(alphabet="0123456789 +-xXaf.e_\t", max_size=12),
)


def parse_plainly(text: str | None) -> tuple[int, DigitsStatus]:
    """Return the kind of a text by Python's own numbers."""
    stripped = "" if text is None else text.strip(" \t\n\r\v\f")
    if not stripped:
        return 0, DigitsStatus.EMPTY
    body = stripped[1:] if stripped[0] in "+-" else stripped
    base, digits = (16, body[2:]) if body[:2] in ("0x", "0X") else (10, body)
    if not digits or any(digit not in "0123456789abcdefABCDEF"[: 22 if base == 16 else 10] for digit in digits):
        return 0, DigitsStatus.NO_NUMBER
    if stripped[0] == "-":
        return 0, DigitsStatus.NEGATIVE
    number = int(digits, base)
    return (number, DigitsStatus.GOOD) if number < 2**256 else (0, DigitsStatus.TOO_LARGE)


@settings(max_examples=sized(27, 300))
@given(st.lists(TEXTS, max_size=30), st.integers(0, 3))
def test_texts_are_exact_numbers_or_classified(texts: list[str | None], skipped: int) -> None:
    found = parse_numbers(pa.array(texts, pa.string()).slice(skipped))
    expected = [parse_plainly(text) for text in texts[skipped:]]
    read = [sum(int(word) << 64 * place for place, word in enumerate(row)) for row in found.words]
    assert list(zip(read, found.found.tolist(), strict=True)) == [(number, int(kind)) for number, kind in expected]
    words, kinds = found.u64()
    for row, (number, kind) in enumerate(expected):
        wide = kind is DigitsStatus.GOOD and number >= 2**64
        assert (words[row], kinds[row]) == ((0, DigitsStatus.TOO_LARGE) if wide else (number & (2**64 - 1), kind))
    back = amount_texts(limb_columns(found)).to_pylist()
    assert back == [str(number) if kind is DigitsStatus.GOOD else None for number, kind in expected]


def test_largest_and_smallest_words_round_trip() -> None:
    numbers = [None, *EDGES, *(2**bits - 1 for bits in range(1, 257)), *(10**digits for digits in range(78))]
    expected = [None if number is None else str(number) for number in numbers]
    assert amount_texts(amount_limbs(numbers)).to_pylist() == expected
    for wrong in (-1, 2**256):
        with pytest.raises(ValueError, match="2\\*\\*256"):
            amount_limbs([wrong])
    with pytest.raises(ValueError, match="all null"):
        amount_texts([pa.array([1], pa.uint64()), *[pa.array([None], pa.uint64())] * 3])


def test_codes_are_equal_over_chunks_dictionaries_and_slices() -> None:
    names = NameCodes(["known"])
    texts = ["b", None, "a", "known", "", "b"]
    chunks = [pa.array(texts), pa.array(texts).dictionary_encode().slice(2), pa.array([], pa.string())]
    codes = names.codes(pa.chunked_array([chunk.cast(pa.string()) for chunk in chunks]))
    again = names.codes(chunks[1])
    assert names.column(codes).to_pylist() == [*texts, *texts[2:]]
    assert again.tolist() == codes[len(texts) :].tolist()
    assert codes[3] == 0 and codes[1] == -1 and len(names) == 4
    assert rank_names(pa.array(["é", "z", None, "", "z"])).tolist() == [3, 2, 0, 1, 2]


def test_unused_dictionary_names_are_ignored() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, None, 2, 0], pa.int32()), ["b", "unused", "a"])
    names = NameCodes()
    assert names.column(names.codes(column)).to_pylist() == column.to_pylist() and names.known() == ["b", "a"]
    kept = drop_unused_names(column)
    assert (kept.to_pylist(), kept.dictionary.to_pylist()) == (column.to_pylist(), ["b", "a"])
    assert drop_unused_names(kept) is kept
    row = {**dict.fromkeys(LEDGER_SCHEMA.names), "protocol": "p", "index": 1, "event": "sent"}
    rows = pa.Table.from_pylist([row, row, {**row, "event": "mint"}], LEDGER_SCHEMA)
    assert ledger_order(rows.slice(0, 2)).tolist() == [0, 1]


NAMES = st.sampled_from([None, "", "a", "b", "ab", "é"])
ROW = st.fixed_dictionaries(
    {
        **dict.fromkeys(LANE, NAMES),
        "protocol": st.sampled_from(["p", "q"]),
        "index": st.sampled_from([None, 0, 1, 2**18 - 1, 2**18, 2**64 - 1]),
        "message_id": NAMES,
        "event": st.sampled_from(EVENTS),
        "chain": NAMES,
        "revision": st.sampled_from([None, 1, 2]),
        "height": st.sampled_from([None, 0, 5, 2**64 - 1]),
        "position": st.sampled_from([None, 0, 7]),
    }
)
KEYS = [*LANE, "index", "message_id", "event", "chain", "revision", "height", "position"]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    fields = [LEDGER_SCHEMA.field(name) for name in KEYS]
    return pa.table({field.name: pa.array([row[field.name] for row in rows], field.type) for field in fields})


def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a row."""

    def first(value: Any) -> tuple[bool, Any]:
        return (value is not None, value.encode() if isinstance(value, str) else value or 0)

    message = (False, b"") if row["index"] is not None else first(row["message_id"])
    return (
        *(first(row[name]) for name in LANE),
        (row["index"] is None, row["index"] or 0),
        message,
        EVENTS.index(row["event"]),
        *(first(row[name]) for name in ("chain", "revision", "height", "position")),
    )


@settings(max_examples=sized(22, 250))
@given(st.lists(ROW, max_size=40), st.integers(1, 70), st.integers(0, 2))
def test_row_positions_match_plain_python(rows: list[dict[str, Any]], buckets: int, copies: int) -> None:
    rows = rows * (1 + 10 * copies)  # more than one column sort
    table = table_of(rows)
    expected = sorted(range(len(rows)), key=lambda row: place_of(rows[row]))
    assert ledger_order(table).tolist() == expected
    of_rows = [message_bucket([row[name] for name in LANE], row["index"], row["message_id"], buckets) for row in rows]
    assert message_buckets(table, buckets).tolist() == of_rows


def test_bucket_matches_the_page() -> None:
    lane = b"\1\3\0\0\0ibc" + b"\1\1\0\0\0a" + b"\0" + b"\1\0\0\0\0"

    def word(content: bytes) -> int:
        return int.from_bytes(hashlib.sha256(content).digest()[:8], "little")

    names = ["ibc", "a", None, ""]
    assert message_bucket(names, 3 << 18 | 5, "id", 64) == (word(lane) ^ word((3).to_bytes(8, "little"))) % 64
    assert message_bucket(names, None, "id", 64) == (word(lane) ^ word(b"id")) % 64
    assert message_bucket(names, None, None, 64) == word(lane) % 64


def test_unknown_event_is_refused() -> None:
    row: dict[str, Any] = dict.fromkeys(KEYS) | {"protocol": "p", "event": "seen"}
    with pytest.raises(InvalidInput, match=r"^event: seen: must be one of sent"):
        ledger_order(table_of([row]))


def test_many_names_do_not_overflow() -> None:
    many = [f"{number:05}" for number in range(3000)]
    rows = pa.table({name: pa.array(many if name != "lane" else many[::-1]) for name in LANE})
    rows = rows.append_column("index", pa.array(np.zeros(len(many), dtype=np.uint64)))
    for name in ("message_id", "chain"):
        rows = rows.append_column(name, pa.nulls(len(many), pa.string()))
    for name in ("height", "position"):
        rows = rows.append_column(name, pa.nulls(len(many), pa.uint64()))
    rows = rows.append_column("event", pa.array(["sent"] * len(many)))
    assert ledger_order(rows.take(list(range(2999, -1, -1)))).tolist() == list(range(2999, -1, -1))
