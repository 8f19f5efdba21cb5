"""Operations of the queue algebra that move tail, head or segments apart from elements."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import IndexOverflow

from causeway.core.frame import Frame, empty_frame
from causeway.core.queues import Queues

COUNTERS = pa.schema([(name, pa.uint64()) for name in ("lane", "begin", "next_index")])
ELEMENTS = pa.schema([(name, pa.uint64()) for name in ("lane", "index")])
SEGMENTS = pa.schema([(name, pa.uint64()) for name in ("lane", "first", "count")])


def column(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def lanes(*values: int) -> Frame:
    return Frame({"lane": column(*values)})


def queues(limit: int = 2**64 - 1) -> Queues:
    """Three elements in queue 1, two in queue 5; each queue's elements lie in one segment."""
    counters, elements, segments = map(empty_frame, (COUNTERS, ELEMENTS, SEGMENTS))
    made = Queues(("lane",), counters, elements, segments, base=0, limit=limit)
    made = made.push(lanes(5, 1, 1, 5, 1))
    return made.add_segments(Frame({"lane": column(1, 5), "first": column(0, 0), "count": column(3, 2)}))


def ends(made: Queues) -> list[tuple[int, int]]:
    return list(zip(made.counters["begin"].tolist(), made.counters["next_index"].tolist(), strict=True))


def test_extend_moves_tails_up_and_never_down() -> None:
    made = queues().extend(lanes(5, 1), column(9, 2))
    assert ends(made) == [(0, 3), (0, 9)] and len(made.elements) == 5
    assert ends(made.extend(lanes(7), column(4)))[2] == (0, 4)


def test_trim_moves_heads_to_the_first_remaining_element() -> None:
    made = queues().delete(lanes(1, 5, 5).with_columns(index=column(0, 0, 1)))
    assert ends(made) == [(0, 3), (0, 2)]
    assert ends(made.trim(lanes(5, 1, 5))) == [(1, 3), (2, 2)]
    assert ends(made.trim(lanes(1))) == [(1, 3), (0, 2)]
    assert made.trim(lanes()) is made


def test_forget_drops_whole_segments_below_the_index() -> None:
    made = queues()
    assert made.forget(column(2, 1)) is made
    kept = made.forget(column(2, 2)).segments
    assert kept is not None and kept["lane"].tolist() == [1]


def test_tails_stay_within_the_limit() -> None:
    made = queues(limit=4).push(lanes(1))
    assert ends(made)[0] == (0, 4)
    with pytest.raises(IndexOverflow, match="would pass index 4"):
        made.push(lanes(1))
