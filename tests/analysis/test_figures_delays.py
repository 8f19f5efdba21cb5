"""Delay distributions: independent of part order, exact while small, else approximate."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from causeway.analysis.figures import latency
from causeway.analysis.figures.latency import BITS, DELAYS_SCHEMA, EXTENTS_SCHEMA, merge_distributions
from causeway.analysis.figures.over_time import MAX_BINS, TICK, TIME, WIDTHS, choose_level
from causeway.ledger.schema import LANE
from tests.spec.figures import quantile

Taken = list[tuple[int, int, int]]
"""Lane, measure and delay of messages."""


def piece(taken: Taken) -> tuple[pa.Table, pa.Table]:
    """Statistics of one bucket for a number of messages."""
    rows = [(lane, measure, False, delay, 1) for lane, measure, delay in taken]
    entries = pa.table([pa.array(column) for column in zip(*rows, strict=True)], DELAYS_SCHEMA.names)
    sums = [(a, b, 1, d >> 32, d & 0xFFFFFFFF, d, d, int(d < 0)) for a, b, d in taken]
    extents = pa.table([pa.array(column) for column in zip(*sums, strict=True)], EXTENTS_SCHEMA.names)
    return merge_distributions([entries.cast(DELAYS_SCHEMA)], [extents.cast(EXTENTS_SCHEMA)])


def test_delay_distributions_are_independent_of_piece_order() -> None:
    random = Random(1)
    spans = ((-28, 2**8), (-(2**27), 2**30), (-(2**59), 2**62), (2**30, 2**30 + 2**17))  # the last one is incomplete
    taken = [
        (lane, measure, random.randrange(*span))
        for lane, span in enumerate(spans)
        for measure in (0, 1)
        for _ in range(400)
    ]
    with patch.object(latency, "EXACT_BITS", 300):
        whole = piece(taken)
        for _ in range(10):
            random.shuffle(taken)
            ends = [0, *sorted(random.sample(range(1, len(taken)), 9)), len(taken)]
            pieces = [piece(taken[first:last]) for first, last in pairwise(ends)]
            while len(pieces) > 1:
                some = [pieces.pop(random.randrange(len(pieces))) for _ in range(random.randrange(2, len(pieces) + 1))]
                pieces.append(merge_distributions([entries for entries, _ in some], [extents for _, extents in some]))
            assert pieces[0][0].equals(whole[0]) and pieces[0][1].equals(whole[1])
        names = {name: pa.array(["a", "b", "c", "d"]) for name in LANE}
        rows = latency.latency_table(*whole, names, "lane").to_pylist()
    assert [row["exact"] for row in rows] == [True] * 2 + [False] * 6
    for row in rows:
        lane, seconds = "abcd".index(row["lane"]), row["unit"] == "seconds"
        own = [delay for a, b, delay in taken if (a, b) == (lane, int(seconds))]
        scale = 1e6 if seconds else 1
        assert (row["count"], row["negative"]) == (400, sum(delay < 0 for delay in own))
        assert (row["min"], row["max"]) == (min(own) / scale, max(own) / scale)
        assert row["mean"] == sum(own) / 400 / scale
        for percent in (50, 90, 99):
            exact = quantile(own, percent) / scale
            error = 0 if row["exact"] else abs(exact) / 2**BITS
            assert abs(row[f"p{percent}"] - exact) <= error * (1 + 1e-9)


def test_bin_widths_are_nested_multiples_and_bin_counts_are_bounded() -> None:
    for axis, least in ((TICK, 0), (TIME, -(2**63))):
        for width, wider in pairwise(WIDTHS[axis]):
            assert wider > width and wider % width == 0
        for first, last in ((least, 2**63 - 1), (0, 0), (0, 255), (0, 256), (5, 10**15), (2**62, 2**62 + 999)):
            width = WIDTHS[axis][choose_level(axis, first, last)]
            assert last // width - first // width < MAX_BINS
            assert np.iinfo(np.int64).max > width
