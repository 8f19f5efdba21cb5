"""Real processes: two served domain lakes with file keys and a relay process over sockets, with kills."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from causeway.cli.app import build_app
from causeway.core.vocabulary import Event, Kind
from causeway.network.opened_lake import open_lake
from causeway.service.keys.key_files import AccountKey, read_key, write_key
from tests.service.test_processes import SECONDS, ended, line_of, start
from tests.support.common.domain_lakes import ENDS, HOME, scenario_text, sending
from tests.support.common.kills import KILLS

SENDS = {
    "near": sending("alice", "echo-right", 4)
    + sending("treasury", "echo-third", 2)
    + sending("alice", "bob", method="transporter.transfer", amount=700),
    "far": sending("bob", "echo-left", 3) + sending("carol", "treasury", method="transporter.transfer", amount=900),
}
REQUESTS = {("left", "right"): 5, ("main", "third"): 2, ("right", "left"): 3, ("third", "main"): 1}
"""How many requests there are of each pair of chains."""

EXECUTED = {"near": 3, "far": 6}
"""How many calls programs of each lake execute; transfers run no program."""


class ServedLakes:
    """Both lakes, each served by a process."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.pace = "--block-seconds", str(seconds)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.urls: dict[str, str] = {}
        for chain in HOME:
            write_key(folder / f"{chain}.key", AccountKey.generate())
        for lake in ENDS:
            path = folder / f"{lake}.toml"
            path.write_text(scenario_text(lake, SENDS[lake]))
            self.processes[lake] = self._start(lake, "--port", "0", "--scenario", str(path))
        for lake in ENDS:
            self.urls[lake] = line_of(self.processes[lake])["url"]

    def keys(self, lake: str) -> list[str]:
        """Return the arguments that name the keys of all chains to a lake."""
        found: list[str] = []
        for chain, home in HOME.items():
            path = self.folder / f"{chain}.key"
            if home == lake:
                found += ["--validator-key", f"{chain}={path}"]
            else:
                found += ["--validators", f"{chain}={read_key(path).public.hex()}"]
        return found

    def _start(self, lake: str, *arguments: str) -> subprocess.Popen[str]:
        return start("serve", str(self.folder / lake), "--json", *self.pace, *self.keys(lake), *arguments)

    def again(self, lake: str) -> None:
        """Restart an ended server at its address; its lake knows the served data."""
        self.processes[lake] = self._start(lake, "--port", self.urls[lake].rsplit(":", 1)[1])
        line_of(self.processes[lake])

    def relay(self, *arguments: str) -> subprocess.Popen[str]:
        return start("relay", *self.urls.values(), "--json", "--poll", "0.05", *arguments)

    def answered(self) -> bool:
        """Return whether every request has its response."""
        for (chain, foreign), count in REQUESTS.items():
            address = f"{self.urls[HOME[chain]]}/v1/chains/{chain}/channels/{foreign}"
            (row,) = httpx.get(address, timeout=30).json()["channels"]
            if row["next_response"] < count or row["count"]:
                return False
        return True

    def wait_for_answers(self) -> None:
        end = time.monotonic() + SECONDS
        while not self.answered():
            assert time.monotonic() < end, "requests are still not answered"
            time.sleep(0.2)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
            assert ended(process)[0] == 0

    def check(self) -> None:
        """Assert that every call was executed once, and that both lakes reproduce from their record."""
        for lake in ENDS:
            opened = open_lake(str(self.folder / lake))
            rows: list[dict[str, Any]] = []
            for path in opened.lake.log_files("events"):
                rows += opened.lake.storage.read_table(path).to_pylist()
            taken = [
                (row["source"], row["destination"], row["substream"], row["index"])
                for row in rows
                if row["kind"] == Kind.REQUEST and row["events"] & Event.EXECUTED
            ]
            assert len(taken) == len(set(taken)) == EXECUTED[lake]
            secrets = [
                argument
                for chain, home in HOME.items()
                if home == lake
                for argument in ("--validator-key", str(self.folder / f"{chain}.key"))
            ]
            result = CliRunner().invoke(build_app(), ["check", str(self.folder / lake), "--execute", *secrets])
            assert result.exit_code == 0, result.output


@contextmanager
def serve_lakes(folder: Path, seconds: float = 0.5) -> Iterator[ServedLakes]:
    """Serve both lakes with a block interval while the body runs."""
    lakes = ServedLakes(folder, seconds)
    try:
        yield lakes
    finally:
        for process in lakes.processes.values():
            process.kill()
            process.wait()


def test_two_lakes_and_a_relay_process(tmp_path: Path) -> None:
    with serve_lakes(tmp_path, seconds=0.3) as lakes:
        time.sleep(0.6)  # some blocks, so that the scenario's calls are sent
        relay = lakes.relay("--once")
        output, error = relay.communicate(timeout=SECONDS)
        assert relay.returncode == 0, error
        said = {row["direction"]: row for row in map(json.loads, output.splitlines())}
        for (chain, foreign), count in REQUESTS.items():
            assert said[f"{chain}>{foreign}"]["messages"] == count + REQUESTS.get((foreign, chain), 0)
            assert not said[f"{chain}>{foreign}"]["errors"]
        assert lakes.answered()
        lakes.stop()
        lakes.check()


@pytest.mark.slow
def test_killed_servers_and_relay_processes_resume(tmp_path: Path) -> None:
    chance = random.Random(7)
    with serve_lakes(tmp_path) as lakes:
        relay = lakes.relay()
        for number in range(max(3, KILLS)):
            time.sleep(chance.uniform(0.5, 2.5))
            if lake := ("far", "", "near")[number % 3]:
                lakes.processes[lake].send_signal(signal.SIGKILL)
                lakes.processes[lake].wait()
                lakes.again(lake)
            else:
                relay.kill()
                relay.wait()
                relay = lakes.relay()
        lakes.wait_for_answers()
        relay.terminate()
        ended(relay)
        lakes.stop()
        lakes.check()
