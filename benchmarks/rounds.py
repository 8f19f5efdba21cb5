"""``rounds``: one round of a whole network in steady state, next to the same round by other tools."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import psutil
from causeway_proofs.errors import InvalidInput

from benchmarks.comparing import differences, extract
from benchmarks.machine import machine, peaks, processor_seconds
from benchmarks.other import Other, check
from benchmarks.process import call
from benchmarks.session import open_bench_session
from benchmarks.workload import CERTIFICATIONS, Workload, description
from causeway.storage.lake import Lake, Manifest
from causeway.tick.deployment import Deployment, TickGroup, next_height_tick
from causeway.tick.executors import Executor, InProcessExecutor, SparkExecutor
from causeway.tick.run import commit_genesis, run_group

Progress = Callable[[str], None]

OURS = "causeway"
OFF = "off"
COMPARATORS = ("python", "duckdb", "polars")

WARM_UP = 8
"""Ticks before the measured ones: the rallies start, and the workers come to work."""

JAVA_WARM_UP = 150
"""Small ticks before all others: Java compiles what it runs often, with threads that take time from the workers."""

BUCKET_MESSAGES = 500_000
"""A bucket has at most this many messages a round, which bounds the memory of a task."""

BYTES_A_MESSAGE = {"python": 1_000, "duckdb": 700, "polars": 700}
"""Memory a message takes in a comparator, about; where the machine has less, it is left out unless asked for."""


def bench_rounds(
    messages: Sequence[int],
    *,
    subnets: int = 40,
    canisters: int = 20_000,
    payload_bytes: int = 64,
    rounds: int = 5,
    comparators: Sequence[str] = COMPARATORS,
    certification: str = OFF,
    master: str = "local[*]",
    lake_folder: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure rounds of ``messages`` each; return figures that fit JSON.

    ``rounds``: how often each is measured; the comparators take turns with Causeway. ``certification``: with ``bls`` or
    ``threshold`` the same network with certified states takes turns, too, in a lake of its own; the comparators do what
    Causeway does without certification. ``lake_folder``: where the lakes are made and removed again, by default where
    temporary files are. ``force``: run comparators that may not fit into memory. Raises ``InvalidInput``;
    ``BenchmarkFailed`` when a process dies.
    """
    names = tuple(comparators)
    check(names)
    if certification not in CERTIFICATIONS:
        raise InvalidInput(f'certification: "{certification}" is unknown; allowed: {", ".join(CERTIFICATIONS)}')
    if rounds < 1 or any(number < 1 for number in messages):
        raise InvalidInput("messages and rounds: at least 1")
    about = machine()
    session = open_bench_session(master)
    cores = int(session.sparkContext.defaultParallelism)
    if progress is not None:
        progress("warming up Java")
    with work_folder(lake_folder) as folder:
        warm_java(session, folder, cores)
    sizes = []
    for number in messages:
        workload = Workload(number, subnets, canisters, payload_bytes)
        tell = _teller(progress, f"{number:,} messages")
        with work_folder(lake_folder) as folder:
            kinds = [workload]
            if certification != OFF:
                kinds.append(replace(workload, certification=CERTIFICATIONS[certification]))
            sizes.append(_one_size(kinds, folder, session, cores, rounds, names, force, tell))
    return {
        "benchmark": "rounds",
        "machine": about,
        "master": master,
        "cores": cores,
        "workload": {"subnets": subnets, "canisters": canisters, "payload_bytes": payload_bytes},
        "rounds": rounds,
        "sizes": sizes,
    }


class SteadyNetwork:
    """A network in its steady state, in a lake of its own; without a session it runs in this process."""

    def __init__(self, workload: Workload, lake: Lake, session: Any, partitions: int) -> None:
        self.name = OURS if workload.certification == OFF else f"{OURS}, {workload.certification}"
        self.deployment, self.lake = workload.deployment(partitions), lake
        lake.create(description(self.deployment))
        self._executor: Executor = InProcessExecutor(self.deployment, lake)
        if session is not None:
            self._executor = SparkExecutor(session, self.deployment, lake)
        self.head = commit_genesis(self._executor, lake)
        for _ in range(WARM_UP):
            self.round()

    def round(self) -> None:
        """Run and commit one round."""
        self.head = next_tick(self.deployment, self._executor, self.lake, self.head)


def _one_size(
    kinds: Sequence[Workload],
    folder: str,
    session: Any,
    cores: int,
    rounds: int,
    names: tuple[str, ...],
    force: bool,
    tell: Progress,
) -> dict[str, Any]:
    workload = kinds[0]
    partitions = max(cores, -(-workload.messages // BUCKET_MESSAGES))
    tell("warming up")
    networks = [
        SteadyNetwork(kind, Lake.at(os.path.join(folder, f"lake-{kind.certification}")), session, partitions)
        for kind in kinds
    ]
    start, lake = networks[0].head, networks[0].lake
    inputs = os.path.join(folder, "inputs")
    fitting = [name for name in names if force or _fits(name, workload)]
    if fitting:
        call(extract, lake.storage.uri, start.height, inputs, workload)
    seconds: dict[str, list[tuple[float, float]]] = {
        name: [] for name in (*(network.name for network in networks), *fitting)
    }
    checked: dict[str, list[str]] = {}
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(Other(name, inputs, start.tick + 1, cores)) for name in fitting]
        pids = tuple(other.pid for other in others)
        for number in range(rounds + 1):
            took = {}
            for network in networks:
                used, begun = processor_seconds(pids), time.perf_counter()
                network.round()
                took[network.name] = time.perf_counter() - begun, processor_seconds(pids) - used
            for other in others:
                tell(f"round {number} of {rounds}: {other.name}")
                after = os.path.join(folder, f"{other.name}-{number}")
                os.mkdir(after)
                took[other.name] = other.round(after)
                if number == 0:
                    checked[other.name] = call(differences, lake.storage.uri, start.height + 1, after)
                shutil.rmtree(after)
            if number:  # the first is a warm-up, too
                for name, value in took.items():
                    seconds[name].append(value)
        memory = peaks(pids)
        ours = _figures(seconds[OURS], workload)
        figures = {OURS: {**ours, "peak_bytes": memory["python"]}}
        for network in networks[1:]:
            theirs = _figures(seconds[network.name], workload)
            figures[network.name] = {**theirs, "peak_bytes": memory["python"], **_ratios(theirs, ours)}
        for other in others:
            theirs = _figures(seconds[other.name], workload)
            figures[other.name] = {
                **theirs,
                "peak_bytes": other.peak_bytes(),
                "equal": not checked[other.name],
                "different_tables": checked[other.name],
                **_ratios(theirs, ours),
            }
    return {
        "messages": workload.messages,
        "partitions": len(networks[0].deployment.buckets),
        "java_peak_bytes": memory["java"],
        "left_out": [name for name in names if name not in fitting],
        "figures": figures,
    }


def warm_java(session: Any, folder: str, cores: int) -> None:
    """Run small ticks until the part of Java in a tick has been compiled."""
    deployment = Workload(100, subnets=max(2, cores), canisters=200).deployment(cores)
    lake = Lake.at(os.path.join(folder, "warm"))
    lake.create(description(deployment))
    executor = SparkExecutor(session, deployment, lake)
    before = commit_genesis(executor, lake)
    for _ in range(JAVA_WARM_UP):
        before = next_tick(deployment, executor, lake, before)


def next_tick(deployment: Deployment, executor: Executor, lake: Lake, before: Manifest) -> Manifest:
    """Run and commit the tick after a height."""
    tick = before.tick + 1 if before.height else 0
    return run_group(executor, lake, before, TickGroup(next_height_tick(before.line, tick, deployment.traffic)))


def _figures(measured: list[tuple[float, float]], workload: Workload) -> dict[str, Any]:
    seconds, used = [wall for wall, _ in measured], [processor for _, processor in measured]
    median = statistics.median(seconds)
    return {
        "seconds": [round(value, 4) for value in seconds],
        "median_seconds": round(median, 4),
        "min_seconds": round(min(seconds), 4),
        "median_processor_seconds": round(max(statistics.median(used), 1e-4), 4),
        "messages_per_second": round(workload.messages / median),
    }


def _ratios(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, float]:
    return {
        "ratio": round(theirs["median_seconds"] / ours["median_seconds"], 2),
        "ratio_of_minima": round(theirs["min_seconds"] / ours["min_seconds"], 2),
        "ratio_of_processor_time": round(theirs["median_processor_seconds"] / ours["median_processor_seconds"], 2),
    }


def _fits(name: str, workload: Workload) -> bool:
    wanted = workload.messages * (BYTES_A_MESSAGE[name] + workload.payload_bytes)
    return wanted < psutil.virtual_memory().available * 0.7


def _teller(progress: Progress | None, prefix: str) -> Progress:
    return (lambda text: progress(f"{prefix}: {text}")) if progress is not None else lambda text: None


@contextlib.contextmanager
def work_folder(parent: str | None) -> Iterator[str]:
    """Give a folder for lakes, removed at the end."""
    try:
        folder = tempfile.mkdtemp(prefix="causeway-bench-", dir=parent)
    except OSError as error:
        raise InvalidInput(f"lake folder: {parent} cannot be written: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
