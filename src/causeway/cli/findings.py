"""What a run's ledger shows beyond the counts: delays, lanes, load and failures; each from one Spark query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.network.network import Network


@dataclass(frozen=True)
class Findings:
    """What the ledger shows.

    ``delays``: ticks from call to answer, of answered calls, with how many calls took so long. ``lanes``: messages by
    (source, destination). ``load``: messages by tick. ``troubles``: calls by (outcome, reason, code) where there is a
    reason or a reject. ``refused``: slices and messages from users that were refused, by (what, reason).
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


def look(network: Network) -> Findings:
    """Query the ledger of a network that has run."""
    from pyspark.sql import functions as F

    from causeway.model.ledger import Event, Kind

    tables = network.tables
    names = [item["name"] for item in tables.about["chains"]]
    delay = (F.col("ended_tick") - F.col("sent_tick")).alias("delay")
    calls = tables.ended().groupBy("outcome", "reason", "code", delay).count().collect()
    delays: Counter[int] = Counter()
    troubles: Counter[tuple[str, str, int]] = Counter()
    for row in calls:
        if row["outcome"] == "answered":
            delays[int(row["delay"])] += int(row["count"])
        if row["outcome"] != "answered" or row["reason"]:
            troubles[row["outcome"], row["reason"] or "", int(row["code"] or 0)] += int(row["count"])
    lanes: Counter[tuple[str, str]] = Counter()
    load: Counter[int] = Counter()
    for row in tables.remaining("outbound").groupBy("source", "destination", "tick").count().collect():
        lanes[names[row["source"]], names[row["destination"]]] += int(row["count"])
        load[int(row["tick"])] += int(row["count"])
    refused: Counter[tuple[str, str]] = Counter()
    beside = F.col("kind").isin(int(Kind.INGRESS), int(Kind.CONTROL)) & (F.col("reason") != "")
    beside &= F.col("events").bitwiseAND(F.lit(int(Event.REJECTED))) > 0
    for row in tables.remaining("events").where(beside).groupBy("kind", "reason").count().collect():
        refused["slice" if row["kind"] == Kind.CONTROL else "ingress", row["reason"]] += int(row["count"])
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
