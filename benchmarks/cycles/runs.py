"""Runs of networks in which every call is answered, from the first block to the last, and what they take."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from benchmarks.cycles.phases import clocked_phases
from benchmarks.machine import peaks, processor_seconds
from benchmarks.process import BenchmarkFailed
from benchmarks.rounds import next_tick, warm_java, work_folder
from benchmarks.session import open_bench_session
from benchmarks.workload import description
from causeway.storage.compaction import compact_logs
from causeway.storage.lake import Lake, Manifest
from causeway.tick.deployment import Deployment
from causeway.tick.executors import Executor, InProcessExecutor, SparkExecutor
from causeway.tick.run import commit_genesis

EXECUTORS = ("in_process", "spark")

Made = Callable[[Deployment, Lake], Executor]

Phases = Mapping[str, tuple[str, ...]]
"""The functions of each phase (``phases.PHASES``)."""


def require_known(*choices: tuple[Sequence[str], Sequence[str]]) -> None:
    """Raise ``InvalidInput`` for names (the first of each pair) that are none of those allowed (the second)."""
    for given, allowed in choices:
        for name in given:
            if name not in allowed:
                raise InvalidInput(f'"{name}" is unknown; allowed: {", ".join(allowed)}')


def opened(name: str, master: str, lake_folder: str | None) -> tuple[int, Made]:
    """Return how many tasks the executor of a name has, and what makes it; Spark and its Java are warm."""
    if name != "spark":
        return 1, maker(None)
    session = open_bench_session(master)
    partitions = int(session.sparkContext.defaultParallelism)
    with work_folder(lake_folder) as folder:
        warm_java(session, folder, partitions)
    return partitions, maker(session)


def maker(session: SparkSession | None) -> Made:
    """Return what makes executors, of Spark where there is a session."""
    if session is None:
        return InProcessExecutor
    return lambda deployment, lake: SparkExecutor(session, deployment, lake)


class Calls(Protocol):
    """Calls, each of which is to be answered."""

    @property
    def messages(self) -> int:
        """Return how many calls a tick has."""

    @property
    def ticks(self) -> int:
        """Return how many ticks have calls."""

    @property
    def cycles(self) -> int:
        """Return how many calls there are in all."""

    def deployment(self, partitions: int) -> Deployment:
        """Return the network, cut into so many buckets at most."""


def run_cycles(work: Calls, partitions: int, executor: Made, lake_folder: str | None) -> dict[str, Any]:
    """Run a network from its genesis, which is not measured, to its last cycle; return the seconds of its blocks.

    Raises:
        BenchmarkFailed: not every call was answered.
    """
    deployment = work.deployment(partitions)
    with work_folder(lake_folder) as folder:
        lake = Lake.at(os.path.join(folder, "lake"))
        lake.create(description(deployment))
        running = executor(deployment, lake)
        before = commit_genesis(running, lake)
        seconds: list[float] = []
        used = processor_seconds()
        while before.height < work.ticks or before.line.wake is not None:
            begun = time.perf_counter()
            before = next_tick(deployment, running, lake, before)
            compact_logs(lake, before)
            seconds.append(time.perf_counter() - begun)
        used = processor_seconds() - used
        _require_answered(lake, before, work)
    return {"blocks": seconds, "processor_seconds": used}


def _require_answered(lake: Lake, last: Manifest, work: Calls) -> None:
    answered = rejected = 0
    for table in lake.state(last, "program_caller"):
        answered += pc.sum(table["answered"]).as_py()
        rejected += pc.sum(table["rejected"]).as_py()
    if (answered, rejected) != (work.cycles, 0):
        raise BenchmarkFailed(f"of {work.cycles} calls {answered} were answered and {rejected} rejected")


def figures(work: Calls, runs: Sequence[dict[str, Any]], full: Sequence[float], word: str) -> dict[str, Any]:
    """Return what runs of a workload took, a row of a result.

    ``full``: the seconds of blocks in which everything is under way; ``word``: what the calls are called.
    """
    seconds = [sum(run["blocks"]) for run in runs]
    used = statistics.median(run["processor_seconds"] for run in runs)
    median, memory = statistics.median(seconds), peaks()
    return {
        word: work.cycles,
        "blocks": len(runs[0]["blocks"]),
        "seconds": [round(value, 3) for value in seconds],
        "median_seconds": round(median, 3),
        "min_seconds": round(min(seconds), 3),
        "median_processor_seconds": round(used, 3),
        f"{word}_per_second": round(work.cycles / median),
        f"{word}_per_second_at_best": round(work.cycles / min(seconds)),
        f"{word}_per_processor_second": round(work.cycles / max(used, 1e-9)),
        f"{word}_per_second_of_full_blocks": round(work.messages / statistics.median(full)) if full else None,
        "peak_bytes": memory["python"],
        "java_peak_bytes": memory["java"],
        "phases": None,
    }


def microseconds(work: Calls, phases: Phases, lake_folder: str | None) -> dict[str, float]:
    """Return how long the processor is in each phase of one more run in process, for a call."""
    with clocked_phases(phases) as clocks:
        run_cycles(work, 1, InProcessExecutor, lake_folder)
        seconds = clocks.stop()
    return {phase: round(1e6 * value / work.cycles, 3) for phase, value in seconds.items()}
