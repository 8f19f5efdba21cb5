"""What the relay chain of a lake of parachains has seen at a committed height, and what waits for whom, without Spark
(ICMP reference 3.1, L3)."""

from __future__ import annotations

from causeway.network.carriers import CarrierSummary
from causeway.pipeline.lake import Lake, Manifest

SHOWN = 4
"""Parachains for which queues wait that a person is shown."""


def summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Return what is told of a lake at a height after a run (``network.carriers``)."""
    names = [item["name"] for item in lake.about()["chains"]]
    relay = max(row["number"] for row in _rows(lake, manifest, "blocks", ["number"]))
    # Leaves of a fork list the same blocks and queues.
    made = {(row["para"], row["number"]) for row in _rows(lake, manifest, "paras", ["para", "number"])}
    blocks = {para: max(number for other, number in made if other == para) for para, _ in made}
    columns = ["number", "to", "source", "root"]
    listed = {tuple(row[name] for name in columns) for row in _rows(lake, manifest, "unrouted", columns)}
    # A network has egress queues or channels, and the tables of one of them.
    sent = [row["recipient"] for row in _rows(lake, manifest, "contents", ["recipient"])]
    what = "Messages that are in channels" if sent else "Queues that are posted"
    waiting: dict[int, int] = {}
    for to in [*sent, *(row[1] for row in listed)]:
        waiting[to] = waiting.get(to, 0) + 1
    content = {
        "relay_blocks": relay,
        "included_blocks": sum(blocks.values()),
        "waiting_queues": {names[para]: count for para, count in sorted(waiting.items())},
    }
    lines = [f"{relay:,} relay blocks included {sum(blocks.values()):,} blocks of {len(blocks):,} parachains."]
    if waiting:
        most = sorted(waiting.items(), key=lambda item: (-item[1], item[0]))
        told = ", ".join(f"{count:,} for {names[para]}" for para, count in most[:SHOWN])
        more = f", and for {len(most) - SHOWN:,} more" if len(most) > SHOWN else ""
        lines.append(f"{what} and not consumed: {told}{more}.")
    return CarrierSummary(content, lines)


def _rows(lake: Lake, manifest: Manifest, table: str, columns: list[str]) -> list[dict[str, int]]:
    return [row for part in lake.state(manifest, table, columns) for row in part.to_pylist()]
