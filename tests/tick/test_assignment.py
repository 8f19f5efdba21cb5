"""Bucket assignment on Spark: buckets stay with their Python worker, and a killed worker changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from causeway.cluster.jobs import session_folder
from causeway.tick.bucket import BucketCommit
from causeway.tick.executors import SparkExecutor
from tests.storage.test_run import BUSY, network, roots, uncompacted

FATAL = """
import os, signal
import causeway as cw

class Fatal(cw.Program):
    def on_request(self, request, context):
        try:
            os.close(os.open(request.payload, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return b"again"
        os.kill(os.getpid(), signal.SIGKILL)
"""

SENT = """
[network]
protocol = "ic"
master = "local[2]"
[options]
certification = "off"
[[chains]]
name = "A"
[[chains]]
name = "B"
[[programs]]
name = "caller"
chain = "A"
program = "caller"
[[programs]]
name = "fatal"
chain = "B"
program = "fatal:Fatal"
[traffic]
source = "script"
"""


@pytest.fixture
def warm_states(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that records, for every bucket of every tick, if its state was in memory."""
    found: list[bool] = []
    run = SparkExecutor.run

    def told(*arguments: Any) -> Sequence[BucketCommit]:
        written = run(*arguments)
        found.extend(part.warm for part in written)
        return written

    monkeypatch.setattr(SparkExecutor, "run", told)
    return found


def left_by_jobs(spark: SparkSession) -> list[Path]:
    return [*Path(session_folder()).glob("buckets-*")]


def test_alternating_networks_find_their_bucket_states(
    tmp_path: Path, spark: SparkSession, warm_states: list[bool]
) -> None:
    nets = []
    few = BUSY.replace("[options]", '[options]\ncertification = "off"').replace(
        "messages_per_tick = 120", "messages_per_tick = 12"
    )
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        nets.append(network(tmp_path / name, few, "spark", 2))
    for tick in range(1, 6):
        for net in nets:
            net.run(ticks=tick)
    # Not all: a worker that finishes before the other task starts takes that one too.
    assert len(warm_states) == 20 and sum(warm_states) >= 13
    assert not left_by_jobs(spark)


def test_killed_worker_gives_equal_roots(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, own_modules: None
) -> None:
    uncompacted(monkeypatch)
    (tmp_path / "fatal.py").write_text(FATAL)
    killed = tmp_path / "killed"
    call = f'call = {{ receiver = "fatal", method = "m", text = "{killed}" }}'
    text = SENT + "".join(f'[[traffic.send]]\ntick = {tick}\nto = "caller"\n{call}\n' for tick in range(6))
    found = []
    for executor in ("spark", "in_process"):
        net = network(tmp_path, text, executor, 2)
        assert killed.exists() == (executor == "in_process")
        net.run()
        found.append(roots(net.lake))
    assert killed.exists() and len(found[0]) > 7 and found[0] == found[1]
    assert not left_by_jobs(spark)
