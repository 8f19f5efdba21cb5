"""What Prometheus is told by an audit that follows a ledger: what is wrong, what waits, and how far the input goes.

All of it is of the events of the ledger, so it is right whoever delivers the messages. Names come from outside: they
are cut, and only so many lanes and chains have metrics of their own; the others are one sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.audit.backlog import (
    ChainCoverage,
    LaneBacklog,
    chain_coverage,
    count_lanes,
    count_one_sided_lanes,
    lane_backlogs,
)
from causeway.audit.incremental.watch import WatchResult
from causeway.audit.passes.results import VERDICTS
from causeway.core.text import escape_controls

MOST_LANES = 100
MOST_CHAINS = 100
"""So many lanes and chains have metrics of their own: those with the most that waits, and then the largest."""

MOST_LATE = MOST_LANES // 2
"""So many of these lanes are those whose oldest message is the most overdue."""

MOST_CHARACTERS = 128
"""Names are cut to so many characters."""

OTHERS = "(others)"
"""What lanes and chains are called that have no metrics of their own."""

PREFIX = "causeway_audit_"

Key = tuple[str, ...]

LANE_LABELS = ["protocol", "source", "destination", "lane"]
LANE_GAUGES = (
    ("lane_messages", "Messages of a lane that were seen.", "messages", sum),
    ("lane_open_messages", "Sent, and nothing says that they came or will not come.", "open", sum),
    ("lane_open_oldest_seconds", "Since the oldest of them was sent, by the clocks of the data.", "open_age", max),
    (
        "lane_overdue_seconds",
        "Since the oldest of them could have come: it was final, and its destination went on.",
        *("overdue", max),
    ),
    ("lane_unacknowledged_messages", "Sent, and nothing says that their source is done.", "unacknowledged", sum),
    (
        "lane_unacknowledged_oldest_seconds",
        "Since the oldest of them was sent, by the clocks of the data.",
        "unacknowledged_age",
        max,
    ),
    ("lane_missing_messages", "Indices of a numbered lane that the input lacks.", "missing", sum),
)
CHAIN_GAUGES = (
    ("chain_rows", "Rows of the ledger on a chain.", "rows", sum),
    ("chain_last_height", "The last block that the input shows.", "last_height", max),
    ("chain_last_time_seconds", "The last time that the input shows, in seconds of the Unix epoch.", "at", max),
    ("chain_lag_seconds", "From that time until now.", "lag", max),
    ("chain_covered_ratio", "Share of the chain, from its first window to its last, that is covered.", "covered", min),
)


@dataclass(frozen=True)
class AuditSnapshot:
    """What is told: the last look that showed something.

    ``rows``: of the ledger; ``findings``: by check, verdict and reason; ``examined``: by check; ``lanes``: as
    ``in_order``; ``chains``: largest first; ``seen``: how many lanes; ``one_sided``: lanes of which only one end was
    recorded; ``totals``: by check and verdict.
    """

    commit: int
    height: int | None
    rows: int
    findings: dict[Key, int]
    examined: dict[str, int]
    lanes: Sequence[LaneBacklog]
    chains: Sequence[ChainCoverage]
    seen: int
    one_sided: int
    unread: int
    behind: int
    quarantined: int
    totals: dict[Key, int] = field(default_factory=dict)


def take_snapshot(watched: WatchResult, checks: Collection[str]) -> AuditSnapshot:
    """Return what is told of a look. ``checks``: the names of those that are asked for."""
    audit = watched.audit
    chains = chain_coverage(audit, watched.observed)
    lanes = lane_backlogs(audit, chains, watched.promises)
    found = [check for name, check in audit.checks.items() if name in checks]
    return AuditSnapshot(
        *(watched.commit, watched.height),
        sum(audit.completeness["rows"].to_pylist()),
        {(check.name, *key): count for check in found for key, count in check.reasons.items()},
        {check.name: check.examined for check in found},
        order_lanes(lanes),
        sorted(chains, key=lambda chain: -chain.rows),
        *(count_lanes(audit), count_one_sided_lanes(audit)),
        *(len(watched.unread), watched.behind, watched.counts.get("quarantined", 0)),
        {(check.name, verdict): getattr(check, verdict) for check in found for verdict in VERDICTS},
    )


def order_lanes(lanes: Collection[LaneBacklog]) -> list[LaneBacklog]:
    """Return lanes as they are shown: some whose oldest message is the most overdue, then those with the most that
    waits."""
    late = sorted((lane for lane in lanes if lane.overdue), key=lambda lane: -(lane.overdue or 0.0))[:MOST_LATE]
    known = {lane.lane for lane in late}
    others = (lane for lane in lanes if lane.lane not in known)
    return late + sorted(others, key=lambda lane: (-lane.open, -lane.unacknowledged, -lane.messages))


class AuditCollector(Collector):
    """The metrics of an audit that follows a ledger. Whatever thread asks gets those of the last look. ``now``: the
    clock, in seconds of the Unix epoch."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._told: tuple[AuditSnapshot, list[Metric]] | None = None
        self._up, self._looks, self._failures = 0, 0, 0
        self._last = 0.0

    def show(self, shown: AuditSnapshot | None) -> None:
        """Take what a look showed; None: nothing was new."""
        self._looks, self._up, self._last = self._looks + 1, 1, self._now()
        if shown is not None:
            # Reasons that were there once are told as 0, so that what is gone is seen to go.
            known = {} if self._told is None else dict.fromkeys(self._told[0].findings, 0)
            shown = replace(shown, findings={**known, **shown.findings})
            self._told = shown, [*_of_look(shown)]

    def failed(self) -> None:
        """Take notice that a look failed."""
        self._looks, self._failures, self._up = self._looks + 1, self._failures + 1, 0

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield _gauge("up", "Whether the last look could read the ledger.", self._up)
        yield CounterMetricFamily(f"{PREFIX}looks", "Looks whether there is something new.", self._looks)
        yield CounterMetricFamily(f"{PREFIX}failures", "Looks that could not read the ledger.", self._failures)
        yield _gauge("last_look_time_seconds", "When the ledger was last read, of the Unix epoch.", self._last)
        if self._told is not None:
            shown, metrics = self._told
            yield from metrics
            yield from self._chains(shown.chains)

    def _chains(self, chains: Sequence[ChainCoverage]) -> Iterable[Metric]:
        keys: list[Key] = [(_label(chain.chain),) for chain in chains[:MOST_CHAINS]]
        keys += [(OTHERS,)] * (len(chains) - len(keys))
        now = self._now()
        for name, text, of, together in CHAIN_GAUGES:
            values = [_of_chain(chain, of, now) for chain in chains]
            yield _labelled(name, text, ["chain"], _together(keys, values, together))


def _of_look(shown: AuditSnapshot) -> Iterable[Metric]:
    """Yield what is the same until the next look."""
    yield _gauge("commit", "The last commit of the ledger that was read.", shown.commit)
    if shown.height is not None:
        yield _gauge("height", "The last height of the lake that was read.", shown.height)
    yield _gauge("rows", "Rows of the ledger.", shown.rows)
    yield _gauge("quarantined_records", "Records of the input that could not be read.", shown.quarantined)
    yield _gauge("unread_buckets", "Buckets that cannot be read: they count as they were last read.", shown.unread)
    yield _gauge("behind_buckets", "Buckets judged by windows of an earlier commit.", shown.behind)
    yield _gauge("lanes", "Lanes that were seen.", shown.seen)
    yield _gauge("one_sided_lanes", "Lanes of which only one end was recorded.", shown.one_sided)
    yield _labelled("examined", "What a check looked at.", ["check"], {(k,): v for k, v in shown.examined.items()})
    for verdict in VERDICTS:
        of = {(check,): count for (check, each), count in shown.totals.items() if each == verdict}
        yield _labelled(verdict, f"Findings of a check that are {verdict}.", ["check"], of)
    labels = ["check", "verdict", "reason"]
    yield _labelled("findings", "Findings by check, verdict and reason.", labels, shown.findings)
    for name, what in (("open", "came or will not come"), ("unacknowledged", "their source is done with them")):
        values = [getattr(lane, name) for lane in shown.lanes]
        ages = [age for lane in shown.lanes if (age := getattr(lane, f"{name}_age")) is not None]
        yield _gauge(f"{name}_messages", f"Messages of all lanes, sent, and nothing says that {what}.", sum(values))
        yield _gauge(f"{name}_oldest_seconds", "Since the oldest of them was sent.", max(ages, default=0.0))
    overdue = [lane.overdue for lane in shown.lanes if lane.overdue is not None]
    text = "Since the oldest open message could have come: it was final, and its destination went on."
    yield _gauge("overdue_seconds", text, max(overdue, default=0.0))
    yield from _of_lanes(shown.lanes)


def _of_lanes(lanes: Sequence[LaneBacklog]) -> Iterable[Metric]:
    keys = [tuple(_label(name) for name in lane.lane) for lane in lanes[:MOST_LANES]]
    keys += [("", "", "", OTHERS)] * (len(lanes) - len(keys))
    for name, text, of, together in LANE_GAUGES:
        values = [getattr(lane, of) for lane in lanes]
        if together is max:  # none that waits is 0 seconds old
            values = [0.0 if value is None else value for value in values]
        yield _labelled(name, text, LANE_LABELS, _together(keys, values, together))


def _of_chain(chain: ChainCoverage, of: str, now: float) -> float | None:
    at = None if chain.last_time is None else _seconds(chain.last_time)
    if of == "at":
        return at
    if of == "lag":
        return None if at is None else max(now - at, 0.0)
    found: float | None = getattr(chain, of)
    return found


def _together(
    keys: Sequence[Key], values: Sequence[float | None], together: Callable[[list[float]], float]
) -> dict[Key, float]:
    """Return the values of each key as one: names that are alike once they are cut have one metric."""
    found: dict[Key, list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        if value is not None:
            found.setdefault(key, []).append(value)
    return {key: together(each) for key, each in found.items()}


def _label(name: str | None) -> str:
    return "" if name is None else escape_controls(name[:MOST_CHARACTERS])


def _seconds(at: datetime) -> float:
    return at.timestamp()


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value)


def _labelled(name: str, text: str, labels: Sequence[str], values: Any) -> Metric:
    metric = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        metric.add_metric([*key], value)
    return metric


__all__ = ["MOST_CHAINS", "MOST_LANES", "AuditCollector", "AuditSnapshot", "order_lanes", "take_snapshot"]
