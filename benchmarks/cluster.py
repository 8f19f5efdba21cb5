"""``cluster``: rounds, ingest and audit on standalone clusters of 1, 2 and more workers, and in one process.

Workers are processes of this machine, each with its own Java; where they have more cores together than the machine,
compare processor time. The driver is told apart from the workers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pydantic_core
from causeway_proofs.errors import InvalidInput

from benchmarks.audit.bench import buckets_of, counts_of, require_planted
from benchmarks.audit.workload import Workload as Recording
from benchmarks.machine import machine, peak_bytes, peaks, processes_below, processor_seconds
from benchmarks.process import BenchmarkFailed, call
from benchmarks.rounds import SteadyNetwork, work_folder
from benchmarks.workload import Workload
from causeway.cluster.workers import freeze_modules
from causeway.storage.lake import Lake
from causeway.storage.reorgs import network_root

Progress = Callable[[str], None]
Run = dict[str, Any]

BUCKET_MESSAGES = 250_000
"""A bucket has at most this many messages a round: as many buckets for any number of workers."""

EMPTY_TASKS = 1_000
"""Tasks that do nothing, in a job that shows what a task costs the driver."""

ONE_PROCESS = "in process"
ROUND, INGEST, AUDIT, TASKS = "round", "ingest", "audit", "empty tasks"


def bench_cluster(
    workers: Sequence[int],
    *,
    messages: int,
    rows: int,
    rounds: int = 3,
    lanes: int = 5_000,
    memory: str = "3g",
    store: str | None = None,
    folder: str | None = None,
    keep: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure one round, an ingest and an audit on clusters; return figures that fit JSON.

    Args:
        workers: how many workers of one core each cluster has; 0: no cluster, but one process without Spark.
        messages: of a round; 0: no rounds.
        rows: of the ledger, about; 0: no ingest and no audit.
        rounds: how often a round is measured, after it has warmed up.
        lanes: of the ledger.
        memory: what each worker gives its executor.
        store: URI of an object store for lakes and ledgers, whose endpoint and keys the environment names; by default
            ``folder``.
        folder: where files are made and removed again.
        keep: a folder in which the file of rows as they arrived stays, and is used if it is there.
        progress: told what is being measured.

    Raises:
        InvalidInput: a number is out of range.
        BenchmarkFailed: a root or a finding differs between the runs, or a process died.
    """
    if rounds < 1 or messages < 0 or rows < 0 or any(number < 0 for number in workers):
        raise InvalidInput("rounds: at least 1 is allowed; workers, messages and rows: at least 0")
    about, tell = machine(), progress if progress is not None else lambda text: None
    recording, found = Recording(rows, lanes), {}
    with work_folder(folder) as made:
        arrived = os.path.join(made if keep is None else keep, f"arrived-{rows}-{lanes}.parquet")
        if rows and not os.path.exists(arrived):
            tell("writing the rows as they arrive")
            call(_write, recording, arrived)
        place = made if store is None else f"{store.rstrip('/')}/{uuid.uuid4().hex}"
        for count in workers:
            name = str(count) if count else ONE_PROCESS
            tell(f"{name} workers" if count else name)
            job = _Job(count, messages, rounds, recording if rows else None, arrived, f"{place}/{count}", memory)
            found[name] = call(_measure, job)
            if store is None:
                shutil.rmtree(f"{place}/{count}", ignore_errors=True)
    roots = {run[ROUND]["root"] for run in found.values() if ROUND in run}
    if len(roots) > 1:
        raise BenchmarkFailed(f"the roots differ: {roots}")
    size = os.path.getsize(arrived) if keep is not None and rows else None
    return {
        "benchmark": "cluster",
        "machine": about,
        "messages": messages,
        "rows": rows,
        "file_bytes": size,
        "store": "folder" if store is None else store.partition(":")[0],
        "runs": found,
    }


@dataclass(frozen=True)
class _Job:
    """What one process measures: with so many workers, or 0: without Spark."""

    workers: int
    messages: int
    rounds: int
    recording: Recording | None
    arrived: str
    place: str
    memory: str


def _write(recording: Recording, path: str) -> None:
    from benchmarks.audit.stored import write_arrived

    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_arrived(recording, f"{path}.part", os.cpu_count() or 1)
    os.replace(f"{path}.part", path)


def _measure(job: _Job) -> Run:
    """Measure everything of a job, in a process of its own."""
    with contextlib.ExitStack() as opened:
        session, cluster = None, frozenset[int]()
        if job.workers:
            from benchmarks.session import open_bench_session
            from tests.support.common.local_cluster import LocalCluster

            started = opened.enter_context(LocalCluster(job.workers, 1, job.memory))
            cluster = frozenset(child.pid for child in psutil.Process().children())
            extra = {"spark.executor.memory": "1g", "spark.ui.enabled": "true", "spark.ui.port": "0"}
            session = open_bench_session(started.master_url, extra)
        meter = _Meter(cluster, session)
        found: Run = {}
        if session is not None:
            session.range(0, 8, 1, 8).mapInArrow(_same, "id long").count()
            with meter.measured(found, TASKS, EMPTY_TASKS):
                session.range(0, EMPTY_TASKS, 1, EMPTY_TASKS).mapInArrow(_same, "id long").count()
        if job.messages:
            _measure_rounds(job, session, meter, found)
        if job.recording is not None:
            _measure_ledger(job, session, meter, found)
        return found


def _measure_rounds(job: _Job, session: Any, meter: _Meter, found: Run) -> None:
    workload = Workload(job.messages)
    network = SteadyNetwork(workload, Lake.at(f"{job.place}/lake"), session, -(-job.messages // BUCKET_MESSAGES))
    runs: list[Run] = []
    for _ in range(job.rounds):
        own: Run = {}
        with meter.measured(own, ROUND, job.messages):
            network.round()
        runs.append(own[ROUND])
    runs.sort(key=lambda run: run["seconds"])
    found[ROUND] = {**runs[len(runs) // 2], "root": network_root(network.lake, network.head)}


def _measure_ledger(job: _Job, session: Any, meter: _Meter, found: Run) -> None:
    from benchmarks.audit.stored import mapping
    from causeway.audit.stored import audit_ledger
    from causeway.ledger.ingest.ingest import ingest_files
    from causeway.ledger.store import open_ledger

    assert job.recording is not None
    place, executor = f"{job.place}/ledger", "in_process" if session is None else "spark"
    own: Run = {}
    with meter.measured(own, INGEST, job.recording.rows):
        done = ingest_files(
            job.arrived, place, mapping(), buckets=buckets_of(job.recording), executor=executor, session=session
        )
    found[INGEST] = {**own[INGEST], "rows": done.rows}
    with meter.measured(found, AUDIT, done.rows):
        audited = audit_ledger(open_ledger(place), executor=executor, session=session)
    require_planted(f"{job.workers} workers", counts_of(audited), job.recording)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    freeze_modules()  # as tasks with work do: PySpark collects garbage after every task
    yield from batches


class _Meter:
    """Measures what the driver and the workers take: time, processor time, files, and Spark's shuffles."""

    def __init__(self, cluster: Iterable[int], session: Any) -> None:
        self._cluster, self._session = frozenset(cluster), session

    @contextlib.contextmanager
    def measured(self, found: Run, name: str, items: int) -> Iterator[None]:
        """Add to ``found`` what the body takes, and for each of ``items``."""
        before, shuffled, begun = self._usage(), self._shuffled(), time.perf_counter()
        yield
        seconds, after = time.perf_counter() - begun, self._usage()
        used = {key: after[key] - before[key] for key in before}
        found[name] = {
            "seconds": round(seconds, 3),
            **{key: round(value, 3) for key, value in used.items()},
            "shuffled_bytes": self._shuffled() - shuffled,
            "microseconds_each": round(1e6 * (used["driver_seconds"] + used["worker_seconds"]) / items, 3),
            **self._peaks(),
        }

    def _usage(self) -> dict[str, float]:
        found = {
            "driver_seconds": processor_seconds(self._cluster),
            "worker_seconds": sum(processor_seconds(root=worker) for worker in self._cluster),
            "read_bytes": 0.0,
            "written_bytes": 0.0,
        }
        for process in processes_below(os.getpid()):
            with contextlib.suppress(psutil.Error):
                files = process.io_counters()
                found["read_bytes"] += files.read_chars
                found["written_bytes"] += files.write_chars
        return found

    def _peaks(self) -> Run:
        """Return the largest resident memory so far: of the driver's processes, and of the largest worker's Python."""
        driver, worker = peaks(self._cluster), 0
        for process in itertools.chain.from_iterable(map(processes_below, self._cluster)):
            with contextlib.suppress(psutil.Error):
                if "java" not in process.name():
                    worker = max(worker, peak_bytes(process))
        return {
            "driver_python_bytes": driver["python"],
            "driver_java_bytes": driver["java"],
            "worker_python_bytes": worker,
        }

    def _shuffled(self) -> int:
        """Return the bytes that Spark's stages have exchanged, by its monitoring interface."""
        if self._session is None:
            return 0
        context = self._session.sparkContext
        where = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
        with urllib.request.urlopen(where, timeout=60) as answer:
            stages = pydantic_core.from_json(answer.read())
        return sum(stage["shuffleReadBytes"] + stage["shuffleWriteBytes"] for stage in stages)
