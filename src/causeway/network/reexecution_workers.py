"""Processes that re-execute ranges of heights, each taking the next range when it is done.

A process reads and writes lines of JSON. It ends when its input ends, and with its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import IO, Any

from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.cluster.workers import retain_freed_memory
from causeway.network.reexecution import DifferenceReason, DifferingHeight, RangeResult, open_reexecutor
from causeway.programs.user_modules import ModuleSources
from causeway.storage.layout import Freed, LakeDamaged

REPORT_SECONDS = 0.2
"""Seconds between two progress lines of a range."""

MAX_OUTPUT_BYTES = 500
"""Maximum number of characters of an error."""

AskForRange = tuple[int, int, Sequence[int]]
"""First and last height of a range, and commits whose stored state is wrong."""

RangeDone = Callable[[int], None]
"""Callback with the number of further executed heights."""


class ProcessEnded(CausewayError):
    """A process ended before it finished its range."""


def run_in_processes(
    about: dict[str, Any], ranges: Sequence[AskForRange], processes: int, done: RangeDone
) -> list[RangeResult | CausewayError]:
    """Execute ranges of heights in parallel processes.

    An invalid state may fail in any way, so a failed range is returned as an error.

    Args:
        about: The lake for ``serve_ranges``: its ``uri`` and the sources of its ``programs`` (``ModuleSources.given``).
        ranges: The ranges.
        processes: Number of processes.
        done: Called with the number of further executed heights.

    Returns:
        The result or error of each range, in order.

    Raises:
        InvalidInput: The lake cannot be executed at all.
    """
    pending: queue.SimpleQueue[tuple[int, AskForRange]] = queue.SimpleQueue()
    for each in enumerate(ranges):
        pending.put(each)
    found: dict[int, RangeResult | CausewayError] = {}
    errors: list[InvalidInput] = []
    ending = threading.Event()

    def run_ranges() -> None:
        process: _Process | None = None
        try:
            while not ending.is_set():
                number, heights = pending.get_nowait()
                if process is None:
                    process = _Process(about)
                try:
                    found[number] = process.run(heights, done, ending)
                except (ProcessEnded, LakeDamaged) as error:
                    found[number] = error
                    process.end()
                    process = None
                except InvalidInput as error:
                    errors.append(error)
                    ending.set()
        except queue.Empty:
            return
        finally:
            if process is not None:
                process.end()

    threads = [threading.Thread(target=run_ranges) for _ in range(min(processes, len(ranges)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(REPORT_SECONDS)
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(ranges))]


class _Process:
    """A process that executes ranges."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(about)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._last_error = ""
        self._reading = threading.Thread(target=self._read_errors)
        self._reading.start()

    def run(self, heights: AskForRange, done: RangeDone, ending: threading.Event) -> RangeResult:
        """Execute a range. Raises ``ProcessEnded``, and the errors of the range."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        first, last, wrong = heights
        watch = threading.Thread(target=self._kill_on_end, args=(ending, over := threading.Event()))
        watch.start()
        try:
            process.stdin.write(json.dumps([first, last, list(wrong)]) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if "done" in answer:
                    done(answer["done"])
                elif "error" in answer:
                    raise _parse_error(answer)
                else:
                    return _parse_result(answer)
        except BrokenPipeError:
            pass
        finally:
            over.set()
            watch.join()
        raise self._exit_error()

    def _kill_on_end(self, ending: threading.Event, over: threading.Event) -> None:
        """Kill the process when the run ends early, so that no thread waits for its answer."""
        while not over.wait(REPORT_SECONDS):
            if ending.is_set():
                self._process.kill()
                return

    def _exit_error(self) -> ProcessEnded:
        code = self._process.wait()
        self._reading.join()
        reason = f"signal {-code}" if code < 0 else self._last_error or f"exit code {code}"
        return ProcessEnded(f"a process that executed heights again ended before it was done: {reason}")

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        self._reading.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # input that the process never read
                stream.close()
        self._process.wait()

    def _read_errors(self) -> None:
        """Store the last line of its standard error."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_error = line.strip()[:MAX_OUTPUT_BYTES] or self._last_error


def _parse_result(answer: dict[str, Any]) -> RangeResult:
    different = [
        DifferingHeight(
            each["height"], tuple(each["chains"]), each["what"], DifferenceReason(each["reason"]), each["column"]
        )
        for each in answer["different"]
    ]
    return RangeResult(
        answer["began"], different, set(answer["wrong"]), [(begin, end) for begin, end in answer["unverified"]]
    )


def _parse_error(answer: dict[str, Any]) -> CausewayError:
    if "damaged" in answer:
        return LakeDamaged(*answer["damaged"])
    return InvalidInput(answer["error"])


def serve_ranges(about: dict[str, Any], asked: IO[str], answers: IO[str]) -> None:
    """Execute the ranges that lines of input request; unexpected errors end the process.

    Args:
        about: The lake, as in ``run_in_processes``.
        asked: Lines of [first, last, wrong commits].
        answers: Receives progress, results and errors.
    """
    retain_freed_memory()
    last_report, executed = time.monotonic(), 0

    def write(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    def done(heights: int) -> None:
        nonlocal last_report, executed
        executed += heights
        if time.monotonic() - last_report >= REPORT_SECONDS:
            write(done=executed)
            last_report, executed = time.monotonic(), 0

    try:
        reexecutor = open_reexecutor(about["uri"], ModuleSources.of(*about["programs"]))
    except CausewayError as error:
        write(error=str(error), input=True)
        return
    for line in asked:
        first, last, wrong = json.loads(line)
        try:
            result = reexecutor.run(first, last, wrong, done)
        except LakeDamaged as error:
            write(error=str(error), damaged=[about["uri"], error.path, error.what, error.whole])
            return
        except Freed as error:
            write(error=str(error), input=True)
            return
        write(done=executed)
        executed = 0
        write(**asdict(result) | {"wrong": sorted(result.wrong)})


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Discard what programs print: the pipe carries answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    serve_ranges(json.loads(sys.argv[1]), sys.stdin, answers)


if __name__ == "__main__":
    _main()
