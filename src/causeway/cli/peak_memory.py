"""Measure peak memory and processor time of a command with its child processes.

These are Python, its Spark workers and Spark's Java.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Self

import psutil

INTERVAL = 0.25
"""Seconds between two samples."""


class PeakMemory:
    """Samples resident memory (RSS) and processor time of the process tree in a thread.

    Shared memory counts in each process, so the peak is an upper bound. The processor time of an ended process is that
    of
    its last sample. Processes on other machines are not included.
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
        """Take a sample, and return the peak so far."""
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
        """Return the processor time of all processes as of the last sample."""
        return sum(self._processor.values())
