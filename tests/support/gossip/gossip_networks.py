"""Simulated nodes tick after tick in memory, without a lake: states and logs, whatever the buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from causeway.core.frame import Frame, concat
from causeway.gossip.simulation.kernel import GossipKernel
from causeway.protocols.contract import Tick
from causeway.scenarios.traffic_sources import NoTraffic
from causeway.storage.external_input import NO_INPUT
from causeway.storage.lake import Lake
from causeway.storage.manifests import Manifest
from causeway.tick.deployment import GENESIS, Deployment, height_line
from causeway.tick.rounds import RoundChain, genesis_round, height_report

Log = list[dict[str, Any]]


def ticks(kernel: GossipKernel, ends: Sequence[int] = ()) -> Any:
    """Yield each tick with what all buckets logged in it; ``ends``: where the buckets end."""
    numbers = kernel.numbers()
    stops = [*ends] or [len(numbers)]
    buckets = tuple(zip([0, *stops[:-1]], stops, strict=True))
    deployment = Deployment(kernel, NoTraffic(), buckets, numbers)
    results = [genesis_round(deployment, bucket) for bucket in range(len(buckets))]
    before = Manifest(-1, (height_line(GENESIS, [height_report(result) for result in results]),))
    states = {bucket: result.state for bucket, result in enumerate(results)}
    rounds = RoundChain(deployment, Lake.at("nowhere"), before, states)
    while (tick := rounds.line.wake) is not None:
        made = rounds.run(Tick(rounds.line.height + 1, tick), NO_INPUT)
        logs = {name: concat([part.logs[name] for part in made if name in part.logs]) for name in _names(made)}
        logs["headers"] = concat([part.headers for part in made])
        yield tick, rounds.states, logs
        for height in [*rounds.made]:
            if height < rounds.line.height:
                del rounds.made[height]


def _names(made: Sequence[Any]) -> list[str]:
    return sorted({name for part in made for name in part.logs})


def in_memory(kernel: GossipKernel, ends: Sequence[int] = ()) -> tuple[list[bytes], dict[str, list[bytes]]]:
    """Return the roots of all headers, and the rows of all logs as bytes."""
    roots: list[bytes] = []
    found: dict[str, list[bytes]] = {}
    for tick, _, logs in ticks(kernel, ends):
        headers = logs.pop("headers")
        roots += [root.tobytes() for root in headers["root"]]
        for name, rows in logs.items():
            if len(rows):
                found.setdefault(name, []).append(_bytes(rows, tick))
    return roots, found


def _bytes(rows: Frame, tick: int) -> bytes:
    """Return rows by node: of one node they have an order, of several none."""
    rows = rows.take(np.argsort(rows["chain"], kind="stable"))
    return b"".join([tick.to_bytes(8, "little"), *(np.ascontiguousarray(rows[name]).tobytes() for name in rows.names)])
