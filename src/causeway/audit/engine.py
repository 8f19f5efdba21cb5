"""The audit engine: check every bucket, re-check runs that need context, merge the results.

A first pass over all buckets gives partial results. Merging them shows the lanes and links that cross buckets. A second
pass checks again those runs whose result depends on another bucket. The remarks of the result tell the reader about
inferred deadlines, clock tolerances and guarantees without effect.
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
from causeway.ledger.row_rules import require_valid_rows
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
"""Maximum number of guarantees and clocks named in a remark."""


def build_remarks(lanes: pa.Table, known: LaneContext) -> tuple[str, ...]:
    """Build remarks about inferred deadlines, clock tolerances and guarantees without effect.

    Args:
        lanes: Figures of the lanes, a row a lane.
        known: Windows and guarantees of the audit.

    Returns:
        One sentence a remark.
    """
    every = table_lanes(lanes)
    return (
        *_inferred_deadlines(every, known),
        *_clock_tolerances(known.promises),
        *_unused_guarantees(every, known.promises),
    )


def _inferred_deadlines(lanes: list[Lane], known: LaneContext) -> list[str]:
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
    span = " to ".join(dict.fromkeys((_format_time(times[0]), _format_time(times[-1]))))
    if holes:
        return [f"Deadlines are judged at the ends of the windows that the rows show (until {span}): none is declared."]
    arrivals = " with arrivals" if any(known.windows.declares(lane[2], lane) for lane in lanes) else ""
    return [f"Deadlines are judged by the last time of the input ({span}): no window{arrivals} is declared."]


def _format_time(time: int) -> str:
    try:
        return f"{format_moment(EPOCH + timedelta(microseconds=time))} UTC"
    except OverflowError:  # no calendar has it
        return f"{time // 1_000_000:,} s after 1970"


def _clock_tolerances(promises: LanePromises) -> list[str]:
    chains = sorted({row["source"] or "" for row in promises.rows if row["promise"] == CLOCK_TOLERANCE})
    found = [(chain, promises.tolerance(chain or None)) for chain in chains]
    named = [f"{shorten_name(of) or 'every chain'} {micros / 1e6:,.6g} s" for of, micros in found if micros]
    return [f"Clocks may be wrong, and messages early by as much: {_join_names(named)}."] if named else []


def _unused_guarantees(lanes: list[Lane], promises: LanePromises) -> list[str]:
    """Remark on guarantees of lanes without rows.

    Guarantees that Causeway's own runs declare are exempt: an unused chain, lane or kind of input is no mistake there.
    """
    chains, names = ({lane[at] for lane in lanes for at in places} | {None} for places in ((1, 2), (3,)))
    unmet: list[str] = []
    for row in promises.rows:
        known = row["source"] in chains and row["destination"] in chains and row["lane"] in names
        if not known and row["stated_by"] != REPORTER_COLUMN:
            unmet.append(f"{shorten_name(row['promise'])} of {_format_names(row_lane(row))}")
    return [f"Promises without effect, as the input has no such chain or lane: {_join_names(unmet)}."] if unmet else []


def _format_names(names: tuple[str | None, ...]) -> str:
    given = zip(LANE, names, strict=True)
    return ", ".join(f"{name} {value!r}" for name, value in given if value is not None)


def _join_names(names: Iterable[str]) -> str:
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - MAX_NAMED:,} more" if len(each) > MAX_NAMED else ""
    return ", ".join(each[:MAX_NAMED]) + more


THREADS = 2
"""Number of buckets checked at once; most of a pass runs without the interpreter lock."""

PROMISE_CHECKS = {
    "order": ("ordered_sends", "ordered_receives", "ordered_acknowledgements"),
    "gaps": ("numbered", "ordered_receives"),
    "finality": ("final_after",),
    "answers": ("answered",),
    "conservation": ("conserved",),
    "back_pressure": ("capacity",),
    "causal_order": ("causal",),
}
"""Checks that apply only to lanes with certain guarantees."""

REMARKED_COUNTS = "audit"
"""Reporter name of restarted chains that the audit itself detects."""

SUMS = ("sent", "received", "refunded", "pending")
REPORTED_SUMS = ("sent", "received", "fees", "refunded", "pending")


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit: the checks by name, and tables.

    Attributes:
        checks: Verdict of each check.
        violations: Named findings (``VIOLATIONS_SCHEMA``).
        completeness: Coverage of the input.
        lanes: Figures of each lane.
        sums: Amounts of each lane and asset as decimal digits: sent, received, paid out (``fees``), refunded, pending,
            and ``difference`` = sent - received - fees - refunded - pending.
        abroad: Amounts of each asset that left a chain for another one and came back.
        counts: Number of findings by lane, check, verdict and reason (``COUNTS_SCHEMA``), including unnamed ones.
        remarks: Sentences about assumptions of the audit.
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
        """Verdict of all checks combined."""
        return combine_verdicts(self.checks.values())

    @property
    def holds(self) -> bool:
        """True if no check failed."""
        return self.verdict is not Verdict.FAILED

    def sentence(self, *names: str) -> str:
        """Return the verdict of all or the named checks as a sentence."""
        chosen = [self.checks[name] for name in names or self.checks]
        rows = self.counts.filter(pc.is_in(self.counts["check"], pa.array([check.name for check in chosen])))
        return verdict_sentence(chosen, [format_lane(lane) or "no lane" for lane in unknown_lanes(rows.to_pylist())])


RunResults = Mapping[int, Collection[int]]
"""Run numbers by bucket."""

BucketCheck = Callable[
    [LaneContext, dict[PieceKey, PrecedingPositions], RunResults | None], Mapping[tuple[int, int], RunResult]
]
"""A pass over buckets: takes the context, the positions before pieces and, in a second pass, the runs to check.
It returns results by bucket and run."""

ChainCheck = Callable[[ObservedWindowTable], Iterable[ChainAssertions]]
"""A pass over the headers and watermarks of all buckets, given the observed windows."""


def audit_ledger_rows(
    buckets: Sequence[Callable[[], pa.Table | Iterable[BucketPart]]],
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    stated: Sequence[Callable[[], tuple[pa.Table, pa.Table]]] = (),
    value: Sequence[Callable[[], pa.Table]] = (),
    end: int | None = None,
) -> AuditResult:
    """Audit a ledger given as readers of its buckets.

    Args:
        buckets: Reads each bucket: its rows (``LEDGER_SCHEMA``) in ledger order, whole or in parts. A reader is called
            again if its bucket needs a second pass.
        observed: Windows that the input covers (``OBSERVED_SCHEMA``).
        promises: Guarantees of lanes (``PROMISES_SCHEMA``).
        limit: Maximum number of named findings of one lane, check and reason; all are counted.
        stated: Reads the headers and watermarks of each bucket (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).
        value: Reads the movements of value of each bucket (``VALUE_SCHEMA``); empty if there are none. Movements lie in
            the bucket of their message.
        end: Last time of any row, in microseconds, or None. It is the deadline reference without declared windows.

    Returns:
        The result of the audit.

    Raises:
        InvalidInput: An event or kind is unknown, or rows are out of ledger order.
    """

    def check_buckets(
        known: LaneContext, before: dict[PieceKey, PrecedingPositions], only: RunResults | None
    ) -> Mapping[tuple[int, int], RunResult]:
        def one(bucket: int) -> list[RunResult]:
            moved = value[bucket]() if value else None
            return check_bucket(buckets[bucket](), known, before, limit, None if only is None else only[bucket], moved)

        numbers = range(len(buckets)) if only is None else sorted(only)
        with ThreadPoolExecutor(THREADS) as threads:
            return number_runs(numbers, threads.map(one, numbers), only, limit)

    def check_chains(windows: ObservedWindowTable) -> Iterable[ChainAssertions]:
        with ThreadPoolExecutor(THREADS) as threads:
            return [*threads.map(partial(_check_chain_bucket, windows=windows, limit=limit), stated)]

    joiner = LocalJoiner(lambda bucket: buckets[bucket](), _threads)
    return audit_with(check_buckets, observed, promises, limit, check_chains, joiner, end=end)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


def _check_chain_bucket(
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
    """Audit a ledger held in memory, with rows in any order, and detect restarted chains.

    Column types may differ if they hold the same values; nullable columns may be missing.

    Args:
        rows: Rows of the ledger (``LEDGER_SCHEMA``).
        observed: Windows that the input covers (``OBSERVED_SCHEMA``).
        promises: Guarantees of lanes (``PROMISES_SCHEMA``).
        limit: Maximum number of named findings of one lane, check and reason.
        headers: Headers of chains (``HEADERS_SCHEMA``), or None.
        watermarks: Watermarks of lanes (``WATERMARKS_SCHEMA``), or None.
        value: Movements of value (``VALUE_SCHEMA``), or None.

    Returns:
        The result of the audit.

    Raises:
        InvalidInput: A table does not fit its schema.
    """
    in_order = deduplicate_statements(_conform(rows, LEDGER_SCHEMA, "rows"))
    inputs = (headers, HEADERS_SCHEMA, "headers"), (watermarks, WATERMARKS_SCHEMA, "watermarks")
    chains, marks = (
        schema.empty_table() if table is None else _conform(table, schema, name) for table, schema, name in inputs
    )
    moved = VALUE_SCHEMA.empty_table() if value is None else _conform(value, VALUE_SCHEMA, "value")
    observed = _conform(observed, OBSERVED_SCHEMA, "observed")
    promises = _conform(promises, PROMISES_SCHEMA, "promises")
    promises = mark_restarts(promises, find_restarted_chains(in_order), REMARKED_COUNTS)
    end = latest_time(in_order["time"])
    return audit_ledger_rows(
        [lambda: in_order], observed, promises, limit, [lambda: (chains, marks)], [lambda: moved], end
    )


def _conform(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    return require_valid_rows(conform_table(rows, schema, what), what)


def latest_time(times: pa.ChunkedArray) -> int | None:
    """Return the latest non-null time in microseconds, or None.

    Args:
        times: Timestamps in microseconds.

    Returns:
        Microseconds since 1970-01-01.
    """
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
    """Audit a ledger with given passes over its buckets.

    Args:
        look: Pass over the rows of buckets.
        observed: Windows that the input covers (``OBSERVED_SCHEMA``).
        promises: Guarantees of lanes (``PROMISES_SCHEMA``).
        limit: Maximum number of named findings of one lane, check and reason.
        look_at_chains: Pass over headers and watermarks, or None.
        meet: Joins rows of different buckets. Without it, replies across lanes and ``back_pressure`` are not checked.
        end: Last time of any row, in microseconds, or None.

    Returns:
        The result of the audit.
    """
    known = LaneContext(ObservedWindowTable(observed, end), LanePromises(promises))
    parts = () if look_at_chains is None else look_at_chains(known.windows)
    assertions = merge_assertions([*parts], known.windows, limit)
    results = dict(sorted(look(known, {}, None).items())) or {(0, 0): empty_result(known)}
    joined = merge_lanes(pa.concat_tables([each.pieces for each in results.values()]), known)
    again = set(_runs_of("pieces", joined.again, results))
    behind = [*zip(_runs_of("pieces", joined.behind, results), joined.behind.values(), strict=True)]
    again |= {run for run, each in results.items() if each.asks}
    causal = compare_links(pa.concat_tables([each.links for each in results.values()]), known.promises)
    again |= {*_runs_of("links", causal.rows, results)}
    plan = None if meet is None else plan_joins(results, known, limit)
    cross_bucket = (
        MergedResult.of(plan, meet, limit) if plan is not None and meet is not None else MergedResult.nothing()
    )
    shared_groups = _candidates(results.values(), joined, known)
    shared_lanes = {lane for lanes in shared_groups.values() for lane in lanes}
    again |= {
        run for run, each in results.items() if shared_lanes and not shared_lanes.isdisjoint(table_lanes(each.lanes))
    }
    carried = resolve_continuations(each.carried for each in results.values())
    if carried is None or len(carried.names):
        again |= {run for run, each in results.items() if pc.sum(each.lanes["open"]).as_py()}
    reached = merge_reached_heights(each.reached for each in results.values())
    if reached is None or reached:
        again |= {run for run, each in results.items() if each.waits}
    known = LaneContext(
        known.windows,
        known.promises,
        joined.sent,
        complete=True,
        shared=frozenset(shared_groups),
        misplaced=causal.misplaced,
        carried=carried,
        reached=reached,
    )
    if again:
        only: dict[int, list[int]] = {}
        for bucket, number in sorted(again):
            only.setdefault(bucket, []).append(number)
        results |= look(known, joined.before, only)
    shared = find_shared_numbers(shared_groups, [each.numbers for each in results.values()])
    unresolved = [each for run, each in behind if run not in again]
    return _result(
        [*results.values()], joined, unresolved, assertions, cross_bucket, shared, undecided_links(causal), known, limit
    )


def _runs_of(table: str, rows: Iterable[int], passed: Mapping[tuple[int, int], RunResult]) -> list[tuple[int, int]]:
    """Return the run of each row, given as positions in the concatenated tables of all runs."""
    runs, ends = list(passed), np.cumsum([getattr(each, table).num_rows for each in passed.values()])
    return [runs[at] for at in np.searchsorted(ends, [*rows], side="right").tolist()]


def _candidates(passed: Iterable[RunResult], joined: MergedLanes, known: LaneContext) -> dict[LaneGroup, set[Lane]]:
    """Return groups of lanes that may share one sequence of numbers."""
    missing: dict[Lane, int] = {lane: numbers[0] for lane, numbers in joined.missing.items()}
    lacking = pa.concat_tables([each.lanes.select([*LANE, "missing"]) for each in passed])
    lacking = lacking.filter(pc.greater(lacking["missing"], pa.scalar(0, lacking["missing"].type)))
    for lane, count in zip(table_lanes(lacking), lacking["missing"].to_pylist(), strict=True):
        missing[lane] = missing.get(lane, 0) + count
    return candidate_groups(joined.sent, missing, known.promises) if missing else {}


def number_runs(
    buckets: Iterable[int], passed: Iterable[list[RunResult]], only: RunResults | None, limit: int = LIMIT
) -> dict[tuple[int, int], RunResult]:
    """Key run results by bucket and run, and limit the named findings.

    Args:
        buckets: Bucket numbers.
        passed: Run results of each bucket.
        only: Run numbers by bucket of a second pass; None for all runs.
        limit: Maximum number of named findings of one lane, check and reason.

    Returns:
        Results by (bucket, run).
    """
    collected = PartialResults(limit)
    for bucket, runs in zip(buckets, passed, strict=True):
        numbers = range(len(runs)) if only is None else sorted(only[bucket])
        for number, each in zip(numbers, runs, strict=True):
            collected.add((bucket, number), each)
    return collected.runs


def _result(
    passed: list[RunResult],
    joined: MergedLanes,
    behind: list[tuple[Lane, EventTriple]],
    assertions: ChainAssertions,
    cross_bucket: MergedResult,
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
    findings, counts = cross_bucket.without(findings), cross_bucket.without(counts)
    backing = check_backing(pa.concat_tables([each.abroad for each in passed]), known.windows)
    counts = pa.concat_tables([counts, _to_counts(joined.findings)])
    gaps = shared.findings()
    findings = _drop_shared_gaps(pa.concat_tables([findings, joined.findings]), shared)
    every = [findings, gaps, assertions.findings, cross_bucket.findings, backing.findings, undecided[0]]
    violations = select_findings(pa.concat_tables(every), limit)
    counts = _drop_shared_gaps(counts, shared)
    counts = pa.concat_tables(
        [counts, _to_counts(gaps), assertions.counts, cross_bucket.counts, backing.counts, undecided[1]]
    )
    inflight = count_examined(lanes, known.promises)
    examined_tables = [
        *(each.examined for each in passed),
        assertions.examined,
        inflight,
        cross_bucket.examined,
        backing.examined,
    ]
    examined = pa.concat_tables(examined_tables)
    lanes = _with_shared(_lanes(lanes, joined, behind), shared)
    sides = pa.concat_tables([each.sides for each in passed])
    return AuditResult(
        {name: _check(name, counts, examined, violations) for name in CHECK_NAMES},
        violations,
        build_completeness(sides, lanes, known.windows),
        lanes,
        _sums(pa.concat_tables([each.sums for each in passed]), pa.concat_tables([each.fees for each in passed])),
        backing.abroad,
        _sum_counts(counts),
        build_remarks(lanes, known),
    )


def _sum_counts(counts: pa.Table) -> pa.Table:
    """Sum findings by lane, check, verdict and reason (``COUNTS_SCHEMA``)."""
    found = counts.group_by(COUNTS_SCHEMA.names[:-1]).aggregate([("count", "sum")])
    return found.rename_columns(COUNTS_SCHEMA.names).cast(COUNTS_SCHEMA)


def _drop_shared_gaps(found: pa.Table, shared: SharedNumbers) -> pa.Table:
    """Drop gaps of single lanes that belong to a shared sequence of numbers."""
    if not shared.lanes or not found.num_rows:
        return found
    of_lane = np.array([lane in shared.lanes for lane in table_lanes(found)], bool)
    own = np.asarray(pc.and_(pc.equal(found["check"], "gaps"), pc.is_in(found["reason"], pa.array(REPLACED_REASONS))))
    return found.filter(pa.array(~(of_lane & own)))


def _with_shared(lanes: pa.Table, shared: SharedNumbers) -> pa.Table:
    """Attribute gaps of shared numbers to a lane without a destination."""
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
    own_examined = examined.filter(pc.equal(examined["check"], name))
    lanes = own_examined.group_by(list(LANE)).aggregate([]).num_rows
    return _with_reasons(
        CheckVerdict(name, pc.sum(own_examined["count"]).as_py() or 0, lanes, 0, 0), reasons, violations
    )


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
    """Return the earliest finding by time, then height, then row, or None."""
    if not rows.num_rows:
        return None
    keys = rows.select(["time", "height"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])  # nulls last
    found: dict[str, Any] = to_python_rows(rows.slice(order[0].as_py(), 1))[0]
    return found


def add_findings(found: AuditResult, more: pa.Table, limit: int = LIMIT) -> AuditResult:
    """Add findings of another source to an audit.

    Args:
        found: The result of an audit.
        more: Findings, with the columns of ``VIOLATIONS_SCHEMA`` except ``example``.
        limit: Maximum number of named findings of one lane, check and reason.

    Returns:
        A new result.
    """
    before = found.violations.select(VIOLATIONS_SCHEMA.names[:-1])
    violations = select_findings(pa.concat_tables([before, more.cast(before.schema)]), limit)
    checks = dict(found.checks)
    for name, reasons in _reasons_of(more).items():
        checks[name] = _with_reasons(checks[name], reasons + Counter(checks[name].reasons), violations)
    counts = _sum_counts(pa.concat_tables([found.counts, _to_counts(more)]))
    return replace(found, checks=checks, violations=violations, counts=counts)


def _to_counts(findings: pa.Table) -> pa.Table:
    """Convert findings to counts of one."""
    one = pa.array(np.ones(findings.num_rows, np.int64))
    return findings.select(COUNTS_SCHEMA.names[:-1]).append_column("count", one).cast(COUNTS_SCHEMA)


def _reasons_of(findings: pa.Table) -> dict[str, Counter[tuple[str, str]]]:
    reasons: dict[str, Counter[tuple[str, str]]] = {}
    for row in findings.select(["check", "verdict", "reason"]).to_pylist():
        reasons.setdefault(row["check"], Counter())[row["verdict"], row["reason"]] += 1
    return reasons


def _lanes(tables: pa.Table, joined: MergedLanes, behind: list[tuple[Lane, EventTriple]]) -> pa.Table:
    """Sum the figures of each lane, with gaps and disorder between its pieces."""
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
    """Sum amounts by lane and asset as decimal digits, with their difference."""
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
