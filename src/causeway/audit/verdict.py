"""The verdict of an audit: one word, one sentence, the same in every face.

``FAILED``: a guarantee is violated. ``INCONCLUSIVE``: none is, but the input does not show enough to say so of all
lanes. ``PASSED``: every check that applies was examined and holds. ``NOT_APPLICABLE``: nothing was examined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

VIOLATED, UNKNOWN, NOTED = "violated", "unknown", "noted"
"""The verdict of a finding: something is wrong; the input does not show enough; a fact that breaks no guarantee."""

MAX_LANES = 3
"""Lanes that the sentence names."""


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
"""Findings that break no guarantee and stand in the sentence: the noun that is counted, and what is said of it."""


@dataclass(frozen=True)
class CheckVerdict:
    """The result of one check.

    Attributes:
        name: of the check.
        examined: how many messages it examined (``authenticity``: received rows; ``causality``: pairs of events;
            ``watermarks``, ``headers``: rows).
        lanes: how many lanes they are of (``headers``: chains).
        violated, unknown, noted: findings by their verdict, counted exactly.
        reasons: (verdict, reason) -> findings.
        first, worst: rows of the table of findings: the earliest and the largest, of violations where there are any.
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
        """Return the verdict of the check."""
        if self.violated:
            return Verdict.FAILED
        if self.unknown:
            return Verdict.INCONCLUSIVE
        return Verdict.PASSED if self.examined else Verdict.NOT_APPLICABLE


def combine_verdicts(checks: Iterable[CheckVerdict]) -> Verdict:
    """Return the verdict of several checks together."""
    found = {check.verdict for check in checks}
    order = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED)
    return next((verdict for verdict in order if verdict in found), Verdict.NOT_APPLICABLE)


def verdict_sentence(checks: Sequence[CheckVerdict], incomplete: Sequence[str] = ()) -> str:
    """Return the verdict of checks as a sentence that a person can act on.

    Args:
        checks: those that count.
        incomplete: the lanes of which the input does not show enough, by name.
    """
    verdict = combine_verdicts(checks)
    facts = verdict_facts(checks)
    if verdict is Verdict.FAILED:
        first, *others = (check for check in checks if check.violated)
        more = "".join(f", {check.violated:,} of {check.name}" for check in others)
        text = f"{verdict}: {count_noun(first.violated, 'violation')} of {first.name}{more}"
        return f"{text}{f'; {facts}' if facts else ''}"
    if verdict is Verdict.INCONCLUSIVE:
        what = _incomplete(incomplete) or ", ".join(check.name for check in checks if check.unknown)
        return f"{verdict} ({what}){f', {facts}' if facts else ''}"
    if verdict is Verdict.NOT_APPLICABLE:
        return f"{verdict}: nothing was examined"
    return f"{verdict}{f', {facts}' if facts else ''}"


def verdict_facts(checks: Iterable[CheckVerdict]) -> str:
    """Return what is to be known of checks besides their verdict: declared losses, failed executions, pending
    messages."""
    counts: dict[tuple[str, str], int] = {}
    for check in checks:
        for (verdict, reason), count in check.reasons.items():
            if verdict == NOTED and (check.name, reason) in FACT_COUNTS:
                counts[check.name, reason] = count
    return ", ".join(
        f"{count_noun(counts[key], noun)} {said}".strip()
        for key, (noun, said) in FACT_COUNTS.items()
        if counts.get(key)
    )


def _incomplete(lanes: Sequence[str]) -> str:
    if not lanes:
        return ""
    more = f" and {len(lanes) - MAX_LANES:,} more" if len(lanes) > MAX_LANES else ""
    return f"{count_noun(len(lanes), 'lane')} incomplete: {', '.join(lanes[:MAX_LANES])}{more}"


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unknown_lanes(counts: Iterable[Mapping[str, Any]]) -> list[tuple[str | None, ...]]:
    """Return the lanes that have findings for lack of input, in the order of their names.

    Args:
        counts: rows of ``Audit.counts``.
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
    "count_noun",
    "unknown_lanes",
    "verdict_facts",
    "verdict_sentence",
]  # fmt: skip
