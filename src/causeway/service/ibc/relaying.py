"""A relay process: passes of the relay loop over HTTP, each direction at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.tendermint.trust import time_left
from causeway.service.faults import Faults, FaultSettings
from causeway.service.http_client import ServiceError
from causeway.service.ibc.client import LakeClient
from causeway.service.ibc.lanes import Rules, rules_of
from causeway.service.ibc.relay_plan import RelaySettings
from causeway.service.ibc.relayer import (
    Direction,
    Passed,
    ReadHeader,
    ReadLane,
    ReadPackets,
    ReadProofs,
    State,
    Step,
    Submit,
    relay,
)

HOPELESS = (State.FROZEN, State.EXPIRED, State.REFUSED)
"""States in which nothing that a process can do moves a direction."""

WAIT = 20
"""Seconds that a request waits for a block."""


@dataclass(frozen=True)
class Pacing:
    """When passes are made, in seconds: between two of a direction, after an error at most, and how long a transaction
    is waited for before the next pass looks for itself."""

    poll: float = 0.5
    longest_pause: float = 30.0
    longest_wait: float = 60.0


@dataclass
class Progress:
    """What a process did in one direction, and what it last saw there."""

    direction: Direction
    state: str = "starting"
    passes: int = 0
    transactions: int = 0
    messages: int = 0
    headers: int = 0
    without_header: int = 0
    backlog: int = 0
    oldest_index: int | None = None
    oldest_age: int = 0
    moved_at: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    account: dict[str, int] = field(default_factory=dict)
    expires_in: float = 0.0
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        content = {name: value for name, value in self.__dict__.items() if name != "direction"}
        return {"direction": str(self.direction), **content}

    @property
    def hopeless(self) -> bool:
        """Return whether the target's client takes nothing from this process any more."""
        return self.state in {state.value for state in HOPELESS}

    def cells(self) -> tuple[str, ...]:
        """Return what the table for a person says of it: the columns of ``relay_process``."""
        numbers = (self.backlog, f"{self.oldest_age} blocks", self.transactions, self.headers, self.messages)
        counts = (self.account.get(name, 0) for name in ("accepted", "redundant", "refused"))
        fees = f"{self.account.get('wasted', 0)} of {self.account.get('fees', 0)}"
        return str(self.direction), self.state, *map(str, (*numbers, *counts)), fees


Report = Callable[[Progress], None]


def relayer_number(name: str) -> int:
    """Return the number of a relayer's fee account: the number that its name is, or one made of the name."""
    if name.isascii() and name.isdigit() and int(name) < 2**31:
        return int(name)
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1


async def directions_between(
    a: LakeClient, b: LakeClient, only: Collection[str] = (), side: str = "both"
) -> tuple[list[Direction], dict[str, Rules]]:
    """Return the directions in which two lakes can be relayed, and the rules at each end.

    ``only``: connections as ``CHAIN/REMOTE``, either way round; without any, all. ``side``: ``both``, or what goes to
    ``a`` or to ``b`` alone.

    Raises:
        InvalidInput: there is no direction, or the networks' options do not go together.
        ServiceError: a lake does not answer.
    """
    status = {"a": await a.status(), "b": await b.status()}
    try:
        rules = {end: rules_of(content["options"]) for end, content in status.items()}
        own = {
            end: {chain["name"] for chain in content["chains"] if not chain["external"]}
            for end, content in status.items()
        }
        pairs = [(one, other) for one, other in status["a"]["connections"] if one in own["a"] and other in own["b"]]
        back = {(other, one) for one, other in status["b"]["connections"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError(f"a status is not what it should be: {error}") from None
    if own["a"] & own["b"]:
        shared = ", ".join(sorted(own["a"] & own["b"]))
        raise InvalidInput(f"both lakes run {shared}: it must be external in one of them")
    if rules["a"] != rules["b"]:
        raise InvalidInput(f"the options of the two networks differ: {rules['a']} and {rules['b']}")
    pairs = [pair for pair in pairs if pair in back]
    if only:
        pairs = [(one, other) for one, other in pairs if f"{one}/{other}" in only or f"{other}/{one}" in only]
    if not pairs:
        raise InvalidInput(f"{a.url} and {b.url} have no such connection: no chain of one is external in the other")
    found = [Direction("a", one, other) for one, other in pairs] + [Direction("b", other, one) for one, other in pairs]
    return [direction for direction in found if side in ("both", direction.other)], rules


class Relaying:
    """A relay process over its directions. ``name``: decides the fee account; ``report`` is called after every pass."""

    def __init__(
        self,
        clients: Mapping[str, LakeClient],
        directions: Sequence[Direction],
        rules: Mapping[str, Rules],
        settings: RelaySettings | None = None,
        pacing: Pacing | None = None,
        name: str = "relay",
        faults: FaultSettings | None = None,
        seed: int = 0,
        report: Report | None = None,
    ) -> None:
        self._clients, self._rules = clients, rules
        self._settings, self._pacing = settings or RelaySettings(), pacing or Pacing()
        self.name, self.number = name, relayer_number(name)
        self._report = report or (lambda progress: None)
        self.progress = [Progress(direction) for direction in directions]
        made = faults or FaultSettings()
        self._faults: dict[str, Faults[Submit]] = {str(way): Faults(made, f"{seed}/{name}/{way}") for way in directions}
        self._random = random.Random(f"{seed}/{name}")
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let every direction end after the pass that it makes."""
        self._stopping.set()

    async def forever(self) -> None:
        """Make passes in all directions until ``stop``."""
        await asyncio.gather(*(self._direction(progress) for progress in self.progress))

    async def until_idle(self) -> None:
        """Make passes in all directions until none finds anything to do, or can do anything.

        Raises:
            ServiceError: a lake does not answer.
        """
        while not self._stopping.is_set():
            before = sum(progress.transactions for progress in self.progress)
            lost = self._lost_or_late()
            for progress in self.progress:
                await self._pass(progress)
            if (before, lost) == (sum(progress.transactions for progress in self.progress), self._lost_or_late()):
                return

    def _lost_or_late(self) -> int:
        return sum(faults.lost + len(faults.late) for faults in self._faults.values())

    async def _direction(self, progress: Progress) -> None:
        pause = self._pacing.poll
        while not self._stopping.is_set():
            try:
                passed = await self._pass(progress)
                hopeless = passed.state in HOPELESS
            except (ServiceError, ProofError) as error:
                name = type(error).__name__
                progress.errors[name] = progress.errors.get(name, 0) + 1
                progress.state, progress.why = "error", str(error)
                self._report(progress)
                hopeless = True
            # Those who fail together shall not come again together.
            pause = min(2 * pause, self._pacing.longest_pause) if hopeless else self._pacing.poll
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause * self._random.uniform(0.8, 1.2))

    async def _pass(self, progress: Progress) -> Passed:
        """Make one pass in one direction, and note what came of it."""
        direction = progress.direction
        steps = relay(direction, self._rules[direction.other], self._settings)
        answer: Any = None
        committed: int | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                passed: Passed = end.value
                break
            if isinstance(step, Submit):
                height = await self._submitted(direction, step)
                committed, answer = height if height is not None else committed, None
            else:
                answer = await self._answered(step)
        await self._note(progress, passed, committed)
        self._report(progress)
        return passed

    def _answered(self, step: Step) -> Awaitable[Any]:
        client = self._clients[step.end]
        match step:
            case ReadLane():
                return client.lane(step.chain, step.remote, step.packets_from, step.receipts_from)
            case ReadHeader():
                return client.header(step.chain, step.height)
            case ReadProofs():
                return client.proofs(step.chain, step.height, step.keys)
            case ReadPackets():
                return client.packets(step.chain, step.remote, step.height, step.first, step.count)
            case Submit():
                raise AssertionError("a transaction is submitted, not asked for")

    async def _submitted(self, direction: Direction, step: Submit) -> int | None:
        """Submit a transaction, as the faults leave it; for the last one wait until a block has it. Returns its
        height."""
        client = self._clients[step.end]
        ticket, height = 0, None
        for submit in self._faults[str(direction)].applied(step):
            ticket, height = await client.submit(submit.chain, self.number, submit.transaction, 0)
        if not step.last or not ticket:
            return height
        waited = 0.0
        while height is None and waited < self._pacing.longest_wait and not self._stopping.is_set():
            height = await client.height_of(ticket, WAIT)
            waited += WAIT
        return height

    async def _note(self, progress: Progress, passed: Passed, committed: int | None) -> None:
        direction, work = progress.direction, passed.work
        progress.state, progress.why = passed.state.value, passed.why
        progress.passes += 1
        progress.transactions += passed.transactions
        progress.messages += passed.messages
        progress.headers += passed.headers
        progress.without_header += bool(passed.messages and not passed.headers)
        progress.backlog = work.backlog
        progress.oldest_index = work.oldest[1] if work.oldest else None
        pushed = work.oldest[2] if work.oldest else None
        progress.oldest_age = 0 if pushed is None else passed.source.height - pushed
        latest = passed.target.trusted[-1].time
        period = self._rules[direction.other].unbonding_ns
        progress.expires_in = time_left(latest, period, passed.target.time) / 1e9
        if passed.transactions and committed is not None:
            progress.moved_at = committed
            client = self._clients[direction.other]
            progress.account = await client.account(direction.target, self.number)
            for name, count in (await client.refusals(direction.target, committed, self.number)).items():
                progress.refused[name] = progress.refused.get(name, 0) + count
