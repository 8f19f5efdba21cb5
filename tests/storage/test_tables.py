"""The lake read with Spark: state by chain, calls, ledger columns, counts."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import causeway as cw
from causeway.dataframes.lake_tables import LakeTables
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.schema import LEDGER_SCHEMA
from causeway.network.network import LakeNetwork
from causeway.storage.lake import LakeError
from causeway.storage.table_schemas import TableSchemas
from tests.docs.test_docs import documented

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MOVING = """
[network]
seed = 3
executor = "in_process"
partitions = 2

[options]
certification = "off"
vsr = "deployed"
migrations = "on"
sender_mismatch = "deployed"

[[chains]]
count = 3
prefix = "s"

[[moves]]
tick = 3
program = "s0/channel-0"
chain = "s2"

[[faults]]
kind = "forge"
tick = 2
chain = "s1"
sender = "s0/channel-1"
receiver = "s2/channel-0"

[traffic]
source = "generated"
messages_per_tick = 30
ticks = 6
channels = 4
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> LakeNetwork:
    folder = tmp_path_factory.mktemp("tables")
    (folder / "scenario.toml").write_text(MOVING)
    net = LakeNetwork.from_scenario(folder / "scenario.toml", lake=str(folder / "lake"))
    net.run()
    return net


def rows(frame: Any) -> list[Row]:
    return sorted(frame.collect(), key=str)


@pytest.mark.parametrize("height", [2, 5])
def test_state_rows_of_all_chains_form_the_whole_table(net: LakeNetwork, height: int) -> None:
    for table in ("input_queues", "output_counters", "lanes", "accounts"):
        parts = [net.state(table, height, chain) for chain in ("s0", "s1", "s2")]
        assert rows(reduce(DataFrame.union, parts)) == rows(net.state(table, height)), table


def test_migrated_program_is_on_its_new_chain_from_that_tick_on(net: LakeNetwork) -> None:
    number = next(row["number"] for row in net.tables.programs().collect() if row["name"] == "s0/channel-0")
    before, after = (height for height in net.tables.heights() if net.tables.manifest(height).tick in (2, 3))
    for height, home in ((0, "s0"), (before, "s0"), (after, "s2")):
        (host,) = net.tables.hosts(height).where(f"program = {number}").collect()
        assert host["chain"] == net.tables.position(home)
        assert net.state("accounts", height, home).where(f"program = {number}").count() == 1


def test_empty_state_tables_have_the_declared_columns(net: LakeNetwork) -> None:
    declared = net.tables.state_tables()
    assert TableSchemas({}, declared).encoded()["state"] == net.tables.about["tables"]["state"]
    for table, found in declared.items():
        frame = net.state(table, 0)
        assert frame.columns == found.schema.names
        assert {found.owner, *found.chains, *found.programs} <= set(frame.columns)
    assert net.state("program_echo").columns == ["program"]


def test_requested_table_chain_and_height_must_exist(net: LakeNetwork) -> None:
    with pytest.raises(LakeError, match=r'table: "nope": no such table; there are \d+: ingress_counters'):
        net.state("nope")
    with pytest.raises(LakeError, match='chain: "s9": no such chain; there are 3: s0, s1, s2'):
        net.state("lanes", chain="s9")
    with pytest.raises(LakeError, match="height: 4000 is not committed"):
        net.state("lanes", 4000)
    with pytest.raises(LakeError, match=r'table: "nope": no such table; there are \d+: outbound'):
        net.tables.log("nope")


def test_counts_match_the_ledger(net: LakeNetwork) -> None:
    ledger = net.ledger
    assert ledger.columns == LEDGER_SCHEMA.names
    every = ledger.collect()
    forged = {row["message_id"] for row in every if row["detail"] == "forged"}
    found = [row for row in every if row["message_id"] not in forged]

    def ids(letter: str, event: str) -> list[str]:
        return [row["message_id"] for row in found if f"/{letter}#" in row["message_id"] and row["event"] == event]

    summary = net.summary()
    assert summary["sent"] == len(ids("q", "sent")) == len(set(ids("q", "sent"))) > 0
    away = [row for row in found if row["event"] == "committed" and row["source"] != row["destination"]]
    assert summary["messages"] == len(away) < len(ids("q", "committed")) + len(ids("r", "committed"))
    ends = {row["answers"]: row["code"] for row in found if row["answers"] and row["event"] == "received"}
    assert summary["answered"] == sum(code == 0 for code in ends.values())
    assert summary["rejected"] == sum(code > 0 for code in ends.values())
    assert summary["sent"] == summary["answered"] + summary["rejected"] + summary["pending"] + summary["dropped"]
    assert {row["sender"] for row in found if "/i#" in row["message_id"]} == {"user/0"}


def test_views_have_the_documented_columns(net: LakeNetwork) -> None:
    assert [(name, kind) for name, kind, _ in documented("calls")] == net.calls.dtypes


def test_forged_request_was_sent_by_no_program(net: LakeNetwork) -> None:
    forged = net.ledger.where("kind = 'request' and source = 's1' and sender like 's0/%'").collect()
    assert {row["detail"] for row in forged if row["event"] == "sent"} == {"forged"}


def test_calls_have_one_row_each(net: LakeNetwork) -> None:
    found = net.calls.collect()
    summary = net.summary()
    by_outcome = {name: sum(row["outcome"] == name for row in found) for name in OUTCOMES}
    assert by_outcome == {name: summary[name] for name in by_outcome}
    with cw.open(net.lake.storage.uri) as opened:
        calls = opened.calls.arrow().select(["sender", "receiver", "outcome", "sent_tick"]).to_pylist()
    keys = ("sender", "receiver", "outcome", "sent_tick")
    assert Counter(tuple(row[key] for key in keys) for row in found if row["outcome"] != "forged") == Counter(
        tuple(row[key] for key in keys) for row in calls
    )
    answered = [row for row in found if row["outcome"] == "answered"]
    assert all(row["sent_tick"] < row["received_tick"] < row["ended_tick"] for row in answered)
    assert {row["source"] for row in found if row["sender"] == "s0/channel-0"} == {"s0", "s2"}
    assert {row["detail"] for row in found if row["outcome"] == "rejected"} == {"CanisterMigrating"}


# ---- user programs -------------------------------------------------------------------------------


def test_programs_beside_the_scenario_run_on_spark_workers(tmp_path: Path, spark: SparkSession) -> None:
    found = []
    for executor in ("spark", "in_process"):
        overrides = {"network.executor": executor, "network.master": '"local[2]"', "network.partitions": "2"}
        net = LakeNetwork.from_scenario(EXAMPLES / "auction.toml", overrides, lake=str(tmp_path / executor))
        net.run()
        found.append((net.tables.root(), net.program_state("house"), net.summary()))
        assert net.state("program_auction:Bidder", chain="town-1").count() == 1
    assert found[0] == found[1]
    assert found[0][1]["sold_to"] == 2


@pytest.mark.slow
def test_amounts_accepted_before_the_answer_are_the_same_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    found = []
    for executor in ("spark", "in_process"):
        overrides = {"network.executor": executor, "network.master": '"local[2]"', "network.partitions": "3"}
        with LakeNetwork.from_scenario(EXAMPLES / "escrow.toml", overrides, lake=str(tmp_path / executor)) as net:
            net.run()
            accounts = {row["program"]: row["balance_low"] for row in net.state("accounts").collect()}
            found.append((net.tables.root(), net.program_state("bank"), net.program_state("strict"), accounts))
    assert found[0] == found[1]
    _, bank, strict, accounts = found[0]
    assert (bank, strict) == ({"sold": 1, "returned": 0}, {"sold": 0, "returned": 1})
    assert sorted(accounts.values()) == [0, 0, 0, 40, 60, 100]


def test_query_of_some_heights_opens_few_files_with_equal_results(net: LakeNetwork) -> None:
    heights = range(2, 4)
    whole = sorted(map(repr, net.ledger.where("height between 2 and 3").collect()))
    assert sorted(map(repr, net.tables.ledger(heights).collect())) == whole != []
    assert net.tables.ledger(range(900, 1000)).count() == 0
    assert len(net.tables.log("events", heights).inputFiles()) < len(net.tables.log("events").inputFiles())
    with pytest.raises(LakeError, match=r"heights: range\(0, 9, 3\)"):
        net.tables.log("events", range(0, 9, 3))


def test_calls_as_of_a_height_equal_those_of_a_run_that_ended_there(net: LakeNetwork, tmp_path: Path) -> None:
    with LakeNetwork.from_scenario(
        net.scenario.path, {"network.executor": "in_process"}, lake=str(tmp_path / "l")
    ) as other:
        while other.height < 3:
            other.step(other.next_tick() or 0)
        then = sorted(map(repr, LakeTables(net.spark, other.lake).calls().collect()))
    assert sorted(map(repr, net.tables.calls(as_of=3).collect())) == then != []
