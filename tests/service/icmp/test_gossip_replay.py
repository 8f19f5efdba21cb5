"""Replay of node traces in the joint state machine: complete traces agree, altered ones differ."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.network import NodeHandle, ProcessNetwork
from causeway.gossip.processes.relay_chain import GeneratedRelayChain, RelayChainClient
from causeway.gossip.processes.replay import ReplayResult, replay_trace
from causeway.gossip.processes.scenario import load_gossip_scenario
from causeway.gossip.processes.step_trace import StepTrace
from causeway.gossip.processes.trace import MOST_ITEMS, ProcessRun, TraceWriter, close_trace, create_trace, open_trace
from tests.support.gossip.gossip_cores import RELAY, Cores
from tests.support.gossip.gossip_oracle import oracle_differences

# A purge falls between two steps and on one: 21 is a multiple of the 7 ms between steps.
OPTIONS = GossipOptions(purge_interval=21)

LEAVES, ARRIVED, GOT, BODIES = 3, 7, 8, 9
"""Where a recorded step has what."""

_MORE = MOST_ITEMS + 4
MANY = (_MORE + 5).to_bytes(4, "little") + b"\x9a" + _MORE.to_bytes(4, "big") + b"\x80" * _MORE
"""A record: a list of so many empty lists, which would take a hundred times as much memory."""


def history(folder: Path, options: GossipOptions = OPTIONS) -> Cores:
    """Build some blocks with one of three nodes killed and restarted."""
    cores = Cores(3, options, folder)
    for height in range(6):
        cores.block()
        cores.run(6)
        if height == 2:
            cores.kill(1)
        if height == 4:
            cores.start(1)
    return cores


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "trace"
    history(folder)
    return folder


@pytest.fixture
def trace(recorded: Path, tmp_path: Path) -> Path:
    """Copy a trace for alteration."""
    return shutil.copytree(recorded, tmp_path / "trace")


def replay(folder: Path) -> ReplayResult:
    return replay_trace(open_trace(folder))


def alter_steps(path: Path, change: Callable[[list[Any]], None]) -> None:
    """Change the steps of a life."""
    data, records = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<I", data)
        records.append(cbor2.loads(data[4 : 4 + length]))
        data = data[4 + length :]
    change(records[1:])
    out = [cbor2.dumps(record) for record in records]
    path.write_bytes(b"".join(struct.pack("<I", len(record)) + record for record in out))


@pytest.mark.parametrize("given", [{}, {"topic_mode": "root"}, {"ancestors": 1}, {"heads_diff": "new_only"}])
def test_recorded_nodes_equal_the_shared_state_machine(tmp_path: Path, given: dict[str, Any]) -> None:
    options = GossipOptions.model_validate({"purge_interval": 21, **given})
    cores = history(tmp_path / "trace", options)
    found = replay(tmp_path / "trace")
    assert found.differences == [] and found.different == 0
    assert found.lives == 4 and found.got == sum(map(len, cores.got)) > 30
    assert found.received > 60 and found.hashed > 10
    assert oracle_differences(tmp_path / "trace") == (found.got, [])


def first_with(steps: list[Any], place: int) -> Any:
    return next(step for step in steps if step[place])


def forget(steps: list[Any]) -> None:
    first_with(steps, GOT)[GOT].pop()


def invent(steps: list[Any]) -> None:
    steps[0][GOT].append([bytes(32), bytes(32)])


def other_body(steps: list[Any]) -> None:
    bodies = first_with(steps, BODIES)[BODIES]
    root = min(bodies)
    bodies[root] = bodies[root][:-1] + bytes([bodies[root][-1] ^ 1])


def other_leaf(steps: list[Any]) -> None:
    last = [step for step in steps if step[LEAVES]][-1]
    last[LEAVES].pop(0)
    last[4] = [block for block in last[4] if block[0] in last[LEAVES]]


def never_sent(steps: list[Any]) -> None:
    arrived = first_with(steps, ARRIVED)[ARRIVED]
    arrived.append([*arrived[-1][:2], bytes(32), *arrived[-1][3:]])


@pytest.mark.parametrize("change", [forget, invent, other_body, other_leaf, never_sent])
def test_difference_is_detected(trace: Path, change: Callable[[list[Any]], None]) -> None:
    alter_steps(trace / "node-002-life-1.trace", change)
    found = replay(trace)
    assert found.different and found.differences and "node 2" in found.differences[0]
    assert bool(oracle_differences(trace)[1]) == (change != never_sent)


def test_body_of_another_root_is_attributed_to_its_sender(trace: Path) -> None:
    def other_digest(steps: list[Any]) -> None:
        row = next(row for step in steps for row in step[ARRIVED] if row[5] == row[2])
        row[5] = bytes([row[5][0] ^ 1]) + row[5][1:]

    alter_steps(trace / "node-002-life-1.trace", other_digest)
    assert any(
        re.search(r" ms: node [01] sent node 2 as \w+ a body that has the root ", line)
        for line in replay(trace).differences
    )


def test_packet_received_before_sending_is_a_difference(trace: Path) -> None:

    def later(steps: list[Any]) -> None:
        for step in steps:
            step[0] += step[0] % 21 != 0  # except purges

    alter_steps(trace / "node-000-life-1.trace", later)
    assert replay(trace).different


def decrease_time(folder: Path) -> None:
    alter_steps(folder / "node-000-life-1.trace", lambda steps: steps[1].__setitem__(0, steps[0][0] - 1))


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "node-000-life-2.trace")


def manifest(folder: Path, **given: Any) -> None:
    path = folder / "trace.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | given))


def test_truncated_record_after_a_kill_is_ignored(trace: Path) -> None:
    path = trace / "node-001-life-1.trace"
    before = replay(trace)
    path.write_bytes(path.read_bytes()[:-3])
    found = replay(trace)
    assert found.steps == before.steps - 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "trace.json").unlink(), "no trace here"),
        (lambda folder: (folder / "trace.json").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "trace.json").write_text('{"format": 9}'), "format 2"),
        (lambda folder: (folder / "node-000-life-1.trace").write_bytes(b"\xff\xff\xff\xff"), "at most"),
        (lambda folder: (folder / "node-000-life-1.trace").write_bytes(b"\x01\0\0\0\x01"), "record 0"),
        (lambda folder: alter_steps(folder / "node-000-life-1.trace", lambda steps: steps[0].pop()), "record 1"),
        (
            lambda folder: alter_steps(
                folder / "node-000-life-1.trace", lambda steps: steps[0].__setitem__(8, [[b"x", b"x"]])
            ),
            "32",
        ),
        *[
            (
                lambda folder, place=place, value=value: alter_steps(
                    folder / "node-000-life-1.trace", lambda steps: steps[-1].__setitem__(place, value)
                ),
                said,
            )
            for place, value, said in (
                (BODIES, {bytes(32): 2**38}, "bodies"),
                (BODIES, [1], "bodies"),
                (BODIES, None, "bodies"),
                (1, [2**32], "node"),
                (2, [[2**32, bytes(8)]], "node"),
                (6, [[2**32, [], 0, False]], "node"),
                (ARRIVED, [[2**32, bytes(32), bytes(32), 0, 0, bytes(32), False]], "node"),
                (0, 2**63, "number"),
            )
        ],
        (lambda folder: (folder / "node-000-life-1.trace").write_bytes(MANY), "more than 1,000,000 items"),
        (decrease_time, "after one at"),
        (fifo, "regular file"),
        (lambda folder: manifest(folder, protocol="nix"), "protocol"),
        (lambda folder: manifest(folder, nodes=[0, 1, 2**32]), "node"),
        (lambda folder: (folder / "node-000-life-1.trace").rename(folder / "node-007-life-1.trace"), "no such node"),
    ],
)
def test_invalid_trace_is_rejected_in_one_line(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    cores = Cores(2, OPTIONS, tmp_path)
    cores.block()
    cores.run()
    damage(tmp_path)
    with pytest.raises(InvalidInput, match=said) as found:
        replay(tmp_path)
    assert "\n" not in str(found.value)


def test_trace_records_its_options(tmp_path: Path) -> None:
    Cores(2, GossipOptions(topic_mode="root"), tmp_path)
    content = json.loads((tmp_path / "trace.json").read_text())
    assert open_trace(tmp_path).options.topic_mode == "root"
    content["options"]["topic_mode"] = "nothing"
    (tmp_path / "trace.json").write_text(json.dumps(content))
    with pytest.raises(InvalidInput, match=r"options\.topic_mode"):
        open_trace(tmp_path)


def test_unknown_network_protocol_is_rejected_and_the_last_port_accepted(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text("[nodes]\ncount = 4\n")
    with pytest.raises(InvalidInput, match="protocol"):
        load_gossip_scenario(path, {"network.protocol": "zz"})
    scenario = load_gossip_scenario(path, {})
    ProcessNetwork(scenario, metrics=65_532)
    with pytest.raises(InvalidInput, match="--metrics-port"):
        ProcessNetwork(scenario, metrics=65_533)


def test_unwritable_trace_is_reported_in_one_line(tmp_path: Path) -> None:
    create_trace(tmp_path, OPTIONS, [0])
    writer = TraceWriter(tmp_path, ProcessRun(0, 1, 0))
    with pytest.raises(InvalidInput, match=r"node-000-life-1\.trace: cannot be written: File exists"):
        TraceWriter(tmp_path, ProcessRun(0, 1, 0))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._file)
    with pytest.raises(InvalidInput, match=r"node-000-life-1\.trace: cannot be written: No space left"):
        writer.step(StepTrace(1), [], {})
    writer.close()
    os.close(full)
    (tmp_path / "trace.new").mkdir()
    with pytest.raises(InvalidInput, match="cannot be closed"):
        close_trace(tmp_path)


def test_node_reports_an_unwritable_trace(tmp_path: Path) -> None:
    async def started() -> None:
        chain = GeneratedRelayChain(0, 2, RELAY, lambda leaf, para: None)
        node = NodeHandle(0, (1,), RelayChainClient(chain, 4), lambda: None)
        settings = {"network": chain.genesis.hash, "options": OPTIONS.model_dump(), "links": [], "epoch": 0.0}
        try:
            await node.start({**settings, "trace": str(tmp_path / "nowhere"), "metrics": None})
        finally:
            await node.end()

    with pytest.raises(InvalidInput, match="cannot be written: No such file"):
        asyncio.run(started())
