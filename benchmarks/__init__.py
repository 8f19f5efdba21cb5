"""What a round costs, next to other tools that do the same round; the smallest tick; commitments and proofs; whole
cycles; messages between domains; the whole command on recorded traffic; small ticks in a row; certified slices over
HTTP; a server under hostile clients; egress queues with their roots; gossip of egress queues; thousands of nodes; the
audit of a ledger; clusters of several workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.audit.bench import bench_audit
    from benchmarks.audit.nomad import bench_nomad
    from benchmarks.cluster import bench_cluster
    from benchmarks.cycles.bench import bench_cycles
    from benchmarks.domains.bench import bench_domains
    from benchmarks.egress import bench_egress
    from benchmarks.exchange import bench_exchange
    from benchmarks.floor import bench_floor
    from benchmarks.gossip.bench import bench_gossip
    from benchmarks.proofs.bench import bench_proofs
    from benchmarks.recorded.bench import bench_recorded
    from benchmarks.rounds import bench_rounds
    from benchmarks.serving import bench_serve
    from benchmarks.show import render
    from benchmarks.simulation import bench_simulation
    from benchmarks.ticks.bench import bench_ticks
    from benchmarks.xnet import bench_xnet

_HOMES = {
    "bench_audit": "benchmarks.audit.bench",
    "bench_cluster": "benchmarks.cluster",
    "bench_cycles": "benchmarks.cycles.bench",
    "bench_domains": "benchmarks.domains.bench",
    "bench_egress": "benchmarks.egress",
    "bench_exchange": "benchmarks.exchange",
    "bench_floor": "benchmarks.floor",
    "bench_gossip": "benchmarks.gossip.bench",
    "bench_nomad": "benchmarks.audit.nomad",
    "bench_proofs": "benchmarks.proofs.bench",
    "bench_recorded": "benchmarks.recorded.bench",
    "bench_rounds": "benchmarks.rounds",
    "bench_serve": "benchmarks.serving",
    "bench_simulation": "benchmarks.simulation",
    "bench_ticks": "benchmarks.ticks.bench",
    "bench_xnet": "benchmarks.xnet",
    "render": "benchmarks.show",
}

__all__ = [
    "bench_audit",
    "bench_cluster",
    "bench_cycles",
    "bench_domains",
    "bench_egress",
    "bench_exchange",
    "bench_floor",
    "bench_gossip",
    "bench_nomad",
    "bench_proofs",
    "bench_recorded",
    "bench_rounds",
    "bench_serve",
    "bench_simulation",
    "bench_ticks",
    "bench_xnet",
    "render",
]


def __getattr__(name: str) -> Any:
    """Import what is measured when it is asked for: proofs need no Spark, whose memory would be in their figures."""
    if name not in _HOMES:
        raise AttributeError(f"module benchmarks has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
