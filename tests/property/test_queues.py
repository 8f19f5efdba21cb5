"""The queue algebra in columns against plain dicts, with keys and indices of all sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.model.errors import IndexOverflow, NotInQueue
from causeway.model.frame import Frame
from causeway.model.index import MAX_INDEX
from causeway.model.queues import Counters, Queue, QueueMap, new_queue

KEYS = [0, 1, 2, 2**32 - 1, 2**32, 2**32 + 7, 2**63, 2**64 - 1]
"""Numbers above 2**32 need the general path of pair codes."""

Key = tuple[int, int]
QUICK = settings(max_examples=150, deadline=None, derandomize=True)


def u64(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


class Plain:
    """Many queues as dicts: the definition (2.3), one element at a time."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.next_index: dict[Key, int] = {}
        self.elements: dict[Key, dict[int, bytes]] = {}

    def push(self, rows: list[tuple[int, int, bytes]]) -> None:
        for first, second, value in rows:
            index = self.next_index.get((first, second), self.base)
            if index + 1 > MAX_INDEX:
                raise IndexOverflow
            self.next_index[first, second] = index + 1
            self.elements.setdefault((first, second), {})[index] = value

    def advance(self, key: Key, to: int) -> None:
        self.next_index[key] = max(self.next_index.get(key, self.base), to)
        self.elements[key] = {index: v for index, v in self.elements.get(key, {}).items() if index >= to}

    def flat(self) -> list[tuple[int, int, int, bytes]]:
        return sorted((*key, index, value) for key, queue in self.elements.items() for index, value in queue.items())


def empty_map(base: int) -> QueueMap:
    columns = {name: u64([]) for name in ("one", "two", "index")}
    return QueueMap(Counters.empty(base), Frame({**columns, "value": pa.array([], pa.binary())}, 0), ("one", "two"))


def rows_frame(rows: list[tuple[int, int, bytes]]) -> Frame:
    return Frame(
        {
            "one": u64([one for one, _, _ in rows]),
            "two": u64([two for _, two, _ in rows]),
            "value": pa.array([value for _, _, value in rows], pa.binary()),
        },
        len(rows),
    )


def places_frame(places: list[tuple[int, int, int]]) -> Frame:
    return Frame({name: u64([place[at] for place in places]) for at, name in enumerate(("one", "two", "index"))})


def flat(queues: QueueMap) -> list[tuple[int, int, int, bytes]]:
    columns = [queues.elements[name].tolist() for name in ("one", "two", "index")]
    return list(zip(*columns, queues.elements["value"].to_pylist(), strict=True))


def assert_same(queues: QueueMap, plain: Plain) -> None:
    assert flat(queues) == plain.flat(), "elements, ascending by key and index"
    counters = queues.counters
    keys = list(zip(counters.first.tolist(), counters.second.tolist(), strict=True))
    assert keys == sorted(plain.next_index)
    assert dict(zip(keys, counters.next_index.tolist(), strict=True)) == plain.next_index
    asked = [(one, two) for one in KEYS for two in KEYS]
    of = counters.of(u64([one for one, _ in asked]), u64([two for _, two in asked]))
    assert of.tolist() == [plain.next_index.get(key, plain.base) for key in asked]


KEY = st.sampled_from(KEYS)
ROWS = st.lists(st.tuples(KEY, KEY, st.binary(max_size=3)), max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), ROWS),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 50), max_size=5)),
        st.tuples(st.just("advance"), st.dictionaries(st.tuples(KEY, KEY), st.integers(0, 12), max_size=3)),
        st.tuples(st.just("clear"), st.none()),
        st.tuples(st.just("part"), KEY),
    ),
    max_size=12,
)


@QUICK
@given(STEPS, st.sampled_from([0, 1, 2**64 - 9]))
def test_map_form_is_the_definition(steps: list[tuple[str, Any]], base: int) -> None:
    queues, plain = empty_map(base), Plain(base)
    for step, argument in steps:
        if step == "push":
            before = plain.flat(), dict(plain.next_index)
            try:
                plain.push(argument)
            except IndexOverflow:
                with pytest.raises(IndexOverflow):
                    queues.push(rows_frame(argument))
                assert flat(queues) == before[0], "a push that fails changes nothing"
                return
            queues = queues.push(rows_frame(argument))
        elif step == "delete":
            everything = plain.flat()
            places = sorted({everything[place % len(everything)][:3] for place in argument}) if everything else []
            queues = queues.delete(places_frame(places))
            for one, two, index in places:
                del plain.elements[one, two][index]
        elif step == "advance":
            keys, to = list(argument), list(argument.values())
            queues = queues.advance(u64([one for one, _ in keys]), u64([two for _, two in keys]), u64(to))
            for key in keys:
                plain.advance(key, argument[key])
        elif step == "part":
            kept = queues.counters.first != np.uint64(argument)
            rest = queues.counters.select(~kept)
            queues = QueueMap(queues.counters.select(kept).union(rest), queues.elements, queues.keys)
        else:
            queues = queues.clear()
            plain.elements = {}
        assert_same(queues, plain)


@QUICK
@given(ROWS, st.tuples(KEY, KEY), st.integers(0, 9), st.integers(0, 9))
def test_slice_is_a_run_of_one_queue(rows: list[tuple[int, int, bytes]], key: Key, begin: int, end: int) -> None:
    queues, plain = empty_map(1).push(rows_frame(rows)), Plain(1)
    plain.push(rows)
    found = queues.slice(*key, begin, end)
    expected = [(index, v) for one, two, index, v in plain.flat() if (one, two) == key and begin <= index < end]
    assert list(zip(found["index"].tolist(), found["value"].to_pylist(), strict=True)) == expected


def test_rows_of_one_queue_keep_their_order_wherever_they_stand() -> None:
    queues = empty_map(1).push(rows_frame([(9, 1, b"a"), (0, 5, b"b"), (9, 1, b"c"), (0, 5, b"d"), (9, 0, b"e")]))
    assert flat(queues) == [(0, 5, 1, b"b"), (0, 5, 2, b"d"), (9, 0, 1, b"e"), (9, 1, 1, b"a"), (9, 1, 2, b"c")]


@pytest.mark.parametrize(
    "missing", [(0, 5, 3), (0, 5, 0), (5, 0, 1), (2**33, 5, 1), (0, 2**64 - 1, 2**64 - 1)], ids=str
)
def test_delete_of_what_is_absent_is_not_in_queue(missing: tuple[int, int, int]) -> None:
    queues = empty_map(1).push(rows_frame([(0, 5, b"b"), (0, 5, b"d")]))
    with pytest.raises(NotInQueue, match=f"one {missing[0]}, two {missing[1]}, index {missing[2]}"):
        queues.delete(places_frame([(0, 5, 1), missing]))
    assert len(queues.elements) == 2


def test_delete_takes_any_place_and_next_index_stays() -> None:
    queues = empty_map(0).push(rows_frame([(0, 5, bytes([number])) for number in range(4)]))
    queues = queues.delete(places_frame([(0, 5, 1), (0, 5, 3)]))
    assert [index for _, _, index, _ in flat(queues)] == [0, 2]
    assert [index for _, _, index, _ in flat(queues.push(rows_frame([(0, 5, b"x")])))] == [0, 2, 4]


def test_overflow_names_the_queue_and_comes_one_before_the_end_of_the_word() -> None:
    start = Counters(u64([7]), u64([8]), u64([2**64 - 3]), 1)
    index, after = start.push(u64([7, 7]), u64([8, 8]))
    assert index.tolist() == [2**64 - 3, 2**64 - 2]
    assert after.next_index.tolist() == [2**64 - 1]
    with pytest.raises(IndexOverflow, match=r"queue \(7, 8\)"):
        after.push(u64([7]), u64([8]))
    assert after.push(u64([7]), u64([9]))[0].tolist() == [1], "other queues go on"


# ---- the plain form: one queue


def values(*items: bytes) -> Frame:
    return Frame({"value": pa.array(items, pa.binary())}, len(items))


def plain_queue(base: int = 1) -> Queue:
    return new_queue(Frame({"index": u64([]), "value": pa.array([], pa.binary())}, 0), base)


def content(queue: Queue) -> dict[int, bytes]:
    return dict(zip(queue.elements["index"].tolist(), queue.elements["value"].to_pylist(), strict=True))


@QUICK
@given(
    st.lists(
        st.one_of(
            st.lists(st.binary(max_size=3), max_size=4),
            st.tuples(st.just("advance"), st.integers(0, 15)),
            st.just("clear"),
            st.tuples(st.just("delete"), st.integers(0, 15)),
        ),
        max_size=10,
    ),
    st.sampled_from([0, 1]),
)
def test_plain_form_is_the_map_form_of_one_queue(steps: list[Any], base: int) -> None:
    queue, next_index, elements = plain_queue(base), base, dict[int, bytes]()
    for step in steps:
        if isinstance(step, list):
            queue = queue.push(values(*step))
            elements |= {next_index + place: value for place, value in enumerate(step)}
            next_index += len(step)
        elif step == "clear":
            queue, elements = queue.clear(), {}
        elif step[0] == "advance":
            queue, next_index = queue.advance(step[1]), max(next_index, step[1])
            elements = {index: value for index, value in elements.items() if index >= step[1]}
        elif step[1] in elements:
            queue = queue.delete(Frame({"index": u64([step[1]])}))
            del elements[step[1]]
        else:
            with pytest.raises(NotInQueue):
                queue.delete(Frame({"index": u64([step[1]])}))
        assert (queue.next_index, content(queue)) == (next_index, elements)
    run = queue.slice(2, 5)
    assert run["index"].tolist() == [index for index in elements if 2 <= index < 5]
