"""A ledger as it grows: of a stored one its next commits, of a lake that Causeway runs the heights that are new.

The incremental audit of a growing ledger: buckets whose rows changed are audited again, by the batch audit's passes.

What a bucket shows is kept until its rows change (``incremental_buckets``). Beside its rows only windows and promises
are known: other promises change everything, but windows only tell "violated" from "unknown" where something is missing.
So a bucket in which nothing is missing stays as it is when windows grow, and the others are scanned again a few at a
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
from causeway.audit.stored import STATED
from causeway.ledger.commits import LedgerDamaged, commits_of, read_commit
from causeway.ledger.lake.derivation import DeriveProgress
from causeway.ledger.lake.ingest import ingest_lake, is_lake
from causeway.ledger.maintenance import maintain_ledger
from causeway.ledger.schema import LANE, PROMISES_SCHEMA
from causeway.ledger.store import LOOSE_TABLES, Ledger, open_ledger
from causeway.ledger.stored_parts import bucket_parts, bucket_value, ledger_end
from causeway.ledger.windows import Lane, LanePromises, ObservedWindowTable, table_lanes
from causeway.spark.masters import available_cores
from causeway.storage.lake import Lake

__all__ = ["NAMED_FINDINGS", "LedgerTail", "LedgerWatch", "Stopped", "WatchResult", "tail_ledger"]

_COMMITS = 1_000
"""After so many commits the ledger is read from its last checkpoint anew."""


class LedgerTail(Protocol):
    """A ledger of which more is read each time that it is asked. ``height``: the last one of a lake that it has; None:
    it is none of a lake, or has none yet."""

    height: int | None

    def newest(self, progress: DeriveProgress | None = None) -> Ledger:
        """Return the ledger as it is now; the same object where nothing is new, which one listing tells.

        ``progress``: is told of heights of a lake that are derived. Raises ``CausewayError``, ``OSError``; what was
        read before stays, and it may be asked again.
        """
        ...

    def close(self) -> None:
        """Remove what was made for it."""
        ...


def tail_ledger(uri: str) -> LedgerTail:
    """Return what follows the ledger, or the lake, at a path or URI. Raises ``InvalidInput`` where there is none,
    ``LedgerDamaged``, ``LakeError``."""
    return _Heights(uri) if is_lake(uri) else _Commits(uri)


class _Commits:
    """A stored ledger."""

    height: int | None

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._ledger = open_ledger(uri)
        self.height = None

    def newest(self, progress: DeriveProgress | None = None) -> Ledger:
        """Return the ledger with the commits that are there now."""
        last = max(commits_of(self._ledger.storage).numbers(), default=-1)
        if last == self._ledger.number and (last < 0 or self._is_last(last)):
            return self._ledger
        self._ledger = self._later(last) or open_ledger(self._uri)
        return self._ledger

    def _is_last(self, number: int) -> bool:
        """Return whether the last commit is still the same one; else another ledger is there now."""
        try:
            return read_commit(self._ledger.storage, number).digest == self._ledger.last
        except FileNotFoundError:
            return False

    def _later(self, last: int) -> Ledger | None:
        """Return the ledger as of a later commit; None where it is to be opened anew: its manifests were removed
        since, another ledger is there now, or there are many commits since the last checkpoint that is known."""
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
        """Nothing was made."""


class _Heights:
    """A lake that Causeway runs, or ran, whose ledger is derived into a temporary folder."""

    def __init__(self, uri: str) -> None:
        self._lake = Lake.at(uri)
        self._stack = ExitStack()
        self._begin()

    def _begin(self) -> None:
        self._stack.close()
        self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="causeway-ledger-"))
        self._ledger: Ledger | None = None
        self.height: int | None = None
        self._identity = Lake.at(self._lake.storage.uri).with_identity().identity

    def newest(self, progress: DeriveProgress | None = None) -> Ledger:
        """Return the ledger with the heights that are committed now."""
        lake = Lake.at(self._lake.storage.uri)
        height, known = lake.last_height(), -1 if self.height is None else self.height
        other = height < known or lake.with_identity().identity != self._identity
        if self._ledger is not None and height == known and not other:
            return self._ledger
        if other:
            self._begin()
        taken = ingest_lake(lake.storage.uri, self._folder, progress=progress)
        if self._ledger is None or taken.commit is not None:
            # Nobody else reads it, so what was merged goes at once.
            self._ledger = maintain_ledger(open_ledger(self._folder), kept=0.0)
        end = taken.first + taken.heights
        self.height = end - 1 if end else None
        return self._ledger

    def close(self) -> None:
        """Remove the folder."""
        self._stack.close()


NAMED_FINDINGS = 100
"""So many findings of one lane, check and reason are named, unless asked otherwise: all are counted."""

CROSS_BUCKET_CHECKS = (
    *(("answers", "unanswered"), ("answers_without_request", "no_request")),
    ("conservation", "more_came_than_left"),
)
"""What is violated because of rows that may be in another bucket: unknown, while one cannot be read."""

ROW_CHECKS = ("causality", "causal_order", "finality", "order")
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
"""Checks and reasons in which windows have no part, and what is decided when all buckets were seen."""

_THREADS = 8
_TRIES = 4

WatchProgress = Callable[[int, int], None]

WatchedFigures = TypeVar("WatchedFigures")


class Stopped(CausewayError):
    """A look was told to stop."""


@dataclass(frozen=True)
class WatchResult:
    """What a look shows.

    ``audit``: as of the commit number ``commit``, of a lake the height ``height``; ``observed``: the windows that the
    input covers; ``promises``: what lanes promise; ``unread``: buckets that cannot be read, and why; ``behind``: how
    many buckets are judged with earlier windows; ``counts``: of the ledger, such as ``quarantined``.
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
    """A ledger, or a lake that Causeway runs, looked at again and again.

    Args:
        uri: where it is.
        limit: how many findings of one lane, check and reason are named.
        stop: set by whoever wants a look to end.

    Raises:
        InvalidInput: there is none.
        LedgerDamaged, LakeError: it cannot be opened.
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
        self._stated = IncrementalBuckets[tuple[ChainAssertions, bool]](STATED, lambda result: result[1])
        self._again: dict[tuple[int, int], tuple[Any, RunResult]] = {}

    def look(self, deriving: WatchProgress | None = None, checking: WatchProgress | None = None) -> WatchResult | None:
        """Return what the ledger shows now, None if nothing is new: that costs one listing.

        ``deriving``: is told how many heights of a lake are derived, ``checking``: how many rows are looked at; and of
        how many. Raises ``Stopped``, ``InvalidInput``, ``LedgerDamaged``, ``LakeError``, ``OSError``; what was seen
        before stays, and the next look goes on from there.
        """
        waits, deriving = self._rows.is_due() | self._stated.is_due(), self._until_stopped(deriving)
        for tried in range(_TRIES):
            ledger = self._following.newest(deriving)
            if ledger is self._ledger and not waits:
                return None
            try:
                watched = self._watched(ledger, checking)
            except BucketLost:
                # It was damaged since it was read first, and from now on counts among those that cannot be read.
                if tried == _TRIES - 1:
                    raise
                continue
            except (LedgerDamaged, InvalidInput):
                # What all buckets need cannot be read: because files were merged meanwhile?
                if tried == _TRIES - 1 or self._following.newest(deriving) is ledger:
                    raise
                continue
            if not watched.unread or self._following.newest(deriving) is ledger:
                break
        self._ledger = ledger
        return watched

    @property
    def ledger(self) -> Ledger | None:
        """Return the ledger as of the last look that showed something, None before it."""
        return self._ledger

    def close(self) -> None:
        """Remove what was made for it."""
        self._following.close()
        self._joins.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _until_stopped(self, progress: WatchProgress | None) -> WatchProgress:
        def told(done: int, of: int) -> None:
            if self._stop.is_set():
                raise Stopped("stopped")
            if progress is not None:
                progress(done, of)

        return told

    def _watched(self, ledger: Ledger, progress: WatchProgress | None) -> WatchResult:
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
        told = _Told(progress, sum(self._rows.rows.values()))

        def scan(
            bucket: int, known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: set[int] | None
        ) -> list[RunResult]:
            value = bucket_value(ledger, bucket)
            return check_bucket(bucket_parts(ledger, bucket), known, before, self._limit, only, value)

        def look(
            known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
        ) -> Mapping[tuple[int, int], RunResult]:
            if only is not None:
                return self._second_look(known, before, only, scan)

            def first(bucket: int) -> list[RunResult]:
                found = scan(bucket, known, {}, None)
                told.add(self._rows.rows[bucket])
                return found

            self._rows.run(self._parallel, first)
            return self._limited()

        def look_at_chains(windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
            def check(bucket: int) -> tuple[ChainAssertions, bool]:
                headers, watermarks = (ledger.rows(bucket, table=table) for table in STATED)
                return check_chain_assertions(headers, watermarks, windows, self._limit), has_gaps(headers)

            self._stated.run(self._parallel, check)
            return [known.result[0] for _, known in sorted(self._stated.scanned.items())]

        audit = audit_with(look, observed, promises, self._limit, look_at_chains, self._joins, end)
        unread = {**self._stated.unread(), **self._rows.unread()}
        behind = len({*self._rows.behind(), *self._stated.behind()})
        found = _careful(audit) if unread else audit
        return WatchResult(
            ledger.number, self._following.height, found, observed, promises, unread, behind, dict(ledger.counts)
        )

    def _limited(self) -> dict[tuple[int, int], RunResult]:
        """Return what all runs show, within the limits of what they keep together."""
        limits, runs = PassLimits(), dict[tuple[int, int], RunResult]()
        for bucket, known in sorted(self._rows.scanned.items()):
            for number, passed in enumerate(known.result):
                runs[bucket, number] = passed
                limits.add(runs, (bucket, number))
        for (bucket, number), passed in runs.items():
            self._rows.scanned[bucket].result[number] = passed
        return runs

    def _is_open(self, run: RunResult) -> bool:
        """Return whether windows could change what a run shows: something in it is missing, or not over."""
        names = ("check", "reason", *LANE)
        for check, reason, *lane in zip(*(run.counts[name].to_pylist() for name in names), strict=True):
            # Of requests that are answered over lanes that is judged where they meet their responses.
            if _of_windows(check, reason) and (check != "answers" or tuple(lane) not in self._joins.asking):
                return True
        if run.asks:
            return True
        waiting = np.flatnonzero(run.lanes["unacknowledged"].to_numpy())
        lanes = _lanes_of(run)
        return any("capacity" in self._promises.of(lanes[at]) for at in waiting.tolist())

    def _second_look(
        self,
        known: LaneContext,
        before: dict[PieceKey, PrecedingPositions],
        only: RunResults,
        scan: Callable[[int, LaneContext, dict[PieceKey, PrecedingPositions], set[int] | None], list[RunResult]],
    ) -> dict[tuple[int, int], RunResult]:
        """Scan runs again that ask for it, but for those of which nothing is new since they were."""
        keys: dict[tuple[int, int], Any] = {}
        for bucket, numbers in only.items():
            first = self._rows.scanned[bucket]
            for number in numbers:
                passed = first.result[number]
                # What is beside the messages of a bucket may be of any lane.
                lanes = _lanes_of(passed) or sorted(known.sent, key=repr)
                places = tuple((key, before[key]) for key in _pieces_of(passed) if key in before)
                keys[bucket, number] = (first.stamp, known.second_pass_input(lanes), places)
        self._again = {at: kept for at, kept in self._again.items() if at in keys and kept[0] == keys[at]}
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
        self, judge: Callable[[int], WatchedFigures], buckets: Iterable[int]
    ) -> list[tuple[int, WatchedFigures | CausewayError]]:
        """Return what buckets show, some looked at at once, or the error with which one cannot be read."""

        def one(bucket: int) -> WatchedFigures | CausewayError:
            if self._stop.is_set():
                raise Stopped("stopped")
            try:
                return judge(bucket)
            except (LedgerDamaged, InvalidInput) as error:
                return error

        numbers = [*buckets]
        with ThreadPoolExecutor(min(available_cores(), _THREADS), "causeway-audit") as threads:
            return [*zip(numbers, threads.map(one, numbers), strict=True)]


class _Told:
    """How far a look is."""

    def __init__(self, progress: WatchProgress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.add(0)

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


def _of_windows(check: str, reason: str) -> bool:
    """Return whether windows may have a part in a finding."""
    return check not in ROW_CHECKS and reason not in LOCAL_ROW_CHECKS and not reason.endswith("_again")


def _careful(audit: AuditResult) -> AuditResult:
    """Return an audit in which nothing is violated because of rows that may be in a bucket that cannot be read."""
    checks = dict(audit.checks)
    for name, reason in CROSS_BUCKET_CHECKS:
        check = checks[name]
        count = check.reasons.get((VIOLATED, reason), 0)
        if count:
            reasons = {key: many for key, many in check.reasons.items() if key != (VIOLATED, reason)}
            reasons[UNKNOWN, reason] = reasons.get((UNKNOWN, reason), 0) + count
            left, known = check.violated - count, check.unknown + count
            checks[name] = replace(check, violated=left, unknown=known, reasons=reasons, first=None, worst=None)
    return replace(audit, checks=checks)


def _lanes_of(*runs: RunResult) -> list[Lane]:
    return table_lanes(pa.concat_tables([run.lanes.select(list(LANE)) for run in runs]))


def _pieces_of(passed: RunResult) -> list[PieceKey]:
    pieces = passed.pieces
    return [*zip(table_lanes(pieces), pieces["first"].to_pylist(), strict=True)]
