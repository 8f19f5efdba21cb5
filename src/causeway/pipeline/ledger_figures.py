"""The figures of a stored ledger, and its messages: in this process, or as Spark jobs of a task a bucket."""

from __future__ import annotations

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
from causeway.figures.replies import Replies
from causeway.figures.shown import Asked, Shown, nothing, outcomes_of, shown_in, together
from causeway.figures.where import EVERYTHING, Where, is_in
from causeway.figures.worst import WORST
from causeway.ledger.order import buckets_of
from causeway.ledger.schema import LANE, LEDGER_SCHEMA
from causeway.pipeline.ledger_parts import bucket_parts, value_of
from causeway.pipeline.ledger_passes import (
    Progress,
    Shared,
    Told,
    bucket_rows,
    largest_first,
    opened_session,
    takes_spark,
    threads,
)
from causeway.pipeline.ledger_store import Ledger

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
) -> Figures:
    """Return the figures of a stored ledger; they are the same whoever counts.

    Args:
        ledger: as of a commit.
        where: which messages count.
        by_lane: whether the backlog of each lane is wanted (``Figures.lane_backlog``).
        worst: how many of the worst messages of each kind are named.
        executor, session, master, settings, progress: as of ``ledger_audit.audit_ledger``.

    Raises:
        InvalidInput: ``executor`` is unknown, the session does not open, an event or kind has no known name, or rows
            are not in the order of the ledger.
        LedgerDamaged: a file is not what was written.
        TaskFailed: a Spark task failed.
    """
    rows = bucket_rows(ledger)
    asked = Asked(where, by_lane, worst)
    told = Told(progress, rows)
    found: list[Shown] = [nothing()]
    if takes_spark(executor, session, rows):
        session = session or opened_session(master, settings, len(rows), _MODULES)
        found += _on_spark(session, ledger, asked, largest_first(rows), told)
    else:
        for shown in _in_process(ledger, asked, largest_first(rows), told):
            found.append(shown)
            if len(found) > _HELD:
                found = [together(found, worst)]
    known = _known(ledger)

    def messages(keys: pa.Table) -> pa.Table:
        return _named(ledger, known, keys)

    return figures_from(together(found, worst), messages)


def messages_of(ledger: Ledger, where: Where = EVERYTHING) -> Iterator[pa.Table]:
    """Yield the messages of a stored ledger (``MESSAGES_SCHEMA``), a run of them at a time: bucket by bucket, in each
    in the order of the ledger. ``where``: which ones. Raises as ``figures_of``."""
    known = _known(ledger)
    for bucket in range(ledger.buckets):
        for outcomes in outcomes_of(bucket_parts(ledger, bucket), known, where):
            if len(outcomes):
                yield rows_of_messages(outcomes)


def messages_in(ledger: Ledger, bucket: int, where: Where = EVERYTHING) -> Iterator[pa.Table]:
    """Yield the messages of one bucket, as ``messages_of``."""
    for outcomes in outcomes_of(bucket_parts(ledger, bucket), _known(ledger), where):
        yield rows_of_messages(outcomes)


def _known(ledger: Ledger) -> Known:
    return Known(Windows(ledger.table("observed")), Promises(ledger.table("promises")))


def _named(ledger: Ledger, known: Known, keys: pa.Table) -> pa.Table:
    """Return the messages that rows of ``WORST_KEYS_SCHEMA`` name, and perhaps some of the same lanes."""
    of_keys = buckets_of(keys, ledger.buckets)

    def of_bucket(bucket: int) -> list[pa.Table]:
        own = keys.filter(pa.array(of_keys == bucket))
        parts = (found for part in bucket_parts(ledger, bucket) if (found := _rows_of(part, own)) is not None)
        return [rows_of_messages(each) for each in outcomes_of(parts, known)]

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


def _in_process(ledger: Ledger, asked: Asked, buckets: list[int], told: Told) -> Iterator[Shown]:
    known = _known(ledger)

    def one(bucket: int) -> Shown:
        shown = shown_in(bucket_parts(ledger, bucket), known, asked, value_of(ledger, bucket))
        told.bucket(bucket)
        return shown

    with threads() as pool:
        yield from pool.map(one, buckets)


@dataclass(frozen=True)
class _Look:
    """What the tasks of one job share."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    asked: Asked
    replies: pa.Table | None


def _on_spark(session: SparkSession, ledger: Ledger, asked: Asked, buckets: list[int], told: Told) -> list[Shown]:
    from causeway.pipeline.ledger_tasks import run_buckets

    tables = ledger.table("observed"), ledger.table("promises")
    shared = session.sparkContext.broadcast(_Look(uuid.uuid4().hex, ledger, *tables, asked, None))
    try:
        found = run_buckets(session, buckets, _look_at, shared, Shown)
    finally:
        shared.unpersist()
    for bucket in buckets:
        told.bucket(bucket)
    return [found[key] for key in sorted(found)]


def _look_at(shared: Shared, bucket: int) -> Iterable[tuple[int, Shown]]:
    from causeway.pipeline.ledger_tasks import once

    look: _Look = shared.value
    known = once(look.key, lambda: Known(Windows(look.observed), Promises(look.promises)))
    replies = None if look.replies is None else once(f"{look.key} replies", lambda: Replies(look.replies))
    parts, value = bucket_parts(look.ledger, bucket), value_of(look.ledger, bucket)
    yield 0, shown_in(parts, known, look.asked, value, replies)


__all__ = ["figures_of", "messages_in", "messages_of"]
