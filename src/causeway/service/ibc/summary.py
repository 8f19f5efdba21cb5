"""Summary of a lake's relayers and backlogs at a height (IBC reference 3.5, X-14).

It needs no Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.core.frame import Frame, concat, from_table
from causeway.network.run_records import CarrierFee, CarrierSummary
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.relay.accounts import COUNTS, relayer_name
from causeway.protocols.ibc.state import SEND
from causeway.protocols.shared.messages import LANE
from causeway.storage.lake import Lake, Manifest

LISTED = 10
"""Maximum number of queues with a backlog in JSON output."""

LISTED_ZONES = 8
"""Maximum number of listed zones on which a relayer has stopped."""


@dataclass(frozen=True)
class Backlog:
    """Queue with pending entries: their number, the first one, and its age in heights."""

    chain: str
    counterparty: str
    queue: str
    waiting: int
    oldest: int
    age: int


def summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Summarize the relayers of a lake at a height after a run (``network.run_records``).

    Args:
        lake: The lake.
        manifest: Manifest of the height.
    """
    options = IbcOptions(**lake.about()["scenario"]["options"])
    accounts, left = relayers(lake, manifest, options.relayers), backlogs(lake, manifest)
    balances = funds(lake, manifest, options.relayers)
    lines = [describe_relayer(account) for account in accounts] + [describe_accounts(account) for account in balances]
    lines += [describe_backlog(left)] if left else []
    if not accounts and not balances:
        return CarrierSummary({}, lines)
    content: dict[str, Any] = {"relayer_accounts": balances} if balances else {}
    backlog = {"waiting": sum(item.waiting for item in left), "oldest": [asdict(item) for item in left[:LISTED]]}
    content |= {"relayers": accounts, "backlog": backlog}
    return CarrierSummary(content, lines, _fees(accounts, options, lake))


def _fees(accounts: Sequence[Mapping[str, Any]], options: IbcOptions, lake: Lake) -> list[CarrierFee]:
    """Return the relayers' total fees for headers, and for messages with their proofs."""
    asset = lake.about()["asset"]
    headers = sum(account["headers"] for account in accounts) * options.relay.header_fee
    return [
        CarrierFee(asset, "header_relayed", headers),
        CarrierFee(asset, "message_relayed", sum(account["fees"] for account in accounts) - headers),
    ]


def relayers(lake: Lake, manifest: Manifest, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the counts of each relayer, summed over all zones: ``name`` and ``COUNTS``.

    Relayers outside the scenario are named ``outside/N`` by number, or ``outside/others`` without an account
    (``accounts.relayer_name``).

    Args:
        lake: The lake.
        manifest: Manifest of the height.
        names: Names of the scenario's relayers.
    """
    totals: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for row in _rows(lake, manifest, "relayers"):
        for name in COUNTS:
            totals[row["relayer"]][name] += row[name]
    return [{"name": relayer_name(number, names), **totals[number]} for number in sorted(totals)]


def funds(lake: Lake, manifest: Manifest, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the accounts of the scenario's relayers; empty if relayers have no accounts.

    Args:
        lake: The lake.
        manifest: The commit with the reported height.
        names: Names of the relayers.

    Returns:
        For each relayer its ``name``, the sums ``balance``, ``deposited``, ``earned``, ``owed`` and ``stops`` over all
        zones, and ``stopped``: the zones whose fees it cannot pay, with the heights.
    """
    chains = [chain["name"] for chain in lake.about()["chains"]]
    sums = ("balance", "deposited", "earned", "owed", "stops")
    found: dict[int, dict[str, Any]] = {}
    for row in _rows(lake, manifest, "funds"):
        if row["relayer"] == len(names):
            continue  # the zone's own account
        account = found.setdefault(
            row["relayer"], {"name": names[row["relayer"]], **dict.fromkeys(sums, 0), "stopped": {}}
        )
        for name in sums:
            account[name] += row[name]
        if row["stopped"]:
            account["stopped"][chains[row["chain"]]] = row["stopped"]
    return [found[number] for number in sorted(found)]


def backlogs(lake: Lake, manifest: Manifest) -> list[Backlog]:
    """Return the queues with entries to relay, the oldest first.

    Pending are the packets of a send queue without a receipt or an index for one, and the receipts of a receipt
    queue whose packets still exist. The result does not depend on who relays.

    Args:
        lake: The lake.
        manifest: Manifest of the height.
    """
    about = lake.about()
    chains = [chain["name"] for chain in about["chains"]]
    ordered = IbcOptions(**about["scenario"]["options"]).order == "ordered"
    ready = {tuple(row[name] for name in LANE): row["ready"] for row in _rows(lake, manifest, "queues")}
    entries = _indices_by_key(lake, manifest, "leaves", LANE)
    assigned = _indices_by_key(lake, manifest, "slots", ("destination", "source"))
    pushed: dict[tuple[int, ...], list[Mapping[str, int]]] = defaultdict(list)
    for run in _rows(lake, manifest, "runs"):
        pushed[tuple(run[name] for name in LANE)].append(run)
    found = []
    for lane, own_entries in entries.items():
        source, destination, substream = lane
        back = destination, source, 1 - substream
        if back not in ready:
            continue
        counterparty_entries = entries.get(back, _NONE)
        if substream == SEND:
            pending = np.setdiff1d(own_entries, np.concatenate([counterparty_entries, assigned.get(back[:2], _NONE)]))
        else:
            pending = np.intersect1d(own_entries, counterparty_entries)
        if ordered:  # a receipt behind a missing one cannot be relayed yet
            pending = pending[pending < np.uint64(ready[lane])]
        if len(pending):
            oldest = int(pending[0])
            heights = [run["height"] for run in pushed[lane] if run["first"] <= oldest < run["first"] + run["count"]]
            age = manifest.height - min(heights, default=manifest.height)
            queue = "send" if substream == SEND else "receipt"
            found.append(Backlog(chains[source], chains[destination], queue, len(pending), oldest, age))
    return sorted(found, key=lambda item: (-item.age, item.chain, item.counterparty, item.queue))


_NONE: U64 = np.empty(0, dtype=np.uint64)


def _indices_by_key(lake: Lake, manifest: Manifest, table: str, key: Sequence[str]) -> dict[tuple[int, ...], U64]:
    """Return the column ``index`` of a table, ascending, by the columns ``key``."""
    rows = concat([from_table(part) for part in lake.state(manifest, table)] or [Frame({})])
    if not len(rows):
        return {}
    rows = rows.take(stable_order(*(rows[name] for name in (*key, "index"))))
    groups = group_rows(*(rows[name] for name in key))
    keys = zip(*(rows[name][groups.starts].tolist() for name in key), strict=True)
    return dict(zip(keys, np.split(rows["index"], groups.starts[1:]), strict=True))


def describe_relayer(relayer: Mapping[str, Any]) -> str:
    """Describe a relayer's work and costs in one line."""
    wasted = f", {relayer['wasted']:,} of them wasted" if relayer["wasted"] else ""
    others = [f"{relayer[name]:,} {name}" for name in ("redundant", "refused") if relayer[name]]
    more = f" ({', '.join(others)})" if others else ""
    return (
        f"Relayer {relayer['name']}: {relayer['accepted']:,} of {relayer['submitted']:,} messages took "
        f"effect{more}, {relayer['headers']:,} headers; fees {relayer['fees']:,}{wasted}."
    )


def describe_accounts(account: Mapping[str, Any]) -> str:
    """Describe the accounts of a relayer, and the zones on which it stopped, in one line."""
    stopped = sorted(account["stopped"].items())
    zones = ", ".join(f"{chain} since height {height:,}" for chain, height in stopped[:LISTED_ZONES])
    more = f" and {len(stopped) - LISTED_ZONES:,} more" if len(stopped) > LISTED_ZONES else ""
    times = f"; out of funds {account['stops']:,} {'time' if account['stops'] == 1 else 'times'}"
    return (
        f"Account of {account['name']}: balance {account['balance']:,}, deposited {account['deposited']:,}, "
        f"earned {account['earned']:,}{times if account['stops'] else ''}"
        f"{f'; stopped on {zones}{more}: it cannot pay the fees' if stopped else ''}."
    )


def describe_backlog(backlogs: Sequence[Backlog]) -> str:
    """Describe the backlog in one line."""
    first = backlogs[0]
    entries, queues = sum(backlog.waiting for backlog in backlogs), len(backlogs)
    return (
        f"{entries:,} {'entry' if entries == 1 else 'entries'} of {queues:,} {'queue' if queues == 1 else 'queues'} "
        f"{'is' if entries == 1 else 'are'} waiting to be relayed; the oldest is {first.oldest} of {first.chain}'s "
        f"{first.queue} queue for {first.counterparty}, for {first.age:,} heights."
    )


def _rows(lake: Lake, manifest: Manifest, table: str) -> list[dict[str, Any]]:
    return [row for part in lake.state(manifest, table) for row in part.to_pylist()]
