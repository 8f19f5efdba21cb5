"""A soak: two served lakes, two honest relay processes, a hostile lake, a hostile client, and kills at random.

    python -m tests.support.common.soak --minutes 30 --seed 1
    python -m tests.support.common.soak --minutes 60 --clients 200 --between-kills 60

Users of both lakes call each other all the time. A third relay process is pointed at a hostile lake, which pretends to
be the right one; hostile clients send both lakes what they can think of. Every few seconds one process is killed with
SIGKILL and started again. In the end everything that was sent must have been received once, in order, and answered
once, in order; no process may have ended of itself or have had more memory than ``MEMORY``. In a run of half an hour or
more the memory and the open files of lakes and relays must have been level, too.

What is chosen at random follows from the seed; when it happens is the wall clock's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from causeway.service.http.client import ServiceClient, ServiceError
from causeway.service.ibc.routes import ZoneViews
from causeway.service.keys.key_files import AccountKey, write_key
from tests.service.test_processes import opened, validators_of
from tests.support.common.lakes import ENDS, OTHER, Lakes, scenario_text

MEMORY = {"lake": 700 << 20, "relay": 300 << 20, "hostile": 400 << 20}
"""Resident bytes that a process of a kind may have at any time."""

LEVEL = 1.25
"""By so much the median of the last quarter of a run may be above that of the second."""

LONG = 1800.0
"""Seconds of a run after which memory and files are level."""

TICK_SECONDS = 0.2
STARTING = 120.0
"""Seconds after which a process that does not answer, or messages that do not arrive, are a failure."""


@dataclass
class Member:
    """A process that is killed and started again. ``sizes``, ``files``: its resident bytes and how many files it had
    open, as they were looked at."""

    name: str
    kind: str
    arguments: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    kills: int = 0
    sizes: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    due: float = 0.0

    def start(self) -> None:
        """Start the process; what it says goes to its log."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=log, env=environment)
        self.starts += 1

    def kill(self, pause: float) -> None:
        """End the process at once; it is started again after a pause."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process, self.kills, self.due = None, self.kills + 1, time.monotonic() + pause

    def look(self) -> None:
        """Take notice of the process's size. Raises ``AssertionError`` when it has ended of itself."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended of itself with {self.process.returncode}: {self.last_lines()}")
        with contextlib.suppress(FileNotFoundError, StopIteration):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            self.sizes.append(
                next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
            )
            self.files.append(len(os.listdir(f"/proc/{self.process.pid}/fd")))

    def last_lines(self) -> str:
        """Return the end of its log."""
        return self.log.read_bytes()[-2_000:].decode(errors="replace")


class Soak:
    """The processes of one soak, in a folder."""

    def __init__(self, folder: Path, seed: int, clients: int = 1, between: float = 5.0) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self._clients, self._between, self._long = clients, between, False
        self.ports = {name: free_port() for name in ("left", "right", "hostile")}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.members: dict[str, Member] = {}
        self.runner = asyncio.Runner()
        self.users = {own: ServiceClient(self.urls[own], tries=1) for own in ENDS}
        self.confirmed = dict.fromkeys(ENDS, 0)
        self.unsure = dict.fromkeys(ENDS, 0)
        causeway = [sys.executable, "-m", "causeway"]
        role = [sys.executable, "-m", "tests.support.common.soak_roles"]
        for name in (*ENDS, "first", "second"):
            write_key(folder / f"{name}.key", AccountKey.generate())
        for own in ENDS:
            scenario = folder / f"{own}.toml"
            scenario.write_text(scenario_text(own, calls=0, tick_seconds=TICK_SECONDS))
            pace = ["--on-demand", "--block-seconds", str(TICK_SECONDS * 2)]
            place = ["--scenario", str(scenario), "--port", str(self.ports[own])]
            self._add(own, "lake", [*causeway, "serve", str(folder / own), *place, *pace, *validators_of(folder, own)])
        ends = [self.urls["left"], self.urls["right"]]
        for name in ("first", "second"):
            key = ["--key", str(folder / f"{name}.key")]
            self._add(name, "relay", [*causeway, "relay", *ends, "--poll", "0.2", *key])
        self._add("hostile-lake", "hostile", [*role, "lake", str(self.ports["hostile"]), self.urls["right"], str(seed)])
        self._add("misled", "relay", [*causeway, "relay", ends[0], self.urls["hostile"]])
        self._add("hostile-client", "hostile", [*role, "client", *ends, str(seed), str(clients)])

    def _add(self, name: str, kind: str, arguments: list[str]) -> None:
        self.members[name] = Member(name, kind, arguments, self.folder / f"{name}.log")

    def run(self, seconds: float) -> None:
        """Send, kill and start again for so long."""
        self._long = seconds >= LONG
        for member in self.members.values():
            member.start()
        for own in ENDS:
            self.wait_for(own)
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + self.random.uniform(1, 3) * self._between
        while time.monotonic() < end:
            self.send(self.random.choice(sorted(ENDS)))
            for member in self.members.values():
                member.look()
                if member.process is None and time.monotonic() >= member.due:
                    member.start()
            if time.monotonic() >= next_kill:
                alive = [member for member in self.members.values() if member.process is not None]
                self.random.choice(alive).kill(self.random.uniform(0, 3))
                next_kill = time.monotonic() + self.random.uniform(1, 3) * self._between
            time.sleep(0.2)

    def send(self, own: str) -> None:
        """Let a user of one lake call the other's program; count what is known to be in a block."""
        call = {"receiver": f"echo-{OTHER[own]}", "method": "hello", "text": "x" * self.random.randint(0, 2_000)}
        message = {"to": f"caller-{own}", "call": call}
        try:
            _, height = self.runner.run(self.users[own].send(message, 2))
        except ServiceError:
            self.unsure[own] += 1
            return
        self.confirmed[own] += height is not None
        self.unsure[own] += height is None

    def tails(self, own: str) -> tuple[int, int]:
        """Return head and tail of a chain's packets."""
        answer = httpx.get(f"{self.urls[own]}/v1/chains/{own}/queues/{OTHER[own]}", timeout=30).json()
        return answer["send"]["head"], answer["send"]["tail"]

    def is_answered(self) -> bool:
        """Return whether both lakes say that all is answered; one that is asked by too many at once says nothing."""
        try:
            return all(head == tail for head, tail in map(self.tails, ENDS))
        except (httpx.HTTPError, KeyError):
            return False

    def wait_for(self, own: str) -> None:
        """Wait until a lake answers."""
        end = time.monotonic() + STARTING
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.urls[own]}/v1/health", timeout=5).status_code == 200:
                    return
            self.members[own].look()
            assert time.monotonic() < end, f"{own} does not answer: {self.members[own].last_lines()}"
            time.sleep(0.2)

    def settle(self) -> None:
        """Start what is down again, and wait until all is delivered and answered; then end all processes gently."""
        for member in self.members.values():
            if member.process is None:
                member.start()
        for own in ENDS:
            self.wait_for(own)
        end = time.monotonic() + STARTING
        while not self.is_answered():
            for member in self.members.values():
                member.look()
            assert time.monotonic() < end, f"not answered: {self.members['first'].last_lines()}"
            time.sleep(0.5)
        for name in ("hostile-client", "misled", "first", "second", "hostile-lake", "left", "right"):
            member = self.members[name]
            member.look()
            assert member.process is not None
            member.process.terminate()
            code = member.process.wait(timeout=STARTING)
            assert code == 0 or member.kind == "hostile", f"{name} ended with {code}: {member.last_lines()}"

    def kill_all(self) -> None:
        """Leave nothing running."""
        for member in self.members.values():
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()
        self.runner.close()

    def check(self) -> dict[str, int]:
        """Assert what came of everything; return how many calls each lake made."""
        lakes = Lakes.__new__(Lakes)
        lakes.nodes = {own: opened(self.folder, own) for own in ENDS}
        lakes.views = {own: ZoneViews(node.opened) for own, node in lakes.nodes.items()}
        try:
            calls = {own: lakes.lane(own)["send"]["tail"] for own in ENDS}
            outcome = lakes.outcome()
            for own in ENDS:
                assert lakes.received(OTHER[own]) == list(range(calls[own])), "received once, in order"
                assert lakes.answered(own) == list(range(calls[own])), "answered once, in order"
                state = outcome[f"caller-{own}"]
                assert (state["answered"], state["rejected"], state["malformed"]) == (calls[own], 0, 0)
                assert self.confirmed[own] <= calls[own] <= self.confirmed[own] + self.unsure[own]
        finally:
            lakes.close()
        for member in self.members.values():
            most = MEMORY[member.kind] * (self._clients if member.name == "hostile-client" else 1)
            assert max(member.sizes) < most, f"{member.name} had {max(member.sizes) >> 20} MiB"
            for counts in (member.sizes, member.files) if self._long and member.kind != "hostile" else ():
                quarter = len(counts) // 4
                second, last = median(counts[quarter : 2 * quarter]), median(counts[-quarter:])
                assert last <= LEVEL * second, f"{member.name} grew: {second} to {last} in the median"
            assert "Traceback" not in member.log.read_text(errors="replace"), member.last_lines()
        return calls

    def table(self) -> str:
        """Return a line a process: starts and kills; its size and its open files, the median of each quarter of the
        run, and the most."""
        lines = [f"{'process':<15} {'starts':>6} {'kills':>6}  {'MiB':<36} files"]
        for member in self.members.values():
            cells = [f"{member.name:<15} {member.starts:>6} {member.kills:>6} "]
            for counts, unit in ((member.sizes or [0], 20), (member.files or [0], 0)):
                quarter = max(len(counts) // 4, 1)
                parts = [counts[row * quarter : (row + 1) * quarter] or [0] for row in range(4)]
                cells += [f"{number >> unit:>6}" for number in (*map(median, parts), max(counts))]
            lines.append(" ".join(cells))
        return "\n".join(lines)


def median(sizes: list[int]) -> int:
    """Return the middle one."""
    return sorted(sizes)[len(sizes) // 2]


def free_port() -> int:
    """Return a port of this machine that nobody has."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def soak(folder: Path, seed: int, clients: int = 1, between: float = 5.0) -> Iterator[Soak]:
    """Give a soak whose processes all end with the body."""
    found = Soak(folder, seed, clients, between)
    try:
        yield found
    finally:
        found.kill_all()


def main(arguments: Any = None) -> None:
    """Run a soak and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=1, help="hostile clients")
    parser.add_argument("--between-kills", type=float, default=5.0, help="least seconds between two kills")
    parser.add_argument("--folder", type=Path, help="where lakes and logs stay; a temporary folder if not given")
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        running = stack.enter_context(soak(folder, given.seed, given.clients, given.between_kills))
        try:
            running.run(60 * given.minutes)
            running.settle()
            calls = running.check()
            print(f"all delivered once, in order: {calls}; known to users: {running.confirmed}")
        finally:
            print(running.table(), flush=True)


if __name__ == "__main__":
    main()
