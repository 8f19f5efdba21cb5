"""Command ``causeway check SCENARIO``: all errors with lines, the planned run, and ineffective elements."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.document import key_lines
from causeway.network.deploy import deploy_scenario
from causeway.network.scenario_check import examine_scenario
from causeway.scenarios.generator import GeneratedTraffic
from causeway.scenarios.scenario import load_scenario
from tests.support.common.command_line import Run, command_line
from tests.tiers import sized

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.toml"))

WRONG = """\
[network]
sed = 3
ticks = 10

[options]
nope = 1

[[chains]]
name = "left"
[[chains]]
name = "right"
colour = "red"

[[programs]]
name = "alice"
chain = "left"
program = "caler"
[[programs]]
name = "bob"
chain = "right"
program = "echo"

[[faults]]
kind = "drop"
source = "left"
destination = "rihgt"
[[faults]]
kind = "drp"
[[faults]]
kind = "halt"
chain = "lft"

[[moves]]
tick = 3
program = "carol"
chain = "left"

[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "alcie"
method = "x"
[[traffic.send]]
tick = 40
to = "alice"
call = { receiver = "bob", amount = -1 }
[[traffic.send]]
tick = 41
to = "alice"
call = { receiver = "bobb" }
"""

IDLE = """\
[network]
ticks = 10
executor = "in_process"
master = "local[2]"
partitions = 9
[transport]
skip = 0.5
[[chains]]
name = "left"
[[chains]]
name = "right"
[[chains]]
name = "spare"
[[programs]]
name = "alice"
chain = "left"
program = "caller"
[[programs]]
name = "bob"
chain = "right"
program = "echo"
[[programs]]
name = "carol"
chain = "left"
program = "echo"
[[faults]]
kind = "drop"
source = "left"
destination = "right"
[[faults]]
kind = "drop"
source = "spare"
destination = "left"
[[faults]]
kind = "drop"
from = 30
[[moves]]
tick = 12
program = "bob"
chain = "left"
[traffic]
source = "script"
[[traffic.send]]
tick = 0
to = "alice"
count = 3
call = { receiver = "bob" }
[[traffic.send]]
tick = 40
to = "alice"
call = { receiver = "bob" }
"""


PLANTED = """\
[network]
ticks = 20
seed = 3  # "x" network.seed

[options]
vsr = "accept_all"  # "odd" options.vsr

[[chains]]
name = "left"
[[chains]]
name = "right"
role = ""  # 7 chains[1].role
[[chains]]
name = "third"  # "left" chains[2]

[[programs]]
name = "alice"
chain = "left"  # "lef" programs[0].chain
program = "caller"  # "caler" programs[0].program
balance = 4  # -4 programs[0].balance
[[programs]]
name = "bob"  # "alice" programs[1]
chain = "right"  # "rigt" programs[1].chain
program = "echo"
[[programs]]
name = "carol"
chain = "left"
program = "echo"
options = { friend = { program = "alice" } }  # { friend = { program = "alicia" } } programs[2].options.friend

[[faults]]
kind = "drop"
source = "left"  # "lft" faults[0].source

[[changes]]
tick = 2
install = [{ name = "new", chain = "left", program = "echo" }]
[[changes]]
tick = 4  # 2 changes[1].tick
inject = [{ kind = "halt", chain = "left", from = 12 }]  # [{ kind = "hlt" }] changes[1].inject[0].kind
[[changes]]
tick = 6  # "x" changes[2].tick
upgrade = [{ program = "carol", to = "echo" }]  # [{ program = "dora", to = "echo" }] changes[2].upgrade[0].program
[[changes]]
tick = 9
heal = [1]

[traffic]
source = "script"
[[traffic.send]]
tick = 1
to = "alice"  # "alcie" traffic.send[0].to
method = "x"
[[traffic.send]]
tick = 1
to = "alice"
call = { receiver = "new" }  # { receiver = "nobody" } traffic.send[1].call.receiver
"""
"""A scenario without mistakes; after ``#`` of a line what stands there instead, and the key that is then wrong."""


def plant_errors(chosen: set[int]) -> tuple[str, list[tuple[int, str]]]:
    """Return the scenario with errors in some lines, and the line and key of each."""
    lines, wrong = [], []
    for number, line in enumerate(PLANTED.splitlines(), 1):
        begin, mark, mistake = line.partition("  # ")
        if mark and number in chosen:
            value, _, key = mistake.rpartition(" ")
            begin = f"{begin.partition(' = ')[0]} = {value}"
            wrong.append((number, key))
        lines.append(begin)
    return "\n".join(lines), wrong


PLACES = [number for number, line in enumerate(PLANTED.splitlines(), 1) if "  # " in line]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch, "check")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "scenario.toml"


def test_all_errors_are_reported_at_once_with_lines(cli: Run, place: Path) -> None:
    place.write_text(WRONG)
    code, out, err = cli(place.name)
    assert (code, err) == (2, "")
    first, *told = out.splitlines()
    assert first == "scenario.toml: 11 errors"
    for line, said in zip(
        told,
        [
            "line 2: network.sed: unknown key; did you mean seed?",
            "line 6: options.nope: unknown key",
            "line 12: chains[1].colour: unknown key",
            'line 17: programs[0].program: program "caler" is unknown',
            'line 26: faults[0].destination: "rihgt": no such chain; did you mean right?',
            'line 28: faults[1].kind: "drp": must be one of',
            'line 31: faults[2].chain: "lft": no such chain; did you mean left?',
            'line 35: moves[0].program: "carol": no such program',
            'line 42: traffic.send[0].to: "alcie": no such program; did you mean alice?',
            "line 47: traffic.send[1].call.amount: -1: must be from 0",
            'line 51: traffic.send[2].call.receiver: "bobb": no such program; did you mean bob?',
        ],
        strict=True,
    ):
        assert line.strip().startswith(said)
    code, out, _ = cli(place.name, "--json")
    found = json.loads(out)
    assert code == 2 and not found["valid"] and found["plan"] is None and len(found["wrong"]) == 11
    assert found["wrong"][-1]["line"] == 51


def test_errors_masked_by_others_are_reported_too(place: Path) -> None:
    """All errors are named at once, and nothing else is."""
    drawn = Random(33)
    few = [set(drawn.sample(PLACES, drawn.randint(2, len(PLACES)))) for _ in range(sized(25, 400))]
    for chosen in [set[int](), *({number} for number in PLACES), *few, set(PLACES)]:
        text, wrong = plant_errors(chosen)
        place.write_text(text)
        found = examine_scenario(place)
        told = {(remark.line, remark.key) for remark in found.wrong}
        # Two programs of one name are an error of either line; a reserved name has no line.
        missing = [(line, key) for line, key in wrong if not any(key == of for _, of in told)]
        extra = [(line, key) for line, key in told if key not in {of for _, of in wrong}]
        assert (missing, extra) == ([], []), f"of {sorted(chosen)}: {found.wrong}"
        assert not found.more and (found.plan is None) == bool(wrong)
        assert {key: line for line, key in told if key and key[-1] != "]"} == {
            key: line for line, key in wrong if key[-1] != "]"
        }


def test_two_errors_of_one_element_and_an_idle_change_are_all_reported(place: Path) -> None:
    place.write_text(
        """
[[chains]]
name = "main"
[[chains]]
name = "main"
[traffic]
source = "script"
[[traffic.send]]
tick = -1
to = 1.5
[[changes]]
tick = 3
"""
    )
    found = examine_scenario(place)
    assert [remark.line for remark in found.wrong] == [4, 9, 10, 11]
    assert not found.more


def test_ineffective_elements_and_the_run_plan_are_reported(cli: Run, place: Path) -> None:
    place.write_text(IDLE)
    code, out, err = cli(place.name)
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "scenario.toml: valid" in text and "3: left, right, spare" in text
    assert "script: 3 messages from users, tick 0" in text
    said = [line.strip().split(": ")[:2] for line in out.partition("Without effect:")[2].splitlines()[1:-1]]
    assert said == [
        ["line 4", "network.master"],
        ["line 5", "network.partitions"],
        ["line 12", "chains[2]"],
        ["line 30", "faults[1]"],
        ["line 36", "faults[2].from"],
        ["line 38", "moves[0].tick"],
        ["line 49", "traffic.send[1].tick"],
    ]


def test_options_replace_keys_and_have_no_line(cli: Run, place: Path) -> None:
    place.write_text(IDLE)
    code, out, _ = cli(place.name, "--set", "network.partitions=0", "--set", "faults[1].source=right", "--json")
    found = json.loads(out)
    assert code == 0 and not {"network.partitions", "faults[1]"} & {each["key"] for each in found["without_effect"]}
    code, out, _ = cli(place.name, "--set", "network.seed=x", "--json")
    assert (code, json.loads(out)["wrong"]) == (
        2, [{"key": "network.seed", "line": None, "text": '"x": must be a whole number'}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("[network]\nseed = = 3\n", [], "line 2: not valid TOML"),
        ("", [], "chains: missing; a network has at least one chain"),
        ('[network]\nprotocol = "smtp"\n', [], 'line 2: network.protocol: "smtp"'),
        (IDLE, ["--execute"], "--execute: only of a lake"),
        (None, [], "scenario.toml: no such scenario file"),
    ],
)
def test_unreadable_files_are_bad_input(
    cli: Run, place: Path, content: str | None, arguments: list[str], said: str
) -> None:
    if content is not None:
        place.write_text(content)
    code, out, err = cli(place.name, *arguments)
    assert code == 2 and said in (out + err)


def test_invalid_fault_does_not_invalidate_changes_that_heal_others(cli: Run, place: Path) -> None:
    faults = "".join(f'[[faults]]\nkind = "halt"\nchain = "{chain}"\n' for chain in ("c-9", "c-0", "c-8"))
    changes = "[[changes]]\ntick = 2\nheal = [0, 1]\n[[changes]]\ntick = 3\nheal = [2]\n"
    place.write_text(f'[[chains]]\ncount = 2\nprefix = "c-"\n{faults}{changes}')
    code, out, _ = cli(place.name, "--json")
    assert code == 2
    assert [each["key"] for each in json.loads(out)["wrong"]] == ["faults[0].chain", "faults[2].chain"]


def test_names_in_files_cannot_inject_terminal_escapes(cli: Run, place: Path) -> None:
    place.write_text('"a\\u001b[31mb" = 1\n[[chains]]\nname = "x\\u001b[31m"\n')
    code, out, _ = cli(place.name)
    assert code == 2 and "\x1b" not in out


def test_check_does_not_generate_long_traffic(cli: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GeneratedTraffic, "next_tick", lambda *_: pytest.fail("traffic is drawn"))
    traffic = 'source = "generated"\nmessages_per_tick = 1e6\nticks = 10_000_000\nchannels = 2\n'
    place.write_text(f"[[chains]]\ncount = 9\n[traffic]\n{traffic}")
    code, out, _ = cli(place.name)
    assert code == 0 and "about 10,000,000,000,000 messages from users, ticks 0 to 9,999,999" in " ".join(out.split())


def test_protocol_options_are_checked_at_their_position(cli: Run, place: Path) -> None:
    place.write_text('[[chains]]\ncount = 2\n[protocols.xdm]\nnope = 1\n[protocols.ic]\nvsr = "odd"\n')
    for protocol, wrong in (("xdm", [("protocols.xdm.nope", 4)]), ("ic", [("protocols.ic.vsr", 6)]), ("icmp", [])):
        code, out, _ = cli(place.name, "--protocol", protocol, "--json")
        found = json.loads(out)
        assert [(each["key"], each["line"]) for each in found["wrong"]] == wrong and code == (2 if wrong else 0)
    place.write_text(place.read_text() + "[protocols.smtp]\n")
    code, out, _ = cli(place.name, "--protocol", "icmp", "--json")
    assert [(each["key"], each["line"]) for each in json.loads(out)["wrong"]] == [("protocols.smtp", 7)]


def test_duplicate_relayer_does_not_invalidate_references_to_it(place: Path) -> None:
    options = "[options.relay.accounts]\n[options.relay.users]\nann = ['c']\nbob = ['c']\n[[chains]]\ncount = 2\n"
    more = '[network]\nprotocol = "ibc"\n[[programs]]\nname = "c"\nchain = "chain-0"\nprogram = "caller"\n'
    for relayers, keys, judged in (
        ('["ann", "ann"]', ["options.relayers", "options.relay.users.bob"], True),
        ("[]", ["options.relayers"], False),
        ('["ann", 3]', ["options.relayers[1]"], False),
    ):
        place.write_text(f"[options]\nrelayers = {relayers}\n{options}{more}")
        found = examine_scenario(place)
        assert [remark.key for remark in found.wrong] == keys
        assert found.more != judged


def test_all_misspelt_fault_keys_are_reported_and_intended_keys_are_not_missing(place: Path) -> None:
    place.write_text(
        """
[[chains]]
count = 2
[[faults]]
kind = "drop"
sorce = "chain-0"
destinatoin = "chain-1"
[[faults]]
knd = "halt"
chain = "chain-2"
[[faults]]
kind = "halt"
chain = "chain-3"
frm = 4
"""
    )
    found = examine_scenario(place)
    assert [(remark.key, remark.line) for remark in found.wrong] == [
        ("faults[0].sorce", 6),
        ("faults[0].destinatoin", 7),
        ("faults[1].kind", 8),
        ("faults[2].chain", 13),
        ("faults[2].frm", 14),
    ]
    assert not found.more


def key_paths(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from key_paths(value, (*at, key))


TRIPLE = '"' * 3
ODD = f"""\
a."b c".d = 1
"x\\ty" = [1, {{y=2, z=[ 3, # ]
 4 ]}}, {TRIPLE}q"
{TRIPLE}]
[[t]]
[[t.u]]
k='''a
'''
[t.u.v]
w=1 # x = 2
[[t]]
[t.u]
d=1979-05-27T07:32:00Z
s={TRIPLE}a"{TRIPLE}
'l.m'.n = {{}}
q = "#"
"""
TEXTS = {"odd": ODD, **{path.name: path.read_text() for path in EXAMPLES}}


@pytest.mark.parametrize("name", TEXTS)
def test_line_of_each_key_is_located(name: str) -> None:
    text = TEXTS[name]
    found = key_lines(text)
    assert {*found} == {*key_paths(tomllib.loads(text))}
    lines = text.splitlines()
    for steps, line in found.items():
        if isinstance(steps[-1], str) and text is not ODD:
            assert steps[-1] in lines[line - 1]
    if text is ODD:
        assert (found["x\ty", 1, "z", 1], found["t", 0, "u", 0, "v", "w"], found["t", 1, "u", "q"]) == (3, 10, 16)


def mutate_document(document: dict[str, Any], draw: Random) -> dict[str, str]:
    """Return one to three keys of a scenario with other values."""
    there = [steps for steps in key_paths(document) if not isinstance(steps[-1], int)]
    overrides = {}
    for steps in draw.sample(there, draw.randint(1, 3)):
        key = ".".join(f'"{step}"' if isinstance(step, str) and "." in step else str(step) for step in steps)
        overrides[key] = draw.choice(['"x"', "-1", "0", "7", "true", "[]", "1.5", '"left"', "{ a = 1 }"])
    return overrides


@pytest.mark.parametrize("name", ["two_subnets", "zones", "domains", "parachains"])
def test_scenario_is_valid_exactly_if_a_network_can_be_built(name: str, tmp_path: Path) -> None:
    path = next(path for path in EXAMPLES if path.stem == name)
    document, draw = tomllib.loads(path.read_text()), Random(name)
    outcomes = set()
    for _ in range(12):
        overrides = mutate_document(document, draw)
        try:
            deploy_scenario(load_scenario(path, overrides), str(tmp_path / "lake"), None, 1)
            can_run = True
        except InvalidInput:
            can_run = False
        try:
            found = examine_scenario(path, overrides)
        except InvalidInput:  # an override has no line
            assert not can_run
            continue
        assert (not found.wrong) == can_run == (found.plan is not None), overrides
        outcomes.add(can_run)
    assert False in outcomes


def test_gossip_scenarios_are_checked_as_such(cli: Run) -> None:
    """Scenarios of processes are rejected by name, not checked by the keys of a network."""
    examples = Path(__file__).resolve().parents[2] / "examples"
    code, out, _ = cli(examples / "gossip.toml")
    assert code == 0 and "valid: 1,000 nodes that gossip" in out and "causeway gossip simulate" in out
    code, out, _ = cli(examples / "gossip.toml", "--set", "nodes.count=0", "--json")
    found = json.loads(out)
    assert (code, found["valid"]) == (2, False) and "nodes.count" in found["wrong"][0]["text"]
    code, out, err = cli(examples / "gossip_processes.toml")
    assert (code, out, err.count("\n")) == (2, "", 1) and "causeway gossip up checks it" in err
