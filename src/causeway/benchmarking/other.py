"""Work in a process of its own: a comparator that stays for all rounds, or one call. Memory is told apart that way."""

from __future__ import annotations

import importlib
import multiprocessing
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

import psutil
import pyarrow.parquet as pq

from causeway.benchmarking.comparators.common import Comparator, path
from causeway.benchmarking.comparing import HOSTS
from causeway.benchmarking.machine import peak_bytes
from causeway.model.errors import CausewayError, InvalidInput

COMPARATORS = {
    "python": ("causeway.benchmarking.comparators.python_dicts", "PythonDicts"),
    "duckdb": ("causeway.benchmarking.comparators.duckdb_sql", "DuckDb"),
    "polars": ("causeway.benchmarking.comparators.polars_frames", "Polars"),
}

_SPAWN = multiprocessing.get_context("spawn")


class BenchmarkFailed(CausewayError):
    """A process of the benchmark failed."""


def check(names: tuple[str, ...]) -> None:
    """Raise ``InvalidInput`` when a comparator is unknown or its package is not installed."""
    for name in names:
        if name not in COMPARATORS:
            raise InvalidInput(f'comparator "{name}" is unknown; allowed: {", ".join(COMPARATORS)}')
        if name != "python" and importlib.util.find_spec(name) is None:
            raise InvalidInput(f'comparator "{name}" is not installed: pip install "causeway[bench]", or leave it out')


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, run in a process of its own, whose memory goes with it."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_call, args=(theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        return _answer(ours)
    finally:
        process.join()


def _call(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send((True, function(*arguments)))
    except Exception:  # told to the process that asked
        pipe.send((False, traceback.format_exc()))


def _answer(pipe: Connection) -> Any:
    try:
        good, content = pipe.recv()
    except EOFError:
        raise BenchmarkFailed("a process of the benchmark ended early; did the machine run out of memory?") from None
    if not good:
        raise BenchmarkFailed(f"a process of the benchmark failed: {content.strip().splitlines()[-1]}")
    return content


class Other:
    """A comparator in a process that stays, so that what it keeps between rounds stays warm."""

    def __init__(self, name: str, before: str, tick: int, threads: int) -> None:
        self.name = name
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, name, before, tick, threads), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    @property
    def pid(self) -> int:
        """Return the number of the comparator's process."""
        return self._process.pid or 0

    def round(self, after: str) -> tuple[float, float]:
        """Do the round into the folder ``after``; return the seconds it took, and the processor's."""
        self._pipe.send(after)
        seconds: tuple[float, float] = _answer(self._pipe)
        return seconds

    def peak_bytes(self) -> int:
        """Return the largest memory the process has had."""
        return peak_bytes(psutil.Process(self.pid))


def _serve(pipe: Connection, name: str, before: str, tick: int, threads: int) -> None:
    try:
        module, kind = COMPARATORS[name]
        comparator: Comparator = getattr(importlib.import_module(module), kind)(
            pq.read_table(path(before, HOSTS)), threads
        )
        while True:
            after = pipe.recv()
            start, used = time.perf_counter(), time.process_time()
            comparator.round(before, after, tick)
            pipe.send((True, (time.perf_counter() - start, time.process_time() - used)))
    except EOFError:
        return
    except Exception:  # told to the process that asked
        pipe.send((False, traceback.format_exc()))
