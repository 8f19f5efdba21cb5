"""A relay process: passes of the relay loop over HTTP, each direction at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import ProofError
from causeway.proofs.tendermint.trust import time_left
from causeway.service.faults import Faults, FaultSettings
from causeway.service.http_client import ServiceError, Unreachable
from causeway.service.ibc.client import LakeClient
from causeway.service.ibc.lanes import QueueView, Rules, rules_of
from causeway.service.ibc.memory import Memory
from causeway.service.ibc.relay_plan import RelaySettings
from causeway.service.ibc.relayer import Passed, State, relay
from causeway.service.ibc.steps import Direction, ReadHeader, ReadLane, ReadPackets, ReadProofs, Step, Submit
from causeway.service.journal import SILENT, Journal

HOPELESS = (State.FROZEN, State.EXPIRED, State.REFUSED)
"""States in which nothing that a process can do moves a direction."""

WAIT = 20
"""Seconds that a request waits for a block."""

MOST_NAMED = 64
"""Names that a lake gives of which count is kept; further ones are counted together."""

MOST_CHARACTERS = 500
"""Of why something was refused, so many are kept."""

Position = tuple[QueueView, QueueView, int, str]
"""What a target has come to: its receipts and packets, the newest header that it trusts, the state of its client."""


@dataclass(frozen=True)
class Pacing:
    """When passes are made, in seconds.

    Attributes:
        poll: between two of a direction.
        longest_pause: at most between two after errors, refusals, or passes that moved nothing.
        longest_wait: a transaction is waited for so long before the next pass looks for itself.
        longest_pass: a pass takes no longer; the next one finds out by itself what is left.
        grace: passes that are being made when the process is told to end have so long.
        tries: passes without an effect, one after the other, after which ``until_idle`` gives a direction up.
    """

    poll: float = 0.5
    longest_pause: float = 30.0
    longest_wait: float = 60.0
    longest_pass: float = 300.0
    grace: float = 5.0
    tries: int = 20


@dataclass
class Progress:
    """What a process did in one direction, and what it last saw there.

    ``failures``: passes that failed, one after the other, up to the last; ``stalled``: passes that found the target as
    it was before the transactions of the pass before; ``given_up``: whether no more are made.
    """

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
    failures: int = 0
    stalled: int = 0
    given_up: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        content = {name: value for name, value in self.__dict__.items() if name not in ("direction", "given_up")}
        return {"direction": str(self.direction), **content}

    @property
    def hopeless(self) -> bool:
        """Return whether the target's client takes nothing from this process any more, or it was given up."""
        return self.given_up or self.state in {state.value for state in HOPELESS}

    @property
    def fruitless(self) -> int:
        """Return how many passes one after the other, up to the last, failed or moved nothing."""
        return self.failures + self.stalled

    def cells(self) -> tuple[str, ...]:
        """Return what the table for a person says of it: the columns of ``relay_process``."""
        numbers = (self.backlog, f"{self.oldest_age} blocks", self.transactions, self.headers, self.messages)
        counts = (self.account.get(name, 0) for name in ("accepted", "redundant", "refused"))
        fees = f"{self.account.get('wasted', 0)} of {self.account.get('fees', 0)}"
        return str(self.direction), self.state, *map(str, (*numbers, *counts)), fees


Report = Callable[[Progress], None]


async def directions_between(
    a: LakeClient, b: LakeClient, only: Collection[str] = (), side: str = "both"
) -> tuple[list[Direction], dict[str, Rules]]:
    """Return the directions in which two lakes can be relayed, and the rules at each end.

    ``only``: connections as ``CHAIN/COUNTERPARTY``, either way round; without any, all. ``side``: ``both``, or what
    goes to ``a`` or to ``b`` alone.

    Raises:
        InvalidInput: there is no direction, or the networks' options do not go together.
        ServiceError: a lake does not answer.
    """
    status = {"a": await a.status(), "b": await b.status()}
    rules = {end: rules_of(content.options) for end, content in status.items()}
    own = {end: {chain.name for chain in content.chains if not chain.external} for end, content in status.items()}
    back = {(other, one) for one, other in status["b"].connections}
    pairs = [pair for pair in dict.fromkeys(status["a"].connections) if pair[0] in own["a"] and pair[1] in own["b"]]
    if own["a"] & own["b"]:
        shared = ", ".join(sorted(own["a"] & own["b"])[:MOST_NAMED])
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
    """A relay process over its directions. The clients' keys decide the fee accounts.

    ``report`` is called after every pass.

    Every direction is supervised: whatever goes wrong in a pass, its own direction pauses, longer each time, and starts
    again; no other notices.
    """

    def __init__(
        self,
        clients: Mapping[str, LakeClient],
        directions: Sequence[Direction],
        rules: Mapping[str, Rules],
        settings: RelaySettings | None = None,
        pacing: Pacing | None = None,
        faults: FaultSettings | None = None,
        seed: int = 0,
        report: Report | None = None,
        journal: Journal = SILENT,
    ) -> None:
        self._clients, self._rules = clients, rules
        self._settings, self._pacing = settings or RelaySettings(), pacing or Pacing()
        self._report = report or (lambda progress: None)
        self._journal = journal
        self.progress = [Progress(direction) for direction in directions]
        made = faults or FaultSettings()
        self._faults: dict[str, Faults[Submit]] = {str(way): Faults(made, f"{seed}/{way}") for way in directions}
        self._memories = {str(way): Memory() for way in directions}
        self._seen: dict[str, Position] = {}
        self._waited: dict[str, int] = {}
        """The target's clock when a direction last waited for a delay: one that stands still is waited for in vain."""
        self._random = random.Random()
        self._stopping = asyncio.Event()

    def account(self, direction: Direction) -> str:
        """Return the number of the fee account on a direction's target."""
        return str(self._clients[direction.other].number)

    def stop(self) -> None:
        """Let every direction end after the pass that it makes, or soon if that takes long (``Pacing.grace``)."""
        self._stopping.set()

    async def forever(self) -> None:
        """Make passes in all directions until ``stop``."""
        await self._until_stopped([self._direction(progress) for progress in self.progress])

    async def until_idle(self) -> None:
        """Make passes in all directions until none finds anything to do, or can do anything."""
        await self._until_stopped([self._idle()])

    async def _until_stopped(self, work: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Do all the work to its end; after ``stop`` it has a while, then it is cancelled wherever it is.

        What no pass is to blame for, such as an output that nobody reads any more, ends all and is raised.
        """
        tasks = [asyncio.create_task(item) for item in work]
        stop = asyncio.create_task(self._stopping.wait())
        left = set(tasks)
        try:
            while left and not self._stopping.is_set():
                done, _ = await asyncio.wait({*left, stop}, return_when=asyncio.FIRST_COMPLETED)
                left -= done
                if any(task.exception() is not None for task in done):
                    break
            if left and self._stopping.is_set():
                await asyncio.wait(left, timeout=self._pacing.grace)
        finally:
            for task in (*tasks, stop):
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [error for error in ended if isinstance(error, Exception)]
        if failed:
            raise failed[0]

    async def _idle(self) -> None:
        while not self._stopping.is_set():
            before, lost = self._handed_over(), self._lost_or_late()
            running = [progress for progress in self.progress if not progress.given_up]
            for progress in running:
                await self._supervised(progress)
            fruitless = [progress for progress in running if progress.fruitless]
            for progress in fruitless:
                if progress.fruitless >= self._pacing.tries:
                    progress.given_up = True
                    self._journal.error("given-up", direction=progress.direction, why=progress.why or "nothing moves")
            delayed = any(progress.state == State.DELAYED.value for progress in running if not progress.given_up)
            if not (fruitless or delayed) and (before, lost) == (self._handed_over(), self._lost_or_late()):
                return
            if fruitless or delayed:
                await self._pause(max((progress.fruitless for progress in fruitless), default=0))

    def _handed_over(self) -> int:
        return sum(progress.transactions for progress in self.progress)

    def _lost_or_late(self) -> int:
        return sum(faults.lost + len(faults.late) for faults in self._faults.values())

    async def _direction(self, progress: Progress) -> None:
        refused = 0
        while not self._stopping.is_set():
            passed = await self._supervised(progress)
            refused = refused + 1 if passed is not None and passed.state in HOPELESS else 0
            await self._pause(progress.fruitless + refused, progress)

    async def _pause(self, fruitless: int, progress: Progress | None = None) -> None:
        """Wait until the next pass is due, or ``stop``: twice as long after every pass that had no effect."""
        # Those who fail together shall not come again together.
        longest = self._pacing.longest_pause
        pause = min(self._pacing.poll * 2 ** min(fruitless, 30), max(longest, self._pacing.poll))
        pause *= self._random.uniform(0.8, 1.2)
        if fruitless and progress is not None:
            self._journal.debug("back-off", direction=progress.direction, seconds=round(pause, 2))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    async def _supervised(self, progress: Progress) -> Passed | None:
        """Make one pass in one direction, and take notice of whatever came of it; None if it failed."""
        state, why = progress.state, progress.why
        transactions, messages = progress.transactions, progress.messages
        try:
            async with asyncio.timeout(self._pacing.longest_pass):
                passed = await self._pass(progress)
        except Exception as error:
            self._failed(progress, error)
            return None
        if progress.failures:
            self._journal.info("recovered", direction=progress.direction, failures=progress.failures)
        progress.failures = 0
        if progress.transactions > transactions:
            self._journal.info(
                "delivered",
                direction=progress.direction,
                messages=progress.messages - messages,
                transactions=progress.transactions - transactions,
                left=max(progress.backlog - passed.messages, 0),
                height=progress.moved_at,
            )
        if passed.state in HOPELESS and (progress.state, progress.why) != (state, why):
            self._journal.warning("refused", direction=progress.direction, state=progress.state, why=progress.why)
        if passed.held and progress.why != why:
            self._journal.warning("lane-backs-off", direction=progress.direction, why=progress.why)
        if passed.state is State.ACCUSED:
            self._journal.error("fork", direction=progress.direction, why=progress.why)
        if progress.stalled:
            self._journal.warning("no-progress", direction=progress.direction, passes=progress.stalled)
        self._report(progress)
        return passed

    def _failed(self, progress: Progress, error: Exception) -> None:
        name = type(error).__name__
        expected = isinstance(error, ServiceError | ProofError | TimeoutError)
        progress.errors[name] = progress.errors.get(name, 0) + 1
        progress.state, progress.why = "error", (str(error) or name)[:MOST_CHARACTERS]
        progress.failures += 1
        note = self._journal.warning if expected else self._journal.error
        event = "lost" if isinstance(error, Unreachable) else "failed"
        note(event, direction=progress.direction, error=name, failures=progress.failures, why=progress.why)
        self._report(progress)

    async def _pass(self, progress: Progress) -> Passed:
        """Make one pass in one direction, and note what came of it."""
        direction = progress.direction
        steps = relay(direction, self._rules[direction.other], self._settings, self._memories[str(direction)])
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
        return passed

    def _answered(self, step: Step) -> Awaitable[Any]:
        client = self._clients[step.end]
        match step:
            case ReadLane():
                begin = step.packets_from, step.receipts_from
                if step.height is None:
                    return client.lane(step.chain, step.counterparty, *begin)
                return client.lane_at(step.chain, step.counterparty, step.height, *begin)
            case ReadHeader():
                return client.header(step.chain, step.height)
            case ReadProofs():
                return client.proofs(step.chain, step.height, step.keys)
            case ReadPackets():
                return client.packets(step.chain, step.counterparty, step.height, step.first, step.count)
            case Submit():
                raise AssertionError("a transaction is submitted, not asked for")

    async def _submitted(self, direction: Direction, step: Submit) -> int | None:
        """Submit a transaction, as the faults leave it; for the last one wait until a block has it. Returns its
        height."""
        client = self._clients[step.end]
        name, height = "", None
        for submit in self._faults[str(direction)].applied(step):
            name, height = await client.submit(submit.chain, submit.transaction, 0)
        if not step.last or not name:
            return height
        waited = 0.0
        while height is None and waited < self._pacing.longest_wait and not self._stopping.is_set():
            height = await client.height_of(name, WAIT)
            waited += WAIT
        return height

    async def _note(self, progress: Progress, passed: Passed, committed: int | None) -> None:
        direction, work = progress.direction, passed.work
        progress.state, progress.why = passed.state.value, passed.why[:MOST_CHARACTERS]
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
        self._note_stall(progress, passed)
        if passed.transactions and committed is not None:
            progress.moved_at = committed
            client = self._clients[direction.other]
            progress.account = await client.account(direction.target, client.number)
            for name, count in (await client.refusals(direction.target, committed, client.number)).items():
                known = name if name in progress.refused or len(progress.refused) < MOST_NAMED else "others"
                progress.refused[known] = progress.refused.get(known, 0) + count

    def _note_stall(self, progress: Progress, passed: Passed) -> None:
        """Note whether the target is as it was before what the last pass handed over."""
        if passed.state is State.HELD:
            progress.stalled += 1  # and what comes next is held against what was handed over last
            return
        if passed.state is State.DELAYED:
            stands = self._waited.get(str(progress.direction)) == passed.target.time
            progress.stalled = progress.stalled + 1 if stands else 0
            self._waited[str(progress.direction)] = passed.target.time
            return
        way, target = str(progress.direction), passed.target
        position = target.receipt, target.send, target.trusted[-1].height, target.state
        before = self._seen.pop(way, None)
        progress.stalled = progress.stalled + 1 if before == position and passed.transactions else 0
        if passed.transactions:
            self._seen[way] = position
