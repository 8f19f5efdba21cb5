"""Deadlines and clock tolerances that a user states for an audit, beside what the ledger promises.

The audit of a stored ledger: in this process, a few buckets at once, or as Spark jobs of a task a bucket.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.audit.checks.lane_order import PieceKey, PrecedingPositions
from causeway.audit.engine import AuditResult, RunResults, audit_with, number_runs
from causeway.audit.lane_context import LaneContext
from causeway.audit.passes.bucket_pass import LIMIT, RunResult, check_bucket
from causeway.audit.passes.cross_bucket_join import LocalJoiner
from causeway.audit.passes.results import ChainAssertions, PartialResults, check_chain_assertions
from causeway.core.text import parse_duration
from causeway.ledger.bucket_scan import (
    EXECUTORS,
    SPARK_ROWS,
    PassProgress,
    PassProgressCallback,
    SharedJobState,
    bucket_rows,
    open_worker_session,
    order_by_size,
    pass_threads,
    should_use_spark,
)
from causeway.ledger.schema import ANSWERED_WITHIN, CLOCK_TOLERANCE, EXPECTED_WITHIN, PROMISES_SCHEMA, RECEIVED_WITHIN
from causeway.ledger.store import Ledger
from causeway.ledger.stored_parts import bucket_parts, bucket_value, ledger_end
from causeway.ledger.windows import LanePromises, ObservedWindowTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEADLINES", "EXECUTORS", "LIMIT", "SPARK_ROWS", "AuditTerms", "audit_ledger"]

DEADLINES = (RECEIVED_WITHIN, ANSWERED_WITHIN)
"""What a deadline may be about."""

NO_DEADLINES = "none"
USER = "user"
"""Who states what a user asks for."""

_MAX_SECONDS = 9_000_000_000_000


@dataclass(frozen=True)
class AuditTerms:
    """What a user states for an audit.

    Attributes:
        deadlines: microseconds within which each of ``DEADLINES`` happens in every lane, None: no deadline. They take
            the place of those that the ledger has.
        tolerances: microseconds by which the clock of each chain may be wrong, None: of every chain.
    """

    deadlines: Mapping[str, int | None] = field(default_factory=dict)
    tolerances: Mapping[str | None, int] = field(default_factory=dict)

    @classmethod
    def of(cls, deadlines: Iterable[str] = (), tolerances: Iterable[str] = ()) -> AuditTerms:
        """Read terms as a user writes them: ``received=1h``, ``answered=none``; ``2s``, ``CHAIN=500ms``.

        Raises:
            InvalidInput: one is malformed.
        """
        limits: dict[str, int | None] = {}
        for text in deadlines:
            name, sign, time = text.partition("=")
            if not sign or name not in DEADLINES:
                raise InvalidInput(f"deadline {text!r}: must be EVENT=TIME (allowed events: {', '.join(DEADLINES)})")
            limits[name] = None if time == NO_DEADLINES else _microseconds(f"deadline {text!r}", time)
        clocks: dict[str | None, int] = {}
        for text in tolerances:
            chain, sign, time = text.rpartition("=")
            clocks[chain if sign else None] = _microseconds(f"tolerance {text!r}", time)
        return cls(limits, clocks)

    def applied(self, promises: pa.Table) -> pa.Table:
        """Return what lanes promise (``PROMISES_SCHEMA``) with these terms."""
        if not self.deadlines and not self.tolerances:
            return promises
        rows: list[dict[str, Any]] = []
        for row in promises.to_pylist():
            if row["promise"] in (RECEIVED_WITHIN, EXPECTED_WITHIN) and RECEIVED_WITHIN in self.deadlines:
                continue
            if row["promise"] == ANSWERED_WITHIN and ANSWERED_WITHIN in self.deadlines:
                row = {**row, "number": None}
            rows.append(row)
        stated = dict.fromkeys(PROMISES_SCHEMA.names) | {"stated_by": USER}
        rows += [
            {**stated, "promise": name, "number": limit} for name, limit in self.deadlines.items() if limit is not None
        ]
        rows += [
            {**stated, "source": chain, "promise": CLOCK_TOLERANCE, "number": micros}
            for chain, micros in self.tolerances.items()
        ]
        columns = []
        for each in PROMISES_SCHEMA:
            plain = pa.string() if pa.types.is_dictionary(each.type) else each.type
            columns.append(pa.array([row.get(each.name) for row in rows], plain).cast(each.type))
        return pa.table(columns, schema=PROMISES_SCHEMA)


def _microseconds(what: str, text: str) -> int:
    seconds = parse_duration(text)
    if seconds is None or not 0 <= seconds <= _MAX_SECONDS:
        raise InvalidInput(f"{what}: must be a time such as 90s, 30min, 2h or 1d")
    return round(seconds * 1_000_000)


AuditReport = Mapping[tuple[int, int], RunResult]

DEFAULT_TERMS = AuditTerms()

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
    terms: AuditTerms = DEFAULT_TERMS,
    progress: PassProgressCallback | None = None,
) -> AuditResult:
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
    on_spark = should_use_spark(executor, session, rows)
    observed, promises = ledger.table("observed"), terms.applied(ledger.table("promises"))
    told = PassProgress(progress, rows)
    meet = LocalJoiner(lambda bucket: bucket_parts(ledger, bucket), pass_threads)
    end = ledger_end(ledger)
    if not on_spark:
        here = _InProcess(ledger, rows, limit, told)
        return audit_with(here, observed, promises, limit, here.look_at_chains, meet, end=end)
    if session is None:
        session = open_worker_session(master, settings, len(rows))
    there = _OnSpark(session, ledger, rows, (observed, promises), end, limit, told)
    return audit_with(there, observed, promises, limit, there.look_at_chains, meet, end=end)


def _stating(ledger: Ledger) -> list[int]:
    """Return the buckets that have headers or watermarks."""
    return [bucket for bucket in range(ledger.buckets) if any(ledger.files(table, bucket) for table in STATED)]


def _stated_at(ledger: Ledger, windows: ObservedWindowTable, limit: int, bucket: int) -> ChainAssertions:
    headers, watermarks = (ledger.rows(bucket, table=table) for table in STATED)
    return check_chain_assertions(headers, watermarks, windows, limit)


@dataclass(frozen=True)
class _InProcess:
    ledger: Ledger
    rows: list[int]
    limit: int
    told: PassProgress

    def __call__(
        self, known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
    ) -> AuditReport:
        buckets = order_by_size(self.rows, only)

        def one(bucket: int) -> list[RunResult]:
            chosen = None if only is None else only[bucket]
            value = bucket_value(self.ledger, bucket)
            passed = check_bucket(bucket_parts(self.ledger, bucket), known, before, self.limit, chosen, value)
            self.told.bucket(bucket)
            return passed

        with pass_threads() as pool:
            return number_runs(buckets, pool.map(one, buckets), only, self.limit)

    def look_at_chains(self, windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
        with pass_threads() as pool:
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
    told: PassProgress

    def __call__(
        self, known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
    ) -> AuditReport:
        from causeway.ledger.bucket_scan import run_buckets

        buckets = order_by_size(self.rows, only)
        runs = None if only is None else {bucket: tuple(only[bucket]) for bucket in buckets}
        look = _Look(
            uuid.uuid4().hex,
            self.ledger,
            *self.tables,
            self.end,
            known.second_pass_fields(),
            before,
            runs,
            self.limit,
        )
        shared = self.session.sparkContext.broadcast(look)
        try:
            gathered = PartialResults(self.limit)
            run_buckets(self.session, buckets, _look_at, shared, RunResult, gathered.add)
        finally:
            shared.unpersist()
        for bucket in buckets:
            self.told.bucket(bucket)
        return gathered.runs

    def look_at_chains(self, windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
        buckets = _stating(self.ledger)
        if not buckets:
            return []
        from causeway.ledger.bucket_scan import run_buckets

        shared = self.session.sparkContext.broadcast((self.ledger, windows, self.limit))
        try:
            return run_buckets(self.session, buckets, _look_at_chains, shared, ChainAssertions).values()
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
    before: dict[PieceKey, PrecedingPositions]
    only: Mapping[int, tuple[int, ...]] | None
    limit: int


def _look_at(shared: SharedJobState, bucket: int) -> Iterable[tuple[int, RunResult]]:
    from causeway.ledger.bucket_scan import once_per_worker

    look: _Look = shared.value
    known = once_per_worker(look.key, lambda: _known(look))
    only = None if look.only is None else look.only[bucket]
    parts = bucket_parts(look.ledger, bucket)
    value = bucket_value(look.ledger, bucket)
    yield from _numbered(check_bucket(parts, known, look.before, look.limit, only, value), only)


def _known(look: _Look) -> LaneContext:
    return LaneContext(ObservedWindowTable(look.observed, look.end), LanePromises(look.promises), **look.known)


def _look_at_chains(shared: SharedJobState, bucket: int) -> Iterable[tuple[int, ChainAssertions]]:
    ledger, windows, limit = shared.value
    yield 0, _stated_at(ledger, windows, limit, bucket)


def _numbered(passed: list[RunResult], only: tuple[int, ...] | None) -> Iterator[tuple[int, RunResult]]:
    yield from zip(range(len(passed)) if only is None else sorted(only), passed, strict=True)
