"""Added and removed chains and nodes: scenario keys, and the resulting registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Membership, NodeChange, TickSpan, Topology
from causeway.programs.user_modules import NOWHERE
from causeway.protocols.contract import NO_HOST
from causeway.protocols.ic.registry import change_ticks, registry_at
from causeway.scenarios.scenario import Scenario, load_scenario, recorded_scenario

NETWORK = """
[[chains]]
name = "old"
until = 8
[[chains]]
name = "new"
from = 5
nodes = 3
[[chains]]
name = "home"
"""
PROGRAMS = """
[[programs]]
per_chain = 1
prefix = "p-"
program = "echo"
[[programs]]
name = "rover"
chain = "new"
program = "echo"
"""
OLD, NEW, HOME, ROVER = "p-old-0", "p-new-0", "p-home-0", "rover"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "network.toml"


def topology_of(file: Path, rest: str = "") -> Topology:
    file.write_text(NETWORK + PROGRAMS + rest)
    scenario = load_scenario(file)
    topology = scenario.topology(scenario.traffic())
    scenario.faults(topology)
    return topology


def move(tick: int, program: str, chain: str | None) -> str:
    return f'[[moves]]\ntick = {tick}\nprogram = "{program}"\n' + (f'chain = "{chain}"\n' if chain else "")


def places(topology: Topology, program: str, *ticks: int) -> list[str | None]:
    """Return the names of the chains that the program is on at some ticks."""
    names = dict(zip(topology.programs["name"].to_pylist(), topology.programs["number"].to_pylist(), strict=True))
    chains = dict(zip(topology.chains["number"].to_pylist(), topology.chains["name"].to_pylist(), strict=True))
    found: list[str | None] = []
    for tick in ticks:
        registry = registry_at(topology, tick)
        host = int(registry.host_of(np.array([names[program]], dtype=np.uint64))[0])
        found.append(None if host == NO_HOST else chains[int(registry.subnets[host])])
    return found


def test_registry_version_lists_its_subnets(file: Path) -> None:
    topology = topology_of(file)
    assert change_ticks(topology) == [5, 9]
    by_tick = {tick: registry_at(topology, tick) for tick in (0, 4, 5, 8, 9)}
    assert {tick: registry.version for tick, registry in by_tick.items()} == {0: 1, 4: 1, 5: 2, 8: 2, 9: 3}
    assert [registry.members.tolist() for registry in by_tick.values()] == [
        [True, False, True],
        [True, False, True],
        [True, True, True],
        [True, True, True],
        [False, True, True],
    ]
    assert by_tick[9].has(np.array([0, 1, 2, 3, 2**32 - 1])).tolist() == [False, True, True, False, False]
    assert len({tuple(registry.subnets.tolist()) for registry in by_tick.values()}) == 1, "positions stay"


def test_programs_are_added_and_removed_with_their_subnet(file: Path) -> None:
    topology = topology_of(file)
    assert places(topology, NEW, 0, 4, 5, 99) == [None, None, "new", "new"]
    assert places(topology, OLD, 0, 8, 9) == ["old", "old", None]
    assert places(topology, HOME, 0, 99) == ["home", "home"]
    newcomers = topology.programs.filter(np.isin(topology.programs["name"].to_pylist(), [NEW, ROVER]))["number"]
    assert registry_at(topology, 5).newcomers.tolist() == newcomers.to_pylist()
    assert registry_at(topology, 9).has_ended


@pytest.mark.parametrize(
    ("moves", "ticks", "found"),
    [
        (move(3, ROVER, "home"), (2, 3, 5, 9), [None, "home", "home", "home"]),
        (move(5, ROVER, "home"), (4, 5), [None, "home"]),
        (move(6, ROVER, "home"), (4, 5, 6), [None, "new", "home"]),
        (move(6, ROVER, "old"), (6, 8, 9), ["old", "old", None]),
        (move(6, ROVER, "old") + move(9, ROVER, "home"), (8, 9), ["old", "home"]),
        (move(6, ROVER, "old") + move(8, ROVER, "home"), (7, 8, 9), ["old", "home", "home"]),
        (move(6, ROVER, "old") + move(11, ROVER, "home"), (8, 9, 10, 11), ["old", None, None, "home"]),
        (move(2, ROVER, None), (1, 5), [None, None]),
    ],
)
def test_moves_precede_subnet_changes(file: Path, moves: str, ticks: Any, found: Any) -> None:
    assert places(topology_of(file, moves), ROVER, *ticks) == found


def test_nodes_join_with_new_numbers_and_leave(file: Path) -> None:
    topology = topology_of(
        file,
        '[[nodes]]\ntick = 6\nchain = "new"\nadd = 2\nremove = [1, 2]\n'
        '[[nodes]]\ntick = 7\nchain = "new"\nremove = [4]\n[[nodes]]\ntick = 7\nchain = "new"\nadd = 1\n',
    )
    found = {tick: registry_at(topology, tick, 4).nodes_of(1) for tick in (4, 5, 6, 7)}
    assert found == {4: (), 5: (0, 1, 2), 6: (0, 3, 4), 7: (0, 3, 5)}
    assert registry_at(topology, 5, 4).nodes_of(2) == (0, 1, 2, 3), "as many as the options say"
    assert change_ticks(topology) == [5, 6, 7, 9]


@pytest.mark.parametrize(
    ("change", "mistake"),
    [
        (NodeChange(6, 1, remove=(3,)), (1, "node 3 is not there at tick 6; there are 0, 1, 2")),
        (NodeChange(6, 1, remove=(0, 1, 2)), (1, "no node is left at tick 6; there must be one at least")),
        (NodeChange(6, 1, add=1, remove=(0, 1, 2)), None),
        (NodeChange(6, 2, remove=(3,)), None),
    ],
)
def test_impossible_node_changes_are_refused(change: NodeChange, mistake: Any) -> None:
    membership = Membership({}, {1: 2}, (NodeChange(5, 1, add=1), change))
    assert membership.first_invalid_change(4) == mistake


def test_lake_records_the_membership(file: Path) -> None:
    topology = topology_of(file, '[[nodes]]\ntick = 6\nchain = "new"\nremove = [1]\n')
    assert topology.membership == Membership({0: TickSpan(0, 8), 1: TickSpan(5)}, {1: 3}, (NodeChange(6, 1, 0, (1,)),))
    kept = json.loads(json.dumps(topology.membership.encoded()))
    assert Membership.decoded(kept) == topology.membership
    assert Membership.decoded({}) == Membership()
    identity = json.loads(json.dumps(load_scenario(file).identity()))
    again: Scenario = recorded_scenario(identity, str(file), NOWHERE)
    assert again.topology(again.traffic()) == topology


def test_script_targets_the_chain_of_the_program_once_its_subnet_exists(file: Path) -> None:
    send = '[traffic]\nsource = "script"\n[[traffic.send]]\ntick = {}\nto = "rover"\nmethod = "greet"\n'
    file.write_text(NETWORK + PROGRAMS + send.format(5))
    assert load_scenario(file).traffic().rows(5, np.array([0, 1, 2], dtype=np.uint64))["chain"].to_pylist() == [1]
    file.write_text(NETWORK + PROGRAMS + send.format(4))
    with pytest.raises(InvalidInput, match="rover is on no chain at tick 4"):
        load_scenario(file).traffic()


FORGE = '[[faults]]\nkind = "forge"\nchain = "{}"\ntick = {}\nsender = 1\nreceiver = 2\n'
OFFER = '[[faults]]\nkind = "{}"\ntick = {}\nsource = "{}"\ndestination = "{}"\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (move(4, ROVER, "new"), 'moves[0].chain: "new": in the registry from tick 5 on, not at tick 4'),
        (move(9, ROVER, "old"), 'moves[0].chain: "old": in the registry until tick 8, not at tick 9'),
        (FORGE.format("new", 4), 'faults[0].chain: "new": in the registry from tick 5 on, the fault is at tick 4'),
        (
            '[[faults]]\nkind = "halt"\nfrom = 9\nchain = "old"\n',
            'faults[0].chain: "old": in the registry until tick 8, the fault is at tick 9 and later',
        ),
        (OFFER.format("replay", 9, "home", "old"), 'faults[0].destination: "old": in the registry until tick 8, the'),
        (OFFER.format("stale", 4, "new", "home"), 'faults[0].source: "new": in the registry from tick 5 on, the'),
        ('[[nodes]]\ntick = 4\nchain = "new"\nadd = 1\n', 'nodes[0].chain: "new": in the registry from tick 5 on'),
        ('[[nodes]]\ntick = 4\nchain = "nw"\nadd = 1\n', 'nodes[0].chain: "nw": no such chain; did you mean new?'),
        ('[[nodes]]\ntick = 4\nchain = "home"\n', "nodes[0]: give add, remove or both"),
        ('[[nodes]]\ntick = 4\nchain = "home"\nremove = [1, 1]\n', "nodes[0]: remove names a node twice"),
        ('[[chains]]\nname = "x"\nfrom = 3\nuntil = 2\n', "chains[3]: until = 2 must not be below from = 3"),
        ('[[chains]]\nname = "x"\nnodes = 0\n', "chains[3].nodes: 0: must be greater than or equal to 1"),
        (
            '[traffic]\nsource = "script"\n[[traffic.send]]\ntick = 9\nto = "rover"\nmethod = "greet"\nchain = "old"\n',
            'traffic.send[0].chain: "old": in the registry until tick 8, not at tick 9',
        ),
    ],
)
def test_reference_to_a_missing_chain_is_reported(file: Path, text: str, line: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        topology_of(file, text)
    assert str(raised.value).startswith(f"{file}: {line}")


@pytest.mark.parametrize("kind", ["replay", "stale"])
def test_offered_messages_may_be_delivered_after_their_chain_is_removed(file: Path, kind: str) -> None:
    topology_of(file, OFFER.format(kind, 9, "old", "home"))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[[chains]]\nname = "a"\nfrom = 1\n', "chains[0].from"),
        ('[[chains]]\nname = "a"\nuntil = 9\n', "chains[0].until"),
        ('[[chains]]\nname = "b"\n[[chains]]\nname = "a"\nnodes = 4\n', "chains[1].nodes"),
        ('[[chains]]\nname = "a"\n[[nodes]]\ntick = 1\nchain = "a"\nadd = 1\n', "nodes[0]"),
    ],
)
def test_other_protocols_refuse_membership_changes_by_name(file: Path, text: str, key: str) -> None:
    file.write_text('[network]\nprotocol = "ibc"\n' + text)
    with pytest.raises(InvalidInput) as raised:
        load_scenario(file)
    said = "under ibc chains neither come nor go, and have no nodes; allowed under: ic"
    assert str(raised.value) == f"{file}: {key}: {said}"
