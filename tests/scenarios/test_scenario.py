"""The scenario file: its parsed form, and the error of each mistake."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.config.document import forget_parsed, format_key, parse_key, quote_toml, read_document
from causeway.config.faults import FaultRule
from causeway.core.ingress_call import decode_calls
from causeway.network.deploy import deploy_scenario
from causeway.programs.user_modules import NOWHERE
from causeway.scenarios.scenario import Scenario, load_scenario, read_scenario_document, recorded_scenario
from tests.scenario_reference import reference

ROOT = Path(__file__).resolve().parents[2]

SMALL = """
[network]
seed = 3

[[chains]]
name = "left"
[[chains]]
count = 2
prefix = "right-"

[[programs]]
name = "alice"
chain = "left"
program = "caller"
options = { b = [1, true], a = "x" }
balance = "99999999999999999999999999999999999999"
[[programs]]
per_chain = 2
prefix = "echo-"
program = "echo"
[[programs]]
name = "nobody"
chain = "right-0"
program = "none"
[[programs]]
name = "lost"
program = "echo"

[[moves]]
tick = 3
program = "alice"
chain = "right-1"

[[faults]]
kind = "drop"
source = "left"
from = 2
until = 4

[traffic]
source = "script"
[[traffic.send]]
tick = 3
to = "alice"
call = { receiver = "echo-right-0-1", text = "hi", amount = "340282366920938463463374607431768211455" }
count = 3
[[traffic.send]]
tick = 0
to = "alice"
method = "greet"
hex = "00ff"
sender = 18446744073709551615
"""


@pytest.fixture
def small_scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def chains_of(scenario: Scenario) -> Any:
    return scenario.topology(scenario.traffic()).chains["number"].to_numpy()


def load_whole(path: Path, overrides: dict[str, str]) -> None:
    """Read a scenario and resolve every name in it."""
    scenario = load_scenario(path, overrides, programs={"caller", "echo"})
    scenario.faults(scenario.topology(scenario.traffic()))


def test_topology_numbers_follow_the_order_of_the_file(small_scenario: Path) -> None:
    scenario = load_scenario(small_scenario)
    topology = scenario.topology(scenario.traffic())
    assert topology.chains.to_pydict() == {"number": [0, 1, 2], "name": ["left", "right-0", "right-1"]}
    echoes = [f"echo-{chain}-{place}" for chain in ("left", "right-0", "right-1") for place in (0, 1)]
    assert topology.programs["name"].to_pylist() == ["alice", *echoes, "nobody", "lost"]
    assert topology.programs["number"].to_pylist() == list(range(9))
    assert topology.programs["chain"].to_pylist() == [0, 0, 0, 1, 1, 2, 2, 1, None]
    assert topology.programs["program"].to_pylist() == ["caller", *["echo"] * 6, None, "echo"]
    assert topology.programs["options"][0].as_py() == '{"a":"x","b":[1,true]}'
    assert int(topology.programs["balance"][0].as_py()) == 10**38 - 1
    assert topology.moves.to_pylist() == [{"tick": 3, "program": 0, "chain": 2}]


def test_chains_may_have_explicit_numbers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.toml"
    path.write_text(
        '[[chains]]\nname = "a"\nnumber = 9\n[[chains]]\ncount = 2\n'
        '[[chains]]\nname = "b"\nnumber = 18446744073709551615'
    )
    scenario = load_scenario(path)
    assert chains_of(scenario).tolist() == [9, 10, 11, 2**64 - 1]


def test_script_targets_the_chain_of_the_program_at_that_tick(small_scenario: Path) -> None:
    scenario = load_scenario(small_scenario)
    traffic = scenario.traffic()
    chains = chains_of(scenario)
    first = traffic.rows(0, chains).to_pylist()
    assert first == [{"chain": 0, "receiver": 0, "sender": 2**64 - 1, "method": "greet", "payload": b"\x00\xff"}]
    moved = traffic.rows(3, chains)
    assert moved["chain"].to_pylist() == [2, 2, 2]
    assert moved["method"].to_pylist() == ["call"] * 3
    calls = decode_calls(moved["payload"].combine_chunks())
    assert calls.receivers.tolist() == [4] * 3
    assert {calls.amount_high[0], calls.amount_low[0]} == {2**64 - 1}
    assert calls.bodies.to_pylist() == [b"hi"] * 3
    assert traffic.rows(3, chains[:2]).num_rows == 0
    assert [traffic.next_tick(tick) for tick in (0, 1, 3, 4)] == [0, 3, 3, None]


def test_faults_become_tables(small_scenario: Path) -> None:
    text = (
        SMALL
        + """
    [[faults]]
    kind = "forge"
    tick = 1
    chain = "left"
    sender = "nobody"
    receiver = 77
    text = "x"
    [[faults]]
    kind = "gap"
    source = "left"
    destination = "right-1"
    tick = 5
    until = 6
    relayer = "mallory"
    [[faults]]
    kind = "fork"
    chain = "left"
    tick = 9
    [[faults]]
    kind = "halt"
    chain = "right-0"
    from = 2
    [transport]
    skip = 0.25
    """
    )
    small_scenario.write_text(text)
    scenario = load_scenario(small_scenario, {"network.protocol": "ibc"})
    faults = scenario.faults(scenario.topology(scenario.traffic()))
    assert faults.rows == [
        FaultRule("drop", 0, None, 2, 4),
        FaultRule("forge", 0, None, 1, 1, {"sender": 7, "receiver": 77, "payload": b"x".hex()}),
        FaultRule("gap", 0, 2, 5, 6, {"relayer": "mallory"}),
        FaultRule("fork", 0, None, 9, 9),
        FaultRule("halt", 1, None, 2, 2**64 - 1),
    ]
    assert faults.skip == 0.25


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ('kind = "fork"\nchain = "left"\ntick = 1', "faults[1].kind: \"fork\": must be one of 'forge', 'drop',"),
        ('kind = "gap"\nrelayer = "x"\ntick = 1', "faults[1].relayer: unknown key; Keys here: kind, source,"),
    ],
)
def test_protocol_accepts_its_declared_kinds_of_faults(small_scenario: Path, fault: str, line: str) -> None:
    small_scenario.write_text(f"{SMALL}\n[[faults]]\n{fault}\n")
    with pytest.raises(InvalidInput) as raised:
        load_scenario(small_scenario)
    assert str(raised.value).startswith(f"{small_scenario}: {line}")


def test_connection_is_closed_once(small_scenario: Path) -> None:
    fault = '\n[[faults]]\nkind = "disconnect"\nchain = "left"\ncounterparty = "right-0"\ntick = {}\n'
    small_scenario.write_text(SMALL + fault.format(1) + fault.format(2))
    scenario = load_scenario(small_scenario, {"network.protocol": "ibc"})
    with pytest.raises(InvalidInput, match=r"faults\[2\]: a second disconnect between the same chains; allowed: one"):
        scenario.faults(scenario.topology(scenario.traffic()))


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("network.sed", "3", "network.sed: unknown key; did you mean seed? Keys here: protocol, seed,"),
        (
            "x",
            "3",
            "x: unknown key; Keys here: network, options, transport, chains, programs, moves, changes, nodes, splits, "
            "faults, traffic",
        ),
        ("network", "3", "network: 3: must be a table"),
        ("network.seed", "-1", "network.seed: -1: must be greater than or equal to 0"),
        ("network.seed", "18446744073709551616", "network.seed: 18446744073709551616: must be less than or equal to"),
        ("network.seed", "3.0", "network.seed: 3.0: must be a whole number"),
        ("network.seed", '"3"', 'network.seed: "3": must be a whole number'),
        ("network.protocol", "icc", 'network.protocol: "icc": no such protocol; did you mean ic?'),
        ("network.executor", "dask", "network.executor: \"dask\": must be 'spark' or 'in_process'"),
        ("network.seconds_per_tick", "0", "network.seconds_per_tick: 0: must be greater than or equal to 0.000000001"),
        ("network.seconds_per_tick", "inf", "network.seconds_per_tick: Infinity: must be a finite number"),
        ("network.seed.deep", "1", "--set network.seed.deep: network.seed is not a table"),
        ("chains[7].name", "a", "--set chains[7].name: chains is a list of 2, numbered from 0"),
        ("nodes[0].tick", "3", "--set nodes[0].tick: the scenario has no nodes: give the whole list, nodes=[...]"),
        ("nodes[0]", "{}", "--set nodes[0]: the scenario has no nodes: give the whole list, nodes=[...]"),
        ("nodes", "{ tick = 3 }", 'nodes: {"tick": 3}: must be a list'),
        ("transport.skip", "{}", "transport.skip: {}: must be a number"),
        ("", "1", "--set : not a key; write section.key, for example network.seed"),
        ("transport.skip", "1.0", "transport.skip: 1.0: must be less than 1"),
        ("chains", "[]", "chains: missing; a network has at least one chain"),
        ("chains[0].name", "right-1", 'chains[1]: the name "right-1" is taken'),
        ("chains[0].name", "a b", 'chains[0].name: "a b": must be a name without spaces'),
        ("chains[0].count", "2", "chains[0]: give either name (one chain) or count (a group)"),
        ("chains[1].number", "0", "chains[1].number: 0 is taken"),
        ("chains[1].number", "18446744073709551615", "chains[1]: the last chain would have a number above"),
        ("programs[0].chain", "lef", 'programs[0].chain: "lef": no such chain; did you mean left?'),
        ("programs[0].program", "caler", 'programs[0].program: "caler": no such program; did you mean caller?'),
        ("programs[0].name", "lost", 'programs[3]: the name "lost" is taken'),
        ("programs[0].balance", "-1", "programs[0].balance: -1: must be from 0 to 10**38 - 1"),
        ("programs[0].balance", "1e5", "programs[0].balance: 100000.0: must be a whole number or a string of decimal"),
        ("programs[0].options", "{ a = nan }", "programs[0].options.a: NaN: must be text, a finite number"),
        ("programs[2].program", "3", "programs[2].program: 3: must be a string"),
        ("moves[0].program", "alic", 'moves[0].program: "alic": no such program; did you mean alice?'),
        ("moves[0].chain", "zzz", 'moves[0].chain: "zzz": no such chain; there are 3: left, right-0, right-1'),
        ("faults[0].kind", "lose", "faults[0].kind: \"lose\": must be one of 'forge', 'drop', 'replay',"),
        ("faults[0].sorce", "left", "faults[0].sorce: unknown key; did you mean source?"),
        ("faults[0].until", "1", "faults[0]: until = 1 must not be below from = 2"),
        ("faults[0].source", "up", 'faults[0].source: "up": no such chain'),
        (
            "traffic.source",
            "tape",
            "traffic.source: \"tape\": must be one of 'none', 'script', 'recorded', 'generated'",
        ),
        ("traffic", "{}", "traffic.source: missing"),
        (
            "traffic",
            "{ source = 'recorded' }",
            "traffic.path: missing; name the recording there or with --traffic FILE",
        ),
        ("traffic", "{ source = 'generated' }", "traffic: give either messages_per_tick or messages"),
        ("traffic.send[0].to", "alcie", 'traffic.send[0].to: "alcie": no such program; did you mean alice?'),
        ("traffic.send[0].to", "lost", "traffic.send[0].chain: missing; lost is on no chain at tick 3"),
        ("traffic.send[0].tick", "-1", "traffic.send[0].tick: -1: must be greater than or equal to 0"),
        ("traffic.send[0].call.receiver", "bob", 'traffic.send[0].call.receiver: "bob": no such program'),
        ("traffic.send[0].call.amount", "-1", "traffic.send[0].call.amount: -1: must be from 0 to 2**128 - 1"),
        ("traffic.send[0].text", "x", "traffic.send[0]: with call, text or hex belongs into call"),
        ("traffic.send[1].hex", "abc", 'traffic.send[1].hex: "abc": must be hexadecimal digits, two a byte'),
        ("traffic.send[1].text", "x", "traffic.send[1]: give text or hex, not both"),
        ("traffic.send[1].method", '""', 'traffic.send[1].method: "": must be a name of 1 to 255 bytes'),
    ],
)
def test_mistake_is_one_line_that_names_the_key(small_scenario: Path, key: str, value: str, line: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_whole(small_scenario, {key: value})
    message = str(caught.value)
    assert message.startswith(line if line.startswith("--set") else f"{small_scenario}: {line}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("chains[1].count", "70000", "chains: 70001 chains, at most 65535 are allowed"),
        ("chains[1].role", "consensus", "chains: 'main' and 'domain-0' have the role 'consensus'; allowed: one chain"),
    ],
)
def test_errors_about_all_chains_name_the_file(tmp_path: Path, key: str, value: str, line: str) -> None:
    path = ROOT / "examples" / "domains.toml"
    with pytest.raises(InvalidInput) as caught:
        deploy_scenario(load_scenario(path, {key: value}), str(tmp_path), None, 1)
    assert str(caught.value) == f"{path}: {line}"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[network]\nseed = = 3\n", "not valid TOML: Invalid value (at line 2, column 8)"),
        (b"\xff\xfe", "not UTF-8 text (byte 0)"),
        (b"", "chains: missing; a network has at least one chain"),
        (b"a=" + b"[" * 100_000, "values are nested more than 32 deep"),
        (b".".join([b"a"] * 40) + b"=1", "values are nested more than 32 deep"),
    ],
    ids=["syntax", "text", "nothing", "lists", "tables"],
)
def test_invalid_file_is_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        load_scenario(path)
    assert line in str(caught.value)


def test_pipe_is_read_if_it_has_a_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidInput, match="is a pipe to which nobody writes"):
        read_document(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    pipe.write_bytes(b"seed = 3")
    assert read_document(pipe) == {"seed": 3}
    os.close(reader)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.toml: no such scenario file"):
        load_scenario(tmp_path / "none.toml")


def test_overrides_are_toml_values_or_bare_text(small_scenario: Path) -> None:
    scenario = load_scenario(
        small_scenario, {"network.master": "local[2]", "network.seed": "9", "chains[1].count": "3"}
    )
    assert (scenario.network.master, scenario.network.seed) == ("local[2]", 9)
    assert len(chains_of(scenario)) == 4
    assert load_scenario(small_scenario, {"network.master": quote_toml('a"b\\\n')}).network.master == 'a"b\\\n'
    assert parse_key("traffic.send[2].call.text") == ["traffic", "send", 2, "call", "text"]
    assert format_key(["traffic", "send", 2, "to"]) == "traffic.send[2].to"


def test_paths_are_relative_to_their_origin(
    small_scenario: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small_scenario.write_text(SMALL.replace("seed = 3", 'seed = 3\nlake = "lakes/one"'))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_scenario(small_scenario).network.lake == str(tmp_path / "lakes/one")
    assert load_scenario(small_scenario, {"network.lake": "two"}).network.lake == str(elsewhere / "two")
    assert load_scenario(small_scenario, {"network.lake": "s3://bucket/two"}).network.lake == "s3://bucket/two"


def test_identity_excludes_execution_settings(small_scenario: Path) -> None:
    same = {
        "network.master": "local[3]",
        "network.partitions": "7",
        "network.executor": "in_process",
        "network.ticks": "5",
    }
    identity = load_scenario(small_scenario).identity()
    assert load_scenario(small_scenario, same).identity() == identity
    assert load_scenario(small_scenario, {"network.seed": "4"}).identity() != identity
    assert json.loads(json.dumps(identity)) == identity


@pytest.mark.parametrize("key", ["channels = 7", "messages = 70", "degree_skew = 0.0", "skew = { zipf = 1.5 }"])
def test_lake_records_all_parameters_of_generated_traffic(tmp_path: Path, key: str) -> None:
    file = tmp_path / "generated.toml"
    text = '[[chains]]\ncount = 3\n[traffic]\nsource = "generated"\n'
    rate = "" if key.startswith("messages") else "messages_per_tick = 5\n"
    file.write_text(text + rate + key)
    asked = load_scenario(file)
    kept = recorded_scenario(json.loads(json.dumps(asked.identity())), str(file), NOWHERE)
    assert kept.traffic() == asked.traffic()


@pytest.mark.parametrize("name", ["two_subnets", "generated"])
def test_examples_load(name: str) -> None:
    scenario = load_scenario(ROOT / "examples" / f"{name}.toml", programs={"caller", "echo"})
    traffic = scenario.traffic()
    chains = scenario.topology(traffic).chains["number"].to_numpy()
    first = traffic.next_tick(0)
    assert first == 0
    assert traffic.rows(0, chains.astype(np.uint64)).num_rows > 0


def test_documented_key_reference_matches_the_code() -> None:
    documented = (ROOT / "docs" / "reference" / "scenario.md").read_text()
    assert documented.endswith(reference()), "run: python -m tests.scenario_reference, and replace the tables by it"


@pytest.mark.parametrize(
    ("key", "steps"),
    [
        ("chains[0].count", ["chains", 0, "count"]),
        ('network.spark."spark.executor.memory"', ["network", "spark", "spark.executor.memory"]),
        ("a.", ["a", ""]),
        ("a..b", ["a", "", "b"]),
    ],
)
def test_key_part_with_dots_is_quoted(key: str, steps: list[str | int]) -> None:
    assert parse_key(key) == steps


def test_spark_settings_are_texts_and_exclude_the_master(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[[chains]]\nname = "a"\n[network.spark]\n"spark.cores.max" = 4\n"spark.speculation" = true\n')
    found = load_scenario(file, {'network.spark."spark.executor.memory"': '"4g"'})
    settings = {"spark.cores.max": "4", "spark.speculation": "true", "spark.executor.memory": "4g"}
    assert found.network.spark_settings == settings
    assert found.identity() == load_scenario(file, {"network.spark": "{}"}).identity()
    with pytest.raises(InvalidInput, match=r"network\.spark\.spark\.master.*the master is network\.master"):
        load_scenario(file, {'network.spark."spark.master"': '"local"'})


def test_a_text_is_parsed_once_and_each_reader_gets_its_own_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands read their scenario for the early start of Java, for the protocol and for validation."""
    path, texts = tmp_path / "once.toml", list[str]()
    path.write_text('[[chains]]\nname = "once"\n')
    parse = tomllib.loads

    def count_texts(text: str) -> dict[str, Any]:
        texts.append(text)
        return parse(text)

    forget_parsed()
    monkeypatch.setattr("tomllib.loads", count_texts)
    first, second = read_scenario_document(path), read_scenario_document(path, {"network.seed": "3"})
    assert second == {"chains": [{"name": "once"}], "network": {"seed": 3}} and "network" not in first
    assert load_scenario(path).document.chains[0].name == "once"
    assert texts == [path.read_text(), "value = 3"]
    load_scenario(path)  # a complete scenario releases its text
    assert len(texts) == 3
