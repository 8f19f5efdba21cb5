"""The audit of a stored ledger: in this process, a few buckets at once, or as Spark jobs of a task a bucket."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from causeway.audit.along import Before, PieceKey
from causeway.audit.auditing import Audit, Runs, audit_by, numbered_runs
from causeway.audit.known import Known, SentEnds
from causeway.audit.meeting import Here
from causeway.audit.passing import LIMIT, Passed, pass_over
from causeway.audit.stated import Stated, stated_in
from causeway.audit.windows import Lane, Promises, Windows
from causeway.model.errors import InvalidInput
from causeway.pipeline.ledger_parts import bucket_parts, value_of
from causeway.pipeline.ledger_store import Ledger
from causeway.pipeline.masters import cores_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS = ("auto", "in_process", "spark")

SPARK_ROWS = 50_000_000
"""From so many rows on ``auto`` takes Spark: below, a session takes longer to start than the audit."""

MOST_THREADS = 8
"""Buckets that are looked at at once in one process, at most: each takes memory, and they share one interpreter."""

Progress = Callable[[int, int], None]
"""Told how many rows were looked at, and of how many."""

Found = Mapping[tuple[int, int], Passed]

_STATED = ("headers", "watermarks")
"""Tables of what chains state of themselves."""


def audit_ledger(
    ledger: Ledger,
    *,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    limit: int = LIMIT,
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
        progress: is told how far it is, from any thread.

    Raises:
        InvalidInput: ``executor`` is unknown, the session does not open, an event or kind has no known name, or rows
            are not in the order of the ledger.
        LedgerDamaged: a file is not what was written.
        TaskFailed: a Spark task failed.
    """
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    rows = [sum(file.rows for file in ledger.files("ledger", bucket)) for bucket in range(ledger.buckets)]
    on_spark = executor == "spark" or (executor == "auto" and (session is not None or sum(rows) >= SPARK_ROWS))
    observed, promises = ledger.table("observed"), ledger.table("promises")
    told = _Told(progress, rows)
    meet = Here(lambda bucket: bucket_parts(ledger, bucket), _threads)
    if not on_spark:
        here = _InProcess(ledger, rows, limit, told)
        return audit_by(here, observed, promises, limit, here.look_at_chains, meet)
    if session is None:
        session = _session(master, settings, len(rows))
    there = _OnSpark(session, ledger, rows, (observed, promises), limit, told)
    return audit_by(there, observed, promises, limit, there.look_at_chains, meet)


def _session(master: str, settings: Mapping[str, str], tasks: int) -> SparkSession:
    from causeway.pipeline.ledger_tasks import MODULES
    from causeway.pipeline.session import begin_session, open_session, prepare_workers, tasks_asked, workers_prepared

    begin_session(master, extra=settings)
    prepare_workers(min(tasks, tasks_asked(master, settings)), MODULES)
    session = open_session(master, extra=settings)
    workers_prepared()
    return session


class _Told:
    """How far the first look is."""

    def __init__(self, progress: Progress | None, rows: list[int]) -> None:
        self._progress, self._rows, self._total, self._done = progress, rows, sum(rows), 0

    def bucket(self, bucket: int) -> None:
        self._done += self._rows[bucket]
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(cores_here(), MOST_THREADS), "causeway-audit")


def _stating(ledger: Ledger) -> list[int]:
    """Return the buckets that have headers or watermarks."""
    return [bucket for bucket in range(ledger.buckets) if any(ledger.files(table, bucket) for table in _STATED)]


def _stated_at(ledger: Ledger, windows: Windows, limit: int, bucket: int) -> Stated:
    headers, watermarks = (ledger.rows(bucket, table=table) for table in _STATED)
    return stated_in(headers, watermarks, windows, limit)


def _largest_first(rows: list[int], only: Runs | None) -> list[int]:
    """Return the buckets to look at, so that the last ones to end are small."""
    return sorted(range(len(rows)) if only is None else only, key=lambda bucket: (-rows[bucket], bucket))


@dataclass(frozen=True)
class _InProcess:
    ledger: Ledger
    rows: list[int]
    limit: int
    told: _Told

    def __call__(self, known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Found:
        buckets = _largest_first(self.rows, only)

        def one(bucket: int) -> list[Passed]:
            chosen = None if only is None else only[bucket]
            value = value_of(self.ledger, bucket)
            passed = pass_over(bucket_parts(self.ledger, bucket), known, before, self.limit, chosen, value)
            self.told.bucket(bucket)
            return passed

        with _threads() as threads:
            return numbered_runs(buckets, threads.map(one, buckets), only)

    def look_at_chains(self, windows: Windows) -> Iterable[Stated]:
        with _threads() as threads:
            looks = partial(_stated_at, self.ledger, windows, self.limit)
            return [*threads.map(looks, _stating(self.ledger))]


@dataclass(frozen=True)
class _OnSpark:
    session: SparkSession
    ledger: Ledger
    rows: list[int]
    tables: tuple[pa.Table, pa.Table]
    limit: int
    told: _Told

    def __call__(self, known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Found:
        from causeway.pipeline.ledger_tasks import run_buckets

        buckets = _largest_first(self.rows, only)
        runs = None if only is None else {bucket: tuple(only[bucket]) for bucket in buckets}
        look = _Look(
            uuid.uuid4().hex,
            self.ledger,
            *self.tables,
            known.sent,
            known.complete,
            before,
            runs,
            self.limit,
        )
        shared = self.session.sparkContext.broadcast(look)
        try:
            found = run_buckets(self.session, buckets, _look_at, shared, Passed)
        finally:
            shared.unpersist()
        for bucket in buckets:
            self.told.bucket(bucket)
        return found

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


class Shared(Protocol):
    """What a job has in each worker."""

    @property
    def value(self) -> Any:
        """Return it."""
        ...


@dataclass(frozen=True)
class _Look:
    """What the tasks of one job share."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    sent: dict[Lane, SentEnds]
    complete: bool
    before: dict[PieceKey, Before]
    only: Mapping[int, tuple[int, ...]] | None
    limit: int


def _look_at(shared: Shared, bucket: int) -> Iterable[tuple[int, Passed]]:
    from causeway.pipeline.ledger_tasks import once

    look: _Look = shared.value
    known = once(look.key, lambda: Known(Windows(look.observed), Promises(look.promises), look.sent, look.complete))
    only = None if look.only is None else look.only[bucket]
    parts = bucket_parts(look.ledger, bucket)
    value = value_of(look.ledger, bucket)
    yield from _numbered(pass_over(parts, known, look.before, look.limit, only, value), only)


def _look_at_chains(shared: Shared, bucket: int) -> Iterable[tuple[int, Stated]]:
    ledger, windows, limit = shared.value
    yield 0, _stated_at(ledger, windows, limit, bucket)


def _numbered(passed: list[Passed], only: tuple[int, ...] | None) -> Iterator[tuple[int, Passed]]:
    yield from zip(range(len(passed)) if only is None else sorted(only), passed, strict=True)


__all__ = ["EXECUTORS", "LIMIT", "SPARK_ROWS", "audit_ledger"]
