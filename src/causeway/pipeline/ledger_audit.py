"""The audit of a stored ledger: in this process, a few buckets at once, or as Spark jobs of a task a bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from causeway.audit.along import Before, PieceKey
from causeway.audit.auditing import Audit, Runs, audit_by, numbered_runs
from causeway.audit.gathered import Gathered
from causeway.audit.known import Known
from causeway.audit.meeting import Here
from causeway.audit.passing import LIMIT, Passed, pass_over
from causeway.audit.promised import Terms
from causeway.audit.stated import Stated, stated_in
from causeway.audit.windows import Promises, Windows
from causeway.pipeline.ledger_parts import bucket_parts, ledger_end, value_of
from causeway.pipeline.ledger_passes import (
    EXECUTORS,
    SPARK_ROWS,
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

Found = Mapping[tuple[int, int], Passed]

NO_TERMS = Terms()

STATED = ("headers", "watermarks")
"""Tables of what chains state of themselves."""


def audit_ledger(
    ledger: Ledger,
    *,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    limit: int = LIMIT,
    terms: Terms = NO_TERMS,
    progress: Progress | None = None,
) -> Audit:
    """Check a stored ledger; the result is the same whoever does it.

    Args:
        ledger: as of a commit.
        executor: ``in_process``, ``spark``, or ``auto``: Spark where a ``session`` is given, or from ``SPARK_ROWS``
            rows on.
        session: the Spark session that is used; without one, ``open_session(master, extra=settings)`` opens one where
            Spark is used.
        master, settings: as of ``open_session``.
        limit: how many findings of one lane, check and reason are named; all are counted.
        terms: deadlines and clock tolerances beside those that the ledger has.
        progress: is told how far it is, from any thread.

    Raises:
        InvalidInput: ``executor`` is unknown, the session does not open, an event or kind has no known name, or rows
            are not in the order of the ledger.
        LedgerDamaged: a file is not what was written.
        TaskFailed: a Spark task failed.
    """
    rows = bucket_rows(ledger)
    on_spark = takes_spark(executor, session, rows)
    observed, promises = ledger.table("observed"), terms.applied(ledger.table("promises"))
    told = Told(progress, rows)
    meet = Here(lambda bucket: bucket_parts(ledger, bucket), threads)
    end = ledger_end(ledger)
    if not on_spark:
        here = _InProcess(ledger, rows, limit, told)
        return audit_by(here, observed, promises, limit, here.look_at_chains, meet, end=end)
    if session is None:
        session = opened_session(master, settings, len(rows))
    there = _OnSpark(session, ledger, rows, (observed, promises), end, limit, told)
    return audit_by(there, observed, promises, limit, there.look_at_chains, meet, end=end)


def _stating(ledger: Ledger) -> list[int]:
    """Return the buckets that have headers or watermarks."""
    return [bucket for bucket in range(ledger.buckets) if any(ledger.files(table, bucket) for table in STATED)]


def _stated_at(ledger: Ledger, windows: Windows, limit: int, bucket: int) -> Stated:
    headers, watermarks = (ledger.rows(bucket, table=table) for table in STATED)
    return stated_in(headers, watermarks, windows, limit)


@dataclass(frozen=True)
class _InProcess:
    ledger: Ledger
    rows: list[int]
    limit: int
    told: Told

    def __call__(self, known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Found:
        buckets = largest_first(self.rows, only)

        def one(bucket: int) -> list[Passed]:
            chosen = None if only is None else only[bucket]
            value = value_of(self.ledger, bucket)
            passed = pass_over(bucket_parts(self.ledger, bucket), known, before, self.limit, chosen, value)
            self.told.bucket(bucket)
            return passed

        with threads() as pool:
            return numbered_runs(buckets, pool.map(one, buckets), only, self.limit)

    def look_at_chains(self, windows: Windows) -> Iterable[Stated]:
        with threads() as pool:
            looks = partial(_stated_at, self.ledger, windows, self.limit)
            return [*pool.map(looks, _stating(self.ledger))]


@dataclass(frozen=True)
class _OnSpark:
    session: SparkSession
    ledger: Ledger
    rows: list[int]
    tables: tuple[pa.Table, pa.Table]
    end: int | None
    limit: int
    told: Told

    def __call__(self, known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Found:
        from causeway.pipeline.ledger_tasks import run_buckets

        buckets = largest_first(self.rows, only)
        runs = None if only is None else {bucket: tuple(only[bucket]) for bucket in buckets}
        look = _Look(
            uuid.uuid4().hex,
            self.ledger,
            *self.tables,
            self.end,
            known.of_second_look(),
            before,
            runs,
            self.limit,
        )
        shared = self.session.sparkContext.broadcast(look)
        try:
            gathered = Gathered(self.limit)
            run_buckets(self.session, buckets, _look_at, shared, Passed, gathered.add)
        finally:
            shared.unpersist()
        for bucket in buckets:
            self.told.bucket(bucket)
        return gathered.runs

    def look_at_chains(self, windows: Windows) -> Iterable[Stated]:
        buckets = _stating(self.ledger)
        if not buckets:
            return []
        from causeway.pipeline.ledger_tasks import run_buckets

        shared = self.session.sparkContext.broadcast((self.ledger, windows, self.limit))
        try:
            return run_buckets(self.session, buckets, _look_at_chains, shared, Stated).values()
        finally:
            shared.unpersist()


@dataclass(frozen=True)
class _Look:
    """What the tasks of one job share."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    end: int | None
    known: Mapping[str, Any]
    before: dict[PieceKey, Before]
    only: Mapping[int, tuple[int, ...]] | None
    limit: int


def _look_at(shared: Shared, bucket: int) -> Iterable[tuple[int, Passed]]:
    from causeway.pipeline.ledger_tasks import once

    look: _Look = shared.value
    known = once(look.key, lambda: _known(look))
    only = None if look.only is None else look.only[bucket]
    parts = bucket_parts(look.ledger, bucket)
    value = value_of(look.ledger, bucket)
    yield from _numbered(pass_over(parts, known, look.before, look.limit, only, value), only)


def _known(look: _Look) -> Known:
    return Known(Windows(look.observed, look.end), Promises(look.promises), **look.known)


def _look_at_chains(shared: Shared, bucket: int) -> Iterable[tuple[int, Stated]]:
    ledger, windows, limit = shared.value
    yield 0, _stated_at(ledger, windows, limit, bucket)


def _numbered(passed: list[Passed], only: tuple[int, ...] | None) -> Iterator[tuple[int, Passed]]:
    yield from zip(range(len(passed)) if only is None else sorted(only), passed, strict=True)


__all__ = ["EXECUTORS", "LIMIT", "SPARK_ROWS", "audit_ledger"]
