"""Orders, groups and frames against plain Python lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.order import (
    bit_width,
    distinct,
    distinct_with_codes,
    find_positions,
    group_rows,
    stable_order,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame, concat, empty_frame, from_table, repeat_bytes, repeat_text, repeat_value
from tests.tiers import sized

QUICK = settings(max_examples=sized(45, 500), deadline=None, derandomize=True)
NUMBERS = st.sampled_from([0, 1, 2, 3, 2**16, 2**32 - 1, 2**32, 2**40 + 1, 2**63, 2**64 - 1])


def u64(numbers: Sequence[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


# ---- order


@QUICK
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=40))
def test_stable_order_matches_sorted(rows: list[tuple[int, int, int]]) -> None:
    keys = [u64([row[at] for row in rows]) for at in range(3)]
    assert stable_order(*keys).tolist() == sorted(range(len(rows)), key=lambda place: rows[place])
    # Small keys are packed into one word with the same order.
    small = [key % np.uint64(7) for key in keys]
    expected = sorted(range(len(rows)), key=lambda place: [int(key[place]) for key in small])
    assert stable_order(*(key.astype(np.uint8) for key in small)).tolist() == expected


def test_stable_order_does_not_modify_its_keys() -> None:
    key = u64([3, 1, 2])
    stable_order(key, u64([1, 1, 1]))
    assert key.tolist() == [3, 1, 2]


@QUICK
@given(st.sets(NUMBERS), st.lists(NUMBERS))
def test_positions_in_finds_rows_or_reports_absence(known: set[int], asked: list[int]) -> None:
    ordered = sorted(known)
    expected = [ordered.index(number) if number in known else -1 for number in asked]
    assert find_positions(u64(ordered), u64(asked)).tolist() == expected


@QUICK
@given(NUMBERS, st.integers(1, 9), st.lists(st.integers(-12, 12)))
def test_positions_in_a_contiguous_range(first: int, length: int, offsets: list[int]) -> None:
    known = [min(first, 2**64 - length) + place for place in range(length)]
    asked = [(known[0] + offset) % 2**64 for offset in offsets]
    expected = [known.index(number) if number in known else -1 for number in asked]
    assert find_positions(u64(known), u64(asked)).tolist() == expected


@QUICK
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=20))
def test_groups_are_runs_of_equal_rows(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows)
    groups = group_rows(u64([one for one, _ in rows]), u64([two for _, two in rows]))
    runs = [[place for place, row in enumerate(rows) if row == key] for key in sorted(set(rows))]
    assert groups.starts.tolist() == [run[0] for run in runs]
    assert groups.counts.tolist() == [len(run) for run in runs]
    assert groups.ranks().tolist() == [rank_ for run in runs for rank_ in range(len(run))]
    assert groups.spread(np.arange(len(groups))).tolist() == [at for at, run in enumerate(runs) for _ in run]
    assert groups.total == len(rows)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=600))
def test_distinct_and_numbered_match_unique(values: list[int]) -> None:
    column = np.array(values, dtype=np.uint64)
    found, places = np.unique(column, return_inverse=True)
    assert distinct(column).tolist() == found.tolist() == distinct_with_codes(column)[0].tolist()
    assert distinct_with_codes(column)[1].tolist() == places.tolist()


def test_bits_of_an_integer() -> None:
    assert [bit_width(u64(numbers)) for numbers in ([], [0], [1], [255, 3], [2**64 - 1])] == [0, 0, 1, 8, 64]


# ---- indices (IC reference 2.1, 2.2)


# ---- frames


SCHEMA = pa.schema(
    [
        pa.field("number", pa.uint64()),
        pa.field("flag", pa.bool_()),
        pa.field("text", pa.dictionary(pa.int32(), pa.string())),
        pa.field("bytes", pa.binary()),
        pa.field("digest", pa.binary(4)),
    ]
)
TEXTS = st.sampled_from(["", "a", "ä"])
ROWS = st.lists(
    st.tuples(NUMBERS, st.booleans(), TEXTS, st.binary(max_size=3), st.binary(min_size=4, max_size=4)), max_size=12
)
Row = tuple[int, bool, str, bytes, bytes]


def frame_of(rows: list[Row]) -> Frame:
    return from_table(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA))


def rows_of(frame: Frame) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in frame.to_table(SCHEMA).to_pylist()]


@QUICK
@given(ROWS, st.data())
def test_frames_behave_like_lists(rows: list[Row], data: st.DataObject) -> None:
    frame = frame_of(rows)
    assert rows_of(frame) == rows
    assert rows_of(empty_frame(SCHEMA)) == []
    places = data.draw(st.lists(st.integers(0, len(rows) - 1))) if rows else []
    assert rows_of(frame.take(np.array(places, dtype=np.int64))) == [rows[place] for place in places]
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = [row for row, keep in zip(rows, mask, strict=True) if keep]
    assert rows_of(frame.filter(np.array(mask, dtype=bool))) == kept
    begin = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(begin, len(rows)))
    part = frame.slice(begin, end)
    assert rows_of(part) == rows[begin:end]
    # A part of a column starts inside its buffers, and must still refer to the right bytes.
    assert rows_of(concat([part, frame, part])) == [*rows[begin:end], *rows, *rows[begin:end]]
    assert rows_of(part.take(np.arange(end - begin)[::-1])) == rows[begin:end][::-1]
    assert rows_of(from_table(part.to_table(SCHEMA))) == rows[begin:end]


def test_repeated_columns_are_ordinary_values() -> None:
    digest = np.array([1, 2, 3, 4], dtype=np.uint8)

    def one_value(number: int, length: int) -> Frame:
        return Frame(
            {
                "number": repeat_value(np.uint64(number), length),
                "flag": repeat_value(np.True_, length),
                "text": repeat_text("x", length),
                "bytes": repeat_bytes(b"yz", length),
                "digest": repeat_value(digest, length),
            },
            length,
        )

    row = (7, True, "x", b"yz", bytes([1, 2, 3, 4]))
    frame = one_value(7, 3)
    assert rows_of(frame) == [row] * 3
    assert rows_of(frame.take(np.array([2, 0]))) == [row] * 2
    assert rows_of(concat([frame, one_value(7, 2)])) == [row] * 5
    assert rows_of(concat([one_value(7, 1), one_value(8, 1)])) == [row, (8, *row[1:])], (
        "equal columns only are one value"
    )
    assert rows_of(concat([one_value(8, 0), frame])) == [row] * 3
    assert len(concat([one_value(8, 0), one_value(7, 0)])) == 0


def test_with_columns_broadcasts_a_scalar_and_checks_lengths() -> None:
    frame = Frame({"number": u64([1, 2])}).with_columns(number=np.uint64(9), more=u64([3, 4]))
    assert frame["number"].tolist() == [9, 9]
    assert frame.names == ["number", "more"]
    assert "more" in frame
    assert frame.get("absent", None) is None
    assert frame.select(["more"]).names == ["more"]
    with pytest.raises(ValueError, match="more has 3 rows, the frame 2"):
        frame.with_columns(more=u64([1, 2, 3]))
