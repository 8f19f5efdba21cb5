"""Incremental audit of a growing ledger or lake.

The ledger of a lake is derived height by height.

Results of a bucket are cached until its rows change (``incremental.buckets``). Besides its rows a result depends on
windows and guarantees. Other guarantees change everything; windows only decide between "violated" and "unknown" where
something is missing. So a complete bucket stays valid when windows grow, and the others are re-scanned, a few at a
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.audit.checks.headers import has_gaps
from causeway.audit.checks.lane_order import PieceKey, PrecedingPositions
from causeway.audit.engine import AuditResult, RunResults, audit_with
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.incremental.buckets import IncrementalBuckets
from causeway.audit.incremental.joins import BucketLost, IncrementalJoins
from causeway.audit.lane_context import UNDECIDED, UNDECIDED_PAID, LaneContext
from causeway.audit.passes.bucket_pass import PassLimits, RunResult, check_bucket
from causeway.audit.passes.results import ChainAssertions, check_chain_assertions
from causeway.audit.stored import ASSERTION_TABLES
from causeway.cluster.masters import available_cores
from causeway.ledger.commits import LedgerDamaged, commits_of, read_commit
from causeway.ledger.lake.derivation import DeriveProgress
from causeway.ledger.lake.ingest import ingest_lake, is_lake
from causeway.ledger.maintenance import maintain_ledger
from causeway.ledger.schema import LANE, PROMISES_SCHEMA
from causeway.ledger.store import LOOSE_TABLES, Ledger, open_ledger
from causeway.ledger.stored_parts import bucket_parts, bucket_value, ledger_end
from causeway.ledger.windows import Lane, LanePromises, ObservedWindowTable, table_lanes
from causeway.storage.lake import Lake

__all__ = ["NAMED_FINDINGS", "LedgerTail", "LedgerWatch", "Stopped", "WatchResult", "tail_ledger"]

_COMMITS = 1_000
"""Maximum number of commits since a checkpoint before the ledger is reopened."""


class LedgerTail(Protocol):
    """A growing ledger.

    Attributes:
        height: Last ingested height of a lake; None for a stored ledger, or before the first height.
    """

    height: int | None

    def newest(self, progress: DeriveProgress | None = None) -> Ledger:
        """Return the current ledger; the same object if nothing is new, at the cost of one listing.

        Args:
            progress: Called with the progress of derived heights.

        Raises:
            CausewayError: The ledger or lake is unreadable. Earlier state stays, and a retry is possible.
            OSError: The storage is unreachable. Earlier state stays, and a retry is possible.
        """
        ...

    def close(self) -> None:
        """Remove temporary files."""
        ...


def tail_ledger(uri: str) -> LedgerTail:
    """Follow the ledger or lake at a path or URI.

    Args:
        uri: Path or URI.

    Returns:
        The growing ledger.

    Raises:
        InvalidInput: There is neither a ledger nor a lake.
        LedgerDamaged: The ledger is damaged.
        LakeError: The lake is unreadable.
    """
    return _LakeTail(uri) if is_lake(uri) else _StoredTail(uri)


class _StoredTail:
    """A stored ledger that receives commits."""

    height: int | None

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._ledger = open_ledger(uri)
        self.height = None

    def newest(self, progress: DeriveProgress | None = None) -> Ledger:
        """Return the ledger with the present commits."""
        last = max(commits_of(self._ledger.storage).numbers(), default=-1)
        if last == self._ledger.number and (last < 0 or self._is_last(last)):
            return self._ledger
        self._ledger = self._later(last) or open_ledger(self._uri)
        return self._ledger

    def _is_last(self, number: int) -> bool:
        """Return True if the last commit is unchanged; otherwise the ledger was replaced."""
        try:
            return read_commit(self._ledger.storage, number).digest == self._ledger.last
        except FileNotFoundError:
            return False

    def _later(self, last: int) -> Ledger | None:
        """Return the ledger as of a later commit, or None if it must be reopened.

        Reasons are removed manifests, a replaced ledger, or many commits since the known checkpoint.
        """
        ledger = self._ledger
        if last <= ledger.number or last - ledger.checkpoint > _COMMITS:
            return None
        try:
            while ledger.number < last:
                ledger = ledger.after(read_commit(ledger.storage, ledger.number + 1))
        except (LedgerDamaged, FileNotFoundError):
            return None
        return ledger

    def close(self) -> None:
        """Do nothing: there are no temporary files."""


class _LakeTail:
    """A lake whose ledger is derived into a temporary folder."""

    def __init__(self, uri: str) -> None:
        self._lake = Lake.at(uri)
        self._stack = ExitStack()
        self._reset()

    def _reset(self) -> None:
        self._stack.close()
        self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="causeway-ledger-"))
        self._ledger: Ledger | None = None
        self.height: int | None = None
        self._identity = Lake.at(self._lake.storage.uri).with_identity().identity

    def newest(self, progress: DeriveProgress | None = None) -> Ledger:
        """Return the ledger with the committed heights."""
        lake = Lake.at(self._lake.storage.uri)
        height, known = lake.last_height(), -1 if self.height is None else self.height
        other = height < known or lake.with_identity().identity != self._identity
        if self._ledger is not None and height == known and not other:
            return self._ledger
        if other:
            self._reset()
        ingested = ingest_lake(lake.storage.uri, self._folder, progress=progress)
        if self._ledger is None or ingested.commit is not None:
            # There are no other readers, so merged files are removed at once.
            self._ledger = maintain_ledger(open_ledger(self._folder), kept=0.0)
        end = ingested.first + ingested.heights
        self.height = end - 1 if end else None
        return self._ledger

    def close(self) -> None:
        """Remove the temporary folder."""
        self._stack.close()


NAMED_FINDINGS = 100
"""Default maximum number of named findings of one lane, check and reason; all are counted."""

CROSS_BUCKET_CHECKS = (
    *(("answers", "unanswered"), ("answers_without_request", "no_request")),
    ("conservation", "more_came_than_left"),
)
"""Violations that depend on rows of another bucket: unknown while a bucket is unreadable."""

ROW_CHECKS = ("causality", "causal_order", "finality", "order")
"""Checks that are independent of windows."""
LOCAL_ROW_CHECKS = (
    *("content_differs", "content_unseen", "number_reused", "timed_out_and_received", "timeout_observed_and_received"),
    *("wrong_chain", "wrong_source", "redundant_relay", "partial_receipt", "dropped", "dropped_as_declared"),
    *("failed", "lost", "chain_stopped"),
    *("acknowledged_and_timed_out", "timed_out_too_early", "received_after_timeout", "not_refunded"),
    *("executed_and_timed_out", "executed_and_refunded", "executed_and_failed", "executed_and_rejected"),
    *("failed_and_acknowledged", "acknowledged_another_answer", "refund_exceeds_amount"),
    *("asset_differs", "more_received", "more_paid", "received_and_refunded", "amount_unseen"),
    *("time_unseen", "place_unseen", "index_unseen", UNDECIDED, UNDECIDED_PAID),
)
"""Reasons that are independent of windows, and those decided after all buckets."""

_THREADS = 8
_TRIES = 4

WatchProgress = Callable[[int, int], None]

WatchedFigures = TypeVar("WatchedFigures")


class Stopped(CausewayError):
    """An audit was stopped on request."""


@dataclass(frozen=True)
class WatchResult:
    """Result of one incremental audit.

    Attributes:
        commit: Number of the audited commit.
        height: Height of the lake, or None.
        audit: Result of the audit.
        observed: Windows that the input covers.
        promises: Guarantees of lanes.
        unread: Error text of each unreadable bucket.
        behind: Number of buckets whose result uses earlier windows.
        counts: Counts of the ledger, such as ``quarantined``.
    """

    commit: int
    height: int | None
    audit: AuditResult
    observed: pa.Table
    promises: pa.Table
    unread: Mapping[int, str]
    behind: int
    counts: Mapping[str, int]


class LedgerWatch:
    """Incremental audit of a ledger or lake.

    Args:
        uri: Path or URI.
        limit: Maximum number of named findings of one lane, check and reason.
        stop: Set by another thread to end an audit.

    Raises:
        InvalidInput: There is neither a ledger nor a lake.
        LedgerDamaged: The ledger is damaged.
        LakeError: The lake is unreadable.
    """

    def __init__(self, uri: str, limit: int = NAMED_FINDINGS, stop: Flag | None = None) -> None:
        self._limit, self._stop = limit, stop or Flag()
        self._following = tail_ledger(uri)
        self._ledger: Ledger | None = None
        self._observed: pa.Table | None = None
        self._end: int | None = None
        self._ends: dict[str, int | None] = {}
        self._promised = PROMISES_SCHEMA.empty_table()
        self._promises = LanePromises(self._promised)
        self._serial = 0
        self._rows = IncrementalBuckets[list[RunResult]](
            LOOSE_TABLES, lambda runs: any(self._is_open(run) for run in runs)
        )
        self._joins = IncrementalJoins(self._rows, self._parallel)
        self._asking = self._joins.asking
        self._stated = IncrementalBuckets[tuple[ChainAssertions, bool]](ASSERTION_TABLES, lambda result: result[1])
        self._again: dict[tuple[int, int], tuple[Any, RunResult]] = {}

    def look(self, deriving: WatchProgress | None = None, checking: WatchProgress | None = None) -> WatchResult | None:
        """Audit the current ledger; return None, at the cost of one listing, if nothing is new.

        Args:
            deriving: Called with the number of derived heights, and their total.
            checking: Called with the number of checked rows, and their total.

        Raises:
            Stopped: The audit was stopped. Earlier state stays.
            InvalidInput: The ledger is unreadable. Earlier state stays.
            LedgerDamaged: The ledger is damaged. Earlier state stays.
            LakeError: The lake is unreadable. Earlier state stays.
            OSError: The storage is unreachable. Earlier state stays.
        """
        due, deriving = self._rows.is_due() | self._stated.is_due(), self._until_stopped(deriving)
        for attempt in range(_TRIES):
            ledger = self._following.newest(deriving)
            if ledger is self._ledger and not due:
                return None
            try:
                watched = self._audit(ledger, checking)
            except BucketLost:
                # The bucket was damaged after its first scan; now it counts as unreadable.
                if attempt == _TRIES - 1:
                    raise
                continue
            except (LedgerDamaged, InvalidInput):
                # A common table is unreadable, perhaps because files were merged meanwhile.
                if attempt == _TRIES - 1 or self._following.newest(deriving) is ledger:
                    raise
                continue
            if not watched.unread or self._following.newest(deriving) is ledger:
                break
        self._ledger = ledger
        return watched

    @property
    def ledger(self) -> Ledger | None:
        """Ledger of the last audit, or None."""
        return self._ledger

    def close(self) -> None:
        """Remove temporary files."""
        self._following.close()
        self._joins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _until_stopped(self, progress: WatchProgress | None) -> WatchProgress:
        def check_stop(done: int, of: int) -> None:
            if self._stop.is_set():
                raise Stopped("stopped")
            if progress is not None:
                progress(done, of)

        return check_stop

    def _audit(self, ledger: Ledger, progress: WatchProgress | None) -> WatchResult:
        observed, promises = ledger.table("observed"), ledger.table("promises")
        before, every = self._promises, False
        if not promises.equals(self._promised):
            self._promised, self._promises = promises, LanePromises(promises)
            every = before.chain_promises != self._promises.chain_promises
        now = self._promises

        def changed(runs: list[RunResult]) -> bool:
            if before is now:
                return False
            lanes = {lane for run in runs for lane in _lanes_of(run)}
            return every or not lanes or any(before.of(lane) != now.of(lane) for lane in lanes)

        end = ledger_end(ledger, self._ends)
        if self._observed is None or end != self._end or not observed.equals(self._observed):
            self._serial += 1
            self._observed, self._end = observed, end
        if self._joins.asking != self._asking:
            self._asking = self._joins.asking
            self._rows.reopen()
        self._rows.begin(ledger, self._serial, changed)
        self._stated.begin(ledger, self._serial)
        self._joins.begin(ledger, self._serial)
        progress_counter = _ProgressCounter(progress, sum(self._rows.rows.values()))

        def scan(
            bucket: int, known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: set[int] | None
        ) -> list[RunResult]:
            value = bucket_value(ledger, bucket)
            return check_bucket(bucket_parts(ledger, bucket), known, before, self._limit, only, value)

        def check_buckets(
            known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
        ) -> Mapping[tuple[int, int], RunResult]:
            if only is not None:
                return self._second_pass(known, before, only, scan)

            def first(bucket: int) -> list[RunResult]:
                found = scan(bucket, known, {}, None)
                progress_counter.add(self._rows.rows[bucket])
                return found

            self._rows.run(self._parallel, first)
            return self._limited()

        def check_chains(windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
            def check(bucket: int) -> tuple[ChainAssertions, bool]:
                headers, watermarks = (ledger.rows(bucket, table=table) for table in ASSERTION_TABLES)
                return check_chain_assertions(headers, watermarks, windows, self._limit), has_gaps(headers)

            self._stated.run(self._parallel, check)
            return [known.result[0] for _, known in sorted(self._stated.scanned.items())]

        audit = audit_with(check_buckets, observed, promises, self._limit, check_chains, self._joins, end)
        unread = {**self._stated.unread(), **self._rows.unread()}
        behind = len({*self._rows.behind(), *self._stated.behind()})
        found = _downgrade_cross_bucket(audit) if unread else audit
        return WatchResult(
            ledger.number, self._following.height, found, observed, promises, unread, behind, dict(ledger.counts)
        )

    def _limited(self) -> dict[tuple[int, int], RunResult]:
        """Return the results of all runs, within the common limits of ``PassLimits``."""
        limits, runs = PassLimits(), dict[tuple[int, int], RunResult]()
        for bucket, known in sorted(self._rows.scanned.items()):
            for number, passed in enumerate(known.result):
                runs[bucket, number] = passed
                limits.add(runs, (bucket, number))
        for (bucket, number), passed in runs.items():
            self._rows.scanned[bucket].result[number] = passed
        return runs

    def _is_open(self, run: RunResult) -> bool:
        """Return True if windows could change a result: something is missing or pending."""
        names = ("check", "reason", *LANE)
        for check, reason, *lane in zip(*(run.counts[name].to_pylist() for name in names), strict=True):
            # Requests with answers on other lanes are checked in the join with their responses.
            if _depends_on_windows(check, reason) and (check != "answers" or tuple(lane) not in self._joins.asking):
                return True
        if run.asks:
            return True
        waiting = np.flatnonzero(run.lanes["unacknowledged"].to_numpy())
        lanes = _lanes_of(run)
        return any("capacity" in self._promises.of(lanes[at]) for at in waiting.tolist())

    def _second_pass(
        self,
        known: LaneContext,
        before: dict[PieceKey, PrecedingPositions],
        only: RunResults,
        scan: Callable[[int, LaneContext, dict[PieceKey, PrecedingPositions], set[int] | None], list[RunResult]],
    ) -> dict[tuple[int, int], RunResult]:
        """Re-check runs that need context, unless their input is unchanged since."""
        keys: dict[tuple[int, int], Any] = {}
        for bucket, numbers in only.items():
            first = self._rows.scanned[bucket]
            for number in numbers:
                passed = first.result[number]
                # Movements outside of the bucket's messages may belong to any lane.
                lanes = _lanes_of(passed) or sorted(known.sent, key=repr)
                places = tuple((key, before[key]) for key in _pieces_of(passed) if key in before)
                keys[bucket, number] = (first.stamp, known.second_pass_input(lanes), places)
        self._again = {at: cached for at, cached in self._again.items() if at in keys and cached[0] == keys[at]}
        missing: dict[int, set[int]] = {}
        for bucket, number in keys.keys() - self._again.keys():
            if self._rows.is_readable(bucket):
                missing.setdefault(bucket, set()).add(number)
        found = self._parallel(lambda bucket: scan(bucket, known, before, missing[bucket]), sorted(missing))
        for bucket, runs in found:
            if isinstance(runs, CausewayError):
                self._rows.fail(bucket, runs)
                continue
            for number, passed in zip(sorted(missing[bucket]), runs, strict=True):
                self._again[bucket, number] = keys[bucket, number], passed
        return {at: each for at, (_, each) in self._again.items()}

    def _parallel(
        self, compute: Callable[[int], WatchedFigures], buckets: Iterable[int]
    ) -> list[tuple[int, WatchedFigures | CausewayError]]:
        """Return the result of each bucket, computed in parallel, or its read error."""

        def check(bucket: int) -> WatchedFigures | CausewayError:
            if self._stop.is_set():
                raise Stopped("stopped")
            try:
                return compute(bucket)
            except (LedgerDamaged, InvalidInput) as error:
                return error

        numbers = [*buckets]
        with ThreadPoolExecutor(min(available_cores(), _THREADS), "causeway-audit") as threads:
            return [*zip(numbers, threads.map(check, numbers), strict=True)]


class _ProgressCounter:
    """Progress of an audit."""

    def __init__(self, progress: WatchProgress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.add(0)

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


def _depends_on_windows(check: str, reason: str) -> bool:
    """Return True if a finding may depend on windows."""
    return check not in ROW_CHECKS and reason not in LOCAL_ROW_CHECKS and not reason.endswith("_again")


def _downgrade_cross_bucket(audit: AuditResult) -> AuditResult:
    """Downgrade violations that may be due to an unreadable bucket to "unknown"."""
    checks = dict(audit.checks)
    for name, reason in CROSS_BUCKET_CHECKS:
        check = checks[name]
        count = check.reasons.get((VIOLATED, reason), 0)
        if count:
            reasons = {key: number for key, number in check.reasons.items() if key != (VIOLATED, reason)}
            reasons[UNKNOWN, reason] = reasons.get((UNKNOWN, reason), 0) + count
            violated, known = check.violated - count, check.unknown + count
            checks[name] = replace(check, violated=violated, unknown=known, reasons=reasons, first=None, worst=None)
    return replace(audit, checks=checks)


def _lanes_of(*runs: RunResult) -> list[Lane]:
    return table_lanes(pa.concat_tables([run.lanes.select(list(LANE)) for run in runs]))


def _pieces_of(passed: RunResult) -> list[PieceKey]:
    pieces = passed.pieces
    return [*zip(table_lanes(pieces), pieces["first"].to_pylist(), strict=True)]
