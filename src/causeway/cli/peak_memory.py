"""Peak memory and processor time of a command with all its processes: Python, its Spark workers and Spark's Java."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import psutil

INTERVAL = 0.25
"""Seconds between two samples."""


class PeakMemory:
    """Samples, in a thread, the resident memory (RSS) of this process and of all processes below it; keeps the largest
    sum, and of each the processor time that it had used when it was last seen.

    Memory that processes share is counted in each of them, so the figure is an upper bound. Processes on other machines
    of a cluster are not seen.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._processor: dict[tuple[int, float], float] = {}
        self._process = psutil.Process()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="causeway-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end.set()
        self._thread.join()
        self.sample()

    def _watch(self) -> None:
        while not self._end.wait(INTERVAL):
            self.sample()

    def sample(self) -> int:
        """Look once and return the largest sum so far."""
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in (self._process, *self._process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss
                    used = process.cpu_times()
                    self._processor[process.pid, process.create_time()] = used.user + used.system
        self.peak_bytes = max(self.peak_bytes, total)
        return self.peak_bytes

    @property
    def processor_seconds(self) -> float:
        """Return how much processor time, of all cores, was used by the last sample."""
        return sum(self._processor.values())
