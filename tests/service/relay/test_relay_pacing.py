"""Pass scheduling and termination of a relay process, for every protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest

from causeway.service.http.client import RefusedForGood, ServiceError
from causeway.service.journal import SILENT
from causeway.service.relay.loop import Direction, DirectionProgress, PassPacing, RelayLoop


class State(Enum):
    """Result state of a pass."""

    IDLE = "idle"
    WAITING = "waiting"
    SUBMITTED = "submitted"
    FAILED = "failed"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True)
class PassResult:
    """Result of a pass."""

    state: State
    why: str = ""
    messages: int = 0
    transactions: int = 0


Play = Callable[[int], State]
"""What a pass of a direction comes to, by how many were before it."""


class ScriptedPasses(RelayLoop[DirectionProgress, PassResult]):
    """Scripted passes on their own clock."""

    def __init__(self, plays: Mapping[str, Play]) -> None:
        directions = [Direction("a", name, "target") for name in plays]
        super().__init__([DirectionProgress(way) for way in directions], PassPacing(), None, 0, None, SILENT)
        self.plays = plays
        self.made = dict.fromkeys(plays, 0)
        self.time = 0.0

    async def _pass(self, progress: DirectionProgress) -> PassResult:
        name = progress.direction.source
        state = self.plays[name](self.made[name])
        self.made[name] += 1
        assert sum(self.made.values()) < 10_000, "it does not end"
        progress.state = state.value
        if state is State.FAILED:
            raise ServiceError("an answer that is none")
        if state is State.FORBIDDEN:
            raise RefusedForGood("sender: only others")
        progress.transactions += state is State.SUBMITTED
        return PassResult(state, transactions=int(state is State.SUBMITTED))

    def _waits(self, progress: DirectionProgress) -> bool:
        return progress.state == State.WAITING.value

    def _left(self, passed: PassResult) -> int:
        return 0

    def _remark(self, progress: DirectionProgress, passed: PassResult, why: str) -> None:
        """Log nothing."""

    def _answered(self, step: Any) -> Awaitable[Any]:
        raise AssertionError("nothing is asked")

    def _now(self) -> float:
        return self.time

    async def _sleep(self, seconds: float) -> None:
        self.time += seconds


def count_passes(**plays: Play) -> dict[str, int]:
    """Return the number of passes per direction until the process ends."""
    passes = ScriptedPasses(plays)
    asyncio.run(passes.until_idle())
    return passes.made


def idle_pass(made: int) -> State:
    return State.IDLE


def failing_pass(made: int) -> State:
    return State.FAILED


def test_idle_network_needs_one_pass() -> None:
    assert count_passes(one=idle_pass, other=idle_pass) == {"one": 1, "other": 1}


def test_failing_direction_does_not_slow_others() -> None:
    """The other direction polls as long as it waits."""
    looks: list[float] = []

    def waits(made: int) -> State:
        looks.append(passes.time)
        return State.WAITING if made < 400 else State.IDLE

    passes = ScriptedPasses({"failing": failing_pass, "waiting": waits})
    asyncio.run(passes.until_idle())
    failing, waiting = passes.progress
    assert passes.made["failing"] == PassPacing().tries and failing.given_up and not waiting.given_up
    assert max(after - before for before, after in pairwise(looks)) < 2 * PassPacing().poll


@pytest.mark.parametrize("once", [True, False])
def test_permanently_rejected_direction_ends_at_once(once: bool) -> None:
    plays: dict[str, Play] = {"refused": lambda made: State.FORBIDDEN}
    passes = ScriptedPasses(plays | ({"other": idle_pass} if once else {}))
    asyncio.run(passes.until_idle() if once else asyncio.wait_for(passes.forever(), 5))
    assert passes.made == dict.fromkeys(passes.plays, 1)
    refused = passes.progress[0]
    assert refused.given_up and refused.hopeless and refused.why == "sender: only others"


def test_directions_failing_in_turns_do_not_block_the_process() -> None:
    """A hostile lake may let one fail whenever the other does not."""
    last: dict[str, State] = {}

    def play(own: str, other: str) -> State:
        both_failed = last.get(own) is last.get(other) is State.FAILED
        last[own] = State.IDLE if both_failed else State.FAILED
        return last[own]

    passes = ScriptedPasses({"one": lambda made: play("one", "other"), "other": lambda made: play("other", "one")})
    asyncio.run(passes.until_idle())
    assert not any(progress.given_up for progress in passes.progress)


@pytest.mark.parametrize("order", ["requests responses", "responses requests"])
def test_delivery_of_one_direction_may_be_work_for_another(order: str) -> None:
    """Accepted requests cause responses, and the first pass for them fails."""
    taken = brought = looks = 0

    def requests(made: int) -> State:
        nonlocal taken
        taken = made >= 3
        return State.SUBMITTED if made == 0 else State.IDLE if taken else State.WAITING

    def responses(made: int) -> State:
        nonlocal brought, looks
        looks += taken
        if not taken or brought:
            return State.IDLE
        if looks == 1:
            return State.FAILED
        brought = 1
        return State.SUBMITTED

    plays: dict[str, Play] = {"requests": requests, "responses": responses}
    count_passes(**{name: plays[name] for name in order.split()})
    assert brought
