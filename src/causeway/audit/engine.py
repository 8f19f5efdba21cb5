"""What a person has to know of how a ledger was judged, as sentences.

The audit: a pass over every bucket, a second look at those runs that ask for one, and one result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.causal_links import compare_links
from causeway.audit.checks.asset_backing import check_backing
from causeway.audit.checks.back_pressure import count_examined
from causeway.audit.checks.causal_order import undecided_links
from causeway.audit.checks.delivery import merge_reached_heights, resolve_continuations
from causeway.audit.checks.lane_order import (
    REPLACED_REASONS,
    EventTriple,
    LaneGroup,
    PieceKey,
    PrecedingPositions,
    SharedNumbers,
    candidate_groups,
    find_shared_numbers,
)
from causeway.audit.findings import COUNTS_SCHEMA, VIOLATIONS_SCHEMA
from causeway.audit.lane_context import LaneContext
from causeway.audit.passes.bucket_pass import FIGURES, LIMIT, OLDEST, RunResult, check_bucket, empty_result
from causeway.audit.passes.cross_bucket_join import BucketJoiner, LocalJoiner, MergedResult, plan_joins
from causeway.audit.passes.lane_merge import MergedLanes, merge_lanes
from causeway.audit.passes.results import (
    CHECK_NAMES,
    VERDICTS,
    ChainAssertions,
    PartialResults,
    build_completeness,
    check_chain_assertions,
    decide_findings,
    merge_assertions,
    select_findings,
)
from causeway.audit.verdict import CheckVerdict, Verdict, combine_verdicts, unknown_lanes, verdict_sentence
from causeway.core.arrow_types import conform_table, to_python_rows
from causeway.core.text import EPOCH, format_lane, format_moment, shorten_name
from causeway.ledger.parts import BucketPart
from causeway.ledger.row_order import deduplicate_statements
from causeway.ledger.schema import (
    CLOCK_TOLERANCE,
    HEADERS_SCHEMA,
    LANE,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    REPORTER_COLUMN,
    VALUE_SCHEMA,
    WATERMARKS_SCHEMA,
    LedgerEvent,
)
from causeway.ledger.windows import (
    Lane,
    LanePromises,
    ObservedWindowTable,
    find_restarted_chains,
    mark_restarts,
    row_lane,
    table_lanes,
)

__all__ = [
    "CHECK_NAMES",
    "PROMISE_CHECKS",
    "REMARKED_COUNTS",
    "THREADS",
    "AuditResult",
    "BucketCheck",
    "ChainCheck",
    "CheckVerdict",
    "RunResults",
    "add_findings",
    "audit_ledger_rows",
    "audit_table",
    "audit_with",
    "build_remarks",
    "latest_time",
    "number_runs",
]

MAX_NAMED = 3
"""Maximum number of promises, and of clocks, that are named."""


def build_remarks(lanes: pa.Table, known: LaneContext) -> tuple[str, ...]:
    """Return how a ledger was judged where its reader could take it otherwise.

    By which time deadlines are judged where no window is declared, by how much clocks may be wrong, and which promises
    are of no lane that there is. ``lanes``: the figures of lanes.
    """
    every = table_lanes(lanes)
    return (*_ends(every, known), *_clocks(known.promises), *_of_no_lane(every, known.promises))


def _ends(lanes: list[Lane], known: LaneContext) -> list[str]:
    found, holes = set(), False
    for lane in lanes:
        limit, _ = known.promises.deadline(lane)
        if limit is not None and not known.windows.declares(lane[2], lane, LedgerEvent.RECEIVED):
            end, several = known.windows.ends(lane)
            found.add(end)
            holes |= several
    times = sorted(end for end in found if end is not None)
    if not times:
        return []
    span = " to ".join(dict.fromkeys((_moment(times[0]), _moment(times[-1]))))
    if holes:
        return [f"Deadlines are judged at the ends of the windows that the rows show (until {span}): none is declared."]
    arrivals = " with arrivals" if any(known.windows.declares(lane[2], lane) for lane in lanes) else ""
    return [f"Deadlines are judged by the last time of the input ({span}): no window{arrivals} is declared."]


def _moment(time: int) -> str:
    try:
        return f"{format_moment(EPOCH + timedelta(microseconds=time))} UTC"
    except OverflowError:  # no calendar has it
        return f"{time // 1_000_000:,} s after 1970"


def _clocks(promises: LanePromises) -> list[str]:
    chains = sorted({row["source"] or "" for row in promises.rows if row["promise"] == CLOCK_TOLERANCE})
    found = [(chain, promises.tolerance(chain or None)) for chain in chains]
    named = [f"{shorten_name(of) or 'every chain'} {micros / 1e6:,.6g} s" for of, micros in found if micros]
    return [f"Clocks may be wrong, and messages early by as much: {_some(named)}."] if named else []


def _of_no_lane(lanes: list[Lane], promises: LanePromises) -> list[str]:
    """Of a lake that Causeway ran it is no mistake that a chain or a lane has no messages, nor of a kind of input that
    one of its protocols has none."""
    chains, names = ({lane[at] for lane in lanes for at in places} | {None} for places in ((1, 2), (3,)))
    unmet: list[str] = []
    for row in promises.rows:
        known = row["source"] in chains and row["destination"] in chains and row["lane"] in names
        if not known and row["stated_by"] != REPORTER_COLUMN:
            unmet.append(f"{shorten_name(row['promise'])} of {_name(row_lane(row))}")
    return [f"Promises without effect, as the input has no such chain or lane: {_some(unmet)}."] if unmet else []


def _name(names: tuple[str | None, ...]) -> str:
    given = zip(LANE, names, strict=True)
    return ", ".join(f"{name} {value!r}" for name, value in given if value is not None)


def _some(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - MAX_NAMED:,} more" if len(each) > MAX_NAMED else ""
    return ", ".join(each[:MAX_NAMED]) + more


THREADS = 2
"""Buckets that are checked at once: most of a pass runs without the interpreter's lock."""

PROMISE_CHECKS = {
    "order": ("ordered_sends", "ordered_receives", "ordered_acknowledgements"),
    "gaps": ("numbered", "ordered_receives"),
    "finality": ("final_after",),
    "answers": ("answered",),
    "conservation": ("conserved",),
    "back_pressure": ("capacity",),
    "causal_order": ("causal",),
}
"""Checks that look at those lanes only that promise something, and what."""

REMARKED_COUNTS = "audit"
"""Who states that the heights of a chain began anew, where an audit notices it."""

SUMS = ("sent", "received", "refunded", "pending")
REPORTED_SUMS = ("sent", "received", "fees", "refunded", "pending")


@dataclass(frozen=True)
class AuditResult:
    """What came of an audit: the checks by name, and tables.

    ``violations`` (``VIOLATIONS_SCHEMA``): the findings; ``completeness``: what the input covers; ``lanes``:
    figures of each lane; ``sums``: what was sent, received, paid out of messages (``fees``), refunded and is pending of
    each lane and asset, and ``difference``: sent - received - fees - refunded - pending, as decimal digits; ``abroad``:
    what left a chain for another one and came back, of each asset; ``counts`` (``COUNTS_SCHEMA``): how many findings
    each lane has of a check, verdict and reason, also of those that are not named. ``remarks``: sentences on how it was
    judged.
    """

    checks: dict[str, CheckVerdict]
    violations: pa.Table
    completeness: pa.Table
    lanes: pa.Table
    sums: pa.Table
    abroad: pa.Table
    counts: pa.Table
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of all checks together."""
        return combine_verdicts(self.checks.values())

    @property
    def holds(self) -> bool:
        """Return whether no check is violated."""
        return self.verdict is not Verdict.FAILED

    def sentence(self, *names: str) -> str:
        """Return the verdict as a sentence; ``names``: of these checks alone."""
        chosen = [self.checks[name] for name in names or self.checks]
        rows = self.counts.filter(pc.is_in(self.counts["check"], pa.array([check.name for check in chosen])))
        return verdict_sentence(chosen, [format_lane(lane) or "no lane" for lane in unknown_lanes(rows.to_pylist())])


RunResults = Mapping[int, Collection[int]]
"""Of some buckets the numbers of runs."""

BucketCheck = Callable[
    [LaneContext, dict[PieceKey, PrecedingPositions], RunResults | None], Mapping[tuple[int, int], RunResult]
]
"""Passes over buckets: given what is known and, in a second look, the places before pieces and which runs of which
buckets are looked at; returns by bucket and run what each shows."""

ChainCheck = Callable[[ObservedWindowTable], Iterable[ChainAssertions]]
"""Looks at the headers and watermarks of all buckets, given what the input covers."""


def audit_ledger_rows(
    buckets: Sequence[Callable[[], pa.Table | Iterable[BucketPart]]],
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    stated: Sequence[Callable[[], tuple[pa.Table, pa.Table]]] = (),
    value: Sequence[Callable[[], pa.Table]] = (),
    end: int | None = None,
) -> AuditResult:
    """Check a ledger.

    Args:
        buckets: what reads each bucket: its rows (``LEDGER_SCHEMA``) in the order of the ledger, whole or in parts. It
            is called a second time where a bucket cannot be judged before all were seen.
        observed: windows that the input covers (``OBSERVED_SCHEMA``).
        promises: what lanes promise (``PROMISES_SCHEMA``).
        limit: how many findings of one lane, check and reason are named; all are counted.
        stated: what reads the headers and the watermarks of each bucket (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).
        value: what reads the movements of value of each bucket (``VALUE_SCHEMA``), if there are any: those of a message
            are in the bucket of its rows.
        end: the last time of any row, in microseconds, None: none has a time. Where no window is declared, deadlines
            are judged by it.

    Raises:
        InvalidInput: an event or kind has no known name, or rows are not in the order of the ledger.
    """

    def look(
        known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
    ) -> Mapping[tuple[int, int], RunResult]:
        def one(bucket: int) -> list[RunResult]:
            moved = value[bucket]() if value else None
            return check_bucket(buckets[bucket](), known, before, limit, None if only is None else only[bucket], moved)

        numbers = range(len(buckets)) if only is None else sorted(only)
        with ThreadPoolExecutor(THREADS) as threads:
            return number_runs(numbers, threads.map(one, numbers), only, limit)

    def look_at_chains(windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
        with ThreadPoolExecutor(THREADS) as threads:
            return [*threads.map(partial(_stated_of, windows=windows, limit=limit), stated)]

    meet = LocalJoiner(lambda bucket: buckets[bucket](), _threads)
    return audit_with(look, observed, promises, limit, look_at_chains, meet, end=end)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


def _stated_of(
    read: Callable[[], tuple[pa.Table, pa.Table]], windows: ObservedWindowTable, limit: int
) -> ChainAssertions:
    headers, watermarks = read()
    return check_chain_assertions(headers, watermarks, windows, limit)


def audit_table(
    rows: pa.Table,
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    headers: pa.Table | None = None,
    watermarks: pa.Table | None = None,
    value: pa.Table | None = None,
) -> AuditResult:
    """Check a ledger whose rows, in any order, are one table in memory, and so are its headers, watermarks and
    movements of value; otherwise as ``audit``. Chains whose heights began anew are noticed.

    Columns of the tables may be of other types that hold the same values, and those missing that can be null. Raises
    ``InvalidInput`` for what does not fit.
    """
    in_order = deduplicate_statements(conform_table(rows, LEDGER_SCHEMA, "rows"))
    given = (headers, HEADERS_SCHEMA, "headers"), (watermarks, WATERMARKS_SCHEMA, "watermarks")
    chains, marks = (
        schema.empty_table() if table is None else conform_table(table, schema, what) for table, schema, what in given
    )
    moved = VALUE_SCHEMA.empty_table() if value is None else conform_table(value, VALUE_SCHEMA, "value")
    observed = conform_table(observed, OBSERVED_SCHEMA, "observed")
    promises = conform_table(promises, PROMISES_SCHEMA, "promises")
    promises = mark_restarts(promises, find_restarted_chains(in_order), REMARKED_COUNTS)
    end = latest_time(in_order["time"])
    return audit_ledger_rows(
        [lambda: in_order], observed, promises, limit, [lambda: (chains, marks)], [lambda: moved], end
    )


def latest_time(times: pa.ChunkedArray) -> int | None:
    """Return the last of some times, in microseconds, None if none is seen."""
    found: int | None = pc.max(times.cast(pa.int64())).as_py()
    return found


def audit_with(
    look: BucketCheck,
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    look_at_chains: ChainCheck | None = None,
    meet: BucketJoiner | None = None,
    end: int | None = None,
) -> AuditResult:
    """Check a ledger of which ``look`` passes over the buckets, and ``look_at_chains`` over their headers and
    watermarks, wherever they are; ``meet``: lets rows of different buckets meet (None: nothing is answered over lanes,
    and ``back_pressure`` finds nothing); ``end``: the last time of any
    row, in microseconds (None: none has a time); otherwise as ``audit``."""
    known = LaneContext(ObservedWindowTable(observed, end), LanePromises(promises))
    parts = () if look_at_chains is None else look_at_chains(known.windows)
    stated = merge_assertions([*parts], known.windows, limit)
    passed = dict(sorted(look(known, {}, None).items())) or {(0, 0): empty_result(known)}
    joined = merge_lanes(pa.concat_tables([each.pieces for each in passed.values()]), known)
    again = set(_runs_of("pieces", joined.again, passed))
    behind = [*zip(_runs_of("pieces", joined.behind, passed), joined.behind.values(), strict=True)]
    again |= {run for run, each in passed.items() if each.asks}
    causal = compare_links(pa.concat_tables([each.links for each in passed.values()]), known.promises)
    again |= {*_runs_of("links", causal.rows, passed)}
    meeting = None if meet is None else plan_joins(passed, known, limit)
    met = MergedResult.of(meeting, meet, limit) if meeting is not None and meet is not None else MergedResult.nothing()
    asked = _candidates(passed.values(), joined, known)
    lanes_asked = {lane for lanes in asked.values() for lane in lanes}
    again |= {
        run for run, each in passed.items() if lanes_asked and not lanes_asked.isdisjoint(table_lanes(each.lanes))
    }
    carried = resolve_continuations(each.carried for each in passed.values())
    if carried is None or len(carried.names):
        again |= {run for run, each in passed.items() if pc.sum(each.lanes["open"]).as_py()}
    reached = merge_reached_heights(each.reached for each in passed.values())
    if reached is None or reached:
        again |= {run for run, each in passed.items() if each.waits}
    known = LaneContext(
        known.windows,
        known.promises,
        joined.sent,
        complete=True,
        shared=frozenset(asked),
        misplaced=causal.misplaced,
        carried=carried,
        reached=reached,
    )
    if again:
        only: dict[int, list[int]] = {}
        for bucket, number in sorted(again):
            only.setdefault(bucket, []).append(number)
        passed |= look(known, joined.before, only)
    shared = find_shared_numbers(asked, [each.numbers for each in passed.values()])
    left = [each for run, each in behind if run not in again]
    return _result([*passed.values()], joined, left, stated, met, shared, undecided_links(causal), known, limit)


def _runs_of(table: str, rows: Iterable[int], passed: Mapping[tuple[int, int], RunResult]) -> list[tuple[int, int]]:
    """Return the run of each of some rows, given as positions in the tables of all runs together."""
    runs, ends = list(passed), np.cumsum([getattr(each, table).num_rows for each in passed.values()])
    return [runs[at] for at in np.searchsorted(ends, [*rows], side="right").tolist()]


def _candidates(passed: Iterable[RunResult], joined: MergedLanes, known: LaneContext) -> dict[LaneGroup, set[Lane]]:
    """Return the groups of lanes that may share their numbers."""
    missing: dict[Lane, int] = {lane: numbers[0] for lane, numbers in joined.missing.items()}
    lacking = pa.concat_tables([each.lanes.select([*LANE, "missing"]) for each in passed])
    lacking = lacking.filter(pc.greater(lacking["missing"], pa.scalar(0, lacking["missing"].type)))
    for lane, count in zip(table_lanes(lacking), lacking["missing"].to_pylist(), strict=True):
        missing[lane] = missing.get(lane, 0) + count
    return candidate_groups(joined.sent, missing, known.promises) if missing else {}


def number_runs(
    buckets: Iterable[int], passed: Iterable[list[RunResult]], only: RunResults | None, limit: int = LIMIT
) -> dict[tuple[int, int], RunResult]:
    """Return what runs show by bucket and run, from what the runs of each bucket show (``only``: of these runs), with
    the findings that may be named."""
    gathered = PartialResults(limit)
    for bucket, runs in zip(buckets, passed, strict=True):
        numbers = range(len(runs)) if only is None else sorted(only[bucket])
        for number, each in zip(numbers, runs, strict=True):
            gathered.add((bucket, number), each)
    return gathered.runs


def _result(
    passed: list[RunResult],
    joined: MergedLanes,
    behind: list[tuple[Lane, EventTriple]],
    stated: ChainAssertions,
    met: MergedResult,
    shared: SharedNumbers,
    undecided: tuple[pa.Table, pa.Table],
    known: LaneContext,
    limit: int,
) -> AuditResult:
    lanes = pa.concat_tables([each.lanes for each in passed])
    findings, counts = decide_findings(
        pa.concat_tables([each.findings for each in passed]),
        pa.concat_tables([each.counts for each in passed]),
        lanes,
        known,
    )
    findings, counts = met.without(findings), met.without(counts)
    away = check_backing(pa.concat_tables([each.abroad for each in passed]), known.windows)
    counts = pa.concat_tables([counts, _each(joined.findings)])
    gaps = shared.findings()
    findings = _unshared(pa.concat_tables([findings, joined.findings]), shared)
    every = [findings, gaps, stated.findings, met.findings, away.findings, undecided[0]]
    violations = select_findings(pa.concat_tables(every), limit)
    counts = _unshared(counts, shared)
    counts = pa.concat_tables([counts, _each(gaps), stated.counts, met.counts, away.counts, undecided[1]])
    flying = count_examined(lanes, known.promises)
    looked_at = [*(each.examined for each in passed), stated.examined, flying, met.examined, away.examined]
    examined = pa.concat_tables(looked_at)
    lanes = _with_shared(_lanes(lanes, joined, behind), shared)
    sides = pa.concat_tables([each.sides for each in passed])
    return AuditResult(
        {name: _check(name, counts, examined, violations) for name in CHECK_NAMES},
        violations,
        build_completeness(sides, lanes, known.windows),
        lanes,
        _sums(pa.concat_tables([each.sums for each in passed]), pa.concat_tables([each.fees for each in passed])),
        away.abroad,
        _added_up(counts),
        build_remarks(lanes, known),
    )


def _added_up(counts: pa.Table) -> pa.Table:
    """Return how many findings each lane has, a row a lane, check, verdict and reason (``COUNTS_SCHEMA``)."""
    found = counts.group_by(COUNTS_SCHEMA.names[:-1]).aggregate([("count", "sum")])
    return found.rename_columns(COUNTS_SCHEMA.names).cast(COUNTS_SCHEMA)


def _unshared(found: pa.Table, shared: SharedNumbers) -> pa.Table:
    """Return findings or counts without what is missing on single lanes of those that share their numbers."""
    if not shared.lanes or not found.num_rows:
        return found
    of_lane = np.array([lane in shared.lanes for lane in table_lanes(found)], bool)
    own = np.asarray(pc.and_(pc.equal(found["check"], "gaps"), pc.is_in(found["reason"], pa.array(REPLACED_REASONS))))
    return found.filter(pa.array(~(of_lane & own)))


def _with_shared(lanes: pa.Table, shared: SharedNumbers) -> pa.Table:
    """Return the figures of lanes, in which what is missing of shared numbers is of a lane without a destination."""
    if not shared.lanes:
        return lanes
    rows = lanes.to_pylist()
    for row in rows:
        if row_lane(row) in shared.lanes:
            row |= {"missing": 0, "missing_runs": 0, "missing_runs_inside_windows": 0}
    at = {row_lane(row): row for row in rows}
    for (protocol, source, name), missing in shared.missing.items():
        if len(missing.first):
            lane: Lane = (protocol, source, None, name)
            if lane not in at:
                at[lane] = {**dict(zip(LANE, lane, strict=True)), **dict.fromkeys(FIGURES, 0), **dict.fromkeys(OLDEST)}
                rows.append(at[lane])
            at[lane] |= {"missing": int(missing.size.sum()), "missing_runs": len(missing.first)}
    return pa.Table.from_pylist(rows, lanes.schema).sort_by([(name, "ascending") for name in LANE])


def _check(name: str, counts: pa.Table, examined: pa.Table, violations: pa.Table) -> CheckVerdict:
    own = counts.filter(pc.equal(counts["check"], name)).group_by(["verdict", "reason"]).aggregate([("count", "sum")])
    reasons = {(row["verdict"], row["reason"]): row["count_sum"] for row in own.to_pylist()}
    looked = examined.filter(pc.equal(examined["check"], name))
    lanes = looked.group_by(list(LANE)).aggregate([]).num_rows
    return _with_reasons(CheckVerdict(name, pc.sum(looked["count"]).as_py() or 0, lanes, 0, 0), reasons, violations)


def _with_reasons(check: CheckVerdict, reasons: Mapping[tuple[str, str], int], violations: pa.Table) -> CheckVerdict:
    named = violations.filter(pc.equal(violations["check"], check.name))
    for verdict in VERDICTS:
        rows = named.filter(pc.equal(named["verdict"], verdict))
        if rows.num_rows:
            break
    first = earliest_finding(rows)
    sizes = rows["magnitude"]
    worst = None
    if sizes.null_count < rows.num_rows:
        worst = to_python_rows(rows.slice(int(np.nanargmax(sizes.to_numpy())), 1))[0]
    violated, unknown, noted = (sum(n for (of, _), n in reasons.items() if of == each) for each in VERDICTS)
    in_order = dict(sorted(reasons.items(), key=lambda item: (VERDICTS.index(item[0][0]), item[0][1])))
    check = replace(check, violated=violated, unknown=unknown, noted=noted)
    return replace(check, reasons=in_order, first=first, worst=worst)


def earliest_finding(rows: pa.Table) -> dict[str, Any] | None:
    """Return the earliest of some findings: by time, then by height, then in their order; None of none."""
    if not rows.num_rows:
        return None
    keys = rows.select(["time", "height"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])  # nulls last
    found: dict[str, Any] = to_python_rows(rows.slice(order[0].as_py(), 1))[0]
    return found


def add_findings(found: AuditResult, more: pa.Table, limit: int = LIMIT) -> AuditResult:
    """Return an audit with more findings, all of which count: ``more`` has the columns of ``VIOLATIONS_SCHEMA`` but for
    ``example``."""
    before = found.violations.select(VIOLATIONS_SCHEMA.names[:-1])
    violations = select_findings(pa.concat_tables([before, more.cast(before.schema)]), limit)
    checks = dict(found.checks)
    for name, reasons in _reasons_of(more).items():
        checks[name] = _with_reasons(checks[name], reasons + Counter(checks[name].reasons), violations)
    counts = _added_up(pa.concat_tables([found.counts, _each(more)]))
    return replace(found, checks=checks, violations=violations, counts=counts)


def _each(findings: pa.Table) -> pa.Table:
    """Return findings as counts: each is one."""
    one = pa.array(np.ones(findings.num_rows, np.int64))
    return findings.select(COUNTS_SCHEMA.names[:-1]).append_column("count", one).cast(COUNTS_SCHEMA)


def _reasons_of(findings: pa.Table) -> dict[str, Counter[tuple[str, str]]]:
    reasons: dict[str, Counter[tuple[str, str]]] = {}
    for row in findings.select(["check", "verdict", "reason"]).to_pylist():
        reasons.setdefault(row["check"], Counter())[row["verdict"], row["reason"]] += 1
    return reasons


def _lanes(tables: pa.Table, joined: MergedLanes, behind: list[tuple[Lane, EventTriple]]) -> pa.Table:
    """Return the figures of each lane, with what is missing between its pieces or out of order because of others."""
    aggregates = [*((name, "sum") for name in FIGURES), *((name, "min") for name in OLDEST)]
    summed = tables.group_by(list(LANE)).aggregate(aggregates)
    content: dict[str, Any] = {name: summed[name] for name in LANE}
    content |= {name: summed[f"{name}_sum"].to_numpy().copy() for name in FIGURES}
    content |= {name: summed[f"{name}_min"] for name in OLDEST}
    if joined.missing or behind:
        rows = summed.select(list(LANE)).to_pylist()
        at: dict[Lane, int] = {row_lane(row): number for number, row in enumerate(rows)}
        for lane, numbers in joined.missing.items():
            for name, number in zip(("missing", "missing_runs", "missing_runs_inside_windows"), numbers, strict=True):
                content[name][at[lane]] += content[name].dtype.type(number)
        for lane, three in behind:
            for name, number in zip(("sent", "received", "acknowledged"), three, strict=True):
                content[f"{name}_out_of_order"][at[lane]] += number
    return pa.table(content).sort_by([(name, "ascending") for name in LANE])


def _sums(tables: pa.Table, fees: pa.Table) -> pa.Table:
    """Return the sums of each lane and asset as decimal digits, and what they leave over."""
    totals: dict[tuple[str | None, ...], dict[str, int]] = {}
    keys = (*LANE, "asset")
    for row in tables.to_pylist():
        total = totals.setdefault(tuple(row[name] for name in keys), dict.fromkeys(REPORTED_SUMS, 0))
        for name in SUMS:
            total[name] += int.from_bytes(row[name], "little")
    for row in fees.to_pylist():
        total = totals.setdefault(tuple(row[name] for name in keys), dict.fromkeys(REPORTED_SUMS, 0))
        paid = int.from_bytes(row["paid"], "little") - int.from_bytes(row["given"], "little")
        if row["of"]:
            total[row["of"]] -= paid
        else:
            total["fees"] += paid
    ordered = sorted(totals.items(), key=lambda item: tuple((name is not None, name or "") for name in item[0]))
    content = {name: pa.array([key[place] for key, _ in ordered], pa.string()) for place, name in enumerate(keys)}
    for name in REPORTED_SUMS:
        content[name] = pa.array([str(total[name]) for _, total in ordered], pa.string())
    left = [str(2 * total["sent"] - sum(total.values())) for _, total in ordered]
    return pa.table(content | {"difference": pa.array(left, pa.string())})
