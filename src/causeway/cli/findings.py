"""What a run's ledger shows beyond the counts: delays, lanes, load and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.network.summary import Summary
    from causeway.pipeline.ledger_store import Ledger


@dataclass(frozen=True)
class Findings:
    """What the ledger shows.

    ``delays``: ticks from call to answer, of answered calls, with how many calls took so long. ``lanes``: messages by
    (source, destination). ``load``: messages by the tick at which they were sent. ``troubles``: calls that were not
    answered, answers that were rerouted and forged messages by (outcome, reason, code). ``refused``: slices and
    messages from users that were refused, by (what, reason).
    """

    delays: Mapping[int, int]
    lanes: Mapping[tuple[str, str], int]
    load: Mapping[int, int]
    troubles: Mapping[tuple[str, str, int], int]
    refused: Mapping[tuple[str, str], int]

    def delay(self, share: float) -> int | None:
        """Return within how many ticks that share of the answered calls was answered."""
        return quantile(self.delays, share)

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints of it."""
        return {
            "delay_ticks": {"p50": self.delay(0.5), "p99": self.delay(0.99), "max": max(self.delays, default=None)},
            "busiest_lanes": [
                {"source": source, "destination": destination, "messages": count}
                for (source, destination), count in busiest(self.lanes, 10)
            ],
            "troubles": [
                {"outcome": outcome, "reason": reason, "code": code, "calls": count}
                for (outcome, reason, code), count in sorted(self.troubles.items())
            ],
            "refused": [
                {"what": what, "reason": reason, "count": count}
                for (what, reason), count in sorted(self.refused.items())
            ],
        }


def look(ledger: Ledger, summary: Summary) -> Findings:
    """Return what the ledger of a run shows. Raises ``LedgerDamaged``."""
    import pyarrow.compute as pc

    from causeway.figures.codes import FORGED_KIND, FROM_USERS, of_kind
    from causeway.figures.where import Where
    from causeway.pipeline.ledger_figures import messages_of

    found, codes = summary.figures, summary.figures.codes
    delays: Counter[int] = Counter()
    for rows in messages_of(ledger, Where.of(outcome="answered").and_(Where(calls=True))):
        counted = rows["round_trip_ticks"].drop_null().value_counts()
        delays.update({row["values"]: row["counts"] for row in counted.to_pylist()})
    lanes: Counter[tuple[str, str]] = Counter()
    for row in found.lanes.filter(pc.greater(found.lanes["between_chains"], 0)).to_pylist():
        lanes[row["source"], row["destination"]] += row["between_chains"]
    load = Counter(dict(zip(*(found.backlog[name].to_pylist() for name in ("tick", "sent")), strict=True)))
    troubles: Counter[tuple[str, str, int]] = Counter()
    for row in codes.to_pylist():
        kind, outcome = row["kind"], row["outcome"]
        if kind == FORGED_KIND:
            outcome = kind
        elif kind == "response" and outcome == "rejected":
            outcome = "rerouted"
        elif kind != "request" or outcome == "answered":
            continue
        troubles[outcome, row["detail"] or "", row["code"] or 0] += row["messages"]
    refused: Counter[tuple[str, str]] = Counter()
    for kind, what in (("control", "slice"), (FROM_USERS, "ingress")):
        for row in of_kind(codes, kind).to_pylist():
            if row["outcome"] == "rejected" and row["detail"]:
                refused[what, row["detail"]] += row["messages"]
    return Findings(delays, lanes, load, troubles, refused)


def quantile(counts: Mapping[int, int], share: float) -> int | None:
    """Return the least value that this share of the counted values does not exceed."""
    left = share * sum(counts.values())
    for value, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return value
    return None


def busiest(lanes: Mapping[tuple[str, str], int], count: int) -> list[tuple[tuple[str, str], int]]:
    """Return the lanes with the most messages, busiest first."""
    return sorted(lanes.items(), key=lambda item: (-item[1], item[0]))[:count]
