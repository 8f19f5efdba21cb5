"""``floor``: what a tick costs when there is next to nothing to do in it."""

from __future__ import annotations

import gc
import os
import statistics
import time
from typing import Any

from causeway_proofs.errors import InvalidInput

from benchmarks.machine import machine
from benchmarks.rounds import Progress, next_tick, work_folder
from benchmarks.session import open_bench_session
from benchmarks.workload import Workload, description
from causeway.storage.compaction import compact_logs
from causeway.storage.lake import Lake
from causeway.tick.deployment import Deployment
from causeway.tick.executors import Executor, InProcessExecutor, SparkExecutor
from causeway.tick.run import commit_genesis

WARM_UP = 150
"""Ticks before the measured ones: Java compiles what it runs often."""

SPARK_PARTITIONS = (1, 2)


def bench_floor(
    messages: int = 100,
    *,
    ticks: int = 100,
    warm_up: int = WARM_UP,
    subnets: int = 40,
    canisters: int = 20_000,
    payload_bytes: int = 64,
    master: str = "local[*]",
    lake_folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure ticks of ``messages``, in the calling process and on Spark; return figures that fit JSON.

    A tick is what ``causeway run`` does for it: the round, the commit, now and then a compaction. Raises
    ``InvalidInput``.
    """
    if messages < 1 or ticks < 1:
        raise InvalidInput("messages and ticks: at least 1")
    about = machine()
    workload = Workload(messages, subnets, canisters, payload_bytes)
    figures = {}
    # In process first, while this process has no Java yet.
    for name, partitions in (("in_process", 1), *((f"spark_{count}", count) for count in SPARK_PARTITIONS)):
        if progress is not None:
            progress(name.replace("_", " "))
        deployment = workload.deployment(partitions)
        with work_folder(lake_folder) as folder:
            lake = Lake.at(os.path.join(folder, "lake"))
            lake.create(description(deployment))
            executor: Executor = (
                InProcessExecutor(deployment, lake)
                if name == "in_process"
                else SparkExecutor(open_bench_session(master), deployment, lake)
            )
            figures[name] = _measured(deployment, executor, lake, warm_up, ticks)
    return {
        "benchmark": "floor",
        "machine": about,
        "master": master,
        "workload": {
            "messages": messages, "subnets": subnets, "canisters": canisters, "payload_bytes": payload_bytes,
        },
        "ticks": ticks,
        "figures": figures,
    }  # fmt: skip


def _measured(deployment: Deployment, executor: Executor, lake: Lake, warm_up: int, ticks: int) -> dict[str, Any]:
    before = commit_genesis(executor, lake)
    for _ in range(warm_up):
        before = next_tick(deployment, executor, lake, before)
    gc.collect()
    seconds = []
    for _ in range(ticks):
        start = time.perf_counter()
        before = next_tick(deployment, executor, lake, before)
        compact_logs(lake, before)
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    return {
        "median_ms": round(1000 * statistics.median(seconds), 2),
        "p95_ms": round(1000 * seconds[min(len(seconds) - 1, len(seconds) * 95 // 100)], 2),
        "min_ms": round(1000 * seconds[0], 2),
        "max_ms": round(1000 * seconds[-1], 2),
    }
