"""What came of an audit as plain data: the checks, findings of each as examples, and how many each lane has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.auditing import PROMISED, Check
from causeway.audit.plain import plain_check, plain_row
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.network.ledgers import Findings

EXAMPLES = 6
"""Findings of each check, verdict and reason that are shown."""

VIOLATED, UNKNOWN, HOLDS = "violated", "unknown", "holds"

LaneKey = tuple[str | None, ...]


def verdict_of(checks: Mapping[str, Check]) -> str:
    """Return ``violated`` where one of some checks is, ``unknown`` where one met holes in the input or none had
    anything to examine, else ``holds``."""
    if any(check.violated for check in checks.values()):
        return VIOLATED
    if any(check.unknown for check in checks.values()) or not any(check.examined for check in checks.values()):
        return UNKNOWN
    return HOLDS


def checks_data(found: Findings) -> list[dict[str, Any]]:
    """Return the checks with examples of their findings, and why one had nothing to examine."""
    violations = found.violations.arrow()
    return [
        {
            **plain_check(check),
            "promised": None if check.examined else [*PROMISED.get(name, ())],
            "examples": [plain_row(row) for row in _examples(violations, check)],
        }
        for name, check in found.checks.items()
    ]


def _examples(violations: pa.Table, check: Check) -> list[dict[str, Any]]:
    """Return of each reason the first findings in time, and the worst."""
    own = violations.filter(pc.equal(violations["check"], check.name))
    found: list[dict[str, Any]] = []
    for verdict, reason in sorted(check.reasons, reverse=True):
        rows = own.filter(pc.and_(pc.equal(own["reason"], reason), pc.equal(own["verdict"], verdict)))
        if not rows.num_rows:
            continue
        size = rows["magnitude"].fill_null(-np.inf).to_numpy()
        time = pc.fill_null(rows["time"].cast(pa.int64()), np.iinfo(np.int64).max).to_numpy()
        worst = np.argsort(-size, kind="stable")[: EXAMPLES // 2 if np.isfinite(size).any() else 0]
        first = np.argsort(time, kind="stable")
        chosen = list(dict.fromkeys([*worst.tolist(), *first[:EXAMPLES].tolist()]))[:EXAMPLES]
        found += plain_rows(rows.take(pa.array(chosen, pa.int64())))
    return found


def worst_and_first(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return which findings of a check and verdict the first screen shows, and as what: the worst, and the first in
    time."""
    if not rows:
        return []
    sized = [each for each in rows if each["magnitude"] is not None]
    first = min(rows, key=lambda each: (each["time"] is None, each["time"] or ""))
    found = [("worst", max(sized, key=lambda each: float(each["magnitude"])))] if sized else []
    if not found or found[0][1] is not first:
        found.append(("first", first))
    return found


def findings_of_lanes(found: Findings) -> dict[LaneKey, tuple[int, int]]:
    """Return how many findings each lane has: violated and unknown ones, also of those that are not named."""
    table = found.audit.counts.group_by([*LANE, "verdict"]).aggregate([("count", "sum")])
    counts: dict[LaneKey, tuple[int, int]] = {}
    columns = (table[name].to_pylist() for name in (*LANE, "verdict", "count_sum"))
    for *names, verdict, count in zip(*columns, strict=True):
        violated, unknown = counts.get(tuple(names), (0, 0))
        more = (violated + count, unknown) if verdict == VIOLATED else (violated, unknown + count)
        counts[tuple(names)] = more
    return counts


__all__ = [
    "EXAMPLES", "HOLDS", "UNKNOWN", "VIOLATED", "LaneKey", "checks_data", "findings_of_lanes", "verdict_of",
    "worst_and_first",
]  # fmt: skip
