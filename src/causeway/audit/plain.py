"""An audit as JSON: for ``causeway audit``, with ``--follow`` too, and for pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.audit.auditing import Audit
    from causeway.audit.verdict import Check


def plain_row(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a row as JSON: times as text."""
    if row is None:
        return None
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}


def plain_check(check: Check) -> dict[str, Any]:
    """Return a check as JSON."""
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
        "first": plain_row(check.first),
        "worst": plain_row(check.worst),
    }


def plain_verdicts(found: Audit) -> dict[str, dict[str, Any]]:
    """Return the verdicts of the checks that had something to examine, with how many findings each has."""
    return {
        name: {
            "verdict": check.verdict.value,
            **{kind: getattr(check, kind) for kind in ("violated", "unknown", "noted")},
        }
        for name, check in found.checks.items()
        if check.examined or check.reasons
    }


def input_figures(found: Audit) -> dict[str, int]:
    """Return how many lanes there are, of how many only one end was recorded, and how many indices are missing."""
    from causeway.audit.backlog import lanes_seen, one_sided

    missing = sum(found.lanes["missing"].to_pylist())
    return {"lanes": lanes_seen(found), "one_sided_lanes": one_sided(found), "missing": missing}


__all__ = ["input_figures", "plain_check", "plain_row", "plain_verdicts"]
