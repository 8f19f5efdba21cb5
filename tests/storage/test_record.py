"""The record of external input in a lake: exactly the input that the ticks ingested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.network.network import LakeNetwork
from causeway.scenarios.scenario import load_scenario
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Lake

CHAINS = np.array([0, 1], dtype=np.uint64)
SCENARIO = """
[network]
protocol = "ic"
executor = "in_process"
partitions = 4
[[chains]]
count = 9
[[programs]]
per_chain = 30
chain = "chain-2"
program = "echo"
"""


def carried(payload: bytes) -> pa.Table:
    return pa.Table.from_pylist([{"chain": 1, "carrier": 9, "payload": payload}], schema=CARRIED_SCHEMA)


def test_rows_of_a_failed_attempt_are_excluded(tmp_path: Path) -> None:
    record = InputRecord(Lake.at(str(tmp_path)))
    record.write(5, carried=carried(b"first"))
    nothing = record.write(5, ingress=INGRESS_SCHEMA.empty_table())
    assert record.rows(nothing, "carried", CHAINS).num_rows == 0
    second = record.write(5, carried=carried(b"second"))
    assert record.rows(second, "carried", CHAINS)["payload"].to_pylist() == [b"second"]


def test_unused_record_is_discarded_on_any_resume(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    scenario, lake = load_scenario(tmp_path / "scenario.toml"), str(tmp_path / "lake")
    with LakeNetwork(scenario, lake, recorded=True) as net:
        record = InputRecord(net.lake)
        net.step(0, carried=carried(b"taken"))
        never = record.write(1, carried=carried(b"never taken"))
    (tmp_path / "lake" / "record" / ".DS_Store").write_text("stray")
    with LakeNetwork(scenario, lake, resume=True) as net:
        assert net.step(1).outside == {}
    taken = net.lake.outside(net.lake.manifest(1))
    assert record.rows(taken, "carried", CHAINS)["payload"].to_pylist() == [b"taken"]
    assert not net.lake.storage.exists(never["carried"][0])


def test_lake_is_resumed_by_its_scenario_with_its_own_buckets(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=str(tmp_path / "lake")) as net:
        assert len(net.deployment.buckets) < 4, "a chain heavier than a share"
        made = net.deployment.buckets
    with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=str(tmp_path / "lake"), resume=True) as net:
        assert net.deployment.buckets == made
