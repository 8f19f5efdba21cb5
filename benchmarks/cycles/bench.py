"""``cycles``: packets sent, proved, received, and their receipts proved and taken, a second."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from causeway_proofs.errors import InvalidInput

from benchmarks.cycles.phases import PHASES
from benchmarks.cycles.plain import plain_cycles
from benchmarks.cycles.runs import EXECUTORS, figures, microseconds, opened, require_known, run_cycles
from benchmarks.cycles.workload import PROOFS, Cycles
from benchmarks.machine import machine
from benchmarks.process import BenchmarkFailed, call
from benchmarks.rounds import Progress
from benchmarks.workload import payloads
from causeway.tick.executors import InProcessExecutor

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
    require_known((proofs, PROOFS), (executors, EXECUTORS))
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
    partitions, made = opened(name, master, lake_folder)
    run_cycles(replace(work, messages=min(work.messages, WARM_UP), ticks=1), partitions, made, lake_folder)
    rows = []
    for shape in SHAPES:
        shaped = replace(work, ticks=1) if shape == "batch" else work
        runs = [run_cycles(shaped, partitions, made, lake_folder) for _ in range(repeats + 1)][1:]
        full = [took for run in runs for took in run["blocks"][LEAST_TICKS - 1 : shaped.ticks]]
        row = figures(shaped, runs, full, "cycles")
        row |= {"executor": name, "proofs": work.proofs, "shape": shape, "tasks": partitions}
        if name == "in_process":
            row["phases"] = microseconds(shaped, PHASES, lake_folder)
        rows.append(row)
    return rows


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
