"""``recorded``: the whole command ``causeway run`` on recorded packets, from the command line to its last line."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from causeway_proofs.errors import InvalidInput

from benchmarks.checkouts import ROOT, Checkout, checkouts
from benchmarks.machine import machine
from benchmarks.process import BenchmarkFailed
from benchmarks.recorded.command import Measured, measure, wait_for_background
from benchmarks.recorded.lakes import average_of_parts, commits, milliseconds_a_tick, size
from benchmarks.rounds import work_folder
from tests.recordings import Recordings

Progress = Callable[[str], None]

PROTOCOLS = ("ic", "ibc")
EXECUTORS = ("spark", "in_process")
SCENARIO = ROOT / "examples" / "recorded.toml"
COUNTS = ("sent", "answered")
PHASES = ("start", "ticks", "summary")
COLD, WARM = "cold", "warm"


def bench_recorded(
    recording: str | None = None,
    *,
    protocols: Sequence[str] = PROTOCOLS,
    executor: str = "spark",
    repeats: int = 1,
    against: str | None = None,
    ticks: int | None = None,
    master: str = "local[*]",
    lake_folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure ``causeway run`` on a recording, as a command of its own with a new lake; return figures that fit JSON.

    Args:
        recording: a Parquet file with the columns that ``examples/recorded.toml`` names; by default the one of
            the repository (``tests.recordings``).
        protocols: some of ``PROTOCOLS``.
        executor: one of ``EXECUTORS``.
        repeats: runs with an archive of Java's classes (``warm``), after the one that has none (``cold``).
        against: a revision of this repository, or a folder with another clone, that takes turns with this one.
        ticks: the first tick not to run, by default none.
        master: Spark's.
        lake_folder: where lakes are made and removed again.
        progress: told what is being measured.

    Raises:
        InvalidInput: a name is unknown, a number out of range, a file not there.
        BenchmarkFailed: a command fails, or does not send, deliver and answer what plain Python does.
    """
    _check(protocols, executor, repeats, ticks)
    named = None if recording is None else _named(recording)
    about = machine()
    tell = progress if progress is not None else lambda text: None
    found = {}
    with work_folder(lake_folder) as folder, checkouts(against) as contestants:
        file = Recordings(Path(folder)).hub_packets if named is None else named
        for protocol in protocols:
            runs = _Runs(folder, file, protocol, executor, ticks, master)
            for number in range(repeats + 1):
                for one in contestants:
                    tell(f"{protocol}, {_kind(number)}: {one.name}")
                    runs.one(one, number)
                tell(f"{protocol}, {_kind(number)}: plain Python")
                runs.plain()
            found[protocol] = runs.figures([one.name for one in contestants])
    return {
        "benchmark": "recorded",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "master": master,
        "executor": executor,
        "recording": file.name,
        "repeats": repeats,
        "protocols": found,
    }


def _check(protocols: Sequence[str], executor: str, repeats: int, ticks: int | None) -> None:
    if repeats < 0 or (ticks is not None and ticks < 1):
        raise InvalidInput("repeats, ticks: at least 0 and 1 are allowed")
    for given, known in ((protocols, PROTOCOLS), ((executor,), EXECUTORS)):
        for name in given:
            if name not in known:
                raise InvalidInput(f'"{name}" is unknown; allowed: {", ".join(known)}')


def _named(name: str) -> Path:
    file = Path(name).resolve()
    if not file.is_file() or file.suffix != ".parquet":
        raise InvalidInput(f"traffic: {name} is no Parquet file")
    return file


def _kind(number: int) -> str:
    return WARM if number else COLD


class _Runs:
    """The runs of one protocol: of each contestant, and of plain Python beside them."""

    def __init__(
        self, folder: str, recording: Path, protocol: str, executor: str, ticks: int | None, master: str
    ) -> None:
        self._folder = Path(folder)
        self._recording, self._protocol, self._executor = recording, protocol, executor
        self._ticks, self._master = ticks, master
        self._runs: dict[str, list[dict[str, Any]]] = {}
        self._plain: list[Measured] = []

    def one(self, contestant: Checkout, number: int) -> None:
        """Run the command once; the first time there is no archive of Java's classes, later there is."""
        lake, cache = (
            self._folder / "lake",
            self._folder / f"cache-{self._protocol}-{contestant.name.replace('/', '_')}",
        )
        command = [
            sys.executable, "-m", "causeway", "run", str(SCENARIO), "--traffic", str(self._recording),
            "--protocol", self._protocol, "--executor", self._executor, "--master", self._master,
            "--lake", str(lake), "--json",
        ]  # fmt: skip
        if self._ticks is not None:
            command += ["--ticks", str(self._ticks)]
        environment = contestant.environment(CAUSEWAY_CACHE=str(cache))
        try:
            measured = measure(command, environment, str(self._folder))
            background = wait_for_background("CAUSEWAY_CACHE", str(cache))
            figures = {"kind": _kind(number), **figures_of(measured, lake), "background_seconds": round(background, 1)}
        finally:
            shutil.rmtree(lake, ignore_errors=True)
        before = self._runs.setdefault(contestant.name, [])
        if before and before[0]["root"] != figures["root"]:
            raise BenchmarkFailed(f"{contestant.name}: two runs ended with different roots")
        before.append(figures)

    def plain(self) -> None:
        """Run plain Python once."""
        command = [sys.executable, "-m", "benchmarks.recorded.plain", str(SCENARIO), str(self._recording)]
        if self._ticks is not None:
            command.append(str(self._ticks))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._plain.append(measure(command, environment, str(self._folder)))

    def figures(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the figures of all runs: of the first contestant, others by it, and plain Python by it."""
        plain = self._plain[0].printed
        for name in names:
            require_same_counts(name, self._runs[name][0]["counts"], plain, whole=self._ticks is None)
        first = self._runs[names[0]]
        latest = self._plain[1:] or self._plain
        seconds = statistics.median(run.seconds for run in latest)
        used = statistics.median(sum(run.printed["processor_seconds"].values()) for run in latest)
        best = typical(first)
        return {
            "contestants": {
                name: {"runs": self._runs[name], **({} if name == names[0] else ratios(self._runs[name], first))}
                for name in names
            },
            "messages_a_tick": _rounded(average_of_parts(plain["by_tick"])),
            "plain": {
                **{name: plain[name] for name in (*COUNTS, "messages")},
                "seconds": round(seconds, 3),
                "processor_seconds": round(used, 3),
                "routing_processor_seconds": plain["processor_seconds"]["routing"],
                "ratio": round(best["seconds"] / seconds, 1),
                "ratio_of_processor_time": round(best["processor_seconds"] / used, 1),
            },
        }


def figures_of(measured: Measured, lake: Path) -> dict[str, Any]:
    """Return what one run of the command took, and the lake it left."""
    committed = commits(lake)
    first = next(commit for commit in committed if commit.height > 0)
    moments = (measured.begun, first.time, committed[-1].time, measured.ended)
    spans = dict(zip(PHASES, itertools.pairwise(moments), strict=True))
    growth = milliseconds_a_tick(committed)
    growth_processor = milliseconds_a_tick(committed, measured.used)
    files, content = size(lake)
    printed = measured.printed
    return {
        "seconds": round(measured.seconds, 3),
        "processor_seconds": round(measured.processor_seconds(), 3),
        "genesis_seconds": round(committed[0].time - measured.begun, 3),
        "phases": {name: round(end - begin, 3) for name, (begin, end) in spans.items()},
        "phases_processor": {name: round(measured.processor_seconds(*span), 3) for name, span in spans.items()},
        "as_printed": {name: printed[name] for name in ("setup_seconds", "seconds", "summary_seconds")},
        "heights": committed[-1].height,
        "commits": len(committed),
        "first_height": first.height,
        "milliseconds_a_tick": _rounded(growth),
        "processor_milliseconds_a_tick": _rounded(growth_processor),
        "files": files,
        "bytes": content,
        "peak_bytes": printed["peak_memory_bytes"],
        "counts": {name: printed[name] for name in COUNTS},
        "root": printed["root"],
    }


def require_same_counts(name: str, ours: dict[str, int], plain: dict[str, Any], *, whole: bool) -> None:
    """Raise ``BenchmarkFailed`` when a run did not do what plain Python did.

    ``whole``: all was run, so that the protocols' different delays make no difference.
    """
    compared = COUNTS if whole else ("sent",)
    different = [f"{count} {ours[count]:,} (plain Python: {plain[count]:,})" for count in compared
                 if ours[count] != plain[count]]  # fmt: skip
    if different:
        raise BenchmarkFailed(f"{name}: {', '.join(different)}")


def typical(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the warm runs, or of the cold one where there is no other."""
    chosen = [run for run in runs if run["kind"] == WARM] or list(runs)
    found: dict[str, Any] = {
        key: statistics.median(run[key] for run in chosen) for key in ("seconds", "processor_seconds", "files", "bytes")
    }
    for phase in PHASES:
        found[phase] = statistics.median(run["phases"][phase] for run in chosen)
        found[f"{phase}_processor"] = statistics.median(run["phases_processor"][phase] for run in chosen)
    return found


def ratios(theirs: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many times as much another Causeway took in warm runs, and whether it came to the same root."""
    mine, others = typical(ours), typical(theirs)
    return {
        "ratios": {key: round(others[key] / max(mine[key], 1e-3), 2) for key in others},
        "same_root": theirs[0]["root"] == ours[0]["root"],
    }


def _rounded(values: dict[str, float] | None) -> dict[str, float] | None:
    return None if values is None else {name: round(value, 1) for name, value in values.items()}
