"""``cycles``: packets sent, proved, received, and their receipts proved and taken, a second."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc

from benchmarks.cycles.phases import clocked_phases
from benchmarks.cycles.plain import plain_cycles
from benchmarks.cycles.workload import PROOFS, Cycles
from benchmarks.machine import machine, peaks, processor_seconds
from benchmarks.process import BenchmarkFailed, call
from benchmarks.rounds import next_tick, warm_java, work_folder
from benchmarks.session import open_bench_session
from benchmarks.workload import payloads
from causeway.model.errors import InvalidInput
from causeway.pipeline.compaction import compact
from causeway.pipeline.deployment import Deployment
from causeway.pipeline.executors import Executor, InProcessExecutor, SparkExecutor
from causeway.pipeline.lake import Lake, Manifest
from causeway.pipeline.run import commit_genesis

Progress = Callable[[str], None]

EXECUTORS = ("in_process", "spark")

SHAPES = ("batch", "steady")
"""All calls in one block; or as many in each of several blocks."""

LEAST_TICKS = 3
"""From the third block on a steady network sends, receives and takes receipts in every block."""

WARM_UP = 20_000
"""Cycles before all others: validators' keys are made, and what is imported late is there."""


def bench_cycles(
    messages: int = 300_000,
    *,
    ticks: int = 6,
    zones: int = 40,
    programs: int = 20_000,
    payload_bytes: int = 64,
    proofs: Sequence[str] = PROOFS,
    executors: Sequence[str] = EXECUTORS,
    repeats: int = 3,
    plain: int = 10_000,
    master: str = "local[2]",
    lake_folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure whole cycles of the IBC queue through the whole pipeline; return figures that fit JSON.

    Args:
        messages: calls a block, each of which is one cycle: once (``batch``), and in ``ticks`` blocks (``steady``).
        ticks: blocks with calls of the steady state.
        zones, programs, payload_bytes: the network, and the bytes of a call's body.
        proofs, executors: some of ``PROOFS`` and of ``EXECUTORS``.
        repeats: how often each is measured, after once that is not.
        plain: cycles of the comparison with plain Python, 0 for none.
        master: Spark's; there are as many tasks as it has cores.
        lake_folder: where lakes are made and removed again.
        progress: told what is being measured.

    Raises:
        InvalidInput: a number is out of range, or a name unknown.
        BenchmarkFailed: a process dies, or not every cycle comes to its end.
    """
    if ticks < LEAST_TICKS or repeats < 1 or plain < 0:
        raise InvalidInput(f"ticks, repeats, plain: at least {LEAST_TICKS}, 1 and 0 are allowed")
    for given, known in ((proofs, PROOFS), (executors, EXECUTORS)):
        for name in given:
            if name not in known:
                raise InvalidInput(f'"{name}" is unknown; allowed: {", ".join(known)}')
    work = Cycles(messages, ticks, zones, programs, payload_bytes)
    about = machine()
    tell = progress if progress is not None else lambda text: None
    rows: list[dict[str, Any]] = []
    for executor in executors:
        for kind in proofs:
            tell(f"{executor.replace('_', ' ')}, {kind} proofs")
            # A process of its own for each: what it has in memory at most is its own.
            rows += call(_measure, replace(work, proofs=kind), executor, repeats, master, lake_folder)
    beside = None
    if plain:
        tell("plain Python")
        beside = call(_beside, plain, payload_bytes, repeats, lake_folder)
    return {
        "benchmark": "cycles",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "master": master,
        "workload": asdict(work),
        "repeats": repeats,
        "rows": rows,
        "plain": beside,
    }


def _measure(work: Cycles, name: str, repeats: int, master: str, lake_folder: str | None) -> list[dict[str, Any]]:
    """Measure both shapes of a workload with one executor, in this process."""
    partitions, session = 1, None
    if name == "spark":
        session = open_bench_session(master)
        partitions = int(session.sparkContext.defaultParallelism)
        with work_folder(lake_folder) as folder:
            warm_java(session, folder, partitions)
    made = maker(session)
    run_cycles(replace(work, messages=min(work.messages, WARM_UP), ticks=1), partitions, made, lake_folder)
    rows = []
    for shape in SHAPES:
        shaped = replace(work, ticks=1) if shape == "batch" else work
        runs = [run_cycles(shaped, partitions, made, lake_folder) for _ in range(repeats + 1)][1:]
        memory = peaks()
        row = _figures(shaped, runs)
        row |= {"executor": name, "proofs": work.proofs, "shape": shape, "tasks": partitions}
        row |= {"peak_bytes": memory["python"], "java_peak_bytes": memory["java"], "phases": None}
        if session is None:
            with clocked_phases() as clocks:
                run_cycles(shaped, partitions, made, lake_folder)
                seconds = clocks.stop()
            row["phases"] = {phase: round(1e6 * value / shaped.cycles, 3) for phase, value in seconds.items()}
        rows.append(row)
    return rows


def maker(session: Any) -> Callable[[Deployment, Lake], Executor]:
    if session is None:
        return InProcessExecutor
    return lambda deployment, lake: SparkExecutor(session, deployment, lake)


class Calls(Protocol):
    """Calls, each of which is to be answered."""

    @property
    def ticks(self) -> int:
        """Return how many ticks have calls."""

    @property
    def cycles(self) -> int:
        """Return how many calls there are in all."""

    def deployment(self, partitions: int) -> Deployment:
        """Return the network, cut into so many buckets at most."""


def run_cycles(
    work: Calls, partitions: int, executor: Callable[[Deployment, Lake], Executor], lake_folder: str | None
) -> dict[str, Any]:
    """Run a network from its genesis, which is not measured, to its last cycle; return the seconds of its blocks.

    Raises:
        BenchmarkFailed: not every call was answered.
    """
    deployment = work.deployment(partitions)
    with work_folder(lake_folder) as folder:
        lake = Lake.at(os.path.join(folder, "lake"))
        lake.create({"buckets": deployment.buckets})
        running = executor(deployment, lake)
        before = commit_genesis(running, lake)
        seconds: list[float] = []
        used = processor_seconds()
        while before.height < work.ticks or before.line.wake is not None:
            begun = time.perf_counter()
            before = next_tick(deployment, running, lake, before)
            compact(lake, before)
            seconds.append(time.perf_counter() - begun)
        used = processor_seconds() - used
        _require_answered(lake, before, work)
    return {"blocks": seconds, "processor_seconds": used}


def _require_answered(lake: Lake, last: Manifest, work: Calls) -> None:
    answered = rejected = 0
    for path in last.state["program_caller"].values():
        table = lake.storage.read_table(path, ["answered", "rejected"])
        answered += pc.sum(table["answered"]).as_py()
        rejected += pc.sum(table["rejected"]).as_py()
    if (answered, rejected) != (work.cycles, 0):
        raise BenchmarkFailed(f"of {work.cycles} calls {answered} were answered and {rejected} rejected")


def _figures(work: Cycles, runs: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = [sum(run["blocks"]) for run in runs]
    used = statistics.median(run["processor_seconds"] for run in runs)
    median = statistics.median(seconds)
    full = [took for run in runs for took in run["blocks"][LEAST_TICKS - 1 : work.ticks]]
    return {
        "cycles": work.cycles,
        "blocks": len(runs[0]["blocks"]),
        "seconds": [round(value, 3) for value in seconds],
        "median_seconds": round(median, 3),
        "min_seconds": round(min(seconds), 3),
        "median_processor_seconds": round(used, 3),
        "cycles_per_second": round(work.cycles / median),
        "cycles_per_second_at_best": round(work.cycles / min(seconds)),
        "cycles_per_processor_second": round(work.cycles / max(used, 1e-9)),
        "cycles_per_second_of_full_blocks": round(work.messages / statistics.median(full)) if full else None,
    }


def _beside(count: int, payload_bytes: int, repeats: int, lake_folder: str | None) -> dict[str, Any]:
    """Measure two zones with plain Python and with Causeway, single proofs, in turns."""
    work = Cycles(count, 1, zones=2, programs=200, payload_bytes=payload_bytes, proofs="single")
    bodies = payloads(np.arange(count, dtype=np.uint64), payload_bytes).to_pylist()
    seconds: dict[str, list[float]] = {"causeway": [], "plain": []}
    for number in range(repeats + 1):
        run = run_cycles(work, 1, InProcessExecutor, lake_folder)
        used = time.process_time()
        if plain_cycles(bodies) != count:
            raise BenchmarkFailed("plain Python lost a cycle")
        used = time.process_time() - used
        if number:
            seconds["causeway"].append(run["processor_seconds"])
            seconds["plain"].append(used)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "cycles": count,
        **{f"{name}_microseconds": round(1e6 * value / count, 2) for name, value in medians.items()},
        "ratio_of_processor_time": round(medians["plain"] / max(medians["causeway"], 1e-9), 1),
    }
