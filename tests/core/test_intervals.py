"""Intervals against plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from causeway.core.joins import Intervals

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=12)


@given(st.sets(st.integers(0, 40)), RANGES, st.tuples(st.integers(0, 45), st.integers(0, 45)))
def test_intervals_behave_like_sets(start, ranges, asked):
    intervals = Intervals.of(np.array(sorted(start), dtype=np.uint64))
    plain = set(start)
    for begin, length in ranges:
        intervals.add(begin, begin + length)
        plain |= set(range(begin, begin + length))
    assert [i for a, b in zip(intervals.starts, intervals.stops, strict=True) for i in range(a, b)] == sorted(plain)
    assert all(stop < start for stop, start in zip(intervals.stops, intervals.starts[1:], strict=False)), (
        "they are apart"
    )
    parts = list(intervals.cut(*asked))
    assert [i for begin, end, _ in parts for i in range(begin, end)] == list(range(*asked))
    assert {i for begin, end, inside in parts if inside for i in range(begin, end)} == plain & set(range(*asked))
    rest = intervals.without(*asked)
    assert {i for a, b in zip(rest.starts, rest.stops, strict=True) for i in range(a, b)} == set(range(*asked)) - plain
