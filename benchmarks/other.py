"""A comparator in a process of its own, which stays for all rounds."""

from __future__ import annotations

import importlib
import importlib.util
import time
import traceback
from multiprocessing.connection import Connection
from typing import Self

import psutil
import pyarrow.parquet as pq
from causeway_proofs.errors import InvalidInput

from benchmarks.comparators.common import Comparator, path
from benchmarks.comparing import HOSTS
from benchmarks.machine import peak_bytes
from benchmarks.process import SPAWN, answer

COMPARATORS = {
    "python": ("benchmarks.comparators.python_dicts", "PythonDicts"),
    "duckdb": ("benchmarks.comparators.duckdb_sql", "DuckDb"),
    "polars": ("benchmarks.comparators.polars_frames", "Polars"),
}


def check(names: tuple[str, ...]) -> None:
    """Raise ``InvalidInput`` when a comparator is unknown or its package is not installed."""
    for name in names:
        if name not in COMPARATORS:
            raise InvalidInput(f'comparator "{name}" is unknown; allowed: {", ".join(COMPARATORS)}')
        if name != "python" and importlib.util.find_spec(name) is None:
            raise InvalidInput(f'comparator "{name}" is not installed: pip install "causeway[bench]", or leave it out')


class Other:
    """A comparator in a process that stays, so that what it keeps between rounds stays warm."""

    def __init__(self, name: str, before: str, tick: int, threads: int) -> None:
        self.name = name
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, name, before, tick, threads), daemon=True)
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
        seconds: tuple[float, float] = answer(self._pipe)
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
