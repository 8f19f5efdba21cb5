"""The kernel contract on a protocol that uses all of it, through lakes on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from causeway.config.traffic import CARRIED_SCHEMA
from causeway.network.network import LakeNetwork
from causeway.protocols.registry import register_protocol
from causeway.scenarios.scenario import load_scenario
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Lake
from causeway.tick.bucket import forget_states
from tests.support.common.beacon import CHALLENGE_TICKS, CLAIM, FORK_BLOCKS, INFO, SEND, wire

SCENARIO = """
[network]
protocol = "beacon"

[[chains]]
count = 5
prefix = "member-"
"""
FORK = '\n[[faults]]\nkind = "fork"\ntick = 6\n'


@pytest.fixture(autouse=True)
def _beacon() -> Iterator[None]:
    with register_protocol(INFO):
        yield


def network(
    folder: Path, text: str = SCENARIO, *, resume: bool = False, partitions: int = 1, executor: str = "in_process"
) -> LakeNetwork:
    path = folder / "scenario.toml"
    path.write_text(text)
    scenario = load_scenario(
        path, {"network.partitions": str(partitions), "network.executor": executor, "network.master": "local[2]"}
    )
    return LakeNetwork(scenario, str(folder / "lake"), resume=resume, recorded=True)


def carried_rows(*orders: tuple[int, bytes]) -> pa.Table:
    rows = [{"chain": chain, "carrier": 9, "payload": payload} for chain, payload in orders]
    return pa.Table.from_pylist(rows, schema=CARRIED_SCHEMA)


def roots(lake: Lake) -> list[list[Any]]:
    """Return the headers of every height, ascending by chain and number."""
    found = []
    for height in lake.heights():
        tables = lake.log_rows("headers", lake.manifest(height))
        rows = pa.concat_tables(tables).select(["chain", "number", "hash", "root"]).to_pylist()
        found.append(sorted(tuple(row.values()) for row in rows))
    return found


def rows(net: LakeNetwork, table: str, height: int | None = None) -> list[dict[str, Any]]:
    manifest = net.lake.manifest(net.height if height is None else height)
    parts = manifest.state.get(table, {})
    return [row for key in sorted(parts, key=int) for row in net.lake.part(manifest, parts[key]).to_pylist()]


def play(net: LakeNetwork, *, cold: bool = False, fork: bool = False) -> None:
    """Play orders, claims and a forgery; in a forking network on both branches."""
    scripts = {
        0: carried_rows((0, wire(SEND, 1, 5, 1)), (3, wire(CLAIM, 0, 70, 2))),
        1: carried_rows((1, wire(SEND, 2, 7, 3)), (1, b"no seal"), (4, wire(SEND, 0, 1, 4))),
        8: carried_rows((2, wire(SEND, 3, 11, 5)), (2, wire(CLAIM, 0, 80, 6))),
    }
    ticks = sorted({*scripts, *range(4), *(range(4, 32) if fork else ())})
    for tick in [tick for tick in ticks if tick > net.tick or not net.height]:
        net.step(tick, carried=scripts.get(tick))
        if cold:
            forget_states()
    net.run()


def test_pause_of_ten_thousand_ticks_costs_one_tick(tmp_path: Path) -> None:
    with network(tmp_path) as net:
        play(net)
        assert net.next_tick() is None
        assert net.tick == 8 + CHALLENGE_TICKS and net.height < 12
        balances = {row["chain"]: row["balance"] for row in rows(net, "members")}
        assert balances == {0: 1, 1: 5, 2: 7 + 80, 3: 11 + 70, 4: 0}


def test_added_chain_with_a_role_is_visible_to_all(tmp_path: Path) -> None:
    with network(tmp_path) as net:
        play(net)
        assert [chain["role"] for chain in net.lake.about()["chains"]] == [""] * 5 + ["beacon"]
        # Every member has the values of all blocks but the newest, which it sees at the next height.
        values = sum(row["value"] for row in rows(net, "blocks") if row["number"] < net.height)
        assert {row["total"] for row in rows(net, "members")} == {values}
    text = SCENARIO + '\n[[chains]]\nname = "hub"\nrole = "beacon"\n'
    (tmp_path / "own").mkdir()
    with network(tmp_path / "own", text) as net:
        assert len(net.lake.about()["chains"]) == 6
    with pytest.raises(InvalidInput, match=r"chains\[1\].role: 'sun'; allowed: beacon"):
        network(
            tmp_path / "own", text.replace('"beacon"\n', '"sun"\n').replace('protocol = "sun"', 'protocol = "beacon"')
        )


def test_fork_is_followed_and_reverted(tmp_path: Path) -> None:
    with network(tmp_path, SCENARIO + FORK) as net:
        play(net, fork=True)
        headers = [len(height) for height in roots(net.lake)]
        assert headers.count(7) == FORK_BLOCKS, "two headers of one chain a height as long as it has two branches"
        during = {row["branch"] for row in rows(net, "members", 20)}
        after = {row["branch"] for row in rows(net, "members")}
        assert (during, after) == ({1}, {0})
        blocks = {row["number"]: row["value"] for row in rows(net, "blocks")}
        assert {row["branch"] for row in rows(net, "blocks")} == {0}
        wanted = sum(value for number, value in blocks.items() if number < net.height)
        assert {row["total"] for row in rows(net, "members")} == {wanted}
        events = [
            path for height in net.lake.heights() for path in net.lake.manifest(height).log.get("events", {}).values()
        ]
        reasons = [row["reason"] for path in events for row in net.lake.storage.read_table(path).to_pylist()]
        assert sorted(reasons) == ["BadSeal"] + ["Reverted"] * 5


@pytest.fixture(scope="module")
def expected_headers(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """Return the headers of every height of a forking network in one bucket."""
    with register_protocol(INFO), network(tmp_path_factory.mktemp("whole"), SCENARIO + FORK) as net:
        play(net, fork=True)
        return roots(net.lake)


@pytest.mark.parametrize("partitions", [1, 6])
def test_roots_are_independent_of_partitions_caches_and_restarts(
    tmp_path: Path, expected_headers: list[list[Any]], partitions: int
) -> None:
    for name, cold in (("warm", False), ("cold", True)):
        folder = tmp_path / f"{name}-{partitions}"
        folder.mkdir()
        with network(folder, SCENARIO + FORK, partitions=partitions) as net:
            play(net, cold=cold, fork=True)
            assert roots(net.lake) == expected_headers, name
    folder = tmp_path / f"again-{partitions}"
    folder.mkdir()
    with network(folder, SCENARIO + FORK, partitions=partitions) as net:
        net.step(0, carried=carried_rows((0, wire(SEND, 1, 5, 1)), (3, wire(CLAIM, 0, 70, 2))))
        # The record of an uncommitted tick does not count.
        InputRecord(net.lake).write(1, carried=carried_rows((0, wire(SEND, 1, 1000, 77))))
    with network(folder, SCENARIO + FORK, partitions=partitions, resume=True) as net:
        play(net, fork=True)
        assert roots(net.lake) == expected_headers, "resumed"


def test_spark_gives_equal_roots(tmp_path: Path, expected_headers: list[list[Any]], spark: SparkSession) -> None:
    with network(tmp_path, SCENARIO + FORK, partitions=2, executor="spark") as net:
        play(net, fork=True)
        assert roots(net.lake) == expected_headers


def test_lake_is_reproduced_from_its_record(tmp_path: Path) -> None:
    with network(tmp_path) as net:
        play(net)
        heights = [net.lake.manifest(height) for height in net.lake.heights()][1:]
        wanted, record = roots(net.lake), net.lake
        again = tmp_path / "again"
        again.mkdir()
        with network(again) as other:
            for made in heights:
                path = made.outside.get("carried")
                other.step(made.tick, carried=record.table(made, path) if path else None)
            assert roots(other.lake) == wanted


def test_external_messages_to_a_closed_network_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    with (
        LakeNetwork(load_scenario(path, {"network.executor": "in_process"}), str(tmp_path / "lake")) as net,
        pytest.raises(InvalidInput, match="record: this network takes only the traffic of its scenario"),
    ):
        net.step(0, carried=carried_rows((0, wire(SEND, 1, 5, 1))))


def test_buckets_are_balanced_by_chain_weight(tmp_path: Path) -> None:
    with network(tmp_path, partitions=2) as net:
        assert net.lake.about()["buckets"] == [[0, 5], [5, 6]], "the beacon weighs as much as all members"


def test_protocol_log_is_a_table_of_the_lake(tmp_path: Path) -> None:
    with network(tmp_path) as net:
        play(net)
        assert [table["name"] for table in net.lake.about()["tables"]["logs"]] == [
            "outbound", "events", "collected", "failures", "applied", "headers",
        ]  # fmt: skip


@pytest.mark.parametrize("reopened", [32, 33, 40])
def test_compacted_and_vacuumed_data_is_still_readable(tmp_path: Path, reopened: int) -> None:
    """Members revert at tick 40 to states, rows and headers of heights whose small files were removed."""
    scenario = SCENARIO + FORK.replace("6", "20")
    found = []
    for name, stops in (("through", (45,)), ("again", (reopened, 45))):
        (tmp_path / name).mkdir()
        for resume, stop in enumerate(stops):
            forget_states()
            with network(tmp_path / name, scenario, resume=bool(resume), partitions=3) as net:
                for tick in range(net.tick + 1 if net.height else 0, stop):
                    net.step(tick, carried=carried_rows((0, wire(SEND, 1, 5, 1))) if tick == 3 else None)
                last = net.lake.manifest(net.height)
                members = rows(net, "members")
        headers = [net.lake.storage.read_table(path).to_pylist() for path in last.log["headers"].values()]
        found.append((members, headers))
    assert {row["branch"] for row in found[0][0]} == {0}
    assert found[0] == found[1]
