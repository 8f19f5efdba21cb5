"""Requests and responses of a ledger that is followed: of those in settled runs only what may still change meets again.

A request in a settled run that has its response in one, too, in time, is done with: of it a number of 64 bits is kept,
and where the two are. Whatever has the same name later makes both of them meet it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.audit.answering import REQUESTS_SCHEMA, RESPONSES_SCHEMA, Answering, Caller, records_of, with_windows
from causeway.audit.answers_met import answers_met, done_with
from causeway.audit.arrays import Ints, Words
from causeway.audit.bucket import Bucket
from causeway.audit.candidates import EXAMINED_SCHEMA, Met
from causeway.audit.columns import Columns
from causeway.audit.meeting import PART_RECORDS, Meeting
from causeway.audit.parts import Run
from causeway.audit.replies import NO_FINDING
from causeway.audit.windows import Lane, Windows
from causeway.ledger.schema import Event
from causeway.pipeline.bucket_runs import RECENT

Place = tuple[int, int]
"""A bucket, and a run of it."""

KINDS = ("requests", "responses")

_CHECKED = (
    ("lane", "index", "indexed", "height", "time", "sent", "limit", "outcome"),
    ("lane", "index", "indexed", "height", "time", "own_0", "own_1"),
)
"""What a record that is done with must still be when its run is looked at again."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_EMPTY = REQUESTS_SCHEMA.empty_table(), RESPONSES_SCHEMA.empty_table()
Records = tuple[pa.Table, pa.Table]

Parallel = Callable[[Callable[[int], None], Iterable[int]], object]
"""Does something for some buckets, at once."""


@dataclass
class _Run:
    """The records of a run that may change what is found. ``stamp``: of the look at it; ``serial``: of the windows;
    ``plain``: whether they can be judged with other windows as they are; ``examined``: responses of each lane."""

    stamp: int
    serial: int
    plain: bool
    records: Records
    examined: dict[int, int]


@dataclass(frozen=True)
class Named:
    """Rows of a run that findings name, and where they stand in it, ascending."""

    stamp: int
    places: Ints
    rows: pa.Table


_DONE = np.dtype(
    [("word", "<u8"), ("run", "<i4", (2,)), ("content", "<u4", (2,))],
)
"""A name that is done with. ``run``: the numbers of the runs of its request and of its response (-1: there is none);
``content``: of what they said."""


@dataclass
class FollowedAnswers:
    """What is known of requests and responses from one look to the next. ``rows``: reads a run; ``stamp``: tells which
    look at a run was the last. ``asking``: the lanes of requests; ``done``: the names that are done with, in order;
    ``named``: rows that findings named in the last look."""

    rows: Callable[[int, int], Run]
    stamp: Callable[[int, int], int]
    callers: dict[Caller, int] = field(default_factory=dict)
    lanes: dict[Lane, int] = field(default_factory=dict)
    asking: frozenset[Lane] = frozenset()
    done: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(0, _DONE))
    named: dict[Place, Named] = field(default_factory=dict)
    _runs: dict[Place, _Run] = field(default_factory=dict)
    _numbers: dict[Place, int] = field(default_factory=dict)
    _counter: Iterator[int] = field(default_factory=itertools.count)

    def met(self, meeting: Meeting, serial: int, parallel: Parallel) -> list[Met]:
        """Return what all requests and responses show. ``serial``: of the windows; ``parallel``: does something for
        buckets, some at once."""
        answering = meeting.answering
        assert answering is not None, "there are responses"
        if self.callers.keys() != answering.callers.keys():
            self.callers, self._runs, self._numbers = dict(answering.callers), {}, {}
            self.done = self.done[:0]
        for lane in meeting.lanes:
            self.lanes.setdefault(lane, len(self.lanes))
        state = Answering(self.callers, self.lanes, answering.asking, 1)
        there = {(bucket, number // 2) for bucket, numbers in meeting.runs.items() for number in numbers}
        self.asking = answering.asking
        alone = self._release(self._runs.keys() - there)
        stale = sorted(place for place in there if not self._holds(place, serial, meeting.known.windows))
        fresh = self._read(stale, meeting, state, serial, parallel)
        undone = self._changed(fresh)
        refetched = sorted((alone | self._take_back(undone)) - fresh.keys())
        again = self._read(refetched, meeting, state, serial, parallel)
        for place, run in (*fresh.items(), *again.items()):
            if place[1] != RECENT:
                run.records = self._not_done(run.records)
            self._runs[place] = run
        self._settle()
        return self._together(meeting)

    # ---- records

    def _holds(self, place: Place, serial: int, windows: Windows) -> bool:
        """Return whether the records of a run are at hand, as they are with the windows."""
        run = self._runs.get(place)
        if place[1] == RECENT or run is None or run.stamp != self.stamp(*place):
            return False
        if run.serial != serial:
            if not run.plain:
                return False
            run.records = with_windows(*run.records, [*self.lanes], self.callers, windows)
            run.serial = serial
        return True

    def _read(
        self,
        places: list[Place],
        meeting: Meeting,
        state: Answering,
        serial: int,
        parallel: Parallel,
    ) -> dict[Place, _Run]:
        found: dict[Place, _Run] = {}
        of_bucket: dict[int, list[int]] = {}
        for bucket, run in places:
            of_bucket.setdefault(bucket, []).append(run)

        def read(bucket: int) -> None:
            for number in of_bucket[bucket]:
                run = self.rows(bucket, number)
                own = Bucket(Columns.of(run), meeting.known)
                first = (number << 32) + np.arange(run.num_rows)
                records = dict(zip(KINDS, _EMPTY, strict=True))
                for kind, table in records_of(own, first, bucket, state):
                    records[kind] = table
                requests, responses = records["requests"], records["responses"]
                lanes, counts = np.unique(responses["lane"].to_numpy(), return_counts=True)
                plain = _is_plain(own)
                examined = dict(zip(lanes.tolist(), counts.tolist(), strict=True))
                found[bucket, number] = _Run(
                    self.stamp(bucket, number), serial, plain, (_needed(requests), responses), examined
                )

        parallel(read, sorted(of_bucket))
        return found

    # ---- what is done with

    def _number(self, place: Place) -> int:
        if place not in self._numbers:
            self._numbers[place] = next(self._counter)
        return self._numbers[place]

    def _release(self, places: set[Place]) -> set[Place]:
        """Forget runs that are no more; return those that have what was done with together with something in them."""
        gone = [self._numbers.pop(place, -2) for place in places]
        for place in places:
            del self._runs[place]
            self.named.pop(place, None)
        return self._take_back(self.done["word"][np.isin(self.done["run"], gone).any(axis=1)])

    def _changed(self, fresh: Mapping[Place, _Run]) -> Words:
        """Return the names that were done with, and of which runs that were looked at say something else now."""
        found = [np.zeros(0, np.uint64)]
        if not len(self.done):
            return found[0]
        for place, run in fresh.items():
            number = self._numbers.get(place, -2)
            own = self.done["run"] == number
            for side, table in enumerate(run.records):
                words, contents = words_of(table), _contents(table, side)
                at = np.minimum(np.searchsorted(self.done["word"], words), len(self.done) - 1)
                known = self.done["word"][at] == words
                same = known & own[at, side] & (self.done["content"][at, side] == contents)
                found.append(words[known & ~same])
                confirmed = np.zeros(len(self.done), bool)
                confirmed[at[same]] = True
                found.append(self.done["word"][own[:, side] & ~confirmed])
                twice, counts = np.unique(words[same], return_counts=True)
                found.append(twice[counts > 1])
        return np.unique(np.concatenate(found))

    def _take_back(self, words: Words) -> set[Place]:
        """Let names no longer be done with; return the runs that have records of them."""
        if not len(words):
            return set()
        chosen = np.isin(self.done["word"], words)
        numbers = set(np.unique(self.done["run"][chosen]).tolist())
        self.done = self.done[~chosen]
        return {place for place, number in self._numbers.items() if number in numbers and place in self._runs}

    def _not_done(self, records: Records) -> Records:
        if not len(self.done):
            return records
        kept = []
        for table in records:
            words = words_of(table)
            at = np.minimum(np.searchsorted(self.done["word"], words), len(self.done) - 1)
            kept.append(table.filter(pa.array(self.done["word"][at] != words)))
        return kept[0], kept[1]

    def _settle(self) -> None:
        """Be done with names that are in settled runs alone, and of which nothing is to be found any more."""
        settled = {place: run for place, run in self._runs.items() if place[1] != RECENT}
        recent = [run.records for place, run in self._runs.items() if place[1] == RECENT]
        some = [np.concatenate([np.zeros(0, np.uint64), *(words_of(r[side]) for r in recent)]) for side in (0, 1)]
        elsewhere = np.unique(np.concatenate(some))
        tables: list[pa.Table] = []
        of: list[Ints] = []
        for side in (0, 1):
            parts = [_EMPTY[side], *(run.records[side] for run in settled.values())]
            tables.append(pa.concat_tables(parts).combine_chunks())
            counts = [0, *(run.records[side].num_rows for run in settled.values())]
            of.append(np.repeat([-1, *(self._number(place) for place in settled)], counts))
        if not tables[0].num_rows:
            return
        words = [words_of(table) for table in tables]
        every = zip(done_with(tables[0], tables[1]), words, strict=True)
        done = [mask & ~np.isin(own, elsewhere) for mask, own in every]
        # Of words that are alike of several names none is done with.
        distinct, often = np.unique(words[0][done[0]], return_counts=True)
        single = distinct[often == 1]
        chosen = [mask & np.isin(own, single) for mask, own in zip(done, words, strict=True)]
        if not chosen[0].any():
            return
        new = np.zeros(int(chosen[0].sum()), _DONE)
        new["word"], new["run"][:, 0] = words[0][chosen[0]], of[0][chosen[0]]
        new["content"][:, 0] = _contents(tables[0], 0)[chosen[0]]
        new["run"][:, 1] = -1
        new = new[np.argsort(new["word"])]
        at = np.searchsorted(new["word"], words[1][chosen[1]])
        new["run"][at, 1], new["content"][at, 1] = of[1][chosen[1]], _contents(tables[1], 1)[chosen[1]]
        self.done = np.insert(self.done, np.searchsorted(self.done["word"], new["word"]), new)
        for place, run in settled.items():
            number = self._numbers[place]
            left = [pa.array(~mask[own == number]) for mask, own in zip(chosen, of, strict=True)]
            kept = [table.filter(mask) for table, mask in zip(run.records, left, strict=True)]
            self._runs[place] = replace(run, records=(kept[0], kept[1]))

    def _together(self, meeting: Meeting) -> list[Met]:
        """Return what the records show that are not done with, with the numbers of lanes of the meeting."""
        every = []
        for side in (0, 1):
            parts = [_EMPTY[side], *(run.records[side] for run in self._runs.values())]
            every.append(pa.concat_tables(parts).combine_chunks())
        count = 1 + sum(table.num_rows for table in every) // PART_RECORDS
        of = [(words_of(table) % np.uint64(count)).astype(np.int64) for table in every]
        # Numbers of lanes are in the order of their names: of what came at one place the first one counts.
        numbers = {lane: number for number, lane in enumerate(meeting.lanes)}
        places = np.array([*(numbers.get(lane, -1) for lane in self.lanes), -1], np.int32)
        every = [_renumbered(table, places) for table in every]
        found = []
        for part in range(count):
            requests, responses = (table.filter(pa.array(own == part)) for table, own in zip(every, of, strict=True))
            met = answers_met(requests, responses, meeting.limit)
            found.append(Met(met.candidates, met.tally, EXAMINED_SCHEMA.empty_table()))
        examined: dict[int, int] = {}
        for run in self._runs.values():
            for lane, many in run.examined.items():
                examined[lane] = examined.get(lane, 0) + many
        content = {
            "check": ["answers_without_request"] * len(examined),
            "lane": [int(places[lane]) for lane in examined],
            "count": [*examined.values()],
        }
        looked = pa.table({each.name: pa.array(content[each.name], each.type) for each in EXAMINED_SCHEMA})
        return [*found, Met(found[0].candidates.slice(0, 0), found[0].tally.slice(0, 0), looked)]


def words_of(records: pa.Table) -> Words:
    """Return a number of the name of each record."""
    one, two = records["id_0"].to_numpy(), records["id_1"].to_numpy()
    caller = records["caller"].to_numpy().astype(np.int64).view(np.uint64)
    found: Words = one ^ (two << np.uint64(1)) ^ (two >> np.uint64(63)) ^ ((caller + np.uint64(1)) * _SPREAD)
    return found


def _contents(records: pa.Table, side: int) -> npt.NDArray[np.uint32]:
    found = np.zeros(records.num_rows, np.uint64)
    for name in _CHECKED[side]:
        values = records[name].to_numpy()
        bits = values if values.dtype == np.uint64 else values.astype(np.int64).view(np.uint64)
        found = (found ^ bits) * _SPREAD
        found ^= found >> np.uint64(29)
    return found.astype(np.uint32)


def _needed(requests: pa.Table) -> pa.Table:
    """Return requests but for those that nothing can name, and of which nothing is found."""
    idle = (requests["caller"].to_numpy() < 0) & ((requests["outcome"].to_numpy() & 15) == NO_FINDING)
    return requests.filter(pa.array(~idle)) if idle.any() else requests


def _is_plain(own: Bucket) -> bool:
    """Return whether all requests say that the source of their lane is the chain that sent them."""
    columns = own.columns
    rows = own.first(Event.SENT)
    rows = rows[rows >= 0]
    codes = {name: code for code, name in enumerate(columns.chains)}
    source = np.array([codes.get(lane[1] or "", -2) for lane in columns.lanes], np.int64)
    return bool((columns.chain[rows] == source[columns.lane[rows]]).all())


def _renumbered(table: pa.Table, places: npt.NDArray[np.int32]) -> pa.Table:
    at = table.schema.get_field_index("lane")
    return table.set_column(at, table.schema.field(at), pa.array(places[table["lane"].to_numpy()]))


__all__ = ["FollowedAnswers", "Named"]
