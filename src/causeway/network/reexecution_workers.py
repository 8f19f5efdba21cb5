"""Ranges of heights executed again in processes of their own; each asks for the next range when it is done with one.

A process is given lines of JSON and answers in lines of JSON. It ends when there are no more ranges, and with the
process that started it.
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

from causeway.network.reexecution import DifferenceReason, DifferingHeight, RangeResult, open_reexecutor
from causeway.programs.user_modules import ModuleSources
from causeway.spark.workers import retain_freed_memory
from causeway.storage.layout import Freed, LakeDamaged

REPORT_SECONDS = 0.2
"""Seconds between two lines that say how far a range is."""

MAX_OUTPUT_BYTES = 500
"""Characters of an error that are shown."""

AskForRange = tuple[int, int, Sequence[int]]
"""First and last height of a range, and commits whose state in files is wrong."""

RangeDone = Callable[[int], None]
"""Told how many more heights are done."""


class ProcessEnded(CausewayError):
    """A process that executed heights again ended, or was ended, before it was done."""


def run_in_processes(
    about: dict[str, Any], ranges: Sequence[AskForRange], processes: int, done: RangeDone
) -> list[RangeResult | CausewayError]:
    """Execute ranges of heights in so many processes; return what came of each, in their order.

    A range that its process could not be done with is an error: what executes a state that is none may fail in any way.

    ``about``: the lake as ``serve`` takes it: its ``uri``, and where its ``programs`` come from (``Sources.given``).
    Raises ``InvalidInput`` where a lake cannot be executed at all.
    """
    waiting: queue.SimpleQueue[tuple[int, AskForRange]] = queue.SimpleQueue()
    for each in enumerate(ranges):
        waiting.put(each)
    found: dict[int, RangeResult | CausewayError] = {}
    refused: list[InvalidInput] = []
    ending = threading.Event()

    def work() -> None:
        process: _Process | None = None
        try:
            while not ending.is_set():
                number, asked = waiting.get_nowait()
                if process is None:
                    process = _Process(about)
                try:
                    found[number] = process.run(asked, done, ending)
                except (ProcessEnded, LakeDamaged) as error:
                    found[number] = error
                    process.end()
                    process = None
                except InvalidInput as error:
                    refused.append(error)
                    ending.set()
        except queue.Empty:
            return
        finally:
            if process is not None:
                process.end()

    threads = [threading.Thread(target=work) for _ in range(min(processes, len(ranges)))]
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
    if refused:
        raise refused[0]
    return [found[number] for number in range(len(ranges))]


class _Process:
    """A process that executes heights again."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(about)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said = ""
        self._reading = threading.Thread(target=self._read_errors)
        self._reading.start()

    def run(self, asked: AskForRange, done: RangeDone, ending: threading.Event) -> RangeResult:
        """Have it execute a range; return what came of it. Raises ``ProcessEnded``, and the errors of the range."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        first, last, wrong = asked
        watch = threading.Thread(target=self._end_with, args=(ending, over := threading.Event()))
        watch.start()
        try:
            process.stdin.write(json.dumps([first, last, list(wrong)]) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                said = json.loads(line)
                if "done" in said:
                    done(said["done"])
                elif "error" in said:
                    raise _error_of(said)
                else:
                    return _range_of(said)
        except BrokenPipeError:
            pass
        finally:
            over.set()
            watch.join()
        raise self._ended()

    def _end_with(self, ending: threading.Event, over: threading.Event) -> None:
        """Kill the process when all is to end, so that nobody waits for its answer."""
        while not over.wait(REPORT_SECONDS):
            if ending.is_set():
                self._process.kill()
                return

    def _ended(self) -> ProcessEnded:
        code = self._process.wait()
        self._reading.join()
        how = f"signal {-code}" if code < 0 else self._said or f"exit code {code}"
        return ProcessEnded(f"a process that executed heights again ended before it was done: {how}")

    def end(self) -> None:
        """Kill it, and wait for its end."""
        self._process.kill()
        self._reading.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # what it was asked, and never read
                stream.close()
        self._process.wait()

    def _read_errors(self) -> None:
        """Remember the last line that it writes about an error."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said = line.strip()[:MAX_OUTPUT_BYTES] or self._said


def _range_of(said: dict[str, Any]) -> RangeResult:
    different = [
        DifferingHeight(
            each["height"], tuple(each["chains"]), each["what"], DifferenceReason(each["reason"]), each["column"]
        )
        for each in said["different"]
    ]
    return RangeResult(
        said["began"], different, set(said["wrong"]), [(begin, end) for begin, end in said["unverified"]]
    )


def _error_of(said: dict[str, Any]) -> CausewayError:
    if "damaged" in said:
        return LakeDamaged(*said["damaged"])
    return InvalidInput(said["error"])


def serve_ranges(about: dict[str, Any], asked: IO[str], answers: IO[str]) -> None:
    """Execute ranges of heights of a lake as long as lines ask for any; what goes wrong otherwise than it may ends the
    process."""
    retain_freed_memory()
    told, held = time.monotonic(), 0

    def say(**content: Any) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    def done(heights: int) -> None:
        nonlocal told, held
        held += heights
        if time.monotonic() - told >= REPORT_SECONDS:
            say(done=held)
            told, held = time.monotonic(), 0

    try:
        again = open_reexecutor(about["uri"], ModuleSources.of(*about["programs"]))
    except CausewayError as error:
        say(error=str(error), input=True)
        return
    for line in asked:
        first, last, wrong = json.loads(line)
        try:
            found = again.run(first, last, wrong, done)
        except LakeDamaged as error:
            say(error=str(error), damaged=[about["uri"], error.path, error.what, error.whole])
            return
        except Freed as error:
            say(error=str(error), input=True)
            return
        say(done=held)
        held = 0
        say(**asdict(found) | {"wrong": sorted(found.wrong)})


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What programs print goes nowhere: only answers may stand on the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    serve_ranges(json.loads(sys.argv[1]), sys.stdin, answers)


if __name__ == "__main__":
    _main()
