"""``nomad``: copies of the recorded traffic of a bridge, from CSV to findings, as two commands and by other tools."""

from __future__ import annotations

import csv
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from causeway_proofs.errors import InvalidInput

from benchmarks.checkouts import here
from benchmarks.machine import machine
from benchmarks.process import BenchmarkFailed
from benchmarks.recorded.command import Measured, measure
from benchmarks.rounds import work_folder
from causeway.cluster.masters import available_cores
from tests.recordings import Recordings

Progress = Callable[[str], None]
Run = dict[str, Any]

OTHERS = ("duckdb", "polars")
KIND = "bridge-events"
FOUND = {"content_differs": 1, "missing_in_sequence": 7, "not_received": 1, "too_early": 5, "missing_inside_window": 10}
"""What an audit of one copy of the recording finds, by the reason."""


def bench_nomad(
    recording: str | None = None,
    *,
    copies: int = 50,
    repeats: int = 3,
    against: Sequence[str] = OTHERS,
    spark: bool = True,
    folder: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure ``causeway ingest`` and ``causeway audit`` on copies of a recording; return figures that fit JSON.

    Args:
        recording: the CSV file; by default the one of the repository (``tests.recordings``).
        copies: how many copies of it one file has, each with a lane of its own.
        repeats: how often each is measured, in turns.
        against: some of ``OTHERS``, which make the same checks of the same file.
        spark: whether the audit is measured on Spark, too, with the start of Spark.
        folder: where files are made and removed again.
        progress: told what is being measured.

    Raises:
        InvalidInput: a name is unknown, a number out of range, a file not there.
        BenchmarkFailed: a command fails, or finds something else than the recording shows.
    """
    for name in against:
        if name not in OTHERS:
            raise InvalidInput(f'"{name}" is unknown; allowed: {", ".join(OTHERS)}')
    if copies < 1 or repeats < 1:
        raise InvalidInput("copies, repeats: at least 1 is allowed")
    named = None if recording is None else _named(recording)
    about, tell = machine(), progress if progress is not None else lambda text: None
    with work_folder(folder) as place:
        file = Recordings(Path(place)).bridge_events if named is None else named
        copied = os.path.join(place, "copies.csv")
        rows = write_copies(file, copied, copies)
        cores = available_cores()
        contestants: dict[str, Callable[[], Run]] = {"in process": lambda: _commands(copied, place, "in_process")}
        if spark:
            contestants["spark"] = lambda: _commands(copied, place, "spark", "--master", f"local[{cores}]")
        for name in against:
            contestants[name] = _Other(name, copied, place, cores)
        runs: dict[str, list[Run]] = {name: [] for name in contestants}
        for number in range(repeats):
            for name, run in contestants.items():
                tell(f"{name}, {number + 1} of {repeats}")
                found = run()
                _require_found(name, found.pop("reasons"), copies)
                runs[name].append(found)
    return {
        "benchmark": "nomad",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "recording": file.name,
        "copies": copies,
        "rows": rows,
        "contestants": _figures(runs),
    }


def write_copies(recording: Path, path: str, copies: int) -> int:
    """Write copies of a recording one after the other, each with a lane of its own; return how many rows they are."""
    header, *lines = recording.read_text().splitlines()
    place = next(csv.reader([header])).index("direction")
    assert place == 0, "direction is the first column"
    rest = [line.split(",", 1) for line in lines]
    with open(path, "w", encoding="utf-8") as out:
        out.write(header + "\n")
        for copy in range(copies):
            out.writelines(f"{direction}->{copy},{more}\n" for direction, more in rest)
    return copies * len(lines)


def _named(name: str) -> Path:
    file = Path(name).resolve()
    if not file.is_file():
        raise InvalidInput(f"traffic: {name} is no file")
    return file


def _commands(copied: str, place: str, *executor: str) -> Run:
    lake = os.path.join(place, "lake")
    shutil.rmtree(lake, ignore_errors=True)
    start = [sys.executable, "-m", "causeway"]
    environment = here().environment()
    taken = measure([*start, "ingest", KIND, copied, "--lake", lake, "--json"], environment, place)
    audited = measure([*start, "audit", lake, "--executor", *executor, "--json"], environment, place, (0, 1))
    shutil.rmtree(lake)
    reasons: dict[str, int] = {}
    for check in audited.printed["checks"]:
        for reason in check["reasons"]:
            reasons[reason["reason"]] = reasons.get(reason["reason"], 0) + reason["findings"]
    return {**_took(taken, audited), "ingest_seconds": taken.seconds, "audit_seconds": audited.seconds,
            "reasons": reasons}  # fmt: skip


def _took(*measured: Measured) -> Run:
    return {
        "seconds": sum(each.seconds for each in measured),
        "processor_seconds": sum(each.processor_seconds() for each in measured),
        "ingest_seconds": None,
        "audit_seconds": None,
    }


class _Other:
    def __init__(self, name: str, copied: str, place: str, cores: int) -> None:
        self._command = [sys.executable, "-m", "benchmarks.audit.bridge", name, copied, str(cores)]
        self._place, self._cores = place, cores

    def __call__(self) -> Run:
        root = str(Path(__file__).resolve().parents[2])
        environment = here().environment(Path(root), POLARS_MAX_THREADS=str(self._cores))
        measured = measure(self._command, environment, self._place)
        return {**_took(measured), "reasons": measured.printed}


def _require_found(name: str, reasons: dict[str, int], copies: int) -> None:
    expected = {reason: count * copies for reason, count in FOUND.items()}
    if reasons != expected:
        raise BenchmarkFailed(f"{name}: found {json.dumps(reasons)}, the recording shows {json.dumps(expected)}")


def _figures(runs: dict[str, list[Run]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, of_name in runs.items():
        own: dict[str, Any] = {"least_seconds": min(run["seconds"] for run in of_name), "runs": of_name}
        for key in ("seconds", "processor_seconds", "ingest_seconds", "audit_seconds"):
            values = [run[key] for run in of_name]
            own[key] = None if values[0] is None else round(statistics.median(values), 3)
        found[name] = own
        first = next(iter(found.values()))
        for key, ratio in (("seconds", "ratio"), ("processor_seconds", "ratio_of_processor_time")):
            own[ratio] = round(own[key] / first[key], 2)
    return found
