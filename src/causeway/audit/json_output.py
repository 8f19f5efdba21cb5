"""An audit as JSON, for ``causeway audit`` (also with ``--follow``) and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.audit.engine import AuditResult
    from causeway.audit.verdict import CheckVerdict


def row_to_json(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Convert a row to JSON, with times as text.

    Args:
        row: A row, or None.
    """
    if row is None:
        return None
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}


def check_to_json(check: CheckVerdict) -> dict[str, Any]:
    """Convert a check to JSON.

    Args:
        check: Result of a check.
    """
    return {
        "check": check.name,
        "verdict": check.verdict.value,
        "examined": check.examined,
        "lanes": check.lanes,
        "violated": check.violated,
        "unknown": check.unknown,
        "noted": check.noted,
        "reasons": [
            {"verdict": verdict, "reason": reason, "findings": count}
            for (verdict, reason), count in check.reasons.items()
        ],
        "first": row_to_json(check.first),
        "worst": row_to_json(check.worst),
    }


def verdicts_to_json(found: AuditResult) -> dict[str, dict[str, Any]]:
    """Return the verdicts of examined checks, with their numbers of findings.

    Args:
        found: Result of an audit.
    """
    return {
        name: {
            "verdict": check.verdict.value,
            **{kind: getattr(check, kind) for kind in ("violated", "unknown", "noted")},
        }
        for name, check in found.checks.items()
        if check.examined or check.reasons
    }


def input_figures(found: AuditResult) -> dict[str, int]:
    """Return the number of lanes, of lanes with one recorded end, and of missing indices.

    Args:
        found: Result of an audit.
    """
    from causeway.audit.backlog import count_lanes, count_one_sided_lanes

    missing = sum(found.lanes["missing"].to_pylist())
    return {"lanes": count_lanes(found), "one_sided_lanes": count_one_sided_lanes(found), "missing": missing}


__all__ = ["check_to_json", "input_figures", "row_to_json", "verdicts_to_json"]
