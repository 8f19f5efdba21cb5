"""Two deployments that exchange streams over HTTP, both killed again and again, one of four endpoints lying.

    python -m tests.support.common.xnet_soak --calls 100000 --kills 20 --seed 1

Programs of both lakes call each other. Whenever a drawn share of the calls is answered, one of the two processes is
killed with SIGKILL and started again. In the end every call must have been received once, in order, and answered once,
in order; both lakes must come out the same when they are executed again; nothing that the lying endpoint served may be
in a block. What is chosen at random follows from the seed.

All kills fall into the exchange, however fast or slow the machine is, since not the clock decides but what the lakes
hold: the calls are made over many blocks, which do not follow each other faster than ``TICK_SECONDS``; while one
process is down the other makes a drawn number of blocks, and is then held until both serve again.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.core.vocabulary import Event, Kind
from causeway.network.network import program_state
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.storage.lake import LakeError
from tests.support.common.soak import Member, free_port
from tests.support.common.subnet_lakes import ENDS, OTHER, scenario_text

TICK_SECONDS = 0.2
TICKS_A_KILL = 10
"""The calls of each side are made in so many blocks for each kill."""

ALONE = 4
"""Blocks that a process makes at most while the other is down: in all kills less than half of those with calls."""

SHARES = (0.05, 0.5)
"""How much of all calls is answered when the first kill may be due, and when the last one is."""

WITHOUT_PROGRESS = 300.0
"""Seconds after which nothing that moves is a failure."""

LYING = '\n[[faults]]\nkind = "node"\ndoes = "lying"\nchain = "left"\nnodes = [1]'


@dataclass(frozen=True)
class Outcome:
    """What came of it: calls answered on each side, kills, seconds, and how many blocks have a slice from a wire."""

    answered: dict[str, int]
    kills: int
    seconds: float
    blocks: dict[str, int]


class XNetSoak:
    """Both deployments, in a folder."""

    def __init__(self, folder: Path, seed: int, calls: int, kills: int) -> None:
        self.folder, self.random, self.calls = folder, random.Random(seed), calls
        self.due = sorted(self.random.uniform(*SHARES) for _ in range(kills))
        ports = {own: [free_port(), free_port()] for own in ENDS}
        self.members: dict[str, Member] = {}
        for own in ENDS:
            text = scenario_text(
                own,
                calls=calls,
                per_tick=max(calls // (TICKS_A_KILL * kills), 1),
                ports=ports,
                tick_seconds=TICK_SECONDS,
                more=LYING if own == "left" else "",
            )
            scenario = folder / f"{own}.toml"
            scenario.write_text(text)
            command = [sys.executable, "-m", "causeway", "serve", str(folder / own), "--scenario", str(scenario)]
            pace = ["--port", str(free_port()), "--block-seconds", str(TICK_SECONDS)]
            self.members[own] = Member(own, "lake", [*command, *pace], folder / f"{own}.log")

    def lake(self, own: str) -> OpenedLake | None:
        """Return one lake, None before it is made."""
        with contextlib.suppress(LakeError):
            return open_lake(str(self.folder / own))
        return None

    def answered(self, own: str) -> int:
        """Return how many calls of a side are answered by the last height."""
        opened = self.lake(own)
        with contextlib.suppress(LakeError):
            if opened is not None:
                state = program_state(opened.lake, opened.manifest(), opened.topology, f"caller-{own}")
                return int(state["answered"])
        return 0

    def height(self, own: str) -> int:
        """Return the last height of a lake, 0 before it is made."""
        opened = self.lake(own)
        return 0 if opened is None else opened.last_height()

    def run(self) -> Outcome:
        """Serve and kill until everything is answered; then end both processes gently."""
        begun = time.monotonic()
        for own in ENDS:
            self.members[own].start()
        self.until(self.both_serve)
        for share in self.due:
            self.until(partial(self.is_answered, share))
            self.kill(self.random.choice(ENDS))
        self.until(self.is_answered)
        seconds = time.monotonic() - begun
        for member in self.members.values():
            assert member.process is not None
            member.process.terminate()
            assert member.process.wait(timeout=60) == 0, member.last_lines()
        answered, blocks = ({own: of(own) for own in ENDS} for of in (self.answered, self.carried))
        return Outcome(answered, sum(member.kills for member in self.members.values()), seconds, blocks)

    def kill(self, own: str) -> None:
        """Kill one process, let the other make some blocks, and start the first again."""
        killed, other = self.members[own], OTHER[own]
        killed.kill(0.0)
        assert self.share() < 1.0, "a kill after the exchange shows nothing"
        alone = self.height(other) + self.random.randint(0, ALONE)
        self.until(lambda: self.height(other) >= alone)
        survivor = self.members[other].process
        assert survivor is not None
        survivor.send_signal(signal.SIGSTOP)
        try:
            killed.start()
            self.until(self.both_serve)
        finally:
            survivor.send_signal(signal.SIGCONT)

    def share(self) -> float:
        """Return how much of all calls is answered."""
        return sum(map(self.answered, ENDS)) / (self.calls * len(ENDS))

    def is_answered(self, share: float = 1.0) -> bool:
        """Return whether so much of all calls is answered."""
        return self.share() >= share

    def both_serve(self) -> bool:
        """Return whether both processes serve."""
        return all(map(self.serves, self.members.values()))

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something is reached. Raises ``AssertionError`` when a process ends of itself or nothing moves."""
        share, moved = self.share(), time.monotonic()
        while not reached():
            for member in self.members.values():
                member.look()
            before, share = share, self.share()
            if share != before:
                moved = time.monotonic()
            waited = time.monotonic() - moved
            assert waited < WITHOUT_PROGRESS, (share, [one.last_lines() for one in self.members.values()])
            time.sleep(TICK_SECONDS / 4)

    @staticmethod
    def serves(member: Member) -> bool:
        """Return whether a process runs and has begun to serve."""
        if member.process is None or not member.log.exists():
            return False
        return member.log.read_bytes().count(b"serve serving url=") >= member.starts

    def carried(self, own: str) -> int:
        """Return how many heights of a lake took a slice from a wire."""
        opened = self.lake(own)
        assert opened is not None
        return sum("carried" in opened.lake.manifest(at).outside for at in range(1, opened.last_height() + 1))

    def check(self) -> None:
        """Assert that all went over once, in order, that nothing was refused, and that both lakes execute again."""
        for own in ENDS:
            opened = self.lake(own)
            assert opened is not None
            found = {kind: self.received(opened, own, kind) for kind in (Kind.REQUEST, Kind.RESPONSE)}
            for indices in found.values():
                assert len(indices) == self.calls and bool((indices[1:] > indices[:-1]).all()), "once, in order"
            both = np.sort(np.concatenate(list(found.values())))
            assert np.array_equal(both, np.arange(1, 2 * self.calls + 1, dtype=np.uint64)), "without a gap"
            state = program_state(opened.lake, opened.manifest(), opened.topology, f"caller-{own}")
            assert (state["answered"], state["rejected"]) == (self.calls, 0)
            command = [sys.executable, "-m", "causeway", "check", "--execute", str(self.folder / own)]
            checked = subprocess.run(command, capture_output=True, text=True, check=False)
            assert checked.returncode == 0 and ": identical" in checked.stdout, checked.stdout + checked.stderr
        for member in self.members.values():
            assert "Traceback" not in member.log.read_text(errors="replace"), member.last_lines()

    def received(self, opened: OpenedLake, own: str, kind: Kind) -> npt.NDArray[np.uint64]:
        """Return the stream indices of what came from the other side, in the order in which it was received."""
        source = opened.position(OTHER[own])
        names = ["kind", "events", "source", "index"]

        def chosen(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
            columns = {name: batch[name].to_numpy() for name in names}
            assert not ((columns["kind"] == Kind.CONTROL) & (columns["events"] & Event.REJECTED > 0)).any(), "refused"
            mask: npt.NDArray[np.bool_] = (columns["kind"] == kind) & (columns["source"] == source)
            mask &= columns["events"] & Event.RECEIVED > 0
            return mask

        found = [
            opened.log_rows("events", height, opened.position(own), names, chosen)
            for height in range(1, opened.last_height() + 1)
        ]
        parts = [rows["index"].to_numpy() for rows in found if rows is not None and rows.num_rows]
        return np.concatenate([np.empty(0, dtype=np.uint64), *parts])

    def kill_all(self) -> None:
        """Leave nothing running."""
        for member in self.members.values():
            if member.process is not None and member.process.poll() is None:
                member.process.kill()
                member.process.wait()


@contextlib.contextmanager
def xnet_soak(folder: Path, seed: int, calls: int, kills: int) -> Iterator[XNetSoak]:
    """Give two deployments that have not begun, and leave nothing running."""
    soak = XNetSoak(folder, seed, calls, kills)
    try:
        yield soak
    finally:
        soak.kill_all()


def main() -> None:
    """Run the soak that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20)
    asked = parser.parse_args()
    if asked.kills < 1:
        parser.error("--kills: at least 1")
    with (
        tempfile.TemporaryDirectory(prefix="causeway-xnet-") as folder,
        xnet_soak(Path(folder), asked.seed, asked.calls, asked.kills) as soak,
    ):
        outcome = soak.run()
        print(f"{outcome.answered} answered in {outcome.seconds:.0f} s, {outcome.kills} kills, {outcome.blocks} blocks")
        soak.check()
        print("once, in order, all answered; both lakes come out the same when executed again")


if __name__ == "__main__":
    main()
