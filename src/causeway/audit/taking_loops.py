"""A loop over events and the ``reverted`` rows that speak of them: which events are taken back."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.audit.message_loops import NO_HEIGHT, NO_TIME, WORDS
from causeway.model.compiled import BYTES, BYTES_OUT, NOTHING, ROWS, compiled


@compiled(allocates=False)
def put(heap: Any, size: Any, value: Any) -> None:
    """Put a number into a heap of so many, of which the least is first."""
    at = size
    while at > 0 and heap[(at - 1) >> 1] > value:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = value


@compiled(allocates=False)
def take(heap: Any, size: Any) -> Any:
    """Take the least number out of a heap of so many."""
    found, value = heap[0], heap[size - 1]
    at, child = 0, 1
    while child < size - 1:
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = value
    return found


@compiled(NOTHING, [ROWS, BYTES, WORDS, ROWS, BYTES_OUT])
def take_back(starts: Any, back: Any, height: Any, time: Any, gone: Any) -> None:
    """Write 1 for each event that a ``reverted`` row takes back.

    Each group, from its start up to the next one, has the events of one kind, message and chain, and behind them the
    rows that take them back (``back``), both by height, then by time, unseen last. In their order each row takes back
    the first event that is left and not after it: by height where both have one, else by time where both have one.
    """
    for group in range(len(starts) - 1):
        low, high = starts[group], starts[group + 1]
        # Events with a height, then those with a time alone, then those with neither, and then what takes them back.
        first_timed = low
        while first_timed < high and not back[first_timed] and height[first_timed] != NO_HEIGHT:
            first_timed += 1
        first_bare = first_timed
        while first_bare < high and not back[first_bare] and time[first_bare] != NO_TIME:
            first_bare += 1
        stop = first_bare
        while stop < high and not back[stop]:
            stop += 1
        placed, timed, bare, row = low, first_timed, first_bare, stop
        while row < high and height[row] != NO_HEIGHT and low < stop:
            if placed < first_timed and height[placed] <= height[row]:
                gone[placed] = 1
                placed += 1
            elif timed < first_bare and time[timed] <= time[row]:
                gone[timed] = 1
                timed += 1
            elif bare < stop:
                gone[bare] = 1
                bare += 1
            row += 1
        if row == high or low == stop:
            continue
        # Of those without height, to each time belong all events with a height of that time or before.
        left = first_timed - placed
        times = np.empty(left, dtype=np.int64)
        for each in range(left):
            seen = time[placed + each] != NO_TIME
            times[each] = time[placed + each] if seen else np.int64(-0x8000000000000000)
        order = np.argsort(times)
        heap = np.empty(left, dtype=np.int64)
        size, reached = 0, 0
        while row < high:
            while reached < left and times[order[reached]] <= time[row]:
                put(heap, size, placed + order[reached])
                size += 1
                reached += 1
            if size > 0:
                gone[take(heap, size)] = 1
                size -= 1
            elif timed < first_bare and time[timed] <= time[row]:
                gone[timed] = 1
                timed += 1
            elif bare < stop:
                gone[bare] = 1
                bare += 1
            row += 1


__all__ = ["take_back"]
