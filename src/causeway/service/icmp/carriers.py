"""What the relay chain of a lake of parachains has seen at a committed height, and what waits for whom, without Spark
(ICMP reference 3.1, L3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from causeway.network.carriers import CarrierSummary
from causeway.pipeline.lake import Lake, Manifest
from causeway.service.icmp.closed_channels import closed_channels, lines_on

MOST_CLOSED = 1_000
"""Channels that are not open that a program is told of."""

SHOWN = 4
"""Parachains for which queues or messages from users wait that a person is shown."""


def summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Return what is told of a lake at a height after a run (``network.carriers``)."""
    about = lake.about()
    # With HRMP the relay chain has one leaf.
    leaf = [] if about["scenario"]["options"].get("channels") == "hrmp" else ["leaf"]
    blocks_of = _rows(lake, manifest, "blocks", [*leaf, "number", "hash"])
    # Each leaf lists what is posted and included on its own chain (G9): told is of the best one (hazard 29).
    best = min(blocks_of, key=lambda row: (-row["number"], row["hash"]))

    def of_best(table: str, columns: list[str]) -> list[dict[str, Any]]:
        rows = _rows(lake, manifest, table, [*leaf, *columns])
        return [row for row in rows if row.get("leaf") == best.get("leaf")]

    names, relay = [item["name"] for item in about["chains"]], best["number"]
    blocks = {row["para"]: row["number"] for row in of_best("paras", ["para", "number"])}
    listed = [row["to"] for row in of_best("unrouted", ["to"])]
    # A network has egress queues or channels, and the tables of one of them.
    sent = [row["recipient"] for row in _rows(lake, manifest, "contents", ["recipient"])]
    what = "Messages that are in channels" if sent else "Queues that are posted"
    waiting = Counter([*sent, *listed])
    ingress = Counter(row["chain"] for row in _rows(lake, manifest, "pool", ["chain"]))
    content: dict[str, Any] = {
        "relay_blocks": relay,
        "included_blocks": sum(blocks.values()),
        "waiting_queues": {names[para]: count for para, count in sorted(waiting.items())},
        "ingress_waiting": ingress.total(),
    }
    lines = [f"{relay:,} relay blocks included {sum(blocks.values()):,} blocks of {len(blocks):,} parachains."]
    if len(blocks_of) > 1:
        lines[0] += f" This is the best of {len(blocks_of)} leaves, block {best['hash'].hex()}."
    if waiting:
        lines.append(f"{what} and not consumed: {_by_chain(waiting, names)}.")
    if ingress:
        lines.append(f"Messages from users that wait for the next block: {_by_chain(ingress, names)}.")
    options = about["scenario"]["options"]
    if options.get("channels") == "hrmp":
        closed = closed_channels(lake, manifest, names, options)
        content["closed_channels"] = [asdict(one) for one in closed[:MOST_CLOSED]]
        lines += lines_on(closed)
    return CarrierSummary(content, lines)


def _by_chain(counts: Mapping[int, int], names: Sequence[str]) -> str:
    """Return counts by parachain in words, the largest first."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{count:,} for {names[para]}" for para, count in most[:SHOWN])
    return shown + (f", and for {len(most) - SHOWN:,} more" if len(most) > SHOWN else "")


def _rows(lake: Lake, manifest: Manifest, table: str, columns: list[str]) -> list[dict[str, Any]]:
    return [row for part in lake.state(manifest, table, columns) for row in part.to_pylist()]
