"""What a process keeps of the lakes that it worked for last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

KEPT = 2
"""Networks that take turns in one session find what they left; more than two do not, so that memory is bounded."""

IDLE_SECONDS = 60.0
"""After this long without use a value gives way to the other one; Spark ends workers that are idle as long."""


class Recent(Generic[Key, Value]):
    """The values of the keys that were used last: at most ``KEPT``, and but for the last one only those that were used
    within ``IDLE_SECONDS``. ``clock``: seconds, of whatever beginning. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._values: dict[Key, tuple[float, Value]] = {}  # the one that was used last at the end

    def use(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key, which is now the one used last; ``make`` gives the value of one that is not
        kept."""
        with self._lock:
            found = self._values.pop(key, None)
            now = self._clock()
            for other in [other for other, (used, _) in self._values.items() if used < now - IDLE_SECONDS]:
                del self._values[other]
            while len(self._values) >= KEPT:
                del self._values[next(iter(self._values))]
            value = make() if found is None else found[1]
            self._values[key] = now, value
            return value

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._values.clear()
