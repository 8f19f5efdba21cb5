"""What a round costs, next to other tools that do the same round; the smallest tick; commitments and proofs;
whole cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.benchmarking.cycles.bench import bench_cycles
    from causeway.benchmarking.floor import bench_floor
    from causeway.benchmarking.proofs.bench import bench_proofs
    from causeway.benchmarking.rounds import bench_rounds
    from causeway.benchmarking.show import render

_HOMES = {
    "bench_cycles": "causeway.benchmarking.cycles.bench",
    "bench_floor": "causeway.benchmarking.floor",
    "bench_proofs": "causeway.benchmarking.proofs.bench",
    "bench_rounds": "causeway.benchmarking.rounds",
    "render": "causeway.benchmarking.show",
}

__all__ = ["bench_cycles", "bench_floor", "bench_proofs", "bench_rounds", "render"]


def __getattr__(name: str) -> Any:
    """Import what is measured when it is asked for: proofs need no Spark, whose memory would be in their figures."""
    if name not in _HOMES:
        raise AttributeError(f"module causeway.benchmarking has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
