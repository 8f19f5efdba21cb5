"""The figures of a stored ledger, and its messages: in this process, or as Spark jobs of a task a bucket."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from causeway.audit.known import Known
from causeway.audit.parts import Part, TablePart
from causeway.audit.windows import Promises, Windows
from causeway.figures.figures import Figures, figures_from
from causeway.figures.messages import MESSAGES_SCHEMA
from causeway.figures.messages import messages_of as rows_of_messages
from causeway.figures.replies import REPLIES_SCHEMA, Answers, Replies
from causeway.figures.shown import Asked, Shown, nothing, outcomes_of, shown_in, together
from causeway.figures.where import EVERYTHING, Where, is_in
from causeway.figures.worst import WORST
from causeway.ledger.order import bucket_of, buckets_of
from causeway.ledger.schema import LANE, LEDGER_SCHEMA
from causeway.pipeline.ledger_kept import KeptShown
from causeway.pipeline.ledger_parts import bucket_parts, value_of
from causeway.pipeline.ledger_passes import (
    Passes,
    Progress,
    Shared,
    Told,
    bucket_rows,
    largest_first,
    opened_session,
    takes_spark,
    threads,
)
from causeway.pipeline.ledger_replies import replies_of
from causeway.pipeline.ledger_store import Ledger
from causeway.pipeline.ledger_tasks import once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HELD = 16
"""What so many buckets show is put together at a time."""

_MODULES = ("causeway.figures.shown", "causeway.pipeline.ledger_figures")


def figures_of(
    ledger: Ledger,
    *,
    where: Where = EVERYTHING,
    by_lane: bool = False,
    worst: int = WORST,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    progress: Progress | None = None,
    kept: KeptShown | None = None,
) -> Figures:
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
    if takes_spark(executor, session, rows):
        session = session or opened_session(master, settings, len(rows), _MODULES)
    else:
        session = None
    asked, told = Asked(where, by_lane, worst), Told(progress, rows)
    shown, replies = _Counting(ledger, Passes(session), asked, largest_first(rows), told, kept).all()
    tables = ledger.table("observed"), ledger.table("promises")
    return figures_from(shown, lambda keys: _named(ledger, keys, replies), *tables)


def messages_of(
    ledger: Ledger, where: Where = EVERYTHING, *, session: SparkSession | None = None
) -> Iterator[pa.Table]:
    """Yield the messages of a stored ledger (``MESSAGES_SCHEMA``), a run of them at a time: bucket by bucket, in each
    in the order of the ledger.

    ``where``: which ones; ``session``: looks for answers that came over other lanes. Raises as ``figures_of``.
    """
    reader = MessageReader.of(ledger, where)
    found: list[Replies] = []

    def search() -> Replies:
        if not found:
            found.append(Replies(_all_replies(ledger, session)))
        return found[0]

    answers = search if _names_answers(ledger) else None
    for bucket in reader.buckets:
        yield from reader.rows(bucket, answers)


@dataclass(frozen=True)
class MessageReader:
    """Reads the messages of a stored ledger, bucket by bucket; picklable. ``buckets``: those that may have any."""

    ledger: Ledger
    where: Where
    observed: pa.Table
    promises: pa.Table
    replies: pa.Table
    buckets: tuple[int, ...]
    key: str

    @classmethod
    def of(cls, ledger: Ledger, where: Where = EVERYTHING, replies: pa.Table | None = None) -> MessageReader:
        """Return what reads some messages. ``replies``: answers that came over other lanes (``replies_in_all``)."""
        tables = ledger.table("observed"), ledger.table("promises")
        replies = REPLIES_SCHEMA.empty_table() if replies is None else replies
        return cls(ledger, where, *tables, replies, buckets_with(ledger, where), uuid.uuid4().hex)

    def rows(self, bucket: int, answers: Answers | None = None) -> Iterator[pa.Table]:
        """Yield the messages of a bucket (``MESSAGES_SCHEMA``), a run of them at a time. ``answers``: those that came
        over other lanes, where the reader has none."""
        known = once(self.key, lambda: Known(Windows(self.observed), Promises(self.promises)))
        replies = once(f"{self.key} replies", lambda: Replies(self.replies)) if self.replies.num_rows else answers
        for outcomes in outcomes_of(bucket_parts(self.ledger, bucket), known, self.where, replies):
            if len(outcomes):
                yield rows_of_messages(outcomes)


def buckets_with(ledger: Ledger, where: Where) -> tuple[int, ...]:
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
    return tuple(sorted({bucket_of(lane, index, None, ledger.buckets) for lane in texts for index in numbers}))


_FEW = 1000
"""Messages that are asked for by name one by one, at most."""


def replies_in_all(ledger: Ledger, session: SparkSession | None = None) -> pa.Table | None:
    """Return the answers that came over other lanes to requests that nothing else tells the answer of, None: there are
    none. ``session``: looks for them; None: this process."""
    return _all_replies(ledger, session) if _names_answers(ledger) else None


def _all_replies(ledger: Ledger, session: SparkSession | None) -> pa.Table:
    rows = bucket_rows(ledger)
    buckets = largest_first(rows)
    return replies_of(ledger, Passes(session), buckets, buckets, sum(rows) // _REQUESTS)


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
        self._few: list[Shown] = []
        self._merged: list[tuple[int, Shown]] = []

    def add(self, shown: Shown) -> None:
        """Take what one bucket shows."""
        self._few.append(shown)
        if len(self._few) < _HELD:
            return
        new, self._few = together(self._few, self._worst), []
        while self._merged and self._merged[-1][0] <= 2 * _size(new):
            new = together([self._merged.pop()[1], new], self._worst)
        self._merged.append((_size(new), new))

    def all(self) -> Shown:
        """Return what all of them show together."""
        return together([nothing(), *(shown for _, shown in self._merged), *self._few], self._worst)


def _size(shown: Shown) -> int:
    return sum(getattr(shown, name).num_rows for name in shown.__dataclass_fields__)


@dataclass(frozen=True)
class _Counting:
    ledger: Ledger
    passes: Passes
    asked: Asked
    buckets: list[int]
    told: Told
    kept: KeptShown | None

    def all(self) -> tuple[Shown, Replies | None]:
        """Return what all buckets show together, and the answers that came over other lanes."""
        alone: dict[int, Shown] = {}
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
            found = replies_of(self.ledger, self.passes, list(alone), naming, many)
            if found.num_rows:
                replies = Replies(found)
                for _, shown in self._over(list(alone), found):
                    rest.add(shown)
                alone = {}
        for shown in alone.values():
            rest.add(shown)
        return rest.all(), replies

    def _shown(self) -> Iterator[tuple[int, Shown]]:
        """Yield what each bucket shows, of those that did not change what is kept."""
        known = {} if self.kept is None else self.kept.known(self.ledger, self.asked)
        yield from known.items()
        for bucket, shown in self._over([bucket for bucket in self.buckets if bucket not in known], None):
            if self.kept is not None:
                self.kept.keep(self.ledger, self.asked, bucket, shown)
            yield bucket, shown

    def _over(self, buckets: list[int], replies: pa.Table | None) -> Iterator[tuple[int, Shown]]:
        tables = self.ledger.table("observed"), self.ledger.table("promises")
        look = _Look(uuid.uuid4().hex, self.ledger, *tables, self.asked, replies)
        return self.passes.over(buckets, _look_at, look, Shown)


def _count(shown: Shown, name: str) -> int:
    return int(shown.span[name].to_numpy().sum())


def _known(ledger: Ledger) -> Known:
    return Known(Windows(ledger.table("observed")), Promises(ledger.table("promises")))


def _named(ledger: Ledger, keys: pa.Table, replies: Replies | None) -> pa.Table:
    """Return the messages that rows of ``WORST_KEYS_SCHEMA`` name, and perhaps some of the same lanes."""
    known, of_keys = _known(ledger), buckets_of(keys, ledger.buckets)

    def of_bucket(bucket: int) -> list[pa.Table]:
        own = keys.filter(pa.array(of_keys == bucket))
        parts = (found for part in bucket_parts(ledger, bucket) if (found := _rows_of(part, own)) is not None)
        return [rows_of_messages(each) for each in outcomes_of(parts, known, EVERYTHING, replies)]

    with threads() as pool:
        found = [each for tables in pool.map(of_bucket, np.unique(of_keys).tolist()) for each in tables]
    return pa.concat_tables([MESSAGES_SCHEMA.empty_table(), *found])


def _rows_of(part: Part, keys: pa.Table) -> Part | None:
    """Return those rows of a part that may be of messages named by keys; None: there are none."""
    named = "index" if keys["index"].null_count == 0 else "message_id"
    names = ["index"] if named == "index" else ["index", "message_id"]
    rows = part.read([*LANE, *names])
    hits = np.ones(rows.num_rows, bool)
    for name in LANE:
        hits &= is_in(rows[name], tuple(keys[name].unique().to_pylist()))
    numbers = is_in(rows["index"], tuple(keys["index"].drop_null().unique().to_pylist()))
    if named == "message_id":
        others = is_in(rows["message_id"], tuple(keys["message_id"].drop_null().unique().to_pylist()))
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
    asked: Asked
    replies: pa.Table | None


def _look_at(shared: Shared, bucket: int) -> Iterable[tuple[int, Shown]]:
    look: _Look = shared.value
    known = once(look.key, lambda: Known(Windows(look.observed), Promises(look.promises)))
    replies = None if look.replies is None else once(f"{look.key} replies", lambda: Replies(look.replies))
    parts, value = bucket_parts(look.ledger, bucket), value_of(look.ledger, bucket)
    yield 0, shown_in(parts, known, look.asked, value, replies)


__all__ = ["MessageReader", "buckets_with", "figures_of", "messages_of", "replies_in_all"]
