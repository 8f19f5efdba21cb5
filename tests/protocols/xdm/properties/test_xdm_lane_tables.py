"""Tables of pending messages against a plain dictionary under any insertions and removals."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm import lane_tables
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.tables import RESPONSES_SCHEMA

Key = tuple[int, int, int, int]


def rows_of(keys: list[Key]) -> Frame:
    """Return messages with a payload that identifies each."""
    columns: dict[str, list[Any]] = {field.name: [0] * len(keys) for field in RESPONSES_SCHEMA}
    columns |= {name: [key[place] for key in keys] for place, name in enumerate((*LANE, "index"))}
    columns["payload"] = [repr(key).encode() for key in keys]
    arrays = [pa.array(columns[field.name], field.type) for field in RESPONSES_SCHEMA]
    return from_table(pa.table(arrays, schema=RESPONSES_SCHEMA))


def keys_of(rows: Frame) -> list[Key]:
    found = list(zip(*(rows[name].tolist() for name in (*LANE, "index")), strict=True))
    assert [repr(key).encode() for key in found] == rows["payload"].to_pylist(), "columns belong together"
    return found


@pytest.mark.parametrize("seed", range(16))
def test_table_records_changes_since_the_last_write(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only additions and removals since then are written; unrelated tables have no such record."""
    if seed % 4 == 3:
        monkeypatch.setattr(lane_tables, "LEAST_REMEMBERED", 4)
        monkeypatch.setattr(lane_tables, "REMEMBERED", 0)
    rng = random.Random(seed)
    first: Frame = rows_of([(lane, 0, 0, number) for lane in range(3) for number in range(40)])
    written, held, there = first, set(keys_of(first)), set(keys_of(first))
    table, following, known = LaneTable.of(first), 40, 0
    for _ in range(60):
        for _ in range(rng.randrange(1, 4)):
            coming = [(lane, 0, 0, following) for lane in range(3) if rng.random() < 0.7]
            following += 1
            table = table.with_rows(rows_of(coming))
            going = [key for key in sorted(there | set(coming)) if rng.random() < 0.05]
            table = table.without(table.find(rows_of(going))).settled()
            there = (there | set(coming)) - set(going)
        if rng.random() < 0.5:
            continue
        other = LaneTable.of(rows_of(sorted(held)))
        changes = table.changed_since(written)
        assert table.changed_since(other) is None
        if changes is not None:
            known += 1
            assert set(keys_of(changes.added)) == there - held
            gone = set(zip(*(changes.gone[name].tolist() for name in (*LANE, "index")), strict=True))
            assert gone == held - there and len(changes.gone) == len(gone)
        written, held = table, set(there)
    assert known > 4 if seed % 4 != 3 else known < 40
    assert written.changed_since(first) is None, "what came before is forgotten"


def test_written_rows_of_the_memory_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the changes are written each time, for any number of messages."""
    monkeypatch.setattr(lane_tables, "LEAST_REMEMBERED", 8)
    table = LaneTable.of(rows_of([(0, 0, 0, number) for number in range(10)]))
    for number in range(10, 200):
        written = table
        table = table.with_rows(rows_of([(0, 0, 0, number)]))
        table = table.without(table.find(rows_of([(0, 0, 0, number - 10)]))).settled()
        changes = table.changed_since(written)
        assert changes is not None and (len(changes.added), len(changes.gone)) == (1, 1), number


@pytest.mark.parametrize("seed", range(16))
def test_table_holds_added_and_not_removed_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_tables, "LEAST_RECENT", seed % 7)
    rng = random.Random(seed)
    lanes = [(rng.randrange(3), rng.randrange(3), rng.randrange(4)) for _ in range(rng.randrange(1, 6))]
    orderly, jumps = rng.random() < 0.6, rng.random() < 0.5
    following = dict.fromkeys(lanes, 0)
    there: set[Key] = set()
    used: set[Key] = set()
    table = LaneTable.of(empty_frame(RESPONSES_SCHEMA))
    versions: list[tuple[LaneTable, list[Key]]] = []
    for _ in range(30):
        start, before = table.settled(), set(there)
        table = start
        for _ in range(rng.randrange(3)):
            coming: list[Key] = []
            for lane in rng.sample(sorted(following), rng.randrange(len(following) + 1)):
                for _ in range(rng.randrange(4)):
                    following[lane] += rng.randrange(1, 3) if jumps else 1
                    coming.append((*lane, following[lane]))
            if not orderly and rng.random() < 0.3 and before:
                lane = sorted(following)[0]  # a number below the existing ones
                low = [(*lane, number) for number in range(following[lane]) if (*lane, number) not in used]
                coming += [key for key in low[:1] if key not in coming]
            rng.shuffle(coming)
            there |= set(coming)
            used |= set(coming)
            table = table.with_rows(rows_of(coming))
            going = [key for key in sorted(there) if rng.random() < 0.2]
            if orderly:
                least = {lane: rng.randrange(following[lane] + 2) for lane in following}
                going = [key for key in sorted(there) if rng.random() < 0.8 and key[3] < least[key[:3]]]
            rng.shuffle(going)
            found = table.find(rows_of(going))
            assert keys_of(table.rows_at(found)) == going
            table = table.without(found)
            there -= set(going)
        assert len(table) == len(there)
        missing = rows_of([(*lane, number) for lane in lanes for number in (0, following[lane] + 5)])
        assert all((key in there) == (row >= 0) for key, row in zip(keys_of(missing), table.find(missing), strict=True))
        _check_lanes(table, there, rng)
        _check_delta(table, start, before, there)
        versions.append((table, sorted(there)))
        if rng.random() < 0.3:
            table["payload"]  # converted to columns
    for version, keys in versions:
        assert keys_of(version.select(version.names)) == keys


def _check_lanes(table: LaneTable, there: set[Key], rng: random.Random) -> None:
    names = list(zip(*(table.lanes[name].tolist() for name in LANE), strict=True))
    numbers = np.arange(len(names), dtype=np.int64)
    assert {key[:3] for key in there} <= set(names)
    first = np.array([rng.randrange(40) for _ in names], dtype=np.uint64)
    stop = first + np.uint64(rng.randrange(30))
    found = table.first_from(numbers, first)
    expected = [min((key for key in there if key[:3] == lane and key[3] >= at), default=None)
                for lane, at in zip(names, first.tolist(), strict=True)]  # fmt: skip
    assert [row >= 0 for row in found] == [key is not None for key in expected]
    assert keys_of(table.rows_at(found[found >= 0])) == [key for key in expected if key is not None]
    place, rows = table.window(numbers, first, stop)
    inside = [(at, key) for at, lane in enumerate(names) for key in sorted(there)
              if key[:3] == lane and first[at] <= key[3] < stop[at]]  # fmt: skip
    assert list(zip(place.tolist(), keys_of(table.rows_at(rows)), strict=True)) == inside


def _check_delta(table: LaneTable, start: LaneTable, before: set[Key], there: set[Key]) -> None:
    if table.delta is None:
        assert table is start
        return
    assert table.delta.since is start
    added, gone = (keys_of(concat([rows_of([]), *parts])) for parts in (table.delta.added, table.delta.gone))
    assert set(added) - set(gone) == there - before
    assert set(gone) - set(added) == before - there
