"""Supervised passes of a relay process, and their metrics.

Each direction runs at its own pace until it is idle or stopped. A failed pass pauses only its own direction,
longer each time. Steps are data that the process answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from causeway_proofs.errors import ProofError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causeway.service.http.client import RefusedForGood, ServiceClient, ServiceError, Unreachable
from causeway.service.journal import Journal
from causeway.service.relay.faults import FaultSettings, TransactionFaults


@dataclass(frozen=True)
class Direction:
    """Direction from chain ``source`` at ``end`` ("a" or "b") to ``target`` at the other end."""

    end: str
    source: str
    target: str

    @property
    def other(self) -> str:
        """End of ``target``."""
        return "b" if self.end == "a" else "a"

    def __str__(self) -> str:
        return f"{self.source}>{self.target}"


@dataclass(frozen=True)
class ChainRead:
    """Request for something of a chain.

    Attributes:
        end: End of the chain, "a" or "b".
        chain: Name of the chain.
    """

    end: str
    chain: str


@dataclass(frozen=True)
class Submit:
    """Submission of a transaction, without an answer; ``last`` marks the last one of a pass."""

    end: str
    chain: str
    transaction: bytes
    messages: int
    last: bool


K = TypeVar("K")


def advance_watermarks(before: Mapping[K, int], reported: Mapping[K, int]) -> tuple[dict[K, int], bool]:
    """Update the watermarks of a target.

    A correct target's numbers never fall. Numbers that fall and return, and new names, are no progress.

    Args:
        before: Watermarks by name.
        reported: Reported numbers by name.

    Returns:
        The new watermarks of the reported names, and True if one rose.
    """
    moved = any(number > before.get(name, number) for name, number in reported.items())
    return {name: max(number, before.get(name, number)) for name, number in reported.items()}, moved


WAIT = 20
"""Seconds that a request waits for a block."""

MOST_CHARACTERS = 500
"""Maximum length of a stored reason."""


@dataclass(frozen=True)
class PassPacing:
    """Timing of passes, in seconds.

    Attributes:
        poll: Interval between two passes of a direction.
        longest_pause: Maximum interval after errors, refusals, or passes without progress.
        longest_wait: Maximum wait for a transaction before the next pass.
        longest_pass: Deadline of a pass.
        grace: Time for passes in progress on shutdown.
        tries: Successive passes without effect before ``until_idle`` gives up a direction.
    """

    poll: float = 0.5
    longest_pause: float = 30.0
    longest_wait: float = 60.0
    longest_pass: float = 300.0
    grace: float = 5.0
    tries: int = 20


@dataclass
class DirectionProgress:
    """Work of a process in one direction, and its last observed state.

    Attributes:
        hopeless_states: States that a process cannot change.
        direction: The direction.
        state: Last state.
        why: Reason of the state.
        passes: Completed passes.
        transactions: Submitted transactions.
        messages: Submitted messages.
        moved_at: Height of the last transaction's block.
        errors: Failed passes by error name.
        failures: Successive failed passes up to the last.
        stalled: Successive passes without progress of the target.
        given_up: True if no more passes are made.
    """

    hopeless_states: ClassVar[frozenset[str]] = frozenset()

    direction: Direction
    state: str = "starting"
    why: str = ""
    passes: int = 0
    transactions: int = 0
    messages: int = 0
    moved_at: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    stalled: int = 0
    given_up: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the object for ``--json``."""
        content = {name: value for name, value in self.__dict__.items() if name not in ("direction", "given_up")}
        return {"direction": str(self.direction), **content}

    @property
    def hopeless(self) -> bool:
        """True if the target accepts nothing more from this process, or the direction was given up."""
        return self.given_up or self.state in self.hopeless_states

    @property
    def fruitless(self) -> int:
        """Successive passes that failed or made no progress; they determine the pause."""
        return self.failures + self.stalled

    @property
    def vain(self) -> int:
        """Successive passes without effect, bounded by ``PassPacing.tries``."""
        return self.fruitless


NOTHING_MOVES = "repeated deliveries had no effect"
"""Reason for giving up a direction without an error."""


class PassResult(Protocol):
    """Result of a pass."""

    @property
    def state(self) -> Enum:
        """Final state."""

    @property
    def why(self) -> str:
        """Reason for incomplete work."""

    @property
    def messages(self) -> int:
        """Submitted messages."""

    @property
    def transactions(self) -> int:
        """Submitted transactions."""


Way = TypeVar("Way", bound=DirectionProgress)
Result = TypeVar("Result", bound=PassResult)


class RelayLoop(ABC, Generic[Way, Result]):
    """Passes of a process in all its directions.

    Args:
        progress: Progress of each direction, updated by its passes.
        pacing: Timing of passes.
        faults: Fault rates of its transactions.
        seed: Seed of the faults.
        report: Callback after every pass.
        journal: Log of events.
    """

    def __init__(
        self,
        progress: Sequence[Way],
        pacing: PassPacing | None,
        faults: FaultSettings | None,
        seed: int,
        report: Callable[[Way], None] | None,
        journal: Journal,
    ) -> None:
        self.progress = progress
        self._pacing, self._journal = pacing or PassPacing(), journal
        self._report = report or (lambda progress: None)
        settings = faults or FaultSettings()
        self._faults: dict[str, TransactionFaults[Submit]] = {
            str(item.direction): TransactionFaults(settings, f"{seed}/{item.direction}") for item in progress
        }
        self._random = random.Random()
        self._stopping = asyncio.Event()

    @abstractmethod
    async def _pass(self, progress: Way) -> Result:
        """Run one pass in one direction and update its progress."""

    @abstractmethod
    def _answered(self, step: Any) -> Awaitable[Any]:
        """Answer a step of a pass."""

    @abstractmethod
    def _left(self, passed: Result) -> int:
        """Return the amount of work before a pass."""

    @abstractmethod
    def _waits(self, progress: Way) -> bool:
        """Return True if a direction has work that cannot be done yet."""

    @abstractmethod
    def _remark(self, progress: Way, passed: Result, why: str) -> None:
        """Log further findings of a pass; ``why`` is the previous reason."""

    def _is_counted(self, progress: Way) -> bool:
        """Return True if this direction's work keeps the process busy and is logged."""
        return True

    def stop(self) -> None:
        """End every direction after its current pass, at most ``PassPacing.grace`` later."""
        self._stopping.set()

    async def forever(self) -> None:
        """Run passes in all directions until ``stop``."""
        await self._until_stopped([self._direction(progress) for progress in self.progress])

    async def until_idle(self) -> None:
        """Run passes in all directions until none has work, or can do any."""
        await self._until_stopped([self._idle()])

    async def _until_stopped(self, work: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Run all work to its end; cancel it some time after ``stop``.

        Errors outside passes, such as a closed output, end all work and are raised.
        """
        tasks = [asyncio.create_task(item) for item in work]
        stop = asyncio.create_task(self._stopping.wait())
        pending = set(tasks)
        try:
            while pending and not self._stopping.is_set():
                done, _ = await asyncio.wait({*pending, stop}, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
                if any(task.exception() is not None for task in done):
                    break
            if pending and self._stopping.is_set():
                await asyncio.wait(pending, timeout=self._pacing.grace)
        finally:
            for task in (*tasks, stop):
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [error for error in ended if isinstance(error, Exception)]
        if failed:
            raise failed[0]

    async def _idle(self) -> None:
        """Run passes in turn until all directions are quiet since the last submission, or given up.

        A failing or stalled direction skips turns, so it does not delay the others.
        """
        due = dict.fromkeys(map(str, (progress.direction for progress in self.progress)), 0.0)
        quiet: set[str] = set()
        busy: set[str] = set()
        while not self._stopping.is_set():
            running = [progress for progress in self.progress if not progress.given_up]
            if quiet.issuperset(str(progress.direction) for progress in running):
                return
            waits = False
            for progress in running:
                way = str(progress.direction)
                if self._now() < due[way]:
                    waits = True
                    continue
                before = self._submitted_counts()
                await self._supervised(progress)
                if progress.vain >= self._pacing.tries:
                    progress.given_up = True
                    progress.why = progress.why or NOTHING_MOVES
                    self._journal.error("given-up", direction=progress.direction, why=progress.why)
                    continue
                waits |= bool(progress.fruitless) or self._waits(progress)
                due[way] = self._now() + self._pause_after(progress) if progress.fruitless else 0.0
                if progress.failures:
                    continue  # a failed pass says nothing about remaining work
                if before != self._submitted_counts() or progress.stalled or self._waits(progress):
                    busy.add(way)
                    quiet.discard(way)
                elif way in busy:
                    # Its work is done, which may have created work for others.
                    busy.remove(way)
                    quiet = {way}
                else:
                    quiet.add(way)
            if waits:
                await self._sleep(self._pause_of(0))

    async def _direction(self, progress: Way) -> None:
        refused = 0
        while not self._stopping.is_set():
            await self._supervised(progress)
            if progress.given_up:
                return
            refused = refused + 1 if progress.hopeless else 0
            await self._sleep(self._pause_after(progress, refused))

    def _submitted_counts(self) -> tuple[int, int]:
        """Return counters that change with every submission in the counted directions."""
        counted = [progress for progress in self.progress if self._is_counted(progress)]
        faults_by_direction = [self._faults[str(progress.direction)] for progress in counted]
        handed_over = sum(progress.transactions for progress in counted)
        return handed_over, sum(faults.lost + len(faults.late) for faults in faults_by_direction)

    async def _supervised(self, progress: Way) -> None:
        """Run one pass in one direction and process its result or failure."""
        state, why = progress.state, progress.why
        try:
            async with asyncio.timeout(self._pacing.longest_pass):
                passed = await self._pass(progress)
        except Exception as error:
            self._failed(progress, error)
            return
        if progress.failures:
            self._journal.info("recovered", direction=progress.direction, failures=progress.failures)
        progress.failures = 0
        if passed.transactions:
            note = self._journal.info if self._is_counted(progress) else self._journal.debug
            note(
                "delivered",
                direction=progress.direction,
                messages=passed.messages,
                transactions=passed.transactions,
                left=max(self._left(passed) - passed.messages, 0),
                height=progress.moved_at,
            )
        if progress.hopeless and (progress.state, progress.why) != (state, why):
            self._journal.warning("refused", direction=progress.direction, state=progress.state, why=progress.why)
        self._remark(progress, passed, why)
        self._report(progress)

    async def _carried_out(
        self, progress: Way, clients: Mapping[str, ServiceClient], steps: Generator[Any, Any, Result]
    ) -> tuple[Result, int | None]:
        """Execute the steps of a pass and update the common progress.

        Returns:
            The result, and the height of its last transaction's block if known.
        """
        answer: Any = None
        committed: int | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                passed: Result = end.value
                break
            if not isinstance(step, Submit):
                answer = await self._answered(step)
                continue
            faults = self._faults[str(progress.direction)]
            height = await self._submit(clients[step.end], step, faults)
            answer = None
            if height is not None:
                progress.moved_at = committed = height
        progress.state, progress.why = passed.state.value, passed.why[:MOST_CHARACTERS]
        progress.passes += 1
        progress.transactions += passed.transactions
        progress.messages += passed.messages
        return passed, committed

    def _pause_after(self, progress: Way, refused: int = 0) -> float:
        """Return the pause in seconds after a pass; ``refused`` counts successive refusals."""
        fruitless = progress.fruitless + refused
        pause = self._pause_of(fruitless)
        if fruitless:
            self._journal.debug("back-off", direction=progress.direction, seconds=round(pause, 2))
        return pause

    def _pause_of(self, fruitless: int) -> float:
        """Return the pause in seconds, doubled for every pass without effect."""
        # Jitter keeps simultaneous failures from retrying simultaneously.
        longest = max(self._pacing.longest_pause, self._pacing.poll)
        return min(self._pacing.poll * float(1 << min(fruitless, 30)), longest) * self._random.uniform(0.8, 1.2)

    def _now(self) -> float:
        """Return the loop's time in seconds."""
        return asyncio.get_running_loop().time()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, or return early on ``stop``."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _failed(self, progress: Way, error: Exception) -> None:
        name = type(error).__name__
        expected = isinstance(error, ServiceError | ProofError | TimeoutError)
        progress.errors[name] = progress.errors.get(name, 0) + 1
        progress.state, progress.why = "error", (str(error) or name)[:MOST_CHARACTERS]
        progress.failures += 1
        progress.given_up = isinstance(error, RefusedForGood)
        note = self._journal.warning if expected else self._journal.error
        event = "lost" if isinstance(error, Unreachable) else "failed"
        note(event, direction=progress.direction, error=name, failures=progress.failures, why=progress.why)
        if progress.given_up:
            self._journal.error("given-up", direction=progress.direction, why=progress.why)
        self._report(progress)

    async def _submit(self, client: ServiceClient, submit: Submit, faults: TransactionFaults[Submit]) -> int | None:
        """Submit a transaction subject to faults; return the height of the last one's block."""
        name, height = "", None
        for one in faults.applied(submit):
            name, height = await client.submit(one.chain, one.transaction, 0)
        if not submit.last or not name:
            return height
        waited = 0.0
        while height is None and waited < self._pacing.longest_wait and not self._stopping.is_set():
            height = await client.height_of(name, WAIT)
            waited += WAIT
        return height


class ProgressCollector(Collector):
    """Prometheus metrics of a relay process's directions.

    Args:
        progress: Progress of the directions.
        gauges: Descriptions of gauges by attribute name.
        counters: Descriptions of counters by attribute name.
        by_name: Descriptions of counters by error name.
    """

    def __init__(
        self,
        progress: Sequence[DirectionProgress],
        gauges: Mapping[str, str],
        counters: Mapping[str, str],
        by_name: Mapping[str, str],
    ) -> None:
        self._progress = progress
        self._numbers = ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters))
        self._by_name = by_name

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        for family, metrics in self._numbers:
            for name, text in metrics.items():
                metric = family(f"causeway_relay_{name}", text, labels=["direction"])
                for item in self._progress:
                    metric.add_metric([str(item.direction)], getattr(item, name))
                yield metric
        for name, text in self._by_name.items():
            named = CounterMetricFamily(f"causeway_relay_{name}", text, labels=["direction", "error"])
            for item in self._progress:
                for error, count in dict(getattr(item, name)).items():  # another thread may update it
                    named.add_metric([str(item.direction), error], count)
            yield named
