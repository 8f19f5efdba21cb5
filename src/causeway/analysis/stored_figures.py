"""Compute the figures and messages of a stored ledger, in this process or on Spark.

A Spark job has one task a bucket. Requests and their answers on other lanes may be in different buckets. So answers are
collected over all buckets first (``collect_replies``), and buckets with open requests are counted again with them. For
a
growing ledger, a cache keeps the figures of buckets with unchanged rows.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from causeway.analysis.figures.figures import LedgerFigures, build_figures
from causeway.analysis.figures.filters import ALL_MESSAGES, MessageFilter, in_values
from causeway.analysis.figures.message_rows import MESSAGES_SCHEMA, WORST
from causeway.analysis.figures.message_rows import message_table as rows_of_messages
from causeway.analysis.figures.partial_figures import (
    FigureRequest,
    PartialFigures,
    bucket_figures,
    merge_figures,
    no_figures,
    requested_outcomes,
)
from causeway.analysis.figures.replies import (
    OPEN_SCHEMA,
    REPLIES_SCHEMA,
    AnswerSource,
    CrossLaneReplies,
    find_open_requests,
    find_replies,
    first_replies,
)
from causeway.audit.incremental.buckets import rows_digest
from causeway.audit.lane_context import LaneContext
from causeway.cluster.jobs import SharedJobState
from causeway.ledger.bucket_scan import (
    BucketPasses,
    PassProgress,
    PassProgressCallback,
    bucket_rows,
    once_per_worker,
    open_worker_session,
    order_by_size,
    pass_threads,
    should_use_spark,
)
from causeway.ledger.parts import BucketPart, TablePart
from causeway.ledger.row_order import message_bucket, message_buckets
from causeway.ledger.schema import LANE, LEDGER_SCHEMA
from causeway.ledger.store import LOOSE_TABLES, Ledger
from causeway.ledger.stored_parts import bucket_parts, bucket_value
from causeway.ledger.windows import LanePromises, ObservedWindowTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FiguresCache",
    "MessageReader",
    "all_replies",
    "collect_replies",
    "compute_figures",
    "matching_buckets",
    "read_messages",
]

MAX_OPEN_REQUESTS = 4_000_000
"""Number of open requests processed in one pass."""

_WORD = 1 << 64


@dataclass(frozen=True)
class GatheredRows:
    """Rows returned by a bucket."""

    rows: pa.Table


@dataclass(frozen=True)
class _Search:
    """Input of all tasks.

    ``first``, ``last``: range of digests. ``asked``: digests to match, ascending.
    """

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    first: int
    last: int
    asked: pa.Array | None = None


def collect_replies(
    ledger: Ledger, passes: BucketPasses, asking: Sequence[int], naming: Sequence[int], count: int
) -> pa.Table:
    """Collect the answers on other lanes to open requests.

    Args:
        ledger: as of a commit.
        passes: the executor of bucket passes.
        asking: the buckets with open requests.
        naming: the buckets with responses that name their request.
        count: approximate number of open requests.

    Returns:
        Rows of ``REPLIES_SCHEMA``, sorted by ``id_0``.

    Raises:
        InvalidInput: as of ``compute_figures``.
        LedgerDamaged: a file is corrupted.
        TaskFailed: a Spark task failed.
    """
    tables = ledger.table("observed"), ledger.table("promises")
    rounds = max(-(-count // MAX_OPEN_REQUESTS), 1)
    found = [REPLIES_SCHEMA.empty_table()]
    for number in range(rounds):
        first, last = number * _WORD // rounds, (number + 1) * _WORD // rounds - 1
        search = _Search(uuid.uuid4().hex, ledger, *tables, first, last)
        requests = passes.over(asking, _open_in, search, GatheredRows, "count, open requests")
        gathered = [each.rows for _, each in requests]
        digests = np.unique(pa.concat_tables([OPEN_SCHEMA.empty_table(), *gathered])["id_0"].to_numpy())
        if len(digests):
            search = replace(search, asked=pa.array(digests))
            came = [each.rows for _, each in passes.over(naming, _replies_in, search, GatheredRows, "count, answers")]
            found.append(first_replies(pa.concat_tables([REPLIES_SCHEMA.empty_table(), *came])))
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def _open_in(shared: SharedJobState, bucket: int) -> Iterator[tuple[int, GatheredRows]]:
    search: _Search = shared.value
    for number, outcomes in enumerate(requested_outcomes(bucket_parts(search.ledger, bucket), _known(search))):
        rows = find_open_requests(outcomes.columns, outcomes.base, outcomes.unanswered)
        words = rows["id_0"].to_numpy()
        inside = (words >= np.uint64(search.first)) & (words <= np.uint64(search.last))
        yield number, GatheredRows(rows.filter(pa.array(inside)))


def _replies_in(shared: SharedJobState, bucket: int) -> Iterator[tuple[int, GatheredRows]]:
    search: _Search = shared.value
    digests = np.zeros(0, np.uint64) if search.asked is None else search.asked.to_numpy()
    for number, outcomes in enumerate(requested_outcomes(bucket_parts(search.ledger, bucket), _known(search))):
        yield number, GatheredRows(find_replies(outcomes.bucket, digests))


def _known(search: _Search) -> LaneContext:
    return once_per_worker(
        search.key, lambda: LaneContext(ObservedWindowTable(search.observed), LanePromises(search.promises))
    )


class FiguresCache:
    """Partial figures of buckets, reused while their rows stay the same. Not thread-safe."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[bytes, PartialFigures]] = {}

    def known(self, ledger: Ledger, request: FigureRequest) -> dict[int, PartialFigures]:
        """Return the cached figures of unchanged buckets."""
        return {
            bucket: figures
            for bucket, (state, figures) in self._found.items()
            if bucket < ledger.buckets and state == self._state(ledger, request, bucket)
        }

    def keep(self, ledger: Ledger, request: FigureRequest, bucket: int, figures: PartialFigures) -> None:
        """Cache the figures of a bucket."""
        self._found[bucket] = self._state(ledger, request, bucket), figures

    def _state(self, ledger: Ledger, request: FigureRequest, bucket: int) -> bytes:
        """Return a digest of all inputs of a bucket's figures: rows, guarantees and options."""
        promises = [file.path for file in ledger.files("promises")]
        found = repr((ledger.storage.uri, ledger.digest, request, promises))
        return found.encode() + rows_digest(ledger, bucket, LOOSE_TABLES)


_MERGE_SIZE = 16
"""Number of partial figures merged at once."""

_MODULES = ("causeway.analysis.figures.partial_figures", "causeway.analysis.stored_figures")


def compute_figures(
    ledger: Ledger,
    *,
    where: MessageFilter = ALL_MESSAGES,
    by_lane: bool = False,
    worst: int = WORST,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    progress: PassProgressCallback | None = None,
    kept: FiguresCache | None = None,
) -> LedgerFigures:
    """Compute the figures of a stored ledger; the result does not depend on the executor.

    Args:
        ledger: as of a commit.
        where: the filter on messages.
        by_lane: compute the backlog of each lane (``LedgerFigures.lane_backlog``).
        worst: number of worst messages of each ranking.
        executor: as of ``audit_ledger``.
        session: as of ``audit_ledger``.
        master: as of ``audit_ledger``.
        settings: as of ``audit_ledger``.
        progress: as of ``audit_ledger``.
        kept: cache for repeated counts of a growing ledger; unchanged buckets are not read again.

    Returns:
        The figures.

    Raises:
        InvalidInput: ``executor`` is unknown, the session does not open, an event or kind has no known name, or rows
            are not in the order of the ledger.
        LedgerDamaged: a file is corrupted.
        TaskFailed: a Spark task failed.
    """
    rows = bucket_rows(ledger)
    if should_use_spark(executor, session, rows):
        session = session or open_worker_session(master, settings, len(rows), _MODULES)
    else:
        session = None
    request, pass_progress = FigureRequest(where, by_lane, worst), PassProgress(progress, rows)
    passes = BucketPasses(session, ledger)
    figures, replies = _Counting(ledger, passes, request, order_by_size(rows), pass_progress, kept).all()
    tables = ledger.table("observed"), ledger.table("promises")
    return build_figures(figures, lambda keys: _read_named(ledger, keys, replies), *tables)


def read_messages(
    ledger: Ledger, where: MessageFilter = ALL_MESSAGES, *, session: SparkSession | None = None
) -> Iterator[pa.Table]:
    """Yield the messages of a stored ledger run by run, in the order of buckets and rows.

    Args:
        ledger: as of a commit.
        where: the filter on messages.
        session: the Spark session that searches answers on other lanes; None: this process.

    Yields:
        Rows of ``MESSAGES_SCHEMA``.

    Raises:
        InvalidInput: as of ``compute_figures``.
        LedgerDamaged: a file is corrupted.
        TaskFailed: a Spark task failed.
    """
    reader = MessageReader.of(ledger, where)
    found: list[CrossLaneReplies] = []

    def search() -> CrossLaneReplies:
        if not found:
            found.append(CrossLaneReplies(_all_replies(ledger, session)))
        return found[0]

    answers = search if _names_answers(ledger) else None
    for bucket in reader.buckets:
        yield from reader.rows(bucket, answers)


@dataclass(frozen=True)
class MessageReader:
    """A picklable reader of a ledger's messages. ``buckets``: those with possible matches."""

    ledger: Ledger
    where: MessageFilter
    observed: pa.Table
    promises: pa.Table
    replies: pa.Table
    buckets: tuple[int, ...]
    key: str

    @classmethod
    def of(cls, ledger: Ledger, where: MessageFilter = ALL_MESSAGES, replies: pa.Table | None = None) -> MessageReader:
        """Create a reader. ``replies``: answers on other lanes (``all_replies``)."""
        tables = ledger.table("observed"), ledger.table("promises")
        replies = REPLIES_SCHEMA.empty_table() if replies is None else replies
        return cls(ledger, where, *tables, replies, matching_buckets(ledger, where), uuid.uuid4().hex)

    def rows(self, bucket: int, answers: AnswerSource | None = None) -> Iterator[pa.Table]:
        """Yield the messages of a bucket (``MESSAGES_SCHEMA``), one run at a time.

        ``answers``: answers on other lanes, if the reader has none.
        """
        known = once_per_worker(
            self.key, lambda: LaneContext(ObservedWindowTable(self.observed), LanePromises(self.promises))
        )
        replies = (
            once_per_worker(f"{self.key} replies", lambda: CrossLaneReplies(self.replies))
            if self.replies.num_rows
            else answers
        )
        for outcomes in requested_outcomes(bucket_parts(self.ledger, bucket), known, self.where, replies):
            if len(outcomes):
                yield rows_of_messages(outcomes)


def matching_buckets(ledger: Ledger, where: MessageFilter) -> tuple[int, ...]:
    """Return the buckets with possible matches: those of the given lanes and indices, else all.

    Args:
        ledger: as of a commit.
        where: the filter on messages.

    Returns:
        Bucket numbers.
    """
    every = tuple(range(ledger.buckets))
    wanted = where.values
    if not {*LANE, "index"} <= wanted.keys() or None in wanted["index"]:
        return every
    lanes = list(itertools.product(*(wanted[name] for name in LANE)))
    numbers = [value for value in wanted["index"] if isinstance(value, int)]
    if len(lanes) * len(numbers) > _FEW:
        return every
    texts = [tuple(None if name is None else str(name) for name in lane) for lane in lanes]
    return tuple(sorted({message_bucket(lane, index, None, ledger.buckets) for lane in texts for index in numbers}))


_FEW = 1000
"""Limit of messages looked up by key."""


def all_replies(ledger: Ledger, session: SparkSession | None = None) -> pa.Table | None:
    """Return all answers on other lanes to open requests; None if there are none.

    Args:
        ledger: as of a commit.
        session: the Spark session that searches them; None: this process.

    Returns:
        Rows of ``REPLIES_SCHEMA``, or None.
    """
    return _all_replies(ledger, session) if _names_answers(ledger) else None


def _all_replies(ledger: Ledger, session: SparkSession | None) -> pa.Table:
    rows = bucket_rows(ledger)
    buckets = order_by_size(rows)
    return collect_replies(ledger, BucketPasses(session, ledger), buckets, buckets, sum(rows) // _REQUESTS)


_REQUESTS = 8
"""Estimate: at most one of this many rows is an open request."""


def _names_answers(ledger: Ledger) -> bool:
    """Return True if a row may name its request, by the statistics of row groups."""
    for file in ledger.files("ledger"):
        with ledger.opened(file) as opened:
            if any(
                stated is None or not stated.has_null_count or stated.num_values
                for stated in opened.statistics("answers")
            ):
                return True
    return False


class _FiguresMerger:
    """Incremental merge of partial figures; each table is merged a few times only."""

    def __init__(self, worst: int) -> None:
        self._worst = worst
        self._few: list[PartialFigures] = []
        self._merged: list[tuple[int, PartialFigures]] = []

    def add(self, figures: PartialFigures) -> None:
        """Add the figures of one bucket."""
        self._few.append(figures)
        if len(self._few) < _MERGE_SIZE:
            return
        new, self._few = merge_figures(self._few, self._worst), []
        while self._merged and self._merged[-1][0] <= 2 * _size(new):
            new = merge_figures([self._merged.pop()[1], new], self._worst)
        self._merged.append((_size(new), new))

    def all(self) -> PartialFigures:
        """Return the merged figures."""
        return merge_figures([no_figures(), *(figures for _, figures in self._merged), *self._few], self._worst)


def _size(figures: PartialFigures) -> int:
    return sum(getattr(figures, name).num_rows for name in figures.__dataclass_fields__)


@dataclass(frozen=True)
class _Counting:
    """One count over all buckets."""

    ledger: Ledger
    passes: BucketPasses
    asked: FigureRequest
    buckets: list[int]
    progress: PassProgress
    kept: FiguresCache | None

    def all(self) -> tuple[PartialFigures, CrossLaneReplies | None]:
        """Return the merged figures of all buckets, and the answers on other lanes."""
        alone: dict[int, PartialFigures] = {}
        naming: list[int] = []
        rest = _FiguresMerger(self.asked.worst)
        for bucket, figures in self._bucket_figures():
            self.progress.bucket(bucket)
            if _count(figures, "naming") or self.asked.where:
                naming.append(bucket)
            if _count(figures, "unanswered"):
                alone[bucket] = figures  # counted again if there are answers to its requests
            else:
                rest.add(figures)
        many = sum(_count(figures, "unanswered") for figures in alone.values())
        replies = None
        if many and naming and (not self.asked.where or _names_answers(self.ledger)):
            found = collect_replies(self.ledger, self.passes, list(alone), naming, many)
            if found.num_rows:
                replies = CrossLaneReplies(found)
                for _, figures in self._over(list(alone), found):
                    rest.add(figures)
                alone = {}
        for figures in alone.values():
            rest.add(figures)
        return rest.all(), replies

    def _bucket_figures(self) -> Iterator[tuple[int, PartialFigures]]:
        """Yield the figures of each bucket, from the cache if unchanged."""
        known = {} if self.kept is None else self.kept.known(self.ledger, self.asked)
        yield from known.items()
        for bucket, figures in self._over([bucket for bucket in self.buckets if bucket not in known], None):
            if self.kept is not None:
                self.kept.keep(self.ledger, self.asked, bucket, figures)
            yield bucket, figures

    def _over(self, buckets: list[int], replies: pa.Table | None) -> Iterator[tuple[int, PartialFigures]]:
        tables = self.ledger.table("observed"), self.ledger.table("promises")
        job = _CountJob(uuid.uuid4().hex, self.ledger, *tables, self.asked, replies)
        return self.passes.over(buckets, _count_bucket, job, PartialFigures, "count, figures")


def _count(figures: PartialFigures, name: str) -> int:
    return int(figures.span[name].to_numpy().sum())


def _lane_context(ledger: Ledger) -> LaneContext:
    return LaneContext(ObservedWindowTable(ledger.table("observed")), LanePromises(ledger.table("promises")))


def _read_named(ledger: Ledger, keys: pa.Table, replies: CrossLaneReplies | None) -> pa.Table:
    """Return the messages named by rows of ``WORST_KEYS_SCHEMA``, possibly with others."""
    known, of_keys = _lane_context(ledger), message_buckets(keys, ledger.buckets)

    def of_bucket(bucket: int) -> list[pa.Table]:
        own = keys.filter(pa.array(of_keys == bucket))
        parts = (found for part in bucket_parts(ledger, bucket) if (found := _matching_rows(part, own)) is not None)
        return [rows_of_messages(each) for each in requested_outcomes(parts, known, ALL_MESSAGES, replies)]

    with pass_threads() as pool:
        found = [each for tables in pool.map(of_bucket, np.unique(of_keys).tolist()) for each in tables]
    return pa.concat_tables([MESSAGES_SCHEMA.empty_table(), *found])


def _matching_rows(part: BucketPart, keys: pa.Table) -> BucketPart | None:
    """Return the rows of a part that may belong to given keys; None if there are none."""
    named = "index" if keys["index"].null_count == 0 else "message_id"
    names = ["index"] if named == "index" else ["index", "message_id"]
    rows = part.read([*LANE, *names])
    hits = np.ones(rows.num_rows, bool)
    for name in LANE:
        hits &= in_values(rows[name], tuple(keys[name].unique().to_pylist()))
    numbers = in_values(rows["index"], tuple(keys["index"].drop_null().unique().to_pylist()))
    if named == "message_id":
        others = in_values(rows["message_id"], tuple(keys["message_id"].drop_null().unique().to_pylist()))
        numbers |= others & np.asarray(rows["index"].is_null())
    hits &= numbers
    return TablePart(part.take(LEDGER_SCHEMA.names, np.flatnonzero(hits))) if hits.any() else None


@dataclass(frozen=True)
class _CountJob:
    """Input of the tasks of one job."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    asked: FigureRequest
    replies: pa.Table | None


def _count_bucket(shared: SharedJobState, bucket: int) -> Iterable[tuple[int, PartialFigures]]:
    job: _CountJob = shared.value
    known = once_per_worker(job.key, lambda: LaneContext(ObservedWindowTable(job.observed), LanePromises(job.promises)))
    replies = (
        None if job.replies is None else once_per_worker(f"{job.key} replies", lambda: CrossLaneReplies(job.replies))
    )
    parts, value = bucket_parts(job.ledger, bucket), bucket_value(job.ledger, bucket)
    yield 0, bucket_figures(parts, known, job.asked, value, replies)
