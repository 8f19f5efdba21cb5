"""Join rows of different buckets.

The joins are requests with responses on other lanes, and in-flight messages of a lane. Each run gives records, and the
records of one part come together. Requests and their responses are partitioned by the name of the request
(``checks.replies``). Messages of lanes with a capacity are partitioned by ranges of their lane (``inflight``). No join
takes place without responses that name their request and without suspect ranges.
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
from causeway_proofs.order import group_rows

from causeway.audit.arrays import Array, Ints, time_differences
from causeway.audit.bucket import BucketMessages
from causeway.audit.checks.replies import (
    HAS_REPLY,
    LATE,
    OUTCOMES,
    REQUESTS_SCHEMA,
    RESPONSES_SCHEMA,
    UNANSWERED,
    WITHOUT_TIME,
    ReplyContext,
    reply_records,
)
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools, RowColumns
from causeway.audit.lane_context import LaneContext
from causeway.audit.passes.bucket_pass import LIMIT, RunResult
from causeway.audit.passes.finding_candidates import (
    CANDIDATES_SCHEMA,
    NAMED,
    FindingGroup,
    JoinResult,
    build_findings,
    count_findings,
    merge_results,
    named_rows,
    to_tables,
    top_findings,
)
from causeway.audit.passes.inflight import RECORDS as FLIGHT_RECORDS
from causeway.audit.passes.inflight import (
    SuspectRanges,
    find_suspect_ranges,
    inflight_records,
    join_inflight,
    split_by_part,
)
from causeway.ledger.parts import BucketPart, MessageRun, PartRows, split_runs, split_table
from causeway.ledger.row_order import number_lanes
from causeway.ledger.windows import Lane

ReplyRecords = Mapping[str, Array]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier that separates requests of one name and different chains."""


def join_replies(requests: pa.Table, responses: pa.Table, limit: int) -> JoinResult:
    """Join the requests and responses of one part.

    Args:
        requests: Requests (``REQUESTS_SCHEMA``), complete for each name.
        responses: Responses (``RESPONSES_SCHEMA``), complete for each name.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        Findings of the part.
    """
    asked = {name: requests[name].to_numpy() for name in REQUESTS_SCHEMA.names}
    asked |= {"own_0": asked["id_0"], "own_1": asked["id_1"]}
    answers = {name: responses[name].to_numpy() for name in RESPONSES_SCHEMA.names}
    number = _number_names(asked, answers)
    of_request, of_response = number[: len(requests)], number[len(requests) :]
    first, later = _first_of_each(answers, of_response, int(number.max(initial=-1)) + 1)
    has_request = np.zeros(len(first), dtype=bool)
    has_request[of_request] = True
    unasked = ~has_request[of_response]
    covered = answers["covered"] == 1
    groups = [
        FindingGroup("exactly_once", "answered_twice", answers, np.flatnonzero(later)),
        FindingGroup("answers_without_request", "no_request", answers, np.flatnonzero(unasked & covered)),
        FindingGroup("answers_without_request", "request_not_covered", answers, np.flatnonzero(unasked & ~covered)),
        *_replies(asked, answers, first[of_request]),
    ]
    return to_tables(groups, {"answers_without_request": answers["lane"]}, limit)


def _number_names(asked: ReplyRecords, given: ReplyRecords) -> Ints:
    """Assign numbers to names of requests, then of responses; equal names share a number."""
    words = [np.concatenate((asked[name], given[name])) for name in ("id_0", "id_1", "caller")]
    mixed = words[0] ^ (words[2].astype(np.uint64) * _SPREAD)
    order = np.argsort(mixed, kind="stable")
    groups = group_rows(*(word[order] for word in words))
    if len(groups) != len(group_rows(mixed[order])):
        # Different names with equal mixed words may be adversarial, so compare all words.
        order = np.lexsort(words)
        groups = group_rows(*(word[order] for word in words))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = groups.spread(np.arange(len(groups)))
    return number


def _first_of_each(given: ReplyRecords, number: Ints, names: int) -> tuple[Ints, Bools]:
    """Return the first response of each name by position (-1: none), and a mask of later ones."""
    first = np.full(names, -1, dtype=np.int64)
    first[number] = np.arange(len(number))
    later = np.zeros(len(number), dtype=bool)
    several = np.flatnonzero(np.bincount(number, minlength=names)[number] > 1)
    if len(several):
        keys = [given[name][several] for name in ("height", "time", "lane", "index", "begin", "own_0", "own_1")]
        keys.insert(3, 1 - given["indexed"][several].astype(np.int8))
        order = several[np.lexsort((*keys[::-1], number[several]))]
        starts = group_rows(number[order]).starts
        later[several] = True
        later[order[starts]] = False
        first[number[order[starts]]] = order[starts]
    return first, later


def _replies(asked: ReplyRecords, given: ReplyRecords, response: Ints) -> list[FindingGroup]:
    """Return the findings about requests. ``response``: the first one to each, -1: none."""
    outcome, has_own = asked["outcome"] & (HAS_REPLY - 1), asked["outcome"] >= HAS_REPLY
    over_lanes = (response >= 0) & (~has_own | _earlier(given, response, asked))
    groups = []
    for code, (_, reason) in OUTCOMES.items():
        rows = np.flatnonzero(~over_lanes & (outcome == code))
        sized = code in (LATE, UNANSWERED)
        groups.append(FindingGroup("answers", reason, asked, rows, asked["magnitude"][rows] if sized else None))
    limited = np.flatnonzero(over_lanes & (asked["limit"] >= 0))
    arrivals = response[limited]
    sent, time = asked["sent"][limited], given["time"][arrivals]
    delay, seen = time_differences(sent, time)
    late = seen & (delay > asked["limit"][limited])
    groups.append(FindingGroup("answers", OUTCOMES[LATE][1], given, arrivals[late], delay[late].astype(np.float64)))
    groups.append(FindingGroup("answers", OUTCOMES[WITHOUT_TIME][1], given, arrivals[~seen]))
    return groups


def _earlier(given: ReplyRecords, response: Ints, asked: ReplyRecords) -> Bools:
    """Return a mask of responses before the reply in the request's own lane.

    Heights decide if both are known, else times.
    """
    if not len(given["row"]):
        return np.zeros(len(response), dtype=bool)
    height, time = given["height"][response], given["time"][response]
    heights = (height != NO_HEIGHT) & (asked["height"] != NO_HEIGHT)
    times = (time != NO_TIME) & (asked["time"] != NO_TIME)
    return np.asarray(np.where(heights, height < asked["height"], times & (time < asked["time"])))


RECORDS = {"requests": REQUESTS_SCHEMA, "responses": RESPONSES_SCHEMA, **FLIGHT_RECORDS}
"""Schemas by kind of record."""

PART_RECORDS = 1 << 19
"""Approximate number of records a part."""

MEMORY_BYTES = 1 << 27
"""Size of records in memory before they spill to a temporary file, in bytes."""

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

JoinPiece = tuple[int, str, pa.Table]
"""Records of one kind for one part: part, kind, records."""


@dataclass(frozen=True)
class JoinPlan:
    """Plan of a cross-bucket join.

    Attributes:
        known: Windows and guarantees.
        runs: Runs with records, by bucket.
        lanes: Lanes of records, by number.
        answering: Context of replies, or None.
        pressure: Suspect ranges, or None.
        limit: Maximum number of named findings of a lane and reason.
    """

    known: LaneContext
    runs: Mapping[int, tuple[int, ...]]
    lanes: tuple[Lane, ...]
    answering: ReplyContext | None
    pressure: SuspectRanges | None
    limit: int = LIMIT

    @property
    def parts(self) -> int:
        """Number of parts."""
        of_answers = 0 if self.answering is None else self.answering.parts
        return of_answers + (0 if self.pressure is None else self.pressure.count)

    def pieces(self, bucket: int, rows: pa.Table | Iterable[BucketPart]) -> Iterator[JoinPiece]:
        """Yield the records of a bucket, given its rows as for ``check_bucket``."""
        for own, places in self.chosen(bucket, rows):
            if self.answering is not None:
                for kind, records in reply_records(own, places, bucket, self.answering):
                    yield from self.by_name(kind, records)
            if self.pressure is not None:
                yield from inflight_records(own, places, bucket, self.pressure)

    def chosen(self, bucket: int, rows: pa.Table | Iterable[BucketPart]) -> Iterator[tuple[BucketMessages, Ints]]:
        """Yield the runs of a bucket with records, and the positions of their rows in it."""
        parts = split_table(rows) if isinstance(rows, pa.Table) else rows
        chosen = set(self.runs[bucket])
        for number, run in enumerate(split_runs(_placed(parts))):
            if number in chosen:
                yield BucketMessages(RowColumns.of(run), self.known), _places(run)

    def by_name(self, kind: str, records: pa.Table) -> Iterator[JoinPiece]:
        """Yield requests or responses by the part of their name."""
        assert self.answering is not None, "there are requests and responses"
        unnamed = records["caller"].to_numpy() < 0
        word = np.where(unnamed, np.arange(len(unnamed), dtype=np.uint64), records["id_0"].to_numpy())
        yield from split_by_part(kind, records, (word % np.uint64(self.answering.parts)).astype(np.int64))

    def met(self, pieces: Iterable[tuple[str, pa.Table]]) -> JoinResult:
        """Join the records of a part, in any order."""
        given: dict[str, list[pa.Table]] = {kind: [schema.empty_table()] for kind, schema in RECORDS.items()}
        for kind, records in pieces:
            given[kind].append(records)
        every = {kind: pa.concat_tables(records).combine_chunks() for kind, records in given.items()}
        if self.pressure is not None and not (every["requests"].num_rows or every["responses"].num_rows):
            return join_inflight(every, self.pressure)
        return join_replies(every["requests"], every["responses"], self.limit)


@dataclass(frozen=True)
class _PlacedPart:
    """A part of a bucket, and its first row there."""

    part: BucketPart
    begin: int

    @property
    def num_rows(self) -> int:
        return self.part.num_rows

    def read(self, names: Sequence[str]) -> pa.Table:
        return self.part.read(names)

    def take(self, names: Sequence[str], rows: PartRows) -> pa.Table:
        return self.part.take(names, rows)

    def has(self, names: Sequence[str]) -> bool:
        return self.part.has(names)


def _placed(parts: Iterable[BucketPart]) -> Iterator[BucketPart]:
    begin = 0
    for part in parts:
        yield _PlacedPart(part, begin)
        begin += part.num_rows


def _places(run: MessageRun) -> Ints:
    """Return the positions of a run's rows in its bucket."""
    found = [np.zeros(0, np.int64)]
    for part, first, count in run.of:
        begin = part.begin if isinstance(part, _PlacedPart) else 0
        found.append(np.arange(begin + first, begin + first + count))
    return np.concatenate(found)


def read_named_rows(rows: pa.Table | Iterable[BucketPart], places: Ints) -> pa.Table:
    """Return the rows of a bucket (``NAMED``) at ascending positions."""
    found: list[pa.Table] = []
    begin = 0
    for part in split_table(rows) if isinstance(rows, pa.Table) else rows:
        low, high = np.searchsorted(places, (begin, begin + part.num_rows))
        if low < high or not found:
            found.append(part.take(NAMED, places[low:high] - begin))
        begin += part.num_rows
        if high == len(places):
            break
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def plan_joins(passed: Mapping[tuple[int, int], RunResult], known: LaneContext, limit: int) -> JoinPlan | None:
    """Plan the joins from the results of all runs.

    Args:
        passed: Results by bucket and run.
        known: Windows and guarantees.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        The plan, or None if there is nothing to join.
    """
    replies = pa.concat_tables([each.replies for each in passed.values()])
    counts = replies.group_by(["protocol", "chain"]).aggregate([("count", "sum")]).to_pylist()
    named = sorted((row["protocol"], row["chain"], row["count_sum"]) for row in counts)
    callers = {(protocol, chain): number for number, (protocol, chain, _) in enumerate(named)}
    protocols = {protocol for protocol, _ in callers}
    lane_figures = pa.concat_tables([each.lanes for each in passed.values()])
    names, codes = number_lanes(lane_figures)
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in names]
    # A caller may have moved to another chain before its answer came: any lane of the protocol may have the request.
    asking = np.array([lane[0] in protocols for lane in lanes], bool)
    records = lane_figures["sent"].to_numpy()[asking[codes]].sum() + sum(count for *_, count in named)
    parts = 1 + int(records) // PART_RECORDS if callers else 0
    dense_ranges = pa.concat_tables([each.dense_ranges for each in passed.values()])
    pressure = find_suspect_ranges(dense_ranges, known.promises, parts, PART_RECORDS, limit)
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
    asking_lanes = frozenset(lanes[code] for code in np.flatnonzero(asking).tolist())
    return JoinPlan(
        LaneContext(known.windows, known.promises),
        {bucket: tuple(sorted(each)) for bucket, each in sorted(runs.items())},
        tuple(numbers),
        ReplyContext(callers, numbers, asking_lanes, parts) if callers else None,
        pressure,
        limit,
    )


class PendingPieces:
    """Records that wait for the end of the pass: in memory, then in a temporary file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_memory: dict[int, list[tuple[str, pa.Table]]] = defaultdict(list)
        self._on_disk: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        self._bytes = 0
        self._file: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> PendingPieces:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, piece: JoinPiece) -> None:
        """Add a piece, from any thread."""
        part, kind, records = piece
        with self._lock:
            self._in_memory[part].append((kind, records))
            self._bytes += records.nbytes
            if self._bytes > MEMORY_BYTES:
                self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = self._stack.enter_context(tempfile.TemporaryFile(prefix="causeway-audit-"))  # noqa: SIM115
        end = self._file.seek(0, 2)
        for part, pieces in self._in_memory.items():
            for kind, records in pieces:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, records.schema, options=_COMPRESSED) as stream:
                    stream.write_table(records)
                content = sink.getvalue()
                self._file.write(content)
                self._on_disk[part].append((kind, end, content.size))
                end += content.size
        self._in_memory.clear()
        self._bytes = 0

    def of(self, part: int) -> Iterator[tuple[str, pa.Table]]:
        """Yield the pieces of a part, from any thread."""
        for kind, begin, size in self._on_disk.get(part, ()):
            with self._lock:
                self._file.seek(begin)
                content = self._file.read(size)
            yield kind, pa.ipc.open_stream(content).read_all()
        yield from self._in_memory.get(part, ())


ReadBucket = Callable[[int], pa.Table | Iterable[BucketPart]]
"""Reads a bucket."""

MakeThreads = Callable[[], ThreadPoolExecutor]
"""Creates a thread pool."""


class BucketJoiner(Protocol):
    """Joins rows of buckets, wherever they are."""

    def met(self, meeting: JoinPlan) -> list[JoinResult]:
        """Return the results of all parts."""
        ...

    def rows(self, wanted: Mapping[int, Ints]) -> Mapping[int, pa.Table]:
        """Return rows of buckets (``NAMED``) at ascending positions."""
        ...


@dataclass(frozen=True)
class LocalJoiner:
    """Joins rows in this process.

    Attributes:
        read: Reads a bucket.
        threads: Creates a thread pool.
    """

    read: ReadBucket
    threads: MakeThreads

    def met(self, meeting: JoinPlan) -> list[JoinResult]:
        """Return the results of all parts."""
        with PendingPieces() as pending:

            def add_pieces(bucket: int) -> None:
                for piece in meeting.pieces(bucket, self.read(bucket)):
                    pending.add(piece)

            with self.threads() as pool:
                for _ in pool.map(add_pieces, meeting.runs):
                    pass
                parts = pool.map(lambda part: meeting.met(pending.of(part)), range(meeting.parts))
                return [merge_results(parts, meeting.limit)]

    def rows(self, wanted: Mapping[int, Ints]) -> Mapping[int, pa.Table]:
        """Return rows of buckets (``NAMED``) at ascending positions."""
        buckets = [*wanted]
        with self.threads() as pool:
            found = pool.map(lambda bucket: read_named_rows(self.read(bucket), wanted[bucket]), buckets)
            return dict(zip(buckets, found, strict=True))


@dataclass(frozen=True)
class MergedResult:
    """Merged result of a join.

    Attributes:
        findings: Findings, as of ``RunResult``.
        counts: Number of findings, as of ``RunResult``.
        examined: Number of examined messages, as of ``RunResult``.
        asking: Lanes whose requests are checked only by this join.
    """

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    asking: frozenset[Lane]

    @classmethod
    def nothing(cls) -> MergedResult:
        """Return the result without any join."""
        return cls(build_findings(CANDIDATES_SCHEMA.empty_table(), {}), *count_findings([], []), frozenset())

    @classmethod
    def of(cls, meeting: JoinPlan, meet: BucketJoiner, limit: int) -> MergedResult:
        """Run the joins of a plan."""
        results = meet.met(meeting)
        candidates = top_findings(pa.concat_tables([each.candidates for each in results]).combine_chunks(), limit)
        asking = frozenset[Lane]() if meeting.answering is None else meeting.answering.asking
        findings = build_findings(candidates, meet.rows(named_rows(candidates)))
        return cls(findings, *count_findings(results, meeting.lanes), asking)

    def without(self, found: pa.Table) -> pa.Table:
        """Drop findings or counts of the check ``answers`` that this join replaces."""
        if not self.asking or not found.num_rows:
            return found
        lanes, codes = number_lanes(found)
        asking = np.array([lane in self.asking for lane in lanes], bool)[codes]
        own = np.asarray(pc.equal(found["check"], "answers"))
        return found.filter(pa.array(~(asking & own)))
