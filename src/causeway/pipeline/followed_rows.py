"""What the buckets of a ledger that grows show: of each its runs (``bucket_runs``), of which those are passed over
again whose rows are others, and a few that windows could change.

A commit adds files, or puts rows of files into others; what is new in a bucket are the rows of files that it had not
before. A bucket that cannot be read counts as it was last read, and is read anew later and later.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from causeway.audit.along import Before, PieceKey
from causeway.audit.arrays import Ints
from causeway.audit.columns import Bools
from causeway.audit.known import Known
from causeway.audit.parts import Run, runs_of
from causeway.audit.passing import Limits, Passed, pass_beside, pass_run
from causeway.audit.value import paid_in
from causeway.ledger.chain_order import LAYOUTS
from causeway.ledger.order import without_repeats
from causeway.ledger.schema import LEDGER_SCHEMA, VALUE_SCHEMA
from causeway.model.errors import CausewayError
from causeway.pipeline.bucket_runs import NAME, RECENT, BucketRuns, Rows, run_of
from causeway.pipeline.followed_files import added_files, commits_since, files_of, split_rows
from causeway.pipeline.kept_buckets import Failed, KeptBuckets, later
from causeway.pipeline.ledger_commits import LedgerCommit
from causeway.pipeline.ledger_parts import bucket_parts, rows_in_runs
from causeway.pipeline.ledger_store import LOOSE_TABLES, Ledger, StoredFile

RECENT_ROWS = 1 << 17
"""About so many rows of all buckets together are recent."""

LEAST_RECENT = 1 << 12

HEIGHTS_BITS = 12
"""Movements of value that are of no message come together by 2**12 heights."""

Parallel = Callable[[Callable[[int], None], Iterable[int]], list[tuple[int, CausewayError | None]]]
"""Does something for some buckets at once; returns of each the error with which one cannot be read."""


@dataclass(frozen=True)
class Held:
    """What a run showed with the windows of a serial number. ``stamp``: which look at it that was; ``rows``: how many
    it has; ``open``: whether other windows could change it; ``beside``: what movements of value show beside it."""

    stamp: int
    serial: int
    rows: int
    open: bool
    passed: Passed | None
    beside: Passed | None


@dataclass
class _Bucket:
    """A bucket as it was read. ``at``: the ledger then; ``seen``: paths of the files whose rows it has; ``waiting``:
    rows of messages that wait for a lane."""

    runs: BucketRuns
    at: Ledger
    seen: set[str] = field(default_factory=set)
    waiting: pa.Table = field(default_factory=LEDGER_SCHEMA.empty_table)


@dataclass
class FollowedRows(KeptBuckets[Held]):
    """What the runs of all buckets show. ``limit``: how many findings of a lane, check and reason are named;
    ``is_open``: whether other windows could change what a run shows."""

    limit: int
    is_open: Callable[[Passed], bool]
    held: dict[int, dict[int, Held]] = field(default_factory=dict)
    failed: dict[int, Failed] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    """How many rows of each bucket are looked at."""
    _states: dict[int, _Bucket] = field(default_factory=dict)
    _again: dict[int, set[int]] = field(default_factory=dict)
    _loose: dict[str, dict[int, pa.Table]] = field(default_factory=dict)
    _waiting: dict[int, pa.Table] = field(default_factory=dict)
    _waiting_file: StoredFile | None = None
    _ledger: Ledger | None = None
    _new: dict[int, list[StoredFile]] = field(default_factory=dict)
    _serial: int = 0
    _stamps: Iterator[int] = field(default_factory=itertools.count)

    def begin(self, ledger: Ledger, serial: int, changed: Callable[[Passed], bool] | None) -> None:
        """Choose what is looked at: what has new rows, and of what other windows could change some that has not been
        looked at for the longest time. ``serial``: of the windows; ``changed``: of what a run shows, whether its lanes
        promise something else now (None: none do). Raises ``LedgerDamaged``, ``InvalidInput``."""
        since: dict[int, list[LedgerCommit] | None] = {}
        for known in self._states.values():
            if known.at.number not in since:
                since[known.at.number] = commits_since(known.at, ledger)
        self._read_loose(ledger, [commit for commits in since.values() for commit in commits or ()])
        self._ledger, self._serial, self._again, self._new = ledger, serial, {}, {}
        for bucket in range(ledger.buckets):
            files = files_of(ledger, bucket)
            state, failed = self._states.get(bucket), self._failed_with(bucket, files)
            if not files and not self._waiting.get(bucket):
                self._states.pop(bucket, None)
                self.held.pop(bucket, None)
                continue
            if failed is not None and failed.left > 0:
                continue
            commits = None if state is None else since[state.at.number]
            new = None if state is None else added_files(ledger, bucket, state.seen, commits, self._loose)
            if state is None or new is None:
                self._states.pop(bucket, None)
                self._again[bucket] = set()
                continue
            if new or not state.waiting.equals(self._rows_waiting(bucket)):
                self._again[bucket], self._new[bucket] = set(), new
            else:
                state.seen, state.at = set(files), ledger
        if changed is not None:
            for bucket, runs in self.held.items():
                some = {run for run, held in runs.items() if any(changed(each) for each in _shown(held))}
                if some and bucket not in self.failed:
                    self._again.setdefault(bucket, set()).update(some)
        for bucket, run in self._some_behind():
            self._again.setdefault(bucket, set()).add(run)
        self.rows = {bucket: self._rows_to_see(ledger, bucket) for bucket in self._again}

    def run(self, parallel: Parallel, known: Known, done: Callable[[int], None]) -> dict[tuple[int, int], Passed]:
        """Look at what was chosen, and return what all runs show, by bucket and number. ``done``: is told of how many
        rows were looked at."""

        def judge(bucket: int) -> None:
            self._judge(bucket, known)
            done(self.rows[bucket])

        for bucket, error in parallel(judge, sorted(self._again, key=lambda bucket: (-self.rows[bucket], bucket))):
            if error is None:
                self.failed.pop(bucket, None)
            else:
                self.fail(bucket, error)
        self._limit()
        return {
            key: passed
            for bucket, runs in sorted(self.held.items())
            for run, held in runs.items()
            for key, passed in (((bucket, 2 * run), held.passed), ((bucket, 2 * run + 1), held.beside))
            if passed is not None
        }

    def _limit(self) -> None:
        """Apply the limits of what the runs of a ledger keep together."""
        kept = {
            (bucket, run): held.passed
            for bucket, runs in self.held.items()
            for run, held in runs.items()
            if held.passed is not None
        }
        limits, limited = Limits(), dict[tuple[int, int], Passed]()
        for key, passed in kept.items():
            limited[key] = passed
            limits.add(limited, key)
        for (bucket, run), passed in limited.items():
            if passed is not kept[bucket, run]:
                self.held[bucket][run] = replace(self.held[bucket][run], passed=passed)

    def held_of(self, bucket: int, number: int) -> Held:
        """Return what is held of a run that has a number in ``run``'s result."""
        return self.held[bucket][number // 2]

    def open_again(self) -> None:
        """Ask of all runs again whether other windows could change what they show."""
        for runs in self.held.values():
            for run, held in runs.items():
                runs[run] = replace(held, open=any(self.is_open(each) for each in _shown(held)))

    def is_whole(self, bucket: int) -> bool:
        """Return whether the rows of a bucket can be read."""
        return bucket in self._states

    def run_with(self, bucket: int, run: int) -> tuple[Run, pa.Table | None]:
        """Return the rows of a run, and its movements of value, if there are any. Raises ``LedgerDamaged``."""
        rows, value = self._rows_of(bucket, run)
        return self._run(bucket, rows, run), _in_order(value)

    def pass_again(
        self, bucket: int, numbers: Collection[int], known: Known, before: dict[PieceKey, Before]
    ) -> dict[int, Passed]:
        """Return what runs show in a second look, by their numbers. Raises ``LedgerDamaged``, ``InvalidInput``."""
        found: dict[int, Passed] = {}
        for run in sorted({number // 2 for number in numbers}) if self.is_whole(bucket) else ():
            rows, value = self.run_with(bucket, run)
            paid = None if value is None else paid_in(value)
            passed = pass_run(rows, known, before, self.limit, paid)
            if 2 * run in numbers:
                found[2 * run] = passed
            if 2 * run + 1 in numbers and value is not None:
                found[2 * run + 1] = pass_beside(value, paid, known, self.limit)
        return found

    def fail(self, bucket: int, error: CausewayError) -> None:
        """Take notice that a bucket cannot be read."""
        self._states.pop(bucket, None)
        key = () if self._ledger is None else tuple(sorted(files_of(self._ledger, bucket)))
        self.failed[bucket] = later(self.failed.get(bucket), key, str(error))

    # ---- what is looked at

    def _rows_to_see(self, ledger: Ledger, bucket: int) -> int:
        state = self._states.get(bucket)
        if state is None:
            return sum(file.rows for file in files_of(ledger, bucket).values())
        new = sum(file.rows for file in self._new.get(bucket, ()) if file.bucket is not None)
        held = self.held.get(bucket, {})
        return new + sum(held[run].rows for run in self._again[bucket] if run in held)

    def _read_loose(self, ledger: Ledger, since: Sequence[LedgerCommit]) -> None:
        """Read the files that have rows of all buckets, each once."""
        every = [*ledger.live, *(file for commit in since for file in commit.files)]
        loose = {file.path: file for file in every if file.table in LOOSE_TABLES and file.bucket is None}
        there = {file.path for file in ledger.live}
        loose = {path: file for path, file in loose.items() if path in there or ledger.storage.exists(path)}
        read = {path: split_rows(ledger, file) for path, file in loose.items() if path not in self._loose}
        self._loose = {path: read[path] if path in read else self._loose[path] for path in loose}
        (waiting,) = ledger.files("waiting") or (None,)
        if waiting != self._waiting_file:
            self._waiting = {} if waiting is None or not waiting.rows else split_rows(ledger, waiting)
            self._waiting_file = waiting

    def _rows_waiting(self, bucket: int) -> pa.Table:
        return self._waiting.get(bucket, LEDGER_SCHEMA.empty_table())

    # ---- looking at a bucket

    def _judge(self, bucket: int, known: Known) -> None:
        ledger, state = self._opened(), self._states.get(bucket)
        try:
            if state is None:
                held = self._judge_all(ledger, bucket, known)
            else:
                held = self._judge_new(bucket, state, known)
                state.seen, state.at = set(files_of(ledger, bucket)), ledger
        except BaseException:
            # What it showed when it was last read counts.
            self._states.pop(bucket, None)
            raise
        self.held[bucket] = held

    def _judge_new(self, bucket: int, state: _Bucket, known: Known) -> dict[int, Held]:
        """Look at the runs of a bucket that are others now, and those that are chosen."""
        again, waiting = set(self._again[bucket]), self._rows_waiting(bucket)
        others: dict[int, Rows] = {}
        new = self._new.get(bucket, [])
        if new:
            rows, value = self._read_new(self._opened(), bucket, new)
            of_message = _of_messages(value)
            again |= set(_by_heights(value.filter(pa.array(~of_message))))
            taken = rows, value.filter(pa.array(of_message))
            if taken[0].num_rows or taken[1].num_rows:
                # In the files that there are now are the new rows, too.
                others = state.runs.take(taken, partial(self._read, bucket), known, among_read=True)
        if not waiting.equals(state.waiting):
            for table in (waiting, state.waiting):
                again |= set(state.runs.claims.of(table)[0].tolist())
            state.waiting = waiting
        held = dict(self.held.get(bucket, {}))
        for run, rows_of_run in others.items():
            self._hold(held, bucket, run, rows_of_run, known)
        for run in sorted(again - others.keys()):
            self._hold(held, bucket, run, self._rows_of(bucket, run), known)
        return held

    def _judge_all(self, ledger: Ledger, bucket: int, known: Known) -> dict[int, Held]:
        """Read a bucket anew."""
        most = max(RECENT_ROWS // ledger.buckets, LEAST_RECENT)
        files = files_of(ledger, bucket)
        state = _Bucket(BucketRuns(most), ledger, set(files), self._rows_waiting(bucket))
        many = sum(file.rows for file in files.values() if file.table == "ledger")
        moved = any(file.table == "value" for file in files.values())
        self._states[bucket] = state
        if many > 2 * most and not moved:
            return self._pass_in_order(ledger, bucket, state, known)
        return self._pass_as_new(ledger, bucket, state, known)

    def _pass_in_order(self, ledger: Ledger, bucket: int, state: _Bucket, known: Known) -> dict[int, Held]:
        """Pass over a large bucket as it lies in its files; its runs are settled."""
        held: dict[int, Held] = {}

        def names() -> Iterator[tuple[int, pa.Table, bool]]:
            for run in runs_of(bucket_parts(ledger, bucket)):
                number = state.runs.next
                state.runs.next += 1
                state.runs.sizes[number] = run.num_rows
                held[number] = self._held(run.num_rows, pass_run(run, known, {}, self.limit, None), None)
                table = run.table.select([*NAME[:-1]])
                named = table["index"].null_count > 0
                ids = run.read(NAME[-1:])[NAME[-1]] if named else pa.nulls(run.num_rows, pa.string())
                yield number, table.append_column(NAME[-1], ids), run.scattered

        state.runs.claims.put(names())
        return held

    def _pass_as_new(self, ledger: Ledger, bucket: int, state: _Bucket, known: Known) -> dict[int, Held]:
        """Take the rows of a bucket as if all were new."""
        held: dict[int, Held] = {}
        files = [*files_of(ledger, bucket).values()]
        value = [file for file in files if file.table == "value"]
        some = [value, *([file] for file in files if file.table == "ledger")]
        left = {file.path for file in files}
        for number, own in enumerate(some):
            rows, moved = self._read_new(ledger, bucket, own)
            of_message = _of_messages(moved)
            for run in _by_heights(moved.filter(pa.array(~of_message))):
                self._hold(held, bucket, run, self._rows_of(bucket, run), known)
            taken = rows, moved.filter(pa.array(of_message))
            others = state.runs.take(taken, partial(self._read, bucket, without=frozenset(left)), known)
            left -= {file.path for file in own}
            for run, rows_of_run in others.items():
                if run != RECENT or number == len(some) - 1:
                    self._hold(held, bucket, run, rows_of_run, known)
        return held

    def _hold(self, held: dict[int, Held], bucket: int, run: int, rows: Rows, known: Known) -> None:
        """Pass over a run, and hold what it shows."""
        ledger_rows, value = self._run(bucket, rows[0], run), _in_order(rows[1])
        if not ledger_rows.num_rows and value is None:
            held.pop(run, None)
            return
        paid = None if value is None else paid_in(value)
        passed = pass_run(ledger_rows, known, {}, self.limit, paid) if ledger_rows.num_rows else None
        beside = None if value is None else pass_beside(value, paid, known, self.limit)
        held[run] = self._held(ledger_rows.num_rows + rows[1].num_rows, passed, beside)

    def _held(self, rows: int, passed: Passed | None, beside: Passed | None) -> Held:
        is_open = any(each is not None and self.is_open(each) for each in (passed, beside))
        return Held(next(self._stamps), self._serial, rows, is_open, passed, beside)

    # ---- rows

    def _opened(self) -> Ledger:
        assert self._ledger is not None, "begin was called"
        return self._ledger

    def _run(self, bucket: int, rows: pa.Table, run: int) -> Run:
        """Return rows of a run with those of it that wait for a lane."""
        state = self._states[bucket]
        if state.waiting.num_rows:
            own = state.waiting.filter(pa.array(state.runs.claims.of(state.waiting)[0] == run))
            if own.num_rows:
                rows = without_repeats(pa.concat_tables([rows, own]))
        return run_of(rows, state.runs.claims.of(rows)[1])

    def _rows_of(self, bucket: int, run: int) -> Rows:
        return self._states[bucket].runs.recent if run == RECENT else self._read(bucket, [run])[run]

    def _read_new(self, ledger: Ledger, bucket: int, files: Iterable[StoredFile]) -> Rows:
        rows, value = [LEDGER_SCHEMA.empty_table()], [VALUE_SCHEMA.empty_table()]
        for file in files:
            own = self._loose[file.path].get(bucket) if file.bucket is None else ledger.read(file)
            if own is not None:
                (rows if file.table == "ledger" else value).append(own)
        return without_repeats(pa.concat_tables(rows)), pa.concat_tables(value)

    def _read(self, bucket: int, runs: Collection[int], without: Collection[str] = ()) -> dict[int, Rows]:
        """Return the rows of settled runs, and movements of no message, out of files of the bucket. ``without``: paths
        of files of which nothing is taken."""
        ledger, state = self._opened(), self._states[bucket]
        files = [file for path, file in files_of(ledger, bucket).items() if path not in without]
        found: dict[int, tuple[list[pa.Table], list[pa.Table]]] = {run: ([], []) for run in runs}
        claims = state.runs.claims
        for file in files:
            if file.bucket is None:
                own = self._loose[file.path].get(bucket)
                tables = iter(() if own is None else (own,))
            else:
                tables = rows_in_runs(ledger, file, [claims.lanes_of(run) for run in runs if run >= 0], min(runs) < 0)
            for table in tables:
                of = claims.of(table)[0] if file.table == "ledger" else _runs_of_value(claims.of(table)[0], table)
                for run in runs:
                    part = table.filter(pa.array(of == run))
                    if part.num_rows:
                        found[run][0 if file.table == "ledger" else 1].append(part)
        return {
            run: (
                without_repeats(pa.concat_tables([LEDGER_SCHEMA.empty_table(), *rows])),
                pa.concat_tables([VALUE_SCHEMA.empty_table(), *value]),
            )
            for run, (rows, value) in found.items()
        }


def _shown(held: Held) -> list[Passed]:
    return [each for each in (held.passed, held.beside) if each is not None]


def _of_messages(value: pa.Table) -> Bools:
    found: Bools = np.asarray(value["index"].is_valid()) | np.asarray(value["message_id"].is_valid())
    return found


def _runs_of_value(of: Ints, value: pa.Table) -> Ints:
    return np.where(_of_messages(value), of, _heights_of(value))


def _heights_of(value: pa.Table) -> Ints:
    """Return the run of movements of no message, by their heights."""
    height = value["height"]
    segment = (height.fill_null(0).to_numpy() >> np.uint64(HEIGHTS_BITS)).astype(np.int64)
    return np.where(np.asarray(height.is_valid()), -2 - segment, -1)


def _by_heights(value: pa.Table) -> list[int]:
    return sorted(set(_heights_of(value).tolist()))


def _in_order(value: pa.Table) -> pa.Table | None:
    return LAYOUTS["value"].read(value) if value.num_rows else None


__all__ = ["FollowedRows", "Held"]
