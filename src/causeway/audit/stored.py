"""Audit a stored ledger in this process, or as Spark jobs with a task a bucket.

``AuditTerms`` are deadlines and clock tolerances of the user, in addition to the guarantees of the ledger.
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
from causeway.audit.passes.bucket_pass import LIMIT, RunResult, check_bucket, require_limit
from causeway.audit.passes.cross_bucket_join import LocalJoiner
from causeway.audit.passes.results import ChainAssertions, PartialResults, check_chain_assertions
from causeway.cluster.jobs import SharedJobState
from causeway.core.text import format_value, parse_duration
from causeway.ledger.bucket_scan import (
    EXECUTORS,
    PassProgress,
    PassProgressCallback,
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

__all__ = ["DEADLINES", "EXECUTORS", "LIMIT", "AuditTerms", "audit_ledger"]

DEADLINES = (RECEIVED_WITHIN, ANSWERED_WITHIN)
"""Subjects of a deadline."""

NO_DEADLINES = "none"
USER = "user"
"""Reporter of the user's terms."""

_MAX_SECONDS = 9_000_000_000_000


@dataclass(frozen=True)
class AuditTerms:
    """Terms of the user for an audit.

    Attributes:
        deadlines: Deadline of each of ``DEADLINES`` in every lane, in microseconds, or None for no deadline. They
            replace those of the ledger.
        tolerances: Clock tolerance of each chain, in microseconds; the key None stands for every chain.
    """

    deadlines: Mapping[str, int | None] = field(default_factory=dict)
    tolerances: Mapping[str | None, int] = field(default_factory=dict)

    @classmethod
    def of(cls, deadlines: Iterable[str] = (), tolerances: Iterable[str] = ()) -> AuditTerms:
        """Parse terms of a user: ``received=1h``, ``answered=none``; ``2s``, ``CHAIN=500ms``.

        Args:
            deadlines: Deadlines.
            tolerances: Clock tolerances.

        Raises:
            InvalidInput: A term is malformed.
        """
        limits: dict[str, int | None] = {}
        for text in _require_texts("deadlines", deadlines, "received=1h"):
            name, sign, time = text.partition("=")
            if not sign or name not in DEADLINES:
                raise InvalidInput(f"deadline {text!r}: must be EVENT=TIME (allowed events: {', '.join(DEADLINES)})")
            limits[name] = None if time == NO_DEADLINES else _microseconds(f"deadline {text!r}", time)
        clocks: dict[str | None, int] = {}
        for text in _require_texts("tolerances", tolerances, "CHAIN=500ms"):
            chain, sign, time = text.rpartition("=")
            clocks[chain if sign else None] = _microseconds(f"tolerance {text!r}", time)
        return cls(limits, clocks)

    def applied(self, promises: pa.Table) -> pa.Table:
        """Apply the terms to a table of guarantees (``PROMISES_SCHEMA``)."""
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


def _require_texts(what: str, given: object, example: str) -> list[str]:
    """Return the texts of an argument of a user. Raises ``InvalidInput``."""
    texts = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else [None]
    found = [text for text in texts if isinstance(text, str)]
    if found != texts:
        raise InvalidInput(f"{what}: {format_value(given)}: must be a list of texts such as {example}")
    return found


def _microseconds(subject: str, text: str) -> int:
    seconds = parse_duration(text)
    if seconds is None or not 0 <= seconds <= _MAX_SECONDS:
        raise InvalidInput(f"{subject}: must be a time such as 90s, 30min, 2h or 1d")
    return round(seconds * 1_000_000)


AuditReport = Mapping[tuple[int, int], RunResult]

DEFAULT_TERMS = AuditTerms()

ASSERTION_TABLES = ("headers", "watermarks")
"""Tables with chains' statements about themselves."""


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
    """Audit a stored ledger; the result is independent of the executor.

    Args:
        ledger: The ledger as of a commit.
        executor: ``in_process``, ``spark``, or ``auto``: Spark with a ``session``, or from ``CAUSEWAY_SPARK_ROWS`` rows
            on.
        session: Spark session to use; default: ``open_session(master, extra=settings)`` if Spark is used.
        master: As of ``open_session``.
        settings: As of ``open_session``.
        limit: Maximum number of named findings of one lane, check and reason; all are counted.
        terms: Deadlines and clock tolerances in addition to those of the ledger.
        progress: Called with the progress, from any thread.

    Returns:
        The result of the audit.

    Raises:
        InvalidInput: The executor, session or limit is invalid, an event or kind is unknown, or rows are out of order.
        LedgerDamaged: A file is damaged.
        TaskFailed: A Spark task failed.
    """
    require_limit(limit)
    rows = bucket_rows(ledger)
    on_spark = should_use_spark(executor, session, rows)
    observed, promises = ledger.table("observed"), terms.applied(ledger.table("promises"))
    pass_progress = PassProgress(progress, rows)
    joiner = LocalJoiner(lambda bucket: bucket_parts(ledger, bucket), pass_threads)
    end = ledger_end(ledger)
    if not on_spark:
        local_pass = _InProcess(ledger, rows, limit, pass_progress)
        return audit_with(local_pass, observed, promises, limit, local_pass.check_chains, joiner, end=end)
    if session is None:
        session = open_worker_session(master, settings, len(rows))
    spark_pass = _OnSpark(session, ledger, rows, (observed, promises), end, limit, pass_progress)
    return audit_with(spark_pass, observed, promises, limit, spark_pass.check_chains, joiner, end=end)


def _buckets_with_assertions(ledger: Ledger) -> list[int]:
    """Return the buckets with headers or watermarks."""
    return [
        bucket for bucket in range(ledger.buckets) if any(ledger.files(table, bucket) for table in ASSERTION_TABLES)
    ]


def _check_chain_bucket(ledger: Ledger, windows: ObservedWindowTable, limit: int, bucket: int) -> ChainAssertions:
    headers, watermarks = (ledger.rows(bucket, table=table) for table in ASSERTION_TABLES)
    return check_chain_assertions(headers, watermarks, windows, limit)


@dataclass(frozen=True)
class _InProcess:
    ledger: Ledger
    rows: list[int]
    limit: int
    progress: PassProgress

    def __call__(
        self, known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
    ) -> AuditReport:
        buckets = order_by_size(self.rows, only)

        def check_one(bucket: int) -> list[RunResult]:
            chosen = None if only is None else only[bucket]
            value = bucket_value(self.ledger, bucket)
            passed = check_bucket(bucket_parts(self.ledger, bucket), known, before, self.limit, chosen, value)
            self.progress.bucket(bucket)
            return passed

        with pass_threads() as pool:
            return number_runs(buckets, pool.map(check_one, buckets), only, self.limit)

    def check_chains(self, windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
        with pass_threads() as pool:
            check = partial(_check_chain_bucket, self.ledger, windows, self.limit)
            return [*pool.map(check, _buckets_with_assertions(self.ledger))]


@dataclass(frozen=True)
class _OnSpark:
    session: SparkSession
    ledger: Ledger
    rows: list[int]
    tables: tuple[pa.Table, pa.Table]
    end: int | None
    limit: int
    progress: PassProgress

    def __call__(
        self, known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
    ) -> AuditReport:
        from causeway.ledger.bucket_scan import run_buckets

        buckets = order_by_size(self.rows, only)
        runs = None if only is None else {bucket: tuple(only[bucket]) for bucket in buckets}
        job = _PassJob(
            uuid.uuid4().hex,
            self.ledger,
            *self.tables,
            self.end,
            known.second_pass_fields(),
            before,
            runs,
            self.limit,
        )
        collected, text = PartialResults(self.limit), "audit, first pass" if only is None else "audit, second pass"
        run_buckets(self.session, self.ledger, buckets, _check_bucket_task, job, RunResult, collected.add, text=text)
        for bucket in buckets:
            self.progress.bucket(bucket)
        return collected.runs

    def check_chains(self, windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
        buckets = _buckets_with_assertions(self.ledger)
        if not buckets:
            return []
        from causeway.ledger.bucket_scan import run_buckets

        value = (self.ledger, windows, self.limit)
        text = "audit, headers and watermarks"
        found = run_buckets(
            self.session,
            self.ledger,
            buckets,
            _check_chains_task,
            value,
            ChainAssertions,
            text=text,
            tables=ASSERTION_TABLES,
        )
        return found.values()


@dataclass(frozen=True)
class _PassJob:
    """Common input of the tasks of one job."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    end: int | None
    known: Mapping[str, Any]
    before: dict[PieceKey, PrecedingPositions]
    only: Mapping[int, tuple[int, ...]] | None
    limit: int


def _check_bucket_task(shared: SharedJobState, bucket: int) -> Iterable[tuple[int, RunResult]]:
    from causeway.ledger.bucket_scan import once_per_worker

    job: _PassJob = shared.value
    known = once_per_worker(job.key, lambda: _lane_context(job))
    only = None if job.only is None else job.only[bucket]
    parts = bucket_parts(job.ledger, bucket)
    value = bucket_value(job.ledger, bucket)
    yield from _numbered(check_bucket(parts, known, job.before, job.limit, only, value), only)


def _lane_context(job: _PassJob) -> LaneContext:
    return LaneContext(ObservedWindowTable(job.observed, job.end), LanePromises(job.promises), **job.known)


def _check_chains_task(shared: SharedJobState, bucket: int) -> Iterable[tuple[int, ChainAssertions]]:
    ledger, windows, limit = shared.value
    yield 0, _check_chain_bucket(ledger, windows, limit, bucket)


def _numbered(passed: list[RunResult], only: tuple[int, ...] | None) -> Iterator[tuple[int, RunResult]]:
    yield from zip(range(len(passed)) if only is None else sorted(only), passed, strict=True)
