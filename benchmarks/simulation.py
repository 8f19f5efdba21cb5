"""``simulation``: which share of queues arrives within one block, what each improvement gains, and how fast nodes are
simulated, beside the plain Python of the executable specification."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from causeway_proofs.errors import InvalidInput

from benchmarks.machine import machine
from benchmarks.process import BenchmarkFailed

Progress = Callable[[str], None]

SCENARIO = """
[network]
executor = "in_process"
[nodes]
parachains = 50
collators = 1
[links]
most = 500
[relay]
interval = 5_000
blocks = 4
queues = 20
propagation = 2_000
"""
"""The assumptions of the ICMP reference, 1.4: a block each 5 s, nodes have it within 2 s, neighbours are 500 ms apart,
leaves take 100 ms."""

CLOSE = {"relay.interval": "2500"}
"""Blocks so close that nodes are often at different leaves."""

VARIANTS: dict[str, dict[str, str]] = {
    "base": {},
    "degree 4": {"topology.degree": "4"},
    "degree 16": {"topology.degree": "16"},
    "close": CLOSE,
    "close, ancestors 1": {**CLOSE, "gossip.ancestors": "1"},
    "close, ancestors 2": {**CLOSE, "gossip.ancestors": "2"},
    "close, new_only": {**CLOSE, "gossip.heads_diff": '"new_only"'},
    "from_to": {"gossip.topology": '"from_to"', "gossip.max_peers": "1000"},
    "degree 4, fallback": {
        "topology.degree": "4",
        "gossip.fallback_request": '"on"',
        "gossip.fallback_after": "3000",
    },
    "close, fallback": {**CLOSE, "gossip.fallback_request": '"on"', "gossip.fallback_after": "500"},
    "close, minisketch": {**CLOSE, "gossip.reconciliation": '"minisketch"'},
}
"""What is changed of the scenario."""

LONGEST = 3_600


def bench_simulation(
    nodes: Sequence[int] = (100, 1_000, 5_000),
    variants: Sequence[str] = tuple(VARIANTS),
    *,
    oracle: int = 1_000,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure simulations, each in a process of its own; return figures that fit JSON.

    ``oracle``: nodes of a network that the specification's nodes live through, too, 0 for none. Raises
    ``InvalidInput``, and ``BenchmarkFailed`` when a process dies.
    """
    for name in variants:
        if name not in VARIANTS:
            raise InvalidInput(f'"{name}" is unknown; allowed: {"; ".join(VARIANTS)}')
    about, rows = machine(), []
    tell = progress if progress is not None else lambda text: None
    for count in nodes:
        for name in variants:
            tell(f"{count:,} nodes, {name}")
            given = {"nodes.count": str(count), "nodes.parachains": str(min(50, count // 2)), **VARIANTS[name]}
            rows.append({"variant": name, **_apart(given)})
    result = {"benchmark": "simulation", "machine": about, "rows": rows}
    if oracle:
        tell("plain Python")
        result["oracle"] = beside_the_oracle(oracle)
    return result


def _apart(given: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.simulation", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    if done.returncode:
        raise BenchmarkFailed((done.stderr.strip().splitlines() or ["a simulation failed"])[-1])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def simulated(given: dict[str, str]) -> dict[str, Any]:
    """Simulate once; return what was found, and what it took."""
    from causeway.network.network import LakeNetwork
    from causeway.network.simulation import load_simulation, summarize_simulation

    with tempfile.TemporaryDirectory(prefix="causeway-") as folder:
        path = Path(folder) / "scenario.toml"
        path.write_text(SCENARIO)
        with LakeNetwork(load_simulation("gossip", path, given), str(Path(folder) / "lake")) as network:
            started, busy = time.perf_counter(), time.process_time()
            network.run()
            seconds, busy = time.perf_counter() - started, time.process_time() - busy
            summary = dict(summarize_simulation(network).summary)
    work = summary["nodes"] * summary["queues"]
    return {
        **summary,
        "seconds": round(seconds, 2),
        "processor_seconds": round(busy, 2),
        "node_queues_per_processor_second": round(work / busy),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def beside_the_oracle(nodes: int) -> dict[str, Any]:
    """Let the nodes of the specification and the simulation live through one network; compare what they got and the
    processor time that they took."""
    from tests.spec.icmp.options import Options
    from tests.support.gossip.gossip_networks import ticks
    from tests.support.icmp.icmp_simulated import kernel_of, puts, with_oracle, world

    options = Options(propagate_on_leaf="on", allowed_by="root", seen_until="purge", impolite_limit=16)
    one = world(1, nodes, 16, 8, options, fork=0.0, most_taken=0)
    busy = time.process_time()
    with_oracle(one)
    plain = time.process_time() - busy
    kernel = kernel_of(one)
    quiet = replace(kernel, options=kernel.options.model_copy(update={"events": "coverage"}))
    names, roots, got = kernel.chains(), [root.tobytes() for root in kernel.world.relay.roots], set()
    busy = time.process_time()
    for _, _, logs in ticks(quiet):
        rows = logs.get("got")
        if rows is not None:
            got |= {(names[node], roots[root]) for node, root in zip(rows["chain"], rows["root"], strict=True)}
    ours = time.process_time() - busy
    return {
        "nodes": nodes,
        "node_queues": len(got),
        "plain_processor_seconds": round(plain, 2),
        "our_processor_seconds": round(ours, 2),
        "ratio": round(plain / ours, 1),
        "equal": got == {put[:2] for put in puts(one.g.rows)},
    }


if __name__ == "__main__":
    print(json.dumps(simulated(json.loads(sys.argv[1]))))
