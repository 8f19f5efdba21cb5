"""Passes of a relay process: each direction at its own pace, supervised, until all is done or somebody says stop.

Whatever goes wrong in a pass, its own direction pauses, longer each time, and starts again; no other notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from causeway.proofs.errors import ProofError
from causeway.service.faults import Faults
from causeway.service.http_client import ServiceClient, ServiceError, Unreachable
from causeway.service.journal import Journal

WAIT = 20
"""Seconds that a request waits for a block."""

MOST_CHARACTERS = 500
"""Of why something was refused, so many are kept."""


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


class Supervised(Protocol):
    """What is known of the passes in one direction. ``failures``: those that failed, one after the other, up to the
    last; ``given_up``: whether no more are made."""

    direction: Any
    state: str
    why: str
    failures: int
    given_up: bool
    errors: dict[str, int]

    @property
    def fruitless(self) -> int:
        """Return how many passes one after the other, up to the last, failed or moved nothing."""
        ...


class Submitted(Protocol):
    """A transaction that a pass hands over; ``last``: no more come in this pass."""

    @property
    def chain(self) -> str:
        """Return the chain that it is for."""
        ...

    @property
    def transaction(self) -> bytes:
        """Return it."""
        ...

    @property
    def last(self) -> bool:
        """Return whether no more come in this pass."""
        ...


Way = TypeVar("Way", bound=Supervised)
Submit = TypeVar("Submit", bound=Submitted)


class Passes(ABC, Generic[Way, Submit]):
    """The passes of a process in all its directions. ``progress``: of each."""

    progress: Sequence[Way]

    def __init__(self, pacing: Pacing, journal: Journal) -> None:
        self._pacing, self._journal = pacing, journal
        self._random = random.Random()
        self._stopping = asyncio.Event()

    @abstractmethod
    async def _supervised(self, progress: Way) -> Any:
        """Make one pass in one direction, and take notice of whatever came of it; None if it failed."""

    @abstractmethod
    def _is_hopeless(self, passed: Any) -> bool:
        """Return whether nothing that the process can do moves the direction of a pass."""

    @abstractmethod
    def _waits(self, progress: Way) -> bool:
        """Return whether a direction has something to bring that cannot be brought yet."""

    @abstractmethod
    def _marks(self) -> Any:
        """Return what changes with everything that is handed over."""

    @abstractmethod
    def _report_failure(self, progress: Way) -> None:
        """Tell of a pass that failed."""

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
            before = self._marks()
            running = [progress for progress in self.progress if not progress.given_up]
            for progress in running:
                await self._supervised(progress)
            fruitless = [progress for progress in running if progress.fruitless]
            for progress in fruitless:
                if progress.fruitless >= self._pacing.tries:
                    progress.given_up = True
                    self._journal.error("given-up", direction=progress.direction, why=progress.why or "nothing moves")
            delayed = any(self._waits(progress) for progress in running if not progress.given_up)
            if not (fruitless or delayed) and before == self._marks():
                return
            if fruitless or delayed:
                await self._pause(max((progress.fruitless for progress in fruitless), default=0))

    async def _direction(self, progress: Way) -> None:
        refused = 0
        while not self._stopping.is_set():
            passed = await self._supervised(progress)
            refused = refused + 1 if passed is not None and self._is_hopeless(passed) else 0
            await self._pause(progress.fruitless + refused, progress)

    async def _pause(self, fruitless: int, progress: Way | None = None) -> None:
        """Wait until the next pass is due, or ``stop``: twice as long after every pass that had no effect."""
        # Those who fail together shall not come again together.
        longest = self._pacing.longest_pause
        pause = min(self._pacing.poll * 2 ** min(fruitless, 30), max(longest, self._pacing.poll))
        pause *= self._random.uniform(0.8, 1.2)
        if fruitless and progress is not None:
            self._journal.debug("back-off", direction=progress.direction, seconds=round(pause, 2))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause)

    def _failed(self, progress: Way, error: Exception) -> None:
        name = type(error).__name__
        expected = isinstance(error, ServiceError | ProofError | TimeoutError)
        progress.errors[name] = progress.errors.get(name, 0) + 1
        progress.state, progress.why = "error", (str(error) or name)[:MOST_CHARACTERS]
        progress.failures += 1
        note = self._journal.warning if expected else self._journal.error
        event = "lost" if isinstance(error, Unreachable) else "failed"
        note(event, direction=progress.direction, error=name, failures=progress.failures, why=progress.why)
        self._report_failure(progress)

    async def _handed_over(self, client: ServiceClient, submit: Submit, faults: Faults[Submit]) -> int | None:
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
