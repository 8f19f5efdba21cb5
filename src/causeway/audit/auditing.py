"""The audit: a pass over every bucket, a second look at those runs that ask for one, and one result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.along import Before, PieceKey, Three
from causeway.audit.back_pressure import examined_of
from causeway.audit.backing import backing
from causeway.audit.carrying import carried_names
from causeway.audit.causal_links import compare_links
from causeway.audit.causal_order import undecided_links
from causeway.audit.completeness import completeness_of
from causeway.audit.decided import decided
from causeway.audit.findings import VIOLATIONS_SCHEMA
from causeway.audit.gathered import CHECK_NAMES, VERDICTS, Gathered, shown_findings
from causeway.audit.joining import Joined, join
from causeway.audit.known import Known
from causeway.audit.meeting import Here, Meet, Together, meeting_of
from causeway.audit.numbering import REPLACED, Group, Shared, candidates, shared_numbers
from causeway.audit.parts import Part
from causeway.audit.passing import FIGURES, LIMIT, OLDEST, Passed, pass_nothing, pass_over
from causeway.audit.reached import heights_reached
from causeway.audit.remarks import remarks
from causeway.audit.stated import Stated, stated_in, stated_together
from causeway.audit.stated_rows import COUNTS_SCHEMA
from causeway.audit.verdict import Check, Verdict, sentence, unknown_lanes, verdict_of
from causeway.audit.windows import Lane, Promises, Windows, lane_of, lanes_in
from causeway.ledger.order import stated_rows
from causeway.ledger.restarts import restarted_chains, with_restarts
from causeway.ledger.schema import (
    HEADERS_SCHEMA,
    LANE,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    VALUE_SCHEMA,
    WATERMARKS_SCHEMA,
)
from causeway.ledger.typed import plain_rows, table_of
from causeway.model.text import lane_text

THREADS = 2
"""Buckets that are checked at once: most of a pass runs without the interpreter's lock."""

PROMISED = {
    "order": ("ordered_sends", "ordered_receives", "ordered_acknowledgements"),
    "gaps": ("numbered", "ordered_receives"),
    "finality": ("final_after",),
    "answers": ("answered",),
    "conservation": ("conserved",),
    "back_pressure": ("capacity",),
    "causal_order": ("causal",),
}
"""Checks that look at those lanes only that promise something, and what."""

NOTICED = "audit"
"""Who states that the heights of a chain began anew, where an audit notices it."""

SUMS = ("sent", "received", "refunded", "pending")
SHOWN_SUMS = ("sent", "received", "fees", "refunded", "pending")


@dataclass(frozen=True)
class Audit:
    """What came of an audit: the checks by name, and tables.

    ``violations`` (``VIOLATIONS_SCHEMA``): the findings; ``completeness``: what the input covers; ``lanes``:
    figures of each lane; ``sums``: what was sent, received, paid out of messages (``fees``), refunded and is pending of
    each lane and asset, and ``difference``: sent - received - fees - refunded - pending, as decimal digits; ``abroad``:
    what left a chain for another one and came back, of each asset; ``counts`` (``COUNTS_SCHEMA``): how many findings
    each lane has of a check, verdict and reason, also of those that are not named. ``remarks``: sentences on how it was
    judged.
    """

    checks: dict[str, Check]
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
        return verdict_of(self.checks.values())

    @property
    def holds(self) -> bool:
        """Return whether no check is violated."""
        return self.verdict is not Verdict.FAILED

    def sentence(self, *names: str) -> str:
        """Return the verdict as a sentence; ``names``: of these checks alone."""
        chosen = [self.checks[name] for name in names or self.checks]
        rows = self.counts.filter(pc.is_in(self.counts["check"], pa.array([check.name for check in chosen])))
        return sentence(chosen, [lane_text(lane) or "no lane" for lane in unknown_lanes(rows.to_pylist())])


Runs = Mapping[int, Collection[int]]
"""Of some buckets the numbers of runs."""

Look = Callable[[Known, dict[PieceKey, Before], Runs | None], Mapping[tuple[int, int], Passed]]
"""Passes over buckets: given what is known and, in a second look, the places before pieces and which runs of which
buckets are looked at; returns by bucket and run what each shows."""

LookAtChains = Callable[[Windows], Iterable[Stated]]
"""Looks at the headers and watermarks of all buckets, given what the input covers."""


def audit(
    buckets: Sequence[Callable[[], pa.Table | Iterable[Part]]],
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    stated: Sequence[Callable[[], tuple[pa.Table, pa.Table]]] = (),
    value: Sequence[Callable[[], pa.Table]] = (),
    end: int | None = None,
) -> Audit:
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

    def look(known: Known, before: dict[PieceKey, Before], only: Runs | None) -> Mapping[tuple[int, int], Passed]:
        def one(bucket: int) -> list[Passed]:
            moved = value[bucket]() if value else None
            return pass_over(buckets[bucket](), known, before, limit, None if only is None else only[bucket], moved)

        numbers = range(len(buckets)) if only is None else sorted(only)
        with ThreadPoolExecutor(THREADS) as threads:
            return numbered_runs(numbers, threads.map(one, numbers), only, limit)

    def look_at_chains(windows: Windows) -> Iterable[Stated]:
        with ThreadPoolExecutor(THREADS) as threads:
            return [*threads.map(partial(_stated_of, windows=windows, limit=limit), stated)]

    meet = Here(lambda bucket: buckets[bucket](), _threads)
    return audit_by(look, observed, promises, limit, look_at_chains, meet, end=end)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


def _stated_of(read: Callable[[], tuple[pa.Table, pa.Table]], windows: Windows, limit: int) -> Stated:
    headers, watermarks = read()
    return stated_in(headers, watermarks, windows, limit)


def audit_rows(
    rows: pa.Table,
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    headers: pa.Table | None = None,
    watermarks: pa.Table | None = None,
    value: pa.Table | None = None,
) -> Audit:
    """Check a ledger whose rows, in any order, are one table in memory, and so are its headers, watermarks and
    movements of value; otherwise as ``audit``. Chains whose heights began anew are noticed.

    Columns of the tables may be of other types that hold the same values, and those missing that can be null. Raises
    ``InvalidInput`` for what does not fit.
    """
    in_order = stated_rows(table_of(rows, LEDGER_SCHEMA, "rows"))
    given = (headers, HEADERS_SCHEMA, "headers"), (watermarks, WATERMARKS_SCHEMA, "watermarks")
    chains, marks = (
        schema.empty_table() if table is None else table_of(table, schema, what) for table, schema, what in given
    )
    moved = VALUE_SCHEMA.empty_table() if value is None else table_of(value, VALUE_SCHEMA, "value")
    observed = table_of(observed, OBSERVED_SCHEMA, "observed")
    promises = table_of(promises, PROMISES_SCHEMA, "promises")
    promises = with_restarts(promises, restarted_chains(in_order), NOTICED)
    end = last_time(in_order["time"])
    return audit([lambda: in_order], observed, promises, limit, [lambda: (chains, marks)], [lambda: moved], end)


def last_time(times: pa.ChunkedArray) -> int | None:
    """Return the last of some times, in microseconds, None if none is seen."""
    found: int | None = pc.max(times.cast(pa.int64())).as_py()
    return found


def audit_by(
    look: Look,
    observed: pa.Table,
    promises: pa.Table,
    limit: int = LIMIT,
    look_at_chains: LookAtChains | None = None,
    meet: Meet | None = None,
    end: int | None = None,
) -> Audit:
    """Check a ledger of which ``look`` passes over the buckets, and ``look_at_chains`` over their headers and
    watermarks, wherever they are; ``meet``: lets rows of different buckets meet (None: nothing is answered over lanes,
    and ``back_pressure`` finds nothing); ``end``: the last time of any
    row, in microseconds (None: none has a time); otherwise as ``audit``."""
    known = Known(Windows(observed, end), Promises(promises))
    parts = () if look_at_chains is None else look_at_chains(known.windows)
    stated = stated_together([*parts], known.windows, limit)
    passed = dict(sorted(look(known, {}, None).items())) or {(0, 0): pass_nothing(known)}
    joined = join(pa.concat_tables([each.pieces for each in passed.values()]), known)
    again = set(_runs_of("pieces", joined.again, passed))
    behind = [*zip(_runs_of("pieces", joined.behind, passed), joined.behind.values(), strict=True)]
    again |= {run for run, each in passed.items() if each.asks}
    causal = compare_links(pa.concat_tables([each.links for each in passed.values()]), known.promises)
    again |= {*_runs_of("links", causal.rows, passed)}
    meeting = None if meet is None else meeting_of(passed, known, limit)
    met = Together.of(meeting, meet, limit) if meeting is not None and meet is not None else Together.nothing()
    asked = _candidates(passed.values(), joined, known)
    lanes_asked = {lane for lanes in asked.values() for lane in lanes}
    again |= {run for run, each in passed.items() if lanes_asked and not lanes_asked.isdisjoint(lanes_in(each.lanes))}
    carried = carried_names(each.carried for each in passed.values())
    if carried is None or len(carried.names):
        again |= {run for run, each in passed.items() if pc.sum(each.lanes["open"]).as_py()}
    reached = heights_reached(each.reached for each in passed.values())
    if reached is None or reached:
        again |= {run for run, each in passed.items() if each.waits}
    known = Known(
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
    shared = shared_numbers(asked, [each.numbers for each in passed.values()])
    left = [each for run, each in behind if run not in again]
    return _result([*passed.values()], joined, left, stated, met, shared, undecided_links(causal), known, limit)


def _runs_of(table: str, rows: Iterable[int], passed: Mapping[tuple[int, int], Passed]) -> list[tuple[int, int]]:
    """Return the run of each of some rows, given as positions in the tables of all runs together."""
    runs, ends = list(passed), np.cumsum([getattr(each, table).num_rows for each in passed.values()])
    return [runs[at] for at in np.searchsorted(ends, [*rows], side="right").tolist()]


def _candidates(passed: Iterable[Passed], joined: Joined, known: Known) -> dict[Group, set[Lane]]:
    """Return the groups of lanes that may share their numbers."""
    missing: dict[Lane, int] = {lane: numbers[0] for lane, numbers in joined.missing.items()}
    lacking = pa.concat_tables([each.lanes.select([*LANE, "missing"]) for each in passed])
    lacking = lacking.filter(pc.greater(lacking["missing"], pa.scalar(0, lacking["missing"].type)))
    for lane, count in zip(lanes_in(lacking), lacking["missing"].to_pylist(), strict=True):
        missing[lane] = missing.get(lane, 0) + count
    return candidates(joined.sent, missing, known.promises) if missing else {}


def numbered_runs(
    buckets: Iterable[int], passed: Iterable[list[Passed]], only: Runs | None, limit: int = LIMIT
) -> dict[tuple[int, int], Passed]:
    """Return what runs show by bucket and run, from what the runs of each bucket show (``only``: of these runs), with
    the findings that may be named."""
    gathered = Gathered(limit)
    for bucket, runs in zip(buckets, passed, strict=True):
        numbers = range(len(runs)) if only is None else sorted(only[bucket])
        for number, each in zip(numbers, runs, strict=True):
            gathered.add((bucket, number), each)
    return gathered.runs


def _result(
    passed: list[Passed],
    joined: Joined,
    behind: list[tuple[Lane, Three]],
    stated: Stated,
    met: Together,
    shared: Shared,
    undecided: tuple[pa.Table, pa.Table],
    known: Known,
    limit: int,
) -> Audit:
    lanes = pa.concat_tables([each.lanes for each in passed])
    findings, counts = decided(
        pa.concat_tables([each.findings for each in passed]),
        pa.concat_tables([each.counts for each in passed]),
        lanes,
        known,
    )
    findings, counts = met.without(findings), met.without(counts)
    away = backing(pa.concat_tables([each.abroad for each in passed]), known.windows)
    counts = pa.concat_tables([counts, _each(joined.findings)])
    gaps = shared.findings()
    findings = _unshared(pa.concat_tables([findings, joined.findings]), shared)
    every = [findings, gaps, stated.findings, met.findings, away.findings, undecided[0]]
    violations = shown_findings(pa.concat_tables(every), limit)
    counts = _unshared(counts, shared)
    counts = pa.concat_tables([counts, _each(gaps), stated.counts, met.counts, away.counts, undecided[1]])
    flying = examined_of(lanes, known.promises)
    looked_at = [*(each.examined for each in passed), stated.examined, flying, met.examined, away.examined]
    examined = pa.concat_tables(looked_at)
    lanes = _with_shared(_lanes(lanes, joined, behind), shared)
    sides = pa.concat_tables([each.sides for each in passed])
    return Audit(
        {name: _check(name, counts, examined, violations) for name in CHECK_NAMES},
        violations,
        completeness_of(sides, lanes, known.windows),
        lanes,
        _sums(pa.concat_tables([each.sums for each in passed]), pa.concat_tables([each.fees for each in passed])),
        away.abroad,
        _added_up(counts),
        remarks(lanes, known),
    )


def _added_up(counts: pa.Table) -> pa.Table:
    """Return how many findings each lane has, a row a lane, check, verdict and reason (``COUNTS_SCHEMA``)."""
    found = counts.group_by(COUNTS_SCHEMA.names[:-1]).aggregate([("count", "sum")])
    return found.rename_columns(COUNTS_SCHEMA.names).cast(COUNTS_SCHEMA)


def _unshared(found: pa.Table, shared: Shared) -> pa.Table:
    """Return findings or counts without what is missing on single lanes of those that share their numbers."""
    if not shared.lanes or not found.num_rows:
        return found
    of_lane = np.array([lane in shared.lanes for lane in lanes_in(found)], bool)
    own = np.asarray(pc.and_(pc.equal(found["check"], "gaps"), pc.is_in(found["reason"], pa.array(REPLACED))))
    return found.filter(pa.array(~(of_lane & own)))


def _with_shared(lanes: pa.Table, shared: Shared) -> pa.Table:
    """Return the figures of lanes, in which what is missing of shared numbers is of a lane without a destination."""
    if not shared.lanes:
        return lanes
    rows = lanes.to_pylist()
    for row in rows:
        if lane_of(row) in shared.lanes:
            row |= {"missing": 0, "missing_runs": 0, "missing_runs_inside_windows": 0}
    at = {lane_of(row): row for row in rows}
    for (protocol, source, name), missing in shared.missing.items():
        if len(missing.first):
            lane: Lane = (protocol, source, None, name)
            if lane not in at:
                at[lane] = {**dict(zip(LANE, lane, strict=True)), **dict.fromkeys(FIGURES, 0), **dict.fromkeys(OLDEST)}
                rows.append(at[lane])
            at[lane] |= {"missing": int(missing.size.sum()), "missing_runs": len(missing.first)}
    return pa.Table.from_pylist(rows, lanes.schema).sort_by([(name, "ascending") for name in LANE])


def _check(name: str, counts: pa.Table, examined: pa.Table, violations: pa.Table) -> Check:
    own = counts.filter(pc.equal(counts["check"], name)).group_by(["verdict", "reason"]).aggregate([("count", "sum")])
    reasons = {(row["verdict"], row["reason"]): row["count_sum"] for row in own.to_pylist()}
    looked = examined.filter(pc.equal(examined["check"], name))
    lanes = looked.group_by(list(LANE)).aggregate([]).num_rows
    return _with_reasons(Check(name, pc.sum(looked["count"]).as_py() or 0, lanes, 0, 0), reasons, violations)


def _with_reasons(check: Check, reasons: Mapping[tuple[str, str], int], violations: pa.Table) -> Check:
    named = violations.filter(pc.equal(violations["check"], check.name))
    for verdict in VERDICTS:
        rows = named.filter(pc.equal(named["verdict"], verdict))
        if rows.num_rows:
            break
    first = earliest(rows)
    sizes = rows["magnitude"]
    worst = None
    if sizes.null_count < rows.num_rows:
        worst = plain_rows(rows.slice(int(np.nanargmax(sizes.to_numpy())), 1))[0]
    violated, unknown, noted = (sum(n for (of, _), n in reasons.items() if of == each) for each in VERDICTS)
    in_order = dict(sorted(reasons.items(), key=lambda item: (VERDICTS.index(item[0][0]), item[0][1])))
    check = replace(check, violated=violated, unknown=unknown, noted=noted)
    return replace(check, reasons=in_order, first=first, worst=worst)


def earliest(rows: pa.Table) -> dict[str, Any] | None:
    """Return the earliest of some findings: by time, then by height, then in their order; None of none."""
    if not rows.num_rows:
        return None
    keys = rows.select(["time", "height"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])  # nulls last
    found: dict[str, Any] = plain_rows(rows.slice(order[0].as_py(), 1))[0]
    return found


def with_findings(found: Audit, more: pa.Table, limit: int = LIMIT) -> Audit:
    """Return an audit with more findings, all of which count: ``more`` has the columns of ``VIOLATIONS_SCHEMA`` but for
    ``example``."""
    before = found.violations.select(VIOLATIONS_SCHEMA.names[:-1])
    violations = shown_findings(pa.concat_tables([before, more.cast(before.schema)]), limit)
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


def _lanes(tables: pa.Table, joined: Joined, behind: list[tuple[Lane, Three]]) -> pa.Table:
    """Return the figures of each lane, with what is missing between its pieces or out of order because of others."""
    aggregates = [*((name, "sum") for name in FIGURES), *((name, "min") for name in OLDEST)]
    summed = tables.group_by(list(LANE)).aggregate(aggregates)
    content: dict[str, Any] = {name: summed[name] for name in LANE}
    content |= {name: summed[f"{name}_sum"].to_numpy().copy() for name in FIGURES}
    content |= {name: summed[f"{name}_min"] for name in OLDEST}
    if joined.missing or behind:
        rows = summed.select(list(LANE)).to_pylist()
        at: dict[Lane, int] = {lane_of(row): number for number, row in enumerate(rows)}
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
        total = totals.setdefault(tuple(row[name] for name in keys), dict.fromkeys(SHOWN_SUMS, 0))
        for name in SUMS:
            total[name] += int.from_bytes(row[name], "little")
    for row in fees.to_pylist():
        total = totals.setdefault(tuple(row[name] for name in keys), dict.fromkeys(SHOWN_SUMS, 0))
        paid = int.from_bytes(row["paid"], "little") - int.from_bytes(row["given"], "little")
        if row["of"]:
            total[row["of"]] -= paid
        else:
            total["fees"] += paid
    ordered = sorted(totals.items(), key=lambda item: tuple((name is not None, name or "") for name in item[0]))
    content = {name: pa.array([key[place] for key, _ in ordered], pa.string()) for place, name in enumerate(keys)}
    for name in SHOWN_SUMS:
        content[name] = pa.array([str(total[name]) for _, total in ordered], pa.string())
    left = [str(2 * total["sent"] - sum(total.values())) for _, total in ordered]
    return pa.table(content | {"difference": pa.array(left, pa.string())})


__all__ = [
    "CHECK_NAMES", "NOTICED", "PROMISED", "THREADS", "Audit", "Check", "Look", "LookAtChains", "Runs", "audit",
    "audit_by", "audit_rows", "last_time", "numbered_runs", "with_findings",
]  # fmt: skip
