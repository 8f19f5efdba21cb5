"""Endpoints of remote subnets in the registry, by version: moved nodes and split subnets."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli import main
from causeway.network.network import program_state
from causeway.network.opened_lake import open_lake
from causeway.protocols.ic.subnet_keys import derive_public_key
from causeway.scenarios.scenario import load_scenario
from causeway.service.node.node import Node
from causeway.storage.lake import LakeError
from tests.support.common.soak import Member, free_port
from tests.support.common.subnet_lakes import ENDS, FIRST_PORT, SEEDS, Lakes, scenario_text
from tests.support.properties.random_scenarios import SPLITTING

NEW = "right-new"
NEW_PORT = 9300
CALLS = 24


def version(tick: int, *ports: int) -> str:
    """Return a later version of the endpoints of the subnet on the right."""
    urls = ", ".join(f'"http://127.0.0.1:{port}"' for port in ports)
    return f"[[options.remote.right.versions]]\ntick = {tick}\nendpoints = [{urls}]\n"


def test_moved_nodes_are_found_by_the_next_version(tmp_path: Path) -> None:
    moved = FIRST_PORT["right"] + 50
    texts = {own: scenario_text(own, calls=CALLS, per_tick=2) for own in ENDS}
    texts["left"] += version(8, moved)
    lakes = Lakes(tmp_path, texts)
    try:
        apps, left = lakes.transport.apps, lakes.nodes["left"]
        (client,) = lakes.exchange("left").clients(lakes.transport)
        (remote,) = client.remotes

        def round_of_both() -> None:
            for own in ("right", "left"):
                lakes.nodes[own].produce()
            for own in ENDS:
                lakes.pull(own)

        for _ in range(4):
            round_of_both()
        before = client.pulled[remote].slices
        assert before, "the nodes are where the first version says"
        apps[moved] = apps.pop(FIRST_PORT["right"])
        del apps[FIRST_PORT["right"] + 1]
        while left.opened.manifest().tick < 6:
            round_of_both()
        assert client.pulled[remote].slices == before, "nobody is there any more"
        lakes.until_idle()
        assert client.pulled[remote].slices > before, "they are where the next version says"
        assert client.excluded_nodes(remote) == []
        lakes.check(CALLS)
    finally:
        lakes.close()


def split_texts(left_tick: int, right_tick: int, going: str) -> dict[str, str]:
    """Return the scenarios of two lakes with a split of the right subnet.

    The registry of each lake splits it at its own tick, and programs move to a new subnet on the right.
    """
    options = "\n".join(f'{name} = "{value}"' for name, value in SPLITTING.items())
    found = {}
    for own, tick in zip(ENDS, (left_tick, right_tick), strict=True):
        external = "true" if own == "left" else "false"
        text = scenario_text(own, calls=CALLS, per_tick=2, options=options)
        text += f'[[chains]]\nname = "{NEW}"\nfrom = {tick}\nexternal = {external}\n'
        text += f'[[splits]]\ntick = {tick}\nchain = "right"\ninto = "{NEW}"\nprograms = ["{going}"]\n'
        if own == "left":
            key = derive_public_key(SEEDS["right"], 2).hex()
            text += f'[options.remote.{NEW}]\npublic_key = "{key}"\nendpoints = ["http://127.0.0.1:{NEW_PORT}"]\n'
        else:
            text = text.replace("[options.listen]", f'[options.listen]\n{NEW} = ["127.0.0.1:{NEW_PORT}"]')
        found[own] = text
    return found


@pytest.mark.parametrize(
    ("left_tick", "right_tick", "going"),
    [pytest.param(3, 8, "caller-right", marks=pytest.mark.slow), (9, 4, "echo-right")],
)
def test_subnet_of_another_lake_is_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_tick: int, right_tick: int, going: str
) -> None:
    """Each lake learns of the split by its own version, either earlier or later."""
    lakes = Lakes(tmp_path, split_texts(left_tick, right_tick, going))
    try:
        lakes.until_idle()
        asked = lakes.transport.apps.keys()
        assert NEW_PORT in asked
        states = {own: lakes.state(f"caller-{own}") for own in ENDS}
        refused = sum(1 for row in lakes.rows("right") if row["reason"] == "ChainSplitting")
        for own, state in states.items():
            assert state["answered"] + state["rejected"] == CALLS - (refused if own == "right" else 0)
            assert state["answered"], "some calls went over"
        pulled = {
            exchange.ids.index(remote): noted.slices
            for exchange in [lakes.exchange("left")]
            for client in exchange.clients()
            for remote, noted in client.pulled.items()
        }
        assert all(pulled.values()), "both subnets on the right are asked"
        assert lakes.refusals("left") == lakes.refusals("right") == []
    finally:
        lakes.close()
    for own in ENDS:
        with pytest.raises(SystemExit) as ended:
            main(["check", "--execute", str(tmp_path / own)])
        assert ended.value.code == 0
        assert ": identical" in capsys.readouterr().out


def test_split_moves_no_programs_to_another_lake(tmp_path: Path) -> None:
    path = tmp_path / "left.toml"
    text = split_texts(4, 4, "echo-left")["left"]
    path.write_text(text.replace('chain = "right"\ninto', 'chain = "left"\ninto'))
    with pytest.raises(InvalidInput, match="left into right-new: one of them is external; allowed: both, or neither"):
        Node(load_scenario(path), str(tmp_path / "lake"))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (version(8, 9250) + version(8, 9251), r"versions\[1\]\.tick: 8: must be above 8, that of the version before"),
        (version(0, 9250), r"versions\[0\]\.tick: 0: must be greater than or equal to 1"),
        (version(1, 99999), r"versions\[0\]\.endpoints\[0\]: .* no address of a node"),
        (version(1, 9250).replace("9250", "9250\\n"), r"versions\[0\]\.endpoints\[0\]: .* no address of a node"),
        (version(1, 9250).replace("127.0.0.1", "a b"), r"versions\[0\]\.endpoints\[0\]: .* no address of a node"),
        (version(1), r"versions\[0\]\.endpoints: \[\]: must have at least 1 element"),
    ],
)
def test_invalid_versions_are_rejected(tmp_path: Path, more: str, text: str) -> None:
    path = tmp_path / "left.toml"
    path.write_text(scenario_text("left") + more)
    with pytest.raises(InvalidInput, match=text):
        Node(load_scenario(path), str(tmp_path / "lake"))


TICK_SECONDS = 0.2
MOST_SECONDS = 120.0


def count_answered(folder: Path, own: str) -> int:
    """Return the number of a side's calls answered by the last height of its lake."""
    try:
        opened = open_lake(str(folder / own))
        return int(program_state(opened.lake, opened.manifest(), opened.topology, f"caller-{own}")["answered"])
    except LakeError:
        return 0


@pytest.mark.slow
def test_two_processes_find_each_other_by_the_next_version(tmp_path: Path) -> None:
    """The right process is restarted at other ports that the left registry has from a later tick on.

    All calls are answered, in order, over real sockets.
    """
    calls = 60
    first = {own: [free_port(), free_port()] for own in ENDS}
    second = {**first, "right": [free_port(), free_port()]}
    members: dict[str, Member] = {}
    more = {"left": version(12, *second["right"]), "right": ""}
    for own in ENDS:
        text = scenario_text(own, calls, first, tick_seconds=TICK_SECONDS, per_tick=4, more=more[own])
        path = tmp_path / f"{own}.toml"
        path.write_text(text)
        command = [sys.executable, "-m", "causeway", "serve", str(tmp_path / own), "--scenario", str(path)]
        pace = ["--port", str(free_port()), "--block-seconds", str(TICK_SECONDS)]
        members[own] = Member(own, "lake", [*command, *pace], tmp_path / f"{own}.log")

    def until(own: str, count: int) -> None:
        end = time.monotonic() + MOST_SECONDS
        while count_answered(tmp_path, own) < count:
            for member in members.values():
                member.look()
            assert time.monotonic() < end, [member.last_lines() for member in members.values()]
            time.sleep(TICK_SECONDS)

    def stop(own: str) -> None:
        process = members[own].process
        assert process is not None
        process.terminate()
        assert process.wait(timeout=60) == 0, members[own].last_lines()

    try:
        for member in members.values():
            member.start()
        until("left", 8)
        stop("right")
        (tmp_path / "right.toml").write_text(
            scenario_text("right", calls, second, tick_seconds=TICK_SECONDS, per_tick=4)
        )
        members["right"].start()
        for own in ENDS:
            until(own, calls)
        for own in ENDS:
            stop(own)
    finally:
        for member in members.values():
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()
    for own in ENDS:
        with pytest.raises(SystemExit) as ended:
            main(["check", "--execute", str(tmp_path / own)])
        assert ended.value.code == 0
