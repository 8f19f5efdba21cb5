"""Functions on DataFrames give the same ledger and verdict when tasks, executors and drivers fail.

The tests on a cluster kill as often as ``CAUSEWAY_KILLS`` says (once if it says nothing).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

import causeway.spark as cs
from benchmarks.audit.stored import Tables
from benchmarks.audit.workload import Workload
from causeway.analysis.stored_figures import MessageReader
from causeway.audit.stored import audit_ledger
from causeway.cluster.session import _cancel
from causeway.ledger.bucket_scan import prepare_worker
from causeway.ledger.commits import STAGING
from causeway.ledger.sorted_runs import RunWriter, write_bucket
from causeway.ledger.store import LedgerWriter, create_ledger, open_ledger
from causeway.spark import frames
from tests.support.common import frame_faults
from tests.support.common.frame_faults import (
    as_events,
    disturbed,
    left_files,
    results,
    traffic,
    write_traffic,
)
from tests.support.common.kills import HANGS, KILLS, ROOT, ended, environment, executors
from tests.support.common.local_cluster import LocalCluster

for module in (sys.modules[__name__], frame_faults):
    cloudpickle.register_pickle_by_value(module)  # workers import no tests

MESSAGES = 2_000
VERDICT = "FAILED: 2 violations of exactly_once; 2 messages pending"


def fail_once(mark: Path) -> None:
    """Let the first attempt of each task fail."""
    if not mark.exists():
        mark.touch()
        raise ValueError("after writing")


def test_failed_tasks_and_late_repeated_rows_leave_the_same_ledger(spark: SparkSession, tmp_path: Path) -> None:
    def fail_first(mark: Path) -> None:
        if mark.name.endswith("-0"):
            fail_once(mark)

    rows = traffic(MESSAGES)
    late = pa.concat_tables([rows.take(pa.array(range(rows.num_rows - 1, -1, -1))), rows.slice(0, 500)])
    with cs.store(as_events(spark.createDataFrame(rows)), folder=tmp_path, buckets=2) as ledger:
        expected = [ledger.stored.rows(bucket).to_pylist() for bucket in range(2)]
    late_events = as_events(spark.createDataFrame(late))
    with disturbed(tmp_path, fail_first), cs.store(late_events, folder=tmp_path, buckets=2) as ledger:
        assert [ledger.stored.rows(bucket).to_pylist() for bucket in range(2)] == expected
        assert left_files(ledger) == []
        assert audit_ledger(ledger.stored, executor="in_process").sentence() == VERDICT
    assert len([*tmp_path.iterdir()]) == 2, "some tasks did not fail"


def test_tasks_that_outlive_a_failed_job_write_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, mark, place = frames._BucketSpooler, tmp_path / "mark", tmp_path / "place"

    def one_fails(*given: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            if context is None or context.partitionId() == 0:
                raise ValueError("the other task goes on")
            while [*place.iterdir()]:
                time.sleep(0.01)
            try:
                yield from [*make(*given)(batches)]
            finally:
                mark.touch()

        return run

    monkeypatch.setattr(frames, "_BucketSpooler", one_fails)
    rows = as_events(spark.createDataFrame(traffic(MESSAGES))).repartition(2, "index")
    with pytest.raises(InvalidInput, match=r"^ledger: cannot be read: ValueError: the other task goes on$"):
        cs.store(rows, folder=place, buckets=2)
    until = time.monotonic() + HANGS
    while not mark.exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    assert [*place.iterdir()] == []


def test_interrupt_during_a_job_stays_an_interrupt(spark: SparkSession, tmp_path: Path) -> None:
    def mark_and_wait(mark: Path) -> None:
        mark.touch()
        time.sleep(HANGS)

    def interrupt() -> None:
        until = time.monotonic() + HANGS
        while not [*(tmp_path / "marks").iterdir()] and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "marks").mkdir()
    rows, before = as_events(spark.createDataFrame(traffic(10))), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, partial(_cancel, spark))
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with disturbed(tmp_path / "marks", mark_and_wait), pytest.raises(KeyboardInterrupt):
            cs.store(rows, folder=tmp_path / "place", buckets=2)
        interrupting.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert [*(tmp_path / "place").iterdir()] == []


@pytest.mark.slow
def test_functions_whose_tasks_all_fail_once_agree(spark: SparkSession, tmp_path: Path) -> None:
    records = spark.createDataFrame(traffic(MESSAGES)).repartition(2, "index")
    expected = results(records, tmp_path, buckets=2)
    assert {found["audit"] for found in expected.values()} == {VERDICT}
    assert [found["left"] for found in expected.values()] == [[], []]
    (tmp_path / "marks").mkdir()
    with disturbed(tmp_path / "marks", fail_once):
        assert results(records, tmp_path, buckets=2) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["marks"]
    assert len([*(tmp_path / "marks").iterdir()]) >= 12, "some tasks did not fail"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Return a cluster of two hosts; tests leave its master and workers alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])  # executors have their own folder
        with LocalCluster(workers=2, cores=1, hosts=True) as running:
            yield running


class Driver:
    """A program that runs the functions on a cluster, again and again on the same traffic."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.folder, self._cluster = folder, cluster
        write_traffic(folder, MESSAGES)

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start it; it ends with the ``with`` block."""
        program = [sys.executable, "-m", "tests.support.common.frame_faults", self._cluster.master_url]
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            driver = subprocess.Popen(
                [*program, str(self.folder), *options], cwd=ROOT, env=environment(), stdout=out, stderr=err
            )
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait(HANGS)

    def results(self, driver: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Return the results of one that comes to its end."""
        assert driver.wait(HANGS) == 0, (self.folder / "err").read_text()[-2000:]
        found: dict[str, Any] = json.loads((self.folder / "out").read_text().splitlines()[-1])
        return found

    def at_work(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until it has begun to write, and executors work for it."""
        until, before = time.monotonic() + HANGS, self.left()
        while self.left() <= before or not executors(driver.pid):
            assert time.monotonic() < until and not ended(driver, 0.1), (self.folder / "err").read_text()[-2000:]

    def left(self) -> set[str]:
        """Return the names of temporary ledgers."""
        return {path.name for path in (self.folder / "temporary").iterdir() if path.is_dir()}


@pytest.mark.slow
@pytest.mark.cluster
def test_killed_executors_and_drivers_and_speculation_change_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    driver, chosen = Driver(cluster, tmp_path), random.Random(11)
    with driver.started() as running:
        driver.at_work(running)
        begin = time.monotonic()
        expected = driver.results(running)
        seconds = time.monotonic() - begin
    assert {found["audit"] for found in expected.values()} == {VERDICT}
    assert [found["left"] for found in expected.values()] == [[], []] and not driver.left()

    for _ in range(KILLS):
        with driver.started() as running:
            driver.at_work(running)
            ended(running, chosen.uniform(0, seconds / 2))
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):  # it has just ended
                chosen.choice(executors(running.pid)).kill()
            assert driver.results(running) == expected and not driver.left()

    for _ in range(KILLS):
        with driver.started() as running:
            driver.at_work(running)
            ended(running, chosen.uniform(0, seconds / 2))
            running.send_signal(signal.SIGKILL)
    remains = driver.left()
    assert len(remains) <= 2 * KILLS
    with driver.started() as running:
        assert driver.results(running) == expected and driver.left() == remains
    for name in remains:
        shutil.rmtree(tmp_path / "temporary" / name)

    with driver.started("hang") as running:
        begin = time.monotonic()
        assert driver.results(running) == expected and not driver.left()
        assert len([*(tmp_path / "marks").iterdir()]) > 4 and time.monotonic() - begin < HANGS


def write_bucket_ledger(place: str, rows: int) -> None:
    """Write a ledger of one bucket as a task does: as several files."""
    tables, ledger = Tables(Workload(rows, 50)), create_ledger(place, 1)
    with LedgerWriter(ledger) as writer:
        spool = RunWriter(ledger.storage, f"{STAGING}/{writer.prefix}", 1)
        for part in tables.bucket(tables.segments(1)[0]):
            spool.add(part)
        for file in write_bucket(ledger.storage, writer.prefix, 0, spool.end(keep=False)):
            writer.add(file)
        writer.write("observed", tables.observed())
        writer.write("promises", tables.promises())
        writer.commit([], {})


def peak_bytes(place: str, work: str) -> int:
    """Return the most memory of a worker that passes over a ledger."""
    prepare_worker()
    ledger = open_ledger(place)
    if work == "audit":
        audit_ledger(ledger, executor="in_process")
    else:
        for _ in MessageReader.of(ledger).rows(0):
            pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.slow
def test_memory_of_a_pass_is_less_than_its_bucket(tmp_path: Path) -> None:
    """The rows of the bucket take 2 GiB. Each step is a process, as its memory counts from the start."""
    place, fresh = str(tmp_path / "ledger"), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, fresh, max_tasks_per_child=1) as steps:
        steps.submit(write_bucket_ledger, place, 8_000_000).result()
        files = open_ledger(place).files("ledger", 0)
        size = sum(file.bytes for file in files)
        assert len(files) == 3 and size > 1.9 * 2**30
        for work in ("audit", "outcomes"):
            assert steps.submit(peak_bytes, place, work).result() < 0.75 * size, work
