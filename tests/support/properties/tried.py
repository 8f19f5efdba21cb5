"""How many networks the comparisons played, and how often each feature occurred in them: a run prints it at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import currently_in_test_context, event

NETWORKS = "networks"

COUNTS: dict[str, Counter[str]] = {}
"""Comparison -> how many networks, and in how many of them each feature occurred."""


def tried(what: str, features: Iterable[str]) -> None:
    """Count one network that was played to its end."""
    counts = COUNTS.setdefault(what, Counter())
    counts[NETWORKS] += 1
    for feature in set(features):
        counts[feature] += 1
        if currently_in_test_context():
            event(feature)


def summary() -> list[str]:
    """A line a comparison."""
    return [
        f"{what}: {counts[NETWORKS]} networks tried; "
        + ", ".join(f"{feature} {count}" for feature, count in sorted(counts.items()) if feature != NETWORKS)
        for what, counts in sorted(COUNTS.items())
    ]
