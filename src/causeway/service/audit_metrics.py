"""Prometheus metrics of an audit that follows a ledger: findings, backlog, coverage.

All metrics derive from ledger events, so they hold for any delivery process. Names are untrusted: they are
truncated, and only a bounded number of lanes and chains have metrics of their own; the rest is summed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.audit import backlog
from causeway.audit.incremental.watch import WatchResult
from causeway.audit.passes.results import VERDICTS
from causeway.core.text import escape_controls

MOST_LANES = 100
MOST_CHAINS = 100
"""Maximum number of lanes and chains with metrics of their own: the largest backlog, then the largest."""

MOST_LATE = MOST_LANES // 2
"""Lanes among them that are selected by the most overdue message."""

MOST_CHARACTERS = 128
"""Maximum length of a name."""

OTHERS = "(others)"
"""Label of the summed lanes and chains."""

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
    """Exported figures of the last pass with new data.

    Attributes:
        commit: Commit of the ledger.
        height: Height of the lake, if any.
        rows: Rows of the ledger.
        findings: Findings by check, verdict and reason.
        examined: Examined items by check.
        lanes: Lanes in the order of ``order_lanes``.
        chains: Chains, the largest first.
        seen: Number of lanes.
        one_sided: Lanes with only one recorded end.
        unread: Unreadable buckets.
        behind: Buckets audited with windows of an earlier commit.
        quarantined: Unreadable records of the input.
        totals: Findings by check and verdict.
    """

    commit: int
    height: int | None
    rows: int
    findings: dict[Key, int]
    examined: dict[str, int]
    lanes: Sequence[backlog.LaneBacklog]
    chains: Sequence[backlog.ChainCoverage]
    seen: int
    one_sided: int
    unread: int
    behind: int
    quarantined: int
    totals: dict[Key, int] = field(default_factory=dict)


def take_snapshot(watched: WatchResult, checks: Collection[str]) -> AuditSnapshot:
    """Build a snapshot of a pass.

    Args:
        watched: Result of the pass.
        checks: Names of the exported checks.
    """
    audit = watched.audit
    chains = backlog.chain_coverage(audit, watched.observed)
    lanes = backlog.lane_backlogs(audit, chains, watched.promises)
    found = [check for name, check in audit.checks.items() if name in checks]
    return AuditSnapshot(
        *(watched.commit, watched.height),
        sum(audit.completeness["rows"].to_pylist()),
        {(check.name, *key): count for check in found for key, count in check.reasons.items()},
        {check.name: check.examined for check in found},
        order_lanes(lanes),
        sorted(chains, key=lambda chain: -chain.rows),
        *(backlog.count_lanes(audit), backlog.count_one_sided_lanes(audit)),
        *(len(watched.unread), watched.behind, watched.counts.get("quarantined", 0)),
        {(check.name, verdict): getattr(check, verdict) for check in found for verdict in VERDICTS},
    )


def order_lanes(lanes: Collection[backlog.LaneBacklog]) -> list[backlog.LaneBacklog]:
    """Order lanes for export: some with the most overdue message, then by backlog.

    Args:
        lanes: The lanes of one pass.

    Returns:
        All lanes; the first ``MOST_LATE`` at most are overdue, the longest first.
    """
    overdue = sorted((lane for lane in lanes if lane.overdue), key=lambda lane: -(lane.overdue or 0.0))[:MOST_LATE]
    known = {lane.lane for lane in overdue}
    others = (lane for lane in lanes if lane.lane not in known)
    return overdue + sorted(others, key=lambda lane: (-lane.open, -lane.unacknowledged, -lane.messages))


class AuditCollector(Collector):
    """Metrics of an audit that follows a ledger; any thread gets those of the last pass.

    Args:
        now: Source of the current time, in seconds of the Unix epoch.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._exported: tuple[AuditSnapshot, list[Metric]] | None = None
        self._up, self._passes, self._failures = 0, 0, 0
        self._last = 0.0

    def show(self, snapshot: AuditSnapshot | None) -> None:
        """Store the figures of a pass; None if nothing was new."""
        self._passes, self._up, self._last = self._passes + 1, 1, self._now()
        if snapshot is not None:
            # Vanished reasons are exported as 0, so that alerts resolve.
            known = {} if self._exported is None else dict.fromkeys(self._exported[0].findings, 0)
            snapshot = replace(snapshot, findings={**known, **snapshot.findings})
            self._exported = snapshot, [*_snapshot_metrics(snapshot)]

    def failed(self) -> None:
        """Count a failed pass."""
        self._passes, self._failures, self._up = self._passes + 1, self._failures + 1, 0

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        yield _gauge("up", "Whether the last look could read the ledger.", self._up)
        yield CounterMetricFamily(f"{PREFIX}looks", "Looks whether there is something new.", self._passes)
        yield CounterMetricFamily(f"{PREFIX}failures", "Looks that could not read the ledger.", self._failures)
        yield _gauge("last_look_time_seconds", "When the ledger was last read, of the Unix epoch.", self._last)
        if self._exported is not None:
            snapshot, metrics = self._exported
            yield from metrics
            yield from self._chains(snapshot.chains)

    def _chains(self, chains: Sequence[backlog.ChainCoverage]) -> Iterable[Metric]:
        keys: list[Key] = [(_label(chain.chain),) for chain in chains[:MOST_CHAINS]]
        keys += [(OTHERS,)] * (len(chains) - len(keys))
        now = self._now()
        for name, text, of, together in CHAIN_GAUGES:
            values = [_chain_value(chain, of, now) for chain in chains]
            yield _labelled(name, text, ["chain"], _aggregate(keys, values, together))


def _snapshot_metrics(snapshot: AuditSnapshot) -> Iterable[Metric]:
    """Yield the metrics that are constant between passes."""
    yield _gauge("commit", "The last commit of the ledger that was read.", snapshot.commit)
    if snapshot.height is not None:
        yield _gauge("height", "The last height of the lake that was read.", snapshot.height)
    yield _gauge("rows", "Rows of the ledger.", snapshot.rows)
    yield _gauge("quarantined_records", "Records of the input that could not be read.", snapshot.quarantined)
    yield _gauge("unread_buckets", "Buckets that cannot be read: they count as they were last read.", snapshot.unread)
    yield _gauge("behind_buckets", "Buckets judged by windows of an earlier commit.", snapshot.behind)
    yield _gauge("lanes", "Lanes that were seen.", snapshot.seen)
    yield _gauge("one_sided_lanes", "Lanes of which only one end was recorded.", snapshot.one_sided)
    yield _labelled("examined", "What a check looked at.", ["check"], {(k,): v for k, v in snapshot.examined.items()})
    for verdict in VERDICTS:
        of = {(check,): count for (check, each), count in snapshot.totals.items() if each == verdict}
        yield _labelled(verdict, f"Findings of a check that are {verdict}.", ["check"], of)
    labels = ["check", "verdict", "reason"]
    yield _labelled("findings", "Findings by check, verdict and reason.", labels, snapshot.findings)
    for name, outcome in (("open", "came or will not come"), ("unacknowledged", "their source is done with them")):
        values = [getattr(lane, name) for lane in snapshot.lanes]
        ages = [age for lane in snapshot.lanes if (age := getattr(lane, f"{name}_age")) is not None]
        yield _gauge(f"{name}_messages", f"Messages of all lanes, sent, and nothing says that {outcome}.", sum(values))
        yield _gauge(f"{name}_oldest_seconds", "Since the oldest of them was sent.", max(ages, default=0.0))
    overdue = [lane.overdue for lane in snapshot.lanes if lane.overdue is not None]
    text = "Since the oldest open message could have come: it was final, and its destination went on."
    yield _gauge("overdue_seconds", text, max(overdue, default=0.0))
    yield from _lane_metrics(snapshot.lanes)


def _lane_metrics(lanes: Sequence[backlog.LaneBacklog]) -> Iterable[Metric]:
    keys = [tuple(_label(name) for name in lane.lane) for lane in lanes[:MOST_LANES]]
    keys += [("", "", "", OTHERS)] * (len(lanes) - len(keys))
    for name, text, of, together in LANE_GAUGES:
        values = [getattr(lane, of) for lane in lanes]
        if together is max:  # no open message counts as age 0
            values = [0.0 if value is None else value for value in values]
        yield _labelled(name, text, LANE_LABELS, _aggregate(keys, values, together))


def _chain_value(chain: backlog.ChainCoverage, field: str, now: float) -> float | None:
    at = None if chain.last_time is None else _seconds(chain.last_time)
    if field == "at":
        return at
    if field == "lag":
        return None if at is None else max(now - at, 0.0)
    found: float | None = getattr(chain, field)
    return found


def _aggregate(
    keys: Sequence[Key], values: Sequence[float | None], together: Callable[[list[float]], float]
) -> dict[Key, float]:
    """Aggregate values by key; names that are equal after truncation share a metric."""
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
