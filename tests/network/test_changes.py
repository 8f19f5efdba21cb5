"""Networks that change while they run: programs and faults start, change and end at their ticks.

Re-execution gives the same results, and no change acts before its tick.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

import causeway as cw
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.programs.user_modules import ModuleSources
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.scenarios.scenario import load_scenario

PROGRAMS = """
import causeway as cw


class Greeter(cw.Program):
    def initial_state(self):
        return {"asked": 0}

    def on_request(self, request, context):
        self.state["asked"] += 1
        return self.word + b" " + request.payload

    word = b"hello"


class Louder(Greeter):
    word = b"HELLO"

    def upgraded(self, state):
        return {**state, "before": state["asked"]}


class Visitor(cw.Program):
    def initial_state(self):
        return {"heard": []}

    def on_ingress(self, message, context):
        context.call(message.method, "greet", message.payload)

    def on_reply(self, reply, context):
        self.state["heard"].append(reply.payload.decode() if reply.ok else reply.reject.name)


class Table(cw.VectorProgram):
    pass


class Fails(Greeter):
    def upgraded(self, state):
        raise KeyError("nothing of that kind")
"""

BEGINNING = """
[network]
protocol = "{protocol}"
executor = "in_process"
[[chains]]
count = 2
prefix = "c-"
[[programs]]
name = "greeter"
chain = "c-0"
program = "changing_programs:Greeter"
[[programs]]
name = "visitor"
chain = "c-1"
program = "changing_programs:Visitor"
"""

CHANGES = """
[[changes]]
tick = 60
install = [
  { name = "late", chain = "c-0", program = "changing_programs:Greeter", options = { of = { program = "greeter" } } },
]
upgrade = [{ program = "greeter", to = "changing_programs:Louder" }]
[[changes]]
tick = 120
inject = [{ kind = "halt", from = 120, chain = "c-0" }]
[[changes]]
tick = 150
heal = true
"""

QUICK = {"xdm": "options = { archiving_depth = 3, challenge_period = 5 }\n"}
"""Options with which a message arrives before the next change."""


def scenario_head(name: str) -> str:
    return QUICK.get(name, "") + BEGINNING.format(protocol=name)


def sends(*told: tuple[int, str]) -> str:
    rows = (f'{{ tick = {tick}, to = "visitor", method = "{whom}", text = "{tick}" }}' for tick, whom in told)
    return f'[traffic]\nsource = "script"\nsend = [{", ".join(rows)}]\n'


SENDS = sends((0, "greeter"), (60, "late"), (64, "greeter"), (121, "late"), (200, "late"))


@pytest.fixture
def folder(tmp_path: Path, own_modules: None) -> Path:
    (tmp_path / "changing_programs.py").write_text(PROGRAMS)
    return tmp_path


def write_scenario(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def run(path: Path, lake: Path, **overrides: str) -> tuple[str, dict[str, Any]]:
    asked = {f"network.{key}": value for key, value in overrides.items()}
    with LakeNetwork.from_scenario(path, asked, lake=str(lake)) as net:
        net.run()
        states = {name: net.program_state(name) for name in net.topology.programs["name"].to_pylist()}
        return net.root(), states


@pytest.mark.parametrize("name", protocol_names())
def test_changing_network_is_independent_of_execution(folder: Path, name: str) -> None:
    path = write_scenario(folder, "changes", scenario_head(name) + CHANGES + SENDS)
    root, states = run(path, folder / "lake")
    assert states["visitor"]["heard"] == ["hello 0", "hello 60", "HELLO 64", "hello 121", "hello 200"]
    assert states["greeter"] == {"asked": 2, "before": 1} and states["late"] == {"asked": 3}
    opened = open_lake(str(folder / "lake"))
    assert LakeRecheck(opened, ModuleSources.of(path)).execute(0, opened.last_height()) is None
    assert run(path, folder / "parts", partitions="2", commit_every="1") == (root, states)


@pytest.mark.parametrize("name", protocol_names())
def test_heights_before_a_change_are_independent_of_it(folder: Path, name: str) -> None:
    asked = sends((0, "greeter"))
    changed, plain = (
        write_scenario(folder, title, scenario_head(name) + changes + asked)
        for title, changes in (("changed", CHANGES), ("plain", ""))
    )
    with LakeNetwork.from_scenario(changed) as one, LakeNetwork.from_scenario(plain) as other:
        one.run(60)
        other.run(60)
        assert one.root() == other.root() and one.height == other.height
        pickle.loads(pickle.dumps(one.deployment))
        one.run(61)
        assert (one.tick, one.program_state("late")) == (60, {"asked": 0})


def test_program_is_removed_where_the_protocol_allows_it(folder: Path) -> None:
    (name,) = (name for name in protocol_names() if find_protocol(name).moves)
    end = '[[changes]]\ntick = 60\nremove = ["greeter"]\n'
    asked = sends((0, "greeter"), (70, "greeter"))
    path = write_scenario(folder, "end", scenario_head(name) + end + asked)
    _, states = run(path, folder / "lake")
    assert states["visitor"]["heard"] == ["hello 0", "NOT_FOUND"] and states["greeter"] is None


MISTAKES = [
    ('tick = 9\ninstall = [{ name = "x", chain = "c-9", program = "echo" }]', 'install[0].chain: "c-9": no such chain'),
    (
        'tick = 9\ninstall = [{ name = "visitor", chain = "c-0", program = "echo" }]',
        'install[0]: the name "visitor" is',
    ),
    (
        'tick = 9\ninstall = [{ name = "x", chain = "c-0", program = "none:None" }]',
        'install[0].program: program "none:None" cannot be loaded',
    ),
    (
        'tick = 9\ninstall = [{ name = "x", chain = "c-0", program = "echo", options = { a = { program = "y" } } }]',
        'install[0].options.a: "y": no such program',
    ),
    ('tick = 9\nupgrade = [{ program = "y", to = "echo" }]', 'upgrade[0].program: "y": no such program'),
    (
        'tick = 9\ninject = [{ kind = "halt", from = 8, chain = "c-0" }]',
        "inject[0]: begins at tick 8, before the change",
    ),
    ('tick = 9\ninject = [{ kind = "halt", from = 9, chain = "c-9" }]', 'inject[0].chain: "c-9": no such chain'),
    ('tick = 9\ninject = [{ kind = "hall", from = 9 }]', "inject[0]"),
    ("tick = 9\nheal = [0]", "heal[0]: 0: there are 0 faults before"),
    ("tick = 9", "give inject, heal, install, upgrade, move or remove"),
    ("tick = 9\nheal = true\n[[changes]]\ntick = 9\nheal = true", "[1].tick: 9: must be above 9"),
    ('tick = 9\nremove = ["greeter"]', "remove[0]: under"),
]


@pytest.mark.parametrize(("change", "line"), MISTAKES, ids=[line for _, line in MISTAKES])
def test_errors_are_one_line_with_the_key(folder: Path, change: str, line: str) -> None:
    name = next(name for name in protocol_names() if not find_protocol(name).moves)
    path = write_scenario(folder, "wrong", scenario_head(name) + f"[[changes]]\n{change}\n" + sends())
    with pytest.raises(InvalidInput) as caught, LakeNetwork.from_scenario(path):
        pass
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_plan_made_impossible_by_a_change_names_the_change(folder: Path) -> None:
    forks = """
[[faults]]
kind = "fork"
tick = 3
until = 20
[[faults]]
kind = "fork"
tick = 9
until = 15
of = 1
[[changes]]
tick = 6
heal = [0]
"""
    path = write_scenario(folder, "wrong", scenario_head("icmp") + forks + sends())
    with pytest.raises(InvalidInput, match=r'wrong.toml: changes\[0\]: faults: kind = "fork": tick = 9: of = 1: '):
        LakeNetwork.from_scenario(path)
    net = cw.Network.in_memory(write_scenario(folder, "plain", scenario_head("icmp")))
    outer = net.inject("fork", until=20)
    net.inject("fork", tick=9, until=15, of=1)
    net.tick(3)
    with pytest.raises(InvalidInput, match=r'^heal: faults: kind = "fork": tick = 9: of = 1: '):
        net.heal(outer)


CLASSES = [
    ("Table", "is a vectorised program, and takes over from"),
    ("Fails", "has no state after"),
]


@pytest.mark.parametrize(("to", "line"), CLASSES)
def test_incompatible_upgrade_class_is_rejected_in_one_line(folder: Path, to: str, line: str) -> None:
    change = f'[[changes]]\ntick = 5\nupgrade = [{{ program = "greeter", to = "changing_programs:{to}" }}]\n'
    path = write_scenario(folder, "wrong", scenario_head(protocol_names()[0]) + change + sends())
    with pytest.raises(InvalidInput) as caught, LakeNetwork.from_scenario(path) as net:
        net.run()
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_value_fixed_at_genesis_is_not_issued_later(folder: Path) -> None:
    name = next(name for name in protocol_names() if find_protocol(name).fixed_issue)
    change = '[[changes]]\ntick = 5\ninstall = [{ name = "x", chain = "c-0", program = "echo", balance = 5 }]\n'
    path = write_scenario(folder, "wrong", scenario_head(name) + change + sends())
    scenario = load_scenario(path)
    with pytest.raises(InvalidInput, match=r"changes\[0\]\.install\[0\]\.balance: 5: under .* issued at genesis"):
        scenario.stages(scenario.traffic())
