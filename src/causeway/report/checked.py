"""The checks of an audit as plain data: verdicts, examples of findings, incomplete lanes, findings by lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.auditing import PROMISED, Audit, Check
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.plain import plain_check, plain_row
from causeway.audit.verdict import unknown_lanes
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows

EXAMPLES = 6
"""Findings of each check, verdict and reason that are shown."""

SHOWN_INCOMPLETE = 12
"""Incomplete lanes that are named."""

LaneKey = tuple[str | None, ...]


def checks_data(audit: Audit) -> list[dict[str, Any]]:
    """Return the checks, with examples of their findings.

    ``promised`` of a check that does not apply: which promises of a lane it needs, none where it needs rows.
    """
    return [
        {
            **plain_check(check),
            "promised": None if check.examined else [*PROMISED.get(name, ())],
            "examples": [plain_row(row) for row in _examples(audit.violations, check)],
        }
        for name, check in audit.checks.items()
    ]


def _examples(violations: pa.Table, check: Check) -> list[dict[str, Any]]:
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
        found += plain_rows(rows.take(pa.array([*chosen][:EXAMPLES], pa.int64())))
    return found


def worst_and_first(check: Mapping[str, Any], verdict: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the worst and the earliest finding of a verdict, each with its name; one if they are the same.

    Args:
        check: as of ``checks_data``.
        verdict: of the findings.
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
    """Return what orders findings as ``audit.auditing.earliest`` does."""
    return row["time"] is None, row["time"] or "", row["height"] is None, row["height"] or 0


def incomplete_lanes(audit: Audit, most: int = SHOWN_INCOMPLETE) -> dict[str, Any]:
    """Return the lanes of which the input does not show enough, by name, each with the reasons and their counts."""
    unknown = audit.counts.filter(pc.equal(audit.counts["verdict"], UNKNOWN)).to_pylist()
    lanes = unknown_lanes(unknown)
    rows: dict[LaneKey, dict[str, Any]] = {
        lane: {**dict(zip(LANE, lane, strict=True)), "reasons": {}} for lane in lanes[:most]
    }
    for row in unknown:
        shown = rows.get(tuple(row[name] for name in LANE))
        if shown is not None:
            shown["reasons"][row["reason"]] = shown["reasons"].get(row["reason"], 0) + row["count"]
    for row in rows.values():
        row["reasons"] = dict(sorted(row["reasons"].items(), key=lambda item: (-item[1], item[0])))
    return {"lanes": len(lanes), "rows": [*rows.values()]}


def findings_of_lanes(audit: Audit) -> dict[LaneKey, tuple[int, int]]:
    """Return the exact numbers of violated and unknown findings of each lane."""
    table = audit.counts.group_by([*LANE, "verdict"]).aggregate([("count", "sum")])
    counts: dict[LaneKey, tuple[int, int]] = {}
    columns = (table[name].to_pylist() for name in (*LANE, "verdict", "count_sum"))
    for *names, verdict, count in zip(*columns, strict=True):
        violated, unknown = counts.get(tuple(names), (0, 0))
        counts[tuple(names)] = violated + count * (verdict == VIOLATED), unknown + count * (verdict == UNKNOWN)
    return counts


__all__ = [
    "EXAMPLES", "LaneKey", "checks_data", "findings_of_lanes", "incomplete_lanes", "worst_and_first",
]  # fmt: skip
