"""Passes of a relay process: each direction at its own pace, supervised, until all is done or somebody says stop.

Whatever goes wrong in a pass, its own direction pauses, longer each time, and starts again; no other notices.

What Prometheus is told by a relay process.
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
from causeway.service.relay.steps import Direction, Submit

WAIT = 20
"""Seconds that a request waits for a block."""

MOST_CHARACTERS = 500
"""Of why something was refused, so many are kept."""


@dataclass(frozen=True)
class PassPacing:
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
class DirectionProgress:
    """What a process did in one direction, and what it last saw there.

    ``passes``: those that came to their end; ``transactions``, ``messages``: handed over; ``moved_at``: the height that
    took the last transaction; ``errors``: passes that failed, by the error's name; ``failures``: those that failed, one
    after the other, up to the last; ``stalled``: those that found the target as it was before; ``given_up``: whether no
    more are made. ``hopeless_states``: the states in which nothing that a process can do moves a direction.
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
        """Return the object that ``--json`` prints."""
        content = {name: value for name, value in self.__dict__.items() if name not in ("direction", "given_up")}
        return {"direction": str(self.direction), **content}

    @property
    def hopeless(self) -> bool:
        """Return whether the target takes nothing from this process any more, or the direction was given up."""
        return self.given_up or self.state in self.hopeless_states

    @property
    def fruitless(self) -> int:
        """Return how many passes one after the other, up to the last, failed or moved nothing: the pauses between them
        become longer."""
        return self.failures + self.stalled

    @property
    def vain(self) -> int:
        """Return how many passes came to nothing, of which ``Pacing.tries`` are made."""
        return self.fruitless


NOTHING_MOVES = "what was found and handed over, time after time, changed nothing"
"""What is said of a direction that is given up where no answer said why."""


class PassResult(Protocol):
    """What a pass found and did."""

    @property
    def state(self) -> Enum:
        """Return how it ended."""
        ...

    @property
    def why(self) -> str:
        """Return what kept it from doing more."""
        ...

    @property
    def messages(self) -> int:
        """Return how many messages it handed over."""
        ...

    @property
    def transactions(self) -> int:
        """Return in how many transactions."""
        ...


Way = TypeVar("Way", bound=DirectionProgress)
Result = TypeVar("Result", bound=PassResult)


class RelayLoop(ABC, Generic[Way, Result]):
    """The passes of a process in all its directions.

    Args:
        progress: of each direction; what came of its passes is noted there.
        pacing: when passes are made.
        faults: what happens to the transactions, and with the ``seed`` to which.
        report: called after every pass.
        journal: is told what happens.
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
        made = faults or FaultSettings()
        self._faults: dict[str, TransactionFaults[Submit]] = {
            str(item.direction): TransactionFaults(made, f"{seed}/{item.direction}") for item in progress
        }
        self._random = random.Random()
        self._stopping = asyncio.Event()

    @abstractmethod
    async def _pass(self, progress: Way) -> Result:
        """Make one pass in one direction, and note what came of it."""

    @abstractmethod
    def _answered(self, step: Any) -> Awaitable[Any]:
        """Return the answer to what a pass asks for."""

    @abstractmethod
    def _left(self, passed: Result) -> int:
        """Return how much there was to bring before a pass."""

    @abstractmethod
    def _waits(self, progress: Way) -> bool:
        """Return whether a direction has something to bring that cannot be brought yet."""

    @abstractmethod
    def _remark(self, progress: Way, passed: Result, why: str) -> None:
        """Tell the journal what else a pass found; ``why``: what the one before could not do."""

    def _is_counted(self, progress: Way) -> bool:
        """Return whether a process has something to do as long as this direction has; the journal tells of it."""
        return True

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
        """Make passes in turns until every direction has been found quiet since anything was last handed over, or
        ceased to be to do. One that fails or stalls misses turns, so that the others do not wait for it."""
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
                before = self._handed_over()
                await self._supervised(progress)
                if progress.vain >= self._pacing.tries:
                    progress.given_up = True
                    progress.why = progress.why or NOTHING_MOVES
                    self._journal.error("given-up", direction=progress.direction, why=progress.why)
                    continue
                waits |= bool(progress.fruitless) or self._waits(progress)
                due[way] = self._now() + self._pause_after(progress) if progress.fruitless else 0.0
                if progress.failures:
                    continue  # it says nothing of what is to do
                if before != self._handed_over() or progress.stalled or self._waits(progress):
                    busy.add(way)
                    quiet.discard(way)
                elif way in busy:
                    # What it had to do is done: others may have to go on with that.
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

    def _handed_over(self) -> tuple[int, int]:
        """Return what changes with everything that is handed over in the directions that count."""
        mine = [progress for progress in self.progress if self._is_counted(progress)]
        held = [self._faults[str(progress.direction)] for progress in mine]
        handed_over = sum(progress.transactions for progress in mine)
        return handed_over, sum(faults.lost + len(faults.late) for faults in held)

    async def _supervised(self, progress: Way) -> None:
        """Make one pass in one direction, and take notice of whatever came of it."""
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
        """Do what a pass asks for, step by step, and note what every protocol's passes have. Returns what came of it,
        and the height that took the last of its transactions, None if none is known."""
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
            height = await self._submitted(clients[step.end], step, faults)
            answer = None
            if height is not None:
                progress.moved_at = committed = height
        progress.state, progress.why = passed.state.value, passed.why[:MOST_CHARACTERS]
        progress.passes += 1
        progress.transactions += passed.transactions
        progress.messages += passed.messages
        return passed, committed

    def _pause_after(self, progress: Way, refused: int = 0) -> float:
        """Return how many seconds a direction pauses after a pass; it was ``refused`` so often one after the other."""
        fruitless = progress.fruitless + refused
        pause = self._pause_of(fruitless)
        if fruitless:
            self._journal.debug("back-off", direction=progress.direction, seconds=round(pause, 2))
        return pause

    def _pause_of(self, fruitless: int) -> float:
        """Return the seconds between two passes: twice as many after every one that had no effect."""
        # Those who fail together shall not come again together.
        longest = max(self._pacing.longest_pause, self._pacing.poll)
        return min(self._pacing.poll * float(1 << min(fruitless, 30)), longest) * self._random.uniform(0.8, 1.2)

    def _now(self) -> float:
        """Return the seconds of the clock that pauses are measured by."""
        return asyncio.get_running_loop().time()

    async def _sleep(self, seconds: float) -> None:
        """Wait so long, or until ``stop``."""
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

    async def _submitted(self, client: ServiceClient, submit: Submit, faults: TransactionFaults[Submit]) -> int | None:
        """Submit a transaction, as the faults leave it; for the last one wait until a block has it. Returns its
        height."""
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
    """The metrics of what a relay process did in each direction.

    Args:
        progress: the directions.
        gauges: numbers of ``progress``, with what they are.
        counters: those that only grow.
        by_name: such counts by name, which is the label ``error``.
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
                for error, count in dict(getattr(item, name)).items():  # another thread counts on
                    named.add_metric([str(item.direction), error], count)
            yield named
