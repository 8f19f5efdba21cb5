"""Real processes: two served lakes and relay processes that are killed, restarted and duplicated."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from causeway.scenarios.scenario import load_scenario
from causeway.service.http.client import ServiceClient
from causeway.service.ibc.routes import ZoneViews
from causeway.service.keys.key_files import AccountKey, read_key, write_key
from causeway.service.keys.validators import add_validators
from causeway.service.node.node import BlockPace, Node
from tests.support.common.certificates import certificate
from tests.support.common.kills import KILLS
from tests.support.common.lakes import ENDS, OTHER, Lakes, scenario_text

SECONDS = 120.0
"""After so long something hangs."""

KILLED = ("right", "left")
"""The servers that are killed, in turn."""


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "causeway", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def line_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line that a process prints, a JSON object."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(f"the process ended with {process.wait()}: {process.communicate()[1]}")
    found: dict[str, Any] = json.loads(line)
    return found


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return exit code and standard error of an ending process."""
    _, error = process.communicate(timeout=SECONDS)
    return process.returncode, error


def validators_of(folder: Path, own: str) -> tuple[str, str, str, str]:
    """Return the arguments that name the validators of both zones to the lake that runs one."""
    other = OTHER[own]
    public = read_key(folder / f"{other}.key").public.hex()
    return "--validator-key", f"{own}={folder / own}.key", "--validators", f"{other}={public}"


def opened(folder: Path, own: str) -> Node:
    """Open the node of a lake after its process."""
    _, key, _, other = validators_of(folder, own)
    scenario, keys = add_validators(load_scenario(folder / f"{own}.toml"), [key], [other])
    return Node(scenario, str(folder / own), BlockPace(0, on_demand=True), keys=keys)


class ServedLakes:
    """Both lakes, each served by a process."""

    def __init__(self, folder: Path, calls: int, *arguments: str, **scenario: Any) -> None:
        self.folder, self.arguments = folder, arguments
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.urls: dict[str, str] = {}
        for own in ENDS:
            (folder / f"{own}.toml").write_text(scenario_text(own, calls, **scenario))
            write_key(folder / f"{own}.key", AccountKey.generate())
        for own in ENDS:
            self.processes[own] = self._start(own, "--port", "0", "--scenario", str(folder / f"{own}.toml"))
        for own in ENDS:
            self.urls[own] = line_of(self.processes[own])["url"]

    def _start(self, own: str, *arguments: str) -> subprocess.Popen[str]:
        keys = validators_of(self.folder, own)
        return start("serve", str(self.folder / own), "--json", *keys, *self.arguments, *arguments)

    def again(self, own: str) -> None:
        """Restart an ended server at its address; its lake knows the served data."""
        self.processes[own] = self._start(own, "--port", self.urls[own].rsplit(":", 1)[1])
        line_of(self.processes[own])

    def relay(self, *arguments: str) -> subprocess.Popen[str]:
        return start("relay", *self.urls.values(), "--json", "--poll", "0.05", *arguments)

    def lane(self, chain: str) -> dict[str, Any]:
        """Return a chain's lane for the other one."""
        answer = httpx.get(f"{self.urls[chain]}/v1/chains/{chain}/queues/{OTHER[chain]}", timeout=30)
        found: dict[str, Any] = answer.json()
        return found

    def header(self, chain: str, height: int | None = None) -> dict[str, Any]:
        """Return the header of a chain at a height, by default the last."""
        query = {} if height is None else {"height": height}
        answer = httpx.get(f"{self.urls[chain]}/v1/chains/{chain}/header", params=query, timeout=30)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def forwarded(self, own: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a server's answer."""
        address = self.urls[own] + path
        kind = {"content-type": "application/json"}
        answer = httpx.post(address, content=body, headers=kind, timeout=60) if body else httpx.get(address, timeout=60)
        return answer.status_code, {}, answer.content

    def send(self, own: str, message: dict[str, Any]) -> None:
        """Send a user's message."""
        asyncio.run(self._send(own, message))

    async def _send(self, own: str, message: dict[str, Any]) -> None:
        async with ServiceClient(self.urls[own]) as client:
            await client.send(message, 0)

    def wait_for_answers(self, own: str, calls: int) -> None:
        """Wait until a number of one chain's calls is answered."""
        end = time.monotonic() + SECONDS
        while self.lane(own)["send"]["head"] < calls:
            assert time.monotonic() < end, "calls are still not answered"
            time.sleep(0.1)

    def wait_until(self, calls: int) -> None:
        """Wait until all calls of both are answered."""
        end = time.monotonic() + SECONDS
        while any(self.lane(chain)["send"]["head"] < calls for chain in ENDS):
            assert time.monotonic() < end, "calls are still not answered"
            time.sleep(0.1)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
            assert ended(process)[0] == 0


@contextmanager
def served(folder: Path, calls: int, *arguments: str, **scenario: Any) -> Iterator[ServedLakes]:
    lakes = ServedLakes(folder, calls, *arguments, **scenario)
    try:
        yield lakes
    finally:
        for process in lakes.processes.values():
            process.kill()
            process.communicate()


def check(folder: Path, calls: int) -> Lakes:
    """Assert the outcomes of all calls from the remaining lakes."""
    lakes = Lakes.__new__(Lakes)
    lakes.nodes = {own: opened(folder, own) for own in ENDS}
    lakes.views = {own: ZoneViews(node.opened) for own, node in lakes.nodes.items()}
    try:
        lakes.check(calls)
        outcome = lakes.outcome()
        for chain in ENDS:
            state = outcome[f"caller-{chain}"]
            assert (state["answered"], state["rejected"], state["malformed"]) == (calls, 0, 0)
    finally:
        lakes.close()
    return lakes


@pytest.mark.parametrize("options", ["", pytest.param("delay_seconds = 4.0", marks=pytest.mark.slow)])
def test_one_relay_process_delivers_everything_and_ends(tmp_path: Path, options: str) -> None:
    with served(tmp_path, 6, "--on-demand", "--block-seconds", "0", options=options) as lakes:
        relay = lakes.relay("--once")
        code, log = ended(relay)
        assert code == 0
        events = [line.split()[3] for line in log.splitlines()]
        between = events[1:-1]
        if options:
            # Headers are sent ahead; the number of passes with both lakes busy, or without news, depends on timing.
            between = [event for event in between if event != "no-progress"]
            assert between
        assert events[:1] + events[-1:] == ["connected", "stopped"]
        assert between == ["delivered"] * (len(between) if options else 3)
        lakes.stop()
    check(tmp_path, 6)


@pytest.mark.slow
def test_killed_and_duplicated_relay_processes_have_one_effect(tmp_path: Path) -> None:
    with served(tmp_path, 40, "--on-demand", "--block-seconds", "0.1") as lakes:
        for turn in (0, 1, 3):
            # Small transactions, so that a kill falls between them.
            relay = lakes.relay("--max-calls", "4", "--max-packets", "9")
            for _ in range(turn):
                line_of(relay)
            relay.send_signal(signal.SIGKILL)
            relay.communicate()
        faulty = lakes.relay("--max-calls", "8", "--fault", "loss=0.2,delay=2,duplicate=0.3")
        honest = lakes.relay("--max-calls", "8", "--metrics-port", "0")
        lakes.wait_until(40)
        for relay in (faulty, honest):
            relay.terminate()
            assert ended(relay)[0] == 0
        lakes.stop()
    check(tmp_path, 40)


@pytest.mark.parametrize(
    ("kills", "executed"), [(1, False), pytest.param(KILLS, True, marks=pytest.mark.slow, id="many")]
)
def test_killed_servers_resume_and_their_answers_hold(tmp_path: Path, kills: int, executed: bool) -> None:
    chosen, calls = random.Random(6), 15 + 15 * kills
    # Number of answered calls of the killed one at that time: at most half of them, on any machine.
    due = sorted(chosen.randint(0, calls // 2) for _ in range(kills))
    with served(tmp_path, calls, "--on-demand", "--block-seconds", "0.2") as lakes:
        relay = lakes.relay("--max-calls", "5", "--max-packets", "5")
        line_of(relay)
        for number in range(kills):
            own = KILLED[number % 2]
            lakes.wait_for_answers(own, due[number])
            told = lakes.header(own)
            lakes.processes[own].kill()
            lakes.processes[own].communicate()
            lakes.again(own)
            assert lakes.header(own, told["height"]) == told
        lakes.wait_until(calls)
        relay.terminate()
        assert ended(relay)[0] == 0
        lakes.stop()
    check(tmp_path, calls)
    for own in KILLED if executed else ():
        again = start("check", str(tmp_path / own), "--execute", "--validator-key", str(tmp_path / f"{own}.key"))
        assert ended(again)[0] == 0


def test_message_is_sent_over_tls_and_awaited(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    (tmp_path / "left.toml").write_text(scenario_text("left", 0))
    write_key(tmp_path / "me.key", AccountKey.generate())
    arguments = ["--scenario", str(tmp_path / "left.toml"), "--drawn-keys", "--on-demand", "--block-seconds", "0"]
    tls = ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    server = start("serve", str(tmp_path / "left"), "--json", "--port", "0", *arguments, *tls)
    try:
        url = line_of(server)["url"]
        assert url.startswith("https://127.0.0.1:")
        message = ["--key", str(tmp_path / "me.key"), "--to", "caller-left", "--method", "x"]
        sent = start("send", url, *message, "--wait", "--json", "--ca", str(files.certificate))
        answer = line_of(sent)
        assert (ended(sent), answer["nonce"], answer["height"]) == ((0, ""), 1, 1)
        stranger = start("send", url, *message)
        code, error = ended(stranger)
        assert (code, error.count("\n")) == (2, 1)
        assert "certificate" in error.lower()
    finally:
        server.terminate()
        assert ended(server)[0] == 0
