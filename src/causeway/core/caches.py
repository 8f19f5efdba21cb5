"""Caches bounded by bytes rather than entries, since untrusted input may have any length."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from cachetools import LRUCache, cached

CachedValue = TypeVar("CachedValue")


def cache_results(
    function: Callable[..., CachedValue], size: int, weight: Callable[[CachedValue], int]
) -> Callable[..., CachedValue]:
    """Cache the results of a function in a thread-safe LRU cache.

    Calls are serialized, once for equal arguments. Errors are not cached.

    Args:
        function: The function; its arguments are hashable.
        size: Maximum bytes of all values; a larger one is cached alone.
        weight: Returns the bytes of a value.

    Returns:
        The cached function.
    """
    lock = threading.Lock()

    def call(*arguments: Any) -> CachedValue:
        with lock:
            return function(*arguments)

    cache: LRUCache[Any, CachedValue] = LRUCache(size, getsizeof=lambda value: min(weight(value), size))
    return cached(cache, condition=threading.Condition())(call)
