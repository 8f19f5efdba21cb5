"""The incremental audit of a growing ledger: buckets whose rows changed are audited again, by the batch audit's passes.

What a bucket shows is kept until its rows change (``incremental_buckets``). Beside its rows only windows and promises
are known: other promises change everything, but windows only tell "violated" from "unknown" where something is missing.
So a bucket in which nothing is missing stays as it is when windows grow, and the others are scanned again a few at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from causeway.audit.along import Before, PieceKey
from causeway.audit.auditing import Audit, Runs, audit_by
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.headers import has_gaps
from causeway.audit.known import UNDECIDED, UNDECIDED_PAID, Known
from causeway.audit.passing import Limits, Passed, pass_over
from causeway.audit.stated import Stated, stated_in
from causeway.audit.windows import Lane, Promises, Windows, lanes_in
from causeway.ledger.schema import LANE, PROMISES_SCHEMA
from causeway.model.errors import CausewayError, InvalidInput
from causeway.pipeline.incremental_buckets import IncrementalBuckets
from causeway.pipeline.incremental_joins import BucketLost, IncrementalJoins
from causeway.pipeline.ledger_audit import STATED
from causeway.pipeline.ledger_commits import LedgerDamaged
from causeway.pipeline.ledger_following import follow
from causeway.pipeline.ledger_parts import bucket_parts, ledger_end, value_of
from causeway.pipeline.ledger_store import LOOSE_TABLES, Ledger
from causeway.pipeline.masters import cores_here

NAMED = 100
"""So many findings of one lane, check and reason are named, unless asked otherwise: all are counted."""

CROSSING = (
    *(("answers", "unanswered"), ("answers_without_request", "no_request")),
    ("conservation", "more_came_than_left"),
)
"""What is violated because of rows that may be in another bucket: unknown, while one cannot be read."""

OF_ROWS = ("causality", "causal_order", "finality", "order")
OF_ROWS_ALONE = (
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

Progress = Callable[[int, int], None]

Shown = TypeVar("Shown")


class Stopped(CausewayError):
    """A look was told to stop."""


@dataclass(frozen=True)
class Watched:
    """What a look shows.

    ``audit``: as of the commit number ``commit``, of a lake the height ``height``; ``observed``: the windows that the
    input covers; ``promises``: what lanes promise; ``unread``: buckets that cannot be read, and why; ``behind``: how
    many buckets are judged with earlier windows; ``counts``: of the ledger, such as ``quarantined``.
    """

    commit: int
    height: int | None
    audit: Audit
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

    def __init__(self, uri: str, limit: int = NAMED, stop: Flag | None = None) -> None:
        self._limit, self._stop = limit, stop or Flag()
        self._following = follow(uri)
        self._ledger: Ledger | None = None
        self._observed: pa.Table | None = None
        self._end: int | None = None
        self._ends: dict[str, int | None] = {}
        self._promised = PROMISES_SCHEMA.empty_table()
        self._promises = Promises(self._promised)
        self._serial = 0
        self._rows = IncrementalBuckets[list[Passed]](
            LOOSE_TABLES, lambda runs: any(self._is_open(run) for run in runs)
        )
        self._joins = IncrementalJoins(self._rows, self._parallel)
        self._asking = self._joins.asking
        self._stated = IncrementalBuckets[tuple[Stated, bool]](STATED, lambda result: result[1])
        self._again: dict[tuple[int, int], tuple[Any, Passed]] = {}

    def look(self, deriving: Progress | None = None, checking: Progress | None = None) -> Watched | None:
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

    def _until_stopped(self, progress: Progress | None) -> Progress:
        def told(done: int, of: int) -> None:
            if self._stop.is_set():
                raise Stopped("stopped")
            if progress is not None:
                progress(done, of)

        return told

    def _watched(self, ledger: Ledger, progress: Progress | None) -> Watched:
        observed, promises = ledger.table("observed"), ledger.table("promises")
        before, every = self._promises, False
        if not promises.equals(self._promised):
            self._promised, self._promises = promises, Promises(promises)
            every = before.of_chains != self._promises.of_chains
        now = self._promises

        def changed(runs: list[Passed]) -> bool:
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

        def scan(bucket: int, known: Known, before: dict[PieceKey, Before], only: set[int] | None) -> list[Passed]:
            value = value_of(ledger, bucket)
            return pass_over(bucket_parts(ledger, bucket), known, before, self._limit, only, value)

        def look(known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Mapping[tuple[int, int], Passed]:
            if only is not None:
                return self._second_look(known, before, only, scan)

            def first(bucket: int) -> list[Passed]:
                found = scan(bucket, known, {}, None)
                told.add(self._rows.rows[bucket])
                return found

            self._rows.run(self._parallel, first)
            return self._limited()

        def look_at_chains(windows: Windows) -> Iterable[Stated]:
            def check(bucket: int) -> tuple[Stated, bool]:
                headers, watermarks = (ledger.rows(bucket, table=table) for table in STATED)
                return stated_in(headers, watermarks, windows, self._limit), has_gaps(headers)

            self._stated.run(self._parallel, check)
            return [known.result[0] for _, known in sorted(self._stated.scanned.items())]

        audit = audit_by(look, observed, promises, self._limit, look_at_chains, self._joins, end)
        unread = {**self._stated.unread(), **self._rows.unread()}
        behind = len({*self._rows.behind(), *self._stated.behind()})
        found = _careful(audit) if unread else audit
        return Watched(
            ledger.number, self._following.height, found, observed, promises, unread, behind, dict(ledger.counts)
        )

    def _limited(self) -> dict[tuple[int, int], Passed]:
        """Return what all runs show, within the limits of what they keep together."""
        limits, runs = Limits(), dict[tuple[int, int], Passed]()
        for bucket, known in sorted(self._rows.scanned.items()):
            for number, passed in enumerate(known.result):
                runs[bucket, number] = passed
                limits.add(runs, (bucket, number))
        for (bucket, number), passed in runs.items():
            self._rows.scanned[bucket].result[number] = passed
        return runs

    def _is_open(self, run: Passed) -> bool:
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
        known: Known,
        before: dict[PieceKey, Before],
        only: Runs,
        scan: Callable[[int, Known, dict[PieceKey, Before], set[int] | None], list[Passed]],
    ) -> dict[tuple[int, int], Passed]:
        """Scan runs again that ask for it, but for those of which nothing is new since they were."""
        keys: dict[tuple[int, int], Any] = {}
        for bucket, numbers in only.items():
            first = self._rows.scanned[bucket]
            for number in numbers:
                passed = first.result[number]
                # What is beside the messages of a bucket may be of any lane.
                lanes = _lanes_of(passed) or sorted(known.sent, key=repr)
                places = tuple((key, before[key]) for key in _pieces_of(passed) if key in before)
                keys[bucket, number] = (first.stamp, known.told_of(lanes), places)
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
        self, judge: Callable[[int], Shown], buckets: Iterable[int]
    ) -> list[tuple[int, Shown | CausewayError]]:
        """Return what buckets show, some looked at at once, or the error with which one cannot be read."""

        def one(bucket: int) -> Shown | CausewayError:
            if self._stop.is_set():
                raise Stopped("stopped")
            try:
                return judge(bucket)
            except (LedgerDamaged, InvalidInput) as error:
                return error

        numbers = [*buckets]
        with ThreadPoolExecutor(min(cores_here(), _THREADS), "causeway-audit") as threads:
            return [*zip(numbers, threads.map(one, numbers), strict=True)]


class _Told:
    """How far a look is."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.add(0)

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


def _of_windows(check: str, reason: str) -> bool:
    """Return whether windows may have a part in a finding."""
    return check not in OF_ROWS and reason not in OF_ROWS_ALONE and not reason.endswith("_again")


def _careful(audit: Audit) -> Audit:
    """Return an audit in which nothing is violated because of rows that may be in a bucket that cannot be read."""
    checks = dict(audit.checks)
    for name, reason in CROSSING:
        check = checks[name]
        count = check.reasons.get((VIOLATED, reason), 0)
        if count:
            reasons = {key: many for key, many in check.reasons.items() if key != (VIOLATED, reason)}
            reasons[UNKNOWN, reason] = reasons.get((UNKNOWN, reason), 0) + count
            left, known = check.violated - count, check.unknown + count
            checks[name] = replace(check, violated=left, unknown=known, reasons=reasons, first=None, worst=None)
    return replace(audit, checks=checks)


def _lanes_of(*runs: Passed) -> list[Lane]:
    return lanes_in(pa.concat_tables([run.lanes.select(list(LANE)) for run in runs]))


def _pieces_of(passed: Passed) -> list[PieceKey]:
    pieces = passed.pieces
    return [*zip(lanes_in(pieces), pieces["first"].to_pylist(), strict=True)]


__all__ = ["NAMED", "LedgerWatch", "Stopped", "Watched"]
