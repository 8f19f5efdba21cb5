"""A loop over events and the ``reverted`` rows that speak of them: which events are taken back."""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.audit.message_loops import NO_TIME
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


@compiled(NOTHING, [ROWS, BYTES, ROWS, BYTES_OUT])
def take_back(starts: Any, back: Any, time: Any, gone: Any) -> None:
    """Write 1 for each event that a ``reverted`` row takes back.

    Each group, from its start up to the next one, has the events of one kind, message and chain, in their order, and
    behind them the rows that take them back (``back``), by time, unseen last. In their order each of these takes back
    the first event that is left and not of a later time, where both times were seen.
    """
    for group in range(len(starts) - 1):
        low, high = starts[group], starts[group + 1]
        row = low
        while row < high and not back[row]:
            row += 1
        left = row - low
        if left == 0 or row == high:
            continue
        times = np.empty(left, dtype=np.int64)
        for each in range(left):
            seen = time[low + each] != NO_TIME
            times[each] = time[low + each] if seen else np.int64(-0x8000000000000000)
        order = np.argsort(times)
        heap = np.empty(left, dtype=np.int64)
        size, reached = 0, 0
        while row < high:
            while reached < left and times[order[reached]] <= time[row]:
                put(heap, size, low + order[reached])
                size += 1
                reached += 1
            if size > 0:
                gone[take(heap, size)] = 1
                size -= 1
            row += 1


__all__ = ["take_back"]
