"""The verdict, checks and key figures as plain data, for the report and the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.analysis.figures.outcomes import calls_by_outcome
from causeway.audit.engine import PROMISE_CHECKS, AuditResult, CheckVerdict
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.json_output import check_to_json, input_figures, row_to_json
from causeway.audit.verdict import unknown_lanes
from causeway.core.arrow_types import to_python_rows
from causeway.ledger.schema import LANE

if TYPE_CHECKING:
    from causeway.analysis.figures.figures import LedgerFigures

__all__ = [
    "EXAMPLES",
    "LaneKey",
    "checks_data",
    "count_lane_findings",
    "figures_data",
    "list_incomplete_lanes",
    "over_time_data",
    "rows_to_json",
    "summary_data",
    "worst_and_first",
]

EXAMPLES = 6
"""Maximum findings of each check, verdict and reason."""

MAX_INCOMPLETE = 12
"""Maximum named incomplete lanes."""

LaneKey = tuple[str | None, ...]


def checks_data(audit: AuditResult) -> list[dict[str, Any]]:
    """Return the checks with example findings.

    ``promised`` of a check that does not apply: the required guarantees of a lane; empty if it needs rows.

    Args:
        audit: the audit.

    Returns:
        One object a check.
    """
    return [
        {
            **check_to_json(check),
            "promised": None if check.examined else [*PROMISE_CHECKS.get(name, ())],
            "examples": [row_to_json(row) for row in _examples(audit.violations, check)],
        }
        for name, check in audit.checks.items()
    ]


def _examples(violations: pa.Table, check: CheckVerdict) -> list[dict[str, Any]]:
    """Return the earliest findings of each reason, and the worst."""
    own = violations.filter(pc.equal(violations["check"], check.name))
    found: list[dict[str, Any]] = []
    for verdict, reason in check.reasons:
        rows = own.filter(pc.and_(pc.equal(own["reason"], reason), pc.equal(own["verdict"], verdict)))
        if not rows.num_rows:
            continue
        size = rows["magnitude"].fill_null(-np.inf).to_numpy()
        worst = np.argsort(-size, kind="stable")[: EXAMPLES // 2 if np.isfinite(size).any() else 0]
        keys = rows.select(["time", "height"]).append_column("row", pa.array(np.arange(rows.num_rows)))
        first = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()
        chosen = dict.fromkeys([*first[: EXAMPLES - len(worst)].tolist(), *worst.tolist(), *first[:EXAMPLES].tolist()])
        found += to_python_rows(rows.take(pa.array([*chosen][:EXAMPLES], pa.int64())))
    return found


def worst_and_first(check: Mapping[str, Any], verdict: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the worst and the earliest finding of a verdict with their names; one if equal.

    Args:
        check: as of ``checks_data``.
        verdict: of the findings.

    Returns:
        Names with findings.
    """
    rows = [row for row in check["examples"] if row["verdict"] == verdict]
    if not rows:
        return []
    first, worst = check["first"], check["worst"]
    if first is None or first["verdict"] != verdict:
        first = min(rows, key=_moment)
        worst = max(rows, key=lambda row: -1.0 if row["magnitude"] is None else float(row["magnitude"]))
    found = [("worst", worst)] if worst is not None and worst["magnitude"] is not None else []
    return found if found and worst == first else [*found, ("first", first)]


def _moment(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of findings, as in the audit's order of earliest findings."""
    return row["time"] is None, row["time"] or "", row["height"] is None, row["height"] or 0


def list_incomplete_lanes(audit: AuditResult) -> dict[str, Any]:
    """Return the lanes with insufficient input, by name, with reasons and counts.

    Args:
        audit: the audit.

    Returns:
        Plain data.
    """
    unknown = audit.counts.filter(pc.equal(audit.counts["verdict"], UNKNOWN)).to_pylist()
    lanes = unknown_lanes(unknown)
    rows: dict[LaneKey, dict[str, Any]] = {
        lane: {**dict(zip(LANE, lane, strict=True)), "reasons": {}} for lane in lanes[:MAX_INCOMPLETE]
    }
    for row in unknown:
        entry = rows.get(tuple(row[name] for name in LANE))
        if entry is not None:
            entry["reasons"][row["reason"]] = entry["reasons"].get(row["reason"], 0) + row["count"]
    for row in rows.values():
        row["reasons"] = dict(sorted(row["reasons"].items(), key=lambda item: (-item[1], item[0])))
    return {"lanes": len(lanes), "rows": [*rows.values()]}


def count_lane_findings(audit: AuditResult) -> dict[LaneKey, tuple[int, int]]:
    """Return the exact numbers of violated and unknown findings of each lane.

    Args:
        audit: the audit.

    Returns:
        Violated and unknown findings by lane.
    """
    table = audit.counts.group_by([*LANE, "verdict"]).aggregate([("count", "sum")])
    counts: dict[LaneKey, tuple[int, int]] = {}
    columns = (table[name].to_pylist() for name in (*LANE, "verdict", "count_sum"))
    for *names, verdict, count in zip(*columns, strict=True):
        violated, unknown = counts.get(tuple(names), (0, 0))
        counts[tuple(names)] = violated + count * (verdict == VIOLATED), unknown + count * (verdict == UNKNOWN)
    return counts


def summary_data(audit: AuditResult, figures: LedgerFigures, quarantined: Mapping[str, int]) -> dict[str, Any]:
    """Return the verdict, the checks and the key figures of a ledger as plain data.

    Args:
        audit: of the ledger.
        figures: of the ledger.
        quarantined: records in quarantine by reason (``Ledger.quarantined``).

    Returns:
        Plain data.
    """
    worst = figures.worst
    oldest = worst.filter(pc.and_(pc.equal(worst["why"], "oldest_pending"), pc.equal(worst["rank"], 1)))
    return {
        "verdict": audit.verdict.value,
        "sentence": audit.sentence(),
        "holds": audit.holds,
        "remarks": [*audit.remarks],
        "checks": checks_data(audit),
        "incomplete": list_incomplete_lanes(audit),
        "quarantined": dict(sorted(quarantined.items(), key=lambda item: (-item[1], item[0]))),
        **figures_data(figures),
        "oldest_pending": next(iter(rows_to_json(oldest)), None),
        "completeness": input_figures(audit),
    }


def figures_data(figures: LedgerFigures) -> dict[str, Any]:
    """Return the totals of a ledger, its calls by outcome, and the delays of all lanes.

    Args:
        figures: the figures of the ledger.

    Returns:
        Plain data.
    """
    return {
        "totals": row_to_json(figures.totals),
        "calls": calls_by_outcome(figures.codes),
        "latency": rows_to_json(figures.latency.filter(pc.equal(figures.latency["scope"], "all"))),
    }


def over_time_data(figures: LedgerFigures) -> dict[str, Any]:
    """Return the backlog and the delays over time by columns.

    Args:
        figures: the figures of the ledger.

    Returns:
        Plain data.
    """
    return {"backlog": _columns(figures.backlog), "latency_over_time": _columns(figures.latency_over_time)}


def rows_to_json(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON.

    Args:
        table: the table.

    Returns:
        One object a row.
    """
    return [row_to_json(row) or {} for row in to_python_rows(table)]


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    """Return a table over time by columns.

    ``begin``: start of each bin, in ticks or seconds since 1970. ``time``: None outside of the calendar.
    """
    rows = rows_to_json(table)
    found = {name: [row[name] for row in rows] for name in table.column_names}
    micros = table["time"].cast(pa.int64()).to_pylist()
    begins = zip(table["tick"].to_pylist(), micros, strict=True)
    found["begin"] = [time / 1_000_000 if tick is None else tick for tick, time in begins]
    return found
