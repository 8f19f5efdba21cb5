"""Caches that are bounded by bytes, not by entries: input from strangers may be of any length."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cachetools import LRUCache, cached

CachedValue = TypeVar("CachedValue")


def cache_results(
    function: Callable[..., CachedValue], size: int, weight: Callable[[CachedValue], int]
) -> Callable[..., CachedValue]:
    """Cache the values of a function by its arguments (hashable), least recently used first out.

    Threads may share it: they call ``function`` one at a time, and once for equal arguments. Errors are not cached.

    Args:
        function: what makes a value.
        size: bytes of all values; one longer than that is cached alone.
        weight: the bytes of a value.

    Returns:
        The cached function.
    """
    making = threading.Lock()

    def make(*arguments: Any) -> CachedValue:
        with making:
            return function(*arguments)

    kept: LRUCache[Any, CachedValue] = LRUCache(size, getsizeof=lambda value: min(weight(value), size))
    return cached(kept, condition=threading.Condition())(make)
