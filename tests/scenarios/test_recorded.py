"""Recorded traffic: every packet becomes one call at its tick, for any storage and execution."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cluster import jobs
from causeway.core.ingress_call import decode_calls
from causeway.scenarios import prepared_traffic, recorded_traffic, recording
from causeway.scenarios.scenario import Scenario, load_scenario
from causeway.scenarios.traffic_sources import ScenarioTraffic
from tests.recordings import Recordings

CHANNELS = [
    {"chain_1": "alpha", "channel_1": "channel-0", "chain_2": "beta", "channel_2": "channel-7"},
    {"chain_1": "*", "channel_1": "*", "chain_2": "beta", "channel_2": "*"},
]
HEADER = "channel_id,sequence,send_height\n"


def scenario_for(folder: Path, extra: str = "", **keys: Any) -> Scenario:
    path = folder / "scenario.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"source_chain": "alpha-4", **keys}.items()]
    path.write_text("[traffic]\nsource = 'recorded'\n" + "\n".join(lines) + "\n" + extra)
    return load_scenario(path)


def packets(count: int, seed: int) -> pa.Table:
    """Return unordered packets over three channels."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "channel_id": pa.array([f"channel-{place}" for place in draw.integers(0, 3, count)]),
            "sequence": pa.array(np.arange(count, dtype=np.uint64) + np.uint64(2**63)),
            "send_height": pa.array(draw.integers(5_000, 25_000, count), pa.int64()),
            "other": pa.array(draw.random(count)),
        }
    )


def expected_rows(table: pa.Table, blocks: int) -> dict[int, list[str]]:
    """Return by tick the bodies of the packets in the order of the recording: the plain reading of the rule."""
    first = min(table["send_height"].to_pylist())
    found: dict[int, list[str]] = {}
    for row in table.to_pylist():
        tick = (row["send_height"] - first) // blocks
        found.setdefault(tick, []).append(f"{row['channel_id']}/{row['sequence']}")
    return found


def all_rows(traffic: ScenarioTraffic, chains: Any) -> dict[int, list[str]]:
    found = {}
    tick = traffic.next_tick(0)
    while tick is not None:
        bodies = decode_calls(traffic.rows(tick, chains)["payload"].combine_chunks()).bodies
        found[tick] = bodies.cast(pa.string()).to_pylist()
        tick = traffic.next_tick(tick + 1)
    return found


def chains_of(scenario: Scenario, traffic: ScenarioTraffic) -> Any:
    return scenario.topology(traffic).chains["number"].to_numpy()


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "folder"])
def test_every_packet_is_one_call_at_its_tick(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_traffic, "RUN_BYTES", 10_000)
    monkeypatch.setattr(recording, "BATCH_ROWS", 100)
    monkeypatch.setattr(recording, "PIECE_ROWS", 300)
    table = packets(1_500, 1)
    path = tmp_path / f"packets.{form}"
    if form == "parquet":
        pq.write_table(table, path, row_group_size=128)
    elif form == "csv":
        pa_csv.write_csv(table, path)
    elif form == "jsonl":
        table = table.set_column(1, "sequence", pa.array(np.arange(1_500), pa.uint64()))
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        path.mkdir()
        pq.write_table(table.slice(0, 700), path / "a.parquet")
        pq.write_table(table.slice(700), path / "b.parquet")
        (path / "_SUCCESS").write_text("")
    scenario = scenario_for(tmp_path, path=path.name, blocks_per_tick=100)
    traffic = scenario.traffic(tmp_path / "prepared")
    assert len(list((tmp_path / "prepared" / "parts").iterdir())) > 5
    assert not (tmp_path / "prepared" / "runs").exists()
    assert all_rows(traffic, chains_of(scenario, traffic)) == expected_rows(table, 100)


def test_ends_become_programs_and_their_chains_subnets(tmp_path: Path) -> None:
    (tmp_path / "ibc_channels.json").write_text(json.dumps(CHANNELS))
    (tmp_path / "p.csv").write_text(HEADER + "channel-0,1,10\nchannel-9,1,11\n")
    scenario = scenario_for(tmp_path, path="p.csv")
    traffic = scenario.traffic(tmp_path / "prepared")
    topology = scenario.topology(traffic)
    assert topology.chains["name"].to_pylist() == ["alpha", "beta", "unknown-alpha-channel-9"]
    programs = topology.programs.select(["number", "name", "chain", "program"]).to_pylist()
    assert programs == [
        {"number": 0, "name": "alpha/channel-0", "chain": 0, "program": "caller"},
        {"number": 1, "name": "alpha/channel-9", "chain": 0, "program": "caller"},
        {"number": 2, "name": "beta/channel-7", "chain": 1, "program": "echo"},
        {"number": 3, "name": "unknown-alpha-channel-9/alpha.channel-9", "chain": 2, "program": "echo"},
    ]
    rows = traffic.rows(0, np.array([0], np.uint64))
    assert rows["receiver"].to_pylist() == [0, 1]
    calls = decode_calls(rows["payload"].combine_chunks())
    assert calls.receivers.tolist() == [2, 3]
    assert calls.methods.to_pylist() == ["echo", "echo"]
    assert traffic.rows(0, np.array([1, 2], np.uint64)).num_rows == 0


def test_chains_and_programs_of_the_file_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "ibc_channels.json").write_text(json.dumps(CHANNELS))
    (tmp_path / "p.csv").write_text(HEADER + "channel-0,1,10\n")
    extra = """
    [[chains]]
    name = "beta"
    number = 40
    [[programs]]
    name = "beta/channel-7"
    chain = "beta"
    program = "my.module:Class"
    [[moves]]
    tick = 0
    program = "alpha/channel-0"
    chain = "beta"
    """
    scenario = scenario_for(tmp_path, extra, path="p.csv")
    traffic = scenario.traffic(tmp_path / "prepared")
    topology = scenario.topology(traffic)
    assert topology.chains.to_pydict() == {"number": [40, 41], "name": ["beta", "alpha"]}
    assert topology.programs["program"].to_pylist() == ["my.module:Class", "caller"]
    assert traffic.rows(0, np.array([41], np.uint64)).num_rows == 0, "the caller has moved"
    moved = traffic.rows(0, np.array([40], np.uint64))
    assert moved.select(["chain", "receiver"]).to_pylist() == [{"chain": 40, "receiver": 1}]


def test_columns_may_set_chain_destination_and_payload(tmp_path: Path) -> None:
    text = "side,from,to,lane,nonce,at,text\n"
    text += "send,a,b,0,1,2024-01-01T00:00:00Z,one\n"
    text += "recv,b,a,0,1,2023-01-01T00:00:00Z,no\n"
    text += "send,b,,x>y,2,2024-01-01T00:01:01Z,two\n"
    (tmp_path / "p.csv").write_text(text)
    columns = "source_chain = 'from', destination = 'to', source_end = 'lane', sequence = 'nonce'"
    columns += ", time = 'at', payload = 'text'"
    extra = f"where = {{ side = 'send' }}\ncolumns = {{ {columns} }}"
    scenario = scenario_for(tmp_path, extra, path="p.csv", seconds_per_tick=30.0)
    traffic = scenario.traffic(tmp_path / "prepared")
    topology = scenario.topology(traffic)
    assert topology.chains["name"].to_pylist() == ["a", "b", "unknown-b-x_y"]
    assert topology.programs["name"].to_pylist() == ["a/0", "b/a.0", "b/x_y", "unknown-b-x_y/b.x_y"]
    assert all_rows(traffic, chains_of(scenario, traffic)) == {0: ["one"], 2: ["two"]}


def test_rows_of_single_chains_equal_those_of_all_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_traffic, "GROUP_ROWS", 16)
    table = packets(2_000, 2).append_column("chain", pa.array([f"c{place % 5}" for place in range(2_000)]))
    pq.write_table(table, tmp_path / "p.parquet")
    scenario = scenario_for(
        tmp_path, "[traffic.columns]\nsource_chain = 'chain'", path="p.parquet", blocks_per_tick=4_000
    )
    traffic = pickle.loads(pickle.dumps(scenario.traffic(tmp_path / "prepared")))
    chains = chains_of(scenario, traffic)
    for tick in range(6):
        whole = traffic.rows(tick, chains)
        assert whole["chain"].to_pylist() == sorted(whole["chain"].to_pylist())
        parts = [traffic.rows(tick, chains[place : place + 1]) for place in range(len(chains))]
        assert pa.concat_tables(parts).to_pylist() == whole.to_pylist()
        shuffled = traffic.rows(tick, chains[::-1])
        assert shuffled.to_pylist() == whole.to_pylist()


def test_row_groups_are_split_at_ticks_and_in_large_ticks_at_chains() -> None:
    ticks = np.array([0, 0, 1, 2, 2, 2, 2, 2, 2, 3, 4], np.uint64)
    chains = np.array([0, 1, 0, 0, 0, 0, 1, 2, 2, 0, 0], np.uint64)
    assert prepared_traffic.group_starts(ticks, chains, 3).tolist() == [0, 3, 6, 9]
    assert prepared_traffic.group_starts(ticks, chains, 100).tolist() == [0]
    assert prepared_traffic.group_starts(ticks[:1], chains[:1]).tolist() == [0]


@pytest.mark.parametrize(
    ("content", "keys", "line"),
    [
        ("a,b\n1,2\n", {}, 'no column "channel_id" (traffic.columns.source_end); the file has a, b'),
        ("", {}, "cannot be read as csv: Empty CSV file"),
        (HEADER, {}, "no packets"),
        (HEADER + "c,1,2\nc,1\n", {}, "cannot be read as csv: CSV parse error: Row #3: Expected 3 columns, got 2: c,1"),
        (HEADER + "c,1,2\nc,x,2\n", {}, 'row 2: sequence: "x" must be a whole number from 0 to 2**64 - 1'),
        (HEADER + "c,1,2\nc,1.0,2\n", {}, 'row 2: sequence: "1.0" must be a whole number from 0 to 2**64 - 1'),
        (HEADER + "c,18446744073709551616,2\n", {}, 'row 1: sequence: "18446744073709551616" must be a whole number'),
        (HEADER + "c,1,-2\n", {}, 'row 1: send_height: "-2" must not be negative'),
        (HEADER + "c,1,2\nc,1,3\n,1,2\n", {}, "row 3: channel_id: is empty"),
        (HEADER + "c,,3\n", {}, "row 1: sequence: is empty"),
        (HEADER + "c,1,2\n", {"seconds_per_tick": 1.0}, "column send_height holds whole numbers, not timestamps; use"),
        (HEADER + "c,1,yes\n", {"seconds_per_tick": 1.0}, 'row 1: send_height: "yes" must be a timestamp such as 2024'),
        (
            HEADER + "c,1,2\n",
            {"where": {"side": "send"}},
            'no column "side" (traffic.where.side); the file has channel',
        ),
        (HEADER + "c,1,2\n", {"where": {"channel_id": "d"}}, "no packets where traffic.where holds"),
        (HEADER + "a b,1,2\na_b,1,2\n", {}, 'traffic: "a b" and "a_b" would both be called a_b'),
        (HEADER + "c,1,2\n", {"channels": {"file": "none.json"}}, "none.json: no such channels file"),
    ],
)
def test_bad_recording_is_one_line(tmp_path: Path, content: str, keys: dict[str, Any], line: str) -> None:
    (tmp_path / "p.csv").write_text(content)
    tables = {key: value for key, value in keys.items() if isinstance(value, dict)}
    plain = {key: value for key, value in keys.items() if key not in tables}
    extra = "".join(
        f"{key} = {{ {', '.join(f'{inner} = {json.dumps(text)}' for inner, text in table.items())} }}\n"
        for key, table in tables.items()
    )
    with pytest.raises(InvalidInput) as caught:
        scenario_for(tmp_path, extra, path="p.csv", **plain).traffic(tmp_path / "prepared")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "line"),
    [
        (pa.array([1, None], pa.int64()), "row 2: send_height: is empty"),
        (pa.array([1, -3], pa.int64()), "row 2: send_height: -3 must not be negative"),
        (pa.array([1.0, 2.0]), "column send_height has type double, but whole numbers are needed"),
        (pa.array([1, 2], pa.timestamp("us")), "column send_height holds timestamps; set traffic.seconds_per_tick"),
    ],
)
def test_bad_parquet_column_is_one_line(tmp_path: Path, column: pa.Array, line: str) -> None:
    table = pa.table({"channel_id": ["c", "c"], "sequence": [1, 2], "send_height": column})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(InvalidInput) as caught:
        scenario_for(tmp_path, path="p.parquet").traffic(tmp_path / "prepared")
    assert line in str(caught.value)


def test_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.csv: no such recording"):
        scenario_for(tmp_path, path="none.csv").traffic(tmp_path / "prepared")
    (tmp_path / "p.txt").write_text("x")
    with pytest.raises(InvalidInput, match="format to parquet, csv or jsonl"):
        scenario_for(tmp_path, path="p.txt").traffic(tmp_path / "prepared")


def test_prepared_folder_is_reused_and_refuses_another_recording(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(HEADER + "c,1,2\n")
    folder = tmp_path / "prepared"
    traffic = scenario_for(tmp_path, path="p.csv").traffic(folder)
    part = folder / "parts" / "part-00000.parquet"
    written = part.stat().st_mtime_ns
    assert scenario_for(tmp_path, path="p.csv").traffic(folder) == traffic
    assert part.stat().st_mtime_ns == written
    with pytest.raises(InvalidInput, match="another recording or with other settings"):
        scenario_for(tmp_path, path="p.csv", blocks_per_tick=7).traffic(folder)
    (tmp_path / "p.csv").write_text(HEADER + "c,1,3\n")
    with pytest.raises(InvalidInput, match="another recording or with other settings"):
        scenario_for(tmp_path, path="p.csv").traffic(folder)


def test_unfinished_folder_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(HEADER + "c,1,2\n")
    folder = tmp_path / "prepared"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "part-00007.parquet").write_text("left over")
    (folder / "keep.txt").write_text("not ours")
    scenario = scenario_for(tmp_path, path="p.csv")
    traffic = scenario.traffic(folder)
    assert all_rows(traffic, chains_of(scenario, traffic)) == {0: ["c/1"]}
    assert [entry.name for entry in (folder / "parts").iterdir()] == ["part-00000.parquet"]
    assert (folder / "keep.txt").exists()


class TasksInBatches:
    """A replacement for a session: runs the work on the inputs backwards, each in its own batch."""

    def range(self, start: int, end: int, step: int, partitions: int) -> TasksInBatches:
        assert partitions == end
        self.size = end
        return self

    def mapInArrow(self, work: Any, schema: str) -> TasksInBatches:  # noqa: N802
        def batches() -> Iterator[pa.RecordBatch]:
            for place in reversed(range(self.size)):
                yield pa.RecordBatch.from_pydict({"id": pa.array([place])})

        self.rows = [(value,) for batch in work(batches()) for value in batch.column(0).to_pylist()]
        return self

    def collect(self) -> list[tuple[bytes]]:
        return self.rows


def test_spark_tasks_write_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_traffic, "RUN_BYTES", 20_000)
    monkeypatch.setattr(recording, "PIECE_ROWS", 300)
    monkeypatch.setattr(jobs, "spark_jobs", lambda session, text: contextlib.nullcontext())
    pq.write_table(packets(1_500, 3), tmp_path / "p.parquet", row_group_size=128)
    scenario = scenario_for(tmp_path, path="p.parquet", blocks_per_tick=100)
    here = scenario.traffic(tmp_path / "here")
    there = scenario.traffic(tmp_path / "there", spark=TasksInBatches)  # type: ignore[arg-type]
    chains = chains_of(scenario, here)
    assert all_rows(there, chains) == all_rows(here, chains)
    bad = packets(1_500, 3).set_column(1, "sequence", pa.array([*range(400), -1, *range(401, 1499), -2]))
    pq.write_table(bad, tmp_path / "p.parquet", row_group_size=128)
    with pytest.raises(InvalidInput, match="row 401: sequence: -1 must not be negative"):
        scenario.traffic(tmp_path / "bad", spark=TasksInBatches)  # type: ignore[arg-type]


def test_recorded_cosmos_hub_runs_completely(recordings: Recordings, tmp_path: Path) -> None:
    path = recordings.hub_packets
    example = Path(__file__).resolve().parents[2] / "examples" / "recorded.toml"
    scenario = load_scenario(example, {"traffic.path": f'"{path}"'}, programs={"caller", "echo"})
    traffic = scenario.traffic(tmp_path / "prepared")
    topology = scenario.topology(traffic)
    assert (topology.chains.num_rows, topology.programs.num_rows) == (56, 110)
    chains = topology.chains["number"].to_numpy()
    found = all_rows(traffic, chains)
    table = pq.read_table(path, columns=["channel_id", "sequence", "send_height"])
    names = pc.binary_join_element_wise(table["channel_id"], table["sequence"].cast(pa.string()), "/")
    assert sum(len(bodies) for bodies in found.values()) == 161_478
    assert [body for tick in sorted(found) for body in found[tick]] == names.to_pylist(), "the recording is in order"
    heights = table["send_height"].to_numpy()
    assert {tick: len(bodies) for tick, bodies in found.items()} == Counter(
        ((heights - heights.min()) // 1000).tolist()
    )
    callees = dict(zip(topology.programs["number"].to_pylist(), topology.programs["name"].to_pylist(), strict=True))
    first = traffic.rows(0, chains)
    called = decode_calls(first["payload"].combine_chunks()).receivers.tolist()
    routes = {(callees[a], callees[b]) for a, b in zip(first["receiver"].to_pylist(), called, strict=True)}
    assert ("cosmoshub/channel-141", "osmosis/channel-0") in routes
