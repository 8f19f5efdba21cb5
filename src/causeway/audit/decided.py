"""Findings that are decided after all buckets were read: a single run does not show their verdict.

Each waits under a reason of its own (``known``). Whether a message was sent is decided of each row, whether a side of a
lane was recorded at all, of the lane.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.columns import NO_TIME, Bools
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.known import (
    OVERDUE_UNDECIDED,
    PAID_NOT_SENT,
    RECEIPT_NOT_COVERED,
    RECEIPT_UNDECIDED,
    UNDECIDED,
    UNDECIDED_PAID,
    Known,
    verdict_of_unsent,
    why_unsent,
)
from causeway.audit.windows import lanes_in
from causeway.ledger.order import lane_numbers
from causeway.ledger.schema import LANE


def decided(findings: pa.Table, counts: pa.Table, lanes: pa.Table, known: Known) -> tuple[pa.Table, pa.Table]:
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


def _sendings(findings: pa.Table, counts: pa.Table, known: Known) -> tuple[pa.Table, pa.Table]:
    """Return findings and counts in which it is decided of messages that no row shows as sent why none does."""
    undecided = pa.array([UNDECIDED, UNDECIDED_PAID])
    waits = pc.is_in(findings["reason"], value_set=undecided)
    waiting = findings.filter(waits)
    if not waiting.num_rows:
        return findings, counts
    lanes, lane = lane_numbers(waiting)
    index, time = waiting["index"], waiting["time"].cast(pa.int64())
    reasons = why_unsent(
        *(known, [(a, b, c, d) for a, b, c, d in lanes], lane, np.asarray(index.is_valid())),
        *(index.fill_null(0).to_numpy(), time.fill_null(int(NO_TIME)).to_numpy()),
    )
    verdicts = np.array([verdict_of_unsent(reason) for reason in reasons.tolist()], object)
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
    shown = {lane for name in figures for lane in lanes_in(lanes.filter(pc.greater(lanes[name], 0)))}
    names, codes = lane_numbers(found)
    return np.array([lane in shown for lane in names], bool)[codes]


def _replaced(found: pa.Table, rows: Bools, **values: np.ndarray) -> pa.Table:
    """Return findings or counts with other texts in some rows of columns."""
    for name, texts in values.items():
        column = np.array(found[name].to_pylist(), object)
        column[rows] = texts
        place = found.schema.get_field_index(name)
        found = found.set_column(place, found.schema.field(place), pa.array(column.tolist(), pa.string()))
    return found


__all__ = ["decided"]
