"""The pass over one bucket: from its sorted rows, a run of messages at a time, to what they show, as tables that are
put together with others'."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from causeway.ledger.parts import READ_COLUMNS, BucketPart, MessageRun, TablePart, split_runs, split_table
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, LedgerEvent

LIMIT = 10_000
"""So many findings of one lane, check and reason are named, from the first on, and as many of the worst."""

PENDING_COLUMNS = 1_000
"""So many rows of one lane, check and run that can be judged when all buckets were seen are kept until then; a run that
has more is looked at again."""

MESSAGE_CHECKS_BY_KIND = (*LANE, "index", "message_id")
ROW_CHECKS = ("event", "chain", "height", "time", "transaction", "detail", "stated_by", "source_file", "source_row")

FIGURES = (
    *("messages", "sent", "received", "acknowledged", "matched", "open", "unacknowledged"),
    *("sent_out_of_order", "received_out_of_order", "acknowledged_out_of_order"),
    *("missing", "missing_runs", "missing_runs_inside_windows"),
)
"""Figures of a lane."""

OLDEST = ("oldest_open", "oldest_unacknowledged")
"""When the first message of a lane was sent that is open, or not acknowledged, of those whose sending has a time."""

TALLIES = (
    *("rows", "without_index", "unnamed", "without_height", "without_time", "without_content", "without_amount"),
    *("sent_or_received", "sent_or_received_without_content"),
)
"""What is counted of each side of a lane (``lane_loops.tally``)."""

SIDES = ("source", "destination", "elsewhere")

RunKey = TypeVar("RunKey")


@dataclass(frozen=True)
class RunResult:
    """What one run shows. ``findings``: as ``VIOLATIONS_SCHEMA`` without ``example``; ``counts``: how many there are
    of a check, verdict, reason and lane; ``examined``: messages of a check and lane; ``lanes``: ``FIGURES`` and
    ``OLDEST``; ``sides``: ``TALLIES`` and extents; ``sums``: of value, as hexadecimal words; ``pieces``: see ``Along``.
    ``crowds``: see ``back_pressure``; ``replies``: see ``answering``; ``fees``: see ``value``; ``abroad``: see
    ``backing``; ``numbers``: see ``numbering``; ``links``: see ``causal_links``; ``carried``: see ``carrying``;
    ``reached``: see ``reached``. ``waits``: whether time-outs wait for ``reached`` of all runs; ``asks``: whether
    something can be judged only in a second look, when all buckets were seen.
    """

    findings: pa.Table
    counts: pa.Table
    examined: pa.Table
    lanes: pa.Table
    sides: pa.Table
    sums: pa.Table
    pieces: pa.Table
    crowds: pa.Table
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
    """Bounds the causal links, the names of continued messages and the heights that the runs of a ledger keep together.

    If there are more than the audit compares, all runs lose them.
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
    """Return one row of nulls in the place of rows, nothing in the place of none."""
    return pa.table([pa.nulls(min(table.num_rows, 1), field.type) for field in table.schema], table.schema)


_LIMITED: dict[str, tuple[Callable[[pa.Table], int], Callable[[int], bool], Callable[[pa.Table], pa.Table]]] = {
    "links": (count_links, are_too_many_links, summarize_links),
    "carried": (attrgetter("num_rows"), are_too_many_names, _row_of_nulls),
    "reached": (attrgetter("num_rows"), are_too_many_heights, _row_of_nulls),
}
"""By table of ``Passed``: how many entries it has, whether so many are too many, and the table without them."""


def check_bucket(
    bucket: pa.Table | Iterable[BucketPart],
    known: LaneContext,
    before: dict[PieceKey, PrecedingPositions],
    limit: int = LIMIT,
    only: Collection[int] | None = None,
    value: pa.Table | None = None,
) -> list[RunResult]:
    """Check one bucket, and return what each run of its messages (``parts.runs_of``) shows, and after them what its
    movements of value show beside, if there are any.

    Args:
        bucket: rows of a ledger (``LEDGER_SCHEMA``), in its order: all of each message that it has any of. In parts,
            of which one at a time is in memory, or a whole table.
        known: windows and promises; in a second look also what each lane sent.
        before: in a second look, the places before pieces.
        limit: how many findings of a lane and reason are named.
        only: in a second look, the numbers of the runs that are looked at; the result has these alone.
        value: movements of the bucket (``VALUE_SCHEMA``), in any order.

    Raises:
        InvalidInput: an event or kind has no known name, or rows are not in the order of the ledger.
    """
    parts = split_table(bucket) if isinstance(bucket, pa.Table) else bucket
    paid = None if value is None or not value.num_rows else collect_payments(value)
    passed: dict[int, RunResult] = {}
    runs, limits = 0, PassLimits()
    for number, run in enumerate(split_runs(parts)):
        if only is None or number in only:
            passed[number] = check_run(run, known, before, limit, paid)
            limits.add(passed, number)
        elif paid is not None and number < max(only):
            find_paid_messages(BucketMessages(RowColumns.of(run), known), paid)
        runs = number + 1
    if value is not None and value.num_rows and (only is None or runs in only):
        passed[runs] = check_unattributed(value, paid, known, limit)
    return [*passed.values()]


def check_unattributed(value: pa.Table, paid: PaidAmounts | None, known: LaneContext, limit: int = LIMIT) -> RunResult:
    """Return what movements of value show beside the messages of the runs that they are of. ``paid``: what they pay out
    of messages (``paid_in``), once these runs were passed over with it."""
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
    """Return what no rows show."""
    nothing = pa.table({name: pa.array([], LEDGER_SCHEMA.field(name).type) for name in LEDGER_SCHEMA.names})
    return check_run(MessageRun(nothing.select(READ_COLUMNS), ((TablePart(nothing), 0, 0),)), known, {}, LIMIT, None)


def check_run(
    rows: MessageRun,
    known: LaneContext,
    before: dict[PieceKey, PrecedingPositions],
    limit: int,
    paid: PaidAmounts | None,
) -> RunResult:
    """Check one run, and return what it shows. ``paid``: what was paid out of messages, of which it is told which are
    in the run; otherwise as ``pass_over``."""
    bucket = BucketMessages(RowColumns.of(rows), known)
    columns = bucket.columns
    fees = FEES_SCHEMA.empty_table() if paid is None else settle_payments(bucket, paid)
    along, causal = LaneScan(bucket, before), CausalLinks(bucket)
    checked = [check(bucket) for check in (*MESSAGE_CHECKS, check_conservation, check_delivery, check_agreement)]
    checked += [along.order(), along.gap_check(), causal.check()]
    found = [finding for each in checked for finding in each.found if len(finding.rows)]
    return RunResult(
        findings=_named(columns, found, limit),
        counts=_counts(columns, found),
        examined=_examined(columns, checked),
        lanes=_figures(bucket, along),
        sides=_sides(columns),
        sums=_sums(bucket),
        pieces=along.summary(),
        crowds=find_dense_ranges(bucket),
        replies=find_calling_chains(bucket),
        fees=fees,
        abroad=BACKING_SCHEMA.empty_table(),
        numbers=sent_indices(bucket),
        links=causal.summary(),
        carried=find_continuations(bucket),
        reached=find_reached_heights(bucket),
        waits=needs_destination_heights(bucket),
        asks=any(_too_many(columns, finding) for finding in found if finding.reason == UNDECIDED),
    )


def _too_many(columns: RowColumns, finding: Finding) -> bool:
    """Return whether more rows wait for a decision than are named of a lane."""
    return bool(np.bincount(columns.lane[finding.rows]).max() > PENDING_COLUMNS)


def _named(columns: RowColumns, found: list[Finding], limit: int) -> pa.Table:
    """Return findings as a table, so many of each lane and reason."""
    picked = []
    found = [_as_shown(columns, finding, limit) for finding in found]
    for finding in found:
        most = PENDING_COLUMNS if finding.reason == UNDECIDED else limit
        first, worst = select_top_findings(columns.lane[finding.rows], finding.magnitude, most)
        picked.append(np.flatnonzero(first | worst))
    tables = [to_findings_table(None)]
    if not found:
        return tables[0]
    every = [finding.rows[which] for finding, which in zip(found, picked, strict=True)]
    rows = columns.rows.take((*MESSAGE_CHECKS_BY_KIND, *ROW_CHECKS), np.concatenate(every))
    begin = 0
    for finding, which in zip(found, picked, strict=True):
        count = len(which)
        content: dict[str, Any] = {name: rows[name].slice(begin, count) for name in rows.column_names}
        begin += count
        content |= {name: pa.array([getattr(finding, name)] * count) for name in ("check", "verdict", "reason")}
        if not finding.placed:
            content |= dict.fromkeys(ROW_CHECKS, pa.nulls(count))
        if finding.from_index is not None:
            content["index"] = pa.array(finding.from_index[which])
            content["message_id"] = pa.nulls(count)
        content |= format_magnitudes(np.full(count, np.nan) if finding.magnitude is None else finding.magnitude[which])
        content["unit"] = pa.array([finding.unit] * count, pa.string())
        tables.append(to_findings_table(content))
    return pa.concat_tables(tables)


def _as_shown(columns: RowColumns, finding: Finding, limit: int) -> Finding:
    """Return a finding of more rows than may be named with those of one message in the order in which they are shown
    (``SHOWN_BY``), so that the first are the same however a ledger is cut into runs."""
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
        many = np.bincount(columns.lane[finding.rows], minlength=len(columns.lanes))
        tables.append(_counted(columns, many, finding.check, finding.verdict, finding.reason))
    return pa.concat_tables(tables)


def _examined(columns: RowColumns, checked: list[CheckResult]) -> pa.Table:
    return pa.concat_tables([_counted(columns, None), *(_counted(columns, e.examined, e.check) for e in checked)])


def _counted(
    columns: RowColumns, counts: Array | None, check: str = "", verdict: str = "", reason: str = ""
) -> pa.Table:
    codes = np.zeros(0, np.int64) if counts is None else np.flatnonzero(counts)
    many = np.zeros(0, np.int64) if counts is None else counts[codes].astype(np.int64)
    names = {"check": check, "verdict": verdict, "reason": reason}
    content = {name: pa.array([text] * len(codes), pa.string()) for name, text in names.items()}
    return pa.table(content | lane_columns(columns, codes) | {"count": pa.array(many)})


def _figures(bucket: BucketMessages, along: LaneScan) -> pa.Table:
    columns = bucket.columns
    lanes = len(columns.lanes)
    one, other, missing = along.gap_rows()
    inside = bucket.together(one, other, LedgerEvent.SENT)
    named = columns.indexed[columns.starts[:-1]] == 1
    if len(columns.ident):
        named |= columns.ident[columns.starts[:-1]] >= 0
    many = np.zeros(lanes, np.uint64)
    np.add.at(many, columns.lane[one], missing)
    figures = (
        bucket.count(named),
        bucket.count(bucket.has(LedgerEvent.SENT)),
        bucket.total(bucket.messages.receives),
        bucket.count(bucket.has(LedgerEvent.ACKNOWLEDGED)),
        bucket.count(bucket.has(LedgerEvent.SENT) & bucket.has(LedgerEvent.RECEIVED)),
        bucket.count(bucket.is_open),
        bucket.count(bucket.is_unacknowledged),
        *(bucket.count(along.out_of_order(number)) for number in range(3)),
        many,
        np.bincount(columns.lane[one], minlength=lanes),
        np.bincount(columns.lane[one[inside]], minlength=lanes),
    )
    content = {name: pa.array(np.asarray(values)) for name, values in zip(FIGURES, figures, strict=True)}
    for name, waiting in zip(OLDEST, (bucket.is_open, bucket.is_unacknowledged), strict=True):
        times = bucket.first_sent(waiting)
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
