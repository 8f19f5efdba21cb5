"""The verdict of an audit: one word and one sentence, the same in every output.

``FAILED``: a guarantee is violated. ``INCONCLUSIVE``: none is violated, but the input is insufficient for some lanes.
``PASSED``: every applicable check was examined and holds. ``NOT_APPLICABLE``: nothing was examined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from causeway.core.text import count_noun

VIOLATED, UNKNOWN, NOTED = "violated", "unknown", "noted"
"""Verdicts of a finding: a violation, insufficient input, or a fact that breaks no guarantee."""

MAX_LANES = 3
"""Maximum number of lanes named in the sentence."""


class Verdict(StrEnum):
    """The verdict of a check, or of an audit."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_APPLICABLE = "NOT APPLICABLE"


FACT_COUNTS = {
    ("delivery", "dropped_as_declared"): ("message", "dropped as the protocol declares"),
    ("delivery", "failed"): ("message", "failed to execute"),
    ("delivery", "late"): ("message", "late"),
    ("delivery", "pending"): ("message", "pending"),
    ("delivery", "carried_on"): ("message", "carried on under a new id"),
    ("exactly_once", "redundant_relay"): ("redundant relay", ""),
}
"""Findings that break no guarantee but appear in the sentence: counted noun, and description."""


@dataclass(frozen=True)
class CheckVerdict:
    """Result of one check.

    Attributes:
        name: Name of the check.
        examined: Number of examined messages (``authenticity``: received rows; ``causality``: pairs of events;
            ``watermarks``, ``headers``: rows).
        lanes: Number of their lanes (``headers``: chains).
        violated: Number of violations.
        unknown: Number of findings with insufficient input.
        noted: Number of noted facts.
        reasons: Number of findings by (verdict, reason).
        first: Earliest finding, a violation if there is any.
        worst: Largest finding, a violation if there is any.
    """

    name: str
    examined: int
    lanes: int
    violated: int
    unknown: int
    noted: int = 0
    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[str, Any] | None = None
    worst: dict[str, Any] | None = None

    @property
    def verdict(self) -> Verdict:
        """Verdict of the check."""
        if self.violated:
            return Verdict.FAILED
        if self.unknown:
            return Verdict.INCONCLUSIVE
        return Verdict.PASSED if self.examined else Verdict.NOT_APPLICABLE


def combine_verdicts(checks: Iterable[CheckVerdict]) -> Verdict:
    """Combine the verdicts of several checks.

    Args:
        checks: Results of checks.

    Returns:
        The overall verdict.
    """
    found = {check.verdict for check in checks}
    order = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED)
    return next((verdict for verdict in order if verdict in found), Verdict.NOT_APPLICABLE)


def verdict_sentence(checks: Sequence[CheckVerdict], incomplete: Sequence[str] = ()) -> str:
    """Format the verdict of checks as an actionable sentence.

    Args:
        checks: Results of checks.
        incomplete: Names of lanes with insufficient input.

    Returns:
        The sentence.
    """
    verdict = combine_verdicts(checks)
    facts = verdict_facts(checks)
    if verdict is Verdict.FAILED:
        first, *others = (check for check in checks if check.violated)
        more = "".join(f", {check.violated:,} of {check.name}" for check in others)
        text = f"{verdict}: {count_noun(first.violated, 'violation')} of {first.name}{more}"
        return f"{text}{f'; {facts}' if facts else ''}"
    if verdict is Verdict.INCONCLUSIVE:
        subject = _incomplete(incomplete) or ", ".join(check.name for check in checks if check.unknown)
        return f"{verdict} ({subject}){f', {facts}' if facts else ''}"
    if verdict is Verdict.NOT_APPLICABLE:
        return f"{verdict}: nothing was examined"
    return f"{verdict}{f', {facts}' if facts else ''}"


def verdict_facts(checks: Iterable[CheckVerdict]) -> str:
    """Return facts besides the verdict: declared losses, failed executions, pending messages.

    Args:
        checks: Results of all checks.

    Returns:
        Counts of noted findings (``FACT_COUNTS``), joined by commas; empty without any.
    """
    counts: dict[tuple[str, str], int] = {}
    for check in checks:
        for (verdict, reason), count in check.reasons.items():
            if verdict == NOTED and (check.name, reason) in FACT_COUNTS:
                counts[check.name, reason] = count
    return ", ".join(
        f"{count_noun(counts[key], noun)} {description}".strip()
        for key, (noun, description) in FACT_COUNTS.items()
        if counts.get(key)
    )


def _incomplete(lanes: Sequence[str]) -> str:
    if not lanes:
        return ""
    more = f" and {len(lanes) - MAX_LANES:,} more" if len(lanes) > MAX_LANES else ""
    return f"{count_noun(len(lanes), 'lane')} incomplete: {', '.join(lanes[:MAX_LANES])}{more}"


def unknown_lanes(counts: Iterable[Mapping[str, Any]]) -> list[tuple[str | None, ...]]:
    """Return the lanes with insufficient input, in the order of their names.

    Args:
        counts: Rows of ``AuditResult.counts``.
    """
    names = ("protocol", "source", "destination", "lane")
    found = {tuple(row[name] for name in names) for row in counts if row["verdict"] == UNKNOWN}
    return sorted(found, key=lambda lane: tuple((name is not None, name or "") for name in lane))


__all__ = [
    "NOTED",
    "UNKNOWN",
    "VIOLATED",
    "CheckVerdict",
    "Verdict",
    "combine_verdicts",
    "unknown_lanes",
    "verdict_facts",
    "verdict_sentence",
]  # fmt: skip
