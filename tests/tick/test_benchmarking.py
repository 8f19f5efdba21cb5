"""Workload and comparators of the benchmarks: each comparator executes the same round as Causeway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import bench_rounds, render
from benchmarks.comparators.common import SCHEMAS, path, write
from benchmarks.comparing import HOSTS, differences, extract, lake_table
from benchmarks.exchange import bench_exchange
from benchmarks.floor import bench_floor
from benchmarks.other import COMPARATORS, check
from benchmarks.workload import Workload, description, mixed, payloads, peer_of
from benchmarks.xnet import bench_xnet
from causeway.core.ingress_call import decode_calls
from causeway.storage.lake import Lake
from causeway.tick.deployment import TickGroup, next_height_tick
from causeway.tick.executors import InProcessExecutor
from causeway.tick.run import commit_genesis, run_group

SMALL = Workload(messages=2_000, subnets=5, canisters=300, payload_bytes=20)
HEIGHT = 6


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with a few heights of the small workload."""
    lake = Lake.at(str(tmp_path_factory.mktemp("bench") / "lake"))
    deployment = SMALL.deployment(2)
    lake.create(description(deployment))
    executor = InProcessExecutor(deployment, lake)
    before = commit_genesis(executor, lake)
    for tick in range(HEIGHT + 1):
        before = run_group(executor, lake, before, TickGroup(next_height_tick(before.line, tick, deployment.traffic)))
    return lake


@pytest.fixture(scope="module")
def inputs(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("inputs"))
    extract(lake.storage.uri, HEIGHT, folder, SMALL)
    return folder


def test_every_tick_carries_equal_messages_half_of_them_requests(lake: Lake) -> None:
    for height in range(2, HEIGHT + 2):
        outbound = lake_table(lake, height, "outbound")
        kinds = {row["values"]: row["counts"] for row in pc.value_counts(outbound["kind"]).to_pylist()}
        assert kinds == {1: SMALL.messages // 2, 2: SMALL.messages // 2}
        assert len(set(outbound["payload"].to_pylist())) == SMALL.messages


@pytest.mark.parametrize("name", COMPARATORS)
def test_every_comparator_commits_equal_results(name: str, lake: Lake, inputs: str, tmp_path: Path) -> None:
    if name != "python":
        pytest.importorskip(name)
    import importlib

    import pyarrow.parquet as pq

    module, kind = COMPARATORS[name]
    comparator = getattr(importlib.import_module(module), kind)(pq.read_table(path(inputs, HOSTS)), 2)
    comparator.round(inputs, str(tmp_path), HEIGHT)
    assert differences(lake.storage.uri, HEIGHT + 1, str(tmp_path)) == []
    named = json.loads((tmp_path / "manifest.json").read_text())["files"]
    assert sorted(named) == sorted(f"{table}.parquet" for table in SCHEMAS)


def test_wrong_comparators_are_detected(lake: Lake, inputs: str, tmp_path: Path) -> None:
    for table in SCHEMAS:
        write(str(tmp_path), table, lake_table(lake, HEIGHT + 1, table))
    assert differences(lake.storage.uri, HEIGHT + 1, str(tmp_path)) == []
    roots = lake_table(lake, HEIGHT + 1, "roots")
    write(str(tmp_path), "roots", roots.set_column(4, SCHEMAS["roots"].field("root"), roots["root"].take(
        pa.array(np.roll(np.arange(roots.num_rows), 1)))))  # fmt: skip
    assert differences(lake.storage.uri, HEIGHT + 1, str(tmp_path)) == ["roots"]


@pytest.mark.parametrize("messages", [1, 7, 100, 301, 5_000])
def test_traffic_is_a_function_of_tick_and_chain(messages: int) -> None:
    work = Workload(messages, subnets=3, canisters=50, payload_bytes=9)
    traffic = work.deployment(1).traffic
    everything = [traffic.rows(tick, np.arange(3, dtype=np.uint64)) for tick in (0, 1)]
    assert sum(table.num_rows for table in everything) == messages
    for tick, table in enumerate(everything):
        parts = [traffic.rows(tick, np.array([chain], dtype=np.uint64)) for chain in range(3)]
        assert pa.concat_tables(parts).equals(table.combine_chunks())
        calls = decode_calls(table["payload"].combine_chunks())
        assert calls.valid.all()
        assert (calls.receivers < 50).all()
        assert (calls.receivers != table["receiver"].to_numpy()).all()
    assert traffic.rows(2, np.arange(3, dtype=np.uint64)).num_rows == 0
    assert [traffic.next_tick(tick) for tick in (0, 1, 2)] == [0, 1, None]


def test_peers_and_payloads_have_no_pattern_and_no_collision() -> None:
    numbers = np.arange(10_000, dtype=np.uint64)
    assert len(np.unique(mixed(numbers))) == len(numbers)
    assert len(set(payloads(numbers, 8).to_pylist())) == len(numbers)
    assert payloads(numbers[:3], 0).to_pylist() == [b"", b"", b""]
    peers = peer_of(numbers, numbers % np.uint64(8), np.uint64(10_000))
    assert len(np.unique(peers)) > 5_000
    assert (peers != numbers).all()


def test_missing_or_unknown_comparator_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match='"sqlite" is unknown; allowed: python, duckdb, polars'):
        check(("sqlite",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r'"duckdb" is not installed: pip install "causeway\[bench\]"'):
        check(("python", "duckdb"))
    with pytest.raises(InvalidInput, match="at least 1"):
        bench_rounds([0], comparators=())
    with pytest.raises(InvalidInput, match='"rsa" is unknown; allowed: off, bls, threshold'):
        bench_rounds([10], comparators=(), certification="rsa")


@pytest.mark.slow
def test_rounds_and_floor_print_figures(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.rounds.JAVA_WARM_UP", 2)  # times are not checked
    monkeypatch.setattr("benchmarks.rounds.WARM_UP", 3)
    small: dict[str, Any] = {"subnets": 4, "canisters": 100, "payload_bytes": 10, "lake_folder": str(tmp_path)}
    told: list[str] = []
    result = bench_rounds(
        [500], rounds=2, comparators=("python",), certification="bls", master="local[2]", progress=told.append, **small
    )
    figures = result["sizes"][0]["figures"]
    assert figures["python"]["equal"]
    assert len(figures["causeway"]["seconds"]) == 2
    assert figures["python"]["ratio"] > 0
    assert len(figures["causeway, bls"]["seconds"]) == 2 and "equal" not in figures["causeway, bls"]
    assert any("python" in text for text in told)
    least = bench_floor(20, ticks=3, warm_up=2, master="local[2]", **small)
    assert set(least["figures"]) == {"in_process", "spark_1", "spark_2"}
    assert not list(tmp_path.iterdir())
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    many = bench_exchange([1, 3], messages=20, ticks=2, **small)
    opens = {buckets: figures["opens"] for buckets, figures in many["figures"].items()}
    assert opens["3"] == 2 * 3 + 1, "each task the manifest and the exchange, the commit the head"
    for item in (result, least, many):
        json.dumps(item)
        console.print(render(item))
    text = console.export_text()
    assert "same result" in text
    assert "Spark, 2 partitions" in text and "bytes of manifest" in text


def test_slices_are_served_and_pulled() -> None:
    result = bench_xnet([1, 5], seconds=0.01, payload_bytes=3)
    assert [row["messages"] for row in result["slices"]] == [1, 5]
    assert all(row["pulled_per_second"] > 0 and row["bytes"] > 500 for row in result["slices"])
    console = Console(record=True, width=200)
    console.print(render(result))
    assert "pulled/s" in console.export_text()
    with pytest.raises(InvalidInput, match="messages: 10001; allowed: 0 to 10000"):
        bench_xnet([10_001], seconds=0.01, payload_bytes=3)
