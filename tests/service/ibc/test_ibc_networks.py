"""Networks of zones in process: racing and misbehaving relayers, frozen connections, and run summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from causeway.network.network import LakeNetwork
from causeway.service.ibc.summary import backlogs, describe_backlog, describe_relayer, relayers
from causeway.storage.reorgs import network_root
from causeway.tick import bucket
from tests.audit.test_roots import EXAMPLES, ROOTS
from tests.programs.test_ic_networks import call, opened, program, rows, send

BASE = '[network]\nprotocol = "ibc"\nexecutor = "in_process"\npartitions = 3\n'
CHAINS = "".join(f'[[chains]]\nname = "{name}"\n' for name in ("north", "east", "south"))
PROGRAMS = program("caller", "north", "caller") + program("echo", "east", "echo") + program("other", "south", "echo")
SCRIPT = '[traffic]\nsource = "script"\n'
RACE = """
[options]
relayers = ["alice", "mallory", "bob"]
timeouts = "on"
timeout_blocks = 30
"""
LIES = "".join(
    f'[[faults]]\nkind = "{kind}"\nrelayer = "mallory"\ntick = {first}\nuntil = {first + 3}\n'
    for first, kind in ((1, "tamper"), (5, "replay"), (9, "foreign"), (18, "stale"), (22, "gap"))
)


@pytest.fixture(autouse=True)
def _no_state_kept() -> Iterator[None]:
    bucket._STATES.clear()
    yield
    bucket._STATES.clear()


def calls(to: str, ticks: Iterable[int], count: int = 3) -> str:
    return "".join(call(to, tick=tick, count=count) for tick in ticks)


def reasons(net: object) -> Counter[str]:
    return Counter(row["reason"] for row in rows(net, "events") if row["kind"] == 4)  # type: ignore[arg-type]


def test_three_relayers_race_and_one_misbehaves(tmp_path: Path, spark: SparkSession) -> None:
    # A header one height too old was never seen where nothing was relayed before.
    ticks = [*range(13), *range(17, 26)]
    traffic = SCRIPT + calls("echo", ticks) + calls("other", ticks)
    net = opened(tmp_path, BASE + RACE + CHAINS + PROGRAMS + LIES + traffic)
    net.run()
    summary = net.summary()
    assert summary["sent"] == summary["received"] == summary["answered"] == 132
    assert summary["duplicates"] == summary["out_of_order"] == summary["dropped"] == 0
    found = reasons(net)
    assert {"InvalidProof", "OutOfOrder", "MissingHeader"} <= set(found), found
    alice, mallory, bob = relayers(net.lake, net.manifest, ["alice", "mallory", "bob"])
    assert alice["accepted"] + mallory["accepted"] + bob["accepted"] == 264
    assert mallory["refused"] > 0
    assert bob["redundant"] > 200
    assert bob["wasted"] > alice["wasted"]
    assert backlogs(net.lake, net.manifest) == []
    assert describe_relayer(bob).startswith(
        f"Relayer bob: {bob['accepted']} of {bob['submitted']} messages took effect ("
    )


def test_leader_relays_alone_without_waste(tmp_path: Path, spark: SparkSession) -> None:
    options = '[options]\nrelayers = ["one", "two"]\nrelay = { coordination = "leader", proofs = "single" }\n'
    net = opened(tmp_path, BASE + options + CHAINS + PROGRAMS + SCRIPT + calls("echo", range(4)))
    net.run()
    assert net.summary()["answered"] == 12
    (one,) = relayers(net.lake, net.manifest, ["one", "two"])
    assert one["name"] == "one" and one["accepted"] == 24 and one["wasted"] == 0


def test_two_partners_relay_their_shares(tmp_path: Path, spark: SparkSession) -> None:
    options = '[options]\nrelayers = ["one", "two"]\nrelay = { coordination = "partition" }\n'
    net = opened(tmp_path, BASE + options + CHAINS + PROGRAMS + SCRIPT + calls("echo", range(4), count=10))
    net.run()
    assert net.summary()["answered"] == 40
    one, two = relayers(net.lake, net.manifest, ["one", "two"])
    assert one["accepted"] == two["accepted"] == 40
    assert one["redundant"] == two["redundant"] == 0


@pytest.mark.slow
def test_batches_need_fewer_headers_but_delay_answers(tmp_path: Path, spark: SparkSession) -> None:
    headers, delays = {}, {}
    for batch in (1, 12):
        options = f"[options.relay]\nmin_batch = {batch}\nmax_wait = 6\n"
        net = opened(tmp_path / str(batch), BASE + options + CHAINS + PROGRAMS + SCRIPT + calls("echo", range(12)))
        net.run()
        assert net.summary()["answered"] == 36
        (relayer,) = relayers(net.lake, net.manifest, ["relayer"])
        headers[batch] = relayer["headers"]
        delays[batch] = sum(row["ended_tick"] - row["sent_tick"] for row in net.calls.collect())
    assert headers[12] * 2 < headers[1]
    assert delays[12] > delays[1]


def test_fork_freezes_the_connection_and_later_messages_are_rejected(tmp_path: Path, spark: SparkSession) -> None:
    fork = '[[faults]]\nkind = "fork"\nchain = "east"\ntick = 5\n'
    traffic = SCRIPT + calls("echo", range(12)) + calls("other", range(12))
    net = opened(tmp_path, BASE + CHAINS + PROGRAMS + fork + traffic)
    net.run(ticks=30)
    frozen = {(row["chain"], row["counterparty"]) for row in rows_of(net, "connections") if row["frozen"]}
    names = [chain["name"] for chain in net.lake.about()["chains"]]
    east = names.index("east")
    assert frozen == {(chain, east) for chain in range(3) if chain != east}
    height = min(row["height"] for row in rows(net, "events") if row["reason"] == "ConnectionFrozen")
    taken = [
        row
        for row in rows(net, "events")
        if row["source"] == east and row["chain"] != east and row["kind"] != 4 and row["height"] >= height
    ]
    assert not [row for row in taken if row["events"] & 8]
    summary = net.summary()
    assert summary["answered"] < 72
    others = [row for row in net.calls.collect() if row["receiver"] == "other"]
    assert len(others) == 36 and all(row["outcome"] == "answered" for row in others)
    assert reasons(net)["ConnectionFrozen"] >= 2


def test_pending_relays_are_reported_with_age(tmp_path: Path, spark: SparkSession) -> None:
    drop = '[[faults]]\nkind = "drop"\nsource = "north"\ndestination = "east"\nfrom = 1\n'
    net = opened(tmp_path, BASE + CHAINS + PROGRAMS + drop + SCRIPT + calls("echo", range(3)))
    net.run(ticks=9)
    (backlog,) = backlogs(net.lake, net.manifest)
    assert (backlog.chain, backlog.counterparty, backlog.queue) == ("north", "east", "send")
    assert (backlog.waiting, backlog.oldest, backlog.age) == (9, 0, 8)
    assert describe_backlog([backlog]) == (
        "9 entries of 1 queue are waiting to be relayed; the oldest is 0 of north's send queue for east, for 8 heights."
    )


def test_timed_out_packets_are_not_pending(tmp_path: Path, spark: SparkSession) -> None:
    drop = '[[faults]]\nkind = "drop"\nsource = "north"\ndestination = "east"\nfrom = 1\n'
    limits = '[options]\ntimeouts = "on"\ntimeout_blocks = 2\n'
    net = opened(tmp_path, BASE + limits + CHAINS + PROGRAMS + drop + SCRIPT + calls("echo", range(2)))
    net.run()
    summary = net.summary()
    assert (summary["sent"], summary["timed_out"], summary["verdict"]) == (6, 6, "PASSED")
    assert backlogs(net.lake, net.manifest) == []


def rows_of(net: object, table: str) -> list[dict[str, object]]:
    tables = net.lake.state(net.manifest, table)  # type: ignore[attr-defined]
    return [row for part in tables for row in part.to_pylist()]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[options]\nproof = "iavl"\n', 'options.proof: "iavl": only "simple" in this version'),
        (
            '[options]\norder = "unordered"\ntimeouts = "on"\n',
            "use acknowledgements = synchronous",
        ),
        ('[options]\nconnections = [["north", "west"]]\n', "options.connections: no chain 'west'"),
        ('[options]\nconnections = [["north", "north"]]\n', "InvalidChainId"),
        ('[options.types.transfer]\nmodules = ["nobody"]\n', "options.types.transfer.modules: no program"),
        (
            '[[faults]]\nkind = "tamper"\nrelayer = "eve"\ntick = 1\n',
            'faults[0].relayer: "eve": no such relayer; there are 1: relayer',
        ),
        ('[[moves]]\ntick = 1\nprogram = "echo"\nchain = "south"\n', "under ibc programs stay on their zone"),
    ],
)
def test_unavailable_network_features_are_rejected(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        opened(tmp_path, BASE + text + CHAINS + PROGRAMS + SCRIPT + send("caller", "x"))
    assert line in str(raised.value)


def test_clients_update_freeze_and_recover_on_spark_as_in_process(tmp_path: Path, spark: SparkSession) -> None:
    on_spark = {"network.master": '"local[2]"', "network.partitions": "2"}
    with LakeNetwork.from_scenario(EXAMPLES / "clients.toml", on_spark, lake=str(tmp_path / "lake")) as net:
        net.run()
        assert (net.height, network_root(net.lake, net.manifest)) == ROOTS["clients", "ibc"]
        found = reasons(net)
        assert found["NeedIntermediateHeader"] >= 4 and found["ConnectionFrozen"] >= 2
        assert (found["Frozen"], found["Recovered"]) == (2, 2)
        assert net.summary()["answered"] + net.summary()["rejected"] == net.summary()["sent"] == 600
