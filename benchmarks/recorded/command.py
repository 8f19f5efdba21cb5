"""A command measured from outside: the clock, and the processor time of all its processes."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import psutil

from benchmarks.process import BenchmarkFailed

SAMPLES_A_SECOND = 5
"""How often processor time is read. What a process uses after its last sample is not counted."""

BACKGROUND_SECONDS = 15 * 60
"""A process that a command left behind is waited for at most this long."""


@dataclass(frozen=True)
class Measured:
    """What a command took. ``begun`` and ``ended``: by the clock that files have their times from.

    ``samples``: (time, processor seconds of all its processes up to then). ``printed``: the JSON object it printed.
    """

    begun: float
    ended: float
    samples: tuple[tuple[float, float], ...]
    printed: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Return the time from the command to its end."""
        return self.ended - self.begun

    def processor_seconds(self, begin: float | None = None, end: float | None = None) -> float:
        """Return the processor time used between two times, by default from the command to its end."""
        return self.used(self.ended if end is None else end) - self.used(self.begun if begin is None else begin)

    def used(self, moment: float) -> float:
        """Return the processor time used up to a moment: on the straight line between the samples around it."""
        after = bisect_left(self.samples, (moment, -1.0))
        if after == 0:
            return 0.0
        if after == len(self.samples):
            return self.samples[-1][1]
        (earlier, low), (later, high) = self.samples[after - 1], self.samples[after]
        return low + (high - low) * (moment - earlier) / (later - earlier)


def measure(
    command: Sequence[str], environment: Mapping[str, str], folder: str, allowed: Collection[int] = (0,)
) -> Measured:
    """Run a command that prints one JSON object, in ``folder``, and measure it. ``allowed``: exit codes.

    Raises:
        BenchmarkFailed: its exit code is another one, or it prints something else.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.time()
        process = psutil.Popen(
            list(command), env=dict(environment), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        try:
            with _Sampling(begun, process) as sampling:
                code = process.wait()
                ended = time.time()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code not in allowed:
            raise BenchmarkFailed(f"{' '.join(command)} ended with exit code {code}: {_last_line(err)}")
        out.seek(0)
        text = out.read().decode(errors="replace")
    try:
        printed = json.loads(text)
    except ValueError:
        raise BenchmarkFailed(f"{' '.join(command)} printed no JSON object: {text[:200]!r}") from None
    return Measured(begun, ended, tuple(sampling.samples), printed)


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


class _Sampling:
    """Reads the processor time of a process and all below it while the body of the ``with`` statement runs."""

    def __init__(self, begun: float, process: psutil.Process) -> None:
        self.samples = [(begun, 0.0)]
        self._root = process
        self._seconds: dict[psutil.Process, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_end, daemon=True)

    def __enter__(self) -> _Sampling:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample_until_end(self) -> None:
        while not self._ended.wait(1 / SAMPLES_A_SECOND):
            self._sample()

    def _sample(self) -> None:
        try:
            found = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            found = []
        # What has been found stays: its parent may end before it does.
        for process in dict.fromkeys([*self._seconds, *found]):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self._seconds[process] = max(times.user + times.system, self._seconds.get(process, 0.0))
        self.samples.append((time.time(), sum(self._seconds.values())))


def wait_for_background(name: str, value: str) -> float:
    """Wait until no process has the environment variable ``name`` with this ``value``; return the seconds.

    Raises:
        BenchmarkFailed: one does not end.
    """
    begun = time.perf_counter()
    while any(_has(process, name, value) for process in psutil.process_iter()):
        if time.perf_counter() - begun > BACKGROUND_SECONDS:
            raise BenchmarkFailed(f"a process that the command left behind has not ended in {BACKGROUND_SECONDS} s")
        time.sleep(0.1)
    return time.perf_counter() - begun


def _has(process: psutil.Process, name: str, value: str) -> bool:
    try:
        return process.environ().get(name) == value
    except (psutil.Error, OSError):
        return False
