"""Where rows of different buckets meet: each run gives records, and those of one part come together.

Requests and the responses to them come together by the name of the request (``answering``), messages of lanes with a
capacity by ranges of their lane (``flights``). Nothing is asked of a ledger in which no response names what it answers,
and in whose lanes there is room.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.answering import REQUESTS_SCHEMA, RESPONSES_SCHEMA, Answering, records_of
from causeway.audit.answers_met import answers_met
from causeway.audit.arrays import Ints
from causeway.audit.bucket import Bucket
from causeway.audit.candidates import (
    CANDIDATES_SCHEMA,
    NAMED,
    Met,
    counts_of,
    findings_of,
    rows_wanted,
    shown_of,
    together,
)
from causeway.audit.columns import Columns
from causeway.audit.crowds import pressed
from causeway.audit.flights import RECORDS as FLIGHT_RECORDS
from causeway.audit.flights import Pressure, by_part, flights_of
from causeway.audit.flights_met import flights_met
from causeway.audit.known import Known
from causeway.audit.parts import Part, Rows, Run, parts_of, runs_of
from causeway.audit.passing import LIMIT, Passed
from causeway.audit.windows import Lane
from causeway.ledger.order import lane_numbers

RECORDS = {"requests": REQUESTS_SCHEMA, "responses": RESPONSES_SCHEMA, **FLIGHT_RECORDS}
"""Kinds of records, and their columns."""

PART_RECORDS = 1 << 19
"""About so many records come together in a part."""

HELD_BYTES = 1 << 27
"""So much of records is held in memory; what is more waits in a temporary file."""

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

Piece = tuple[int, str, pa.Table]
"""Records of one kind for one part."""


@dataclass(frozen=True)
class Meeting:
    """What meets, and how.

    ``known``: windows and promises; ``runs``: of each bucket those that have records; ``lanes``: the lanes of records,
    by number; ``answering``, ``pressure``: what records need, None: there are none; ``limit``: how many findings of a
    lane and reason are named.
    """

    known: Known
    runs: Mapping[int, tuple[int, ...]]
    lanes: tuple[Lane, ...]
    answering: Answering | None
    pressure: Pressure | None
    limit: int = LIMIT

    @property
    def parts(self) -> int:
        """Return how many parts there are."""
        of_answers = 0 if self.answering is None else self.answering.parts
        return of_answers + (0 if self.pressure is None else self.pressure.count)

    def pieces(self, bucket: int, rows: pa.Table | Iterable[Part]) -> Iterator[Piece]:
        """Yield the records of a bucket. ``rows``: as of ``pass_over``."""
        for own, places in self.chosen(bucket, rows):
            if self.answering is not None:
                for kind, records in records_of(own, places, bucket, self.answering):
                    yield from self.by_name(kind, records)
            if self.pressure is not None:
                yield from flights_of(own, places, bucket, self.pressure)

    def chosen(self, bucket: int, rows: pa.Table | Iterable[Part]) -> Iterator[tuple[Bucket, Ints]]:
        """Yield the runs of a bucket that have records, and where their rows stand in it."""
        parts = parts_of(rows) if isinstance(rows, pa.Table) else rows
        chosen = set(self.runs[bucket])
        for number, run in enumerate(runs_of(_placed(parts))):
            if number in chosen:
                yield Bucket(Columns.of(run), self.known), _places(run)

    def by_name(self, kind: str, records: pa.Table) -> Iterator[Piece]:
        """Yield the records of requests or responses by the parts of their names."""
        assert self.answering is not None, "there are requests and responses"
        unnamed = records["caller"].to_numpy() < 0
        word = np.where(unnamed, np.arange(len(unnamed), dtype=np.uint64), records["id_0"].to_numpy())
        yield from by_part(kind, records, (word % np.uint64(self.answering.parts)).astype(np.int64))

    def met(self, pieces: Iterable[tuple[str, pa.Table]]) -> Met:
        """Return what the records of a part show, in whatever order they come."""
        given: dict[str, list[pa.Table]] = {kind: [schema.empty_table()] for kind, schema in RECORDS.items()}
        for kind, records in pieces:
            given[kind].append(records)
        every = {kind: pa.concat_tables(records).combine_chunks() for kind, records in given.items()}
        if self.pressure is not None and not (every["requests"].num_rows or every["responses"].num_rows):
            return flights_met(every, self.pressure)
        return answers_met(every["requests"], every["responses"], self.limit)


@dataclass(frozen=True)
class _PlacedPart:
    """A part of a bucket, and where it begins there."""

    part: Part
    begin: int

    @property
    def num_rows(self) -> int:
        return self.part.num_rows

    def read(self, names: Sequence[str]) -> pa.Table:
        return self.part.read(names)

    def take(self, names: Sequence[str], rows: Rows) -> pa.Table:
        return self.part.take(names, rows)

    def has(self, names: Sequence[str]) -> bool:
        return self.part.has(names)


def _placed(parts: Iterable[Part]) -> Iterator[Part]:
    begin = 0
    for part in parts:
        yield _PlacedPart(part, begin)
        begin += part.num_rows


def _places(run: Run) -> Ints:
    """Return where the rows of a run of placed parts stand in their bucket."""
    found = [np.zeros(0, np.int64)]
    for part, first, count in run.of:
        begin = part.begin if isinstance(part, _PlacedPart) else 0
        found.append(np.arange(begin + first, begin + first + count))
    return np.concatenate(found)


def rows_at(rows: pa.Table | Iterable[Part], places: Ints) -> pa.Table:
    """Return rows of a bucket (``NAMED``) by where they stand in it, ascending."""
    found: list[pa.Table] = []
    begin = 0
    for part in parts_of(rows) if isinstance(rows, pa.Table) else rows:
        low, high = np.searchsorted(places, (begin, begin + part.num_rows))
        if low < high or not found:
            found.append(part.take(NAMED, places[low:high] - begin))
        begin += part.num_rows
        if high == len(places):
            break
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def meeting_of(passed: Mapping[tuple[int, int], Passed], known: Known, limit: int) -> Meeting | None:
    """Return what meets, from what all runs show; None: nothing does."""
    replies = pa.concat_tables([each.replies for each in passed.values()])
    counts = replies.group_by(["protocol", "chain"]).aggregate([("count", "sum")]).to_pylist()
    named = sorted((row["protocol"], row["chain"], row["count_sum"]) for row in counts)
    callers = {(protocol, chain): number for number, (protocol, chain, _) in enumerate(named)}
    protocols = {protocol for protocol, _ in callers}
    shown = pa.concat_tables([each.lanes for each in passed.values()])
    names, codes = lane_numbers(shown)
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in names]
    # Who asked may have moved to another chain before the answer came: any lane of such a protocol may have asked.
    asking = np.array([lane[0] in protocols for lane in lanes], bool)
    records = shown["sent"].to_numpy()[asking[codes]].sum() + sum(count for *_, count in named)
    parts = 1 + int(records) // PART_RECORDS if callers else 0
    crowds = pa.concat_tables([each.crowds for each in passed.values()])
    pressure = pressed(crowds, known.promises, parts, PART_RECORDS, limit)
    if not callers and pressure is None:
        return None
    cuts = {} if pressure is None else pressure.cuts
    joined = asking | np.array([(lane[0], lane[2]) in callers or lane in cuts for lane in lanes], bool)
    numbers = {lanes[code]: number for number, code in enumerate(np.flatnonzero(joined).tolist())}
    if pressure is not None:
        pressure = replace(pressure, cuts={lane: cut._replace(number=numbers[lane]) for lane, cut in cuts.items()})
    run = np.repeat(np.arange(len(passed)), [each.lanes.num_rows for each in passed.values()])
    runs: dict[int, list[int]] = {}
    keys = list(passed)
    for place in np.unique(run[joined[codes]]).tolist():
        runs.setdefault(keys[place][0], []).append(keys[place][1])
    frozen = frozenset(lanes[code] for code in np.flatnonzero(asking).tolist())
    return Meeting(
        Known(known.windows, known.promises),
        {bucket: tuple(sorted(each)) for bucket, each in sorted(runs.items())},
        tuple(numbers),
        Answering(callers, numbers, frozen, parts) if callers else None,
        pressure,
        limit,
    )


class Waiting:
    """Pieces that wait until all are there: in memory, and what is more in a temporary file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: dict[int, list[tuple[str, pa.Table]]] = defaultdict(list)
        self._kept: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        self._bytes = 0
        self._file: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, piece: Piece) -> None:
        """Keep a piece; from any thread."""
        part, kind, records = piece
        with self._lock:
            self._held[part].append((kind, records))
            self._bytes += records.nbytes
            if self._bytes > HELD_BYTES:
                self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = self._stack.enter_context(tempfile.TemporaryFile(prefix="causeway-audit-"))  # noqa: SIM115
        end = self._file.seek(0, 2)
        for part, pieces in self._held.items():
            for kind, records in pieces:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, records.schema, options=_COMPRESSED) as stream:
                    stream.write_table(records)
                content = sink.getvalue()
                self._file.write(content)
                self._kept[part].append((kind, end, content.size))
                end += content.size
        self._held.clear()
        self._bytes = 0

    def of(self, part: int) -> Iterator[tuple[str, pa.Table]]:
        """Yield the pieces of a part; from any thread."""
        for kind, begin, size in self._kept.get(part, ()):
            with self._lock:
                self._file.seek(begin)
                content = self._file.read(size)
            yield kind, pa.ipc.open_stream(content).read_all()
        yield from self._held.get(part, ())


Read = Callable[[int], pa.Table | Iterable[Part]]
"""What reads a bucket."""

Threads = Callable[[], ThreadPoolExecutor]
"""What makes threads, each of which looks at a bucket or part at a time."""


class Meet(Protocol):
    """Lets rows of buckets meet, wherever these are."""

    def met(self, meeting: Meeting) -> list[Met]:
        """Return what meets, a part each."""
        ...

    def rows(self, wanted: Mapping[int, Ints]) -> Mapping[int, pa.Table]:
        """Return rows of buckets (``NAMED``) by where they stand there, ascending."""
        ...


@dataclass(frozen=True)
class Here:
    """Lets rows meet in this process. ``read``: what reads a bucket; ``threads``: makes threads, each of which looks at
    a bucket or part at a time."""

    read: Callable[[int], pa.Table | Iterable[Part]]
    threads: Callable[[], ThreadPoolExecutor]

    def met(self, meeting: Meeting) -> list[Met]:
        """Return what meets, a part each."""
        with Waiting() as waiting:

            def give(bucket: int) -> None:
                for piece in meeting.pieces(bucket, self.read(bucket)):
                    waiting.add(piece)

            with self.threads() as pool:
                for _ in pool.map(give, meeting.runs):
                    pass
                parts = pool.map(lambda part: meeting.met(waiting.of(part)), range(meeting.parts))
                return [together(parts, meeting.limit)]

    def rows(self, wanted: Mapping[int, Ints]) -> Mapping[int, pa.Table]:
        """Return rows of buckets (``NAMED``) by where they stand there, ascending."""
        buckets = [*wanted]
        with self.threads() as pool:
            found = pool.map(lambda bucket: rows_at(self.read(bucket), wanted[bucket]), buckets)
            return dict(zip(buckets, found, strict=True))


@dataclass(frozen=True)
class Together:
    """What came together: findings, counts and how much was looked at, as of ``Passed``. ``asking``: the lanes of whose
    requests this is all that the check ``answers`` says."""

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    asking: frozenset[Lane]

    @classmethod
    def nothing(cls) -> Together:
        """Return what comes together where nothing meets."""
        return cls(findings_of(CANDIDATES_SCHEMA.empty_table(), {}), *counts_of([], []), frozenset())

    @classmethod
    def of(cls, meeting: Meeting, meet: Meet, limit: int) -> Together:
        """Let what meets meet."""
        met = meet.met(meeting)
        candidates = shown_of(pa.concat_tables([each.candidates for each in met]).combine_chunks(), limit)
        asking = frozenset[Lane]() if meeting.answering is None else meeting.answering.asking
        findings = findings_of(candidates, meet.rows(rows_wanted(candidates)))
        return cls(findings, *counts_of(met, meeting.lanes), asking)

    def without(self, found: pa.Table) -> pa.Table:
        """Return findings or counts without those of the check ``answers`` that are replaced by these."""
        if not self.asking or not found.num_rows:
            return found
        lanes, codes = lane_numbers(found)
        asking = np.array([lane in self.asking for lane in lanes], bool)[codes]
        own = np.asarray(pc.equal(found["check"], "answers"))
        return found.filter(pa.array(~(asking & own)))
