"""Joins of frames by keys, against plain dicts, with keys of all sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame
from causeway.core.joins import encode_keys, expand_ranges, lookup_rows, merge_ranges
from tests.tiers import sized

NUMBERS = st.sampled_from([0, 1, 2, 3, 2**16, 2**32 - 1, 2**32, 2**40 + 1, 2**63, 2**64 - 1])
Row = tuple[int, int, int]
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 9)), max_size=20)
KEYS = ("one", "two", "three")
QUICK = settings(max_examples=sized(68, 750), deadline=None, derandomize=True)


def frame(rows: list[Row]) -> Frame:
    columns = {name: np.array([row[at] for row in rows], dtype=np.uint64) for at, name in enumerate(KEYS)}
    return Frame({**columns, "three": columns["three"].astype(np.uint32)}, len(rows))


@QUICK
@given(ROWS, ROWS)
def test_codes_order_and_compare_like_keys(first: list[Row], second: list[Row]) -> None:
    found = [int(code) for part in encode_keys(KEYS, frame(first), frame(second)) for code in part]
    rows = [*first, *second]
    for one in range(len(rows)):
        for two in range(len(rows)):
            assert (found[one] < found[two]) == (rows[one] < rows[two])
            assert (found[one] == found[two]) == (rows[one] == rows[two])


@QUICK
@given(ROWS, ROWS, st.booleans())
def test_lookup_finds_the_row_with_equal_keys(table: list[Row], asked: list[Row], ordered: bool) -> None:
    table = sorted(set(table)) if ordered else list(dict.fromkeys(table))
    where = {row: position for position, row in enumerate(table)}
    found = lookup_rows(frame(table), frame(asked), KEYS, ordered=ordered)
    assert found.tolist() == [where.get(row, -1) for row in asked]


def test_codes_do_not_modify_their_keys() -> None:
    rows = frame([(3, 1, 2), (1, 1, 1)])
    encode_keys(KEYS, rows, rows)
    encode_keys(KEYS[:1], rows)[0][:] = 9
    assert (rows["one"].tolist(), rows["three"].tolist()) == ([3, 1], [2, 1])


@QUICK
@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 2**64 - 20]), st.integers(-3, 6)), max_size=8))
def test_over_expands_ranges(ranges: list[tuple[int, int]]) -> None:
    begin = np.array([begin for begin, _ in ranges], dtype=np.uint64)
    end = np.array([max(begin + count, 0) for begin, count in ranges], dtype=np.uint64)
    rows, numbers = expand_ranges(begin, end)
    expected = [
        (row, number) for row, (first, count) in enumerate(ranges) for number in range(first, max(first + count, first))
    ]
    assert list(zip(rows.tolist(), numbers.tolist(), strict=True)) == expected


def test_range_that_ends_before_it_begins_is_empty() -> None:
    begin = np.array([2**64 - 1, 2**63, 5, 2**64 - 3], dtype=np.uint64)
    end = np.array([0, 1, 3, 2**64 - 1], dtype=np.uint64)
    rows, numbers = expand_ranges(begin, end)
    assert (rows.tolist(), numbers.tolist()) == ([3, 3], [2**64 - 3, 2**64 - 2])


@QUICK
@given(st.sets(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 2, 3, 5, 6, 2**63, 2**64 - 3, 2**64 - 2]))))
def test_ranges_are_maximal_and_over_expands_them(held: set[tuple[int, int]]) -> None:
    rows = sorted(held)
    key, numbers = (np.array([row[at] for row in rows], dtype=np.uint64) for at in (0, 1))
    at, begin, end = merge_ranges(numbers, key)
    back, spread = expand_ranges(begin, end)
    assert list(zip(key[at][back].tolist(), spread.tolist(), strict=True)) == rows
    firsts = [row for row in rows if (row[0], row[1] - 1) not in held]
    assert list(zip(key[at].tolist(), begin.tolist(), strict=True)) == firsts
