"""Recheck of committed heights: stored roots, and re-execution of ranges of heights.

Heights are split into ranges of similar work, which processes or Spark tasks execute. A range that began with a wrong
stored state is executed again from an earlier one.
"""

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
from causeway.cluster.jobs import Session, run_tasks
from causeway.cluster.masters import available_cores
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.network.reexecution import ROOT_COLUMN, DifferingHeight, RangeResult, Reexecutor
from causeway.network.reexecution_workers import AskForRange, RangeDone, run_in_processes
from causeway.network.replay import MissingKeys, OtherTables, recorded_deployment, require_keys
from causeway.programs.catalogue import ProgramNotFound
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.shared.secrets import NONE, Secrets
from causeway.storage.lake import Lake, Manifest
from causeway.tick.deployment import FIRST_HEIGHT
from causeway.tick.rounds import read_states

RecheckProgress = Callable[[int, int], None]
"""Callback with the number of executed heights and their total."""

RANGES = 4
"""Number of ranges for each process, to balance misjudged work."""

HEIGHT_WEIGHT = 200
"""Work of a height in log rows."""

WORTH_PROCESSES = 300_000
"""Minimum work, in log rows, that justifies starting processes."""

STEPS = 8
"""Factor by which a failing range begins further back on each retry."""

RunRanges = Callable[[Sequence[AskForRange]], Sequence[RangeResult | CausewayError]]
"""Executes ranges of heights; returns the result of each."""


@dataclass(frozen=True)
class ExecutedRange:
    """The result of re-executing a range of heights.

    Attributes:
        first: First height.
        last: Last height.
        different: First differing height of each commit, ascending, and differing stored states.
        unverified: Ranges (first, last) not executed, since the heights before them differ.
        other: Reason if nothing can be executed, else None.
    """

    first: int
    last: int
    different: tuple[DifferingHeight, ...] = ()
    unverified: tuple[tuple[int, int], ...] = ()
    other: str | None = None

    def merge_into(self, found: AuditResult, limit: int = LIMIT) -> AuditResult:
        """Add the differences to an audit of the lake, as findings of the check ``headers``."""
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
    """Recomputes roots and heights of a lake; writes nothing."""

    def __init__(self, opened: OpenedLake, sources: ModuleSources = NOWHERE, secrets: Secrets = NONE) -> None:
        """Load the programs of a lake.

        Args:
            opened: The lake.
            sources: Allowed sources of user programs.
            secrets: Validator keys not derived from the seed; only execution needs them.

        Raises:
            InvalidInput: A program or one of several keys is missing; ``OtherTables``: its tables have changed.
        """
        self._opened, self._lake = opened, opened.lake
        self._sources, self._secrets = sources, secrets
        self._deployment = recorded_deployment(self._lake, opened.about, sources, secrets, unsigned=True)

    def roots(self, number: int) -> None:
        """Recompute the roots of all chains from the state of a manifest.

        Raises ``LakeDamaged``, ``Freed``.
        """
        read_states(self._deployment, self._lake, self._lake.numbered(number))

    def execute(
        self, first: int, last: int, progress: RecheckProgress = lambda done, of: None
    ) -> DifferingHeight | None:
        """Execute heights again; return the first that differs, or None. Raises as ``ranges``."""
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
        """Execute heights again in ranges that begin with a stored state.

        The result does not depend on the number of ranges or on the executor. It compares the headers of all chains
        with all columns, the rows of log tables, and the stored states at the ends of commits. If the state before
        ``first`` is not stored, or has wrong roots, execution begins at an earlier height.

        Args:
            first: First height.
            last: Last height.
            processes: Number of parallel processes; 1: only this one; None: by work and cores. Validator keys never
                leave this process, so with them it executes alone.
            session: Returns the Spark session whose tasks execute the ranges instead.
            progress: Called with the number of executed heights and their total.

        Raises:
            InvalidInput: There are no such heights, or keys are missing.
            LakeDamaged: A file is missing or corrupted.
            Freed: A fork reverts to a freed state.
            ProcessEnded: A process was killed.
        """
        require_keys(self._opened.about, self._secrets)
        newest = self._opened.last_height()
        if not FIRST_HEIGHT <= first <= last <= newest:
            raise InvalidInput(f"--from {first}, --to {last}: allowed are heights from 0 to {newest}, in this order")
        many = self._processes(first, last, processes)
        ranges = _cut(self._lake, first, last, many * RANGES if many > 1 or session is not None else 1)
        run = self._runner(many, session, _Count(progress, last - first + 1))
        at_once = self._deployment.kernel.past_heights > 0
        return _settled(self._lake, ranges, run, at_once=at_once)

    def _processes(self, first: int, last: int, requested: int | None) -> int:
        if requested is not None and requested < 1:
            raise InvalidInput(f"processes: {requested}: must be 1 or more")
        if self._secrets.seeds:
            return 1
        if requested is not None:
            return requested
        work = sum(work for _, work in _commit_work(self._lake, first, last))
        return available_cores() if work >= WORTH_PROCESSES else 1

    def _runner(self, processes: int, session: Session | None, done: RangeDone) -> RunRanges:
        about = {"uri": self._lake.storage.uri, "programs": self._sources.given}
        if session is not None:
            return lambda ranges: run_tasks(partial(_task, about), ranges, session, "execute heights again")
        if processes > 1:
            return lambda ranges: run_in_processes(about, ranges, processes, done)
        reexecutor = Reexecutor(self._deployment, self._lake)
        return lambda ranges: [reexecutor.run(first, last, wrong, done) for first, last, wrong in ranges]


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
    """Execute heights of a lake again as ``LakeRecheck.ranges`` does.

    Changed tables and missing keys or programs are reported in the result.

    Args:
        uri: Path or URI of the lake.
        sources: Allowed sources of user programs.
        secrets: Validator keys not derived from the seed.
        first: First height.
        last: Last height; None: the last committed.
        processes: As in ``LakeRecheck.ranges``.
        session: As in ``LakeRecheck.ranges``.
        progress: As in ``LakeRecheck.ranges``.

    Raises:
        LakeError: The lake cannot be read. Otherwise as ``LakeRecheck.ranges``.
    """
    opened = open_lake(uri)
    end = opened.last_height() if last is None else last
    try:
        require_keys(opened.about, secrets)
        recheck = LakeRecheck(opened, sources, secrets)
    except OtherTables as error:
        return ExecutedRange(first, end, other=error.what)
    except (MissingKeys, ProgramNotFound) as error:
        return ExecutedRange(first, end, other=str(error))
    return recheck.ranges(first, end, processes=processes, session=session, progress=progress)


def _task(about: dict[str, Any], heights: AskForRange) -> RangeResult | CausewayError:
    """Execute a range in a Spark task."""
    return run_in_processes(about, [heights], 1, lambda heights: None)[0]


class _Count:
    """Thread-safe counter of executed heights."""

    def __init__(self, progress: RecheckProgress, of: int) -> None:
        self._progress, self._of, self._done, self._lock = progress, of, 0, threading.Lock()

    def __call__(self, heights: int) -> None:
        with self._lock:
            self._done += heights
            self._progress(min(self._done, self._of), self._of)


def _commit_work(lake: Lake, first: int, last: int) -> Iterator[tuple[Manifest, int]]:
    """Yield the commits that hold any of the heights, with their work in log rows."""
    manifest = lake.manifest(first)
    while True:
        lines = [line for line in manifest.lines if first <= line.height <= last]
        yield manifest, sum(HEIGHT_WEIGHT + sum(line.rows.values()) for line in lines)
        if manifest.last >= last:
            return
        manifest = lake.numbered(manifest.number + 1)


def _cut(lake: Lake, first: int, last: int, count: int) -> list[tuple[int, int]]:
    """Partition heights into ranges of similar work; each begins after a stored state."""
    works = [*_commit_work(lake, first, last)]
    most, held = -(-sum(work for _, work in works) // count), 0
    starts = [first]
    for manifest, work in works:
        if held >= most and manifest.first > first and lake.freed(manifest.first - 1) is None:
            starts.append(manifest.first)
            held = 0
        held += work
    return list(zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True))


def _settled(lake: Lake, cut: Sequence[tuple[int, int]], run: RunRanges, *, at_once: bool) -> ExecutedRange:
    """Execute ranges, and again those whose stored state turned out to be wrong.

    ``at_once``: rounds may read states of the distant past, so a retry executes everything as one range.
    """
    first, last = cut[0][0], cut[-1][1]
    outcomes = [*run([(begin, end, ()) for begin, end in cut])]
    wrong: set[int] = set()
    while more := set[int]().union(*(each.wrong for each in outcomes if isinstance(each, RangeResult))) - wrong:
        wrong |= more
        if at_once and len(cut) > 1:
            cut, outcomes = [(first, last)], [*run([(first, last, sorted(wrong))])]
            continue
        retries = [
            number for number, each in enumerate(outcomes) if not isinstance(each, RangeResult) or each.began in wrong
        ]
        for number, each in zip(retries, run([(*cut[number], sorted(wrong)) for number in retries]), strict=True):
            outcomes[number] = each
    for number, each in enumerate(outcomes):
        if not isinstance(each, RangeResult):
            outcomes[number] = _retry_earlier(lake, cut[number], wrong, run, each)
    found = []
    for each in outcomes:
        if isinstance(each, CausewayError):
            raise each
        found.append(each)
    different = {each for one in found for each in one.different}
    unverified = sorted(each for one in found for each in one.unverified)
    in_order = sorted(different, key=lambda each: (each.height, each.what != ROOT_COLUMN, each.what, each.chains))
    return ExecutedRange(first, last, tuple(in_order), tuple(unverified))


def _retry_earlier(
    lake: Lake, heights: tuple[int, int], wrong: set[int], run: RunRanges, error: CausewayError
) -> RangeResult | CausewayError:
    """Execute a failed range again from ever earlier stored states.

    Its own stored state may have caused the failure.
    """
    outcome: RangeResult | CausewayError = error
    back, number = 1, lake.manifest(heights[0]).number
    while not isinstance(outcome, RangeResult) and back < STEPS * number:
        (outcome,) = run([(*heights, sorted({*wrong, *range(max(0, number - back), number)}))])
        back *= STEPS
    return outcome


__all__ = ["DifferingHeight", "ExecutedRange", "LakeRecheck", "RecheckProgress", "reexecute_lake"]
