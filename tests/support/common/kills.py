"""Runs of a scenario that are killed at random instants and resumed, against one that nobody disturbs.

    runs = Runs(folder, text)
    whole = runs.whole()
    runs.kill(whole, kills=25, seed=1)

Every run is a process, ``causeway run --json``. What is killed, and after which part of a span, follows from the seed;
what it was doing then is the machine's affair. A lake that comes to its end meanwhile must be as ``whole``, and another
is begun, so that there are as many kills as were asked for, whatever a run commits at once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from causeway.cli import main
from causeway.storage.lake import Lake
from causeway.storage.writer_claim import CLAIM_FILE

ROOT = Path(__file__).parents[3]

OWN = (
    *("seconds", "setup_seconds", "summary_seconds", "processor_seconds", "messages_per_second", "peak_memory_bytes"),
    "lake",
)
"""What a command says of itself alone, and not of the network."""

LOGS = ("headers", "outbound", "events", "collected")

KILLS = int(os.environ.get("CAUSEWAY_KILLS", "1"))
"""How often something is killed in each of the slow tests."""

HANGS = 300.0
"""Seconds after which a process that does not begin, or does not end, hangs."""

Others = Callable[[int], Sequence[psutil.Process]]
"""Says which processes work for the command with a process id; killing one of them must not end the run."""


def turns_of(kills: int, chosen: random.Random) -> list[str]:
    """Return who is killed when: commands and others as often as each other (an odd kill more: others), shuffled."""
    turns = ["others", "command"] * (kills // 2) + ["others"] * (kills % 2)
    chosen.shuffle(turns)
    return turns


def nobody(command: int) -> Sequence[psutil.Process]:
    """Return no process: all work is the command's own."""
    return ()


def python_workers(command: int) -> Sequence[psutil.Process]:
    """Return the Python workers that a command's own Java has started."""
    return [process for process in family(command) if "pyspark.worker" in line_of(process)]


def executors(command: int) -> Sequence[psutil.Process]:
    """Return the executors of the cluster that these tests have started, and the Python workers of each."""
    found = [process for process in family(os.getpid()) if "CoarseGrainedExecutorBackend" in line_of(process)]
    workers = [worker for executor in found for worker in python_workers(executor.pid)]
    return [*found, *workers] if workers else []


def family(process: int) -> list[psutil.Process]:
    """Return what a process has started, and what that has; nothing once it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process).children(recursive=True)
    return []


def line_of(process: psutil.Process) -> str:
    """Return the command line of a process, nothing once it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


@dataclass(frozen=True)
class Left:
    """What a run that came to its end has left: its exit code, what it printed, and the rows of all logs by height,
    roots among them. ``seconds``: how long its ticks took."""

    code: object
    told: dict[str, Any]
    rows: dict[str, Counter[str]]
    seconds: float = field(compare=False)


class Runs:
    """Runs of one scenario in a folder. ``options``: further ones of the command; ``others``: who works for it."""

    def __init__(self, folder: Path, text: str, *options: str, others: Others = nobody) -> None:
        self.folder, self.options, self.others = folder, options, others
        folder.mkdir(exist_ok=True)
        self.scenario = folder / "scenario.toml"
        self.scenario.write_text(text)

    def whole(self) -> Left:
        """Return what a run leaves that nobody disturbs, in this process."""
        place, out = str(self.folder / "whole"), io.StringIO()
        arguments = ["run", str(self.scenario), "--lake", place, "--json", "--set", 'network.executor="in_process"']
        with redirect_stdout(out), pytest.raises(SystemExit) as end:
            main(arguments)
        return self._left(end.value.code, out.getvalue(), place)

    def kill(self, whole: Left, *, kills: int, seed: int, check: bool = True) -> Counter[str]:
        """Kill so often, resume each time, and assert that every lake becomes as ``whole``.

        ``check``: and that it is sound, and gives the same when it is executed again (``causeway check``). Returns how
        often the command was killed, and how often one of the others.
        """
        chosen, killed, number = random.Random(seed), Counter[str](), 0
        turns = ["command"] * kills if self.others is nobody else turns_of(kills, chosen)
        shortest = wait = 2 * whole.seconds / kills
        while killed.total() < kills:
            lake, before = f"lake-{number}", self._height(f"lake-{number}")
            with self._started(lake, *self.options) as command:
                self._until_at_work(command, lake)
                while killed.total() < kills and not ended(command, chosen.uniform(0, wait)):
                    if self._killed(command, turns[killed.total()], chosen):
                        killed[turns[killed.total()]] += 1
                if command.returncode != -signal.SIGKILL:
                    self._compare(command, lake, whole, check)
                    number, wait = number + 1, shortest
                    continue
            # Whatever a run commits at once, sooner or later one gets that far.
            wait = shortest if self._height(lake) > before else 2 * wait
        if (self.folder / f"lake-{number}").exists():
            with self._started(f"lake-{number}", *self.options) as command:
                self._compare(command, f"lake-{number}", whole, check)
        return killed

    def _killed(self, command: subprocess.Popen[bytes], who: str, chosen: random.Random) -> bool:
        """Kill a command, or one of the others that work for it; return whether there was one."""
        if who == "command":
            command.send_signal(signal.SIGKILL)
            command.wait(HANGS)
            return True
        others = self.others(command.pid)
        if others:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended just now
                chosen.choice(others).kill()
        return bool(others)

    def _compare(self, command: subprocess.Popen[bytes], lake: str, whole: Left, check: bool) -> None:
        code, place = command.wait(HANGS), self.folder / lake
        said = Path(f"{place}.err").read_text().splitlines()
        # A lost executor is worth a line; nothing else is.
        assert code in (0, 1) and all("Lost executor" in line for line in said), said[-20:]
        left = self._left(code, Path(f"{place}.out").read_text(), str(place))
        assert (left.code, left.told) == (whole.code, whole.told)
        for table, rows in whole.rows.items():
            assert left.rows[table] == rows, table
        if check:
            causeway = [sys.executable, "-m", "causeway", "check", str(place), "--execute", "--json"]
            done = subprocess.run(causeway, cwd=ROOT, env=environment(), capture_output=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def _started(self, lake: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Begin a run in a lake, or go on with it; it ends with the body."""
        place = self.folder / lake
        resume = ["--resume"] if Lake.at(str(place)).exists() else []
        causeway = [sys.executable, "-m", "causeway", "run", str(self.scenario), "--lake", str(place), "--json"]
        with Path(f"{place}.out").open("wb") as out, Path(f"{place}.err").open("wb") as err:
            command = subprocess.Popen(
                [*causeway, *resume, *options], cwd=ROOT, env=environment(), stdout=out, stderr=err
            )
        try:
            yield command
        finally:
            command.kill()
            command.wait()

    def _left(self, code: object, printed: str, place: str) -> Left:
        """Return what a run that has ended left in a lake."""
        told = json.loads(printed)
        rows = {table: rows_of(Lake.at(place), table) for table in LOGS}
        return Left(code, {name: value for name, value in told.items() if name not in OWN}, rows, told["seconds"])

    def _until_at_work(self, command: subprocess.Popen[bytes], lake: str) -> None:
        """Wait until a run has claimed its lake, and those who work for it are there."""
        claim, mine, end = self.folder / lake / CLAIM_FILE, f"process {command.pid} ".encode(), time.monotonic() + HANGS
        pause = 0.002
        while not ended(command, pause):
            assert time.monotonic() < end, "it does not begin"
            if claim.exists() and mine in claim.read_bytes():
                if self.others is nobody or self.others(command.pid):
                    return
                pause = 0.1  # looking for them is work

    def _height(self, lake: str) -> int:
        """Return how far a lake has come, -1 where there is nothing."""
        found = Lake.at(str(self.folder / lake))
        return found.last_height() if found.exists() else -1


def rows_of(lake: Lake, table: str) -> Counter[str]:
    """Return the rows of a log over all heights, whatever files they lie in."""
    files = (lake.sealed_table(path, seal) for path, seal in lake.log_files(table).items())
    return Counter(str(row) for file in files for row in file.to_pylist())


def ended(command: subprocess.Popen[bytes], wait: float) -> bool:
    """Return whether a process ends within some seconds."""
    try:
        command.wait(wait)
    except subprocess.TimeoutExpired:
        return False
    return True


def environment() -> dict[str, str]:
    """Return the environment in which commands run what is tested here."""
    sources = (ROOT / "src", ROOT / "packages" / "causeway-proofs" / "src", ROOT)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))}
