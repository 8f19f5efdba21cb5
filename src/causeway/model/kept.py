"""A cache that is bounded by bytes, not by entries: what a stranger asks for or sends may be of any length."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """Values by key, as long as there is room: ``size`` bytes for all together, but one at least.

    The least recently used go first. Threads may share one.
    """

    def __init__(self, size: int) -> None:
        self._size, self.used = size, 0
        self._values: OrderedDict[Hashable, tuple[int, Value]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """Return what is kept under a key, None for nothing."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[1]

    def put(self, key: Hashable, value: Value, weight: int) -> None:
        """Keep a value that is counted for ``weight`` bytes."""
        with self._lock:
            self.used += weight - self._values.pop(key, (0, value))[0]
            self._values[key] = weight, value
            while self.used > self._size and len(self._values) > 1:
                _, (gone, _) = self._values.popitem(last=False)
                self.used -= gone


def remembering(function: Callable[..., Value], size: int, weight: Callable[[Value], int]) -> Callable[..., Value]:
    """Return a function that remembers what ``function`` returned for its arguments (hashable), ``size`` bytes of it.

    ``weight``: how many bytes a value has. What raises is not remembered. Of several threads one at a time makes a
    value, so that what many ask for is made once, and no more than one is in memory beside those that are kept.
    """
    kept: Kept[Value] = Kept(size)
    making = threading.RLock()

    def remembered(*arguments: Any) -> Value:
        found = kept.get(arguments)
        if found is not None:
            return found
        with making:
            found = kept.get(arguments)
            if found is None:
                found = function(*arguments)
                kept.put(arguments, found, weight(found))
            return found

    return remembered
