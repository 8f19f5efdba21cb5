"""``audit``: a stored ledger checked in this process, on Spark, and by other tools, which find what was planted."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causeway_proofs.errors import InvalidInput

from benchmarks.audit.workload import Workload
from benchmarks.machine import machine, peaks, processor_seconds
from benchmarks.process import BenchmarkFailed, NotDone, call, call_within
from benchmarks.rounds import work_folder
from causeway.cluster.masters import available_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str], None]

IN_PROCESS, SPARK, DATAFRAME, DUCKDB, POLARS = "in process", "spark", "spark, DataFrame", "duckdb", "polars"
SPARK_SQL = "spark-sql"
OTHERS = (DUCKDB, POLARS, SPARK_SQL)
LAYOUTS = ("bucketed", "arrived")
LEDGER, ARRIVED = "ledger", "arrived.parquet"
BUCKET_ROWS, MOST_BUCKETS = 400_000, 64
"""How many buckets a ledger has is chosen as ``causeway ingest`` does."""

Run = dict[str, Any]


def bench_audit(
    rows: int,
    *,
    lanes: int = 5_000,
    repeats: int = 3,
    against: Sequence[str] = (DUCKDB, POLARS),
    layouts: Sequence[str] = LAYOUTS,
    spark: bool = True,
    frames: bool = False,
    ingest: bool = True,
    cores: int | None = None,
    seconds: float = 1_800,
    folder: str | None = None,
    keep: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the audit of a generated ledger; return figures that fit JSON.

    Args:
        rows: of the ledger, about.
        lanes: over how many lanes they are spread, most to few of them.
        repeats: how often each is measured, in turns.
        against: some of ``OTHERS``.
        layouts: what the others read: the files of the ledger, or one file of rows as they arrived.
        spark: whether the audit is measured on Spark, too.
        frames: whether rows as they arrived are audited as a DataFrame, too: stored, then audited.
        ingest: whether the rows as they arrived are taken into a ledger by ``causeway ingest``, too.
        cores: threads and Spark tasks at once; by default all cores.
        seconds: how long each of the others may take; what takes longer, or more than three quarters of the memory, is
            ended and shown as not done.
        folder: where files are made and removed again.
        keep: a folder in which they stay instead, and are used if they are there.
        progress: told what is being measured.

    Raises:
        InvalidInput: a name is unknown, a number out of range.
        BenchmarkFailed: something found other than what was planted, or failed.
    """
    for given, known in ((against, OTHERS), (layouts, LAYOUTS)):
        for name in given:
            if name not in known:
                raise InvalidInput(f'"{name}" is unknown; allowed: {", ".join(known)}')
    if repeats < 1:
        raise InvalidInput("repeats: at least 1 is allowed")
    workload = Workload(rows, lanes)
    about, tell = machine(), progress if progress is not None else lambda text: None
    count = cores or available_cores()
    with work_folder(folder) as made:
        place = made if keep is None else str(Path(keep).resolve() / f"{rows}-{lanes}")
        os.makedirs(place, exist_ok=True)
        arrives = ingest or frames or (bool(against) and "arrived" in layouts)
        written = _written(workload, place, count, arrives, ingest, tell)
        contestants = _contestants(workload, place, count, against, layouts, spark, frames, seconds)
        runs: dict[str, list[Run]] = {name: [] for name in contestants}
        not_done: dict[str, str] = {}
        for number in range(repeats):
            for name, run in contestants.items():
                if name in not_done:
                    continue
                tell(f"{name}, {number + 1} of {repeats}")
                try:
                    found = run(made)
                except NotDone as error:
                    not_done[name] = str(error)
                    runs.pop(name)
                    continue
                require_planted(name, found.pop("counts"), workload)
                runs[name].append(found)
    _require_same_sums(runs)
    return {
        "benchmark": "audit",
        "machine": about,
        "load_after": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "rows": written["ledger"]["rows"],
        "lanes": lanes,
        "cores": count,
        "planted": {name: list(numbers) for name, numbers in workload.expected.items()},
        "written": written,
        "contestants": figures(runs, written["ledger"]["rows"]),
        "not_done": not_done,
    }


def figures(runs: dict[str, list[Run]], rows: int) -> dict[str, Any]:
    """Return medians and extremes of runs, and by how much each takes longer than the first contestant."""
    found: dict[str, Any] = {}
    first: dict[str, float] = {}
    for name, of_name in runs.items():
        own = {
            "seconds": statistics.median(run["seconds"] for run in of_name),
            "least_seconds": min(run["seconds"] for run in of_name),
            "processor_seconds": statistics.median(run["processor_seconds"] for run in of_name),
        }
        first = first or own
        found[name] = {
            **{key: round(value, 3) for key, value in own.items()},
            "cold_seconds": of_name[0].get("cold_seconds"),
            "start_seconds": of_name[0].get("start_seconds"),
            "rows_per_second": round(rows / own["seconds"]),
            "rows_per_processor_second": round(rows / own["processor_seconds"]),
            "peak_bytes": max(run["peak_bytes"] for run in of_name),
            "java_bytes": max(run.get("java_bytes", 0) for run in of_name),
            "ratio": round(own["seconds"] / first["seconds"], 2),
            "ratio_of_processor_time": round(own["processor_seconds"] / first["processor_seconds"], 2),
            "runs": of_name,
        }
    return found


def require_planted(name: str, counts: dict[str, int], workload: Workload) -> None:
    """Raise ``BenchmarkFailed`` where a contestant found other than what was planted. ``counts``: by check violated,
    and by ``..._unknown`` unknown; what is not there is 0."""
    for check, expected in workload.expected.items():
        found = counts.get(check, 0), counts.get(f"{check}_unknown", 0)
        if found != expected:
            raise BenchmarkFailed(f"{name}: {check}: found {found}, planted {expected} (violated, unknown)")


def _require_same_sums(runs: dict[str, list[Run]]) -> None:
    totals = {name: {(run["sent"], run["received"]) for run in of_name} for name, of_name in runs.items()}
    if len(set().union(*totals.values())) > 1:
        raise BenchmarkFailed(f"the sums of value differ: {totals}")


# ---- files


def _written(
    workload: Workload, place: str, threads: int, arrives: bool, ingest: bool, tell: Progress
) -> dict[str, Any]:
    """Write what is not there; return what that took."""
    found: dict[str, Any] = {}
    if not os.path.exists(os.path.join(place, LEDGER, "ledger.json")):
        tell("writing the ledger")
        found["ledger"] = call(_write_ledger, workload, os.path.join(place, LEDGER), threads)
    else:
        found["ledger"] = call(_count_ledger, os.path.join(place, LEDGER))
    if not arrives:
        return found
    arrived = os.path.join(place, ARRIVED)
    if not os.path.exists(arrived):
        tell("writing the rows as they arrive")
        found["arrived"] = call(_write_arrived, workload, arrived, threads)
    if ingest:
        tell("taking the rows as they arrived into a ledger")
        taken = os.path.join(place, "taken")
        shutil.rmtree(taken, ignore_errors=True)
        found["taken"] = call(_take, workload, arrived, taken)
        require_planted("causeway ingest", found["taken"].pop("counts"), workload)
        shutil.rmtree(taken)
    return found


def buckets_of(workload: Workload) -> int:
    """Return how many buckets the ledger of a workload has."""
    return int(min(1 << (workload.rows // BUCKET_ROWS).bit_length(), MOST_BUCKETS))


def _measured(work: Callable[[], Any]) -> tuple[Any, Run]:
    begun, used = time.perf_counter(), processor_seconds()
    result = work()
    took = {"seconds": time.perf_counter() - begun, "processor_seconds": processor_seconds() - used}
    memory = peaks()
    return result, {**took, "peak_bytes": memory["python"], "java_bytes": memory["java"]}


def _write_ledger(workload: Workload, place: str, threads: int) -> Run:
    from benchmarks.audit.stored import write_ledger

    rows, took = _measured(lambda: write_ledger(workload, place, buckets_of(workload), threads))
    return {"rows": rows, "bytes": _size(place), **took}


def _count_ledger(place: str) -> Run:
    from causeway.ledger.store import open_ledger

    return {"rows": sum(file.rows for file in open_ledger(place).files("ledger")), "bytes": _size(place)}


def _write_arrived(workload: Workload, path: str, threads: int) -> Run:
    from benchmarks.audit.stored import write_arrived

    rows, took = _measured(lambda: write_arrived(workload, path, threads))
    return {"rows": rows, "bytes": os.path.getsize(path), **took}


def _take(workload: Workload, arrived: str, place: str) -> Run:
    from benchmarks.audit.stored import mapping
    from causeway.audit.stored import audit_ledger
    from causeway.ledger.ingest.ingest import ingest_files
    from causeway.ledger.store import open_ledger

    done, took = _measured(lambda: ingest_files(arrived, place, mapping(), buckets=buckets_of(workload)))
    ledger = open_ledger(place)
    files = len(ledger.files("ledger"))
    return {"rows": done.rows, "files": files, **took, "counts": counts_of(audit_ledger(ledger, executor="in_process"))}


def _size(place: str) -> int:
    return sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())


# ---- contestants


def _contestants(
    workload: Workload,
    place: str,
    cores: int,
    against: Sequence[str],
    layouts: Sequence[str],
    spark: bool,
    frames: bool,
    seconds: float,
) -> dict[str, Callable[[str], Run]]:
    """Return what runs each contestant once, in a process of its own; it is given a folder for what it writes."""
    ledger = os.path.join(place, LEDGER)
    found: dict[str, Callable[[str], Run]] = {IN_PROCESS: lambda _: call(_in_process, ledger)}
    if spark:
        found[SPARK] = lambda _: call(_on_spark, ledger, cores)
    if frames:
        found[DATAFRAME] = lambda folder: call(_of_frame, workload, os.path.join(place, ARRIVED), cores, folder)
    patterns = {"bucketed": os.path.join(ledger, "ledger", "*", "*.parquet"), "arrived": os.path.join(place, ARRIVED)}
    for layout in layouts:
        for name in against:
            found[f"{name}, {layout}"] = _Other(name, patterns[layout], layout, cores, seconds)
    return found


class _Other:
    def __init__(self, name: str, files: str, layout: str, cores: int, seconds: float) -> None:
        self._name, self._arguments = name, (name, files, layout, cores)
        self._cores, self._seconds = cores, seconds

    def __call__(self, folder: str) -> Run:
        os.environ["POLARS_MAX_THREADS"] = str(self._cores)  # which the process inherits
        memory = 3 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
        try:
            return dict(call_within(self._seconds, memory, _other, *self._arguments, folder))
        finally:
            for left in Path(folder).glob("duckdb_temp*"):
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _other(name: str, files: str, layout: str, cores: int, folder: str) -> Run:
    from benchmarks.audit import polars_frames, sql

    if name == SPARK_SQL:
        with _plain_session(cores, folder) as session:
            found, took = _measured(lambda: sql.check_in_spark(session, files, layout))
    else:
        check = sql.check_in_duckdb if name == DUCKDB else polars_frames.check
        found, took = _measured(lambda: check(files, layout, cores, folder))
    return {**took, "counts": found["counts"], "sent": found["sent"], "received": found["received"]}


def _in_process(place: str) -> Run:
    from causeway.audit.stored import audit_ledger
    from causeway.cluster.workers import retain_freed_memory
    from causeway.ledger.store import open_ledger

    retain_freed_memory(arrow=False)  # as the command does
    return _audited(lambda: audit_ledger(open_ledger(place), executor="in_process"))


def _on_spark(place: str, cores: int) -> Run:
    from causeway.audit.stored import audit_ledger
    from causeway.cluster.session import spark_session
    from causeway.ledger.store import open_ledger

    begun = time.perf_counter()
    with spark_session(f"local[{cores}]") as session:
        session.range(1).count()
        start = time.perf_counter() - begun
        return {
            "start_seconds": round(start, 3),
            **_audited(lambda: audit_ledger(open_ledger(place), executor="spark", session=session)),
        }


def _of_frame(workload: Workload, arrived: str, cores: int, folder: str) -> Run:
    from pyspark.sql import functions as F

    from benchmarks.audit.stored import Tables
    from causeway import spark as cs

    with _plain_session(cores, folder) as session:
        tables = Tables(workload)
        events = session.read.parquet(arrived).withColumn("kind", F.lit("request"))
        given = {"observed": tables.observed(), "promises": tables.promises()}
        found, took = _measured(lambda: cs.audit(events, **given, folder=folder))
        return {**took, **_sums(found.audit), "counts": counts_of(found.audit)}


@contextlib.contextmanager
def _plain_session(cores: int, folder: str) -> Iterator[SparkSession]:
    """Yield a session as anybody starts it; it spills to a folder. Half the memory is for its heap."""
    from pyspark.sql import SparkSession

    from causeway.cluster.java import find_java, java_home

    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    heap = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 31
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", f"{heap}g")
        .config("spark.local.dir", folder)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        session.range(1).count()
        yield session
    finally:
        session.stop()


def _audited(audit: Callable[[], Any]) -> Run:
    """Return what the second of two audits took: the first one loads what is compiled."""
    _, cold = _measured(audit)
    found, took = _measured(audit)
    return {"cold_seconds": round(cold["seconds"], 3), **took, **_sums(found), "counts": counts_of(found)}


def _sums(found: Any) -> dict[str, str]:
    return {name: str(sum(map(int, found.sums[name].to_pylist()))) for name in ("sent", "received")}


def counts_of(found: Any) -> dict[str, int]:
    """Return how many findings an audit has by check: violated, and by ``..._unknown`` unknown."""
    counts = {name: check.violated for name, check in found.checks.items()}
    return counts | {f"{name}_unknown": check.unknown for name, check in found.checks.items()}
