"""``gossip``: node-queues a second beside the plain oracle, and what a leaf that lists much costs."""

from __future__ import annotations

import cProfile
import os
import pstats
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from causeway_proofs.errors import InvalidInput

from benchmarks.gossip import plain
from benchmarks.gossip.workload import Flood, flood, listed
from benchmarks.machine import machine, peak_bytes
from benchmarks.process import call
from benchmarks.rounds import Progress
from causeway.gossip.options import GossipOptions

LEAVES = ((1, 100), (1, 10_000), (1_000, 10_000))
"""Nodes whose leaves change at once, and the queues that are unrouted."""


def bench_gossip(
    nodes: Sequence[int] = (1_000, 5_000),
    *,
    queues: int = 100,
    degree: int = 10,
    small: int = 200,
    repeats: int = 3,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure gossip; return figures that fit JSON. All times are of the processor.

    Args:
        nodes: of floods, one after the other; ``small``: of the one that the oracle does, too.
        queues: that reach all nodes; degree: peers of a node, on average.
        repeats: how often each is measured.
        progress: told what is being measured.

    Raises:
        InvalidInput: a number is out of range.
        BenchmarkFailed: not every queue reaches every node.
    """
    if repeats < 1:
        raise InvalidInput("repeats: at least 1 is allowed")
    about, tell = machine(), progress if progress is not None else lambda text: None
    both = Flood(small, degree, queues)
    tell("the oracle")
    rows = [{"engine": "plain Python", **_row(both), "seconds": [plain.flood(both) for _ in range(repeats)]}]
    for count in (small, *nodes):
        tell(f"{count:,} nodes")
        work = Flood(count, degree, queues)
        # A process of its own: what it has in memory at most is its own.
        rows.append({"engine": "columns", **_row(work), **call(_floods, work, repeats)})
    tell("leaves")
    return {
        "benchmark": "gossip",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "workload": {"queues": queues, "degree": degree},
        "repeats": repeats,
        "floods": rows,
        "leaves": [listed(count, number, repeats) for count, number in LEAVES],
        "parts": call(_parts, Flood(max(nodes, default=small), degree, queues)),
    }


def _row(work: Flood) -> dict[str, int]:
    return {"nodes": work.nodes, "queues": work.queues, "links": len(work.links) // 2}


def _floods(work: Flood, repeats: int) -> dict[str, Any]:
    import psutil

    options = GossipOptions()
    found = [flood(work, options) for _ in range(repeats)]
    return {"seconds": found, "peak_bytes": peak_bytes(psutil.Process())}


def _parts(work: Flood) -> list[dict[str, Any]]:
    """Return in which functions the time of a flood goes, the most first, each with what it calls of other packages."""
    profile = cProfile.Profile()
    profile.runcall(flood, work, GossipOptions())
    stats: Any = pstats.Stats(profile)
    home = "/causeway/"
    own: dict[str, float] = {}
    total = 0.0
    for (path, _, name), (_, _, alone, _, callers) in stats.stats.items():
        total += alone
        if home in Path(path).as_posix():
            key = f"{Path(path).stem}.{name}"
            own[key] = own.get(key, 0.0) + alone
        else:
            for (of, _, caller), (_, _, spent, _) in callers.items():
                if home in Path(of).as_posix():
                    key = f"{Path(of).stem}.{caller}"
                    own[key] = own.get(key, 0.0) + spent
    most = sorted(own.items(), key=lambda item: -item[1])[:8]
    return [{"function": name, "share": spent / total} for name, spent in most]
