"""Summary of a lake of parachains: relay blocks, pending queues, closed channels.

It needs no Spark (ICMP reference 3.1, L3, X-6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.network.run_records import CarrierSummary
from causeway.protocols.hrmp.channels import channel_counts, present_parachains
from causeway.protocols.hrmp.state import HRMP_TABLES, PAIR
from causeway.protocols.relay_chain.options import HrmpOptions
from causeway.storage.lake import Lake, Manifest

SHOWN_CHANNELS = 4
"""Maximum number of listed channels."""


@dataclass(frozen=True)
class ClosedChannel:
    """Closed channel with ``pages`` pending pages of messages, and the reason."""

    sender: str
    recipient: str
    pages: int
    why: str


def closed_channels(
    lake: Lake, manifest: Manifest, names: Sequence[str], given: Mapping[str, Any]
) -> list[ClosedChannel]:
    """Return the closed channels with pending pages at a height, by sender and recipient.

    Args:
        lake: The lake.
        manifest: Manifest of the height.
        names: Names of the chains by position.
        given: Options of the scenario.
    """
    options = HrmpOptions.model_validate({key: given[key] for key in HrmpOptions.model_fields if key in given})
    pages, channels = _rows(lake, manifest, "pages"), _rows(lake, manifest, "channels")
    waiting: dict[tuple[int, int], int] = {}
    for pair in zip(pages["source"].tolist(), pages["destination"].tolist(), strict=True):
        waiting[pair] = waiting.get(pair, 0) + 1
    closed = sorted(waiting.keys() - {*_pairs(channels)})
    if not closed:
        return []
    requests, sovereign = _rows(lake, manifest, "requests"), _rows(lake, manifest, "sovereign")
    present = present_parachains(_rows(lake, manifest, "paras")).tolist()
    confirmed = dict(zip(_pairs(requests), requests["confirmed"].tolist(), strict=True))
    free = dict(zip(sovereign["para"].tolist(), sovereign["free"].tolist(), strict=True))
    outbound, inbound = channel_counts(requests, channels)

    def reason(sender: int, recipient: int) -> str:
        for chain in (sender, recipient):
            if chain not in present:
                return f"{names[chain]} is not registered"
        if confirmed.get((sender, recipient)) == 1:
            return "it opens with the next session"
        if (sender, recipient) in confirmed:
            end, action, counts, limit = recipient, "accepted", inbound, "max_inbound_channels"
        else:
            end, action, counts, limit = sender, "asked for", outbound, "max_outbound_channels"
        side = "recipient" if end == recipient else "sender"
        deposit = getattr(options, f"{side}_deposit")
        if free.get(end, 0) < deposit:
            return f"{names[end]} has {free.get(end, 0):,} units, {side}_deposit is {deposit:,}"
        if counts[end] >= getattr(options, limit):
            return f"{names[end]} has {counts[end]:,} channels, as many as {limit} allows"
        return f"it is not {action} yet"

    return [ClosedChannel(names[x], names[y], waiting[x, y], reason(x, y)) for x, y in closed]


def describe_closed_channels(closed: Sequence[ClosedChannel]) -> Iterator[str]:
    """Yield a readable description of closed channels."""
    for one in closed[:SHOWN_CHANNELS]:
        pages = f"{one.pages:,} page{'s' if one.pages > 1 else ''}"
        yield f"The channel from {one.sender} to {one.recipient}, for which {pages} wait, is not open: {one.why}."
    if len(closed) > SHOWN_CHANNELS:
        yield f"... and {len(closed) - SHOWN_CHANNELS:,} more channels that are not open."


def _rows(lake: Lake, manifest: Manifest, table: str) -> Frame:
    names = HRMP_TABLES[table].schema.names
    wanted = [name for name in names if name != "data"]
    parts = [from_table(part) for part in lake.state(manifest, table, wanted)]
    return concat(parts) if parts else empty_frame(HRMP_TABLES[table].schema).select(wanted)


def _pairs(rows: Frame) -> list[tuple[int, int]]:
    sender, recipient = (rows[name].tolist() for name in PAIR)
    return [*zip(sender, recipient, strict=True)]


MOST_CLOSED = 1_000
"""Maximum number of closed channels in JSON output."""

SHOWN = 4
"""Maximum number of listed parachains with pending input."""


def summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Summarize a lake at a height after a run (``network.run_records``).

    Args:
        lake: The lake.
        manifest: Manifest of the height.
    """
    about = lake.about()
    # With HRMP the relay chain has one leaf.
    leaf = [] if about["scenario"]["options"].get("channels") == "hrmp" else ["leaf"]
    blocks_of = _carriers_rows(lake, manifest, "blocks", [*leaf, "number", "hash"])
    # Each leaf lists its own chain's postings and inclusions (G9); the summary covers the best one (hazard 29).
    best = min(blocks_of, key=lambda row: (-row["number"], row["hash"]))

    def of_best(table: str, columns: list[str]) -> list[dict[str, Any]]:
        rows = _carriers_rows(lake, manifest, table, [*leaf, *columns])
        return [row for row in rows if row.get("leaf") == best.get("leaf")]

    names, relay = [item["name"] for item in about["chains"]], best["number"]
    blocks = {row["para"]: row["number"] for row in of_best("paras", ["para", "number"])}
    listed = [row["to"] for row in of_best("unrouted", ["to"])]
    # A network has either egress queues or channels.
    sent = [row["recipient"] for row in _carriers_rows(lake, manifest, "contents", ["recipient"])]
    pending_text = "Messages that are in channels" if sent else "Queues that are posted"
    waiting = Counter([*sent, *listed])
    ingress = Counter(row["chain"] for row in _carriers_rows(lake, manifest, "pool", ["chain"]))
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
        lines.append(f"{pending_text} and not consumed: {_by_chain(waiting, names)}.")
    if ingress:
        lines.append(f"Messages from users that wait for the next block: {_by_chain(ingress, names)}.")
    options = about["scenario"]["options"]
    if options.get("channels") == "hrmp":
        closed = closed_channels(lake, manifest, names, options)
        content["closed_channels"] = [asdict(one) for one in closed[:MOST_CLOSED]]
        lines += describe_closed_channels(closed)
    return CarrierSummary(content, lines)


def _by_chain(counts: Mapping[int, int], names: Sequence[str]) -> str:
    """Format counts by parachain, the largest first."""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{count:,} for {names[para]}" for para, count in most[:SHOWN])
    return listed + (f", and for {len(most) - SHOWN:,} more" if len(most) > SHOWN else "")


def _carriers_rows(lake: Lake, manifest: Manifest, table: str, columns: list[str]) -> list[dict[str, Any]]:
    return [row for part in lake.state(manifest, table, columns) for row in part.to_pylist()]
