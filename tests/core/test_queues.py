"""The queue algebra in columns against plain dicts, with keys and indices of all sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import IndexOverflow, NotInQueue
from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.core.frame import Frame
from causeway.core.queues import MAX_INDEX, Queues
from tests.tiers import sized

KEYS = [0, 1, 2, 2**32 - 1, 2**32, 2**32 + 7, 2**63, 2**64 - 1]
"""Numbers above 2**32 need the general path of pair codes."""

Key = tuple[int, int]
QUICK = settings(max_examples=sized(68, 750), deadline=None, derandomize=True)


def u64(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.uint64)


class Plain:
    """Many queues as dicts: the definition (IC reference 2.3), one element at a time."""

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


def empty_queues(base: int) -> Queues:
    columns = {name: u64([]) for name in ("one", "two")}
    elements = Frame({**columns, "index": u64([]), "value": pa.array([], pa.binary())}, 0)
    return Queues(("one", "two"), Frame({**columns, "next_index": u64([])}, 0), elements, base=base)


def keys_frame(keys: list[Key]) -> Frame:
    return Frame({"one": u64([one for one, _ in keys]), "two": u64([two for _, two in keys])}, len(keys))


def rows_frame(rows: list[tuple[int, int, bytes]]) -> Frame:
    return Frame(
        {
            "one": u64([one for one, _, _ in rows]),
            "two": u64([two for _, two, _ in rows]),
            "value": pa.array([value for _, _, value in rows], pa.binary()),
        },
        len(rows),
    )


def positions_frame(positions: list[tuple[int, int, int]]) -> Frame:
    names = ("one", "two", "index")
    return Frame({name: u64([position[at] for position in positions]) for at, name in enumerate(names)})


def flat(queues: Queues) -> list[tuple[int, int, int, bytes]]:
    columns = [queues.elements[name].tolist() for name in ("one", "two", "index")]
    return list(zip(*columns, queues.elements["value"].to_pylist(), strict=True))


def read_counters(queues: Queues, name: str = "next_index") -> dict[Key, int]:
    counters = queues.counters
    keys = list(zip(counters["one"].tolist(), counters["two"].tolist(), strict=True))
    assert keys == sorted(set(keys)), "counters ascend by the keys"
    return dict(zip(keys, counters[name].tolist(), strict=True))


ASKED = [(one, two) for one in KEYS for two in KEYS]


def assert_same(queues: Queues, plain: Plain) -> None:
    assert flat(queues) == plain.flat(), "elements, ascending by key and index"
    assert read_counters(queues) == plain.next_index
    found = queues.read_counters("next_index", keys_frame(ASKED))
    assert found.tolist() == [plain.next_index.get(key, plain.base) for key in ASKED]
    assert (queues.positions(keys_frame(ASKED)) >= 0).tolist() == [key in plain.next_index for key in ASKED]


KEY = st.sampled_from(KEYS)
ROWS = st.lists(st.tuples(KEY, KEY, st.binary(max_size=3)), max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), ROWS),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 50), max_size=5)),
        st.tuples(st.just("advance"), st.dictionaries(st.tuples(KEY, KEY), st.integers(0, 12), max_size=3)),
        st.tuples(st.just("clear"), st.none()),
        st.tuples(st.just("ensure"), st.lists(st.tuples(KEY, KEY), max_size=4)),
        st.tuples(st.just("without"), st.none()),
        st.tuples(st.just("number"), ROWS),
    ),
    max_size=12,
)


@QUICK
@given(STEPS, st.sampled_from([0, 1, 2**64 - 9]))
def test_columns_match_the_definition(steps: list[tuple[str, Any]], base: int) -> None:
    queues, plain = empty_queues(base), Plain(base)
    for step, argument in steps:
        if step in ("push", "number"):
            before = plain.flat(), dict(plain.next_index)
            try:
                plain.push(argument)
            except IndexOverflow:
                with pytest.raises(IndexOverflow):
                    queues.push(rows_frame(argument))
                assert (flat(queues), read_counters(queues)) == before, "a push that fails changes nothing"
                return
            if step == "push":
                queues = queues.push(rows_frame(argument))
            else:
                index, queues = queues.number(rows_frame(argument))
                queues = queues.merge(rows_frame(argument).with_columns(index=index))
        elif step == "delete":
            everything = plain.flat()
            chosen = sorted({everything[row % len(everything)][:3] for row in argument}) if everything else []
            queues = queues.delete(positions_frame(chosen))
            for one, two, index in chosen:
                del plain.elements[one, two][index]
        elif step == "advance":
            keys, to = list(argument), list(argument.values())
            queues = queues.advance(keys_frame(keys), u64(to))
            for key in keys:
                plain.advance(key, argument[key])
        elif step == "ensure":
            queues = queues.ensure(keys_frame(argument))
            plain.next_index = dict.fromkeys(argument, base) | plain.next_index
        elif step == "without":
            held = {row[:2] for row in plain.flat()}
            queues = queues.without(np.array([key not in held for key in read_counters(queues)], dtype=bool))
            plain.next_index = {key: value for key, value in plain.next_index.items() if key in held}
        else:
            queues = queues.clear()
            plain.elements = {}
        assert_same(queues, plain)


@QUICK
@given(ROWS, st.tuples(KEY, KEY), st.integers(0, 9), st.integers(0, 9))
def test_slice_is_a_range_of_one_queue(rows: list[tuple[int, int, bytes]], key: Key, begin: int, end: int) -> None:
    queues, plain = empty_queues(1).push(rows_frame(rows)), Plain(1)
    plain.push(rows)
    found = queues.slice({"one": key[0], "two": key[1]}, begin, end)
    expected = [(index, v) for one, two, index, v in plain.flat() if (one, two) == key and begin <= index < end]
    assert list(zip(found["index"].tolist(), found["value"].to_pylist(), strict=True)) == expected


def test_rows_of_one_queue_keep_their_order_at_any_position() -> None:
    queues = empty_queues(1).push(rows_frame([(9, 1, b"a"), (0, 5, b"b"), (9, 1, b"c"), (0, 5, b"d"), (9, 0, b"e")]))
    assert flat(queues) == [(0, 5, 1, b"b"), (0, 5, 2, b"d"), (9, 0, 1, b"e"), (9, 1, 1, b"a"), (9, 1, 2, b"c")]


@pytest.mark.parametrize(
    "missing", [(0, 5, 3), (0, 5, 0), (5, 0, 1), (2**33, 5, 1), (0, 2**64 - 1, 2**64 - 1)], ids=str
)
def test_delete_of_an_absent_element_raises_not_in_queue(missing: tuple[int, int, int]) -> None:
    queues = empty_queues(1).push(rows_frame([(0, 5, b"b"), (0, 5, b"d")]))
    with pytest.raises(NotInQueue, match=f"one {missing[0]}, two {missing[1]}, index {missing[2]}"):
        queues.delete(positions_frame([(0, 5, 1), missing]))
    assert len(queues.elements) == 2


def test_delete_removes_any_element_and_keeps_next_index() -> None:
    queues = empty_queues(0).push(rows_frame([(0, 5, bytes([number])) for number in range(4)]))
    queues = queues.delete(positions_frame([(0, 5, 1), (0, 5, 3)]))
    assert [index for _, _, index, _ in flat(queues)] == [0, 2]
    assert [index for _, _, index, _ in flat(queues.push(rows_frame([(0, 5, b"x")])))] == [0, 2, 4]


def test_overflow_names_the_queue_one_before_the_largest_index() -> None:
    start = empty_queues(1).advance(keys_frame([(7, 8)]), u64([2**64 - 3]))
    index, after = start.number(keys_frame([(7, 8), (7, 8)]))
    assert index.tolist() == [2**64 - 3, 2**64 - 2]
    assert read_counters(after) == {(7, 8): 2**64 - 1}
    with pytest.raises(IndexOverflow, match=r"queue \(7, 8\)"):
        after.number(keys_frame([(7, 8)]))
    with pytest.raises(IndexOverflow, match=r"queue \(7, 8\)"):
        after.push(rows_frame([(7, 9, b"fits"), (7, 8, b"does not")]))
    assert after.number(keys_frame([(7, 9)]))[0].tolist() == [1], "other queues go on"


def test_grouped_rows_may_have_any_order_of_queues() -> None:
    rows = keys_frame([(9, 1), (9, 1), (0, 5), (3, 3), (3, 3)])
    index, queues = empty_queues(4).push(rows_frame([(3, 3, b"x")])).number_grouped(rows)
    assert index.tolist() == [4, 5, 4, 5, 6]
    assert read_counters(queues) == {(0, 5): 5, (3, 3): 7, (9, 1): 6}


def test_unchanged_parts_stay_the_same_object() -> None:
    queues = empty_queues(1).push(rows_frame([(0, 5, b"b"), (1, 5, b"d")]))
    everything = np.ones(2, dtype=bool)
    for same in (
        queues.push(rows_frame([])),
        queues.delete(positions_frame([])),
        queues.keep(everything),
        queues.without(~everything),
        queues.advance(keys_frame([]), u64([])),
        queues.ensure(keys_frame([(0, 5)])),
        empty_queues(1).clear(),
    ):
        assert same is queues or len(same.counters) == 0


def test_element_values_are_replaced_in_place() -> None:
    queues = empty_queues(1).push(rows_frame([(0, 5, b"b"), (1, 5, b"d")]))
    changed = queues.with_values(value=pa.array([b"B", b"D"], pa.binary()))
    assert flat(changed) == [(0, 5, 1, b"B"), (1, 5, 1, b"D")]
    assert read_counters(changed) == read_counters(queues)


# ---- queues with external elements


class Streams:
    """Queues with a head, of which only the segments are stored: per queue the indices of each segment."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.begin: dict[Key, int] = {}
        self.next_index: dict[Key, int] = {}
        self.segments: dict[Key, list[tuple[int, int]]] = {}

    def append(self, key: Key, count: int) -> None:
        first = self.next_index.setdefault(key, self.base)
        self.begin.setdefault(key, self.base)
        self.next_index[key] = first + count
        self.segments.setdefault(key, []).append((first, count))

    def advance(self, key: Key, to: int) -> None:
        self.begin[key] = max(self.begin.get(key, self.base), to)
        self.next_index[key] = max(self.next_index.get(key, self.base), to)
        self.segments[key] = [(first, count) for first, count in self.segments.get(key, []) if first + count > to]

    def flat(self) -> list[tuple[int, int, int, int]]:
        return sorted((*key, *segment) for key, found in self.segments.items() for segment in found)


def empty_streams(base: int) -> Queues:
    names = ("one", "two", "begin", "next_index", "size", "seen")
    counters = Frame({name: u64([]) for name in names}, 0)
    segments = Frame({name: u64([]) for name in ("one", "two", "first", "count")}, 0)
    elements = Frame({name: u64([]) for name in ("one", "two", "index")}, 0)
    return Queues(("one", "two"), counters, elements, segments, base, ("begin", "next_index", "seen"))


@QUICK
@given(
    st.lists(
        st.one_of(
            st.dictionaries(st.tuples(KEY, KEY), st.integers(1, 5), max_size=4),
            st.dictionaries(st.tuples(KEY, KEY), st.integers(0, 14), max_size=3).map(lambda to: ("advance", to)),
        ),
        max_size=10,
    ),
    st.sampled_from([0, 1]),
)
def test_segments_are_runs_of_elements(steps: list[Any], base: int) -> None:
    streams, plain = empty_streams(base), Streams(base)
    for step in steps:
        if isinstance(step, tuple):
            keys, to = list(step[1]), list(step[1].values())
            streams = streams.advance(keys_frame(keys), u64(to))
            for key in keys:
                plain.advance(key, step[1][key])
        else:
            pushed = [key for key, count in step.items() for _ in range(count)]
            index, streams = streams.number_grouped(keys_frame(pushed))
            counts = u64(list(step.values()))
            first = index[np.cumsum(counts).astype(np.int64) - counts.astype(np.int64)] if step else u64([])
            streams = streams.add_segments(keys_frame(list(step)).with_columns(first=first, count=counts))
            for key, count in step.items():
                plain.append(key, count)
        assert streams.segments is not None
        rows = zip(*(streams.segments[name].tolist() for name in ("one", "two", "first", "count")), strict=True)
        assert list(rows) == plain.flat()
        assert (read_counters(streams, "begin"), read_counters(streams)) == (plain.begin, plain.next_index)
        assert set(read_counters(streams, "size").values()) <= {0}, "a new queue counts nothing"
        assert set(read_counters(streams, "seen").values()) <= {base}, "but its indices start at the base"


def test_tail_may_advance_before_its_elements_arrive() -> None:
    queues = empty_queues(1).push(rows_frame([(0, 5, b"a")])).extend(keys_frame([(0, 5), (2, 2)]), u64([4, 3]))
    assert read_counters(queues) == {(0, 5): 4, (2, 2): 3}
    assert flat(queues) == [(0, 5, 1, b"a")]
    assert read_counters(queues.extend(keys_frame([(0, 5)]), u64([2]))) == read_counters(queues), "never down"
    queues = queues.merge(rows_frame([(2, 2, b"c"), (0, 5, b"b")]).with_columns(index=u64([1, 3])))
    assert flat(queues) == [(0, 5, 1, b"a"), (0, 5, 3, b"b"), (2, 2, 1, b"c")]


def with_heads(queues: Queues) -> Queues:
    counters = queues.counters
    heads = np.full(len(counters), queues.base, dtype=np.uint64)
    return replace(queues, counters=counters.with_columns(begin=heads))


def test_head_advances_to_the_first_remaining_element() -> None:
    rows = [(0, 5, b"a"), (0, 5, b"b"), (2, 2, b"c"), (3, 3, b"d")]
    queues = with_heads(empty_queues(1).push(rows_frame(rows))).delete(positions_frame([(0, 5, 1), (2, 2, 1)]))
    trimmed = queues.trim(keys_frame([(2, 2), (0, 5), (0, 5)]))
    assert read_counters(trimmed, "begin") == {(0, 5): 2, (2, 2): 2, (3, 3): 1}, "without any element to the tail"
    assert flat(trimmed) == flat(queues)


def test_segments_below_an_index_are_forgotten() -> None:
    streams = empty_streams(0)
    for counts in ({(0, 5): 3, (1, 1): 2}, {(0, 5): 2}):
        pushed = [key for key, count in counts.items() for _ in range(count)]
        index, streams = streams.number_grouped(keys_frame(pushed))
        first = [int(index[pushed.index(key)]) for key in counts]
        added = keys_frame(list(counts)).with_columns(first=u64(first), count=u64(list(counts.values())))
        streams = streams.add_segments(added)
    assert streams.segments is not None
    for below, left in ((2, [0, 3, 0]), (3, [3, 0]), (5, [0])):
        kept = streams.forget(u64([below, 0])).segments
        assert kept is not None and kept["first"].tolist() == left
    assert streams.forget(u64([2, 1])) is streams


def test_push_beyond_the_limit_overflows() -> None:
    asked = Frame({"a": np.zeros(5, dtype=np.uint64)})
    for limit in (0, 3, 4):
        none = Frame({"a": np.empty(0, dtype=np.uint64), "index": np.empty(0, dtype=np.uint64)})
        counters = none.select(["a"]).with_columns(next_index=np.empty(0, dtype=np.uint64))
        with pytest.raises(IndexOverflow):
            Queues(("a",), counters, none, base=0, limit=limit).push(asked)


def test_tail_has_a_limit() -> None:
    queues = replace(empty_queues(1), limit=3)
    index, full = queues.number(keys_frame([(0, 5), (0, 5)]))
    assert (index.tolist(), read_counters(full)) == ([1, 2], {(0, 5): 3})
    with pytest.raises(IndexOverflow, match="index 3"):
        full.number(keys_frame([(0, 5)]))


def test_counters_of_selected_queues_are_set() -> None:
    streams = empty_streams(1).ensure(keys_frame([(0, 5), (2, 2), (3, 3)]))
    changed = streams.set_counters(keys_frame([(3, 3), (0, 5)]), size=u64([7, 9]), seen=u64([4, 2]))
    assert read_counters(changed, "size") == {(0, 5): 9, (2, 2): 0, (3, 3): 7}
    assert read_counters(changed, "seen") == {(0, 5): 2, (2, 2): 1, (3, 3): 4}
    assert read_counters(streams, "size") == dict.fromkeys(read_counters(streams), 0), "the queues before keep theirs"
