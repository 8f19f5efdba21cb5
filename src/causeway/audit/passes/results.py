"""What all runs of a ledger show, with no more of their findings than may be named.

Findings that are decided after all buckets were read: a single run does not show their verdict.

Each waits under a reason of its own (``known``). Whether a message was sent is decided of each row, whether a side of a
lane was recorded at all, of the lane.

Completeness: what the input shows of each lane, at its source, at its destination and elsewhere.

What chains state of themselves: headers that follow each other, and watermarks that never fall.

A bucket has whole segments of chains and lanes (``ledger.chain_order``). In each the neighbours in one segment are
compared; the rows at the ends of segments go on, and together those of all buckets are compared over the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.arrays import Array, Ints, select_top_findings
from causeway.audit.checks.headers import HEADER_ENDS, check_headers, headers_as_lanes
from causeway.audit.checks.watermarks import WATERMARK_ENDS, check_watermarks, compare_segment_ends
from causeway.audit.columns import NO_TIME, Bools
from causeway.audit.findings import (
    COUNTS_SCHEMA,
    EVIDENCE_COLUMNS,
    NOTED,
    UNKNOWN,
    VIOLATED,
    VIOLATIONS_SCHEMA,
    count_rows,
    to_findings_table,
)
from causeway.audit.lane_context import (
    OVERDUE_UNDECIDED,
    PAID_NOT_SENT,
    RECEIPT_NOT_COVERED,
    RECEIPT_UNDECIDED,
    UNDECIDED,
    UNDECIDED_PAID,
    LaneContext,
    unsent_reason,
    unsent_verdict,
)
from causeway.audit.passes.bucket_pass import LIMIT, SIDES, TALLIES, PassLimits, RunResult
from causeway.ledger.encodings import NameCodes, rank_names
from causeway.ledger.row_order import number_lanes, sort_headers, sort_watermarks
from causeway.ledger.schema import LANE, LedgerEvent
from causeway.ledger.windows import ObservedWindowTable, table_lanes

__all__ = ["CHECK_NAMES", "PartialResults", "decide_findings", "select_findings"]

CHECK_NAMES = (
    *("delivery", "exactly_once", "authenticity", "agreement", "order", "gaps", "causality", "causal_order"),
    *("finality", "answers", "answers_without_request", "conservation", "back_pressure", "watermarks", "headers"),
)
"""The checks, in the order in which they are shown."""

VERDICTS = (VIOLATED, UNKNOWN, NOTED)
"""The verdicts of findings, in the order in which they are shown."""

MIN_GATHERED = 1 << 18
"""So many findings are gathered before those that cannot be named are left out."""


@dataclass
class PartialResults:
    """What runs show, by bucket and run. ``limit``: how many findings of one lane, check and reason are named.

    What waits for a decision is kept: with the others it will be among those of its reason.
    """

    limit: int = LIMIT
    runs: dict[tuple[int, int], RunResult] = field(default_factory=dict)
    _rows: int = 0
    _most: int = field(default_factory=lambda: MIN_GATHERED)
    _limits: PassLimits = field(default_factory=PassLimits)

    def add(self, key: tuple[int, int], passed: RunResult) -> None:
        """Add what a run shows."""
        self.runs[key] = passed
        self._rows += passed.findings.num_rows
        if self._rows > self._most:
            self._leave_out()
        self._limits.add(self.runs, key)

    def _leave_out(self) -> None:
        keys = [key for key, passed in self.runs.items() if passed.findings.num_rows]
        every = pa.concat_tables([self.runs[key].findings for key in keys])
        kept = np.asarray(pc.is_in(every["reason"], value_set=pa.array([UNDECIDED, UNDECIDED_PAID]))).copy()
        order, first, worst = _first_and_worst(every, self.limit)
        kept[order[first | worst]] = True
        ends = np.cumsum([self.runs[key].findings.num_rows for key in keys])
        for key, begin, end in zip(keys, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            own = np.flatnonzero(kept[begin:end])
            if len(own) < end - begin:
                passed = self.runs[key]
                self.runs[key] = replace(passed, findings=passed.findings.take(pa.array(own)))
        self._rows = int(kept.sum())
        self._most = max(MIN_GATHERED, 2 * self._rows)


def select_findings(findings: pa.Table, limit: int) -> pa.Table:
    """Return findings in order (``VIOLATIONS_SCHEMA``), so many of each lane, check and reason, and as which they are
    there."""
    order, first, worst = _first_and_worst(findings, limit)
    names = np.array(["", "first", "worst", "both"], dtype=object)[first + 2 * worst]
    kept = np.flatnonzero(first | worst)
    found = findings.take(pa.array(order[kept]))
    example = pa.array(names[kept], pa.string())
    return found.append_column(VIOLATIONS_SCHEMA.field("example"), example).cast(VIOLATIONS_SCHEMA)


def _first_and_worst(findings: pa.Table, limit: int) -> tuple[Ints, Bools, Bools]:
    """Return the order of findings, and in it which ones are among the first of their lane, check and reason, and which
    among the worst."""
    check = NameCodes(CHECK_NAMES).codes(findings["check"]).astype(np.int64)
    _, lanes = number_lanes(findings)
    reason = rank_names(findings["reason"]).astype(np.int64)
    violated = NameCodes(VERDICTS).codes(findings["verdict"]).astype(np.int64)
    keys = pa.table(
        {
            "check": pa.array(check),
            "verdict": pa.array(violated),
            "reason": pa.array(reason),
            "of": pa.array(lanes),
            **{name: findings[name] for name in EVIDENCE_COLUMNS},
            "magnitude": findings["magnitude"],
        }
    )
    order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
    groups = np.column_stack((check, violated, reason, lanes))[order]
    group: Array = np.zeros(len(order), np.int64)
    group[1:] = np.cumsum((np.diff(groups, axis=0) != 0).any(axis=1))
    magnitude = findings["magnitude"].fill_null(np.nan).to_numpy()[order]
    first, worst = select_top_findings(group, magnitude, limit)
    return order, first, worst


def decide_findings(
    findings: pa.Table, counts: pa.Table, lanes: pa.Table, known: LaneContext
) -> tuple[pa.Table, pa.Table]:
    """Return findings and counts in which everything is decided.

    Args:
        findings, counts: of all runs (``Passed``).
        lanes: the figures of lanes of each run, which show what was recorded of a lane.
        known: what lanes sent, too.
    """
    findings, counts = _sendings(findings, counts, known)
    findings, counts = (_overdue(found, lanes) for found in (findings, counts))
    findings, counts = (_receipts(found, lanes) for found in (findings, counts))
    return findings, counts


def _sendings(findings: pa.Table, counts: pa.Table, known: LaneContext) -> tuple[pa.Table, pa.Table]:
    """Return findings and counts in which it is decided of messages that no row shows as sent why none does."""
    undecided = pa.array([UNDECIDED, UNDECIDED_PAID])
    waits = pc.is_in(findings["reason"], value_set=undecided)
    waiting = findings.filter(waits)
    if not waiting.num_rows:
        return findings, counts
    lanes, lane = number_lanes(waiting)
    index, time = waiting["index"], waiting["time"].cast(pa.int64())
    reasons = unsent_reason(
        *(known, [(a, b, c, d) for a, b, c, d in lanes], lane, np.asarray(index.is_valid())),
        *(index.fill_null(0).to_numpy(), time.fill_null(int(NO_TIME)).to_numpy()),
    )
    verdicts = np.array([unsent_verdict(reason) for reason in reasons.tolist()], object)
    paid = np.asarray(pc.equal(waiting["reason"], UNDECIDED_PAID))
    reasons[paid & (verdicts == VIOLATED)] = PAID_NOT_SENT
    every = np.ones(waiting.num_rows, bool)
    waiting = _replaced(waiting, every, reason=reasons, verdict=verdicts)
    found = waiting.group_by(["check", "verdict", "reason", *LANE]).aggregate([([], "count_all")])
    found = found.rename_columns({"count_all": "count"}).select(counts.column_names).cast(counts.schema)
    counted = counts.filter(pc.invert(pc.is_in(counts["reason"], value_set=undecided)))
    return pa.concat_tables([findings.filter(pc.invert(waits)), waiting]), pa.concat_tables([counted, found])


def _overdue(found: pa.Table, lanes: pa.Table) -> pa.Table:
    """Return findings or counts in which it is decided of overdue messages whether their lane has any end at all:
    without one, its other side was not recorded."""
    waits = _waits(found, OVERDUE_UNDECIDED)
    if not waits.any():
        return found
    ends = _of_lanes(found, lanes, "received", "acknowledged")[waits]
    reasons, verdicts = np.where(ends, "overdue", "ends_not_recorded"), np.where(ends, VIOLATED, UNKNOWN)
    return _replaced(found, waits, reason=reasons, verdict=verdicts)


def _receipts(found: pa.Table, lanes: pa.Table) -> pa.Table:
    """Return findings or counts in which it is decided of acknowledged messages without arrival, of which no window
    has arrivals, whether their lane has any: without one, its destination was not recorded."""
    waits = _waits(found, RECEIPT_UNDECIDED)
    if not waits.any():
        return found
    arrives = _of_lanes(found, lanes, "received")
    named = _replaced(found, waits, reason=np.full(int(waits.sum()), RECEIPT_NOT_COVERED))
    return named.filter(pa.array(~waits | arrives))


def _waits(found: pa.Table, reason: str) -> Bools:
    """Return a mask of the findings or counts with a reason."""
    return np.asarray(pc.equal(found["reason"], reason))


def _of_lanes(found: pa.Table, lanes: pa.Table, *figures: str) -> Bools:
    """Return a mask of the findings or counts whose lane has a nonzero value in one of these figures."""
    shown = {lane for name in figures for lane in table_lanes(lanes.filter(pc.greater(lanes[name], 0)))}
    names, codes = number_lanes(found)
    return np.array([lane in shown for lane in names], bool)[codes]


def _replaced(found: pa.Table, rows: Bools, **values: np.ndarray) -> pa.Table:
    """Return findings or counts with other texts in some rows of columns."""
    for name, texts in values.items():
        column = np.array(found[name].to_pylist(), object)
        column[rows] = texts
        place = found.schema.get_field_index(name)
        found = found.set_column(place, found.schema.field(place), pa.array(column.tolist(), pa.string()))
    return found


_TIME = pa.timestamp("us", "UTC")

COMPLETENESS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        pa.field("side", pa.string(), nullable=False),
        pa.field("chain", pa.string()),
        pa.field("windows", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in TALLIES),
        pa.field("first_height", pa.uint64()),
        pa.field("last_height", pa.uint64()),
        pa.field("first_time", _TIME),
        pa.field("last_time", _TIME),
        pa.field("missing", pa.uint64(), nullable=False),
        pa.field("missing_runs", pa.int64(), nullable=False),
        pa.field("missing_runs_inside_windows", pa.int64(), nullable=False),
        pa.field("one_sided", pa.bool_(), nullable=False),
    ]
)
"""One row a lane and ``side``: ``source`` (sent, committed, acknowledged, timed out, collected), ``destination``
(received, executed, answered, rejected), or ``elsewhere``; a side without rows has none.

``chain``: the chain on that side; ``windows``: how many windows of it there are, put together where they touch.
``rows``, and of them those ``without_...``; ``unnamed``: with neither index nor ``message_id``; ``sent_or_received``:
rows that are compared by content. ``missing``, in so many ``missing_runs``: indices of a numbered lane that were not
seen as sent between the first and the last one that was. ``one_sided``: the other end of the lane has no rows. What is
in no lane (source, destination and lane are null) has no ends."""

_MISSING = ("missing", "missing_runs", "missing_runs_inside_windows")


def build_completeness(sides: pa.Table, lanes: pa.Table, windows: ObservedWindowTable) -> pa.Table:
    """Return the table ``completeness``.

    Args:
        sides: counts and extents of each lane and side, of each bucket.
        lanes: figures of each lane.
        windows: what the input covers.
    """
    extents = [
        (f"{end}_{what}", how) for end, how in (("first", "min"), ("last", "max")) for what in ("height", "time")
    ]
    found = sides.group_by([*LANE, "side"]).aggregate([*((name, "sum") for name in TALLIES), *extents])
    # Lanes have numbers in the order of their names.
    names, codes = number_lanes(pa.concat_tables([found.select(LANE), lanes.select(LANE)]))
    lane, of_figures = codes[: len(found)], codes[len(found) :]
    side = NameCodes(SIDES).codes(found["side"])
    order = np.lexsort((side, lane))
    found, lane, side = found.take(pa.array(order)), lane[order], side[order]
    content: dict[str, Any] = {name: found[name] for name in (*LANE, "side")}
    content |= {name: found[f"{name}_sum"] for name in TALLIES}
    content |= {name: found[f"{name}_{how}"] for name, how in extents}
    nobody = pa.nulls(len(found), pa.string())
    at_source, at_destination = (pa.array(side == SIDES.index(name)) for name in SIDES[:2])
    content["chain"] = pc.if_else(at_source, found["source"], pc.if_else(at_destination, found["destination"], nobody))
    counts = np.zeros(len(found), np.int64)
    for row, (chain, number, of_side) in enumerate(
        zip(content["chain"].to_pylist(), lane.tolist(), side.tolist(), strict=True)
    ):
        one, two, three, four = names[number]
        event = LedgerEvent.SENT if of_side == 0 else LedgerEvent.RECEIVED
        counts[row] = windows.of(chain, (one, two, three, four), event.value).count
    content["windows"] = counts
    for name in _MISSING:
        figures = lanes[name].to_numpy()
        of_lane = np.zeros(len(names), figures.dtype)
        of_lane[of_figures] = figures
        content[name] = np.where(side == 0, of_lane[lane], figures.dtype.type(0))
    has = np.zeros((len(names), len(SIDES)), bool)
    has[lane, side] = True
    in_lane = np.zeros(len(found), bool)
    for name in LANE[1:]:
        in_lane |= np.asarray(found[name].is_valid())
    content["one_sided"] = in_lane & (side < 2) & ~has[lane, np.where(side == 0, 1, 0)]
    columns = [
        each if isinstance(each := content[field.name], pa.ChunkedArray | pa.Array) else pa.array(each)
        for field in COMPLETENESS_SCHEMA
    ]
    return pa.table(columns, COMPLETENESS_SCHEMA.names).cast(COMPLETENESS_SCHEMA).combine_chunks()


@dataclass(frozen=True)
class ChainAssertions:
    """What headers and watermarks show. ``findings``, ``counts``, ``examined``: as of ``Passed``, the source of a
    chain's headers being the chain; ``headers``, ``watermarks``: those at the ends of segments."""

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    headers: pa.Table
    watermarks: pa.Table


NO_ASSERTIONS = ChainAssertions(
    to_findings_table(None),
    COUNTS_SCHEMA.empty_table(),
    COUNTS_SCHEMA.empty_table(),
    HEADER_ENDS.empty_table(),
    WATERMARK_ENDS.empty_table(),
)
"""Of no headers and no watermarks."""


def check_chain_assertions(
    headers: pa.Table, watermarks: pa.Table, windows: ObservedWindowTable, limit: int = LIMIT
) -> ChainAssertions:
    """Check what one bucket has (``HEADERS_SCHEMA``, ``WATERMARKS_SCHEMA``).

    ``windows``: what the input covers; ``limit``: how many findings of a chain or lane and reason are named.
    """
    headers, watermarks = sort_headers(headers), sort_watermarks(watermarks)
    one, other = check_headers(headers, windows, limit), check_watermarks(watermarks, limit)
    return ChainAssertions(
        pa.concat_tables([one.findings, other.findings]),
        pa.concat_tables([one.counts, other.counts]),
        pa.concat_tables([count_rows("headers", headers_as_lanes(headers)), count_rows("watermarks", watermarks)]),
        one.ends,
        other.ends,
    )


def merge_assertions(
    parts: Sequence[ChainAssertions], windows: ObservedWindowTable, limit: int = LIMIT
) -> ChainAssertions:
    """Return what all buckets show, in whatever order they are given, and what lies over the cuts between segments."""
    every = [NO_ASSERTIONS, *parts]
    headers = sort_headers(_joined([part.headers for part in every]))
    over = [check_headers(headers, windows, limit, over_cuts=True)]
    over.append(compare_segment_ends(_joined([part.watermarks for part in every]), limit))
    return ChainAssertions(
        pa.concat_tables([*(part.findings for part in every), *(one.findings for one in over)]),
        pa.concat_tables([*(part.counts for part in every), *(one.counts for one in over)]),
        pa.concat_tables([part.examined for part in every]),
        NO_ASSERTIONS.headers,
        NO_ASSERTIONS.watermarks,
    )


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries()
