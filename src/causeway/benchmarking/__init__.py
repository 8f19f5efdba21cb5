"""What a round costs, next to other tools that do the same round, and what the smallest tick costs."""

from causeway.benchmarking.floor import bench_floor
from causeway.benchmarking.rounds import bench_rounds
from causeway.benchmarking.show import render

__all__ = ["bench_floor", "bench_rounds", "render"]
