"""Benchmarks ``recorded`` and ``ticks``: equal work in each comparison and measured figures, without times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from rich.console import Console

from benchmarks import bench_recorded, bench_ticks, render
from benchmarks.checkouts import ROOT, _revision, checkouts
from benchmarks.cli import main
from benchmarks.process import BenchmarkFailed
from benchmarks.recorded import bench
from benchmarks.recorded.command import Measured, measure
from benchmarks.recorded.lakes import Commit, average_of_parts, commits, milliseconds_a_tick
from benchmarks.recorded.plain import Lanes, counterparties, packets_by_tick, route
from benchmarks.ticks.bench import WARM_UP
from benchmarks.ticks.scenario import SmallTicks
from causeway.network.network import LakeNetwork

CHANNELS = [
    {"chain_1": "cosmoshub", "channel_1": "channel-1", "chain_2": "osmosis", "channel_2": "channel-0"},
    {"chain_1": "juno", "channel_1": "channel-5", "chain_2": "cosmoshub", "channel_2": "channel-2"},
    {"chain_1": "cosmoshub", "channel_1": "channel-4", "chain_2": "osmosis", "channel_2": "channel-9"},
    {"chain_1": "cosmoshub", "channel_1": "*", "chain_2": "noble", "channel_2": "*"},
]
PACKETS = 90
BLOCKS = [70 * row + (9_000 if row > PACKETS // 2 else 0) for row in range(PACKETS)]
"""When each packet was sent, in blocks after the first."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return packets on five channels, one of them unknown, over some ticks with a gap."""
    folder = tmp_path_factory.mktemp("recording")
    (folder / "ibc_channels.json").write_text(json.dumps(CHANNELS))
    rows = range(PACKETS)
    columns: dict[str, list[Any]] = {
        "channel_id": [f"channel-{row * row % 5}" for row in rows],
        "sequence": [7 + row for row in rows],
        "send_height": [5_000_123 + after for after in BLOCKS],
    }
    pq.write_table(pa.table(columns), folder / "packets.parquet")
    return folder / "packets.parquet"


def route_recording(recording: Path, limit: int | None) -> dict[str, Any]:
    chain, ticks = packets_by_tick(bench.SCENARIO, recording)
    assert chain == "cosmoshub-4"
    return route("cosmoshub", ticks, counterparties(recording.parent / "ibc_channels.json", "cosmoshub"), limit)


@pytest.mark.parametrize("limit", [None, 5, 1])
def test_plain_python_equals_a_run(limit: int | None, recording: Path, tmp_path: Path) -> None:
    keys = {"network.executor": "in_process", "traffic.path": str(recording)}
    with LakeNetwork.from_scenario(bench.SCENARIO, keys, lake=str(tmp_path / "lake")) as network:
        network.run(ticks=limit)
        summary, heights = network.summary(), network.height
    found = route_recording(recording, limit)
    assert found["sent"] == (PACKETS if limit is None else sum(block < 1000 * limit for block in BLOCKS))
    assert {name: found[name] for name in (*bench.COUNTS, "messages")} == {
        name: summary[name] for name in (*bench.COUNTS, "messages")
    }
    assert sum(found["by_tick"]) == found["messages"]
    assert abs(len(found["by_tick"]) - heights) <= 3, "ticks in which answers come in are its own affair"


def test_plain_python_detects_a_gap_and_resolves_both_channel_ends(recording: Path) -> None:
    ends = counterparties(recording.parent / "ibc_channels.json", "cosmoshub")
    assert ends == {
        "channel-1": ("osmosis", "channel-0"), "channel-2": ("juno", "channel-5"), "channel-4": ("osmosis", "channel-9")
    }  # fmt: skip
    lanes = Lanes()
    for number in range(3):
        lanes.send(("a", "x"), ("b", "y"), number, "")
    (queue,) = lanes.waiting.values()
    del queue[1]
    with pytest.raises(ValueError, match="2 came where 1 was due"):
        lanes.take_all()


def manifests(lake: Path, found: Mapping[str, tuple[int | range, float]]) -> Path:
    folder = lake / "manifests"
    folder.mkdir(parents=True)
    for name, (heights, time) in found.items():
        one = {"height": heights, "tick": heights}
        many = {} if isinstance(heights, int) else {"first": heights[0], "tick": list(heights)}
        (folder / name).write_text(json.dumps({"heights": many} if many else one))
        os.utime(folder / name, (time, time))
    return lake


def test_commits_match_manifests_of_one_or_many_heights(tmp_path: Path) -> None:
    seen = [Commit(0, 50.0), Commit(10, 53.0), Commit(12, 54.0), Commit(13, 57.0), Commit(31, 58.0)]
    heights = {f"{at.height}.json": (at.height, at.time) for at in seen}
    assert commits(manifests(tmp_path / "heights", heights)) == seen
    groups = {"0": (0, 1), "1": (1, 11), "2": (11, 13), "3": (13, 14), "10": (14, 32)}
    many = {f"{name}.json": (range(*group), at.time) for (name, group), at in zip(groups.items(), seen, strict=True)}
    assert commits(manifests(tmp_path / "segments", many)) == seen
    with pytest.raises(BenchmarkFailed, match="no height was committed"):
        commits(manifests(tmp_path / "genesis", {"0.json": (0, 50.0)}))


def test_ticks_are_timed_by_surrounding_commits() -> None:
    steady = [Commit(0, 0.0), Commit(5, 10.0), *(Commit(5 + 10 * n, 10.0 + n) for n in range(1, 11))]
    assert milliseconds_a_tick(steady) == pytest.approx({"beginning": 100, "middle": 100, "end": 100})
    slowing = [Commit(0, 0.0), Commit(1, 3.0), Commit(21, 4.0), Commit(41, 6.0), Commit(61, 8.0), Commit(101, 18.0)]
    assert milliseconds_a_tick(slowing) == pytest.approx({"beginning": 50, "middle": 100, "end": 250})
    half = milliseconds_a_tick(slowing, lambda time: time / 2)
    assert half == pytest.approx({"beginning": 25, "middle": 50, "end": 125})
    assert milliseconds_a_tick(steady[:4]) is None
    assert average_of_parts([1] * 20 + [2] * 60 + [5] * 20) == {"beginning": 1, "middle": 2, "end": 5}


BURN = "import time\nwhile time.process_time() < 0.8: pass"


def test_processor_time_covers_all_processes_and_is_attributed_to_its_span(tmp_path: Path) -> None:
    command = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}]); print('{{\"good\": 1}}')"
    measured = measure([sys.executable, "-c", command], os.environ, str(tmp_path))
    assert measured.printed == {"good": 1}
    assert measured.processor_seconds() > 0.3, "of the process below, too"
    given = Measured(10.0, 20.0, ((10.0, 0.0), (12.0, 1.0), (16.0, 5.0)), {})
    spans = [given.processor_seconds(*span) for span in ((10, 11), (11, 14), (14, 20), (None, None))]
    assert spans == [0.5, 2.5, 2.0, 5.0]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import sys; sys.exit('first\\nwhy it failed')", "ended with exit code 1: why it failed"),
        ("print('no figures')", "printed no JSON object"),
    ],
)
def test_idle_commands_are_detected(code: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkFailed, match=text):
        measure([sys.executable, "-c", code], os.environ, str(tmp_path))


def test_runs_that_lose_packets_are_detected() -> None:
    counts = {"sent": 9, "delivered": 9, "answered": 9, "messages": 18}
    bench.require_same_counts("old", counts, counts, whole=True)
    bench.require_same_counts("old", counts, {**counts, "answered": 7}, whole=False)
    with pytest.raises(BenchmarkFailed, match=r"old: answered 9 \(plain Python: 8\)"):
        bench.require_same_counts("old", counts, {**counts, "answered": 8}, whole=True)


@pytest.mark.slow
def test_recorded_benchmark_prints_figures(recording: Path, tmp_path: Path) -> None:
    told: list[str] = []
    result = bench_recorded(
        str(recording),
        protocols=("ic",),
        executor="in_process",
        repeats=0,
        against=str(ROOT),
        lake_folder=str(tmp_path),
        progress=told.append,
    )
    other = str(ROOT)
    assert told == ["ic, cold: causeway", f"ic, cold: {other}", "ic, cold: plain Python"]
    assert not list(tmp_path.iterdir())
    found = result["protocols"]["ic"]
    (run,) = found["contestants"]["causeway"]["runs"]
    assert found["contestants"][other]["same_root"]
    assert (
        run["counts"] == dict.fromkeys(bench.COUNTS, PACKETS) == {name: found["plain"][name] for name in bench.COUNTS}
    )
    assert sum(run["phases"].values()) == pytest.approx(run["seconds"], abs=0.01)
    assert 0 < run["genesis_seconds"] <= run["phases"]["start"] and run["first_height"] >= 1
    assert min(run["phases"].values()) >= 0 and run["files"] > 0 < run["bytes"]
    console = Console(width=200, record=True)
    console.print(render(json.loads(json.dumps(result))))
    text = console.export_text()
    for part in ("plain Python", "Milliseconds a tick", "messages a tick", "the same root", "90 packets"):
        assert part in text


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def test_revision_is_checked_out_unmodified(tmp_path: Path) -> None:
    module = tmp_path / "src" / "causeway" / "__init__.py"
    module.parent.mkdir(parents=True)
    git(tmp_path, "init", "--quiet")
    for text in ("AGE = 'old'\n", "AGE = 'new'\n"):
        module.write_text(text)
        git(tmp_path, "add", "src")
        git(tmp_path, "commit", "--quiet", "-m", text)
    with _revision("HEAD~1", tmp_path) as old:
        old.check()
        assert (old.source / "causeway" / "__init__.py").read_text() == "AGE = 'old'\n"
    assert not old.source.exists()
    with pytest.raises(InvalidInput, match="neither a folder with src/causeway nor a revision"), checkouts("no-such"):
        pass


def test_small_ticks_carry_equal_message_counts(tmp_path: Path) -> None:
    work = SmallTicks(messages=7, chains=3, programs=6, payload_bytes=5)
    (tmp_path / "small.toml").write_text(work.scenario("ic", "in_process", "local[1]"))
    with LakeNetwork.from_scenario(tmp_path / "small.toml", lake=str(tmp_path / "lake")) as network:
        sums = [network.run(ticks=end) and network.summary()["messages"] for end in (1, 2, 3, 6)]
    assert sums == [4, 4 + 7, 4 + 2 * 7, 4 + 5 * 7]
    with pytest.raises(InvalidInput, match="as many programs on each"):
        SmallTicks(chains=3, programs=7)


def test_tick_benchmark_prints_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WARM_UP, "in_process", 2)
    work = SmallTicks(messages=6, chains=3, programs=6)
    kinds = ("off", "bls")
    result = bench_ticks(
        work, ticks=3, repeats=2, executors=("in_process",), certifications=kinds, lake_folder=str(tmp_path)
    )
    assert [row["certification"] for row in result["rows"]] == ["off", "bls"]
    row = result["rows"][0]
    assert len(row["ms"]) == 2 and row["least_ms"] <= row["median_ms"] and row["processor_ms"] > 0
    assert not list(tmp_path.iterdir())
    console = Console(width=200, record=True)
    console.print(render(json.loads(json.dumps(result))))
    text = console.export_text()
    assert "A tick with 6 messages, amortised over 3" in text and "ic, off" in text and "ic, bls" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["recorded", "--protocol", "xdm"], '"xdm" is unknown; allowed: ic, ibc'),
        (["recorded", "--executor", "thread"], '"thread" is unknown; allowed: spark, in_process'),
        (["recorded", "--traffic", "packets.csv"], "packets.csv is no Parquet file"),
        (["ticks", "--executors", "thread"], '"thread" is unknown; allowed: in_process, spark'),
        (["ticks", "--certification", "rsa"], '"rsa" is unknown; allowed: off, bls, threshold'),
        (["ticks", "--against", "/nowhere"], "against: /nowhere is neither a folder"),
    ],
)
def test_commands_reject_unknown_arguments(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert text in " ".join(capsys.readouterr().err.split())
