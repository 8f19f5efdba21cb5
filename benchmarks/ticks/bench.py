"""``ticks``: what a tick of a hundred messages costs in a run of many, on Spark and in process."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import IO, Any

from causeway_proofs.errors import InvalidInput

from benchmarks.checkouts import ROOT, Checkout, checkouts
from benchmarks.machine import machine
from benchmarks.process import BenchmarkFailed
from benchmarks.rounds import work_folder
from benchmarks.ticks.scenario import DEFAULT, SmallTicks
from benchmarks.workload import CERTIFICATIONS

Progress = Callable[[str], None]

PROTOCOLS = ("ic", "ibc")
EXECUTORS = ("in_process", "spark")

WARM_UP = {"in_process": 30, "spark": 150}
"""Ticks before the measured ones: Java compiles what it runs often."""


def bench_ticks(
    work: SmallTicks,
    *,
    ticks: int = 200,
    repeats: int = 5,
    protocols: Sequence[str] = ("ic",),
    executors: Sequence[str] = EXECUTORS,
    certifications: Sequence[str] = (DEFAULT,),
    against: str | None = None,
    master: str = "local[*]",
    lake_folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure runs of ``ticks`` small ticks through ``Network.run``; return figures that fit JSON.

    The time of a run, with all its commits and compactions, is divided by its ticks. Another Causeway (``against``)
    stays in a process of its own and takes turns, run by run. ``certifications``: of the protocol ``ic``.

    Raises:
        InvalidInput: a name is unknown, or a number out of range.
        BenchmarkFailed: a process dies, or does not run as many ticks as it was told.
    """
    if ticks < 1 or repeats < 1:
        raise InvalidInput("ticks, repeats: at least 1 is allowed")
    for given, known in (
        (protocols, PROTOCOLS),
        (executors, EXECUTORS),
        (certifications, list(CERTIFICATIONS)),
    ):
        for name in given:
            if name not in known:
                raise InvalidInput(f'"{name}" is unknown; allowed: {", ".join(known)}')
    about = machine()
    tell = progress if progress is not None else lambda text: None
    rows: list[dict[str, Any]] = []
    with checkouts(against) as contestants:
        for protocol, executor in product(protocols, executors):
            for certification in certifications if protocol == "ic" else (DEFAULT,):
                tell(f"{protocol}, {executor.replace('_', ' ')}, {certification}")
                with work_folder(lake_folder) as folder:
                    scenario = Path(folder, "ticks.toml")
                    scenario.write_text(work.scenario(protocol, executor, master, certification))
                    found = _turns(contestants, scenario, folder, ticks, repeats, WARM_UP[executor])
                told = {"certification": certification} if protocol == "ic" else {}
                rows += [{"protocol": protocol, "executor": executor, **told, **row} for row in found]
    return {
        "benchmark": "ticks",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "master": master,
        "workload": asdict(work),
        "ticks": ticks,
        "repeats": repeats,
        "rows": rows,
    }


def _turns(
    contestants: Sequence[Checkout], scenario: Path, folder: str, ticks: int, repeats: int, warm_up: int
) -> list[dict[str, Any]]:
    told: list[list[dict[str, Any]]] = [[] for _ in contestants]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(_running(one, scenario, Path(folder, f"lake-{number}")))
            for number, one in enumerate(contestants)
        ]
        for one in running:
            one.run(warm_up)
        for _ in range(repeats):
            for one, before in zip(running, told, strict=True):
                before.append(one.run(ticks))
    rows = [_figures(one.name, found, ticks) for one, found in zip(contestants, told, strict=True)]
    for row in rows[1:]:
        for key in ("median_ms", "least_ms", "processor_ms"):
            row[f"ratio_{key}"] = round(row[key] / max(rows[0][key], 1e-3), 2)
    return rows


def _figures(name: str, told: Sequence[dict[str, Any]], ticks: int) -> dict[str, Any]:
    took = [1000 * run["seconds"] / ticks for run in told]
    return {
        "name": name,
        "ms": [round(value, 2) for value in took],
        "median_ms": round(statistics.median(took), 2),
        "least_ms": round(min(took), 2),
        "processor_ms": round(1000 * statistics.median(run["processor_seconds"] for run in told) / ticks, 2),
        "peak_bytes": max(run["peak_bytes"] for run in told),
    }


class _Running:
    """A network in a process of its own."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._name, self._process, self._errors = name, process, errors
        self.answer()

    def run(self, ticks: int) -> dict[str, Any]:
        """Run ticks; return what they took."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it said before it died is told by ``answer``
            self._process.stdin.write(f"{ticks}\n")
            self._process.stdin.flush()
        told = self.answer()
        if told["heights"] != ticks:
            raise BenchmarkFailed(f"{self._name}: ran {told['heights']} ticks instead of {ticks}")
        return told

    def answer(self) -> dict[str, Any]:
        """Return the next line that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            told: dict[str, Any] = json.loads(line)
            return told
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines() or ["it said nothing"]
        raise BenchmarkFailed(f"{self._name}: its process ended early: {said[-1]}")


@contextlib.contextmanager
def _running(one: Checkout, scenario: Path, lake: Path) -> Iterator[_Running]:
    command = [sys.executable, "-m", "benchmarks.ticks.worker", str(scenario), str(lake)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            env=one.environment(ROOT),
            cwd=scenario.parent,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        with process:  # closes the pipes, whereupon it ends
            try:
                yield _Running(one.name, process, errors)
            except BaseException:
                process.terminate()
                raise
