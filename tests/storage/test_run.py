"""Whole runs on the lake: the same roots however they are cut and executed, on a cluster; and what the ledger
shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from causeway.network.network import LakeNetwork
from causeway.storage.commit_log import encoded
from causeway.storage.lake import Lake, LakeError

BUSY = """
[network]
protocol = "ic"
seed = 5
master = "local[2]"

[options]
vsr = "deployed"
migrations = "on"
sender_mismatch = "deployed"
reject_every = 7
limits = "deployed"

[options.limit]
stream_messages = 30

[transport]
skip = 0.2

[[chains]]
count = 6
prefix = "s"

[traffic]
source = "generated"
messages_per_tick = 120
ticks = 12
"""

BUSY_ZONES = """
[network]
protocol = "ibc"
seed = 5
master = "local[2]"

[options]
timeouts = "on"
timeout_blocks = 4
cleanup = "on"
relayers = ["one", "two", "mallory"]

[options.relay]
max_packets = 60

[transport]
skip = 0.2

[[faults]]
kind = "tamper"
relayer = "mallory"
tick = 2
until = 9

[[faults]]
kind = "drop"
source = "s0"
from = 4
until = 10

[[chains]]
count = 6
prefix = "s"

[traffic]
source = "generated"
messages_per_tick = 120
ticks = 12
"""

FORK = """
[[faults]]
kind = "fork"
chain = "s5"
tick = 8
"""
"""Freezes connections for good, with in-flight packets."""

UNCERTIFIED = BUSY.replace("[options]", '[options]\ncertification = "off"')
"""For tests independent of certificates, which take most of the time of an in-process run."""

PROTOCOLS = pytest.mark.parametrize("text", [BUSY, BUSY_ZONES + FORK], ids=["ic", "ibc"])


def network(folder: Path, text: str, executor: str, partitions: int, **more: Any) -> LakeNetwork:
    scenario = folder / "scenario.toml"
    scenario.write_text(text)
    overrides = {"network.executor": f'"{executor}"', "network.partitions": str(partitions)}
    return LakeNetwork.from_scenario(scenario, overrides, lake=str(folder / f"lake-{executor}-{partitions}"), **more)


def roots(lake: Lake) -> list[bytes]:
    found = []
    for height in lake.heights():
        tables = lake.log_rows("headers", lake.manifest(height))
        rows = sorted(
            row for table in tables for row in zip(table["chain"].to_pylist(), table["root"].to_pylist(), strict=True)
        )
        found.append(b"".join(root for _, root in rows))
    return found


def uncompacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every height's header file, so that roots at every height can be compared."""
    monkeypatch.setattr("causeway.network.network.compact_logs", lambda lake, last: last.compacted)


@PROTOCOLS
def test_roots_are_equal_for_any_partitions_and_executor(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    uncompacted(monkeypatch)
    found = {}
    # Of 6 chains: all in one, one in each, and on Spark two in some and one in others.
    for executor, partitions, ticks in (("in_process", 1, 16), ("in_process", 6, 16), ("spark", 4, 11)):
        net = network(tmp_path, text, executor, partitions)
        net.run(ticks=ticks)
        found[executor, partitions] = roots(net.lake)
    first = found["in_process", 1]
    assert len(first) > 12 and len(found["spark", 4]) > 9
    assert all(other == first[: len(other)] for other in found.values())
    assert found["in_process", 6] == first


@pytest.mark.parametrize("text", [UNCERTIFIED, BUSY_ZONES], ids=["ic", "ibc"])
def test_compaction_loses_and_repeats_no_row(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    for name in ("lake.RUN", "compaction.RUN", "compaction.RETAINED_COMMITS"):
        monkeypatch.setattr(f"causeway.storage.{name}", 8)
    text = text.replace("ticks = 12", "ticks = 20").replace("messages_per_tick = 120", "messages_per_tick = 8")
    net = network(tmp_path, text, "in_process", 2)
    net.run()
    assert len(net.lake.compactions()) > 1
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        uncompacted(patch)
        other = network(plain, text, "in_process", 2)
        other.run()
    for table in ("outbound", "events", "collected", "headers"):
        compacted = Counter(map(str, net.tables.log(table).collect()))
        assert compacted == Counter(map(str, other.tables.log(table).collect())), table


def test_state_is_read_at_any_committed_height(tmp_path: Path, spark: SparkSession) -> None:
    net = network(tmp_path, UNCERTIFIED, "in_process", 2)
    net.run()
    early, late = (net.state("lanes", height).agg({"next_index": "sum"}).first() for height in (2, net.height))
    assert early is not None and late is not None and 0 < early[0] < late[0]
    with pytest.raises(LakeError, match=r"height: 9999 is not committed; committed are 0 to \d+"):
        net.state("lanes", 9999)
    with pytest.raises(LakeError, match=r'table: "lane": no such table; did you mean lanes\?'):
        net.state("lane")


def test_other_lake_than_requested_is_refused(tmp_path: Path) -> None:
    net = network(tmp_path, UNCERTIFIED, "in_process", 1)
    with pytest.raises(LakeError, match=r"is being written by process \d+ on "):
        network(tmp_path, UNCERTIFIED, "in_process", 1, resume=True)
    net.close()
    with pytest.raises(LakeError, match="already holds a lake"):
        network(tmp_path, UNCERTIFIED, "in_process", 1)
    with pytest.raises(LakeError, match=r"was created by a different scenario.*seed is \d+ in .*, and was \d+"):
        network(tmp_path, UNCERTIFIED.replace("seed = 5", "seed = 6"), "in_process", 1, resume=True)
    with pytest.raises(LakeError, match="holds no lake to resume"):
        network(tmp_path, UNCERTIFIED, "in_process", 3, resume=True)
    about = Path(net.lake.storage.absolute("lake.json"))
    about.write_bytes(encoded({**net.lake.about(), "format": 99}))
    with pytest.raises(LakeError, match="is of format 99, this Causeway reads lakes of format 6, 7, 8"):
        network(tmp_path, UNCERTIFIED, "in_process", 1, resume=True)


def test_resumed_lake_keeps_its_own_partitions(tmp_path: Path) -> None:
    with network(tmp_path, UNCERTIFIED, "in_process", 3) as net:
        net.run(ticks=4)
    scenario = tmp_path / "scenario.toml"
    place = str(tmp_path / "lake-in_process-3")
    with LakeNetwork.from_scenario(scenario, {"network.executor": '"in_process"'}, lake=place, resume=True) as again:
        again.run(ticks=6)
        assert set(again.lake.manifest(again.height).state["lanes"]) == {"0", "1", "2"}
    overrides = {"network.executor": '"in_process"', "network.partitions": "2"}
    with pytest.raises(LakeError, match=r"network.partitions: 2, but lake .* was made with 3; leave it out to resume"):
        LakeNetwork.from_scenario(scenario, overrides, lake=place, resume=True)


def test_small_files_stay_for_planned_queries_until_the_next_opening(tmp_path: Path, spark: SparkSession) -> None:
    text = UNCERTIFIED.replace("ticks = 12", "ticks = 70").replace("messages_per_tick = 120", "messages_per_tick = 4")
    text = text.replace("[network]", "[network]\ncommit_every = 1")
    with network(tmp_path, text, "in_process", 1) as net:
        net.run(ticks=20)
        planned = net.tables.log("events")
        net.run()
        assert net.lake.compactions()
        assert planned.count() > 0
        rows = net.tables.log("events").count()
        small = net.lake.manifest(1).log["events"]["0"]
        assert net.lake.storage.exists(small)
    with network(tmp_path, text, "in_process", 1, resume=True) as again:
        assert not again.lake.storage.exists(small)
        assert again.tables.log("events").count() == rows


def test_kill_before_the_lake_exists_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("causeway.storage.files.Storage.create", killed)
        with pytest.raises(KeyboardInterrupt):
            network(tmp_path, UNCERTIFIED, "in_process", 1)
    with pytest.raises(LakeError, match="holds no lake to resume"):
        network(tmp_path, UNCERTIFIED, "in_process", 1, resume=True)
    with network(tmp_path, UNCERTIFIED, "in_process", 1) as net:
        assert net.run(ticks=2) == 2


def test_two_runs_cannot_commit_the_same_height(tmp_path: Path) -> None:
    net = network(tmp_path, UNCERTIFIED, "in_process", 1)
    net.run(ticks=3)
    with pytest.raises(LakeError, match="was committed by another run"):
        net.lake.commit(replace(net.lake.manifest(2), epoch=99))


@pytest.mark.slow
@pytest.mark.cluster
def test_roots_are_equal_on_a_cluster_with_buckets_pinned_to_executors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncompacted(monkeypatch)
    wanted, networks = {}, {"ic": BUSY, "ibc": BUSY_ZONES + FORK}
    for name, text in networks.items():
        (tmp_path / name).mkdir()
        with network(tmp_path / name, text, "in_process", 3) as alone:
            alone.run(ticks=6)
            wanted[name] = roots(alone.lake)
    program = f"""
import time
from pathlib import Path
from tests.support.common.local_cluster import LocalCluster
from causeway.tick.executors import SparkExecutor
from causeway.cluster.workers import find_executors
from tests.storage.test_run import network
import causeway.network.network as module
module.compact = lambda lake, last: last.compacted
run = SparkExecutor.run
def told(*arguments):
    written = run(*arguments)
    print("warm", *(part.warm for part in written))
    return written
SparkExecutor.run = told
if __name__ == "__main__":
    with LocalCluster(workers=2, cores=1) as cluster:
        master = f'master = "{{cluster.master_url}}"\\nspark = {{{{ "spark.locality.wait" = "200s" }}}}'
        for name, text in {networks!r}.items():
            text = text.replace('master = "local[2]"', master)
            with network(Path({str(tmp_path)!r}, name), text, "spark", 3) as net:
                while len(find_executors(net.spark)) < 2:
                    time.sleep(0.1)
                net.run(ticks=6)
"""
    script = tmp_path / "on_cluster.py"
    script.write_text(program)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), *sys.path, str(root)])}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ticks = [line for line in done.stdout.splitlines() if line.startswith("warm")]
    # Genesis was written by the first process.
    assert len(ticks) == 12 and ticks[1:6] == ticks[7:] == ["warm True True True"] * 5
    assert {name: roots(Lake.at(str(tmp_path / name / "lake-spark-3"))) for name in networks} == wanted
