"""The pass over one bucket: check one run of messages at a time.

A run gives tables that merge with those of other runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.audit.arrays import Array, select_top_findings
from causeway.audit.bucket import BucketMessages
from causeway.audit.causal_links import are_too_many_links, count_links, summarize_links
from causeway.audit.checks.agreement import check_agreement, needs_destination_heights
from causeway.audit.checks.back_pressure import find_dense_ranges
from causeway.audit.checks.causal_order import CausalLinks
from causeway.audit.checks.conservation import check_conservation
from causeway.audit.checks.delivery import (
    are_too_many_heights,
    are_too_many_names,
    check_delivery,
    find_continuations,
    find_reached_heights,
)
from causeway.audit.checks.lane_order import LaneScan, PieceKey, PrecedingPositions, lane_columns, sent_indices
from causeway.audit.checks.message_checks import MESSAGE_CHECKS
from causeway.audit.checks.replies import find_calling_chains
from causeway.audit.columns import NO_HEIGHT, NO_TIME, RowColumns
from causeway.audit.findings import (
    EVIDENCE_COLUMNS,
    VIOLATIONS_SCHEMA,
    CheckResult,
    Finding,
    decode_texts,
    format_magnitudes,
    to_findings_table,
)
from causeway.audit.lane_context import UNDECIDED, LaneContext
from causeway.audit.payments import (
    BACKING_SCHEMA,
    FEES_SCHEMA,
    PaidAmounts,
    collect_fees,
    collect_payments,
    find_paid_messages,
    settle_payments,
)
from causeway.core.text import format_value
from causeway.ledger.parts import READ_COLUMNS, BucketPart, MessageRun, TablePart, split_runs, split_table
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, LedgerEvent

LIMIT = 10_000
"""Default maximum number of first and of worst named findings of one lane, check and reason."""

PENDING_COLUMNS = 1_000
"""Maximum number of undecided rows of one lane, check and run that wait until all buckets are read. A run with more is
checked again."""

MESSAGE_COLUMNS = (*LANE, "index", "message_id")
EVENT_COLUMNS = ("event", "chain", "height", "time", "transaction", "detail", "stated_by", "source_file", "source_row")

FIGURES = (
    *("messages", "sent", "received", "acknowledged", "matched", "open", "unacknowledged"),
    *("sent_out_of_order", "received_out_of_order", "acknowledged_out_of_order"),
    *("missing", "missing_runs", "missing_runs_inside_windows"),
)
"""Figures of a lane."""

OLDEST = ("oldest_open", "oldest_unacknowledged")
"""Send time of the first open and the first unacknowledged message of a lane, where known."""

TALLIES = (
    *("rows", "without_index", "unnamed", "without_height", "without_time", "without_content", "without_amount"),
    *("sent_or_received", "sent_or_received_without_content"),
)
"""Counts of each side of a lane (``lane_loops.tally_rows``)."""

SIDES = ("source", "destination", "elsewhere")

RunKey = TypeVar("RunKey")


def require_limit(limit: object) -> None:
    """Check a number of named findings.

    Args:
        limit: The number.

    Raises:
        InvalidInput: It is no whole number from 1 on.
    """
    if type(limit) is not int or limit < 1:
        raise InvalidInput(f"limit: {format_value(limit)}: must be a whole number from 1 on")


@dataclass(frozen=True)
class RunResult:
    """Result of one run.

    Attributes:
        findings: Findings, as ``VIOLATIONS_SCHEMA`` without ``example``.
        counts: Number of findings by check, verdict, reason and lane.
        examined: Number of messages by check and lane.
        lanes: ``FIGURES`` and ``OLDEST`` by lane.
        sides: ``TALLIES`` and extents by lane and side.
        sums: Amounts by lane and asset, as words.
        pieces: Summary of each piece of a lane (``LaneScan.summary``).
        dense_ranges: Dense ranges (``back_pressure.find_dense_ranges``).
        replies: Chains with responses (``replies.find_calling_chains``).
        fees: Payments (``payments``).
        abroad: Asset backing (``asset_backing``).
        numbers: Sent indices of candidate groups (``lane_order.sent_indices``).
        links: Causal links (``causal_links``).
        carried: Continued messages (``delivery.find_continuations``).
        reached: Heights of destinations (``delivery.find_reached_heights``).
        waits: Time-outs depend on ``reached`` of all runs.
        asks: A finding needs a second pass, after all buckets.
    """

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    lanes: pa.Table
    sides: pa.Table
    sums: pa.Table
    pieces: pa.Table
    dense_ranges: pa.Table
    replies: pa.Table
    fees: pa.Table
    abroad: pa.Table
    numbers: pa.Table
    links: pa.Table
    carried: pa.Table
    reached: pa.Table
    waits: bool
    asks: bool


class PassLimits:
    """Bounds on the causal links, continued names and heights of all runs of a ledger together.

    Above the bounds of the audit, all runs lose them.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_LIMITED, 0)

    def add(self, runs: dict[RunKey, RunResult], key: RunKey) -> None:
        """Count a run that was added to ``runs``."""
        for name, (count, are_too_many, reduced) in _LIMITED.items():
            before, self._counts[name] = self._counts[name], self._counts[name] + count(getattr(runs[key], name))
            if are_too_many(self._counts[name]):
                for each in [key] if are_too_many(before) else runs:
                    runs[each] = replace(runs[each], **{name: reduced(getattr(runs[each], name))})


def _row_of_nulls(table: pa.Table) -> pa.Table:
    """Return one row of nulls in place of any rows, none in place of none."""
    return pa.table([pa.nulls(min(table.num_rows, 1), field.type) for field in table.schema], table.schema)


_LIMITED: dict[str, tuple[Callable[[pa.Table], int], Callable[[int], bool], Callable[[pa.Table], pa.Table]]] = {
    "links": (count_links, are_too_many_links, summarize_links),
    "carried": (attrgetter("num_rows"), are_too_many_names, _row_of_nulls),
    "reached": (attrgetter("num_rows"), are_too_many_heights, _row_of_nulls),
}
"""By table of ``RunResult``: its number of entries, the test for too many, and the reduced table."""


def check_bucket(
    bucket: pa.Table | Iterable[BucketPart],
    known: LaneContext,
    before: dict[PieceKey, PrecedingPositions],
    limit: int = LIMIT,
    only: Collection[int] | None = None,
    value: pa.Table | None = None,
) -> list[RunResult]:
    """Check one bucket.

    Args:
        bucket: Rows of a ledger (``LEDGER_SCHEMA``) in its order, complete for each message: a table, or parts held in
            memory one at a time.
        known: Windows and guarantees; in a second pass also the sendings of each lane.
        before: Positions before pieces, in a second pass.
        limit: Maximum number of named findings of a lane and reason.
        only: Numbers of the runs to check, in a second pass.
        value: Movements of the bucket (``VALUE_SCHEMA``), in any order.

    Returns:
        The result of each run (``parts.split_runs``), and at the end that of movements outside of runs, if any.

    Raises:
        InvalidInput: An event or kind is unknown, or rows are out of ledger order.
    """
    parts = split_table(bucket) if isinstance(bucket, pa.Table) else bucket
    paid = None if value is None or not value.num_rows else collect_payments(value)
    results: dict[int, RunResult] = {}
    runs, limits = 0, PassLimits()
    for number, run in enumerate(split_runs(parts)):
        if only is None or number in only:
            results[number] = check_run(run, known, before, limit, paid)
            limits.add(results, number)
        elif paid is not None and number < max(only):
            find_paid_messages(BucketMessages(RowColumns.of(run), known), paid)
        runs = number + 1
    if value is not None and value.num_rows and (only is None or runs in only):
        results[runs] = check_unattributed(value, paid, known, limit)
    return [*results.values()]


def check_unattributed(value: pa.Table, paid: PaidAmounts | None, known: LaneContext, limit: int = LIMIT) -> RunResult:
    """Check the movements of value outside of the messages of runs.

    Args:
        value: Movements of the bucket (``VALUE_SCHEMA``).
        paid: Payments of the bucket, after a pass over its runs.
        known: Windows and guarantees.
        limit: Maximum number of named findings of a lane and reason.

    Returns:
        A result without rows of messages.
    """
    from causeway.audit.checks.asset_backing import bucket_backing
    from causeway.audit.checks.conservation import find_unattributed_payments

    nothing = replace(empty_result(known), abroad=bucket_backing(value))
    if paid is None:
        return nothing
    found, examined, asks = find_unattributed_payments(paid, known, limit, PENDING_COLUMNS)
    return replace(
        nothing, findings=found.findings, counts=found.counts, examined=examined, fees=collect_fees(paid), asks=asks
    )


def empty_result(known: LaneContext) -> RunResult:
    """Return the result of a run without rows."""
    nothing = pa.table({name: pa.array([], LEDGER_SCHEMA.field(name).type) for name in LEDGER_SCHEMA.names})
    return check_run(MessageRun(nothing.select(READ_COLUMNS), ((TablePart(nothing), 0, 0),)), known, {}, LIMIT, None)


def check_run(
    rows: MessageRun,
    known: LaneContext,
    before: dict[PieceKey, PrecedingPositions],
    limit: int,
    paid: PaidAmounts | None,
) -> RunResult:
    """Check one run.

    Args:
        rows: The run.
        known: Windows and guarantees.
        before: Positions before pieces, in a second pass.
        limit: Maximum number of named findings of a lane and reason.
        paid: Payments of the bucket; those of this run's messages are marked.

    Returns:
        The result of the run.
    """
    bucket = BucketMessages(RowColumns.of(rows), known)
    columns = bucket.columns
    fees = FEES_SCHEMA.empty_table() if paid is None else settle_payments(bucket, paid)
    scan, causal = LaneScan(bucket, before), CausalLinks(bucket)
    results = [check(bucket) for check in (*MESSAGE_CHECKS, check_conservation, check_delivery, check_agreement)]
    results += [scan.order(), scan.gap_check(), causal.check()]
    found = [finding for each in results for finding in each.found if len(finding.rows)]
    return RunResult(
        findings=_named_findings(columns, found, limit),
        counts=_counts(columns, found),
        examined=_examined(columns, results),
        lanes=_figures(bucket, scan),
        sides=_sides(columns),
        sums=_sums(bucket),
        pieces=scan.summary(),
        dense_ranges=find_dense_ranges(bucket),
        replies=find_calling_chains(bucket),
        fees=fees,
        abroad=BACKING_SCHEMA.empty_table(),
        numbers=sent_indices(bucket),
        links=causal.summary(),
        carried=find_continuations(bucket),
        reached=find_reached_heights(bucket),
        waits=needs_destination_heights(bucket),
        asks=any(_has_many_undecided(columns, finding) for finding in found if finding.reason == UNDECIDED),
    )


def _has_many_undecided(columns: RowColumns, finding: Finding) -> bool:
    """Return True if a lane has more undecided rows than the limit."""
    return bool(np.bincount(columns.lane[finding.rows]).max() > PENDING_COLUMNS)


def _named_findings(columns: RowColumns, found: list[Finding], limit: int) -> pa.Table:
    """Return findings as a table, limited by lane and reason."""
    picked = []
    found = [_sort_evidence(columns, finding, limit) for finding in found]
    for finding in found:
        most = PENDING_COLUMNS if finding.reason == UNDECIDED else limit
        first, worst = select_top_findings(columns.lane[finding.rows], finding.magnitude, most)
        picked.append(np.flatnonzero(first | worst))
    tables = [to_findings_table(None)]
    if not found:
        return tables[0]
    every = [finding.rows[chosen] for finding, chosen in zip(found, picked, strict=True)]
    rows = columns.rows.take((*MESSAGE_COLUMNS, *EVENT_COLUMNS), np.concatenate(every))
    begin = 0
    for finding, chosen in zip(found, picked, strict=True):
        count = len(chosen)
        content: dict[str, Any] = {name: rows[name].slice(begin, count) for name in rows.column_names}
        begin += count
        content |= {name: pa.array([getattr(finding, name)] * count) for name in ("check", "verdict", "reason")}
        if not finding.placed:
            content |= dict.fromkeys(EVENT_COLUMNS, pa.nulls(count))
        if finding.from_index is not None:
            content["index"] = pa.array(finding.from_index[chosen])
            content["message_id"] = pa.nulls(count)
        content |= format_magnitudes(np.full(count, np.nan) if finding.magnitude is None else finding.magnitude[chosen])
        content["unit"] = pa.array([finding.unit] * count, pa.string())
        tables.append(to_findings_table(content))
    return pa.concat_tables(tables)


def _sort_evidence(columns: RowColumns, finding: Finding, limit: int) -> Finding:
    """Return a finding with the rows of one message in evidence order (``EVIDENCE_COLUMNS``).

    Only findings above the limit are sorted, so that the first ones are the same for every partition into runs.
    """
    rows, lane = finding.rows, columns.lane[finding.rows]
    if finding.from_index is not None or np.bincount(lane).max() <= limit:
        return finding
    message = columns.message[rows]
    same = np.zeros(len(rows), bool)
    same[1:] = (message[1:] == message[:-1]) & (np.bincount(lane)[lane[1:]] > limit)
    same[:-1] |= same[1:]
    tied = np.flatnonzero(same)
    if not len(tied):
        return finding
    named = columns.rows.take(EVIDENCE_COLUMNS[1:], rows[tied])
    keys = pa.table(
        {"message": pa.array(message[tied]), **{name: decode_texts(named[name]) for name in EVIDENCE_COLUMNS[1:]}}
    )
    order = np.arange(len(rows))
    order[tied] = tied[pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()]
    magnitude = None if finding.magnitude is None else finding.magnitude[order]
    return finding._replace(rows=rows[order], magnitude=magnitude)


def _counts(columns: RowColumns, found: list[Finding]) -> pa.Table:
    tables = [_counted(columns, None)]
    for finding in found:
        lane_counts = np.bincount(columns.lane[finding.rows], minlength=len(columns.lanes))
        tables.append(_counted(columns, lane_counts, finding.check, finding.verdict, finding.reason))
    return pa.concat_tables(tables)


def _examined(columns: RowColumns, checked: list[CheckResult]) -> pa.Table:
    return pa.concat_tables([_counted(columns, None), *(_counted(columns, e.examined, e.check) for e in checked)])


def _counted(
    columns: RowColumns, counts: Array | None, check: str = "", verdict: str = "", reason: str = ""
) -> pa.Table:
    codes = np.zeros(0, np.int64) if counts is None else np.flatnonzero(counts)
    values = np.zeros(0, np.int64) if counts is None else counts[codes].astype(np.int64)
    names = {"check": check, "verdict": verdict, "reason": reason}
    content = {name: pa.array([text] * len(codes), pa.string()) for name, text in names.items()}
    return pa.table(content | lane_columns(columns, codes) | {"count": pa.array(values)})


def _figures(bucket: BucketMessages, scan: LaneScan) -> pa.Table:
    columns = bucket.columns
    lanes = len(columns.lanes)
    one, other, missing = scan.gap_rows()
    inside = bucket.together(one, other, LedgerEvent.SENT)
    named = columns.indexed[columns.starts[:-1]] == 1
    if len(columns.ident):
        named |= columns.ident[columns.starts[:-1]] >= 0
    missing_counts = np.zeros(lanes, np.uint64)
    np.add.at(missing_counts, columns.lane[one], missing)
    figures = (
        bucket.count(named),
        bucket.count(bucket.has(LedgerEvent.SENT)),
        bucket.total(bucket.messages.receives),
        bucket.count(bucket.has(LedgerEvent.ACKNOWLEDGED)),
        bucket.count(bucket.has(LedgerEvent.SENT) & bucket.has(LedgerEvent.RECEIVED)),
        bucket.count(bucket.is_open),
        bucket.count(bucket.is_unacknowledged),
        *(bucket.count(scan.out_of_order(number)) for number in range(3)),
        missing_counts,
        np.bincount(columns.lane[one], minlength=lanes),
        np.bincount(columns.lane[one[inside]], minlength=lanes),
    )
    content = {name: pa.array(np.asarray(values)) for name, values in zip(FIGURES, figures, strict=True)}
    for name, open_messages in zip(OLDEST, (bucket.is_open, bucket.is_unacknowledged), strict=True):
        times = bucket.first_sent(open_messages)
        content[name] = pa.array(times, pa.timestamp("us", "UTC"), mask=times == NO_TIME)
    return pa.table(lane_columns(columns, np.arange(lanes)) | content)


def _sides(columns: RowColumns) -> pa.Table:
    from causeway.audit.checks.lane_loops import SIDES as SIDE_COUNT
    from causeway.audit.checks.lane_loops import TALLIED, tally_rows

    lanes = len(columns.lanes)
    counts = np.zeros((lanes, SIDE_COUNT, TALLIED), np.int64)
    heights = np.zeros((lanes, SIDE_COUNT, 2), np.uint64)
    heights[:, :, 0] = NO_HEIGHT
    times = np.full((lanes, SIDE_COUNT, 2), NO_TIME, np.int64)
    times[:, :, 1] = np.iinfo(np.int64).min
    tally_rows(
        *(columns.lane, columns.event, columns.indexed, columns.ident, columns.height, columns.time),
        *(columns.has_content, columns.has_amount, counts, heights, times),
    )
    lane, side = np.nonzero(counts[:, :, 0])
    content = {"side": pa.array(np.array(SIDES, dtype=object)[side], pa.string())}
    content |= {name: pa.array(counts[lane, side, place]) for place, name in enumerate(TALLIES)}
    no_height = heights[lane, side, 0] == NO_HEIGHT
    no_time = times[lane, side, 0] == NO_TIME
    for place, name in enumerate(("first", "last")):
        content[f"{name}_height"] = pa.array(heights[lane, side, place], mask=no_height)
        content[f"{name}_time"] = pa.array(times[lane, side, place], mask=no_time)
    return pa.table(lane_columns(columns, lane) | content)


def _sums(bucket: BucketMessages) -> pa.Table:
    columns, messages = bucket.columns, bucket.messages
    names = pa.array(columns.assets, pa.string())
    content = lane_columns(columns, messages.sum_lane) | {"asset": names.take(pa.array(messages.sum_asset))}
    for place, name in enumerate(("sent", "received", "refunded", "pending")):
        words = np.ascontiguousarray(messages.sums[:, place, :])
        content[name] = pa.FixedSizeBinaryArray.from_buffers(pa.binary(40), len(words), [None, pa.py_buffer(words)])
    return pa.table(content)


__all__ = [
    "FIGURES",
    "LIMIT",
    "SIDES",
    "TALLIES",
    "VIOLATIONS_SCHEMA",
    "RunResult",
    "check_bucket",
    "check_run",
    "check_unattributed",
]  # fmt: skip
