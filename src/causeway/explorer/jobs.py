"""Work for pages in threads: so much at a time, so much that waits for its turn, and a deadline for each."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from causeway.model.errors import CausewayError

Result = TypeVar("Result")


class TooMany(CausewayError):
    """As much work waits as may; that passes."""


class TooLong(CausewayError):
    """Work was not done within its time."""


class Jobs:
    """Threads that do work one piece after the other.

    Args:
        name: what it is for, in errors.
        threads: so many pieces at a time. They end with the process, whatever they are at.
        waiting: so many pieces wait for a thread at most.
        seconds: within which a piece must be done, its waiting included. One that runs then is not stopped, which no
            thread can be: it keeps its thread, so that there are never more of them, and its result is dropped.
    """

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._most = threads + waiting
        self._open = 0
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns, or raise what it does.

        Raises:
            TooMany: too much waits already.
            TooLong: it was not done in time.
        """
        with self._lock:
            if self._open >= self._most:
                raise TooMany(f"{self._name}: {self._most} are under way, which is all that may be; come again")
            self._open += 1
        future: Future[Result] = Future()
        future.add_done_callback(self._done)
        self._queue.put((future, work))
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            future.cancel()
            raise TooLong(f"{self._name}: not done within {self._seconds:g} s; come again, or ask for less") from None
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._open -= 1

    def _work(self) -> None:
        while True:
            future, work = self._queue.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del future, work


__all__ = ["Jobs", "TooLong", "TooMany"]
