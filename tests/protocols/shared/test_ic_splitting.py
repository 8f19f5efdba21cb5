"""Subnets that are split while a network runs (IC reference X-14, hazard 34)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import ChainSplit, Membership, TickSpan, Topology
from causeway.core.frame import Frame, concat
from causeway.core.vocabulary import Kind
from causeway.network.network import LakeNetwork
from causeway.protocols.contract import Tick
from causeway.scenarios.scenario import load_scenario
from tests.support.ic.ic_compare import compare
from tests.support.ic.ic_harness import Call, KernelRun, Scenario
from tests.support.ic.ic_programs import ACTOR, ops
from tests.support.properties.random_scenarios import SPLITTING

HOME, PARENT, CHILD = 0, 1, 2
TICK = 4


def call(chain: int, canister: int, *receivers: int) -> Call:
    return Call(chain, canister, 5, "do", ops(*(("call", other, "echo", b"x", 1, None) for other in receivers)))


def network(*, other_moves: tuple[tuple[int, int, int], ...] = (), **rest: Any) -> Scenario:
    """Create a network with calls in ticks 2 to 5 and a split at tick 4.

    Canister 1 on one subnet, and 2 and 3 on another call each other; 3 moves to the new subnet.
    """
    ingress = {
        tick: [
            call(HOME, 1, 2, 3, 3),
            call(PARENT, 2, 1, 3),
            call(PARENT if tick < TICK else CHILD, 3, 1, 1, 2),
        ]
        for tick in range(2, 6)
    }
    options = {**SPLITTING, **rest.pop("options", {})}
    return Scenario(
        subnets=(HOME, PARENT, CHILD),
        canisters={number: (host, ACTOR, 1_000) for number, host in ((1, HOME), (2, PARENT), (3, PARENT), (4, HOME))},
        options=options,
        rounds=8,
        spans={CHILD: (TICK, None)},
        splits=[(TICK, PARENT, CHILD)],
        moves=sorted([(TICK, 3, CHILD), *other_moves]),
        ingress=ingress,
        **rest,
    )


def reasons(events: Frame, kind: Kind) -> Counter[str]:
    found = zip(events["kind"].tolist(), events["reason"].to_pylist(), strict=True)
    return Counter(reason for of, reason in found if reason and of == kind)


@pytest.mark.parametrize("other", [TICK - 1, TICK, TICK + 1])
def test_34_all_calls_end_under_other_registry_change_ticks(other: int) -> None:
    """Canister 4 moves to the split subnet in the round before, of and after the split."""
    compare(network(other_moves=((other, 4, PARENT),)), settling=40)


def test_34_all_calls_end_under_limits_and_over_substreams() -> None:
    options = {"limits": "deployed", "messages_per_canister": 2, "substreams": "per_destination"}
    compare(network(options=options), settling=40)


@pytest.mark.parametrize("halts", [[(PARENT, 3, 5)], [(PARENT, 4, 4), (CHILD, 4, 6)]])
def test_halted_subnet_is_split_like_any_other(halts: list[tuple[int, int, int]]) -> None:
    compare(network(halts=halts), settling=40)


def test_both_subnets_produce_a_height_without_a_round() -> None:
    run = KernelRun(network(options={"certification": "bls"}), apart=False)
    numbers, events, roots = [], {}, []
    for tick in range(1, 7):
        run.round(Tick(tick, tick))
        numbers.append(run.headers["number"].tolist())
        roots.append(run.roots())
        events[tick] = concat(run.events)
    assert numbers == [[1, 1, 0], [2, 2, 0], [3, 3, 0], [4, 4, 1], [5, 5, 2], [6, 6, 3]]
    assert all(roots[tick - 1][PARENT] != roots[tick][PARENT] for tick in range(1, 6))
    moved = events[TICK]
    assert reasons(moved, Kind.INGRESS) == {"ChainSplitting": 2}
    assert set(moved["chain"][moved["kind"] != Kind.INGRESS].tolist()) == {HOME}, "only the third subnet runs a round"
    assert [reasons(events[tick], Kind.INGRESS) for tick in (3, 5)] == [Counter(), Counter()]
    migrating = [reasons(events[tick], Kind.REQUEST)["CanisterMigrating"] for tick in range(1, 7)]
    assert migrating[:3] == [0] * 3
    assert migrating[3], "the third subnet refuses what 3 sent from the parent"
    assert migrating[4], "the parent refuses what is for 3"


def test_streams_remain_and_canister_rows_move() -> None:
    run = KernelRun(network(options={"messages_per_canister": 1}), apart=False)
    for tick in range(1, TICK):
        run.round(Tick(tick, tick))
    before, chains = run.state, run.kernel
    run.round(Tick(TICK, TICK))
    after = run.state
    lanes = after.streams.counters
    assert CHILD not in lanes["source"]
    ours, theirs = (each.streams.counters for each in (before, after))
    parent = [each["next_index"][each["source"] == PARENT].tolist() for each in (ours, theirs)]
    assert parent[0] == parent[1], "the parent routed nothing"
    three = np.array([3], dtype=np.uint64)
    assert chains.hosts(three, TICK - 1).tolist() == [PARENT]
    assert chains.hosts(three, TICK).tolist() == [CHILD]
    held = [each.input_queues.elements for each in (before, after)]
    mine = [rows.filter(rows["receiver"] == 3) for rows in held]
    assert len(mine[0]), "3 has inputs that wait"
    assert mine[0]["index"].tolist() == mine[1]["index"].tolist()
    asked = [each.open_calls.rows for each in (before, after)]
    calls = [rows.filter(rows["originator"] == 3)["callback"].tolist() for rows in asked]
    assert calls[0], "3 has open calls"
    assert calls[0] == calls[1]


FILE = """
[network]
protocol = "ic"
executor = "in_process"
[options]
certification = "off"
splitting = "on"
vsr = "deployed"
sender_mismatch = "deployed"
migrations = "on"
[[chains]]
name = "left"
[[chains]]
name = "right"
[[chains]]
name = "new"
from = 5
[[programs]]
name = "asks"
chain = "left"
program = "caller"
[[programs]]
name = "stays"
chain = "right"
program = "echo"
[[programs]]
name = "goes"
chain = "right"
program = "echo"
"""
SPLIT = '[[splits]]\ntick = {}\nchain = "{}"\ninto = "{}"\nprograms = {}\n'
RIGHT = SPLIT.format(5, "right", "new", '["goes"]')
MOVE = '[[moves]]\ntick = {}\nprogram = "{}"\nchain = "{}"\n'
CALLS = """
[traffic]
source = "script"
send = [
  { tick = 1, to = "asks", count = 5, call = { receiver = "goes", text = "early" } },
  { tick = 4, to = "asks", count = 5, call = { receiver = "goes", text = "under way" } },
  { tick = 9, to = "asks", count = 5, call = { receiver = "goes", text = "late" } },
]
"""


def topology_of(path: Path) -> Topology:
    scenario = load_scenario(path)
    return scenario.topology(scenario.traffic())


def test_split_is_recorded_in_the_lake_and_its_programs_move(tmp_path: Path) -> None:
    path = tmp_path / "split.toml"
    path.write_text(FILE + RIGHT + CALLS)
    scenario, topology = load_scenario(path), topology_of(path)
    membership = Membership({2: TickSpan(5)}, splits=(ChainSplit(5, 1, 2),))
    assert topology.membership == membership == Membership.decoded(membership.encoded())
    assert topology.moves.to_pylist() == [{"tick": 5, "program": 2, "chain": 2}]
    assert "splits" in scenario.identity()
    path.write_text(FILE)
    assert "splits" not in load_scenario(path).identity()


def test_run_resumes_over_a_split(tmp_path: Path) -> None:
    """Stop before, at and after the split, in one bucket or a task per chain: roots are equal."""
    path = tmp_path / "split.toml"
    path.write_text(FILE + RIGHT + CALLS)
    roots = set()
    for partitions, stops in ((1, ()), (3, (3,)), (2, (4, 5)), (1, (5, 6))):
        lake = str(tmp_path / f"lake-{partitions}-{len(stops)}-{sum(stops)}")
        overrides = {"network.partitions": str(partitions)}
        for place, stop in enumerate((*stops, None)):
            with LakeNetwork.from_scenario(path, overrides, lake=lake, resume=place > 0) as network:
                network.run(stop)
                root = network.root()
        roots.add(root)
    assert len(roots) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SPLIT.format(5, "rigt", "new", '["goes"]'), 'splits[0].chain: "rigt": no such chain; did you mean right?'),
        (
            SPLIT.format(5, "right", "left", '["goes"]'),
            'splits[0].into: "left" is there from the beginning; ',
        ),
        (SPLIT.format(6, "right", "new", '["goes"]'), 'splits[0].into: "new" begins at tick 5; allowed: a chain with'),
        (SPLIT.format(5, "new", "new", '["goes"]'), 'splits[0].chain: "new": in the registry from tick 5 on, not at'),
        (SPLIT.format(0, "right", "new", '["goes"]'), "splits[0].tick: 0: must be greater than or equal to 1"),
        (SPLIT.format(5, "right", "new", "[]"), "splits[0].programs: "),
        (SPLIT.format(5, "right", "new", '["goe"]'), 'splits[0].programs[0].program: "goe": no such program; did you'),
        (RIGHT + RIGHT, 'splits[1]: "right" is split twice before the round of tick 5'),
        (RIGHT + SPLIT.format(5, "left", "new", '["asks"]'), 'splits[1].into: "new" is the new chain of another split'),
        (RIGHT + MOVE.format(5, "stays", "left"), 'splits: "stays" leaves "right" at tick 5, at which that is split; '),
        (RIGHT + MOVE.format(5, "asks", "new"), 'splits: "asks" comes to "new" at tick 5; allowed at the split that'),
        (SPLIT.format(5, "right", "new", '["asks"]'), 'splits: "asks" comes to "new" at tick 5; allowed at the split'),
        (RIGHT + MOVE.format(5, "goes", "left"), "splits[0].programs[0]: goes moves twice before the round of tick 5"),
        (
            RIGHT + '[[programs]]\nname = "born"\nchain = "new"\nprogram = "echo"\n',
            'splits: "born" comes to "new" at tick 5; allowed at the split that it begins with: programs of "right"',
        ),
    ],
)
def test_invalid_splits_are_rejected(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "split.toml"
    path.write_text(FILE + text)
    with pytest.raises(InvalidInput) as raised:
        topology_of(path)
    assert str(raised.value).startswith(f"{path}: {line}")


@pytest.mark.parametrize(
    ("name", "value"),
    [("splitting", "off"), ("vsr", "accept_all"), ("sender_mismatch", "drop_accept"), ("migrations", "off")],
)
def test_options_that_would_lose_calls_are_rejected(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "split.toml"
    path.write_text(FILE + RIGHT + CALLS)
    with (
        pytest.raises(InvalidInput, match=f'options.{name}: "{value}": allowed with splits: "'),
        LakeNetwork.from_scenario(path, {f"options.{name}": f'"{value}"'}, lake=str(tmp_path / "lake")),
    ):
        raise AssertionError("it was opened")


def test_other_protocols_reject_splits_by_name(tmp_path: Path) -> None:
    path = tmp_path / "split.toml"
    path.write_text('[network]\nprotocol = "ibc"\n[[chains]]\nname = "a"\n' + SPLIT.format(5, "a", "b", '["c"]'))
    with pytest.raises(InvalidInput, match=r"splits\[0\]: under ibc chains neither come nor go"):
        load_scenario(path)
