"""Answers of a stored ledger that travel over lanes of their own, to requests of any bucket.

What buckets of a growing ledger showed, kept while their rows stay the same.

The figures of a stored ledger, and its messages: in this process, or as Spark jobs of a task a bucket.
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
from causeway.ledger.bucket_scan import (
    BucketPasses,
    PassProgress,
    PassProgressCallback,
    SharedJobState,
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

ROWS_AT_ONCE = 4_000_000
"""Requests whose answers are looked for at a time."""

_WORD = 1 << 64


@dataclass(frozen=True)
class GatheredRows:
    """Rows that a bucket gives."""

    rows: pa.Table


@dataclass(frozen=True)
class _Search:
    """What the buckets share. ``first``, ``last``: of the digests that are looked for; ``asked``: those, ascending."""

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
    """Return the answers to requests that nothing else tells the answer of (``REPLIES_SCHEMA``), by ``id_0``.

    Args:
        ledger: as of a commit.
        passes: who looks.
        asking: the buckets with such requests.
        naming: those with responses that name what they answer.
        count: about how many such requests there are.

    Raises as ``ledger_figures.figures_of``.
    """
    tables = ledger.table("observed"), ledger.table("promises")
    rounds = max(-(-count // ROWS_AT_ONCE), 1)
    found = [REPLIES_SCHEMA.empty_table()]
    for number in range(rounds):
        first, last = number * _WORD // rounds, (number + 1) * _WORD // rounds - 1
        search = _Search(uuid.uuid4().hex, ledger, *tables, first, last)
        gathered = [each.rows for _, each in passes.over(asking, _open_in, search, GatheredRows)]
        asked = np.unique(pa.concat_tables([OPEN_SCHEMA.empty_table(), *gathered])["id_0"].to_numpy())
        if len(asked):
            search = replace(search, asked=pa.array(asked))
            came = [each.rows for _, each in passes.over(naming, _replies_in, search, GatheredRows)]
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
    asked = np.zeros(0, np.uint64) if search.asked is None else search.asked.to_numpy()
    for number, outcomes in enumerate(requested_outcomes(bucket_parts(search.ledger, bucket), _known(search))):
        yield number, GatheredRows(find_replies(outcomes.bucket, asked))


def _known(search: _Search) -> LaneContext:
    return once_per_worker(
        search.key, lambda: LaneContext(ObservedWindowTable(search.observed), LanePromises(search.promises))
    )


class FiguresCache:
    """What buckets showed last, for a ledger that is counted again and again: only those with other rows are passed
    over again. For one thread at a time."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[bytes, PartialFigures]] = {}

    def known(self, ledger: Ledger, asked: FigureRequest) -> dict[int, PartialFigures]:
        """Return what buckets show whose rows are those that they had."""
        return {
            bucket: shown
            for bucket, (state, shown) in self._found.items()
            if bucket < ledger.buckets and state == self._state(ledger, asked, bucket)
        }

    def keep(self, ledger: Ledger, asked: FigureRequest, bucket: int, shown: PartialFigures) -> None:
        """Keep what a bucket shows."""
        self._found[bucket] = self._state(ledger, asked, bucket), shown

    def _state(self, ledger: Ledger, asked: FigureRequest, bucket: int) -> bytes:
        """Return a digest of all that the result of a bucket depends on: its rows, promises, and what is asked."""
        promises = [file.path for file in ledger.files("promises")]
        found = repr((ledger.storage.uri, ledger.digest, asked, promises))
        return found.encode() + rows_digest(ledger, bucket, LOOSE_TABLES)


_HELD = 16
"""What so many buckets show is put together at a time."""

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
    """Return the figures of a stored ledger; they are the same whoever counts.

    Args:
        ledger: as of a commit.
        where: which messages count.
        by_lane: whether the backlog of each lane is wanted (``Figures.lane_backlog``).
        worst: how many of the worst messages of each kind are named.
        executor, session, master, settings, progress: as of ``ledger_audit.audit_ledger``.
        kept: of a ledger that is counted again as it grows: what buckets showed, of which those that did not change are
            not passed over again; what is new is kept there.

    Raises:
        InvalidInput: ``executor`` is unknown, the session does not open, an event or kind has no known name, or rows
            are not in the order of the ledger.
        LedgerDamaged: a file is not what was written.
        TaskFailed: a Spark task failed.
    """
    rows = bucket_rows(ledger)
    if should_use_spark(executor, session, rows):
        session = session or open_worker_session(master, settings, len(rows), _MODULES)
    else:
        session = None
    asked, told = FigureRequest(where, by_lane, worst), PassProgress(progress, rows)
    shown, replies = _Counting(ledger, BucketPasses(session), asked, order_by_size(rows), told, kept).all()
    tables = ledger.table("observed"), ledger.table("promises")
    return build_figures(shown, lambda keys: _named(ledger, keys, replies), *tables)


def read_messages(
    ledger: Ledger, where: MessageFilter = ALL_MESSAGES, *, session: SparkSession | None = None
) -> Iterator[pa.Table]:
    """Yield the messages of a stored ledger (``MESSAGES_SCHEMA``), a run of them at a time: bucket by bucket, in each
    in the order of the ledger.

    ``where``: which ones; ``session``: looks for answers that came over other lanes. Raises as ``figures_of``.
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
    """Reads the messages of a stored ledger, bucket by bucket; picklable. ``buckets``: those that may have any."""

    ledger: Ledger
    where: MessageFilter
    observed: pa.Table
    promises: pa.Table
    replies: pa.Table
    buckets: tuple[int, ...]
    key: str

    @classmethod
    def of(cls, ledger: Ledger, where: MessageFilter = ALL_MESSAGES, replies: pa.Table | None = None) -> MessageReader:
        """Return what reads some messages. ``replies``: answers that came over other lanes (``replies_in_all``)."""
        tables = ledger.table("observed"), ledger.table("promises")
        replies = REPLIES_SCHEMA.empty_table() if replies is None else replies
        return cls(ledger, where, *tables, replies, matching_buckets(ledger, where), uuid.uuid4().hex)

    def rows(self, bucket: int, answers: AnswerSource | None = None) -> Iterator[pa.Table]:
        """Yield the messages of a bucket (``MESSAGES_SCHEMA``), a run of them at a time. ``answers``: those that came
        over other lanes, where the reader has none."""
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
    """Return the buckets that may have messages asked for: where lane and index are given, those of these."""
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
"""Messages that are asked for by name one by one, at most."""


def all_replies(ledger: Ledger, session: SparkSession | None = None) -> pa.Table | None:
    """Return the answers that came over other lanes to requests that nothing else tells the answer of, None: there are
    none. ``session``: looks for them; None: this process."""
    return _all_replies(ledger, session) if _names_answers(ledger) else None


def _all_replies(ledger: Ledger, session: SparkSession | None) -> pa.Table:
    rows = bucket_rows(ledger)
    buckets = order_by_size(rows)
    return collect_replies(ledger, BucketPasses(session), buckets, buckets, sum(rows) // _REQUESTS)


_REQUESTS = 8
"""Of so many rows about one is of a request that nothing else tells the answer of, at most."""


def _names_answers(ledger: Ledger) -> bool:
    """Return whether any row may say what it answers, by what the files state of their row groups."""
    for file in ledger.files("ledger"):
        with ledger.opened(file) as opened:
            if any(
                stated is None or not stated.has_null_count or stated.num_values
                for stated in opened.statistics("answers")
            ):
                return True
    return False


class _Pile:
    """What buckets show, put together as it comes: each table is merged a few times, however many buckets there are."""

    def __init__(self, worst: int) -> None:
        self._worst = worst
        self._few: list[PartialFigures] = []
        self._merged: list[tuple[int, PartialFigures]] = []

    def add(self, shown: PartialFigures) -> None:
        """Take what one bucket shows."""
        self._few.append(shown)
        if len(self._few) < _HELD:
            return
        new, self._few = merge_figures(self._few, self._worst), []
        while self._merged and self._merged[-1][0] <= 2 * _size(new):
            new = merge_figures([self._merged.pop()[1], new], self._worst)
        self._merged.append((_size(new), new))

    def all(self) -> PartialFigures:
        """Return what all of them show together."""
        return merge_figures([no_figures(), *(shown for _, shown in self._merged), *self._few], self._worst)


def _size(shown: PartialFigures) -> int:
    return sum(getattr(shown, name).num_rows for name in shown.__dataclass_fields__)


@dataclass(frozen=True)
class _Counting:
    ledger: Ledger
    passes: BucketPasses
    asked: FigureRequest
    buckets: list[int]
    told: PassProgress
    kept: FiguresCache | None

    def all(self) -> tuple[PartialFigures, CrossLaneReplies | None]:
        """Return what all buckets show together, and the answers that came over other lanes."""
        alone: dict[int, PartialFigures] = {}
        naming: list[int] = []
        rest = _Pile(self.asked.worst)
        for bucket, shown in self._shown():
            self.told.bucket(bucket)
            if _count(shown, "naming") or self.asked.where:
                naming.append(bucket)
            if _count(shown, "unanswered"):
                alone[bucket] = shown  # looked at again if there are answers to its requests
            else:
                rest.add(shown)
        many = sum(_count(shown, "unanswered") for shown in alone.values())
        replies = None
        if many and naming and (not self.asked.where or _names_answers(self.ledger)):
            found = collect_replies(self.ledger, self.passes, list(alone), naming, many)
            if found.num_rows:
                replies = CrossLaneReplies(found)
                for _, shown in self._over(list(alone), found):
                    rest.add(shown)
                alone = {}
        for shown in alone.values():
            rest.add(shown)
        return rest.all(), replies

    def _shown(self) -> Iterator[tuple[int, PartialFigures]]:
        """Yield what each bucket shows, of those that did not change what is kept."""
        known = {} if self.kept is None else self.kept.known(self.ledger, self.asked)
        yield from known.items()
        for bucket, shown in self._over([bucket for bucket in self.buckets if bucket not in known], None):
            if self.kept is not None:
                self.kept.keep(self.ledger, self.asked, bucket, shown)
            yield bucket, shown

    def _over(self, buckets: list[int], replies: pa.Table | None) -> Iterator[tuple[int, PartialFigures]]:
        tables = self.ledger.table("observed"), self.ledger.table("promises")
        look = _Look(uuid.uuid4().hex, self.ledger, *tables, self.asked, replies)
        return self.passes.over(buckets, _look_at, look, PartialFigures)


def _count(shown: PartialFigures, name: str) -> int:
    return int(shown.span[name].to_numpy().sum())


def _ledger_figures_known(ledger: Ledger) -> LaneContext:
    return LaneContext(ObservedWindowTable(ledger.table("observed")), LanePromises(ledger.table("promises")))


def _named(ledger: Ledger, keys: pa.Table, replies: CrossLaneReplies | None) -> pa.Table:
    """Return the messages that rows of ``WORST_KEYS_SCHEMA`` name, and perhaps some of the same lanes."""
    known, of_keys = _ledger_figures_known(ledger), message_buckets(keys, ledger.buckets)

    def of_bucket(bucket: int) -> list[pa.Table]:
        own = keys.filter(pa.array(of_keys == bucket))
        parts = (found for part in bucket_parts(ledger, bucket) if (found := _rows_of(part, own)) is not None)
        return [rows_of_messages(each) for each in requested_outcomes(parts, known, ALL_MESSAGES, replies)]

    with pass_threads() as pool:
        found = [each for tables in pool.map(of_bucket, np.unique(of_keys).tolist()) for each in tables]
    return pa.concat_tables([MESSAGES_SCHEMA.empty_table(), *found])


def _rows_of(part: BucketPart, keys: pa.Table) -> BucketPart | None:
    """Return those rows of a part that may be of messages named by keys; None: there are none."""
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
class _Look:
    """What the tasks of one job share."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    asked: FigureRequest
    replies: pa.Table | None


def _look_at(shared: SharedJobState, bucket: int) -> Iterable[tuple[int, PartialFigures]]:
    look: _Look = shared.value
    known = once_per_worker(
        look.key, lambda: LaneContext(ObservedWindowTable(look.observed), LanePromises(look.promises))
    )
    replies = (
        None if look.replies is None else once_per_worker(f"{look.key} replies", lambda: CrossLaneReplies(look.replies))
    )
    parts, value = bucket_parts(look.ledger, bucket), bucket_value(look.ledger, bucket)
    yield 0, bucket_figures(parts, known, look.asked, value, replies)
