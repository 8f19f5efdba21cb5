"""A lake's heights once more: the roots of the state that it holds, and what its ticks give when they are executed
again from what it holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.audit.engine import AuditResult, add_findings
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.passes.bucket_pass import LIMIT
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.network.reexecution import ROOT_COLUMN, DifferingHeight, RangeResult, Reexecutor
from causeway.network.reexecution_workers import AskForRange, RangeDone, run_in_processes
from causeway.network.replay import MissingKeys, OtherTables, recorded_deployment, require_keys
from causeway.programs.catalogue import ProgramNotFound
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.spark.masters import available_cores
from causeway.spark.tasks import Session, run_tasks
from causeway.storage.lake import Lake, Manifest
from causeway.tick.deployment import FIRST_HEIGHT
from causeway.tick.rounds import read_states

RecheckProgress = Callable[[int, int], None]
"""Called with how many heights are done, of how many."""

RANGES = 4
"""So many ranges of heights a process: those that take longer than they look make less of a difference."""

HEIGHT_WEIGHT = 200
"""A height is as much work as so many log rows, about."""

WORTH_PROCESSES = 300_000
"""As much work makes up for starting processes."""

STEPS = 8
"""How many times further back a range begins that failed again."""

RunRanges = Callable[[Sequence[AskForRange]], Sequence[RangeResult | CausewayError]]
"""Executes ranges of heights, and returns what came of each."""


@dataclass(frozen=True)
class ExecutedRange:
    """What came of executing the heights from ``first`` to ``last`` again.

    ``different``: the first height of each commit that comes out differently, ascending, and states in files that do;
    ``unverified``: heights (first, last) to which there was no way, since those before them came out differently.
    ``other``: why nothing can be executed, None where it was.
    """

    first: int
    last: int
    different: tuple[DifferingHeight, ...] = ()
    unverified: tuple[tuple[int, int], ...] = ()
    other: str | None = None

    def merge_into(self, found: AuditResult, limit: int = LIMIT) -> AuditResult:
        """Return an audit of the lake to which this is added, as findings of the check ``headers``."""
        rows = [
            {"verdict": VIOLATED, "reason": each.reason, "event": each.place, "source": chain, "height": each.height}
            for each in self.different
            for chain in each.chains
        ]
        rows += [
            {"verdict": UNKNOWN, "reason": "not_executed", "height": first, "magnitude": last - first + 1}
            for first, last in self.unverified
        ]
        if self.other is not None:
            rows.append({"verdict": UNKNOWN, "reason": "not_executed", "height": self.first})
        for row in rows:
            row |= {"check": "headers", "chain": row.get("source"), "index": row["height"]}
            row |= {"unit": "heights"} if "magnitude" in row else {}
        schema = pa.schema([field.with_nullable(True) for field in found.violations.schema][:-1])
        return add_findings(found, pa.Table.from_pylist(rows, schema), limit)


class LakeRecheck:
    """Computes again what a lake says of its heights; writes nothing.

    ``sources``: where programs of one's own come from.
    """

    def __init__(self, opened: OpenedLake, sources: ModuleSources = NOWHERE, secrets: Secrets = NONE) -> None:
        """``secrets``: the keys that validators of its chains sign with, where they are not drawn from the seed; only
        executing needs them.

        Raises ``InvalidInput`` when a program of the network, or one of several keys, is not found, or its tables are
        others now (``OtherTables``).
        """
        self._opened, self._lake = opened, opened.lake
        self._sources, self._secrets = sources, secrets
        self._deployment = recorded_deployment(self._lake, opened.about, sources, secrets, unsigned=True)

    def roots(self, number: int) -> None:
        """Compute the roots of all chains from the state that the manifest of a number has, which is that of its last
        height. Raises ``LakeDamaged``, ``Freed``."""
        read_states(self._deployment, self._lake, self._lake.numbered(number))

    def execute(
        self, first: int, last: int, progress: RecheckProgress = lambda done, of: None
    ) -> DifferingHeight | None:
        """Execute heights again, and return the first that comes out differently; otherwise as ``ranges``."""
        found = self.ranges(first, last, progress=progress).different
        return found[0] if found else None

    def ranges(
        self,
        first: int,
        last: int,
        *,
        processes: int | None = None,
        session: Session | None = None,
        progress: RecheckProgress = lambda done, of: None,
    ) -> ExecutedRange:
        """Execute heights again, each on top of what the one before it gave, in ranges that begin with a state in
        files. The result is the same in however many ranges, and whoever executes them.

        Compared are the headers of all chains with all their columns, the rows of the log tables, and the states in
        files at the ends of commits. Where the state before ``first`` is in no file, or has other roots than the
        headers, the heights since the last one that is are executed, too.

        Args:
            first: the first height.
            last: the last one.
            processes: how many execute ranges at the same time; 1: this one does; default: by the work and the cores.
                Keys of validators do not leave this process, so with them it does it alone.
            session: returns the Spark session whose tasks execute the ranges in place of processes.
            progress: told how many heights are done.

        Raises:
            InvalidInput: there are no such heights, or keys are missing.
            LakeDamaged: a file is missing, or is not what was written.
            Freed: a fork goes back to a state that was freed.
            ProcessEnded: a process was killed.
        """
        require_keys(self._opened.about, self._secrets)
        newest = self._opened.last_height()
        if not FIRST_HEIGHT <= first <= last <= newest:
            raise InvalidInput(f"--from {first}, --to {last}: allowed are heights from 0 to {newest}, in this order")
        many = self._processes(first, last, processes)
        cut = _cut(self._lake, first, last, many * RANGES if many > 1 or session is not None else 1)
        run = self._runner(many, session, _Count(progress, last - first + 1))
        at_once = self._deployment.kernel.past_heights > 0
        return _settled(self._lake, cut, run, at_once=at_once)

    def _processes(self, first: int, last: int, asked: int | None) -> int:
        if asked is not None and asked < 1:
            raise InvalidInput(f"processes: {asked}: must be 1 or more")
        if self._secrets.seeds:
            return 1
        if asked is not None:
            return asked
        work = sum(work for _, work in _works(self._lake, first, last))
        return available_cores() if work >= WORTH_PROCESSES else 1

    def _runner(self, processes: int, session: Session | None, done: RangeDone) -> RunRanges:
        about = {"uri": self._lake.storage.uri, "programs": self._sources.given}
        if session is not None:
            return lambda asked: run_tasks(partial(_task, about), asked, session)
        if processes > 1:
            return lambda asked: run_in_processes(about, asked, processes, done)
        again = Reexecutor(self._deployment, self._lake)
        return lambda asked: [again.run(first, last, wrong, done) for first, last, wrong in asked]


def reexecute_lake(
    uri: str,
    sources: ModuleSources = NOWHERE,
    secrets: Secrets = NONE,
    *,
    first: int = 0,
    last: int | None = None,
    processes: int | None = None,
    session: Session | None = None,
    progress: RecheckProgress = lambda done, of: None,
) -> ExecutedRange:
    """Execute the heights of the lake at a path or URI again, by default all, as ``Recheck.ranges`` does; where that
    cannot be done since tables are others now, or keys or programs are missing, say so in the result. Otherwise raises
    as that does, and as ``open_lake``."""
    opened = open_lake(uri)
    end = opened.last_height() if last is None else last
    try:
        require_keys(opened.about, secrets)
        again = LakeRecheck(opened, sources, secrets)
    except OtherTables as error:
        return ExecutedRange(first, end, other=error.what)
    except (MissingKeys, ProgramNotFound) as error:
        return ExecutedRange(first, end, other=str(error))
    return again.ranges(first, end, processes=processes, session=session, progress=progress)


def _task(about: dict[str, Any], asked: AskForRange) -> RangeResult | CausewayError:
    return run_in_processes(about, [asked], 1, lambda heights: None)[0]


class _Count:
    """Adds up how many heights are done, for any number of threads."""

    def __init__(self, progress: RecheckProgress, of: int) -> None:
        self._progress, self._of, self._done, self._lock = progress, of, 0, threading.Lock()

    def __call__(self, heights: int) -> None:
        with self._lock:
            self._done += heights
            self._progress(min(self._done, self._of), self._of)


def _works(lake: Lake, first: int, last: int) -> Iterator[tuple[Manifest, int]]:
    """Yield the commits that have some of the heights, and about how much work these are."""
    manifest = lake.manifest(first)
    while True:
        lines = [line for line in manifest.lines if first <= line.height <= last]
        yield manifest, sum(HEIGHT_WEIGHT + sum(line.rows.values()) for line in lines)
        if manifest.last >= last:
            return
        manifest = lake.numbered(manifest.number + 1)


def _cut(lake: Lake, first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Return the heights in up to so many ranges of about as much work, each of which begins with a commit before which
    there is a state in files."""
    works = [*_works(lake, first, last)]
    most, held = -(-sum(work for _, work in works) // count), 0
    starts = [first]
    for manifest, work in works:
        if held >= most and manifest.first > first and lake.freed(manifest.first - 1) is None:
            starts.append(manifest.first)
            held = 0
        held += work
    return list(zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True))


def _settled(lake: Lake, cut: Sequence[tuple[int, int]], run: RunRanges, *, at_once: bool) -> ExecutedRange:
    """Execute ranges; those again that began with a state in files which turned out to be wrong. ``at_once``: rounds
    may look at states long past, so that then all is executed from one state on."""
    first, last = cut[0][0], cut[-1][1]
    outcomes = [*run([(begin, end, ()) for begin, end in cut])]
    wrong: set[int] = set()
    while more := set[int]().union(*(each.wrong for each in outcomes if isinstance(each, RangeResult))) - wrong:
        wrong |= more
        if at_once and len(cut) > 1:
            cut, outcomes = [(first, last)], [*run([(first, last, sorted(wrong))])]
            continue
        again = [
            number for number, each in enumerate(outcomes) if not isinstance(each, RangeResult) or each.began in wrong
        ]
        for number, each in zip(again, run([(*cut[number], sorted(wrong)) for number in again]), strict=True):
            outcomes[number] = each
    for number, each in enumerate(outcomes):
        if not isinstance(each, RangeResult):
            outcomes[number] = _from_before(lake, cut[number], wrong, run, each)
    found = []
    for each in outcomes:
        if isinstance(each, CausewayError):
            raise each
        found.append(each)
    different = {each for one in found for each in one.different}
    unverified = sorted(each for one in found for each in one.unverified)
    in_order = sorted(different, key=lambda each: (each.height, each.what != ROOT_COLUMN, each.what, each.chains))
    return ExecutedRange(first, last, tuple(in_order), tuple(unverified))


def _from_before(
    lake: Lake, heights: tuple[int, int], wrong: set[int], run: RunRanges, error: CausewayError
) -> RangeResult | CausewayError:
    """Execute a range again that failed, perhaps because of the state in files that it began with: from one further
    back, and then from one still further."""
    outcome: RangeResult | CausewayError = error
    back, number = 1, lake.manifest(heights[0]).number
    while not isinstance(outcome, RangeResult) and back < STEPS * number:
        (outcome,) = run([(*heights, sorted({*wrong, *range(max(0, number - back), number)}))])
        back *= STEPS
    return outcome


__all__ = ["DifferingHeight", "ExecutedRange", "LakeRecheck", "RecheckProgress", "reexecute_lake"]
