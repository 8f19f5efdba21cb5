"""Merge the results of all runs: findings, verdicts, completeness and chain assertions.

Some findings are undecided until all buckets are read, and have a reason of their own (``lane_context``). A message's
sending is decided by row; the recording of a lane's side is decided by lane. Headers and watermarks are compared within
segments by bucket; rows at segment ends are then compared across buckets. Only findings within the limits are kept.
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
"""The checks, in display order."""

VERDICTS = (VIOLATED, UNKNOWN, NOTED)
"""The verdicts of findings, in display order."""

MIN_GATHERED = 1 << 18
"""Number of findings before the excess over the limits is dropped."""


@dataclass
class PartialResults:
    """Results by bucket and run; undecided findings are all kept.

    Attributes:
        limit: Maximum number of named findings of one lane, check and reason.
        runs: Results by (bucket, run).
    """

    limit: int = LIMIT
    runs: dict[tuple[int, int], RunResult] = field(default_factory=dict)
    _rows: int = 0
    _most: int = field(default_factory=lambda: MIN_GATHERED)
    _limits: PassLimits = field(default_factory=PassLimits)

    def add(self, key: tuple[int, int], passed: RunResult) -> None:
        """Add the result of a run."""
        self.runs[key] = passed
        self._rows += passed.findings.num_rows
        if self._rows > self._most:
            self._drop_excess()
        self._limits.add(self.runs, key)

    def _drop_excess(self) -> None:
        keys = [key for key, passed in self.runs.items() if passed.findings.num_rows]
        every = pa.concat_tables([self.runs[key].findings for key in keys])
        retained = np.asarray(pc.is_in(every["reason"], value_set=pa.array([UNDECIDED, UNDECIDED_PAID]))).copy()
        order, first, worst = _first_and_worst(every, self.limit)
        retained[order[first | worst]] = True
        ends = np.cumsum([self.runs[key].findings.num_rows for key in keys])
        for key, begin, end in zip(keys, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            own = np.flatnonzero(retained[begin:end])
            if len(own) < end - begin:
                passed = self.runs[key]
                self.runs[key] = replace(passed, findings=passed.findings.take(pa.array(own)))
        self._rows = int(retained.sum())
        self._most = max(MIN_GATHERED, 2 * self._rows)


def select_findings(findings: pa.Table, limit: int) -> pa.Table:
    """Sort findings and select the first and the worst of each lane, check and reason.

    Args:
        findings: Findings, as ``VIOLATIONS_SCHEMA`` without ``example``.
        limit: Maximum number of first and of worst findings.

    Returns:
        Findings (``VIOLATIONS_SCHEMA``); ``example`` says "first", "worst" or "both".
    """
    order, first, worst = _first_and_worst(findings, limit)
    names = np.array(["", "first", "worst", "both"], dtype=object)[first + 2 * worst]
    chosen = np.flatnonzero(first | worst)
    found = findings.take(pa.array(order[chosen]))
    example = pa.array(names[chosen], pa.string())
    return found.append_column(VIOLATIONS_SCHEMA.field("example"), example).cast(VIOLATIONS_SCHEMA)


def _first_and_worst(findings: pa.Table, limit: int) -> tuple[Ints, Bools, Bools]:
    """Return the order of findings, and masks in it of the first and the worst of each group."""
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
    """Decide the undecided findings and counts.

    Args:
        findings: Findings of all runs.
        counts: Counts of all runs.
        lanes: Figures of lanes of all runs, to tell unrecorded sides.
        known: Windows, guarantees and the sendings of lanes.

    Returns:
        The decided findings and counts.
    """
    findings, counts = _decide_unsent(findings, counts, known)
    findings, counts = (_decide_overdue(found, lanes) for found in (findings, counts))
    findings, counts = (_decide_receipts(found, lanes) for found in (findings, counts))
    return findings, counts


def _decide_unsent(findings: pa.Table, counts: pa.Table, known: LaneContext) -> tuple[pa.Table, pa.Table]:
    """Decide the reason of messages without any sent row."""
    undecided = pa.array([UNDECIDED, UNDECIDED_PAID])
    is_undecided = pc.is_in(findings["reason"], value_set=undecided)
    pending = findings.filter(is_undecided)
    if not pending.num_rows:
        return findings, counts
    lanes, lane = number_lanes(pending)
    index, time = pending["index"], pending["time"].cast(pa.int64())
    reasons = unsent_reason(
        *(known, [(a, b, c, d) for a, b, c, d in lanes], lane, np.asarray(index.is_valid())),
        *(index.fill_null(0).to_numpy(), time.fill_null(int(NO_TIME)).to_numpy()),
    )
    verdicts = np.array([unsent_verdict(reason) for reason in reasons.tolist()], object)
    paid = np.asarray(pc.equal(pending["reason"], UNDECIDED_PAID))
    reasons[paid & (verdicts == VIOLATED)] = PAID_NOT_SENT
    every = np.ones(pending.num_rows, bool)
    pending = _replace_texts(pending, every, reason=reasons, verdict=verdicts)
    found = pending.group_by(["check", "verdict", "reason", *LANE]).aggregate([([], "count_all")])
    found = found.rename_columns({"count_all": "count"}).select(counts.column_names).cast(counts.schema)
    counted = counts.filter(pc.invert(pc.is_in(counts["reason"], value_set=undecided)))
    return pa.concat_tables([findings.filter(pc.invert(is_undecided)), pending]), pa.concat_tables([counted, found])


def _decide_overdue(found: pa.Table, lanes: pa.Table) -> pa.Table:
    """Decide overdue messages.

    A lane without any end means that its other side was not recorded.
    """
    undecided = _has_reason(found, OVERDUE_UNDECIDED)
    if not undecided.any():
        return found
    ends = _lanes_with(found, lanes, "received", "acknowledged")[undecided]
    reasons, verdicts = np.where(ends, "overdue", "ends_not_recorded"), np.where(ends, VIOLATED, UNKNOWN)
    return _replace_texts(found, undecided, reason=reasons, verdict=verdicts)


def _decide_receipts(found: pa.Table, lanes: pa.Table) -> pa.Table:
    """Decide acknowledged messages without arrival outside of arrival windows.

    A lane without any arrival means that its destination was not recorded.
    """
    undecided = _has_reason(found, RECEIPT_UNDECIDED)
    if not undecided.any():
        return found
    arrives = _lanes_with(found, lanes, "received")
    named = _replace_texts(found, undecided, reason=np.full(int(undecided.sum()), RECEIPT_NOT_COVERED))
    return named.filter(pa.array(~undecided | arrives))


def _has_reason(found: pa.Table, reason: str) -> Bools:
    """Return a mask of findings or counts with a reason."""
    return np.asarray(pc.equal(found["reason"], reason))


def _lanes_with(found: pa.Table, lanes: pa.Table, *figures: str) -> Bools:
    """Return a mask of findings or counts whose lane has a nonzero value in one of some figures."""
    shown = {lane for name in figures for lane in table_lanes(lanes.filter(pc.greater(lanes[name], 0)))}
    names, codes = number_lanes(found)
    return np.array([lane in shown for lane in names], bool)[codes]


def _replace_texts(found: pa.Table, rows: Bools, **values: np.ndarray) -> pa.Table:
    """Replace texts of columns in some rows."""
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
"""One row for each lane and ``side``: ``source`` (sent, committed, acknowledged, timed out, collected), ``destination``
(received, executed, answered, rejected), or ``elsewhere``; a side without rows has none.

``chain``: chain of that side; ``windows``: number of its merged windows. ``rows``, and of these the ``without_...``
ones; ``unnamed``: without index and ``message_id``; ``sent_or_received``: rows compared by content. ``missing``, in
``missing_runs``: unsent indices of a numbered lane between the first and the last sent one. ``one_sided``: the other
side of the lane has no rows. Rows outside of lanes (source, destination and lane are null) have no sides."""

_MISSING = ("missing", "missing_runs", "missing_runs_inside_windows")


def build_completeness(sides: pa.Table, lanes: pa.Table, windows: ObservedWindowTable) -> pa.Table:
    """Build the table ``completeness``.

    Args:
        sides: Counts and extents of each lane and side, of all runs.
        lanes: Figures of each lane.
        windows: Windows that the input covers.

    Returns:
        One row for each lane and side (``COMPLETENESS_SCHEMA``).
    """
    extents = [
        (f"{end}_{extent}", function)
        for end, function in (("first", "min"), ("last", "max"))
        for extent in ("height", "time")
    ]
    found = sides.group_by([*LANE, "side"]).aggregate([*((name, "sum") for name in TALLIES), *extents])
    # Lane numbers are in the order of lane names.
    names, codes = number_lanes(pa.concat_tables([found.select(LANE), lanes.select(LANE)]))
    lane, of_figures = codes[: len(found)], codes[len(found) :]
    side = NameCodes(SIDES).codes(found["side"])
    order = np.lexsort((side, lane))
    found, lane, side = found.take(pa.array(order)), lane[order], side[order]
    content: dict[str, Any] = {name: found[name] for name in (*LANE, "side")}
    content |= {name: found[f"{name}_sum"] for name in TALLIES}
    content |= {name: found[f"{name}_{function}"] for name, function in extents}
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
    """Results of headers and watermarks.

    Attributes:
        findings: Findings, as of ``RunResult``; the source of a chain's headers is the chain.
        counts: Number of findings, as of ``RunResult``.
        examined: Number of examined rows, as of ``RunResult``.
        headers: Headers at segment ends.
        watermarks: Watermarks at segment ends.
    """

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
"""Result without headers and watermarks."""


def check_chain_assertions(
    headers: pa.Table, watermarks: pa.Table, windows: ObservedWindowTable, limit: int = LIMIT
) -> ChainAssertions:
    """Check the headers and watermarks of one bucket.

    Args:
        headers: Headers (``HEADERS_SCHEMA``).
        watermarks: Watermarks (``WATERMARKS_SCHEMA``).
        windows: Windows that the input covers.
        limit: Maximum number of named findings of a chain or lane and reason.

    Returns:
        The results, with the rows at segment ends.
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
    """Merge the results of all buckets in any order, and compare rows across segment ends."""
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
